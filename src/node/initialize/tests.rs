//! The rows of upstream's `Test_syncNode` that decide; those that read or write are in `tests/controllers_node.rs`.

use super::*;
use crate::node::{
    fixtures::{With, addresses as list, cloud, labels as labels_of, node, spec, status, taint},
    well_known::*,
};

fn tainted() -> Node {
    node("n").with(|n| {
        spec(n).taints = Some(vec![taint("dedicated", "NoSchedule"), taint(TAINT_UNINITIALIZED, "NoSchedule")]);
        status(n).addresses = Some(list(&["Hostname own"]));
    })
}

fn metadata() -> InstanceMetadata {
    InstanceMetadata {
        provider_id: "fake://1".into(),
        instance_type: "t1.micro".into(),
        node_addresses: cloud(&["InternalIP 10.0.0.1", "ExternalIP 132.143.154.163"]),
        zone: "us-east-1a".into(),
        region: "us-east".into(),
        ..InstanceMetadata::default()
    }
}

fn annotated(ip: &str) -> Node {
    tainted().with(|n| n.metadata.annotations = Some([(ANNOTATION_PROVIDED_NODE_IP.to_owned(), ip.to_owned())].into()))
}

#[test]
fn initialization_has_addresses_and_other_changes() {
    let initialization = initialize(&tainted(), &metadata(), false).unwrap();
    assert_eq!(initialization.addresses, Some(list(&["InternalIP 10.0.0.1", "ExternalIP 132.143.154.163", "Hostname own"])));
    assert_eq!(initialization.changes.provider_id.as_deref(), Some("fake://1"));
    assert_eq!(initialization.changes.taints, Some(vec![taint("dedicated", "NoSchedule")]));
    assert_eq!(
        initialization.changes.labels,
        labels_of(&[(LABEL_INSTANCE_TYPE, "t1.micro"), (LABEL_ZONE, "us-east-1a"), (LABEL_REGION, "us-east"),])
    );
}

#[test]
fn provider_id_is_set_if_missing() {
    let own = tainted().with(|n| spec(n).provider_id = Some("fake://own".into()));
    let without = InstanceMetadata { provider_id: String::new(), ..metadata() };
    let unmanaged = InstanceMetadata { is_unmanaged: true, ..without.clone() };
    let no_ids = InstanceMetadata { has_no_id: true, ..without.clone() };
    for (name, node, metadata, expected) in [
        ("from the cloud", tainted(), metadata(), Ok(Some("fake://1".to_owned()))),
        ("already set", own.clone(), metadata(), Ok(None)),
        ("only on the node", own, without.clone(), Ok(None)),
        ("nowhere", tainted(), without, Err(NodeInitializeError::NoProviderId)),
        ("of another cloud", tainted(), unmanaged, Ok(None)),
        ("of a cloud without IDs", tainted(), no_ids, Ok(None)),
    ] {
        let initialization = initialize(&node, &metadata, false);
        if let Ok(initialization) = &initialization {
            assert!(initialization.changes.taints.is_some(), "{name}: the taint is removed");
        }
        assert_eq!(initialization.map(|initialization| initialization.changes.provider_id), expected, "{name}");
    }
}

#[test]
fn unreported_node_ips_prevent_the_initialization() {
    for (name, ip, ok) in
        [("matched", "10.0.0.1", true), ("not valid", "invalid-ip", false), ("not present", "10.0.0.2", false)]
    {
        assert_eq!(initialize(&annotated(ip), &metadata(), false).is_ok(), ok, "{name}");
    }
    let silent = InstanceMetadata { node_addresses: Vec::new(), ..metadata() };
    assert!(initialize(&annotated("10.0.0.1"), &silent, false).is_err(), "the cloud reports no address");
    let no_ids = InstanceMetadata { has_no_id: true, ..silent.clone() };
    assert!(initialize(&annotated("10.0.0.1"), &no_ids, false).is_err(), "nor does one without IDs");
    assert_eq!(initialize(&tainted(), &silent, false).unwrap().addresses, None);
}

#[test]
fn labels_of_the_instance_precede_additional_labels() {
    let node = tainted().with(|n| n.metadata.labels = Some(labels_of(&[("kept", "mine")])));
    let additional_labels = labels_of(&[("kept", "theirs"), ("new", "1"), ("topology.kubernetes.io/zone", "no")]);
    let initialization = initialize(&node, &InstanceMetadata { additional_labels, ..metadata() }, false).unwrap();
    assert_eq!(initialization.changes.labels.get("new").map(String::as_str), Some("1"));
    assert_eq!(initialization.changes.labels.get("kept"), None);
    assert_eq!(initialization.changes.labels[LABEL_ZONE], "us-east-1a");
    assert_eq!(initialization.dropped_labels.len(), 2);
}

#[test]
fn beta_labels_are_set_in_the_same_write_on_request() {
    let node = tainted().with(|n| n.metadata.labels = Some(labels_of(&[(LABEL_ZONE, "own"), (LABEL_REGION_BETA, "r")])));
    let silent = InstanceMetadata { zone: String::new(), ..metadata() };
    let set = |beta_labels| {
        let initialization = initialize(&node, &silent, beta_labels).unwrap();
        initialization.changes.labels
    };
    let stable = [(LABEL_INSTANCE_TYPE, "t1.micro"), (LABEL_REGION, "us-east")];
    let beta = [(LABEL_INSTANCE_TYPE_BETA, "t1.micro"), (LABEL_REGION_BETA, "us-east"), (LABEL_ZONE_BETA, "own")];
    assert_eq!(set(false), labels_of(&stable));
    assert_eq!(set(true), labels_of(&[&stable[..], &beta[..]].concat()));
}

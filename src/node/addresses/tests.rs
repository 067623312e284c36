use super::*;
use crate::node::fixtures::{With, addresses as list, cloud, node, status};

fn with_provided_ip(annotation: &str) -> Node {
    node("n").with(|n| {
        n.metadata.annotations = Some([(ANNOTATION_PROVIDED_NODE_IP.to_owned(), annotation.to_owned())].into());
    })
}

type Lines = &'static [&'static str];

/// Upstream: `GetNodeAddressesFromNodeIP` in `node/helpers/address_test.go`.
#[test]
fn provided_node_ips_come_first() {
    #[rustfmt::skip]
    let cases: &[(&str, &str, Lines, Option<Lines>)] = &[
        ("single internal", "10.1.1.1",
            &["InternalIP 10.1.1.1", "ExternalIP 55.55.55.55", "Hostname host"],
            Some(&["InternalIP 10.1.1.1", "ExternalIP 55.55.55.55", "Hostname host"])),
        ("external requested", "55.55.55.55",
            &["InternalIP 10.1.1.1", "ExternalIP 55.55.55.55", "Hostname host"],
            Some(&["ExternalIP 55.55.55.55", "InternalIP 10.1.1.1", "Hostname host"])),
        ("same address internal and external", "10.1.1.1",
            &["InternalIP 10.1.1.1", "ExternalIP 10.1.1.1", "Hostname host"],
            Some(&["InternalIP 10.1.1.1", "ExternalIP 10.1.1.1", "Hostname host"])),
        ("dns types kept", "10.1.1.1",
            &["InternalIP 10.1.1.1", "Hostname host", "InternalDNS a.internal", "ExternalDNS a.example"],
            Some(&["InternalIP 10.1.1.1", "Hostname host", "InternalDNS a.internal", "ExternalDNS a.example"])),
        ("several internals", "10.1.1.1",
            &["InternalIP 10.1.1.3", "InternalIP 10.1.1.1", "ExternalIP 55.55.55.55", "Hostname host"],
            Some(&["InternalIP 10.1.1.1", "ExternalIP 55.55.55.55", "Hostname host"])),
        ("unknown address", "10.1.1.3", &["InternalIP 10.1.1.1", "ExternalIP 55.55.55.55"], None),
        ("no addresses", "10.1.1.3", &[], None),
        ("empty annotation", " ", &["InternalIP 10.1.1.3", "InternalIP 10.1.1.1"],
            Some(&["InternalIP 10.1.1.3", "InternalIP 10.1.1.1"])),
        ("spaces", " fc01::1, 10.1.1.1", &["InternalIP 10.1.1.1", "InternalIP fc01::1"],
            Some(&["InternalIP fc01::1", "InternalIP 10.1.1.1"])),
        ("other spelling of IPv6", "2600:1f14:1d4:d101::ba3d",
            &["InternalIP 10.1.1.1", "InternalIP 2600:1f14:1d4:d101:0:0:0:ba3d", "Hostname host"],
            Some(&["InternalIP 2600:1f14:1d4:d101:0:0:0:ba3d", "Hostname host"])),
        ("IPv4 in IPv6 is the IPv4 address", "::ffff:10.1.1.1", &["InternalIP 10.1.1.1"], Some(&["InternalIP 10.1.1.1"])),
        ("dual on a single-stack cloud", "10.1.1.1,fc01:1234::5678", &["InternalIP 10.1.1.1", "Hostname host"], None),
        ("dual, cloud has IPv4 first", "10.1.1.1,fc01:1234::5678",
            &["InternalIP 10.1.1.1", "InternalIP fc01:1234::5678", "Hostname host"],
            Some(&["InternalIP 10.1.1.1", "InternalIP fc01:1234::5678", "Hostname host"])),
        ("dual, IPv6 requested first", "fc01:1234::5678,10.1.1.1",
            &["InternalIP 10.1.1.1", "InternalIP fc01:1234::5678", "Hostname host"],
            Some(&["InternalIP fc01:1234::5678", "InternalIP 10.1.1.1", "Hostname host"])),
        ("dual, several of each", "10.1.1.1,fc01:1234::5678",
            &["InternalIP 10.1.1.3", "InternalIP 10.1.1.1", "InternalIP fc01:1234::1111", "InternalIP fc01:1234::5678", "Hostname host"],
            Some(&["InternalIP 10.1.1.1", "InternalIP fc01:1234::5678", "Hostname host"])),
        ("extra externals kept", "10.1.1.1,fc01:1234::5678",
            &["InternalIP 10.1.1.1", "InternalIP fc01:1234::5678", "ExternalIP 55.55.55.55", "ExternalIP 2600::1", "Hostname host"],
            Some(&["InternalIP 10.1.1.1", "InternalIP fc01:1234::5678", "ExternalIP 55.55.55.55", "ExternalIP 2600::1", "Hostname host"])),
        ("mixed match drops the other externals", "10.1.1.1,2600::1",
            &["InternalIP 10.1.1.1", "InternalIP fc01:1234::5678", "ExternalIP 55.55.55.55", "ExternalIP 2600::1", "Hostname host"],
            Some(&["InternalIP 10.1.1.1", "ExternalIP 2600::1", "Hostname host"])),
    ];
    for (name, annotation, reported, expected) in cases {
        let result = changed(&with_provided_ip(annotation), &cloud(reported));
        match expected {
            Some(expected) => assert_eq!(result, Ok(Some(list(expected))), "{name}"),
            None if reported.is_empty() => {
                assert!(check(&with_provided_ip(annotation), &cloud(reported)).is_err(), "{name}")
            }
            None => assert!(matches!(result, Err(NodeAddressError::NotOfCloud(..))), "{name}: {result:?}"),
        }
    }
}

#[test]
fn malformed_annotations_name_the_accepted_values() {
    let reported = cloud(&["InternalIP 10.1.1.1", "InternalIP fc01::1"]);
    for annotation in [
        "invalid-ip",
        ",",
        "10.1.1.1,10.1.1.2",
        "fc01::1,fc01::2",
        "0.0.0.0,fc01::1",
        "10.1.1.1,::",
        "10.1.1.1,fc01::1,10.1.1.2",
        "10.1.1.1,",
    ] {
        let error = check(&with_provided_ip(annotation), &reported).unwrap_err();
        assert_eq!(error, NodeAddressError::Malformed(annotation.into()));
        assert!(error.to_string().contains("--node-ip"), "{error}");
    }
}

/// Upstream: `TestNodeAddressesChangeDetected`, and the quirk of its map.
#[test]
fn changes_are_found_by_comparing_lists() {
    #[rustfmt::skip]
    let cases: &[(&str, Lines, Lines, bool)] = &[
        ("equal", &["InternalIP 10.0.0.1", "ExternalIP 1.1.1.1"], &["InternalIP 10.0.0.1", "ExternalIP 1.1.1.1"], false),
        ("value", &["InternalIP 10.0.0.1", "ExternalIP 1.1.1.1"], &["InternalIP 10.0.0.2", "ExternalIP 1.1.1.1"], true),
        ("extra old", &["InternalIP 10.0.0.1", "ExternalIP 1.1.1.1"], &["InternalIP 10.0.0.1"], true),
        ("extra new", &["InternalIP 10.0.0.1"], &["InternalIP 10.0.0.1", "ExternalIP 1.1.1.1"], true),
        ("swapped types", &["InternalIP 10.0.0.1", "ExternalIP 1.1.1.1"], &["ExternalIP 10.0.0.1", "InternalIP 1.1.1.1"], true),
        ("several of one type, equal", &["InternalIP 10.0.0.1", "InternalIP fc01::1"], &["InternalIP 10.0.0.1", "InternalIP fc01::1"], false),
        ("several of one type, first changed", &["InternalIP 10.0.0.1", "InternalIP fc01::1"], &["InternalIP 10.0.0.2", "InternalIP fc01::1"], true),
        ("order", &["InternalIP 10.0.0.1", "InternalIP fc01::1"], &["InternalIP fc01::1", "InternalIP 10.0.0.1"], true),
        ("the cloud reports none", &["InternalIP 10.0.0.1"], &[], false),
    ];
    for (name, old, new, expected) in cases {
        let node = node("n").with(|n| status(n).addresses = Some(list(old)));
        assert_eq!(changed(&node, &cloud(new)).unwrap().is_some(), *expected, "{name}");
    }
}

/// Upstream: `Test_syncNode`, "node initialized with hostname" and "cloud provider missing hostname".
#[test]
fn kubelets_host_name_is_kept_unless_the_cloud_has_one() {
    let node = node("n").with(|n| status(n).addresses = Some(list(&["Hostname own", "InternalIP 10.9.9.9"])));
    assert_eq!(
        changed(&node, &cloud(&["Hostname cloud", "InternalIP 10.0.0.1"])).unwrap(),
        Some(list(&["Hostname cloud", "InternalIP 10.0.0.1"]))
    );
    assert_eq!(
        changed(&node, &cloud(&["InternalIP 10.0.0.1", "ExternalIP 1.1.1.1"])).unwrap(),
        Some(list(&["InternalIP 10.0.0.1", "ExternalIP 1.1.1.1", "Hostname own"]))
    );
}

/// Upstream: `Test_syncNode`, "provided node IP address".
#[test]
fn provided_ip_and_host_name_together() {
    let node = with_provided_ip("10.0.0.1").with(|n| status(n).addresses = Some(list(&["Hostname own"])));
    assert_eq!(
        changed(&node, &cloud(&["InternalIP 10.0.0.9", "InternalIP 10.0.0.1", "ExternalIP 1.1.1.1"])).unwrap(),
        Some(list(&["InternalIP 10.0.0.1", "ExternalIP 1.1.1.1", "Hostname own"]))
    );
}

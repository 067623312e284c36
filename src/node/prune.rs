//! Fields that the informer removes from a Node before it is stored.

use k8s_openapi::api::core::v1::{Node, NodeSystemInfo};

use super::well_known::{
    ANNOTATION_PROVIDED_NODE_IP, CONDITION_NETWORK_UNAVAILABLE, LABEL_INSTANCE_TYPE, LABEL_INSTANCE_TYPE_BETA, LABEL_REGION,
    LABEL_REGION_BETA, LABEL_ZONE, LABEL_ZONE_BETA,
};
use crate::{cloud_provider::helpers::EXCLUDE_LABEL, runtime::informer::UnreadFields};

/// Conditions with a reader in this program.
const CONDITIONS: &[&str] = &["Ready", CONDITION_NETWORK_UNAVAILABLE];

/// Large fields of a Node's status that are removed before the Node is decoded.
const UNREAD_STATUS: &[&str] =
    &["allocatable", "capacity", "config", "features", "images", "runtimeHandlers", "volumesAttached", "volumesInUse"];

/// Fields of conditions that are removed before the Node is decoded.
const UNREAD_CONDITION: &[&str] = &["lastHeartbeatTime", "message"];

/// Annotations with a reader in this program.
const ANNOTATIONS: &[&str] = &[ANNOTATION_PROVIDED_NODE_IP];

/// Labels that the controllers read.
const LABELS: &[&str] = &[
    EXCLUDE_LABEL,
    LABEL_INSTANCE_TYPE,
    LABEL_INSTANCE_TYPE_BETA,
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
];

/// Returns the fields that can be removed before a Node is decoded, of those that [`prune_node`] removes.
pub fn unread_fields() -> UnreadFields {
    UnreadFields::new(UNREAD_STATUS, UNREAD_CONDITION).annotations_but(|key| ANNOTATIONS.contains(&key))
}

/// Returns the fields of [`unread_fields`], and the labels that [`prune_node_and_labels`] removes.
pub fn unread_fields_and_labels(provider_reads: impl Fn(&str) -> bool + Send + Sync + 'static) -> UnreadFields {
    unread_fields().labels_but(move |key| LABELS.contains(&key) || provider_reads(key))
}

/// Removes the fields that [`prune_node`] removes, and the labels that neither a controller nor the provider reads.
///
/// These labels take most of the memory of a large cluster's Nodes. Use it only for informers without a selector, because a
/// selector may name any label.
pub fn prune_node_and_labels(node: &mut Node, provider_reads: impl Fn(&str) -> bool) {
    prune_node(node);
    if let Some(labels) = &mut node.metadata.labels {
        labels.retain(|key, _| LABELS.contains(&key.as_str()) || provider_reads(key));
    }
}

/// Removes the fields without a reader in this program.
///
/// Keeps the metadata without most annotations, the spec, and of the status the addresses, two conditions and the machine's
/// UUID, by which a provider distinguishes a machine from another one created later under the same name.
pub fn prune_node(node: &mut Node) {
    if let Some(annotations) = &mut node.metadata.annotations {
        annotations.retain(|key, _| ANNOTATIONS.contains(&key.as_str()));
    }
    let Some(mut status) = node.status.take() else { return };
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| CONDITIONS.contains(&condition.type_.as_str()));
        conditions.shrink_to_fit();
        for condition in conditions {
            condition.message = None;
            condition.last_heartbeat_time = None;
        }
    }
    node.status = Some(k8s_openapi::api::core::v1::NodeStatus {
        addresses: status.addresses,
        conditions: status.conditions,
        node_info: status.node_info.map(|info| NodeSystemInfo { system_uuid: info.system_uuid, ..Default::default() }),
        ..Default::default()
    });
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerImage;

    use super::*;
    use crate::node::fixtures::*;

    #[test]
    fn labels_without_a_reader_are_removed() {
        let present = [
            ("agentpool", "a"),
            ("kubernetes.azure.com/os-sku", "Ubuntu"),
            (EXCLUDE_LABEL, ""),
            (LABEL_ZONE, "1"),
            ("tier", "gold"),
        ];
        let mut pruned = node("n").with(|n| n.metadata.labels = Some(labels(&present)));
        prune_node_and_labels(&mut pruned, |key| key == "tier");
        assert_eq!(pruned, node("n").with(|n| n.metadata.labels = Some(labels(&present[2..]))));
    }

    #[test]
    fn fields_without_a_reader_are_removed() {
        let whole = node("n").with(|n| {
            spec(n).provider_id = Some("fake://1".into());
            n.metadata.annotations = Some([(ANNOTATION_PROVIDED_NODE_IP.to_owned(), "10.0.0.1".to_owned())].into());
            status(n).addresses = Some(vec![address("InternalIP", "10.0.0.1")]);
            status(n).conditions = Some(vec![condition("Ready", "True")]);
            status(n).node_info = Some(NodeSystemInfo { system_uuid: "4c4c4544".into(), ..Default::default() });
        });
        let mut pruned = whole.clone().with(|n| {
            status(n).images = Some(vec![ContainerImage { names: Some(vec!["pause".into()]), size_bytes: Some(1) }]);
            status(n).node_info.as_mut().unwrap().kernel_version = "6.8".into();
            status(n).conditions.as_mut().unwrap().push(condition("DiskPressure", "False"));
            status(n).volumes_in_use = Some(vec!["disk".into()]);
            status(n).conditions.as_mut().unwrap()[0].message = Some("kubelet is posting ready status".into());
            n.metadata.annotations.as_mut().unwrap().insert("volumes.kubernetes.io/any".into(), "true".into());
        });
        prune_node(&mut pruned);
        assert_eq!(pruned, whole);
    }
}

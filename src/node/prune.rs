//! What the informer drops from a Node before it is kept.

use k8s_openapi::api::core::v1::Node;

/// Drops what no controller reads. Keeps metadata, spec, and of the status conditions and addresses.
pub fn prune_node(node: &mut Node) {
    let Some(status) = node.status.take() else { return };
    node.status = Some(k8s_openapi::api::core::v1::NodeStatus {
        addresses: status.addresses,
        conditions: status.conditions,
        ..Default::default()
    });
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerImage, NodeSystemInfo};

    use super::*;
    use crate::node::fixtures::*;

    #[test]
    fn images_go_and_what_is_read_stays() {
        let whole = node("n").with(|n| {
            spec(n).provider_id = Some("fake://1".into());
            status(n).addresses = Some(vec![address("InternalIP", "10.0.0.1")]);
            status(n).conditions = Some(vec![condition("Ready", "True")]);
        });
        let mut pruned = whole.clone().with(|n| {
            status(n).images = Some(vec![ContainerImage { names: Some(vec!["pause".into()]), size_bytes: Some(1) }]);
            status(n).node_info = Some(NodeSystemInfo::default());
            status(n).volumes_in_use = Some(vec!["disk".into()]);
        });
        prune_node(&mut pruned);
        assert_eq!(pruned, whole);
    }
}

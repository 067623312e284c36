//! What the informer drops from a Node before it is kept.

use k8s_openapi::api::core::v1::{Node, NodeSystemInfo};

use super::well_known::CONDITION_NETWORK_UNAVAILABLE;

/// Conditions that somebody here reads.
const CONDITIONS: &[&str] = &["Ready", CONDITION_NETWORK_UNAVAILABLE];

/// Drops what nobody here reads. Keeps metadata, spec, and of the status the addresses, two conditions and the machine's UUID, by
/// which a provider tells a machine from another one made later under the same name.
pub fn prune_node(node: &mut Node) {
    let Some(mut status) = node.status.take() else { return };
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| CONDITIONS.contains(&condition.type_.as_str()));
        conditions.shrink_to_fit();
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
    fn images_go_and_what_is_read_stays() {
        let whole = node("n").with(|n| {
            spec(n).provider_id = Some("fake://1".into());
            status(n).addresses = Some(vec![address("InternalIP", "10.0.0.1")]);
            status(n).conditions = Some(vec![condition("Ready", "True")]);
            status(n).node_info = Some(NodeSystemInfo { system_uuid: "4c4c4544".into(), ..Default::default() });
        });
        let mut pruned = whole.clone().with(|n| {
            status(n).images = Some(vec![ContainerImage { names: Some(vec!["pause".into()]), size_bytes: Some(1) }]);
            status(n).node_info.as_mut().unwrap().kernel_version = "6.8".into();
            status(n).conditions.as_mut().unwrap().push(condition("DiskPressure", "False"));
            status(n).volumes_in_use = Some(vec!["disk".into()]);
        });
        prune_node(&mut pruned);
        assert_eq!(pruned, whole);
    }
}

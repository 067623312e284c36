//! What pools need to know about Nodes. Pure.
//!
//! In: Nodes. Out: [`PoolNode`]s, and what names their machines. Upstream: `pkg/provider/azure_standard.go` (`isControlPlaneNode`),
//! `azure.go` (`updateNodeCaches`).

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;

use super::member_resource::PoolMemberResource;
use crate::cloud_provider::helpers;
use crate::providers::azure::{
    arm::{ResourceId, spelling},
    instances::provider_id::{self, ParsedProviderId},
    inventory::MachineQuery,
    node,
    planner::load_balancer::{
        desired::pool_members::PoolNode, entries::node_label_keys, labels::LabelMap, settings::LoadBalancerSettings,
    },
};

const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
const ROLE: &str = "kubernetes.io/role";
const INTERNAL_IP: &str = "InternalIP";

/// Labels that are looked at whatever is configured.
pub const READ_LABELS: [&str; 5] =
    [CONTROL_PLANE[0], CONTROL_PLANE[1], ROLE, node::LABEL_MANAGED, node::LABEL_RESOURCE_GROUP];

/// What decides whether `node` belongs into pools.
pub fn pool_node(node: &Node, settings: &LoadBalancerSettings) -> PoolNode {
    let labels = node.metadata.labels.as_ref();
    let has = |key: &str| labels.is_some_and(|labels| labels.contains_key(key));
    let own = settings.group.resource_group().unwrap_or_default();
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    let internal = addresses.filter(|address| address.type_ == INTERNAL_IP);
    PoolNode {
        name: node::name(node).to_owned(),
        control_plane: CONTROL_PLANE.iter().any(|key| has(key))
            || labels.and_then(|labels| labels.get(ROLE)).is_some_and(|role| role == "master"),
        unmanaged: !node::is_azures(node),
        is_foreign: node::is_foreign(node),
        excluded: helpers::is_excluded(node),
        outside_uniform: machine_query(node).id.is_some_and(|id| PoolMemberResource::of_instance(&id).is_none()),
        in_other_group: node::external_resource_group(node).is_some_and(|group| !spelling::same_name(&group, own)),
        addresses: internal.filter_map(|address| address.address.parse::<IpAddr>().ok()).collect(),
        vm_set: machine_query(node).id.filter(|_| settings.has_entries()).and_then(|id| uniform_set(&id)),
        is_unlocated: false,
        is_ready: is_ready(node),
        labels: placement_labels(node, settings),
    }
}

fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// LabelMap that no entry looks at are left out, so that changing them changes nothing.
fn placement_labels(node: &Node, settings: &LoadBalancerSettings) -> LabelMap {
    let keys = node_label_keys(&settings.entries);
    let own = node.metadata.labels.iter().flatten().filter(|(key, _)| keys.contains(key.as_str()));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The scale set that the id of an instance names.
fn uniform_set(id: &ResourceId) -> Option<String> {
    Some(PoolMemberResource::of_instance(id)?.scale_set()?.name().to_owned())
}

/// Addresses of type `InternalIP`.
pub fn internal_addresses(node: &Node) -> Vec<IpAddr> {
    let listed = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    listed.filter(|address| address.type_ == "InternalIP").filter_map(|address| address.address.parse().ok()).collect()
}

/// How the machine of `node` is asked for.
pub fn machine_query(node: &Node) -> MachineQuery {
    let id = match node::provider_id(node).map(provider_id::parse) {
        Some(ParsedProviderId::Machine(id)) => Some(id),
        _ => None,
    };
    MachineQuery { node_name: node::name(node).to_owned(), id, resource_group: node::external_resource_group(node) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud_provider::helpers::EXCLUDE_LABEL;
    use crate::providers::azure::{config::AzureConfig, node::fixtures::node};

    #[test]
    fn labels_decide() {
        let config = AzureConfig { resource_group: "rg".into(), ..AzureConfig::default() };
        let settings = LoadBalancerSettings::new(&config, "kubernetes");
        let of = |key: &str, value: &str| pool_node(&node("n").label(key, value).build(), &settings);
        let plain = PoolNode { name: "n".to_owned(), ..PoolNode::default() };
        for key in CONTROL_PLANE {
            assert_eq!(of(key, ""), PoolNode { control_plane: true, ..plain.clone() });
        }
        assert_eq!(of(ROLE, "master"), PoolNode { control_plane: true, ..plain.clone() });
        assert_eq!(of(ROLE, "agent"), plain);
        assert_eq!(of(EXCLUDE_LABEL, ""), PoolNode { excluded: true, ..plain.clone() });
        assert_eq!(of(EXCLUDE_LABEL, "False"), plain, "as upstream's library reads it");
        let foreign = node("n").provider_id("metal3://rack1/9").build();
        assert_eq!(pool_node(&foreign, &settings), PoolNode { unmanaged: true, is_foreign: true, ..plain.clone() });
        let odd = node("n").provider_id("azure:///Subscriptions/s/resourcegroups/rg/n").build();
        assert_eq!(pool_node(&odd, &settings), plain, "the scheme decides");
        assert_eq!(of(node::LABEL_MANAGED, "False"), PoolNode { unmanaged: true, ..plain.clone() });
        assert_eq!(of(node::LABEL_RESOURCE_GROUP, "RG"), plain);
        let machine = "azure:///subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachine";
        for (id, outside_uniform) in [("s/n", true), ("ScaleSets/set/virtualMachines/3", false)] {
            let node = node("n").provider_id(&format!("{machine}{id}")).build();
            assert_eq!(pool_node(&node, &settings), PoolNode { outside_uniform, ..plain.clone() }, "{id}");
        }
        assert_eq!(of(node::LABEL_RESOURCE_GROUP, "other"), PoolNode { in_other_group: true, ..plain });
    }
}

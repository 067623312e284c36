//! Properties of Nodes that decide their membership in pools. Pure.
//!
//! In: Nodes. Out: [`PoolNode`]s, and queries for their machines. Upstream: `pkg/provider/azure_standard.go`
//! (`isControlPlaneNode`), `azure.go` (`updateNodeCaches`).

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;

use super::member_resource::PoolMemberResource;
use crate::cloud_provider::helpers;
use crate::providers::azure::{
    model::{
        MachineQuery,
        provider_id::{self, ParsedProviderId},
        spelling,
    },
    node,
    planner::load_balancer::{
        desired::pool_members::PoolNode, entries::label_keys, labels::with_keys, settings::LoadBalancerSettings,
    },
};

const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
const ROLE: &str = "kubernetes.io/role";
pub(super) const INTERNAL_IP: &str = "InternalIP";

/// Largest number of internal addresses of one family that count for a Node.
///
/// A kubelet may write any number of addresses into the status of its Node, and security rules have room for 4,000 addresses
/// of the whole cluster. Addresses that a cached machine lacks do not count at all (see [`super::claims`]).
const MAX_ADDRESSES_PER_FAMILY: usize = 8;

/// Labels that are read with any configuration.
pub const READ_LABELS: [&str; 5] =
    [CONTROL_PLANE[0], CONTROL_PLANE[1], ROLE, node::LABEL_MANAGED, node::LABEL_RESOURCE_GROUP];

/// Returns the properties of `node` that decide its membership in pools.
pub fn pool_node(node: &Node, settings: &LoadBalancerSettings) -> PoolNode {
    let labels = node.metadata.labels.as_ref();
    let has = |key: &str| labels.is_some_and(|labels| labels.contains_key(key));
    let own = settings.group.resource_group().unwrap_or_default();
    let id = machine_query(node).id;
    let instance = id.as_ref().and_then(PoolMemberResource::of_instance);
    let set = instance.as_ref().and_then(PoolMemberResource::scale_set).filter(|_| settings.has_entries());
    PoolNode {
        name: node::name(node).to_owned(),
        control_plane: CONTROL_PLANE.iter().any(|key| has(key))
            || labels.and_then(|labels| labels.get(ROLE)).is_some_and(|role| role == "master"),
        unmanaged: !node::is_azures(node),
        is_foreign: node::is_foreign(node),
        excluded: helpers::is_excluded(node),
        outside_uniform: id.is_some() && instance.is_none(),
        in_other_group: node::external_resource_group(node).is_some_and(|group| !spelling::same_name(&group, own)),
        addresses: internal_addresses(node),
        vm_set: set.map(|set| set.name().to_owned()),
        is_unlocated: false,
        is_ready: node::is_ready(node),
        labels: with_keys(labels, &label_keys(&settings.entries, |entry| entry.node_selector.as_ref())),
    }
}

/// Returns the addresses of type `InternalIP`, at most the first eight of each family.
pub fn internal_addresses(node: &Node) -> Vec<IpAddr> {
    let listed = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = listed.filter(|address| address.type_ == INTERNAL_IP).filter_map(|address| address.address.parse().ok());
    let (mut ipv4, mut ipv6) = (0, 0);
    let is_counted = |address: &IpAddr| {
        let count = if address.is_ipv6() { &mut ipv6 } else { &mut ipv4 };
        *count += 1;
        *count <= MAX_ADDRESSES_PER_FAMILY
    };
    internal.filter(is_counted).collect()
}

/// Returns the query for the machine of `node`.
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
    fn addresses_of_one_node_are_limited_per_family() {
        let mut builder = node("n").address("ExternalIP", "20.0.0.1").address(INTERNAL_IP, "odd");
        for last in 0..50 {
            builder = builder.address(INTERNAL_IP, &format!("10.0.0.{last}")).address(INTERNAL_IP, &format!("fd00::{last}"));
        }
        let node = builder.build();
        let expected: Vec<IpAddr> = (0..8)
            .flat_map(|last| [format!("10.0.0.{last}"), format!("fd00::{last}")])
            .map(|text| text.parse().unwrap())
            .collect();
        assert_eq!(internal_addresses(&node), expected);
        let settings = LoadBalancerSettings::new(&AzureConfig::default(), "kubernetes");
        assert_eq!(pool_node(&node, &settings).addresses, expected);
    }

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

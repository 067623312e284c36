//! Nodes of the cluster's backend pools, and the documents that list them. Pure.
//!
//! In: nodes as [`PoolNode`]s, pools and the documents of virtual machines. Out: changed documents. [`node_ip`] is for pools that list
//! addresses; [`node_ip_configuration`] for pools that network interfaces list.
//! Upstream: `pkg/provider/azure_loadbalancer_backendpool.go`. Difference: one predicate decides for joining and for leaving.

pub mod node_ip;
pub mod node_ip_configuration;

use std::{collections::BTreeMap, net::IpAddr};

use crate::providers::azure::{
    config::BackendPoolType, planner::load_balancer::settings::LoadBalancerSettings, planner::load_balancer::spec::IpFamily,
};

/// Properties of one Node that decide about its membership in pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PoolNode {
    pub name: String,
    /// Whether the Node has a control-plane label.
    pub control_plane: bool,
    /// Whether `kubernetes.azure.com/managed` is `false` in any letter case, or the provider ID is of another cloud.
    pub unmanaged: bool,
    /// Whether the provider ID is of another cloud. Such a Node joins no pool, but an existing member with its address remains.
    pub is_foreign: bool,
    /// Whether `node.kubernetes.io/exclude-from-external-load-balancers` is set, to any value but a spelling of `false`.
    pub excluded: bool,
    /// Whether `kubernetes.azure.com/resource-group` names another group than the cluster's.
    pub in_other_group: bool,
    /// Whether its virtual machine is in no uniform scale set.
    pub outside_uniform: bool,
    /// Addresses of type `InternalIP`, in order.
    pub addresses: Vec<IpAddr>,
    /// Name of the scale set or availability set of its virtual machine. Only set where Nodes are assigned to entries.
    pub vm_set: Option<String>,
    /// Whether its virtual machine, and so `vm_set`, cannot be determined at the moment.
    pub is_unlocated: bool,
    /// Whether the kubelet reports the Node ready. Membership does not depend on it, except that stand-ins wait until the Node is ready.
    pub is_ready: bool,
    /// Labels that the selector of some entry uses.
    pub labels: BTreeMap<String, String>,
}

impl PoolNode {
    /// Returns `true` if the Node must be in the cluster's pools.
    pub fn belongs(&self, settings: &LoadBalancerSettings) -> bool {
        let by_address = settings.pool_type == BackendPoolType::NodeIp;
        let keeps_control_plane_out = by_address || settings.exclude_control_plane;
        let is_out = self.unmanaged || self.excluded || (self.control_plane && keeps_control_plane_out);
        let is_of_no_kind = self.outside_uniform && settings.only_uniform;
        !is_out && (by_address || !(self.in_other_group || is_of_no_kind))
    }

    /// Returns the first address of the family, which is the Node's address in pools of that family.
    pub fn address(&self, family: IpFamily) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| IpFamily::of(*address) == family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::config::AzureConfig;

    #[test]
    fn exclusions_depend_on_the_type_of_the_pools() {
        let mut by_interface = LoadBalancerSettings::new(&AzureConfig::default(), "kubernetes");
        by_interface.pool_type = BackendPoolType::NodeIpConfiguration;
        by_interface.exclude_control_plane = false;
        let strict = LoadBalancerSettings { exclude_control_plane: true, ..by_interface.clone() };
        let uniform = LoadBalancerSettings { only_uniform: true, ..by_interface.clone() };
        let by_address =
            LoadBalancerSettings { only_uniform: true, pool_type: BackendPoolType::NodeIp, ..by_interface.clone() };
        let node = PoolNode::default();
        for (node, expected) in [
            (node.clone(), [true, true, true, true]),
            (PoolNode { control_plane: true, ..node.clone() }, [true, false, true, false]),
            (PoolNode { unmanaged: true, ..node.clone() }, [false, false, false, false]),
            (PoolNode { excluded: true, ..node.clone() }, [false, false, false, false]),
            (PoolNode { in_other_group: true, ..node.clone() }, [false, false, false, true]),
            (PoolNode { outside_uniform: true, ..node }, [true, true, false, true]),
        ] {
            let found = [&by_interface, &strict, &uniform, &by_address].map(|settings| node.belongs(settings));
            assert_eq!(found, expected, "{node:?}");
        }
    }
}

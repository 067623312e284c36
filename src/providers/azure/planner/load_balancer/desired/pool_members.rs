//! Which nodes belong into the cluster's back-end pools, and what has to list them. Pure.
//!
//! In: nodes as [`PoolNode`]s, pools and the machines' documents. Out: changed documents. [`node_ip`] is for pools that list addresses;
//! [`node_ip_configuration`] for pools that network interfaces list.
//! Upstream: `pkg/provider/azure_loadbalancer_backendpool.go`. Other than there, one predicate decides for joining and for leaving.

pub mod node_ip;
pub mod node_ip_configuration;

use std::{collections::BTreeMap, net::IpAddr};

use crate::providers::azure::{
    config::BackendPoolType, planner::load_balancer::settings::LoadBalancerSettings, planner::load_balancer::spec::IpFamily,
};

/// What pools need to know about one Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PoolNode {
    pub name: String,
    /// Whether a control-plane label is on it.
    pub control_plane: bool,
    /// Whether `kubernetes.azure.com/managed` is `false` in any letter case, or its provider id is another cloud's.
    pub unmanaged: bool,
    /// Whether its provider id is another cloud's. It joins no pool; where its address is a member, it stays.
    pub is_foreign: bool,
    /// Whether `node.kubernetes.io/exclude-from-external-load-balancers` is set, to any value but a spelling of `false`.
    pub excluded: bool,
    /// Whether `kubernetes.azure.com/resource-group` names another group than the cluster's.
    pub in_other_group: bool,
    /// Whether its machine is in no uniform scale set.
    pub outside_uniform: bool,
    /// Addresses of type `InternalIP`, in order.
    pub addresses: Vec<IpAddr>,
    /// Name of the scale set or availability set of its machine; only known where Nodes are placed on entries.
    pub vm_set: Option<String>,
    /// Whether its machine, and so that set, cannot be told now.
    pub is_unlocated: bool,
    /// Whether the kubelet reports it ready. Nodes that are not join and stay; only stand-ins wait for it.
    pub is_ready: bool,
    /// Those of its labels that some entry of the configuration looks at.
    pub labels: BTreeMap<String, String>,
}

impl PoolNode {
    /// Whether it shall be in the cluster's pools.
    pub fn belongs(&self, settings: &LoadBalancerSettings) -> bool {
        let by_address = settings.pool_type == BackendPoolType::NodeIp;
        let keeps_control_plane_out = by_address || settings.exclude_control_plane;
        let is_out = self.unmanaged || self.excluded || (self.control_plane && keeps_control_plane_out);
        let is_of_no_kind = self.outside_uniform && settings.only_uniform;
        !is_out && (by_address || !(self.in_other_group || is_of_no_kind))
    }

    /// Its address in a pool of this family.
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

//! Machines behind a Service, for security rules that lead to machines: the members of the pools of its load balancer.
//!
//! In: the load balancers as ARM sent them, Nodes, and the member resources of their machines. Out: addresses. Observed
//! pools decide, not desired ones: a machine that has not joined yet gets no traffic, and one that has not left still gets
//! it.
//! Upstream: `pkg/provider/azure_loadbalancer_backendpool.go`, `GetBackendPrivateIPs`.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;

use super::{
    managed_pool::{cluster_addresses, is_managed, listed},
    member_resource::{self, PoolMemberResource},
    nodes,
};
use crate::providers::azure::{
    config::BackendPoolType,
    model::{Machine, MachineQuery, network::BackendAddressPoolProperties},
    node,
    planner::load_balancer::{
        desired::{plan_index::PlanIndex, pool_members::PoolNode, pool_name, pools_of},
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceSpec},
    },
};

/// Addresses of Nodes by the member resources of their machines.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolMemberAddresses {
    /// Addresses by key of the member resource.
    by_resource: HashMap<String, Vec<IpAddr>>,
    /// Addresses of Nodes that belong into the pools and whose machines are not located: they count as members of each pool.
    unknown: Vec<IpAddr>,
}

impl PoolMemberAddresses {
    /// Returns the addresses of Nodes whose ids name their member resources, and queries for the other Nodes. Pools of type
    /// `nodeIP` list addresses and need neither.
    pub fn of_nodes(nodes: &[Arc<Node>], settings: &LoadBalancerSettings) -> (Self, Vec<(MachineQuery, PoolNode)>) {
        let (mut reached, mut unknown) = (Self::default(), Vec::new());
        if settings.pool_type == BackendPoolType::NodeIp {
            return (reached, unknown);
        }
        for node in nodes.iter().filter(|node| !node::is_foreign(node)) {
            let wanted = nodes::machine_query(node);
            match wanted.id.as_ref().and_then(PoolMemberResource::of_instance) {
                Some(place) => drop(reached.by_resource.insert(place.key(), nodes::pool_node(node, settings).addresses)),
                None => unknown.push((wanted, nodes::pool_node(node, settings))),
            }
        }
        (reached, unknown)
    }

    /// Adds the result of the query for one of the other Nodes; `None` if its machine is not located.
    pub fn add(&mut self, node: PoolNode, machine: Option<&Machine>, settings: &LoadBalancerSettings) {
        match machine.and_then(PoolMemberResource::of) {
            Some(place) => drop(self.by_resource.insert(place.key(), node.addresses)),
            None if node.belongs(settings) => self.unknown.extend(node.addresses),
            None => {}
        }
    }

    /// Returns the addresses of the machines behind the Service.
    ///
    /// The addresses are those that pools of its families list, and all addresses of machines whose interfaces are in a pool
    /// of the cluster.
    pub fn of_service(&self, spec: &ServiceSpec, index: &PlanIndex<'_>, settings: &LoadBalancerSettings) -> Vec<IpAddr> {
        let Some(balancer) = index.load_balancer_of(spec, settings) else { return Vec::new() };
        let mut addresses: BTreeSet<IpAddr> = self.unknown.iter().copied().collect();
        for family in IpFamily::ALL {
            let name = pool_name(spec, settings, family);
            let found = pools_of(balancer).iter().find(|pool| pool.name_is(&name));
            let Some(pool) = found.and_then(|pool| pool.properties.as_ref()) else { continue };
            addresses.extend(self.by_interface(pool));
            addresses
                .extend(listed(pool).filter(|address| spec.families.contains(&family) && IpFamily::of(*address) == family));
        }
        addresses.into_iter().collect()
    }

    fn by_interface(&self, pool: &BackendAddressPoolProperties) -> impl Iterator<Item = IpAddr> {
        let entries = pool.backend_ip_configurations.iter().flatten().filter_map(|entry| entry.id.as_deref());
        entries.filter_map(|entry| self.by_resource.get(&member_resource::key_of_entry(entry)?)).flatten().copied()
    }
}

/// Returns the addresses that the pools of the cluster's own load balancers list for its Nodes. Empty unless all pools list
/// addresses and none is preconfigured.
pub fn listed_in_pools(observed: &ObservedNetwork, settings: &LoadBalancerSettings) -> Vec<IpAddr> {
    if settings.pool_type != BackendPoolType::NodeIp || settings.preconfigured != (false, false) {
        return Vec::new();
    }
    let managed = observed.load_balancers.iter().filter(|balancer| is_managed(balancer, settings));
    managed.flat_map(|balancer| cluster_addresses(balancer, settings)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::providers::azure::planner::load_balancer::desired::samples::{
        load_balancer, network, observed, service, settings,
    };

    const MACHINES: &str =
        "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/v/virtualMachines";

    fn reached() -> PoolMemberAddresses {
        let addresses = |last: u8| [format!("10.0.0.{last}"), format!("fd00::{last}")].map(|text| text.parse().unwrap());
        let pair = |number: u8| (format!("{MACHINES}/{number}").to_lowercase(), addresses(number).to_vec());
        PoolMemberAddresses { by_resource: [pair(1), pair(2)].into(), unknown: addresses(9).to_vec() }
    }

    fn there(pools: &Value) -> ObservedNetwork {
        let base = service("web").identity.name_prefix;
        let public = json!({"id": network("publicIPAddresses/p")});
        let frontends = json!([{"name": base, "properties": {"publicIPAddress": public}}]);
        let document = json!({"name": "kubernetes", "properties": {"frontendIPConfigurations": frontends, "backendAddressPools": pools}});
        let other = json!({"name": "kubernetes-internal", "properties": {"backendAddressPools": [
            {"name": "kubernetes", "properties": {"loadBalancerBackendAddresses": [{"properties": {"ipAddress": "10.0.0.77"}}]}}]}});
        observed(vec![load_balancer(other), load_balancer(document)])
    }

    fn texts(addresses: &[IpAddr]) -> Vec<String> {
        addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn machines_whose_interfaces_are_in_a_pool_count_with_all_addresses() {
        let interface = |number: u8| json!({"id": format!("{MACHINES}/{number}/networkInterfaces/n/ipConfigurations/c")});
        let pools = json!([
            {"name": "Kubernetes", "properties": {"backendIPConfigurations": [interface(1), interface(3)]}},
            {"name": "kubernetes-IPv6", "properties": {"backendIPConfigurations": [interface(2)]}},
            {"name": "theirs", "properties": {"backendIPConfigurations": [interface(2)]}},
        ]);
        let (four, there) = (service("web"), there(&pools));
        let behind = |reached: &PoolMemberAddresses, spec: &ServiceSpec| {
            texts(&reached.of_service(spec, &PlanIndex::new(&there), &settings()))
        };
        assert_eq!(behind(&reached(), &four), ["10.0.0.1", "10.0.0.2", "10.0.0.9", "fd00::1", "fd00::2", "fd00::9"]);
        assert_eq!(behind(&PoolMemberAddresses::default(), &four), [""; 0]);
        assert_eq!(behind(&reached(), &service("elsewhere")), [""; 0]);
    }

    #[test]
    fn pools_that_list_addresses_tell_them() {
        let listed = |address: &str| json!({"name": "n", "properties": {"ipAddress": address}});
        let pools = json!([
            {"name": "kubernetes", "properties": {"loadBalancerBackendAddresses": [listed("10.0.0.5"), listed("10.0.0.4"), {"name": "odd"}]}},
            {"name": "kubernetes-IPv6", "properties": {"loadBalancerBackendAddresses": [listed("fd00::5")]}},
            {"name": "theirs", "properties": {"loadBalancerBackendAddresses": [listed("10.0.0.6")]}},
        ]);
        let (there, by_address) = (there(&pools), LoadBalancerSettings { pool_type: BackendPoolType::NodeIp, ..settings() });
        let behind = PoolMemberAddresses::default().of_service(&service("web"), &PlanIndex::new(&there), &by_address);
        assert_eq!(texts(&behind), ["10.0.0.4", "10.0.0.5"]);
        assert_eq!(texts(&listed_in_pools(&there, &by_address)), ["10.0.0.77", "10.0.0.5", "10.0.0.4", "fd00::5"]);
        let by_interface = LoadBalancerSettings { pool_type: BackendPoolType::NodeIpConfiguration, ..settings() };
        assert!(listed_in_pools(&there, &by_interface).is_empty());
    }
}

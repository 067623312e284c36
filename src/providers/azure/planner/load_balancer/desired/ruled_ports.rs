//! Ports that load balancing rules lead to Services. Pure.
//!
//! In: the load balancers and the Services of the cluster. Out: the security rules of a Service without the ports that a load balancing rule
//! leads to another one at the same address. A guest that opened such a port earlier would expose the other Service to its own sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    context::{NameOwners, PlanContext},
    draft,
    load_balancers::PublicIpAssignment,
    plan_index::PlanIndex,
    port_conflicts::{ALL_PORTS, protocol_names},
    rules,
    security_rules::ServiceRules,
    status::address_of,
};
use crate::providers::azure::{
    arm::network::{ArmLoadBalancer, LoadBalancingRuleProperties},
    planner::load_balancer::{
        settings::LoadBalancerSettings,
        spec::{Protocol, ServiceIdentity},
    },
};

/// Services by protocol and port of their load balancing rules at one address.
type PortHolders<'a> = BTreeMap<(&'static str, i64), BTreeSet<&'a ServiceIdentity>>;

/// Services by address, protocol and port of their load balancing rules.
pub struct RuledPorts<'a> {
    by_address: BTreeMap<IpAddr, PortHolders<'a>>,
}

impl<'a> RuledPorts<'a> {
    /// Creates the index from the rules whose names belong to `services`.
    pub fn new(
        index: &PlanIndex<'_>,
        settings: &LoadBalancerSettings,
        services: impl Iterator<Item = &'a ServiceIdentity>,
    ) -> Self {
        let none = PublicIpAssignment::new();
        let context = PlanContext::new(index, settings, &none);
        let owners = NameOwners::new(services.map(|service| (service, service)));
        let mut by_address: BTreeMap<IpAddr, PortHolders<'a>> = BTreeMap::new();
        for document in &context.observed.load_balancers {
            let addresses = addresses_by_name(&context, document);
            for rule in draft::rules(document) {
                let owner = rule.name.as_deref().and_then(|name| owners.of_rule(name));
                let (Some(owner), Some(properties)) = (owner, &rule.properties) else { continue };
                let frontend = rules::reference_key(properties.frontend_ip_configuration.as_ref());
                let address = frontend.rsplit('/').next().and_then(|name| addresses.get(name));
                if let Some(address) = address {
                    by_address.entry(*address).or_default().entry(port_key(properties)).or_default().insert(owner);
                }
            }
        }
        Self { by_address }
    }

    /// Removes from the rules of a Service the ports that lead to others at one of its destinations and nowhere to itself.
    pub fn restrict(&self, mut rules: ServiceRules) -> ServiceRules {
        let destinations: Vec<&PortHolders<'_>> =
            rules.destinations.iter().filter_map(|address| self.by_address.get(address)).collect();
        let identity = &rules.identity;
        for (protocol, ports) in &mut rules.ports {
            ports.retain(|port| {
                let found: Vec<_> = destinations.iter().map(|holders| services_at(holders, *protocol, *port)).collect();
                let is_own = found.iter().any(|services| services.contains(identity));
                is_own || found.iter().all(BTreeSet::is_empty)
            });
        }
        rules.ports.retain(|_, ports| !ports.is_empty());
        rules
    }
}

fn addresses_by_name(context: &PlanContext<'_>, document: &ArmLoadBalancer) -> BTreeMap<String, IpAddr> {
    let frontends = draft::frontends(document).iter();
    frontends
        .filter_map(|frontend| Some((frontend.name.as_deref()?.to_ascii_lowercase(), address_of(context, frontend)?)))
        .collect()
}

fn port_key(properties: &LoadBalancingRuleProperties) -> (&'static str, i64) {
    let protocol = match properties.protocol.as_deref().unwrap_or_default().to_ascii_lowercase().as_str() {
        "tcp" => "tcp",
        "udp" => "udp",
        _ => ALL_PORTS.0,
    };
    (protocol, properties.frontend_port.unwrap_or_default())
}

/// Returns the Services to which rules lead the port.
fn services_at<'a>(holders: &PortHolders<'a>, protocol: Protocol, port: i32) -> BTreeSet<&'a ServiceIdentity> {
    let keys = protocol_names(protocol).iter().map(|name| (*name, i64::from(port))).chain([ALL_PORTS]);
    keys.filter_map(|key| holders.get(&key)).flatten().copied().collect()
}

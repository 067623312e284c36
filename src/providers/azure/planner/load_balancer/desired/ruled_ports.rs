//! Ports that load balancing rules lead to Services. Pure.
//!
//! In: the load balancers and the Services of the cluster. Out: the security rules of a Service. At each address, they omit the ports that
//! a load balancing rule leads to another Service. Otherwise, a guest that opened such a port earlier would expose the other Service to
//! its own sources.

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
    security_rules::{PortsByProtocol, ServiceRules},
    status::address_of,
};
use crate::providers::azure::{
    model::network::{ArmLoadBalancer, LoadBalancingRuleProperties},
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
                let frontend = rules::frontend_key(rule);
                let address = frontend.rsplit('/').next().and_then(|name| addresses.get(name));
                if let Some(address) = address {
                    by_address.entry(*address).or_default().entry(port_key(properties)).or_default().insert(owner);
                }
            }
        }
        Self { by_address }
    }

    /// Returns `rules` without the ports that lead to other Services at a destination. Destinations with the same ports remain together.
    pub fn restrict(&self, mut rules: ServiceRules) -> Vec<ServiceRules> {
        let mut shared: BTreeMap<PortsByProtocol, BTreeSet<IpAddr>> = BTreeMap::new();
        for (address, holders) in rules.destinations.iter().filter_map(|address| self.by_address.get_key_value(address)) {
            let ports = open_ports(&rules, holders);
            if ports != rules.ports {
                shared.entry(ports).or_default().insert(*address);
            }
        }
        rules.destinations.retain(|address| !shared.values().any(|destinations| destinations.contains(address)));
        let restricted = |(ports, destinations)| ServiceRules { ports, destinations, ..rules.clone() };
        let mut all: Vec<ServiceRules> = shared.into_iter().map(restricted).collect();
        all.push(rules);
        all
    }
}

/// Returns the ports of a Service that lead to it or to no Service at an address with these holders.
fn open_ports(rules: &ServiceRules, holders: &PortHolders<'_>) -> PortsByProtocol {
    let is_open = |protocol: Protocol, port: i32| {
        let services = services_at(holders, protocol, port);
        services.is_empty() || services.contains(&rules.identity)
    };
    let mut open = rules.ports.clone();
    open.iter_mut().for_each(|(protocol, ports)| ports.retain(|port| is_open(*protocol, *port)));
    open.retain(|_, ports| !ports.is_empty());
    open
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::samples::{load_balancer, observed, service, settings},
        *,
    };

    #[test]
    fn ports_of_others_close_at_their_addresses_only() {
        let (owner, guest) = (service("owner").identity, service("guest").identity);
        let frontend = |name: &str, address: &str| json!({"name": name, "properties": {"privateIPAddress": address}});
        let rule = |service: &ServiceIdentity, frontend: &str, port: i32| {
            let reference = json!({"id": format!("/x/frontendIPConfigurations/{frontend}")});
            let properties = json!({"protocol": "Tcp", "frontendPort": port, "frontendIPConfiguration": reference});
            json!({"name": format!("{}-TCP-{port}", service.name_prefix), "properties": properties})
        };
        let properties = json!({
            "frontendIPConfigurations": [frontend("shared", "10.0.0.4"), frontend("own", "10.0.0.5")],
            "loadBalancingRules": [rule(&owner, "shared", 443), rule(&guest, "shared", 80), rule(&guest, "own", 443)],
        });
        let there = observed(vec![load_balancer(json!({"name": "kubernetes-internal", "properties": properties}))]);
        let (index, settings) = (PlanIndex::new(&there), settings());
        let ruled = RuledPorts::new(&index, &settings, [&owner, &guest].into_iter());
        let [shared, own]: [IpAddr; 2] = ["10.0.0.4", "10.0.0.5"].map(|address| address.parse().unwrap());
        let ports = |numbers: &[i32]| PortsByProtocol::from([(Protocol::Tcp, numbers.iter().copied().collect())]);
        let rules = ServiceRules::unknown(guest.clone(), BTreeSet::from([shared, own]), ports(&[80, 443]));
        let restricted = ruled.restrict(rules).into_iter().map(|rules| (rules.ports, rules.destinations));
        let expected = [(ports(&[80]), BTreeSet::from([shared])), (ports(&[80, 443]), BTreeSet::from([own]))];
        assert_eq!(restricted.collect::<Vec<_>>(), expected);
    }
}

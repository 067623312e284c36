//! Claims on destinations of security rules, of all Services of the cluster.
//!
//! In: every Service's [`ServiceRules`]. Out: for a destination of a rule, whether it may be removed, and which ports of the rule must
//! remain open there for Services that share the address. Upstream: `pkg/provider/azure_loadbalancer_accesscontrol.go`.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
};

use super::{
    super::super::spec::Protocol,
    rule::SecurityRuleKind,
    service_rules::{RuleDestinations, ServiceRules},
};

pub(super) struct DestinationClaims<'a> {
    services: Vec<ServiceClaims<'a>>,
    rules: HashMap<String, HashSet<IpAddr>>,
    by_address: HashMap<IpAddr, Vec<usize>>,
}

struct ServiceClaims<'a> {
    rules: &'a ServiceRules,
    destinations: Vec<RuleDestinations>,
}

impl<'a> DestinationClaims<'a> {
    /// Returns the claims of `services`. Methods refer to a Service by its index in this order.
    pub(super) fn new(services: impl Iterator<Item = &'a ServiceRules>) -> Self {
        let services: Vec<_> =
            services.map(|reach| ServiceClaims { rules: reach, destinations: reach.rule_destinations() }).collect();
        let (mut rules, mut sharing) = (HashMap::<_, HashSet<_>>::new(), HashMap::<_, Vec<_>>::new());
        for (index, service) in services.iter().enumerate().filter(|(_, service)| service.rules.wanted) {
            for grant in &service.destinations {
                rules.entry(grant.rule.name.to_ascii_lowercase()).or_default().extend(&grant.destinations);
            }
            for address in &service.rules.destinations {
                sharing.entry(*address).or_default().push(index);
            }
        }
        Self { services, rules, by_address: sharing }
    }

    /// Returns the rules and destinations that the Service at `index` needs.
    pub(super) fn rules_of(&self, index: usize) -> &[RuleDestinations] {
        self.services.get(index).map(|service| service.destinations.as_slice()).unwrap_or_default()
    }

    /// Returns `true` if a Service needs `address` in the rule with `name` (in lower case).
    pub(super) fn is_claimed(&self, name: &str, address: IpAddr) -> bool {
        self.rules.get(name).is_some_and(|claimed| claimed.contains(&address))
    }

    /// Decides about `address` in the rule with `name` (in lower case) and `kind` when a Service releases it.
    ///
    /// `but`: index of that Service, whose own needs do not count unless it claims the address in this rule.
    ///
    /// Returns `None` if the rule keeps the address, else the ports of the rule that remain open there for other Services.
    pub(super) fn decide(
        &self,
        name: &str,
        kind: &SecurityRuleKind,
        address: IpAddr,
        but: Option<usize>,
    ) -> Option<BTreeSet<i32>> {
        if self.is_claimed(name, address) {
            return None;
        }
        let sharing = self.by_address.get(&address).into_iter().flatten().filter(|index| Some(**index) != but);
        let mut sharing = sharing.filter_map(|index| self.services.get(*index));
        match kind {
            SecurityRuleKind::DenyAll if sharing.any(|service| service.rules.is_unknown()) => None,
            SecurityRuleKind::DenyPorts { protocol, ports } if sharing.any(|service| service.may_deny(*protocol, ports)) => {
                None
            }
            SecurityRuleKind::DenyAll | SecurityRuleKind::DenyPorts { .. } => Some(BTreeSet::new()),
            SecurityRuleKind::Allow { ports, .. } => {
                let mut retained = BTreeSet::new();
                for service in sharing {
                    retained.extend(service.needed_ports(kind));
                    if retained.len() == ports.len() {
                        break;
                    }
                }
                (retained != *ports).then_some(retained)
            }
        }
    }
}

impl ServiceClaims<'_> {
    /// Returns `true` if the sources of the Service are unknown and it has one of these ports.
    fn may_deny(&self, protocol: Protocol, ports: &BTreeSet<i32>) -> bool {
        let own = self.rules.ports.get(&protocol);
        self.rules.is_unknown() && own.is_some_and(|own| ports.iter().any(|port| own.contains(port)))
    }

    /// Returns the ports of a rule that the Service needs. Protocol and sources must be the same.
    ///
    /// Users choose the number of ports of a Service, so the search is limited to the ports of the rule.
    fn needed_ports(&self, kind: &SecurityRuleKind) -> BTreeSet<i32> {
        let SecurityRuleKind::Allow { protocol, ports, .. } = kind else { return BTreeSet::new() };
        if self.rules.is_unknown() {
            let own = self.rules.ports.get(protocol);
            return ports.iter().filter(|port| own.is_some_and(|own| own.contains(port))).copied().collect();
        }
        let alike = self.destinations.iter().map(|grant| &grant.rule.kind).filter(|granted| granted.has_same_sources(kind));
        ports & &alike.flat_map(SecurityRuleKind::ports).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_looked_at_than_the_rule_has() {
        let ports = [(Protocol::Tcp, (1..=30_000).collect())].into();
        let identity = super::super::tests::identity("many");
        let reach = ServiceRules::unknown(identity, BTreeSet::new(), ports);
        let service = ServiceClaims { rules: &reach, destinations: Vec::new() };
        let rule =
            |protocol| SecurityRuleKind::Allow { protocol, sources: vec!["Internet".into()], ports: [80, 30_001].into() };
        assert_eq!(service.needed_ports(&rule(Protocol::Tcp)), [80].into());
        assert_eq!(service.needed_ports(&rule(Protocol::Udp)), [].into());
    }
}

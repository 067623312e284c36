//! Who claims which destinations of which rules, over all Services of the cluster.
//!
//! In: every Service's [`Reach`]. Out: for a destination of a rule whether it may go, and which of the rule's ports have to stay open
//! there for Services that share the address. Upstream: `pkg/provider/azure_loadbalancer_accesscontrol.go`.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
};

use super::{
    super::super::spec::Protocol,
    reach::{Grant, Reach},
    rule::Kind,
};

/// Every claim.
pub(super) struct Claims<'a> {
    services: Vec<Service<'a>>,
    rules: HashMap<String, HashSet<IpAddr>>,
    sharing: HashMap<IpAddr, Vec<usize>>,
}

struct Service<'a> {
    reach: &'a Reach,
    grants: Vec<Grant>,
}

/// What becomes of a destination of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// It stays.
    Stays,
    /// It goes; these ports of the rule stay open for others.
    Goes(BTreeSet<i32>),
}

impl<'a> Claims<'a> {
    /// The claims of `services`, which are told apart by their place.
    pub(super) fn new(services: impl Iterator<Item = &'a Reach>) -> Self {
        let services: Vec<_> = services.map(|reach| Service { reach, grants: reach.grants() }).collect();
        let (mut rules, mut sharing) = (HashMap::<_, HashSet<_>>::new(), HashMap::<_, Vec<_>>::new());
        for (index, service) in services.iter().enumerate().filter(|(_, service)| service.reach.wanted) {
            for grant in &service.grants {
                rules.entry(grant.rule.name.to_ascii_lowercase()).or_default().extend(&grant.destinations);
            }
            for address in &service.reach.destinations {
                sharing.entry(*address).or_default().push(index);
            }
        }
        Self { services, rules, sharing }
    }

    /// What the Service at `index` has to have.
    pub(super) fn grants(&self, index: usize) -> &[Grant] {
        self.services.get(index).map(|service| service.grants.as_slice()).unwrap_or_default()
    }

    /// Whether some Service has to have `address` in the rule with `name` (in lower case).
    pub(super) fn is_claimed(&self, name: &str, address: IpAddr) -> bool {
        self.rules.get(name).is_some_and(|claimed| claimed.contains(&address))
    }

    /// What becomes of `address` in the rule with `name` (in lower case) and `kind` when the Service at `but` gives up what it
    /// does not claim.
    pub(super) fn fate(&self, name: &str, kind: &Kind, address: IpAddr, but: Option<usize>) -> Fate {
        if self.is_claimed(name, address) {
            return Fate::Stays;
        }
        let sharing = self.sharing.get(&address).into_iter().flatten().filter(|index| Some(**index) != but);
        let mut sharing = sharing.filter_map(|index| self.services.get(*index));
        match kind {
            Kind::Deny if sharing.any(|service| service.reach.is_unsettled()) => Fate::Stays,
            Kind::DenyAt { protocol, ports } if sharing.any(|service| service.may_deny(*protocol, ports)) => Fate::Stays,
            Kind::Deny | Kind::DenyAt { .. } => Fate::Goes(BTreeSet::new()),
            Kind::Allow { ports, .. } => {
                let mut retained = BTreeSet::new();
                for service in sharing {
                    retained.extend(service.needed(kind));
                    if retained.len() == ports.len() {
                        break;
                    }
                }
                if retained == *ports { Fate::Stays } else { Fate::Goes(retained) }
            }
        }
    }
}

impl Service<'_> {
    /// Whether its sources are not known, and it has one of these ports.
    fn may_deny(&self, protocol: Protocol, ports: &BTreeSet<i32>) -> bool {
        let own = self.reach.ports.get(&protocol);
        self.reach.is_unsettled() && own.is_some_and(|own| ports.iter().any(|port| own.contains(port)))
    }

    /// The ports of a rule of this kind that it needs: the protocol and the sources have to be the same. Users say how many ports a
    /// Service has, so that no more is looked at than the rule has.
    fn needed(&self, kind: &Kind) -> BTreeSet<i32> {
        let Kind::Allow { protocol, ports, .. } = kind else { return BTreeSet::new() };
        if self.reach.is_unsettled() {
            let own = self.reach.ports.get(protocol);
            return ports.iter().filter(|port| own.is_some_and(|own| own.contains(port))).copied().collect();
        }
        let alike = self.grants.iter().map(|grant| &grant.rule.kind).filter(|granted| granted.is_alike(kind));
        ports & &alike.flat_map(Kind::ports).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_looked_at_than_the_rule_has() {
        let ports = [(Protocol::Tcp, (1..=30_000).collect())].into();
        let identity = super::super::tests::identity("many");
        let reach = Reach::unsettled(identity, BTreeSet::new(), ports);
        let service = Service { reach: &reach, grants: Vec::new() };
        let rule = |protocol| Kind::Allow { protocol, sources: vec!["Internet".into()], ports: [80, 30_001].into() };
        assert_eq!(service.needed(&rule(Protocol::Tcp)), [80].into());
        assert_eq!(service.needed(&rule(Protocol::Udp)), [].into());
    }
}

//! Security rules that one Service needs: sources, ports and destination addresses.
//!
//! In: a spec, the addresses of its frontends and of the hosts behind them. Out: a [`ServiceRules`], and from it the
//! [`RuleDestinations`]: the rules that must have the Service's addresses as destinations, in the order in which they are created.
//! Upstream: `pkg/provider/loadbalancer/accesscontrol.go` and `reconcileSecurityGroup` in `pkg/provider/azure_loadbalancer.go`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    super::super::{
        rule_records::{RuleHash, RuleRecord},
        spec::{AccessControl, IpFamily, Protocol, ServiceIdentity, ServiceRefusal, ServiceSpec, is_public, refusal},
    },
    rule::{SecurityRuleKind, WantedSecurityRule},
};

pub type PortsByProtocol = BTreeMap<Protocol, BTreeSet<i32>>;

/// Addresses, ports and sources of one Service, as input for security rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRules {
    pub identity: ServiceIdentity,
    /// Whether the Service needs rules. Otherwise its existing rules are removed.
    pub wanted: bool,
    /// Addresses of the Service: frontends and additional IPs or, without floating IP, hosts and additional IPs.
    pub destinations: BTreeSet<IpAddr>,
    /// Destinations that are addresses of hosts, which no rule may cut off.
    pub machines: BTreeSet<IpAddr>,
    /// Destinations whose frontend another Service owns. Nothing is denied at the ports of that Service.
    pub guest_at: BTreeSet<IpAddr>,
    /// Addresses of former frontends and of hosts, where all rules of the Service are removed.
    ///
    /// A caller that knows further addresses adds them: no other address is cleaned up.
    pub former: BTreeSet<IpAddr>,
    /// Additional IPs, and further addresses in the status that are no frontends of the Service.
    ///
    /// Another cluster with the same security group may use these addresses. They are removed only from rules that belong to the Service
    /// according to [`ServiceRules::ownership`].
    pub claimed: BTreeSet<IpAddr>,
    /// Addresses that only a record shows to be the Service's: additional IPs, and public addresses of former frontends.
    pub recorded: BTreeSet<IpAddr>,
    /// Evidence that a rule belongs to the Service, for addresses that the Service only claims.
    pub ownership: RuleOwnership,
    /// Ports to open: the Service's ports or, without floating IP, its NodePorts.
    pub ports: PortsByProtocol,
    /// NodePorts of the Service, current and remembered. They prove that a rule for hosts belongs to the Service.
    pub node_ports: PortsByProtocol,
    /// Sources that may reach the Service. `None`: unknown, so the existing rules remain unchanged.
    pub access: Option<AccessControl>,
    /// Whether the load balancer is internal.
    pub internal: bool,
}

/// Rules and ports that a Service created, or would create according to its spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleOwnership {
    /// Hashes of the names of the rules.
    pub rules: BTreeSet<RuleHash>,
    /// Ports that the Service opens.
    pub ports: PortsByProtocol,
}

impl RuleOwnership {
    /// Adds remembered rules and ports.
    pub fn add(&mut self, other: &Self) {
        self.rules.extend(&other.rules);
        add_ports(&mut self.ports, &other.ports);
    }

    /// Returns `true` if a rule belongs to the Service: the Service created it, or the rule opens only ports of the Service.
    pub(super) fn covers(&self, name: &str, kind: &SecurityRuleKind) -> bool {
        let opens_own = |protocol: &Protocol, ports| self.ports.get(protocol).is_some_and(|own| own.is_superset(ports));
        let is_own = matches!(kind, SecurityRuleKind::Allow { protocol, ports, .. } if opens_own(protocol, ports));
        is_own || self.rules.contains(&RuleHash::of(name))
    }
}

/// Adds the ports of another Service or spec.
pub fn add_ports(ports: &mut PortsByProtocol, more: &PortsByProtocol) {
    for (protocol, numbers) in more {
        ports.entry(*protocol).or_default().extend(numbers);
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    /// Addresses of the Nodes of this cluster.
    pub present: BTreeSet<IpAddr>,
    /// Addresses of former Nodes of this cluster.
    pub gone: BTreeSet<IpAddr>,
}

impl ServiceRules {
    /// Returns the input for a Service with a load balancer. Refuses a Service without any frontend.
    ///
    /// Destinations are the additional IPs and `frontends` or, without floating IP, `members`: the addresses of the hosts in all pools of
    /// the load balancer, of both families.
    pub fn wanted(spec: &ServiceSpec, frontends: &[IpAddr], members: &[IpAddr]) -> Result<Self, ServiceRefusal> {
        if frontends.is_empty() {
            let message = "the load balancer has no address for the Service yet, so that no security rule can name it";
            return Err(refusal("status.loadBalancer", message));
        }
        let reached = if spec.floating_ip { frontends } else { members };
        let destinations: BTreeSet<_> = reached.iter().chain(&spec.additional_ips).copied().collect();
        let is_left = |address: &&IpAddr| is_former_address(spec, frontends, **address);
        let told = spec.status_addresses.iter().filter(is_left).chain(&spec.additional_ips);
        let is_shown = |address: &&IpAddr| frontends.contains(address) || reached.contains(address);
        let claimed: BTreeSet<IpAddr> = told.filter(|address| !is_shown(address)).copied().collect();
        let is_recorded = |address: &&IpAddr| is_public(**address) || spec.additional_ips.contains(address);
        let reach = Self {
            former: frontends.iter().filter(|address| !destinations.contains(address)).copied().collect(),
            recorded: claimed.iter().filter(is_recorded).copied().collect(),
            claimed,
            machines: members.iter().filter(|address| destinations.contains(address)).copied().collect(),
            node_ports: ports(spec, true),
            access: Some(spec.access.clone()),
            internal: spec.internal,
            ..Self::unknown(spec.identity.clone(), destinations, ports(spec, !spec.floating_ip))
        };
        Ok(reach.with_ownership())
    }

    /// Adds former frontends: addresses from `public`, the public IPs that were created for the Service, that are no frontends anymore.
    ///
    /// The rules for these addresses are removed before the addresses are released, even if no record lists them. A tag on a public IP is
    /// stronger evidence than the status, so such an address is no longer only a claimed one.
    pub fn with_former_addresses(mut self, spec: &ServiceSpec, frontends: &[IpAddr], public: &[IpAddr]) -> Self {
        let left = public.iter().filter(|address| is_former_address(spec, frontends, **address));
        self.former.extend(left.filter(|address| !frontends.contains(address) && !self.destinations.contains(address)));
        self.claimed.retain(|address| !self.former.contains(address));
        self
    }

    /// Marks the Service as a guest at those of its destinations whose frontend another Service owns.
    pub fn as_guest(self, is_others: impl Fn(&IpAddr) -> bool) -> Self {
        let guest_at: BTreeSet<IpAddr> = self.destinations.iter().filter(|address| is_others(address)).copied().collect();
        if guest_at.is_empty() || self.is_unknown() || !self.wanted {
            return self;
        }
        let remembered = self.ownership.clone();
        let mut guest = Self { guest_at, ..self }.with_ownership();
        guest.ownership.add(&remembered);
        guest
    }

    /// Returns the record of the Service, with the rules that it creates or created.
    pub fn record(&self) -> RuleRecord {
        RuleRecord { addresses: self.recorded.clone(), rules: self.ownership.rules.clone() }
    }

    /// Returns `true` if the Service denies all traffic that it does not allow.
    pub fn denies_rest(&self) -> bool {
        self.wanted && self.access.as_ref().is_some_and(denies_rest)
    }

    /// Adds the evidence that the rules of the Service belong to it.
    fn with_ownership(self) -> Self {
        let everywhere = Self { destinations: &self.destinations | &self.claimed, ..self.clone() };
        let rules = everywhere.rule_destinations().iter().map(|grant| RuleHash::of(&grant.rule.name)).collect();
        Self { ownership: RuleOwnership { rules, ports: self.ports.clone() }, ..self }
    }

    /// Returns the input for a deleted Service. `last`: its last valid spec; `frontends`: addresses of its current and former frontends.
    pub fn removed(identity: ServiceIdentity, last: Option<&ServiceSpec>, frontends: &[IpAddr]) -> Self {
        let told = last.into_iter().flat_map(|spec| spec.additional_ips.iter().chain(&spec.status_addresses));
        let going = Self {
            wanted: false,
            former: frontends.iter().copied().collect(),
            claimed: told.filter(|address| !frontends.contains(address)).copied().collect(),
            node_ports: last.map(|spec| ports(spec, true)).unwrap_or_default(),
            internal: last.is_some_and(|spec| spec.internal),
            ..Self::unknown(identity, BTreeSet::new(), PortsByProtocol::new())
        };
        let before = last.map(|spec| {
            let (ports, access) = (ports(spec, !spec.floating_ip), Some(spec.access.clone()));
            Self { wanted: true, ports, access, ..going.clone() }.with_ownership().ownership
        });
        Self { ownership: before.unwrap_or_default(), ..going }
    }

    /// Returns the input for a Service whose existing rules differ from its spec, because the spec cannot be read or applied yet.
    ///
    /// All rules that open `ports` at `addresses` remain.
    pub fn unknown(identity: ServiceIdentity, addresses: BTreeSet<IpAddr>, ports: PortsByProtocol) -> Self {
        Self { identity, wanted: true, destinations: addresses, ports, ..Self::default() }
    }

    /// Returns `true` if the Service needs rules and its sources are unknown.
    pub(super) fn is_unknown(&self) -> bool {
        self.wanted && self.access.is_none()
    }

    /// Returns the rules that the Service needs, in the order of their creation, which determines the priorities.
    pub(super) fn rule_destinations(&self) -> Vec<RuleDestinations> {
        let Some(access) = self.access.as_ref().filter(|access| self.wanted && !access.disabled) else { return Vec::new() };
        let allows = self.ports.iter().filter(|_| !access.closed).flat_map(|(protocol, ports)| {
            IpFamily::ALL.into_iter().flat_map(move |family| {
                sources(access, family, self.internal)
                    .into_iter()
                    .map(move |sources| (family, WantedSecurityRule::allow(family, *protocol, sources, ports.clone())))
            })
        });
        let allows = allows.map(|(family, rule)| RuleDestinations { rule, destinations: self.of_family(family) });
        let denies = IpFamily::ALL.into_iter().filter(|_| denies_rest(access)).flat_map(|family| self.deny_rules(family));
        allows.chain(denies).filter(|grant| !grant.destinations.is_empty()).collect()
    }

    /// Returns the rules that deny all other traffic of a family.
    ///
    /// At addresses of load balancers, they deny everything else. Hosts also serve other purposes: there, the rules deny only the ports
    /// that the Service opens, except to health probes, which use TCP. At the frontend of another Service, they also deny only these
    /// ports.
    fn deny_rules(&self, family: IpFamily) -> Vec<RuleDestinations> {
        let (machines, others): (BTreeSet<_>, BTreeSet<_>) =
            self.of_family(family).into_iter().partition(|address| self.machines.contains(address));
        let (shared, others): (BTreeSet<_>, BTreeSet<_>) =
            others.into_iter().partition(|address| self.guest_at.contains(address));
        let at_ports = &machines | &shared;
        let probed = self.ports.iter().filter(|(protocol, _)| **protocol != Protocol::Udp);
        let probed: BTreeSet<i32> = probed.flat_map(|(_, ports)| ports).copied().collect();
        let probes = Some(WantedSecurityRule::probes(family, probed.clone())).filter(|_| !probed.is_empty());
        let probes = probes.map(|rule| RuleDestinations { rule, destinations: machines });
        let denied = self.ports.iter().map(|(protocol, ports)| RuleDestinations {
            rule: WantedSecurityRule::deny_ports(family, *protocol, ports.clone()),
            destinations: at_ports.clone(),
        });
        std::iter::once(RuleDestinations { rule: WantedSecurityRule::deny_all(family), destinations: others })
            .chain(probes)
            .chain(denied)
            .collect()
    }

    fn of_family(&self, family: IpFamily) -> BTreeSet<IpAddr> {
        self.destinations.iter().filter(|address| IpFamily::of(**address) == family).copied().collect()
    }
}

/// Returns `true` if the Service does not use the family of the address anymore, or has a frontend of this family.
fn is_former_address(spec: &ServiceSpec, frontends: &[IpAddr], address: IpAddr) -> bool {
    let family = IpFamily::of(address);
    !spec.families.contains(&family) || frontends.iter().any(|known| IpFamily::of(*known) == family)
}

/// Security rule, and the addresses of one Service that must be among its destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RuleDestinations {
    pub(super) rule: WantedSecurityRule,
    pub(super) destinations: BTreeSet<IpAddr>,
}

fn ports(spec: &ServiceSpec, on_nodes: bool) -> PortsByProtocol {
    let mut ports = PortsByProtocol::new();
    for port in &spec.ports {
        let number = if on_nodes { port.node_port } else { port.port };
        if number > 0 {
            ports.entry(port.protocol).or_default().insert(number);
        }
    }
    ports
}

/// Returns the sources of each rule of one protocol and family: a rule for each service tag, and a rule for all ranges.
fn sources(access: &AccessControl, family: IpFamily, internal: bool) -> Vec<Vec<String>> {
    let is_open = !internal && access.tags.is_empty() && access.ranges.is_empty() && !access.has_invalid_ranges;
    let mut rules: Vec<_> = access.tags.iter().map(|tag| vec![tag.clone()]).collect();
    if is_open {
        rules.push(vec!["Internet".to_owned()]);
    }
    let of_family = access.ranges.iter().filter(|range| IpFamily::of(range.addr()) == family);
    let ranges: BTreeSet<_> = of_family.map(ToString::to_string).collect();
    if !ranges.is_empty() {
        rules.push(ranges.into_iter().collect());
    }
    rules
}

pub fn denies_rest(access: &AccessControl) -> bool {
    !access.disabled && (access.has_invalid_ranges || (access.deny_all && !access.ranges.is_empty()))
}

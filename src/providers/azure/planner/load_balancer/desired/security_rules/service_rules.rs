//! What one Service asks of the security group: who may reach which ports at which addresses.
//!
//! In: a spec, the addresses of its front ends and of the machines behind them. Out: a [`ServiceRules`], and from it the
//! [`RuleDestinations`]s: the rules in which its addresses have to stand, in the order in which they are made. Upstream:
//! `pkg/provider/loadbalancer/accesscontrol.go` and `reconcileSecurityGroup` in `pkg/provider/azure_loadbalancer.go`.

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

/// One Service, as the security group sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRules {
    pub identity: ServiceIdentity,
    /// Whether it shall have rules; otherwise it loses those that it has.
    pub wanted: bool,
    /// Where it is reached: front ends and additional IPs, or machines and additional IPs when floating IP is off.
    pub destinations: BTreeSet<IpAddr>,
    /// Those of them that are machines', which no rule may cut off.
    pub machines: BTreeSet<IpAddr>,
    /// Those of the destinations whose frontend another Service owns: at ports of that one, nothing is denied.
    pub guest_at: BTreeSet<IpAddr>,
    /// Addresses of front ends that it had, and machines'. Nothing of it stays there. Whoever remembers more adds it here: only what is
    /// named is ever cleaned.
    pub former: BTreeSet<IpAddr>,
    /// Additional IPs that it has, and what else its status lists without any front end there: they may be those of another cluster
    /// with the same security group. They leave only rules that [`ServiceRules::ownership`] shows to be the Service's.
    pub claimed: BTreeSet<IpAddr>,
    /// Addresses that only a record shows to be the Service's: additional ones, and public ones of frontends that it had.
    pub recorded: BTreeSet<IpAddr>,
    /// What shows that a rule is the Service's where it only claims an address.
    pub ownership: RuleOwnership,
    /// Ports that are opened: its own, or its NodePorts when floating IP is off.
    pub ports: PortsByProtocol,
    /// Its NodePorts, and those that it is remembered to have had: they prove that a rule for machines is its own.
    pub node_ports: PortsByProtocol,
    /// Who may reach it. `None`: not known; what it has then stays as it is.
    pub access: Option<AccessControl>,
    /// Whether its load balancer is internal.
    pub internal: bool,
}

/// What a Service has made, or would make by what it says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleOwnership {
    /// Rules by the hash of their names.
    pub rules: BTreeSet<RuleHash>,
    /// Ports that it opens.
    pub ports: PortsByProtocol,
}

impl RuleOwnership {
    /// Takes over what is remembered.
    pub fn add(&mut self, other: &Self) {
        self.rules.extend(&other.rules);
        add_ports(&mut self.ports, &other.ports);
    }

    /// Whether a rule with this name and kind is the Service's: it made it, or the rule opens no port but its own.
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
    /// Of the Nodes of this cluster.
    pub present: BTreeSet<IpAddr>,
    /// Of Nodes that this cluster had and has no more.
    pub gone: BTreeSet<IpAddr>,
}

impl ServiceRules {
    /// A Service that shall be reached at its additional IPs and at `frontends`, or, without floating IP, at `members`: the addresses of
    /// the machines in all pools of its load balancer, of whatever family. Without any front end it is refused.
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

    /// And `public`: addresses of public IPs that were made for it. Those that are no front ends any more lose its rules before
    /// they are released, also when nobody remembers that it had them. The tag proves more than a status that lists them, too.
    pub fn with_former_addresses(mut self, spec: &ServiceSpec, frontends: &[IpAddr], public: &[IpAddr]) -> Self {
        let left = public.iter().filter(|address| is_former_address(spec, frontends, **address));
        self.former.extend(left.filter(|address| !frontends.contains(address) && !self.destinations.contains(address)));
        self.claimed.retain(|address| !self.former.contains(address));
        self
    }

    /// As a guest at those of its destinations whose frontend is another Service's.
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

    /// Returns its record, with the rules that it makes or made.
    pub fn record(&self) -> RuleRecord {
        RuleRecord { addresses: self.recorded.clone(), rules: self.ownership.rules.clone() }
    }

    /// Whether it denies what it does not allow.
    pub fn denies_rest(&self) -> bool {
        self.wanted && self.access.as_ref().is_some_and(denies_rest)
    }

    /// With the proof that its own rules are.
    fn with_ownership(self) -> Self {
        let everywhere = Self { destinations: &self.destinations | &self.claimed, ..self.clone() };
        let rules = everywhere.rule_destinations().iter().map(|grant| RuleHash::of(&grant.rule.name)).collect();
        Self { ownership: RuleOwnership { rules, ports: self.ports.clone() }, ..self }
    }

    /// A Service that goes. `last`: its last valid spec; `frontends`: addresses of front ends that it has or had.
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

    /// A Service that has rules other than those that its spec would give it, since it cannot be read or cannot be carried out for
    /// now: whatever opens `ports` at `addresses` stays.
    pub fn unknown(identity: ServiceIdentity, addresses: BTreeSet<IpAddr>, ports: PortsByProtocol) -> Self {
        Self { identity, wanted: true, destinations: addresses, ports, ..Self::default() }
    }

    /// Whether it is a Service whose sources are not known.
    pub(super) fn is_unknown(&self) -> bool {
        self.wanted && self.access.is_none()
    }

    /// The rules that it has to be in, in the order of their creation, which fixes priorities.
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

    /// Everything else is denied at addresses of load balancers. Machines have more to do than to serve this Service: there it is denied
    /// at the ports that the Service opens, except to health probes, which ask there over TCP. At the frontend of another Service it is
    /// denied at these ports as well.
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

/// Whether the Service is at an address of this family no more, or has another one by now.
fn is_former_address(spec: &ServiceSpec, frontends: &[IpAddr], address: IpAddr) -> bool {
    let family = IpFamily::of(address);
    !spec.families.contains(&family) || frontends.iter().any(|known| IpFamily::of(*known) == family)
}

/// A rule, and the addresses of one Service that have to be among its destinations.
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

/// The sources of each rule of one protocol and family: a rule for each service tag, and one for all ranges.
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

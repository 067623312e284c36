//! Which Service may have a port of a frontend: ports of two Services, or of a Service and another resource, must not meet there. Pure.
//!
//! In: the Services on the frontends of a load balancer, and the documents. Out: the Services that want a port which another one has. All ports
//! of a Service count, those without a load balancing rule too: its addresses are published and its security rules open them. A Service with
//! high-availability ports has every port of its frontend. A load balancing rule that exists precedes all else, then the owner of the
//! frontend; of several guests that want a free port, the first gets it.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `checkLoadBalancerResourcesConflicts`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde_json::Value;

use super::{
    context::{KnownServices, NameOwners, PlanContext},
    draft::LoadBalancerDraft,
    rules,
    types::RequestIdx,
    unruled_ports::{UnruledPorts, frontend_addresses, has_unruled},
};
use crate::providers::azure::{
    model::network::LoadBalancingRule,
    planner::load_balancer::{
        naming,
        spec::{PortSpec, Protocol, ServiceRefusal, ServiceSpec},
    },
};

/// A port of a frontend: its id, the protocol and the number, in lower case.
type FrontendPort = (String, String, i64);

/// Protocol and number that stand for all ports.
pub(super) const ALL_PORTS: (&str, i64) = ("all", 0);

fn frontend_port(rule: &LoadBalancingRule) -> Option<FrontendPort> {
    let properties = rule.properties.as_ref()?;
    let protocol = properties.protocol.as_deref().unwrap_or_default().to_ascii_lowercase();
    Some((rules::frontend_key(rule), protocol, properties.frontend_port.unwrap_or_default()))
}

/// Returns the protocols of load balancing rules that meet a port of a Service.
pub(super) fn protocol_names(protocol: Protocol) -> &'static [&'static str] {
    match protocol {
        Protocol::Tcp => &["tcp"],
        Protocol::Udp => &["udp"],
        // Its security rules open the port for every protocol.
        Protocol::Sctp => &["all", "tcp", "udp"],
    }
}

/// Ports that a Service has on a frontend, each with whether it has a load balancing rule.
fn claimed_ports(spec: &ServiceSpec, frontend: &str) -> Vec<(FrontendPort, bool)> {
    let claim = |protocol: &str, port: i64, has_rule| ((frontend.to_owned(), protocol.to_owned(), port), has_rule);
    if spec.ha_ports.is_some() {
        return vec![claim(ALL_PORTS.0, ALL_PORTS.1, true)];
    }
    let claims = |port: &PortSpec| {
        let of_protocol = |protocol: &&str| claim(protocol, port.port.into(), port.rule);
        protocol_names(port.protocol).iter().map(of_protocol).collect::<Vec<_>>()
    };
    spec.ports.iter().flat_map(claims).collect()
}

/// A range of ports that inbound NAT holds.
struct NatPortRange<'a> {
    frontend: String,
    protocol: String,
    ports: std::ops::RangeInclusive<i64>,
    name: &'a str,
}

fn nat_port_ranges<'a>(draft: &'a LoadBalancerDraft<'_>) -> Vec<NatPortRange<'a>> {
    let Some(properties) = draft.after.properties.as_ref() else { return Vec::new() };
    let held = |part: &'a Value, first: &str, last: &str| {
        let of = &part["properties"];
        let (first, last) = (of[first].as_i64()?, of[last].as_i64()?);
        Some(NatPortRange {
            frontend: of["frontendIPConfiguration"]["id"].as_str()?.to_ascii_lowercase(),
            protocol: of["protocol"].as_str().unwrap_or("all").to_ascii_lowercase(),
            ports: first..=last,
            name: part["name"].as_str().unwrap_or_default(),
        })
    };
    let single = properties.inbound_nat_rules.iter().flatten().filter_map(|part| held(part, "frontendPort", "frontendPort"));
    let ranges = |part| held(part, "frontendPortRangeStart", "frontendPortRangeEnd");
    single.chain(properties.inbound_nat_pools.iter().flatten().filter_map(ranges)).collect()
}

fn overlaps(held: &NatPortRange<'_>, (frontend, protocol, port): &FrontendPort) -> bool {
    held.frontend == *frontend && (held.protocol == "all" || held.protocol == *protocol) && held.ports.contains(port)
}

/// The Service or resource that has a port.
struct PortHolder {
    /// `None`: not one of the requests.
    request: Option<RequestIdx>,
    /// Name of the load balancing rule, or the Service.
    name: String,
    /// Not a rule of another program or user: upstream compares such a rule with the same protocol and port only.
    is_service: bool,
}

impl PortHolder {
    fn service(request: Option<RequestIdx>, spec: &ServiceSpec) -> Self {
        Self { request, name: format!("Service {}", spec.identity.key), is_service: true }
    }
}

type PortTable = BTreeMap<FrontendPort, PortHolder>;
type HeldPort<'t> = (&'t FrontendPort, &'t PortHolder);

/// Returns what stands in the way of a claim that is not of another's rule.
fn conflict<'t>(table: &'t PortTable, claim: &FrontendPort, request: RequestIdx) -> Option<HeldPort<'t>> {
    let is_others = |(_, holder): &HeldPort<'_>| holder.request != Some(request);
    if (claim.1.as_str(), claim.2) == ALL_PORTS {
        let first = (claim.0.clone(), String::new(), i64::MIN);
        return table.range(first..).take_while(|(key, _)| key.0 == claim.0).find(is_others);
    }
    let all = (claim.0.clone(), ALL_PORTS.0.to_owned(), ALL_PORTS.1);
    let same = table.get_key_value(claim).filter(is_others);
    same.or_else(|| table.get_key_value(&all).filter(|entry| is_others(entry) && entry.1.is_service))
}

/// A Service on a frontend of a load balancer.
pub(super) struct FrontendService<'s> {
    pub(super) request: RequestIdx,
    pub(super) spec: &'s ServiceSpec,
    /// Id of the frontend in lower case.
    pub(super) frontend: String,
}

/// One port that a Service wants.
struct PortClaim<'s> {
    service: &'s FrontendService<'s>,
    port: FrontendPort,
    precedence: ClaimPrecedence,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClaimPrecedence {
    /// Its load balancing rule exists.
    HasRule,
    /// The frontend is the Service's own: a guest without a rule cannot keep it from a port.
    OwnsFrontend,
    /// It needs no rule, and the Service has the address already.
    HasAddress,
    New,
}

/// What decides about the ports of one load balancer.
pub(super) struct PortConflicts<'w, 'a> {
    pub(super) context: &'w PlanContext<'a>,
    pub(super) draft: &'w LoadBalancerDraft<'a>,
    /// Owners of rules among the requests.
    pub(super) owners: &'w NameOwners,
    pub(super) known: &'w KnownServices<'w>,
    /// Ports of Services that are not requested.
    pub(super) unruled: &'w UnruledPorts<'w>,
}

impl PortConflicts<'_, '_> {
    /// Returns the Services of `services`, which are in the order of precedence, that want a port which another one has. The draft has the
    /// rules that exist.
    pub(super) fn refusals(&self, services: &[FrontendService<'_>]) -> Vec<(RequestIdx, ServiceRefusal)> {
        let (mut table, rules) = self.existing_rules();
        let are_addresses_needed = services.iter().any(|service| has_unruled(service.spec));
        let addresses = if are_addresses_needed { frontend_addresses(self.context, self.draft) } else { BTreeMap::new() };
        let claims = services.iter().flat_map(|service| claims(service, &rules, addresses.get(&service.frontend)));
        let claims: Vec<PortClaim<'_>> = claims.collect();
        let nat = nat_port_ranges(self.draft);
        let mut refused = Vec::new();
        let mut decide = |table: &mut PortTable, precedence: ClaimPrecedence| {
            for PortClaim { service, port, .. } in claims.iter().filter(|claim| claim.precedence == precedence) {
                let request = service.request;
                // Two rules that exist side by side stay.
                let conflict =
                    conflict(table, port, request).filter(|(key, _)| precedence != ClaimPrecedence::HasRule || *key == port);
                let by_nat =
                    || nat.iter().find(|held| overlaps(held, port)).map(|held| (port.clone(), held.name.to_owned()));
                match conflict.map(|(key, holder)| (key.clone(), holder.name.clone())).or_else(by_nat) {
                    Some((held, holder)) => refused.push((request, refusal(port, &held, &holder))),
                    None => _ = table.entry(port.clone()).or_insert(PortHolder::service(Some(request), service.spec)),
                }
            }
        };
        decide(&mut table, ClaimPrecedence::HasRule);
        decide(&mut table, ClaimPrecedence::OwnsFrontend);
        for (spec, frontend) in self.unruled.on(self.context, self.draft) {
            let ports = claimed_ports(spec, &frontend).into_iter().filter(|(_, has_rule)| !has_rule);
            ports.for_each(|(port, _)| _ = table.entry(port).or_insert(PortHolder::service(None, spec)));
        }
        decide(&mut table, ClaimPrecedence::HasAddress);
        decide(&mut table, ClaimPrecedence::New);
        refused
    }

    /// Returns the ports of rules that are not the requests', and those of requests.
    fn existing_rules(&self) -> (PortTable, BTreeSet<(FrontendPort, RequestIdx)>) {
        let (mut table, mut own) = (PortTable::new(), BTreeSet::new());
        for rule in self.draft.rules() {
            let (Some(claim), name) = (frontend_port(rule), rule.name.as_deref().unwrap_or_default()) else { continue };
            match self.owners.of_rule(name) {
                Some(request) => _ = own.insert((claim, request)),
                None => _ = table.entry(claim).or_insert(self.rule_holder(name)),
            }
        }
        (table, own)
    }

    fn rule_holder(&self, rule: &str) -> PortHolder {
        match self.known.of_rule(rule).or_else(|| self.known.of_others.of_rule(rule)) {
            Some(spec) => PortHolder::service(None, spec),
            None => PortHolder { request: None, name: rule.to_owned(), is_service: false },
        }
    }
}

/// Returns the ports that a Service wants. `address`: that of its frontend.
fn claims<'s>(
    service: &'s FrontendService<'s>,
    rules: &BTreeSet<(FrontendPort, RequestIdx)>,
    address: Option<&IpAddr>,
) -> Vec<PortClaim<'s>> {
    let has_address = address.is_some_and(|address| service.spec.status_addresses.contains(address));
    let name = service.frontend.rsplit('/').next().unwrap_or_default();
    let is_owner = naming::owns_rule(&service.spec.identity, name);
    let precedence = |port: &FrontendPort, has_rule: bool| match (has_rule, has_address) {
        _ if rules.contains(&(port.clone(), service.request)) => ClaimPrecedence::HasRule,
        _ if is_owner => ClaimPrecedence::OwnsFrontend,
        (false, true) => ClaimPrecedence::HasAddress,
        _ => ClaimPrecedence::New,
    };
    let claim = |(port, has_rule)| PortClaim { service, precedence: precedence(&port, has_rule), port };
    claimed_ports(service.spec, &service.frontend).into_iter().map(claim).collect()
}

fn refusal((frontend, protocol, port): &FrontendPort, held: &FrontendPort, holder: &str) -> ServiceRefusal {
    let frontend = frontend.rsplit('/').next().unwrap_or_default();
    let is_all = |protocol: &str, port: i64| (protocol, port) == ALL_PORTS;
    let subject = match (is_all(protocol, *port), is_all(&held.1, held.2)) {
        (false, false) => format!("{protocol} port {port} of frontend {frontend} belongs to {holder} already"),
        (false, true) => format!("all ports of frontend {frontend} belong to {holder}, which has high-availability ports"),
        (true, _) => format!(
            "high-availability ports need all ports of frontend {frontend}, and {} port {} belongs to {holder}",
            held.1, held.2
        ),
    };
    ServiceRefusal { field: "spec.ports".to_owned(), message: format!("{subject}; use another port or another address") }
}

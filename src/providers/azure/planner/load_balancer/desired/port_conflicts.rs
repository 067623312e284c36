//! Conflicts on a frontend: a port cannot belong to two Services, or to a Service and another resource. Pure.
//!
//! In: the Services on the frontends of a load balancer, and the documents. Out: the Services that request a port of another holder. All
//! ports of a Service count, also those without a load balancing rule, because its addresses are published and its security rules open
//! these ports. A Service with high-availability ports has every port of its frontend. An existing load balancing rule has the highest
//! precedence, then the owner of the frontend. Of several guests that request a free port, the first gets it.
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

/// Port of a frontend: the id of the frontend, the protocol and the number. Id and protocol are in lower case.
type FrontendPort = (String, String, i64);

/// Protocol and number that represent all ports.
pub(super) const ALL_PORTS: (&str, i64) = ("all", 0);

fn frontend_port(rule: &LoadBalancingRule) -> Option<FrontendPort> {
    let properties = rule.properties.as_ref()?;
    let protocol = properties.protocol.as_deref().unwrap_or_default().to_ascii_lowercase();
    Some((rules::frontend_key(rule), protocol, properties.frontend_port.unwrap_or_default()))
}

/// Returns the protocols of load balancing rules that conflict with a port of a Service.
pub(super) fn protocol_names(protocol: Protocol) -> &'static [&'static str] {
    match protocol {
        Protocol::Tcp => &["tcp"],
        Protocol::Udp => &["udp"],
        // The security rules of SCTP ports allow every protocol.
        Protocol::Sctp => &["all", "tcp", "udp"],
    }
}

/// Returns the ports that a Service has on a frontend. The `bool` is `true` for a port with a load balancing rule.
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

/// Range of ports that inbound NAT uses.
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

/// Service or resource that has a port.
struct PortHolder {
    /// Request of the holder; `None` if no request is for the holder.
    request: Option<RequestIdx>,
    /// Name of the load balancing rule, or of the Service.
    name: String,
    /// Whether the holder is a Service. Upstream compares a rule of another program or user only with the same protocol and port.
    is_service: bool,
}

impl PortHolder {
    fn service(request: Option<RequestIdx>, spec: &ServiceSpec) -> Self {
        Self { request, name: format!("Service {}", spec.identity.key), is_service: true }
    }
}

type PortTable = BTreeMap<FrontendPort, PortHolder>;
type HeldPort<'t> = (&'t FrontendPort, &'t PortHolder);

/// Returns the port of another holder that conflicts with the claim of `request`.
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

/// Service on a frontend of a load balancer.
pub(super) struct FrontendService<'s> {
    pub(super) request: RequestIdx,
    pub(super) spec: &'s ServiceSpec,
    /// Id of the frontend in lower case.
    pub(super) frontend: String,
}

/// Port that a Service requests on its frontend.
struct PortClaim<'s> {
    service: &'s FrontendService<'s>,
    port: FrontendPort,
    precedence: ClaimPrecedence,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClaimPrecedence {
    /// Claim whose load balancing rule exists.
    HasRule,
    /// Claim of the owner of the frontend. A guest without a rule cannot block it.
    OwnsFrontend,
    /// Claim that needs no rule, of a Service that already has the address.
    HasAddress,
    New,
}

/// Documents and owners that decide about the ports of one load balancer.
pub(super) struct PortConflicts<'w, 'a> {
    pub(super) context: &'w PlanContext<'a>,
    pub(super) draft: &'w LoadBalancerDraft<'a>,
    /// Owners of rules among the requests.
    pub(super) owners: &'w NameOwners,
    pub(super) known: &'w KnownServices<'w>,
    /// Ports without a rule, of Services that are not requested.
    pub(super) unruled: &'w UnruledPorts<'w>,
}

impl PortConflicts<'_, '_> {
    /// Returns refusals of the Services that request a port of another holder. `services` is in order of precedence, and the draft has the
    /// existing rules.
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
                // Two existing rules that overlap are both kept.
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

    /// Returns the ports of rules that belong to no request, and the ports of rules of requests.
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

/// Returns the ports that a Service requests. `address` is the address of its frontend.
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

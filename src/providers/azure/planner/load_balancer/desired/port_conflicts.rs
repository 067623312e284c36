//! Who may have a port of a front end: rules of two Services, or of a Service and somebody else, must not meet there. Pure.
//!
//! In: the rules that Services want, and the documents. Out: Services that want what somebody else has. Who has a port already keeps
//! it; of several that want a free one, the first gets it. Upstream: `pkg/provider/azure_loadbalancer.go`, port conflicts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{context::NameOwners, draft::LoadBalancerDraft, rules, types::RequestIdx};
use crate::providers::azure::{
    arm::network::{LoadBalancingRule, LoadBalancingRuleProperties},
    planner::load_balancer::spec::ServiceRefusal,
};

/// A port of a front end: its id, the protocol and the number, in lower case.
type FrontendPort = (String, String, i64);

fn frontend_port(properties: &LoadBalancingRuleProperties) -> FrontendPort {
    (
        rules::reference_key(properties.frontend_ip_configuration.as_ref()),
        properties.protocol.as_deref().unwrap_or_default().to_ascii_lowercase(),
        properties.frontend_port.unwrap_or_default(),
    )
}

fn rule_frontend_port(rule: &LoadBalancingRule) -> Option<FrontendPort> {
    rule.properties.as_ref().map(frontend_port)
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

/// Services whose rules on `draft` meet somebody else's, before it has any of `wanted`: rules by request, in the order of
/// precedence.
pub(super) fn conflicts(
    draft: &LoadBalancerDraft<'_>,
    wanted: &[(RequestIdx, &LoadBalancingRule)],
    owners: &NameOwners,
) -> Vec<(RequestIdx, ServiceRefusal)> {
    let owner = |rule: &LoadBalancingRule| rule.name.as_deref().and_then(|name| owners.of_rule(name));
    let mut holders: BTreeMap<FrontendPort, (Option<RequestIdx>, String)> = BTreeMap::new();
    let mut incumbents: BTreeSet<(FrontendPort, RequestIdx)> = BTreeSet::new();
    for rule in draft.rules() {
        let Some(claim) = rule_frontend_port(rule) else { continue };
        match owner(rule) {
            Some(request) => _ = incumbents.insert((claim, request)),
            None => _ = holders.insert(claim, (None, rule.name.clone().unwrap_or_default())),
        }
    }
    let nat = nat_port_ranges(draft);
    let mut refused = Vec::new();
    for first_round in [true, false] {
        for (request, rule) in wanted {
            let Some(claim) = rule_frontend_port(rule) else { continue };
            if incumbents.contains(&(claim.clone(), *request)) != first_round {
                continue;
            }
            let by_nat = || nat.iter().find(|held| overlaps(held, &claim)).map(|held| held.name.to_owned());
            let by_rule = holders.get(&claim).filter(|(holder, _)| *holder != Some(*request)).map(|(_, name)| name.clone());
            match by_rule.or_else(by_nat) {
                Some(name) => refused.push((*request, refusal(&claim, &name))),
                None => _ = holders.insert(claim, (Some(*request), rule.name.clone().unwrap_or_default())),
            }
        }
    }
    refused
}

fn overlaps(held: &NatPortRange<'_>, (frontend, protocol, port): &FrontendPort) -> bool {
    held.frontend == *frontend && (held.protocol == "all" || held.protocol == *protocol) && held.ports.contains(port)
}

fn refusal((frontend, protocol, port): &FrontendPort, holder: &str) -> ServiceRefusal {
    let frontend = frontend.rsplit('/').next().unwrap_or_default();
    ServiceRefusal {
        field: "spec.ports".to_owned(),
        message: format!(
            "{protocol} port {port} of front end {frontend} belongs to {holder} already; use another port or another address"
        ),
    }
}

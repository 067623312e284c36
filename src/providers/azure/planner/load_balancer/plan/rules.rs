//! Security rules of all Services that ask, on what there is or will be. Pure.
//!
//! In: the group, documents with the front ends that the rules shall lead to, what is remembered. Out: the group as it has to be, what was
//! asked of it, and who has no address yet that a rule could name.

use std::{collections::BTreeSet, sync::Arc};

use super::super::{
    desired::{
        ServiceRequest,
        plan_index::PlanIndex,
        security_rules::{self, SecurityRulePlan, ServiceRules},
        status::{frontend_addresses, frontend_owners},
    },
    observed::ObservedNetwork,
    pools::member_addresses::PoolMemberAddresses,
    rule_memory::{BackendLookup, ParsedService, RuleMemory},
    settings::LoadBalancerSettings,
    spec::{ServiceIdentity, ServiceRefusal, ServiceSpec},
};
use crate::providers::azure::arm::network::NetworkSecurityGroup;

/// What security rules are planned on.
pub struct RuleInput<'a> {
    /// What there is.
    pub observed: &'a ObservedNetwork,
    /// Whose rules shall be right.
    pub requests: &'a [ServiceRequest],
    /// The other Services, whose rules stay.
    pub others: &'a [ParsedService],
    /// What is remembered, with the Nodes that there are.
    pub memory: &'a RuleMemory,
    /// Where machines are in pools.
    pub members: &'a PoolMemberAddresses,
    /// The configuration.
    pub settings: &'a LoadBalancerSettings,
}

/// What becomes of the group, and what was asked of it.
pub struct PlannedSecurityRules {
    /// The document and the answers.
    pub plan: SecurityRulePlan,
    /// What each Service needs that could be planned for.
    pub services: Vec<ServiceRules>,
    /// Positions of requests for which that could not be said, and why.
    pub refused: Vec<(usize, ServiceRefusal)>,
}

/// Whether the rules of some Service lead to machines.
pub fn leads_to_machines(requests: &[ServiceRequest], others: &[ParsedService]) -> bool {
    let mut specs = requests.iter().filter_map(ServiceRequest::spec).chain(others.iter().map(ParsedService::spec));
    specs.any(|spec| !spec.floating_ip)
}

/// Whether rules of a Service that does not ask have to follow machines: others are behind it after the change than before.
pub(super) fn has_other_machines(
    service: &ParsedService,
    members: &PoolMemberAddresses,
    (before, after): (&ObservedNetwork, &ObservedNetwork),
    settings: &LoadBalancerSettings,
) -> bool {
    let ParsedService::Valid(spec) = service else { return false };
    let leads_there = !spec.floating_ip && !spec.is_others && !frontend_addresses(after, spec, settings).is_empty();
    let behind = |observed: &ObservedNetwork| members.of_service(spec, observed, settings);
    leads_there && behind(before) != behind(after)
}

/// Plans.
pub fn plan_rules(group: &NetworkSecurityGroup, input: &RuleInput<'_>) -> PlannedSecurityRules {
    let RuleInput { observed, requests, others, memory, members, settings } = *input;
    let index = PlanIndex::new(observed);
    let behind = |spec: &ServiceSpec| members.of_service(spec, observed, settings);
    let machines = BackendLookup { all_nodes: &memory.nodes().present, of_service: &behind };
    let rules_of_other = |service: &ParsedService| memory.rules_of_other(service, &index, &machines, settings);
    let mut other_rules: Vec<ServiceRules> = others.iter().map(rules_of_other).collect();
    let (mut services, mut refused) = (memory.rules_of_gone(requests, others), Vec::new());
    for (place, request) in requests.iter().enumerate() {
        match memory.rules_of_request(request, &index, &machines, settings) {
            Ok(rules) => services.push(rules),
            Err(refusal) => {
                // What it has stays, whoever leaves an address that it shares.
                let kept = request.spec().map(|spec| rules_of_other(&ParsedService::Valid(Arc::clone(spec))));
                other_rules.extend(kept);
                refused.push((place, refusal));
            }
        }
    }
    if services.iter().chain(&other_rules).any(ServiceRules::denies_rest) {
        let identities = requests.iter().map(ServiceRequest::identity);
        let identities = identities.chain(others.iter().map(|other| &other.spec().identity));
        let owners = frontend_owners(&index, settings, identities);
        // Where the owner denies the rest itself, as the Go CCM wrote it for both, a guest adds nothing.
        let specs = requests.iter().filter_map(ServiceRequest::spec).chain(others.iter().map(ParsedService::spec));
        let denying = specs.filter(|spec| security_rules::denies_rest(&spec.access)).map(|spec| &spec.identity);
        let denying: BTreeSet<&ServiceIdentity> = denying.collect();
        let as_guest = |rules: ServiceRules| {
            let identity = rules.identity.clone();
            let is_others = |owner: &&ServiceIdentity| **owner != identity && !denying.contains(*owner);
            rules.as_guest(|address| owners.get(address).is_some_and(is_others))
        };
        services = services.into_iter().map(as_guest).collect();
        other_rules = other_rules.into_iter().map(as_guest).collect();
    }
    let plan = security_rules::plan_security_rules(group, &services, &other_rules, memory.nodes(), settings);
    PlannedSecurityRules { plan, services, refused }
}

//! Back-end pools that Services have for themselves, among several load balancers: who cannot have one, and which go. Pure.
//!
//! In: load balancers with the rules as they are to be, and the Services that ask. Out: refusals, and pools removed in the write that takes the last
//! rule away from them. A pool is a Service's own only if it has the name that is made of the Service's, and every rule that leads to it is
//! that Service's. Upstream: `pkg/provider/azure_local_services.go`; other than there, a pool goes with its rules.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ServiceRequest,
    context::{KnownServices, PlanContext, ensured_spec},
    draft::LoadBalancerDraft,
    pools,
    targets::TargetLoadBalancers,
    types::{DraftIdx, RequestIdx},
};
use crate::providers::azure::{
    arm::{ResourceId, network::LoadBalancingRule, spelling},
    planner::load_balancer::{
        naming,
        spec::{IpFamily, ServiceIdentity, ServiceRefusal, ServiceSpec},
    },
};

/// Longest name that ARM takes.
const MAX_LENGTH: usize = 80;
const FAMILIES: [IpFamily; 2] = [IpFamily::V4, IpFamily::V6];

/// Those who cannot have a pool of their own, and why. The name is the ownership, so that none is shortened or shared.
pub(super) fn refusals(
    context: &PlanContext<'_>,
    requests: &[&ServiceRequest],
    drafts: &[LoadBalancerDraft<'_>],
    targets: &TargetLoadBalancers,
    known: &KnownServices<'_>,
) -> Vec<(RequestIdx, ServiceRefusal)> {
    let mut taken: BTreeMap<(DraftIdx, String), String> = BTreeMap::new();
    let mut refused = Vec::new();
    for (request, target) in targets.iter() {
        let (Some(target), Some(spec)) = (target, ensured_spec(requests[request.0])) else { continue };
        for family in spec.families.iter().filter(|_| spec.own_pool && has_rules(spec)) {
            let name = naming::own_pool(&spec.identity, *family);
            let seat = (target, name.clone());
            let problem = problem(context, &drafts[target.0], &name, &spec.identity, known)
                .or_else(|| taken.get(&seat).map(|holder| format!("Service {holder} has the back-end pool {name} already")));
            match problem {
                Some(problem) => refused.push((request, refusal(&problem))),
                None => drop(taken.insert(seat, spec.identity.key.clone())),
            }
        }
    }
    refused
}

/// A pool of its own that no rule ever led to could not be told from a user's, and would stay.
fn has_rules(spec: &ServiceSpec) -> bool {
    spec.rule_count() > 0
}

fn refusal(problem: &str) -> ServiceRefusal {
    let message = format!("{problem}; give the Service another name, or use externalTrafficPolicy Cluster");
    ServiceRefusal { field: "metadata.name".to_owned(), message }
}

fn problem(
    context: &PlanContext<'_>,
    draft: &LoadBalancerDraft<'_>,
    name: &str,
    identity: &ServiceIdentity,
    known: &KnownServices<'_>,
) -> Option<String> {
    if name.len() > MAX_LENGTH {
        return Some(format!("its back-end pool would be called {name}, which has more than {MAX_LENGTH} characters"));
    }
    if is_shared(context, name) {
        return Some(format!("the back-end pool {name} is that of all Services of the cluster"));
    }
    let pool = pools::id(&draft.id, name);
    let foreign = |rule: &&LoadBalancingRule| leads_to(rule, &pool) && !is_rule_of(rule, identity);
    let rule = draft.rules_before().iter().find(foreign)?.name.as_deref().unwrap_or_default();
    Some(match known.of_rule(rule) {
        Some(holder) => format!("Service {} has the back-end pool {name} already", holder.identity.key),
        None => format!("rule {rule}, which is not the Service's, leads to the back-end pool {name}"),
    })
}

fn is_shared(context: &PlanContext<'_>, name: &str) -> bool {
    FAMILIES.iter().any(|family| spelling::same_name(&naming::pool(&context.settings.cluster, *family), name))
}

fn leads_to(rule: &LoadBalancingRule, pool: &ResourceId) -> bool {
    let reference = rule.properties.as_ref().and_then(|properties| properties.backend_address_pool.as_ref());
    let id = reference.and_then(|reference| reference.id.as_deref());
    id.is_some_and(|id| spelling::same_id(id, pool.as_str()))
}

fn is_rule_of(rule: &LoadBalancingRule, identity: &ServiceIdentity) -> bool {
    rule.name.as_deref().is_some_and(|name| naming::owns_rule(identity, name))
}

/// Names of pools that the Services on a load balancer need, in order, those that all share first.
pub(super) fn needed(
    context: &PlanContext<'_>,
    requests: &[&ServiceRequest],
    targets: &TargetLoadBalancers,
    place: DraftIdx,
) -> Vec<String> {
    let here = targets.iter().filter(|(_, target)| *target == Some(place));
    let specs =
        here.filter_map(|(request, _)| ensured_spec(requests[request.0])).filter(|spec| !spec.own_pool || has_rules(spec));
    let pools: BTreeSet<(bool, IpFamily, String)> = specs
        .flat_map(|spec| spec.families.iter().map(move |family| (spec, *family)))
        .map(|(spec, family)| (spec.own_pool, family, pools::name(spec, context.settings, family)))
        .collect();
    pools.into_iter().map(|(_, _, name)| name).collect()
}

/// Removes pools of those who ask that they do not need here any more and nobody else uses. Rules are as they will be.
pub(super) fn remove(
    context: &PlanContext<'_>,
    draft: &mut LoadBalancerDraft<'_>,
    requests: &[&ServiceRequest],
    needed: &[String],
    known: &KnownServices<'_>,
) {
    let there = draft.after.properties.iter().flat_map(|properties| properties.backend_address_pools.iter().flatten());
    let there = there.filter_map(|pool| pool.name.as_deref()).filter(|name| !is_shared(context, name));
    let there: BTreeSet<String> = there.map(str::to_lowercase).filter(|name| !needed.contains(name)).collect();
    if there.is_empty() {
        return;
    }
    let came = there.iter().filter(|name| draft.moved_pools.contains(*name)).cloned();
    let mut gone: BTreeSet<String> = came.filter(|name| !is_used(draft, &pools::id(&draft.id, name))).collect();
    for request in requests {
        let identity = request.identity();
        let names = FAMILIES.map(|family| naming::own_pool(identity, family));
        let names = names.into_iter().filter(|name| there.contains(name));
        gone.extend(names.filter(|name| is_left_behind(draft, name, identity, known)));
    }
    let Some(pools) = draft.after.properties.as_mut().and_then(|properties| properties.backend_address_pools.as_mut())
    else {
        return;
    };
    let mut reasons = Vec::new();
    pools.retain(|pool| {
        let goes = gone.iter().any(|name| pool.name_is(name));
        if goes {
            reasons.push(format!("remove back-end pool {}", pool.name.as_deref().unwrap_or_default()));
        }
        !goes
    });
    draft.reasons.append(&mut reasons);
}

/// Whether the pool was the Service's, and nothing leads to it any more.
fn is_left_behind(draft: &LoadBalancerDraft<'_>, name: &str, identity: &ServiceIdentity, known: &KnownServices<'_>) -> bool {
    let pool = pools::id(&draft.id, name);
    let mut before = draft.rules_before().iter().filter(|rule| leads_to(rule, &pool)).peekable();
    let was_own = before.peek().is_some() && before.all(|rule| is_rule_of(rule, identity));
    let is_meant = || known.specs().any(|spec| spec.identity != *identity && means(spec, name));
    was_own && !is_used(draft, &pool) && !is_meant()
}

/// Whether anything leads to the pool.
pub(super) fn is_used(draft: &LoadBalancerDraft<'_>, pool: &ResourceId) -> bool {
    draft.rules().iter().any(|rule| leads_to(rule, pool)) || is_used_otherwise(draft, pool)
}

/// Whether outbound rules or inbound NAT lead to the pool.
fn is_used_otherwise(draft: &LoadBalancerDraft<'_>, pool: &ResourceId) -> bool {
    let Some(properties) = &draft.after.properties else { return false };
    let outbound = properties.outbound_rules.iter().flatten().filter_map(|rule| rule.properties.as_ref());
    let mut outbound = outbound.filter_map(|rule| rule.backend_address_pool.as_ref()?.id.as_deref());
    let mut inbound = properties.inbound_nat_rules.iter().flatten();
    let is_it = |id: &str| spelling::same_id(id, pool.as_str());
    outbound.any(is_it) || inbound.any(|rule| rule["properties"]["backendAddressPool"]["id"].as_str().is_some_and(is_it))
}

fn means(spec: &ServiceSpec, name: &str) -> bool {
    spec.own_pool && spec.families.iter().any(|family| naming::own_pool(&spec.identity, *family) == name)
}

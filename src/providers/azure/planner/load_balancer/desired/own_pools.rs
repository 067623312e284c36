//! Backend pools that belong to single Services, where there are several load balancers: refusals and removals. Pure.
//!
//! In: load balancers with their desired rules, and the requests. Out: refusals, and pools that are removed in the write that removes their
//! last rule. A pool belongs to a Service only if its name is derived from the Service's name, and every rule that leads to it is that
//! Service's. Upstream: `pkg/provider/azure_local_services.go`; unlike upstream, a pool is removed together with its rules.

use std::{
    cell::{LazyCell, OnceCell},
    collections::{BTreeMap, BTreeSet, HashMap},
};

use super::{
    ServiceRequest,
    context::{KnownServices, PlanContext},
    draft::{self, LoadBalancerDraft},
    pools::{self, RulesByPool},
    targets::TargetLoadBalancers,
    types::{DraftIdx, RequestIdx},
};
use crate::providers::azure::{
    model::{ResourceId, network::LoadBalancingRule},
    planner::load_balancer::{
        naming,
        spec::{IpFamily, ServiceIdentity, ServiceRefusal, ServiceSpec},
    },
};

/// Returns the requests that cannot have a pool of their own, with reasons. The name determines the owner, so no pool can be shared.
pub(super) fn refusals(
    context: &PlanContext<'_>,
    requests: &[&ServiceRequest],
    drafts: &[LoadBalancerDraft<'_>],
    targets: &TargetLoadBalancers,
    known: &KnownServices<'_>,
) -> Vec<(RequestIdx, ServiceRefusal)> {
    let mut taken: BTreeMap<(DraftIdx, String), String> = BTreeMap::new();
    let mut refused = Vec::new();
    let existing = LazyCell::new(|| drafts.iter().map(rules_before).collect::<Vec<_>>());
    for (request, target, spec) in targets.ensured(requests) {
        for family in spec.families.iter().filter(|_| spec.own_pool && has_rules(spec)) {
            let name = naming::own_pool(&spec.identity, *family);
            let seat = (target, name.clone());
            let rules = || existing[target.0].leading_to(&pools::id(&drafts[target.0].id, &name));
            let problem = problem(context, rules, &name, &spec.identity, known)
                .or_else(|| taken.get(&seat).map(|holder| format!("Service {holder} has the back-end pool {name} already")));
            match problem {
                Some(problem) => refused.push((request, refusal(&problem))),
                None => drop(taken.insert(seat, spec.identity.key.clone())),
            }
        }
    }
    refused
}

/// Returns `true` if the Service has rules. A pool without rules cannot be distinguished from a user's pool, and would never be removed.
fn has_rules(spec: &ServiceSpec) -> bool {
    spec.rule_count() > 0
}

fn refusal(problem: &str) -> ServiceRefusal {
    let message = format!("{problem}; give the Service another name, or use externalTrafficPolicy Cluster");
    ServiceRefusal { field: "metadata.name".to_owned(), message }
}

/// Returns the reason why the Service cannot have the pool called `name`. `rules` returns the rules that lead to the pool.
fn problem<'d>(
    context: &PlanContext<'_>,
    rules: impl FnOnce() -> &'d [&'d LoadBalancingRule],
    name: &str,
    identity: &ServiceIdentity,
    known: &KnownServices<'_>,
) -> Option<String> {
    if context.settings.shares_pool(name) {
        return Some(format!("the back-end pool {name} is that of all Services of the cluster"));
    }
    let rule = rules().iter().find(|rule| !is_rule_of(rule, identity))?.name.as_deref().unwrap_or_default();
    Some(match known.of_rule(rule) {
        Some(holder) => format!("Service {} has the back-end pool {name} already", holder.identity.key),
        None => format!("rule {rule}, which is not the Service's, leads to the back-end pool {name}"),
    })
}

fn is_rule_of(rule: &LoadBalancingRule, identity: &ServiceIdentity) -> bool {
    rule.name.as_deref().is_some_and(|name| naming::owns_rule(identity, name))
}

/// Returns the names of the pools that the Services on each load balancer need, in order. Pools that all Services share come first.
pub(super) fn needed(
    context: &PlanContext<'_>,
    requests: &[&ServiceRequest],
    targets: &TargetLoadBalancers,
    drafts: &[LoadBalancerDraft<'_>],
) -> Vec<Vec<String>> {
    let mut needed: Vec<BTreeSet<(bool, IpFamily, String)>> = vec![BTreeSet::new(); drafts.len()];
    for (_, target, spec) in targets.ensured(requests) {
        for family in spec.families.iter().filter(|_| !spec.own_pool || has_rules(spec)) {
            needed[target.0].insert((spec.own_pool, *family, pools::name(spec, context.settings, *family)));
        }
    }
    needed.into_iter().map(|pools| pools.into_iter().map(|(_, _, name)| name).collect()).collect()
}

/// Returns the rules of a load balancer as ARM sent them.
fn rules_before<'a>(draft: &LoadBalancerDraft<'a>) -> RulesByPool<'a> {
    draft.before.map(RulesByPool::of).unwrap_or_default()
}

/// Names of the pools that belong or belonged to single requested Services.
pub(super) struct RequestedPools<'r> {
    requests: &'r [&'r ServiceRequest],
    by_name: OnceCell<HashMap<String, Vec<&'r ServiceIdentity>>>,
}

impl<'r> RequestedPools<'r> {
    pub(super) fn new(requests: &'r [&'r ServiceRequest]) -> Self {
        Self { requests, by_name: OnceCell::new() }
    }

    /// Returns the requested Services whose own pool would be called `name`.
    fn called(&self, name: &str) -> impl Iterator<Item = &'r ServiceIdentity> {
        let named =
            |identity: &'r ServiceIdentity| IpFamily::ALL.map(|family| (naming::own_pool(identity, family), identity));
        let build = || {
            let mut found: HashMap<String, Vec<&ServiceIdentity>> = HashMap::new();
            for (name, identity) in self.requests.iter().flat_map(|request| named(request.identity())) {
                found.entry(name).or_default().push(identity);
            }
            found
        };
        self.by_name.get_or_init(build).get(name).into_iter().flatten().copied()
    }
}

/// Removes pools of the requested Services that are not needed here anymore and have no other user. The draft has the desired rules.
pub(super) fn remove(
    context: &PlanContext<'_>,
    draft: &mut LoadBalancerDraft<'_>,
    requested: &RequestedPools<'_>,
    needed: &[String],
    known: &KnownServices<'_>,
) {
    let needed: BTreeSet<&str> = needed.iter().map(String::as_str).collect();
    let there = draft::pools(&draft.after)
        .iter()
        .filter_map(|pool| pool.name.as_deref())
        .filter(|name| !context.settings.shares_pool(name));
    let there: BTreeSet<String> = there.map(str::to_lowercase).filter(|name| !needed.contains(name.as_str())).collect();
    if there.is_empty() {
        return;
    }
    let (before, used) = (rules_before(draft), used_pools(draft));
    let is_left_behind = |name: &str, pool: &ResourceId, identity: &ServiceIdentity| {
        let rules = before.leading_to(pool);
        let was_own = !rules.is_empty() && rules.iter().all(|rule| is_rule_of(rule, identity));
        was_own && !known.has_other_with_pool(identity, name)
    };
    let goes = |name: &String| {
        let pool = pools::id(&draft.id, name);
        let mut holders = requested.called(name);
        !used.contains(&pool.key())
            && (draft.moved_pools.contains(name) || holders.any(|identity| is_left_behind(name, &pool, identity)))
    };
    let gone: BTreeSet<String> = there.into_iter().filter(goes).collect();
    if gone.is_empty() {
        return;
    }
    let Some(pools) = &mut draft.properties_mut().backend_address_pools else { return };
    let mut reasons = Vec::new();
    pools.retain(|pool| {
        let goes = pool.name.as_ref().is_some_and(|name| gone.contains(&name.to_lowercase()));
        if goes {
            reasons.push(format!("remove back-end pool {}", pool.name.as_deref().unwrap_or_default()));
        }
        !goes
    });
    draft.reasons.append(&mut reasons);
}

/// Returns the ids in lower case of the pools that load balancing rules, outbound rules or inbound NAT lead to.
pub(super) fn used_pools(draft: &LoadBalancerDraft<'_>) -> BTreeSet<String> {
    let Some(properties) = &draft.after.properties else { return BTreeSet::new() };
    let rules = draft.rules().iter().filter_map(|rule| rule.properties.as_ref()?.backend_address_pool.as_ref());
    let outbound = properties.outbound_rules.iter().flatten().filter_map(|rule| rule.properties.as_ref());
    let outbound = outbound.filter_map(|rule| rule.backend_address_pool.as_ref());
    let inbound = properties.inbound_nat_rules.iter().flatten();
    let inbound = inbound.filter_map(|rule| rule["properties"]["backendAddressPool"]["id"].as_str());
    rules.chain(outbound).filter_map(|pool| pool.id.as_deref()).chain(inbound).map(str::to_ascii_lowercase).collect()
}

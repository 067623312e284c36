//! Migration of the cluster's parts from load balancers with a former name (another `loadBalancerName`, or none) to those with the
//! current name. Pure.
//!
//! In: load balancers that are being changed. Out: the same load balancers, with frontends, rules and probes of the cluster's Services on
//! the load balancer with the current name. All these parts move at once, whether their Service has a request or not. A former load
//! balancer is deleted if it is empty then, and remains if it has parts of other owners. A part is ours if its name has the UID of one of
//! this cluster's Services. A host can be behind one Standard load balancer of a kind only, so Services that remained, or moved before
//! the rest, would have no backends. For that reason, no Service moves while a part of another owner keeps the former load balancer, and
//! with it the hosts; requests that would move or create a Service are refused.
//! Upstream moves one Service after the other.

use std::collections::{BTreeSet, HashMap};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    context::{KnownServices, NameOwners, PlanContext},
    draft::{self, FrontendUse, LoadBalancerDraft, uses_by_frontend},
    handover, last_frontend, own_pools,
    ownership_tags::is_clusters,
    pools::{self, pool_of},
    probes, rules,
    targets::{Relocation, TargetLoadBalancers},
    types::{DraftIdx, RequestIdx},
};
use crate::providers::azure::{
    config::BackendPoolType,
    model::{
        ResourceId,
        network::{FrontendIpConfiguration, LoadBalancingRule, Probe},
        spelling,
    },
    planner::load_balancer::{naming, spec::ServiceRefusal},
};

/// Moves all parts from former load balancers to those with the current name, as far as these are among the drafts.
///
/// Returns the refusals of the requests that cannot get there.
pub(super) fn migrate(
    context: &PlanContext<'_>,
    drafts: &mut [LoadBalancerDraft<'_>],
    known: &KnownServices<'_>,
    targets: &TargetLoadBalancers,
    requests: &NameOwners,
) -> Vec<(RequestIdx, ServiceRefusal)> {
    if let Some(refusal) = migration_blocker(context, drafts, known) {
        let goes_there = |(request, target): (RequestIdx, Option<DraftIdx>)| {
            let is_there = has_parts(&drafts[target?.0], |owner| owner == request, requests);
            (!is_there).then(|| (request, refusal.clone()))
        };
        return targets.iter().filter_map(goes_there).collect();
    }
    let held = last_frontend::held_relocations(context, drafts, targets);
    let held_up = last_frontend::refused_movers(context, drafts, &held, targets, requests);
    if !held_up.is_empty() {
        return held_up;
    }
    let is_held = |relocation: &Relocation| held.iter().any(|other| std::ptr::eq(*other, relocation));
    for Relocation { from, to, frontends } in targets.relocations.iter().filter(|relocation| !is_held(relocation)) {
        if let Ok([from, to]) = drafts.get_disjoint_mut([from.0, to.0]) {
            move_parts(context, (from, to), frontends, known, requests, targets);
        }
    }
    Vec::new()
}

/// Returns `true` if the load balancer has frontends or rules of Services for which `counts` returns `true`.
fn has_parts<T: Copy>(draft: &LoadBalancerDraft<'_>, counts: impl Fn(T) -> bool, owners: &NameOwners<T>) -> bool {
    let is_its = |name: &Option<String>| name.as_deref().and_then(|name| owners.of_rule(name)).is_some_and(&counts);
    draft.frontends().iter().any(|part| is_its(&part.name)) || draft.rules().iter().any(|part| is_its(&part.name))
}

/// Returns a refusal if hosts must remain behind a former load balancer.
///
/// Hosts in pools by IP address can be behind several load balancers, so they are no reason.
fn migration_blocker(
    context: &PlanContext<'_>,
    drafts: &[LoadBalancerDraft<'_>],
    known: &KnownServices<'_>,
) -> Option<ServiceRefusal> {
    let today = context.settings.primary_name();
    let by_interface = context.settings.pool_type == BackendPoolType::NodeIpConfiguration;
    let former = drafts.iter().filter(|draft| {
        let is_former = context.is_standard() && by_interface && !spelling::same_name(&draft.external_name, today);
        is_former && (has_parts(draft, |_| true, &known.owners) || has_members(context, draft))
    });
    let (draft, part) = former.into_iter().find_map(|draft| Some((draft, foreign_part(context, draft, known)?)))?;
    let is_named_by_flag = context.settings.load_balancer_name.is_empty();
    let (field, source) = match is_named_by_flag {
        true => ("--cluster-name", "the flag --cluster-name"),
        false => ("loadBalancerName", "loadBalancerName"),
    };
    let (name, external) = (draft.id.name(), &draft.external_name);
    let message = format!(
        "load balancer `{name}` cannot go, since {part} is there, and its machines cannot be behind load balancers called `{today}`, too; \
         remove it, or set {source} back to `{external}`"
    );
    Some(ServiceRefusal { field: field.to_owned(), message })
}

fn has_members(context: &PlanContext<'_>, draft: &LoadBalancerDraft<'_>) -> bool {
    let mut own = draft::pools(&draft.after)
        .iter()
        .filter(|pool| pool.name.as_deref().is_some_and(|name| context.settings.shares_pool(name)));
    own.any(|pool| {
        let members = pool.properties.as_ref().and_then(|properties| properties.backend_ip_configurations.as_ref());
        members.is_some_and(|members| !members.is_empty())
    })
}

/// Returns the first part that keeps the load balancer from being deleted once the cluster's parts are removed.
fn foreign_part(context: &PlanContext<'_>, draft: &LoadBalancerDraft<'_>, known: &KnownServices<'_>) -> Option<String> {
    let uses = uses_by_frontend(&draft.after);
    let is_others = |user: &FrontendUse| !user.is_rule() || known.owners.of_rule(&user.name).is_none();
    let mut frontends = draft.frontends().iter().filter_map(|part| {
        let (id, name) = (draft.frontend_id(part), part.name.as_deref().unwrap_or_default());
        let mut users = uses.get(&id.to_ascii_lowercase()).into_iter().flatten();
        if let Some(user) = users.find(|user| is_others(user)) {
            return Some(format!("{} {} with front end {name}", user.kind, user.name));
        }
        let is_clusters = known.owners.of_frontend(name).is_some() || handover::is_unowned(part);
        (!is_clusters).then(|| format!("front end {name}"))
    });
    let pools = || {
        let mut names = draft::pools(&draft.after).iter().filter_map(|pool| pool.name.as_deref());
        names.find(|name| !context.settings.shares_pool(name)).map(|name| format!("back-end pool {name}"))
    };
    frontends.next().or_else(|| pools().filter(|_| !draft.is_ours))
}

/// Moves all frontends of `moving`, or none if one must remain, because a Service may have parts on several of them.
fn move_parts(
    context: &PlanContext<'_>,
    (from, to): (&mut LoadBalancerDraft<'_>, &mut LoadBalancerDraft<'_>),
    moving: &BTreeSet<String>,
    known: &KnownServices<'_>,
    requests: &NameOwners,
    targets: &TargetLoadBalancers,
) {
    let uses = uses_by_frontend(&from.after);
    let is_held = |name: &String| is_held_by_link(context, from, name, requests, &uses);
    if !are_movable(from, to, moving, known, &uses) || moving.iter().any(is_held) {
        return;
    }
    let (ids, goal) = ((from.id.clone(), to.id.clone()), to.id.name().to_owned());
    let is_moving = |part: &FrontendIpConfiguration| part.name.as_ref().is_some_and(|name| moving.contains(name));
    let properties = from.properties_mut();
    let frontends = take(&mut properties.frontend_ip_configurations, is_moving);
    let keys: BTreeSet<String> = moving.iter().map(|name| name.to_ascii_lowercase()).collect();
    let is_behind =
        |rule: &LoadBalancingRule| rules::frontend_key(rule).rsplit_once('/').is_some_and(|(_, name)| keys.contains(name));
    let mut rules: Vec<LoadBalancingRule> = take(&mut properties.load_balancing_rules, is_behind);
    // The rules of a deleted Service are removed and do not move.
    let is_leaving = |rule: &LoadBalancingRule| {
        let request = rule.name.as_deref().and_then(|name| requests.of_rule(name));
        request.is_some_and(|request| targets.of(request).is_none())
    };
    rules.retain(|rule| !is_leaving(rule));
    take_unused_pools(context, from, &rules);
    let properties = from.properties_mut();
    let needed = probes::probe_references(&rules);
    let still = probes::probe_references(properties.load_balancing_rules.as_deref().unwrap_or_default());
    let name = |probe: &Probe| probe.name.as_deref().unwrap_or_default().to_ascii_lowercase();
    let probes: Vec<Probe> =
        properties.probes.iter().flatten().filter(|probe| needed.contains(&name(probe))).cloned().collect();
    take(&mut properties.probes, |probe: &Probe| needed.contains(&name(probe)) && !still.contains(&name(probe)));
    for frontend in moving {
        from.reasons.push(format!("front end {frontend} moves to load balancer {goal}"));
        to.reasons.push(format!("front end {frontend} comes from load balancer {}", from.id.name()));
    }
    from.is_former = true;
    let shared = |name: &str| naming::pool(&context.settings.cluster, naming::pool_family(name));
    let pool_name = |pool: ResourceId| {
        if context.settings.shares_pool(pool.name()) { shared(pool.name()) } else { pool.name().to_owned() }
    };
    let needed: BTreeSet<_> = rules.iter().filter_map(pool_of).map(pool_name).collect();
    let added: Vec<String> = pools::ensure_all(to, &needed).into_iter().map(|name| name.to_lowercase()).collect();
    to.moved_pools.extend(added);
    let into = to.properties_mut();
    let frontends = frontends.into_iter().map(|part| {
        let id = frontend_id_on(&ids.1, part.name.as_deref());
        let properties = part.properties.as_ref().map(handover::with_address);
        FrontendIpConfiguration { id, properties, name: part.name, zones: part.zones, ..Default::default() }
    });
    into.frontend_ip_configurations.get_or_insert_default().extend(frontends);
    let moved = |part| rewritten(part, &ids.0, &ids.1);
    into.load_balancing_rules.get_or_insert_default().extend(rules.iter().filter_map(moved));
    let list = into.probes.get_or_insert_default();
    let new: Vec<Probe> = probes.into_iter().filter(|probe| !list.iter().any(|there| name(there) == name(probe))).collect();
    list.extend(new.iter().filter_map(|part| rewritten(part, &ids.0, &ids.1)));
}

/// Removes the own pools of Services that only `rules` used. With such a pool, the load balancer would never be empty.
fn take_unused_pools(context: &PlanContext<'_>, from: &mut LoadBalancerDraft<'_>, rules: &[LoadBalancingRule]) {
    let left = rules.iter().filter_map(pool_of).filter(|pool| !context.settings.shares_pool(pool.name()));
    let used = own_pools::used_pools(from);
    let unused: BTreeSet<ResourceId> = left.filter(|pool| !used.contains(&pool.key())).collect();
    take(&mut from.properties_mut().backend_address_pools, |pool| unused.iter().any(|gone| pool.name_is(gone.name())));
}

fn frontend_id_on(balancer: &ResourceId, name: Option<&str>) -> Option<String> {
    Some(balancer.child("frontendIPConfigurations", name?).as_str().to_owned())
}

/// Returns `true` if only Services use the frontends called `names`, and the target has no frontend with such a name.
fn are_movable(
    from: &LoadBalancerDraft<'_>,
    to: &LoadBalancerDraft<'_>,
    names: &BTreeSet<String>,
    known: &KnownServices<'_>,
    uses: &HashMap<String, Vec<FrontendUse>>,
) -> bool {
    let is_held = |id: &str| {
        let mut users = uses.get(&id.to_ascii_lowercase()).into_iter().flatten();
        users.any(|user| !user.is_rule() || known.owners.of_rule(&user.name).is_none())
    };
    let there = to.frontends().iter().filter_map(|part| Some(part.name.as_ref()?.to_ascii_lowercase()));
    let there: BTreeSet<String> = there.collect();
    let is_there = |name: &str| there.contains(&name.to_ascii_lowercase());
    let mut parts = from.frontends().iter().filter(|part| part.name.as_ref().is_some_and(|name| names.contains(name)));
    parts.all(|part| !is_there(part.name.as_deref().unwrap_or_default()) && !is_held(&from.frontend_id(part)))
}

/// Returns `true` if a private link service keeps the frontend on its load balancer.
///
/// The private link service has another owner, or no Service of the frontend has a request for which the private link service could be
/// deleted. For pools by network interface, the result is always `false`, because their hosts cannot remain behind the former load
/// balancer.
fn is_held_by_link(
    context: &PlanContext<'_>,
    from: &LoadBalancerDraft<'_>,
    name: &str,
    requests: &NameOwners,
    uses: &HashMap<String, Vec<FrontendUse>>,
) -> bool {
    if context.settings.pool_type == BackendPoolType::NodeIpConfiguration {
        return false;
    }
    let Some(id) = frontend_id_on(&from.id, Some(name)) else { return false };
    let mut users = uses.get(&id.to_ascii_lowercase()).into_iter().flatten();
    let asks = requests.of_frontend(name).is_some() || users.any(|user| requests.of_rule(&user.name).is_some());
    context.observed.links_to(&id).any(|link| !asks || !is_clusters(link.tags.as_ref(), context.settings))
}

fn take<T>(list: &mut Option<Vec<T>>, goes: impl Fn(&T) -> bool) -> Vec<T> {
    let (taken, kept) = list.take().unwrap_or_default().into_iter().partition(|part| goes(part));
    *list = Some(kept);
    taken
}

/// Returns a copy of a part, without its etag, in which every id below `from` is below `to`.
fn rewritten<T: Serialize + DeserializeOwned>(part: &T, from: &ResourceId, to: &ResourceId) -> Option<T> {
    let mut value = serde_json::to_value(part).ok()?;
    value.as_object_mut()?.remove("etag");
    rewrite(&mut value, &format!("{}/", from.as_str()), &format!("{}/", to.as_str()));
    serde_json::from_value(value).ok()
}

fn rewrite(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) if spelling::starts_with(text, from) => {
            text.replace_range(..from.len(), to);
        }
        Value::Array(list) => list.iter_mut().for_each(|part| rewrite(part, from, to)),
        Value::Object(fields) => fields.values_mut().for_each(|part| rewrite(part, from, to)),
        _ => {}
    }
}

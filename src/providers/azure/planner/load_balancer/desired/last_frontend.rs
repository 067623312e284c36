//! Load balancers that would lose their last frontend and are not deleted: Azure refuses such a write. Pure.
//!
//! In: load balancers as they were and will be. Out: one former frontend that is kept on each of them, or refusals of Services that would
//! move the last frontend to another load balancer. A load balancer remains if its backend pools are preconfigured, or if it has
//! another name than the configured ones and a pool of another program. Upstream writes nothing to an empty preconfigured load balancer.

use std::collections::BTreeSet;

use super::{
    context::{NameOwners, PlanContext},
    draft::{self, LoadBalancerDraft, frontend_uses},
    frontend_assignment::FrontendAssignment,
    frontends::{self, FrontendAddress},
    pools::pool_of,
    targets::{Relocation, TargetLoadBalancers},
    types::{DELETING_FRONTEND, DraftIdx, RequestIdx, RetainedFrontend},
};
use crate::providers::azure::{
    model::{ResourceId, network::FrontendIpConfiguration, spelling},
    planner::load_balancer::spec::ServiceRefusal,
};

/// Returns `true` if the program may delete the load balancer once it has no frontend.
pub(super) fn can_delete(context: &PlanContext<'_>, draft: &LoadBalancerDraft<'_>) -> bool {
    !is_preconfigured(context, draft) && (draft.is_ours || is_disposable(context, draft))
}

fn is_preconfigured(context: &PlanContext<'_>, draft: &LoadBalancerDraft<'_>) -> bool {
    let (external, internal) = context.settings.preconfigured;
    if draft.internal { internal } else { external }
}

/// Returns the reason of a change that removes a frontend.
pub(super) fn removal_reason(frontend: &FrontendIpConfiguration) -> String {
    format!("remove front end {}", frontend.name.as_deref().unwrap_or_default())
}

type RetainedFrontends = Vec<(RequestIdx, RetainedFrontend)>;

/// Keeps a frontend on each load balancer that must not lose its last one.
///
/// Returns these frontends, each with the request that does not need it anymore, and refusals of the requests that cannot move away.
pub(super) fn keep(
    context: &PlanContext<'_>,
    drafts: &mut [LoadBalancerDraft<'_>],
    assignment: &FrontendAssignment,
) -> (RetainedFrontends, Vec<(RequestIdx, ServiceRefusal)>) {
    let (mut retained, mut refused) = (Vec::new(), Vec::new());
    for place in 0..drafts.len() {
        let Some(elsewhere) = addresses_elsewhere(context, drafts, place) else { continue };
        let Some(draft) = drafts.get_mut(place) else { continue };
        let marked = |part: &FrontendIpConfiguration| {
            let key = (DraftIdx(place), draft.frontend_id(part).to_ascii_lowercase());
            assignment.retired.get(&key).map(|mark| mark.request)
        };
        let is_moving = |part: &&FrontendIpConfiguration| {
            frontends::frontend_address(part).is_some_and(|address| elsewhere.contains(&address))
        };
        match draft.frontends_before().iter().find(|part| !is_moving(part)).cloned() {
            Some(part) => {
                let kept = RetainedFrontend { id: draft.frontend_id(&part), uses: Vec::new() };
                retained.extend(marked(&part).map(|request| (request, kept)));
                restore(draft, part);
            }
            None => {
                let leaving: BTreeSet<RequestIdx> = draft.frontends_before().iter().filter_map(marked).collect();
                refused.extend(leaving.into_iter().map(|request| (request, refusal(context, draft))));
            }
        }
    }
    (retained, refused)
}

/// Returns the addresses that other load balancers will have; `None` if this load balancer needs none of its former frontends.
///
/// A load balancer that is not deleted and keeps no frontend needs a former one in two cases: it would have no frontend at all, or it takes
/// an address from another load balancer, which may wait for this one in turn.
fn addresses_elsewhere(
    context: &PlanContext<'_>,
    drafts: &[LoadBalancerDraft<'_>],
    place: usize,
) -> Option<BTreeSet<FrontendAddress>> {
    let draft = drafts.get(place)?;
    let (before, after) = (draft.frontends_before(), draft.frontends());
    let names: BTreeSet<_> = after.iter().filter_map(|part| Some(part.name.as_deref()?.to_ascii_lowercase())).collect();
    let remains =
        |part: &FrontendIpConfiguration| part.name.as_deref().is_some_and(|name| names.contains(&name.to_ascii_lowercase()));
    if before.is_empty() || before.iter().any(remains) || can_delete(context, draft) {
        return None;
    }
    let others = || drafts.iter().enumerate().filter(move |(other, _)| *other != place).map(|(_, other)| other);
    let addresses =
        |parts: &[FrontendIpConfiguration]| parts.iter().filter_map(frontends::frontend_address).collect::<Vec<_>>();
    let given: BTreeSet<_> = others().flat_map(|other| addresses(other.frontends_before())).collect();
    let is_taken =
        |part: &FrontendIpConfiguration| frontends::frontend_address(part).is_some_and(|address| given.contains(&address));
    let needs_one = after.is_empty() || after.iter().any(is_taken);
    needs_one.then(|| others().flat_map(|other| addresses(other.frontends())).collect())
}

fn restore(draft: &mut LoadBalancerDraft<'_>, part: FrontendIpConfiguration) {
    let removal = removal_reason(&part);
    draft.reasons.retain(|reason| *reason != removal);
    draft.properties_mut().frontend_ip_configurations.get_or_insert_default().push(part);
}

fn refusal(context: &PlanContext<'_>, draft: &LoadBalancerDraft<'_>) -> ServiceRefusal {
    let reason = match is_preconfigured(context, draft) {
        true => "its backend pools are preconfigured",
        false => "it has a backend pool that this program did not create",
    };
    let message = format!(
        "the Service has the last frontend of load balancer {}, which Azure does not allow to lose it, and which is not deleted, since \
         {reason}; put another Service there first, or delete the load balancer",
        draft.id.name()
    );
    ServiceRefusal { field: DELETING_FRONTEND.to_owned(), message }
}

/// Returns the relocations that would remove the last frontend of a load balancer that remains: one for each such load balancer.
pub(super) fn held_relocations<'t>(
    context: &PlanContext<'_>,
    drafts: &[LoadBalancerDraft<'_>],
    targets: &'t TargetLoadBalancers,
) -> Vec<&'t Relocation> {
    let held = drafts.iter().enumerate().filter_map(|(place, draft)| {
        let own = || targets.relocations.iter().filter(|relocation| relocation.from == DraftIdx(place));
        let moves = |part: &FrontendIpConfiguration| {
            part.name.as_ref().is_some_and(|name| own().any(|relocation| relocation.frontends.contains(name)))
        };
        let is_emptied = draft.frontends().iter().all(moves);
        let remains = is_preconfigured(context, draft) || has_foreign_pool(context, draft);
        own().max_by_key(|relocation| &relocation.frontends).filter(|_| is_emptied && remains)
    });
    held.collect()
}

/// Returns refusals of the Services that would move with a blocked relocation.
pub(super) fn refused_movers(
    context: &PlanContext<'_>,
    drafts: &[LoadBalancerDraft<'_>],
    held: &[&Relocation],
    targets: &TargetLoadBalancers,
    requests: &NameOwners,
) -> Vec<(RequestIdx, ServiceRefusal)> {
    let movers = held.iter().filter_map(|relocation| Some((drafts.get(relocation.from.0)?, relocation)));
    let refused = movers.flat_map(|(draft, relocation)| {
        let moving = draft
            .frontends()
            .iter()
            .filter(|part| part.name.as_ref().is_some_and(|name| relocation.frontends.contains(name)));
        let ids: BTreeSet<String> = moving.map(|part| draft.frontend_id(part).to_ascii_lowercase()).collect();
        let uses = frontend_uses(&draft.after);
        let behind = uses.iter().filter(|(id, user)| user.is_rule() && ids.contains(id));
        let owners = relocation.frontends.iter().filter_map(|name| requests.of_frontend(name));
        let all: BTreeSet<RequestIdx> = owners.chain(behind.filter_map(|(_, user)| requests.of_rule(&user.name))).collect();
        let moves = |request: &RequestIdx| targets.of(*request).is_some_and(|target| target != relocation.from);
        let refusal = refusal(context, draft);
        all.into_iter().filter(moves).map(move |request| (request, refusal.clone())).collect::<Vec<_>>()
    });
    refused.collect()
}

/// Returns `true` if a former load balancer has no rules and only the cluster's own pools.
fn is_disposable(context: &PlanContext<'_>, draft: &LoadBalancerDraft<'_>) -> bool {
    draft.is_former
        && draft.after.properties.is_some()
        && draft.rules().is_empty()
        && draft::pools(&draft.after)
            .iter()
            .all(|pool| pool.name.as_deref().is_some_and(|name| context.settings.shares_pool(name)))
}

/// Returns `true` if the load balancer has a pool that is neither the cluster's nor used by a rule.
fn has_foreign_pool(context: &PlanContext<'_>, draft: &LoadBalancerDraft<'_>) -> bool {
    let used: BTreeSet<ResourceId> = draft.rules().iter().filter_map(pool_of).collect();
    let mut names = draft::pools(&draft.after).iter().filter_map(|pool| pool.name.as_deref());
    names.any(|name| !context.settings.shares_pool(name) && !used.iter().any(|pool| spelling::same_name(pool.name(), name)))
}

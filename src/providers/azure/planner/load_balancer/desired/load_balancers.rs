//! Plan of all load balancers at once. Pure.
//!
//! In: the observed state, the requests, the Services that are only context, the public IP of each Service. Out: a [`LoadBalancerPlan`]
//! with the documents to write and a result for each request. A refused Service changes nothing, and the others are planned as if it were
//! not requested. Planning therefore repeats without the refused requests until all remaining requests fit.
//! A move between load balancers (internal or external, the mode of basic ones, another name) is not a special case: the parts are desired
//! in one document and not in the others. Upstream: `pkg/provider/azure_loadbalancer.go`, `reconcileLoadBalancer`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

pub use super::types::{DELETING_FRONTEND, PublicIpAssignment, RetainedFrontend, ServicePlacement};
use super::{
    LAST_CHANGE_FAILED, ServiceRequest,
    attempt::{PlanAttempt, attempt},
    context::{KnownServices, NameOwners, PlanContext, ensured_spec},
    draft::{self, LoadBalancerDraft},
    frontends::{self, FrontendAddress},
    last_frontend, placement,
    plan_index::PlanIndex,
    rules,
    types::RequestIdx,
    unruled_ports::UnruledPorts,
    write_order::{self, AddressChange},
};
use crate::providers::azure::{
    model::{
        ResourceId,
        network::{ArmLoadBalancer, FrontendIpConfiguration, LoadBalancingRule},
    },
    planner::load_balancer::{
        naming,
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceIdentity, ServiceRefusal, ServiceSpec},
    },
};

/// Write or deletion of a load balancer.
#[derive(Debug, Clone, PartialEq)]
pub enum LoadBalancerWrite {
    /// Write of the complete document.
    Put(Box<ArmLoadBalancer>),
    /// Deletion. At that time, its pools must have no members from scale sets.
    Delete,
}

impl LoadBalancerWrite {
    /// Returns the document that is written.
    pub fn document(&self) -> Option<&ArmLoadBalancer> {
        match self {
            Self::Put(document) => Some(document),
            Self::Delete => None,
        }
    }
}

/// Change of one load balancer, with its position in the order of writes.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadBalancerChange {
    pub id: ResourceId,
    pub write: LoadBalancerWrite,
    /// Changes in the document, one line each.
    pub reasons: Vec<String>,
    /// Position in the order of writes: changes of one wave can be written at the same time, after those of lower waves.
    pub wave: u8,
}

/// Wave of the changes that only release addresses.
const RETURNS: u8 = 0;

/// Changes of all load balancers, and the result of each request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadBalancerPlan {
    /// Load balancers to write, ordered so that each address is released before another load balancer takes it.
    pub changes: Vec<LoadBalancerChange>,
    /// Whether the changes are only the first part of the plan.
    ///
    /// The first part releases or moves addresses that other changes depend on. The rest is planned after the writes of the first part.
    pub is_interim: bool,
    /// Placement or refusal of each request.
    pub services: BTreeMap<ServiceIdentity, Result<ServicePlacement, ServiceRefusal>>,
}

impl LoadBalancerPlan {
    /// Returns the public IPs that frontends refer to after all writes, each with the id of its frontend.
    pub fn frontends_of_public_ips(&self, observed: &ObservedNetwork) -> BTreeMap<ResourceId, String> {
        let changed: BTreeSet<String> = self.changes.iter().map(|change| change.id.key()).collect();
        let written = |document: &&ArmLoadBalancer| {
            document.id.as_deref().is_some_and(|id| changed.contains(&id.to_ascii_lowercase()))
        };
        let new = self.changes.iter().filter_map(|change| change.write.document());
        let all = observed.load_balancers.iter().filter(|document| !written(document)).chain(new);
        let referring = all.flat_map(draft::frontends).filter_map(|frontend| {
            let public_ip = frontend.properties.as_ref()?.public_ip_address.as_ref()?.resource_id()?;
            Some((public_ip, frontend.id.clone().or_else(|| frontend.name.clone())?))
        });
        referring.collect()
    }
}

/// Plans the load balancers. The order of `requests` and of `others` has no effect. A plan on the result of the writes has no changes.
pub fn plan_load_balancers(
    observed: &ObservedNetwork,
    requests: &[ServiceRequest],
    others: &[Arc<ServiceSpec>],
    public_ips: &PublicIpAssignment,
    settings: &LoadBalancerSettings,
) -> LoadBalancerPlan {
    let index = PlanIndex::new(observed);
    let context = PlanContext::new(&index, settings, public_ips);
    let requests = by_precedence(&context, requests);
    let known = KnownServices::new(&requests, others);
    let unruled = UnruledPorts::new(others);
    let mut refused: BTreeMap<ServiceIdentity, ServiceRefusal> = BTreeMap::new();
    loop {
        let active: Vec<&ServiceRequest> =
            requests.iter().copied().filter(|request| !refused.contains_key(request.identity())).collect();
        let more = match attempt(&context, &active, &known, &unruled) {
            Ok(attempt) => return assemble_plan(&context, &active, attempt, refused),
            Err(more) => more,
        };
        for (request, refusal) in more {
            refused.entry(active[request.0].identity().clone()).or_insert(refusal);
        }
    }
}

/// Orders the requests: first Services that have a frontend, then Services that probably own their public IP, then the others, each by
/// name.
fn by_precedence<'a>(context: &PlanContext<'_>, requests: &'a [ServiceRequest]) -> Vec<&'a ServiceRequest> {
    let owners = NameOwners::of_requests(requests.iter().map(ServiceRequest::identity));
    let names = context.observed.load_balancers.iter().flat_map(draft::frontends).filter_map(|part| part.name.as_deref());
    let seated: BTreeSet<RequestIdx> = names.filter_map(|name| owners.of_frontend(name)).collect();
    let rank = |place: usize, request: &ServiceRequest| match ensured_spec(request) {
        _ if seated.contains(&RequestIdx(place)) => 0,
        Some(spec) if is_primary(context, spec) => 1,
        _ => 2,
    };
    let mut ranked: Vec<(usize, &ServiceRequest)> = requests.iter().enumerate().collect();
    ranked.sort_by_cached_key(|(place, request)| (rank(*place, request), request.identity()));
    ranked.into_iter().map(|(_, request)| request).collect()
}

/// Returns `true` if the Service is not a guest in any family: its public IP has its generated name or, without a public IP, it pins no
/// address.
fn is_primary(context: &PlanContext<'_>, spec: &ServiceSpec) -> bool {
    let own = naming::public_ip(&context.settings.cluster, &spec.identity, None, IpFamily::V4, false);
    spec.families.iter().all(|family| match context.public_ip(&spec.identity, *family) {
        Some(id) if !spec.internal => id.name().starts_with(&own),
        _ => spec.pinned.get(*family).is_none(),
    })
}

fn assemble_plan(
    context: &PlanContext<'_>,
    requests: &[&ServiceRequest],
    attempt: PlanAttempt<'_>,
    refused: BTreeMap<ServiceIdentity, ServiceRefusal>,
) -> LoadBalancerPlan {
    let leftover =
        context.observed.load_balancers.iter().filter(|document| placement::is_leftover(context.settings, document));
    let lends = |document: &ArmLoadBalancer| {
        context.observed.public_ips.iter().any(|public_ip| placement::lends_address(document, public_ip))
    };
    let mut documents: Vec<LoadBalancerChange> = leftover
        .filter(|document| !lends(document))
        .map(|document| LoadBalancerChange {
            id: placement::document_id(context, document),
            write: LoadBalancerWrite::Delete,
            reasons: vec!["delete a basic load balancer, which a standard one replaces".to_owned()],
            wave: RETURNS,
        })
        .collect();
    let ensured = requests.iter().filter_map(|request| ensured_spec(request));
    let former: BTreeSet<IpAddr> = ensured.flat_map(|spec| spec.status_addresses.iter().copied()).collect();
    let (changed, is_interim) = changes(context, attempt.drafts, &former);
    if is_interim {
        documents.clear();
    }
    documents.extend(changed);
    let mut services: BTreeMap<_, _> = refused.into_iter().map(|(identity, refusal)| (identity, Err(refusal))).collect();
    services
        .extend(requests.iter().zip(attempt.placements).map(|(request, placed)| (request.identity().clone(), Ok(placed))));
    LoadBalancerPlan { changes: documents, is_interim, services }
}

/// Returns the changes in the order of their waves, and `true` if they are only the first part of the plan.
///
/// A load balancer that takes an address from another one is written after it. If load balancers take addresses from each other, the plan
/// only releases these addresses. `former` are the addresses in the status of the Services.
fn changes<'a>(
    context: &PlanContext<'_>,
    mut drafts: Vec<LoadBalancerDraft<'a>>,
    former: &BTreeSet<IpAddr>,
) -> (Vec<LoadBalancerChange>, bool) {
    for draft in drafts.iter_mut().filter(|draft| draft.is_ours && draft.before.is_some_and(ArmLoadBalancer::has_failed)) {
        draft.reasons.push(LAST_CHANGE_FAILED.to_owned());
    }
    let addresses = |frontends: &[_]| frontends.iter().filter_map(frontends::frontend_address).collect::<BTreeSet<_>>();
    let flow = |draft: &LoadBalancerDraft<'_>| AddressChange {
        before: addresses(draft.frontends_before()),
        after: addresses(draft.frontends()),
        is_written: !draft.reasons.is_empty(),
    };
    let flows: Vec<AddressChange> = drafts.iter().map(flow).collect();
    let waves = match write_order::waves(&flows) {
        Ok(waves) => waves,
        Err(circle) => return (returns(context, drafts, &flows, &circle), true),
    };
    let is_postponed = write_order::moves_private(&flows, former)
        && drafts.iter().any(|draft| draft.frontends().iter().any(|part| is_newly_dynamic(draft, part)));
    let written = drafts.into_iter().zip(waves).filter(|(draft, _)| !draft.reasons.is_empty());
    let mut changed: Vec<LoadBalancerChange> = match is_postponed {
        true => written.filter_map(|(draft, wave)| without_newly_dynamic(context, draft, wave)).collect(),
        false => written.map(|(draft, wave)| change(context, draft, wave)).collect(),
    };
    changed.sort_by_key(|change| change.wave);
    (changed, is_postponed)
}

/// Returns `true` if Azure chooses a private address for the new frontend. Azure may choose one that was just released for another load
/// balancer.
fn is_newly_dynamic(draft: &LoadBalancerDraft<'_>, part: &FrontendIpConfiguration) -> bool {
    let is_known =
        || draft.frontends_before().iter().any(|known| part.name.as_deref().is_some_and(|name| known.name_is(name)));
    frontends::frontend_address(part).is_none() && !is_known()
}

/// Returns the change without the frontends for which Azure chooses an address; `None` if nothing else changes.
fn without_newly_dynamic(
    context: &PlanContext<'_>,
    mut draft: LoadBalancerDraft<'_>,
    wave: u8,
) -> Option<LoadBalancerChange> {
    let ids: BTreeSet<String> = frontend_ids(&draft, |part| is_newly_dynamic(&draft, part));
    let is_emptied = ids.len() == draft.frontends().len() && !draft.frontends_before().is_empty();
    if ids.is_empty() || is_emptied && !last_frontend::can_delete(context, &draft) {
        return Some(change(context, draft, wave));
    }
    leave_out(&mut draft, &ids);
    if is_emptied {
        return Some(change(context, draft, wave));
    }
    let is_new = draft.before.is_none() && draft.frontends().is_empty();
    if is_new || draft.before == Some(&draft.after) {
        return None;
    }
    draft.reasons.push("front ends without an address follow when addresses have moved".to_owned());
    Some(LoadBalancerChange {
        id: draft.id,
        write: LoadBalancerWrite::Put(Box::new(draft.after)),
        reasons: draft.reasons,
        wave,
    })
}

/// Returns the ids, in lower case, of the frontends that satisfy the predicate.
fn frontend_ids(draft: &LoadBalancerDraft<'_>, is_meant: impl Fn(&FrontendIpConfiguration) -> bool) -> BTreeSet<String> {
    draft.frontends().iter().filter(|part| is_meant(part)).map(|part| draft.frontend_id(part).to_ascii_lowercase()).collect()
}

/// Removes the frontends with these ids, and the rules behind them, from the desired document.
fn leave_out(draft: &mut LoadBalancerDraft<'_>, ids: &BTreeSet<String>) {
    draft.remove_frontends(ids);
    let is_behind = |rule: &LoadBalancingRule| ids.contains(&rules::frontend_key(rule));
    let properties = draft.properties_mut();
    properties.load_balancing_rules.iter_mut().for_each(|parts| parts.retain(|rule| !is_behind(rule)));
}

/// Returns the first writes of load balancers that take addresses from each other: these writes release addresses and take none.
///
/// A load balancer that would have no frontend is not written yet. If all would have none, one of them is deleted and created again.
fn returns(
    context: &PlanContext<'_>,
    drafts: Vec<LoadBalancerDraft<'_>>,
    flows: &[AddressChange],
    circle: &BTreeSet<usize>,
) -> Vec<LoadBalancerChange> {
    let others = |place: usize| circle.iter().filter(move |other| **other != place).map(|other| &flows[*other]);
    let gives = |place: usize| others(place).any(|taker| taker.taken_from(&flows[place]).next().is_some());
    let of_circle = drafts.into_iter().enumerate().filter(|(place, _)| circle.contains(place) && gives(*place));
    let (emptied, others): (Vec<_>, Vec<_>) = of_circle
        .map(|(place, mut draft)| {
            let taken: BTreeSet<&FrontendAddress> = others(place).flat_map(|giver| flows[place].taken_from(giver)).collect();
            let is_taken = |part: &FrontendIpConfiguration| {
                frontends::frontend_address(part).is_some_and(|address| taken.contains(&address))
            };
            let ids = frontend_ids(&draft, |part| is_taken(part) || is_newly_dynamic(&draft, part));
            leave_out(&mut draft, &ids);
            draft.reasons = vec![
                "give addresses back before other load balancers take them, which give some of theirs in turn".to_owned(),
            ];
            draft
        })
        .partition(|draft| draft.frontends().is_empty());
    let deletable = emptied.into_iter().filter(|draft| last_frontend::can_delete(context, draft));
    let chosen = if others.is_empty() { deletable.take(1).collect() } else { others };
    chosen.into_iter().map(|draft| change(context, draft, RETURNS)).collect()
}

fn change(context: &PlanContext<'_>, draft: LoadBalancerDraft<'_>, wave: u8) -> LoadBalancerChange {
    let is_deleted = draft.frontends().is_empty() && last_frontend::can_delete(context, &draft);
    let LoadBalancerDraft { id, after, mut reasons, .. } = draft;
    if is_deleted {
        reasons.push("delete the load balancer, which has no front end any more".to_owned());
        return LoadBalancerChange { id, write: LoadBalancerWrite::Delete, reasons, wave };
    }
    LoadBalancerChange { id, write: LoadBalancerWrite::Put(Box::new(after)), reasons, wave }
}

#[cfg(test)]
mod tests;

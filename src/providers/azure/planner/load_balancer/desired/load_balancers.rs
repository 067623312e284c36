//! All load balancers at once, brought to what Services ask for. Pure.
//!
//! In: what there is, the asks, the Services that are only context, the public IP of each Service. Out: a [`LoadBalancerPlan`], documents to
//! write and an answer for each ask. A Service that cannot have what it asks for changes nothing, and the others are planned as if it
//! had not asked; so planning is repeated without it until everybody who is left fits.
//! Moving between load balancers (internal or external, the mode of basic ones, another name) is nothing special: parts are wanted
//! on one document and unwanted on the others. Upstream: `pkg/provider/azure_loadbalancer.go`, `reconcileLoadBalancer`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use super::types::{DELETING_FRONTEND, PublicIpAssignment, RetainedFrontend, ServicePlacement};
use super::{
    ServiceRequest,
    attempt::{PlanAttempt, attempt},
    context::{KnownServices, NameOwners, PlanContext, ensured_spec},
    draft::{self, LoadBalancerDraft},
    former_names, frontends, placement,
    types::RequestIdx,
};
use crate::providers::azure::{
    arm::{ResourceId, network::ArmLoadBalancer},
    planner::load_balancer::{
        naming,
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceIdentity, ServiceRefusal, ServiceSpec},
    },
};

/// What is to be sent for a load balancer.
#[derive(Debug, Clone, PartialEq)]
pub enum LoadBalancerWrite {
    /// The whole document.
    Put(Box<ArmLoadBalancer>),
    /// It goes; its pools must have no members from scale sets then.
    Delete,
}

/// One load balancer that changes.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadBalancerChange {
    pub id: ResourceId,
    pub write: LoadBalancerWrite,
    /// What changes in it, one line each.
    pub reasons: Vec<String>,
    /// When: those of one wave can be written at once, after those of lower ones.
    pub wave: u8,
}

/// Waves of [`LoadBalancerChange`]s: what gives addresses back for good, what takes none from others, what takes some that others give back.
const WAVES: [u8; 3] = [0, 1, 2];

/// What planning comes to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadBalancerPlan {
    /// Load balancers to write, in an order in which no address is taken before it is given back.
    pub changes: Vec<LoadBalancerChange>,
    /// The answer to each ask.
    pub services: BTreeMap<ServiceIdentity, Result<ServicePlacement, ServiceRefusal>>,
}

impl LoadBalancerPlan {
    /// Public IPs that front ends refer to when all is written, with the id of the front end.
    pub fn frontends_of_public_ips(&self, observed: &ObservedNetwork) -> BTreeMap<ResourceId, String> {
        let written = |document: &&ArmLoadBalancer| {
            let id = document.id.as_deref().unwrap_or_default();
            self.changes.iter().any(|change| change.id.same_as(id))
        };
        let new = self.changes.iter().filter_map(|change| match &change.write {
            LoadBalancerWrite::Put(document) => Some(document.as_ref()),
            LoadBalancerWrite::Delete => None,
        });
        let all = observed.load_balancers.iter().filter(|document| !written(document)).chain(new);
        let referring = all.flat_map(draft::frontends).filter_map(|frontend| {
            let public_ip = frontend.properties.as_ref()?.public_ip_address.as_ref()?.resource_id()?;
            Some((public_ip, frontend.id.clone().or_else(|| frontend.name.clone())?))
        });
        referring.collect()
    }
}

/// Plans. The order of `asks` and of `others` does not matter; planned on what it comes to, nothing changes.
pub fn plan_load_balancers(
    observed: &ObservedNetwork,
    requests: &[ServiceRequest],
    others: &[Arc<ServiceSpec>],
    public_ips: &PublicIpAssignment,
    settings: &LoadBalancerSettings,
) -> LoadBalancerPlan {
    let context = PlanContext::new(observed, settings, public_ips);
    let requests = by_precedence(&context, requests);
    let known = KnownServices::new(&requests, others);
    let mut refused: BTreeMap<ServiceIdentity, ServiceRefusal> = BTreeMap::new();
    loop {
        let active: Vec<&ServiceRequest> =
            requests.iter().copied().filter(|request| !refused.contains_key(request.identity())).collect();
        let attempt = attempt(&context, &active, &known);
        if attempt.refused.is_empty() {
            return assemble_plan(&context, &active, attempt, refused);
        }
        for (request, refusal) in attempt.refused {
            refused.entry(active[request.0].identity().clone()).or_insert(refusal);
        }
    }
}

/// Who has a front end comes first, then who is likely to own its public IP, then the rest; each by name.
fn by_precedence<'a>(context: &PlanContext<'_>, requests: &'a [ServiceRequest]) -> Vec<&'a ServiceRequest> {
    let owners = NameOwners::of_requests(requests.iter().map(ServiceRequest::identity));
    let names = context.observed.load_balancers.iter().flat_map(draft::frontends).filter_map(|part| part.name.as_deref());
    let seated: BTreeSet<RequestIdx> = names.filter_map(|name| owners.of_frontend(name)).collect();
    let mut ranked: Vec<(u8, &ServiceRequest)> = requests
        .iter()
        .enumerate()
        .map(|(place, request)| {
            let rank = match ensured_spec(request) {
                _ if seated.contains(&RequestIdx(place)) => 0,
                Some(spec) if is_primary(context, spec) => 1,
                _ => 2,
            };
            (rank, request)
        })
        .collect();
    ranked.sort_by(|(a, first), (b, second)| (a, first.identity()).cmp(&(b, second.identity())));
    ranked.into_iter().map(|(_, request)| request).collect()
}

/// Whether no pinned address makes the Service a guest, or the public IP is named after it.
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
            wave: WAVES[0],
        })
        .collect();
    documents.extend(changes(context, attempt.drafts));
    let mut services: BTreeMap<_, _> = refused.into_iter().map(|(identity, refusal)| (identity, Err(refusal))).collect();
    services
        .extend(requests.iter().zip(attempt.placements).map(|(request, placed)| (request.identity().clone(), Ok(placed))));
    LoadBalancerPlan { changes: documents, services }
}

/// Who takes an address that another load balancer gives back is written after that one.
fn changes<'a>(context: &PlanContext<'_>, mut drafts: Vec<LoadBalancerDraft<'a>>) -> Vec<LoadBalancerChange> {
    for draft in drafts.iter_mut().filter(|draft| has_failed(draft)) {
        draft.reasons.push("write it again, since its last change failed".to_owned());
    }
    let members = |frontends: &[_]| frontends.iter().filter_map(frontends::frontend_address).collect::<BTreeSet<_>>();
    let before: Vec<_> = drafts.iter().map(|draft| members(draft.frontends_before())).collect();
    let mut changed: Vec<LoadBalancerChange> = Vec::new();
    for (place, draft) in drafts.into_iter().enumerate().filter(|(_, draft)| !draft.reasons.is_empty()) {
        let gained = &members(draft.frontends()) - &before[place];
        let elsewhere =
            |member| before.iter().enumerate().any(|(other, members)| other != place && members.contains(member));
        let wave = if gained.iter().any(elsewhere) { WAVES[2] } else { WAVES[1] };
        changed.push(change(context, draft, wave));
    }
    changed.sort_by_key(|change| change.wave);
    changed
}

/// Whether Azure took the last change and could not carry it out.
fn has_failed(draft: &LoadBalancerDraft<'_>) -> bool {
    draft.is_ours && draft.before.is_some_and(ArmLoadBalancer::has_failed)
}

fn change(context: &PlanContext<'_>, draft: LoadBalancerDraft<'_>, wave: u8) -> LoadBalancerChange {
    let (external, internal) = context.settings.preconfigured;
    let is_preconfigured = if draft.internal { internal } else { external };
    let goes = if draft.is_ours { draft.frontends().is_empty() } else { former_names::is_emptied(context, &draft) };
    let LoadBalancerDraft { id, after, mut reasons, .. } = draft;
    if goes && !is_preconfigured {
        reasons.push("delete the load balancer, which has no front end any more".to_owned());
        return LoadBalancerChange { id, write: LoadBalancerWrite::Delete, reasons, wave };
    }
    LoadBalancerChange { id, write: LoadBalancerWrite::Put(Box::new(after)), reasons, wave }
}

#[cfg(test)]
mod tests;

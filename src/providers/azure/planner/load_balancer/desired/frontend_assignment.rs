//! Assignment of Services to frontends (their own, a shared or a new one), and marks of the frontends to remove. Pure.
//!
//! In: Services with their target load balancers. Out: [`FrontendAssignment`]. No document is changed: a later step, which has the
//! desired rules, decides whether a marked frontend can be removed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    ServiceRequest,
    context::{NameOwners, PlanContext, ensured_spec},
    draft::LoadBalancerDraft,
    frontends::{self, FrontendAction, FrontendAddress, InheritedFrontend},
    targets::TargetLoadBalancers,
    types::{DraftIdx, RequestIdx},
};
use crate::providers::azure::{
    model::network::FrontendIpConfiguration,
    planner::load_balancer::spec::{IpFamily, ServiceRefusal, ServiceSpec},
};

/// Frontend that its Service does not need anymore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RetiredFrontend {
    /// Request of the frontend's Service.
    pub(super) request: RequestIdx,
    /// Whether a new frontend on the same load balancer replaces it.
    pub(super) replaced: bool,
}

/// Frontends of the requests, and the resulting changes to frontends.
#[derive(Debug, Default)]
pub(super) struct FrontendAssignment {
    /// Id of each assigned frontend, by request and family.
    pub(super) by_request: BTreeMap<(RequestIdx, IpFamily), String>,
    /// New frontends, each with its draft.
    pub(super) added: Vec<(DraftIdx, FrontendIpConfiguration)>,
    /// Frontends to remove, by draft and the frontend's id in lower case.
    pub(super) retired: BTreeMap<(DraftIdx, String), RetiredFrontend>,
    /// Requests that remove a Service's parts.
    deleting: BTreeSet<RequestIdx>,
    /// Requests that get no frontend for lack of an address.
    pub(super) refused: Vec<(RequestIdx, ServiceRefusal)>,
    inherited: BTreeMap<RequestIdx, InheritedFrontend>,
    /// Ids of the frontends that have an address, by their draft.
    taken_addresses: BTreeMap<FrontendAddress, BTreeMap<DraftIdx, String>>,
}

/// Assigns a frontend to each Service. The first of `requests` gets an address that several request.
pub(super) fn assign_frontends(
    context: &PlanContext<'_>,
    requests: &[&ServiceRequest],
    drafts: &[LoadBalancerDraft<'_>],
    targets: &TargetLoadBalancers,
    owners: &NameOwners,
) -> FrontendAssignment {
    let mut seating = FrontendAssignment::default();
    let is_deletion = |(_, request): &(usize, &&ServiceRequest)| matches!(request, ServiceRequest::Delete(..));
    seating.deleting = requests.iter().enumerate().filter(is_deletion).map(|(place, _)| RequestIdx(place)).collect();
    for (place, draft) in drafts.iter().enumerate() {
        for frontend in draft.frontends() {
            seating.classify(context, requests, (DraftIdx(place), draft), targets, owners, frontend);
        }
    }
    for (request, target, spec) in targets.ensured(requests) {
        for family in &spec.families {
            if let Err(refusal) = seating.assign(context, (request, spec), *family, (target, &drafts[target.0])) {
                seating.refused.push((request, refusal));
                break;
            }
        }
    }
    seating
}

impl FrontendAssignment {
    /// Returns `true` if the Service is deleted or does not need a load balancer anymore.
    pub(super) fn is_deleting(&self, request: RequestIdx) -> bool {
        self.deleting.contains(&request)
    }

    /// Returns the requests on each frontend, by its id in lower case.
    pub(super) fn requests_by_frontend(&self) -> HashMap<String, BTreeSet<RequestIdx>> {
        let mut found: HashMap<String, BTreeSet<RequestIdx>> = HashMap::new();
        for ((request, _), id) in &self.by_request {
            found.entry(id.to_ascii_lowercase()).or_default().insert(*request);
        }
        found
    }

    fn classify(
        &mut self,
        context: &PlanContext<'_>,
        requests: &[&ServiceRequest],
        (place, draft): (DraftIdx, &LoadBalancerDraft<'_>),
        targets: &TargetLoadBalancers,
        owners: &NameOwners,
        frontend: &FrontendIpConfiguration,
    ) {
        let id = draft.frontend_id(frontend);
        let owner = frontend.name.as_deref().and_then(|name| owners.of_frontend(name));
        let here = |ask: RequestIdx| targets.of(ask) == Some(place);
        let spec = owner.and_then(|ask| ensured_spec(requests.get(ask.0)?).filter(|_| here(ask)));
        let verdict = spec.map(|spec| frontends::frontend_action(context, spec, frontend));
        match (owner, verdict) {
            (Some(ask), Some(FrontendAction::Keep(family))) => _ = self.by_request.insert((ask, family), id.clone()),
            (Some(ask), Some(FrontendAction::Replace)) => {
                self.inherit(ask, frontend);
                self.retired.insert((place, id.to_ascii_lowercase()), RetiredFrontend { request: ask, replaced: true });
                return;
            }
            (Some(ask), _) => {
                _ = self.retired.insert((place, id.to_ascii_lowercase()), RetiredFrontend { request: ask, replaced: false })
            }
            (None, _) => {}
        }
        if let Some(member) = frontends::frontend_address(frontend) {
            self.taken_addresses.entry(member).or_default().insert(place, id);
        }
    }

    fn inherit(&mut self, request: RequestIdx, frontend: &FrontendIpConfiguration) {
        let heritage = self.inherited.entry(request).or_default();
        heritage.zones = Some(frontend.zones.clone());
        if let Some(FrontendAddress::Private(address)) = frontends::frontend_address(frontend) {
            heritage.addresses.push(address);
        }
    }

    /// Returns `true` if no frontend has the address, except one on another load balancer that the Service leaves.
    fn is_free(&self, (request, target): (RequestIdx, DraftIdx), address: &FrontendAddress) -> bool {
        let own = |place: DraftIdx, id: &str| {
            let retired = self.retired.get(&(place, id.to_ascii_lowercase()));
            place != target && retired.is_some_and(|mark| mark.request == request)
        };
        let mut holders = self.taken_addresses.get(address).into_iter().flatten();
        holders.all(|(place, id)| own(*place, id))
    }

    fn assign(
        &mut self,
        context: &PlanContext<'_>,
        (request, spec): (RequestIdx, &ServiceSpec),
        family: IpFamily,
        (target, draft): (DraftIdx, &LoadBalancerDraft<'_>),
    ) -> Result<(), ServiceRefusal> {
        if self.by_request.contains_key(&(request, family)) {
            return Ok(());
        }
        let wanted = frontends::wanted_address(context, spec, family);
        if let Some(id) = wanted.and_then(|address| self.taken_addresses.get(&address)?.get(&target)) {
            self.by_request.insert((request, family), id.clone());
            return Ok(());
        }
        let nothing = InheritedFrontend::default();
        let heritage = self.inherited.get(&request).unwrap_or(&nothing);
        let is_free = |address| self.is_free((request, target), &FrontendAddress::Private(address));
        let mut frontend = frontends::new(context, spec, family, heritage, is_free)?;
        let id = draft.frontend_id(&frontend);
        frontend.id = Some(id.clone());
        if let Some(member) = frontends::frontend_address(&frontend) {
            self.taken_addresses.entry(member).or_default().insert(target, id.clone());
        }
        self.by_request.insert((request, family), id);
        self.added.push((target, frontend));
        Ok(())
    }
}

//! Seats Services on front ends: their own, one they share, or a new one; and marks those that are to go. Pure.
//!
//! In: Services with the load balancers where they belong. Out: [`FrontendAssignment`]. Nothing is changed yet: whether a
//! marked front end can go is known when the rules are.

use std::collections::BTreeMap;

use super::{
    ServiceRequest,
    context::{NameOwners, PlanContext, ensured_spec},
    draft::LoadBalancerDraft,
    frontends::{self, FrontendAction, FrontendAddress, InheritedFrontend},
    placement::TargetLoadBalancers,
};
use crate::providers::azure::{
    arm::network::FrontendIpConfiguration,
    planner::load_balancer::spec::{IpFamily, ServiceRefusal, ServiceSpec},
};

/// A front end that its Service does not want any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RetiredFrontend {
    /// Whose it is.
    pub(super) request: usize,
    /// Whether another one takes its place.
    pub(super) replaced: bool,
}

/// Who sits where.
#[derive(Debug, Default)]
pub(super) struct FrontendAssignment {
    /// The front end's id, by the ask's position and family.
    pub(super) by_request: BTreeMap<(usize, IpFamily), String>,
    /// New front ends, with the position of their draft.
    pub(super) added: Vec<(usize, FrontendIpConfiguration)>,
    /// By the draft's position and the front end's lower-cased id.
    pub(super) retired: BTreeMap<(usize, String), RetiredFrontend>,
    /// Services without an address.
    pub(super) refused: Vec<(usize, ServiceRefusal)>,
    inherited: BTreeMap<usize, InheritedFrontend>,
    taken_addresses: BTreeMap<(usize, FrontendAddress), String>,
}

/// Seats every Service. `asks` are in the order in which they may take an address that several want.
pub(super) fn assign_frontends(
    context: &PlanContext<'_>,
    asks: &[&ServiceRequest],
    drafts: &[LoadBalancerDraft<'_>],
    targets: &TargetLoadBalancers,
    owners: &NameOwners,
) -> FrontendAssignment {
    let mut seating = FrontendAssignment::default();
    for (place, draft) in drafts.iter().enumerate() {
        for frontend in draft.frontends() {
            seating.classify(context, asks, (place, draft), targets, owners, frontend);
        }
    }
    for (ask, spec) in asks.iter().enumerate().filter_map(|(place, ask)| Some((place, ensured_spec(ask)?))) {
        let Some(target) = targets.by_request.get(ask).copied().flatten() else { continue };
        for family in &spec.families {
            if let Err(refusal) = seating.assign(context, (ask, spec), *family, (target, &drafts[target])) {
                seating.refused.push((ask, refusal));
                break;
            }
        }
    }
    seating
}

impl FrontendAssignment {
    fn classify(
        &mut self,
        context: &PlanContext<'_>,
        asks: &[&ServiceRequest],
        (place, draft): (usize, &LoadBalancerDraft<'_>),
        targets: &TargetLoadBalancers,
        owners: &NameOwners,
        frontend: &FrontendIpConfiguration,
    ) {
        let id = draft.frontend_id(frontend);
        let owner = frontend.name.as_deref().and_then(|name| owners.of_frontend(name));
        let here = |ask: usize| targets.by_request.get(ask).copied().flatten() == Some(place);
        let spec = owner.and_then(|ask| ensured_spec(asks.get(ask)?).filter(|_| here(ask)));
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
        if let Some(seat) = frontends::frontend_address(frontend) {
            self.taken_addresses.insert((place, seat), id);
        }
    }

    fn inherit(&mut self, ask: usize, frontend: &FrontendIpConfiguration) {
        let heritage = self.inherited.entry(ask).or_default();
        heritage.zones = Some(frontend.zones.clone());
        if let Some(FrontendAddress::Private(address)) = frontends::frontend_address(frontend) {
            heritage.addresses.push(address);
        }
    }

    fn assign(
        &mut self,
        context: &PlanContext<'_>,
        (ask, spec): (usize, &ServiceSpec),
        family: IpFamily,
        (target, draft): (usize, &LoadBalancerDraft<'_>),
    ) -> Result<(), ServiceRefusal> {
        if self.by_request.contains_key(&(ask, family)) {
            return Ok(());
        }
        let shared =
            frontends::wanted_address(context, spec, family).and_then(|seat| self.taken_addresses.get(&(target, seat)));
        if let Some(id) = shared {
            self.by_request.insert((ask, family), id.clone());
            return Ok(());
        }
        let nothing = InheritedFrontend::default();
        let heritage = self.inherited.get(&ask).unwrap_or(&nothing);
        let is_free = |address| !self.taken_addresses.contains_key(&(target, FrontendAddress::Private(address)));
        let mut frontend = frontends::new(context, spec, family, heritage, is_free)?;
        let id = draft.frontend_id(&frontend);
        frontend.id = Some(id.clone());
        if let Some(seat) = frontends::frontend_address(&frontend) {
            self.taken_addresses.insert((target, seat), id.clone());
        }
        self.by_request.insert((ask, family), id);
        self.added.push((target, frontend));
        Ok(())
    }
}

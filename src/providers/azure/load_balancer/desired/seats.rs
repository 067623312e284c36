//! Seats Services on front ends: their own, one they share, or a new one; and marks those that are to go. Pure.
//!
//! In: Services with the load balancers where they belong. Out: [`Seating`]. Nothing is changed yet: whether a marked front end can
//! go is known when the rules are.

use std::collections::BTreeMap;

use super::{
    Ask,
    context::{Context, Owners, ensured},
    draft::Draft,
    frontends::{self, Heritage, Seat, Verdict},
    placement::Targets,
};
use crate::providers::azure::{
    arm::network::FrontendIpConfiguration,
    load_balancer::spec::{Family, Refusal, ServiceSpec},
};

/// A front end that its Service does not want any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// Whose it is.
    pub(super) ask: usize,
    /// Whether another one takes its place.
    pub(super) replaced: bool,
}

/// Who sits where.
#[derive(Debug, Default)]
pub(super) struct Seating {
    /// The front end's id, by the ask's position and family.
    pub(super) of_ask: BTreeMap<(usize, Family), String>,
    /// New front ends, with the position of their draft.
    pub(super) added: Vec<(usize, FrontendIpConfiguration)>,
    /// By the draft's position and the front end's lower-cased id.
    pub(super) marks: BTreeMap<(usize, String), Mark>,
    /// Services without an address.
    pub(super) refused: Vec<(usize, Refusal)>,
    heritage: BTreeMap<usize, Heritage>,
    taken: BTreeMap<(usize, Seat), String>,
}

/// Seats every Service. `asks` are in the order in which they may take an address that several want.
pub(super) fn seat(
    context: &Context<'_>,
    asks: &[&Ask],
    drafts: &[Draft<'_>],
    targets: &Targets,
    owners: &Owners,
) -> Seating {
    let mut seating = Seating::default();
    for (place, draft) in drafts.iter().enumerate() {
        for frontend in draft.frontends() {
            seating.judge(context, asks, (place, draft), targets, owners, frontend);
        }
    }
    for (ask, spec) in asks.iter().enumerate().filter_map(|(place, ask)| Some((place, ensured(ask)?))) {
        let Some(target) = targets.of_ask.get(ask).copied().flatten() else { continue };
        for family in &spec.families {
            if let Err(refusal) = seating.find(context, (ask, spec), *family, (target, &drafts[target])) {
                seating.refused.push((ask, refusal));
                break;
            }
        }
    }
    seating
}

impl Seating {
    fn judge(
        &mut self,
        context: &Context<'_>,
        asks: &[&Ask],
        (place, draft): (usize, &Draft<'_>),
        targets: &Targets,
        owners: &Owners,
        frontend: &FrontendIpConfiguration,
    ) {
        let id = draft.frontend_id(frontend);
        let owner = frontend.name.as_deref().and_then(|name| owners.of_frontend(name));
        let here = |ask: usize| targets.of_ask.get(ask).copied().flatten() == Some(place);
        let spec = owner.and_then(|ask| ensured(asks.get(ask)?).filter(|_| here(ask)));
        let verdict = spec.map(|spec| frontends::verdict(context, spec, frontend));
        match (owner, verdict) {
            (Some(ask), Some(Verdict::Keep(family))) => _ = self.of_ask.insert((ask, family), id.clone()),
            (Some(ask), Some(Verdict::Replace)) => {
                self.inherit(ask, frontend);
                self.marks.insert((place, id.to_ascii_lowercase()), Mark { ask, replaced: true });
                return;
            }
            (Some(ask), _) => _ = self.marks.insert((place, id.to_ascii_lowercase()), Mark { ask, replaced: false }),
            (None, _) => {}
        }
        if let Some(seat) = frontends::seat(frontend) {
            self.taken.insert((place, seat), id);
        }
    }

    fn inherit(&mut self, ask: usize, frontend: &FrontendIpConfiguration) {
        let heritage = self.heritage.entry(ask).or_default();
        heritage.zones = Some(frontend.zones.clone());
        if let Some(Seat::Private(address)) = frontends::seat(frontend) {
            heritage.addresses.push(address);
        }
    }

    fn find(
        &mut self,
        context: &Context<'_>,
        (ask, spec): (usize, &ServiceSpec),
        family: Family,
        (target, draft): (usize, &Draft<'_>),
    ) -> Result<(), Refusal> {
        if self.of_ask.contains_key(&(ask, family)) {
            return Ok(());
        }
        let shared = frontends::wanted_seat(context, spec, family).and_then(|seat| self.taken.get(&(target, seat)));
        if let Some(id) = shared {
            self.of_ask.insert((ask, family), id.clone());
            return Ok(());
        }
        let nothing = Heritage::default();
        let heritage = self.heritage.get(&ask).unwrap_or(&nothing);
        let is_free = |address| !self.taken.contains_key(&(target, Seat::Private(address)));
        let mut frontend = frontends::new(context, spec, family, heritage, is_free)?;
        let id = draft.frontend_id(&frontend);
        frontend.id = Some(id.clone());
        if let Some(seat) = frontends::seat(&frontend) {
            self.taken.insert((target, seat), id.clone());
        }
        self.of_ask.insert((ask, family), id);
        self.added.push((target, frontend));
        Ok(())
    }
}

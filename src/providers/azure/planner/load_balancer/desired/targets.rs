//! Target load balancer of each Service, chosen for all Services at once. Pure.
//!
//! In: load balancers that are being changed, and requests in their order of precedence. Out: [`TargetLoadBalancers`], with new drafts for
//! missing load balancers. The location of an address decides first. Entries decide next, in the order of requests, so many requests at
//! once are spread like requests one after another. Parts on a load balancer that no entry names any more move to another one, whether
//! their Service is requested or not.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `getServiceLoadBalancer`, `getAzureLoadBalancerName`.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    ServiceRequest,
    context::{KnownServices, NameOwners, PlanContext, ensured_spec},
    draft::{FrontendUse, LoadBalancerDraft, uses_by_frontend},
    entry_choice::{EntryCandidate, EntryObstacle, RuleLoad},
    former_groups::{self, AskingServices, FormerGroup},
    frontends::{self, FrontendAddress},
    placement,
    types::{DraftIdx, RequestIdx, RuleCounts},
};
use crate::providers::azure::{
    model::{network::FrontendIpConfiguration, spelling},
    planner::load_balancer::{
        entries::LoadBalancerEntry,
        spec::{ServiceIdentity, ServiceRefusal, ServiceSpec},
    },
};

/// Target load balancers of the Services of one attempt.
#[derive(Default)]
pub(super) struct TargetLoadBalancers {
    /// Draft by index of the request; `None` if the Service is to be removed.
    by_request: Vec<Option<DraftIdx>>,
    /// Requests for which there is no possible load balancer.
    pub(super) refused: Vec<(RequestIdx, ServiceRefusal)>,
    /// Moves of frontends whose load balancer no entry names any more.
    pub(super) relocations: Vec<Relocation>,
}

/// Move of frontends to another load balancer, all of them or none.
pub(super) struct Relocation {
    pub(super) from: DraftIdx,
    pub(super) to: DraftIdx,
    /// Names of the frontends to move.
    pub(super) frontends: BTreeSet<String>,
}

impl TargetLoadBalancers {
    /// Returns the draft for the request; `None` if the Service is to be removed.
    pub(super) fn of(&self, request: RequestIdx) -> Option<DraftIdx> {
        self.by_request.get(request.0).copied().flatten()
    }

    /// Returns every request with its draft.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestIdx, Option<DraftIdx>)> {
        self.by_request.iter().enumerate().map(|(place, target)| (RequestIdx(place), *target))
    }

    /// Returns every request that needs a load balancer, with its draft and spec.
    pub(super) fn ensured<'r>(
        &self,
        requests: &[&'r ServiceRequest],
    ) -> impl Iterator<Item = (RequestIdx, DraftIdx, &'r ServiceSpec)> {
        self.iter().filter_map(move |(request, target)| Some((request, target?, ensured_spec(requests[request.0])?)))
    }
}

/// Chooses the load balancer of every request and adds the load balancers that are missing.
pub(super) fn choose_targets<'a>(
    context: &PlanContext<'a>,
    requests: &[&ServiceRequest],
    drafts: &mut Vec<LoadBalancerDraft<'a>>,
    owners: &NameOwners,
    known: &KnownServices<'_>,
) -> TargetLoadBalancers {
    let mut targets = TargetLoadBalancers { by_request: vec![None; requests.len()], ..TargetLoadBalancers::default() };
    let locations = part_locations(drafts, owners, requests.len());
    let ensured = || requests.iter().enumerate().filter_map(|(place, request)| Some((place, ensured_spec(request)?)));
    let presence = |(place, spec): (usize, &ServiceSpec)| {
        (spec.identity.clone(), ServicePresence::new(drafts, spec.internal, &locations[place]))
    };
    let presences = ensured().map(presence).collect();
    let mut chooser = TargetChooser::new(context, drafts, known, (AskingServices::new(requests), presences));
    for (place, spec) in ensured() {
        match chooser.place(spec) {
            Err(refusal) => targets.refused.push((RequestIdx(place), refusal)),
            Ok(external) => {
                let target = find_or_add(context, drafts, &external, spec.internal);
                targets.by_request[place] = Some(target);
                if let Some(reason) = chooser.move_reason(spec, &external) {
                    drafts[target.0].reasons.push(reason);
                }
            }
        }
    }
    targets.relocations = relocations(context, requests, drafts, &mut chooser);
    targets
}

fn find_or_add<'a>(
    context: &PlanContext<'a>,
    drafts: &mut Vec<LoadBalancerDraft<'a>>,
    external: &str,
    internal: bool,
) -> DraftIdx {
    let is_it =
        |draft: &LoadBalancerDraft<'_>| draft.internal == internal && spelling::same_name(&draft.external_name, external);
    let found = drafts.iter().position(is_it);
    DraftIdx(found.unwrap_or_else(|| {
        drafts.push(placement::new(context, external, internal));
        drafts.len() - 1
    }))
}

/// Returns the moves of frontends from load balancers that no entry names any more.
///
/// No frontend moves while no request is of its kind (internal or external).
fn relocations<'a>(
    context: &PlanContext<'a>,
    requests: &[&ServiceRequest],
    drafts: &mut Vec<LoadBalancerDraft<'a>>,
    chooser: &mut TargetChooser<'a, '_>,
) -> Vec<Relocation> {
    let asked: BTreeSet<bool> =
        requests.iter().filter_map(|request| ensured_spec(request)).map(|spec| spec.internal).collect();
    let mut found = Vec::new();
    for (from, group) in std::mem::take(&mut chooser.groups) {
        let internal = drafts[from.0].internal;
        let Some(leader) = group.leader.filter(|_| asked.contains(&internal)) else { continue };
        let Ok(external) = chooser.place(leader) else { continue };
        group.followers.iter().for_each(|spec| chooser.follow(spec, &external));
        let to = find_or_add(context, drafts, &external, internal);
        found.push(Relocation { from, to, frontends: group.frontends });
    }
    found
}

/// Returns the load balancers that have parts of each request as ARM sent them, in their order, those with frontends first.
fn part_locations(drafts: &[LoadBalancerDraft<'_>], owners: &NameOwners, requests: usize) -> Vec<Vec<DraftIdx>> {
    let mut found: Vec<Vec<DraftIdx>> = vec![Vec::new(); requests];
    let mut add = |name: &Option<String>, position: usize| {
        let owner = name.as_deref().and_then(|name| owners.of_rule(name));
        let Some(locations) = owner.and_then(|owner| found.get_mut(owner.0)) else { return };
        if locations.last() != Some(&DraftIdx(position)) {
            locations.push(DraftIdx(position));
        }
    };
    for (position, draft) in drafts.iter().enumerate() {
        draft.frontends_before().iter().for_each(|part| add(&part.name, position));
    }
    for (position, draft) in drafts.iter().enumerate() {
        draft.rules_before().iter().for_each(|part| add(&part.name, position));
    }
    found
}

/// External names of the load balancers that have parts of a Service.
#[derive(Clone, Default)]
struct ServicePresence {
    /// Load balancers of the same kind (internal or external), those with a frontend of the Service first.
    same_kind: Vec<String>,
    /// Load balancers of the other kind: a Service that becomes internal or external keeps its entry.
    other_kind: Vec<String>,
}

impl ServicePresence {
    fn new(drafts: &[LoadBalancerDraft<'_>], is_internal: bool, locations: &[DraftIdx]) -> Self {
        let names = |internal: bool| {
            let found = locations.iter().map(|position| &drafts[position.0]);
            found.filter(|draft| draft.internal == internal).map(|draft| draft.external_name.clone()).collect()
        };
        Self { same_kind: names(is_internal), other_kind: names(!is_internal) }
    }

    fn all(&self) -> Vec<&str> {
        self.same_kind.iter().chain(&self.other_kind).map(String::as_str).collect()
    }
}

/// Location of an address.
#[derive(Clone)]
struct AddressSeat<'k> {
    /// External name of the load balancer.
    external: String,
    /// Owner of the frontend; `None` if no Service owns it.
    owner: Option<&'k ServiceSpec>,
    /// Service that decides the new location of the address if no entry names the load balancer.
    leader: Option<&'k ServiceSpec>,
    /// Whether something that does not belong to the owner refers to the frontend, so that it must remain.
    is_shared: bool,
}

type SeatKey = (FrontendAddress, bool);

/// Chooser of load balancers for one Service after the other.
struct TargetChooser<'a, 'k> {
    context: &'k PlanContext<'a>,
    entries: Cow<'k, [LoadBalancerEntry]>,
    known: &'k KnownServices<'k>,
    load: RuleCounts,
    /// Positions of load balancers by external name in lower case.
    order: BTreeMap<String, usize>,
    seats: BTreeMap<SeatKey, AddressSeat<'k>>,
    placed: BTreeMap<(ServiceIdentity, bool), String>,
    asking: AskingServices<'k>,
    /// Load balancers that have parts of the requested Services.
    presences: BTreeMap<ServiceIdentity, ServicePresence>,
    /// Groups of frontends that leave load balancers that no entry names.
    groups: Vec<(DraftIdx, FormerGroup<'k>)>,
    /// Services whose load balancer is being chosen. The set ends the recursion if they name addresses of each other.
    pending: BTreeSet<ServiceIdentity>,
}

impl<'a, 'k> TargetChooser<'a, 'k> {
    fn new(
        context: &'k PlanContext<'a>,
        drafts: &[LoadBalancerDraft<'_>],
        known: &'k KnownServices<'k>,
        (asking, presences): (AskingServices<'k>, BTreeMap<ServiceIdentity, ServicePresence>),
    ) -> Self {
        let load =
            drafts.iter().map(|draft| ((draft.external_name.to_lowercase(), draft.internal), draft.rules().len())).collect();
        let mut order = BTreeMap::new();
        for (position, draft) in drafts.iter().enumerate() {
            order.entry(draft.external_name.to_lowercase()).or_insert(position);
        }
        let mut chooser = Self {
            context,
            entries: context.settings.all_entries(),
            known,
            load,
            order,
            seats: BTreeMap::new(),
            placed: BTreeMap::new(),
            asking,
            presences,
            groups: Vec::new(),
            pending: BTreeSet::new(),
        };
        for (place, draft) in drafts.iter().enumerate() {
            let groups = match chooser.is_former(draft) {
                true => former_groups::groups(context, draft, known, &chooser.asking),
                false => Vec::new(),
            };
            if context.settings.has_entries() {
                chooser.note_seats(draft, &groups);
            }
            chooser.groups.extend(groups.into_iter().map(|group| (DraftIdx(place), group)));
        }
        chooser
    }

    /// Returns `true` if no entry names the standard load balancer any more.
    fn is_former(&self, draft: &LoadBalancerDraft<'_>) -> bool {
        self.context.is_standard() && !self.context.settings.has_entry(&draft.external_name)
    }

    fn note_seats(&mut self, draft: &LoadBalancerDraft<'_>, groups: &[FormerGroup<'k>]) {
        let uses = uses_by_frontend(&draft.after);
        let led = groups.iter().flat_map(|group| group.frontends.iter().map(|name| (name.as_str(), group.leader)));
        let leaders: BTreeMap<&str, Option<&'k ServiceSpec>> = led.collect();
        for frontend in draft.frontends() {
            let Some(address) = frontends::frontend_address(frontend) else { continue };
            let users = uses.get(&draft.frontend_id(frontend).to_ascii_lowercase()).map(Vec::as_slice).unwrap_or_default();
            let owner = self.tenant(frontend, users);
            let leader = frontend.name.as_deref().and_then(|name| leaders.get(name).copied()).flatten();
            let is_others = |user: &FrontendUse| {
                let of_rule = self.known.of_rule(&user.name).map(|spec| &spec.identity);
                !user.is_rule() || of_rule.is_none() || of_rule != owner.map(|spec| &spec.identity)
            };
            let is_shared = users.iter().any(is_others);
            let seat = AddressSeat { external: draft.external_name.clone(), owner, leader, is_shared };
            self.seats.insert((address, draft.internal), seat);
        }
    }

    /// Returns the Service in the name of the frontend or, if it no longer exists, the Service of the first rule behind the frontend.
    fn tenant(&self, frontend: &FrontendIpConfiguration, users: &[FrontendUse]) -> Option<&'k ServiceSpec> {
        let owner = self.known.owners.of_frontend(frontend.name.as_deref()?).flatten();
        let mut rules = users.iter().filter(|user| user.is_rule());
        owner.or_else(|| rules.find_map(|user| self.known.of_rule(&user.name)))
    }

    /// Returns the external name of the load balancer for the Service, and records the choice.
    fn place(&mut self, spec: &ServiceSpec) -> Result<String, ServiceRefusal> {
        let key = (spec.identity.clone(), spec.internal);
        if let Some(placed) = self.placed.get(&key) {
            return Ok(placed.clone());
        }
        let presence = self.presences.get(&spec.identity).cloned().unwrap_or_default();
        let current = presence.same_kind.first().map(String::as_str);
        self.pending.insert(spec.identity.clone());
        let found = match self.context.is_standard() {
            false => placement::basic_name(self.context, spec, current, &self.load),
            true => self.entry_name(spec, &presence),
        };
        self.pending.remove(&spec.identity);
        let external = found?;
        if !current.is_some_and(|current| spelling::same_name(current, &external)) {
            self.add_load(spec, &external);
        }
        self.take_seats(spec, &external);
        self.placed.insert(key, external.clone());
        Ok(external)
    }

    /// Records the load balancer of a Service that has no request and moves with others.
    fn follow(&mut self, spec: &ServiceSpec, external: &str) {
        if self.placed.insert((spec.identity.clone(), spec.internal), external.to_owned()).is_none() {
            self.add_load(spec, external);
        }
    }

    fn add_load(&mut self, spec: &ServiceSpec, external: &str) {
        *self.load.entry((external.to_lowercase(), spec.internal)).or_default() += spec.rule_count();
    }

    fn candidate<'s>(&'s self, spec: &'s ServiceSpec, present_on: &'s [&'s str]) -> EntryCandidate<'s> {
        let observed = || self.context.observed.namespace_labels.get(spec.namespace());
        EntryCandidate { spec, namespace: spec.namespace_labels.as_ref().or_else(observed), present_on }
    }

    fn entry_name(&mut self, spec: &ServiceSpec, presence: &ServicePresence) -> Result<String, ServiceRefusal> {
        // A Service without a request keeps its addresses, whatever others it names.
        let fixed = if self.asking.ensures(spec) { self.fixed_place(spec)? } else { None };
        let present = presence.all();
        let found = self.eligible_name(spec, &present, fixed.as_deref());
        found.or_else(|refusal| self.name_despite_labels(spec, presence, fixed.as_deref()).ok_or(refusal))
    }

    fn eligible_name(&self, spec: &ServiceSpec, present: &[&str], fixed: Option<&str>) -> Result<String, ServiceRefusal> {
        // A closed entry accepts a Service that has parts there. An address there is not sufficient.
        let eligible = self.candidate(spec, present).eligible(&self.entries)?;
        if let Some(place) = fixed {
            return match eligible.iter().any(|entry| entry.is_called(place)) {
                true => Ok(place.to_owned()),
                false => Err(self.ineligible_address(spec, present, &eligible, place)),
            };
        }
        let load = RuleLoad { counts: &self.load, internal: spec.internal, order: &self.order };
        Ok(load.choose(&eligible, present, self.context.settings.has_entries())?.name.clone())
    }

    /// Returns the current load balancer of the Service if only labels exclude it: labels evict no Service that cannot move.
    fn name_despite_labels(&self, spec: &ServiceSpec, presence: &ServicePresence, fixed: Option<&str>) -> Option<String> {
        let name = presence.same_kind.iter().find(|name| fixed.is_none_or(|fixed| spelling::same_name(fixed, name)))?;
        let position = self.entries.iter().position(|entry| entry.is_called(name))?;
        let obstacles = self.candidate(spec, &presence.all()).obstacles(&self.entries).ok()?;
        obstacles.get(position).copied().flatten().is_some_and(EntryObstacle::is_of_labels).then(|| name.clone())
    }

    /// Returns the load balancer with the address that the Service names; `None` if there is none, or if the Service can move the address.
    fn fixed_place(&mut self, spec: &ServiceSpec) -> Result<Option<String>, ServiceRefusal> {
        let mut found: Option<String> = None;
        for family in spec.families.iter().filter(|family| spec.pins(**family)) {
            let Some(address) = frontends::wanted_address(self.context, spec, *family) else { continue };
            let Some(seat) = self.seats.get(&(address, spec.internal)).cloned() else { continue };
            if seat.owner.is_some_and(|owner| owner.identity == spec.identity) && !seat.is_shared {
                continue;
            }
            let place = match (self.context.settings.has_entry(&seat.external), seat.leader) {
                (true, _) | (false, None) => seat.external,
                (false, Some(leader)) if self.pending.contains(&leader.identity) => continue,
                (false, Some(leader)) => self.place(leader)?,
            };
            if found.as_ref().is_some_and(|other| !spelling::same_name(other, &place)) {
                return Err(two_places(&place, &found.unwrap_or_default()));
            }
            found = Some(place);
        }
        Ok(found)
    }

    /// Records the location of the Service's addresses, for other Services that name them.
    fn take_seats(&mut self, spec: &ServiceSpec, external: &str) {
        if !self.context.settings.has_entries() {
            return;
        }
        for family in &spec.families {
            let Some(address) = frontends::wanted_address(self.context, spec, *family) else { continue };
            let owner = self.known.owners.of_rule(&spec.identity.name_prefix).flatten();
            let is_free =
                |seat: &AddressSeat<'_>| !seat.is_shared && seat.owner.is_none_or(|owner| owner.identity == spec.identity);
            let key = (address, spec.internal);
            if self.seats.get(&key).is_none_or(is_free) {
                self.seats
                    .insert(key, AddressSeat { external: external.to_owned(), owner, leader: owner, is_shared: false });
            }
        }
    }

    fn ineligible_address(
        &self,
        spec: &ServiceSpec,
        present: &[&str],
        eligible: &[&LoadBalancerEntry],
        external: &str,
    ) -> ServiceRefusal {
        let reason = self.obstacle(spec, present, external);
        let eligible: Vec<&str> = eligible.iter().map(|entry| entry.name.as_str()).collect();
        let message = format!(
            "the address that the Service names is on load balancer {external}, which is not in the eligible set ({}): {reason}; name another \
             address, or change the entry so that it takes the Service",
            eligible.join(", ")
        );
        ServiceRefusal { field: ADDRESS.to_owned(), message }
    }

    /// Returns the reason why the Service cannot be on the load balancer.
    fn obstacle(&self, spec: &ServiceSpec, present: &[&str], external: &str) -> &'static str {
        let Some(place) = self.entries.iter().position(|entry| entry.is_called(external)) else {
            return "the configuration has no such entry";
        };
        let obstacles = self.candidate(spec, present).obstacles(&self.entries).unwrap_or_default();
        obstacles.get(place).copied().flatten().map_or("the address that it names is elsewhere", |lost| lost.words())
    }

    /// Returns the reason why the Service leaves its current load balancer; `None` if it does not.
    fn move_reason(&self, spec: &ServiceSpec, external: &str) -> Option<String> {
        let presence = self.presences.get(&spec.identity)?;
        let from = presence.same_kind.first().filter(|_| self.context.settings.has_entries())?;
        let moves = !presence.same_kind.iter().any(|name| spelling::same_name(name, external));
        let why = || self.obstacle(spec, &presence.all(), from);
        moves.then(|| format!("Service {} comes from load balancer {from}, since {}", spec.identity.key, why()))
    }
}

/// Field of a refusal because of an address.
const ADDRESS: &str = "azure-load-balancer-ipv4, -ipv6, azure-pip-name or spec.loadBalancerIP";

fn two_places(first: &str, second: &str) -> ServiceRefusal {
    let message =
        format!("the addresses that the Service names are on load balancers {second} and {first}; one has to have both");
    ServiceRefusal { field: ADDRESS.to_owned(), message }
}

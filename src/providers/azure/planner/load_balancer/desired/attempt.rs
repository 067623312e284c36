//! Attempt to plan all requests together. Its result is changed load balancers, or the requests that do not fit. Pure.
//!
//! [`attempt`] runs the steps. If requests do not fit at one step, the attempt ends there, because later steps depend on its result.

use std::{
    cell::LazyCell,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use super::{
    ServiceRequest,
    arm_constraints::{LoadBalancerViolation, check},
    context::{KnownServices, NameOwners, PlanContext, is_generated_name},
    desired_parts,
    draft::{self, FrontendUse, LoadBalancerDraft, uses_by_frontend},
    former_names,
    frontend_assignment::{self, FrontendAssignment, RetiredFrontend},
    frontends::{self, FrontendAddress},
    handover, interface_rules, last_frontend,
    merge::PartMerge,
    own_pools,
    ownership_tags::is_clusters,
    placement, pools,
    port_conflicts::PortConflicts,
    probes, rules,
    rules::RulesAndProbes,
    sharing, targets,
    types::{DELETING_FRONTEND, DraftIdx, RequestIdx, RetainedFrontend, ServicePlacement},
    unruled_ports::UnruledPorts,
};
use crate::providers::azure::{
    model::{
        ResourceId,
        network::{ArmLoadBalancer, LoadBalancingRule, Probe},
        spelling,
    },
    planner::{
        load_balancer::{annotations::CONFIGURATIONS, naming, spec::ServiceRefusal},
        tags,
    },
};

/// Result for requests that all fit.
pub(super) struct PlanAttempt<'a> {
    /// Load balancers, changed or not.
    pub(super) drafts: Vec<LoadBalancerDraft<'a>>,
    /// Results of the requests, in their order.
    pub(super) placements: Vec<ServicePlacement>,
}

/// Requests that do not fit.
type Refusals = Vec<(RequestIdx, ServiceRefusal)>;

/// Returns the refusals as an error, if there are any.
fn expect_none(refused: Refusals) -> Result<(), Refusals> {
    if refused.is_empty() { Ok(()) } else { Err(refused) }
}

/// Plans for `requests`, which are in order of precedence.
///
/// `known` has all Services of the cluster, `unruled` the ports without a rule of the Services without a request.
pub(super) fn attempt<'a>(
    context: &PlanContext<'a>,
    requests: &[&ServiceRequest],
    known: &KnownServices<'_>,
    unruled: &UnruledPorts<'_>,
) -> Result<PlanAttempt<'a>, Refusals> {
    let owners = NameOwners::of_requests(requests.iter().map(|request| request.identity()));
    let mut drafts = placement::drafts(context, &owners, &known.owners);
    let mut targets = targets::choose_targets(context, requests, &mut drafts, &owners, known);
    expect_none(std::mem::take(&mut targets.refused))?;
    expect_none(former_names::migrate(context, &mut drafts, known, &targets, &owners))?;
    expect_none(own_pools::refusals(context, requests, &drafts, &targets, known))?;
    let mut seating = frontend_assignment::assign_frontends(context, requests, &drafts, &targets, &owners);
    expect_none(std::mem::take(&mut seating.refused))?;
    expect_none(sharing::refusals(context, requests, &seating, known))?;
    for (place, draft) in drafts.iter_mut().enumerate() {
        handover::hand_over(context, (DraftIdx(place), draft), &seating, &owners, known);
    }
    let wanted = desired_parts::rules(context, requests, &drafts, &targets, &seating);
    let services = desired_parts::frontend_services(requests, &drafts, &targets, &seating);
    let conflicts = drafts
        .iter()
        .zip(&services)
        .flat_map(|(draft, services)| PortConflicts { context, draft, owners: &owners, known, unruled }.refusals(services));
    expect_none(conflicts.collect())?;
    let mut work = DraftEditor {
        context,
        owners: &owners,
        known,
        assignment: &seating,
        assigned: seating.requests_by_frontend(),
        refused: Vec::new(),
        placements: desired_parts::placements(requests, &drafts, &targets, &seating),
    };
    let needed = own_pools::needed(context, requests, &targets, &drafts);
    let requested_pools = own_pools::RequestedPools::new(requests);
    for (place, draft) in drafts.iter_mut().enumerate() {
        merge(draft, &wanted[place], &owners);
        own_pools::remove(context, draft, &requested_pools, &needed[place], known);
        work.remove_frontends(DraftIdx(place), draft);
        work.add_frontends(DraftIdx(place), draft, &needed[place]);
    }
    work.keep_last_frontends(&mut drafts);
    work.refuse_taken_addresses(&drafts);
    for (place, draft) in drafts.iter().enumerate().filter(|(_, draft)| !draft.reasons.is_empty()) {
        work.refuse_violations(draft, &wanted[place]);
    }
    let outcome = (&mut work.refused, work.placements.as_mut_slice());
    interface_rules::report_crowded(context, &owners, &drafts, &wanted, outcome);
    let DraftEditor { refused, placements, .. } = work;
    expect_none(refused)?;
    Ok(PlanAttempt { drafts, placements })
}

/// Applies the desired rules, then the desired probes.
///
/// Rules come first, because a probe remains while a rule of any Service uses it. The shared probe is removed with the last rule that
/// used it.
fn merge(draft: &mut LoadBalancerDraft<'_>, wanted: &[(RequestIdx, RulesAndProbes)], owners: &NameOwners) {
    let used_before = probes::probe_references(draft.rules_before());
    let rules: Vec<_> = wanted.iter().flat_map(|(_, wanted)| &wanted.rules).collect();
    let probes: Vec<_> = wanted.iter().flat_map(|(_, wanted)| &wanted.probes).collect();
    // Without properties there is nothing to remove, and without rules nothing to add.
    if draft.after.properties.is_none() && rules.is_empty() {
        return;
    }
    let mut reasons = std::mem::take(&mut draft.reasons);
    let is_owned = |name: &str| owners.of_rule(name).is_some();
    let rules = PartMerge { wanted: &rules, is_owned: &is_owned, is_needed: &|_| false, is_same: rules::is_same };
    if rules.is_change(draft.rules()) {
        rules.apply(&mut draft.properties_mut().load_balancing_rules, &mut reasons);
    }
    let used = probes::probe_references(draft.rules());
    // An unused shared probe that another program left behind is removed only together with another change.
    let is_written = !reasons.is_empty();
    let is_left = |name: &str| {
        spelling::same_name(name, naming::SHARED_PROBE) && (is_written || used_before.contains(&name.to_ascii_lowercase()))
    };
    let is_owned = |name: &str| is_owned(name) || is_left(name);
    let is_needed = |probe: &Probe| probe.name.as_deref().is_some_and(|name| used.contains(&name.to_ascii_lowercase()));
    let probes = PartMerge { wanted: &probes, is_owned: &is_owned, is_needed: &is_needed, is_same: probes::is_same };
    if probes.is_change(draft::probes(&draft.after)) {
        probes.apply(&mut draft.properties_mut().probes, &mut reasons);
    }
    draft.reasons = reasons;
}

/// Returns the refusal to move a Service whose frontend has other users: an address can be on one load balancer only.
fn migration_refusal((from, to): (&str, &str), frontend: &str, users: &str) -> ServiceRefusal {
    let frontend = frontend.rsplit('/').next().unwrap_or_default();
    let message = format!(
        "the Service cannot migrate from load balancer {from} to {to}, because frontend {frontend} is also used by {users}; remove the annotation, \
         or change it or the entries so that the Service remains on {from}, or give the others another address"
    );
    ServiceRefusal { field: CONFIGURATIONS.key.to_owned(), message }
}

struct DraftEditor<'w, 'a> {
    context: &'w PlanContext<'a>,
    owners: &'w NameOwners,
    known: &'w KnownServices<'w>,
    assignment: &'w FrontendAssignment,
    /// Requests on each frontend, by the frontend's id in lower case.
    assigned: HashMap<String, BTreeSet<RequestIdx>>,
    placements: Vec<ServicePlacement>,
    refused: Vec<(RequestIdx, ServiceRefusal)>,
}

impl DraftEditor<'_, '_> {
    fn is_assigned(&self, request: Option<RequestIdx>, id: &str) -> bool {
        let requests = self.assigned.get(&id.to_ascii_lowercase());
        requests.is_some_and(|requests| request.is_none_or(|request| requests.contains(&request)))
    }

    /// Removes the frontends that no Service needs and that have no user.
    fn remove_frontends(&mut self, place: DraftIdx, draft: &mut LoadBalancerDraft<'_>) {
        let mut uses = uses_by_frontend(&draft.after);
        let left = draft.before.map(|document| self.frontends_of_own_rules(document)).unwrap_or_default();
        let mut gone = BTreeSet::new();
        for frontend in draft.frontends() {
            let id = draft.frontend_id(frontend);
            let key = id.to_ascii_lowercase();
            let mut users = uses.remove(&key).unwrap_or_default();
            let goes = match self.assignment.retired.get(&(place, key.clone())) {
                Some(mark) => {
                    if self.assignment.is_deleting(mark.request) {
                        let links = self.context.observed.links_to(&id);
                        let foreign = links.filter(|link| !is_clusters(link.tags.as_ref(), self.context.settings));
                        users.extend(foreign.map(|link| FrontendUse::of_link(link.id.clone().unwrap_or_default())));
                    }
                    self.can_remove(*mark, (draft, &id), users)
                }
                None => {
                    let name = frontend.name.as_deref().unwrap_or_default();
                    let is_orphan = is_generated_name(name) && !self.known.has_frontend(name) && left.contains(&key);
                    (is_orphan || handover::is_unowned(frontend)) && users.is_empty() && !self.is_assigned(None, &id)
                }
            };
            if goes {
                gone.insert(key);
            }
        }
        let removed = draft.remove_frontends(&gone);
        draft.reasons.extend(removed.iter().map(last_frontend::removal_reason));
    }

    /// Keeps one frontend on each load balancer that Azure does not allow to lose its last frontend.
    fn keep_last_frontends(&mut self, drafts: &mut [LoadBalancerDraft<'_>]) {
        let (retained, refused) = last_frontend::keep(self.context, drafts, self.assignment);
        for (request, frontend) in retained {
            self.placements[request.0].retained_frontends.push(frontend);
        }
        self.refused.extend(refused);
    }

    /// Returns the keys of the frontends that rules of the requests use in `document`.
    fn frontends_of_own_rules(&self, document: &ArmLoadBalancer) -> BTreeSet<String> {
        let own = |rule: &&LoadBalancingRule| rule.name.as_deref().is_some_and(|name| self.owners.of_rule(name).is_some());
        draft::rules(document).iter().filter(own).map(rules::frontend_key).collect()
    }

    /// Returns `true` if a retired frontend can be removed.
    ///
    /// A frontend with other users remains, unless [`handover`] has moved them to another frontend. If the request needs to replace or to
    /// migrate such a frontend, the request is refused. Otherwise its placement lists the frontend as retained.
    fn can_remove(
        &mut self,
        mark: RetiredFrontend,
        (draft, id): (&LoadBalancerDraft<'_>, &str),
        mut users: Vec<FrontendUse>,
    ) -> bool {
        if mark.replaced {
            users.retain(|user| match self.owners.of_rule(&user.name) {
                Some(owner) => !self.is_assigned(Some(owner), id),
                None => true,
            });
        } else if users.is_empty() {
            return !self.is_assigned(None, id);
        }
        if users.is_empty() {
            return true;
        }
        if mark.replaced {
            let names: Vec<_> = users.iter().map(|user| format!("{} {}", user.kind, user.name)).collect();
            let name = id.rsplit('/').next().unwrap_or_default();
            let message = format!(
                "front end {name} cannot get another address, since {} would get it, too; give what refers to it another front end, or \
                 remove it",
                names.join(", ")
            );
            self.refused.push((mark.request, ServiceRefusal { field: DELETING_FRONTEND.to_owned(), message }));
        } else if let Some(target) = self.migration_target(mark.request, draft) {
            let refusal = migration_refusal((draft.id.name(), target.name()), id, &self.user_names(&users));
            self.refused.push((mark.request, refusal));
        } else {
            self.placements[mark.request.0].retained_frontends.push(RetainedFrontend { id: id.to_owned(), uses: users });
        }
        false
    }

    /// Returns the load balancer of the same kind to which another entry moves the owner of a frontend on `draft`.
    fn migration_target(&self, request: RequestIdx, draft: &LoadBalancerDraft<'_>) -> Option<&ResourceId> {
        let settings = self.context.settings;
        let target = self.placements.get(request.0)?.load_balancer.as_ref()?;
        let is_same_kind = naming::split_load_balancer(target.name()).1 == draft.internal;
        let is_entry = settings.has_entries() && settings.has_entry(&draft.external_name);
        (is_entry && is_same_kind && *target != draft.id).then_some(target)
    }

    /// Returns the Services and other resources that use a frontend, each once.
    fn user_names(&self, users: &[FrontendUse]) -> String {
        let names: BTreeSet<String> = users.iter().map(|user| self.user_name(user)).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    }

    fn user_name(&self, user: &FrontendUse) -> String {
        let service = || self.known.of_rule(&user.name).or_else(|| self.known.of_others.of_rule(&user.name));
        match service().filter(|_| user.is_rule()) {
            Some(spec) => format!("Service {}", spec.identity.key),
            None => format!("{} {}", user.kind, user.name),
        }
    }

    /// Adds new frontends, the pools in `needed`, and the configured tags.
    fn add_frontends(&self, place: DraftIdx, draft: &mut LoadBalancerDraft<'_>, needed: &[String]) {
        for (_, frontend) in self.assignment.added.iter().filter(|(target, _)| *target == place) {
            draft.reasons.push(format!("add front end {}", frontend.name.as_deref().unwrap_or_default()));
            draft.properties_mut().frontend_ip_configurations.get_or_insert_default().push(frontend.clone());
        }
        pools::ensure_all(draft, needed);
        let settings = self.context.settings;
        let is_touched = !needed.is_empty() || !draft.reasons.is_empty();
        if is_touched
            && draft.is_ours
            && !settings.tags.is_empty()
            && tags::merge(&mut draft.after.tags, &settings.tags, &settings.system_tags)
        {
            draft.reasons.push("change tags".to_owned());
        }
    }

    /// Refuses the requests for an address that another frontend keeps.
    fn refuse_taken_addresses(&mut self, drafts: &[LoadBalancerDraft<'_>]) {
        let is_new: BTreeSet<String> =
            self.assignment.added.iter().filter_map(|(_, part)| part.id.as_deref()).map(str::to_ascii_lowercase).collect();
        let is_draft = |document: &&ArmLoadBalancer| {
            drafts.iter().any(|draft| draft.before.is_some_and(|before| std::ptr::eq(before, *document)))
        };
        let is_leftover = |document: &&ArmLoadBalancer| placement::is_leftover(self.context.settings, document);
        let others =
            self.context.observed.load_balancers.iter().filter(|document| !is_draft(document) && !is_leftover(document));
        let mut holders: BTreeMap<FrontendAddress, String> = BTreeMap::new();
        for frontend in others.flat_map(draft::frontends) {
            holders.extend(
                frontends::frontend_address(frontend).map(|member| (member, frontend.id.clone().unwrap_or_default())),
            );
        }
        let parts = drafts.iter().flat_map(|draft| draft.frontends().iter().map(|part| (draft.frontend_id(part), part)));
        let (new, old): (Vec<_>, Vec<_>) = parts.partition(|(id, _)| is_new.contains(&id.to_ascii_lowercase()));
        holders.extend(old.iter().filter_map(|(id, part)| Some((frontends::frontend_address(part)?, id.clone()))));
        let documents = drafts.iter().map(|draft| &draft.after).chain(&self.context.observed.load_balancers);
        let uses = LazyCell::new(move || documents.map(uses_by_frontend).collect::<Vec<_>>());
        for (id, frontend) in new {
            let Some(member) = frontends::frontend_address(frontend) else { continue };
            if let Some(holder) = holders.insert(member, id.clone()) {
                let key = holder.to_ascii_lowercase();
                let users: Vec<_> = uses.iter().filter_map(|uses| uses.get(&key)).flatten().cloned().collect();
                self.refuse_assigned(&id, &holder, &self.user_names(&users));
            }
        }
    }

    fn refuse_assigned(&mut self, id: &str, holder: &str, users: &str) {
        let users = if users.is_empty() { String::new() } else { format!(", which is used by {users}") };
        let message = format!("the address is in use by frontend {holder}{users}; release it there, or use another address");
        let refusal = ServiceRefusal { field: DELETING_FRONTEND.to_owned(), message };
        let requests = self.assigned.get(&id.to_ascii_lowercase()).into_iter().flatten();
        self.refused.extend(requests.map(|request| (*request, refusal.clone())));
    }

    /// Refuses the requests that add a violation of ARM's constraints.
    ///
    /// A violation that the document already had is ignored, because no request of this attempt caused it.
    fn refuse_violations(&mut self, draft: &LoadBalancerDraft<'_>, wanted: &[(RequestIdx, RulesAndProbes)]) {
        let before = draft.before.map(check).unwrap_or_default();
        for violation in check(&draft.after).into_iter().filter(|violation| !before.contains(violation)) {
            match violation {
                LoadBalancerViolation::LimitExceeded { what, count, limit: most } => {
                    self.refuse_over_limit(draft, wanted, (what, count, most))
                }
                LoadBalancerViolation::InvalidPart { name, message } => {
                    let refusal = ServiceRefusal { field: "spec.ports".to_owned(), message: format!("{name}: {message}") };
                    let blamed: Vec<RequestIdx> = match self.owners.of_rule(&name) {
                        Some(request) => vec![request],
                        None => (0..self.placements.len()).map(RequestIdx).collect(),
                    };
                    self.refused.extend(blamed.into_iter().map(|request| (request, refusal.clone())));
                }
            }
        }
    }

    /// Returns the remedy that a refusal over a limit suggests.
    fn advice(&self) -> &'static str {
        match self.context.settings.has_entries() {
            true => {
                "name another entry in azure-load-balancer-configurations, or add one to multipleStandardLoadBalancerConfigurations"
            }
            false => {
                "take Services or ports away, or spread Services over several load balancers with multipleStandardLoadBalancerConfigurations"
            }
        }
    }

    /// Refuses the requests that add parts beyond the limit. The first requests, in order of precedence, get the room that is available.
    fn refuse_over_limit(
        &mut self,
        draft: &LoadBalancerDraft<'_>,
        wanted: &[(RequestIdx, RulesAndProbes)],
        (what, count, most): (&str, usize, usize),
    ) {
        let mut added: BTreeMap<RequestIdx, usize> = BTreeMap::new();
        if what == "rules" {
            added = interface_rules::added_rules(self.owners, wanted, draft.rules_before(), |_| true);
        } else {
            let new = self.assignment.added.iter().filter_map(|(_, part)| part.name.as_deref());
            for request in new.filter_map(|name| self.owners.of_frontend(name)) {
                *added.entry(request).or_default() += 1;
            }
        }
        for request in interface_rules::without_room(&added, count, most) {
            let name = draft.id.name();
            let message = format!(
                "load balancer {name} would have more than {most} {what}, which is all that Azure allows; {}",
                self.advice()
            );
            self.refused.push((request, ServiceRefusal { field: "spec.ports".to_owned(), message }));
        }
    }
}

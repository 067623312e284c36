//! Resolves a lookup from the snapshot, or returns the next reads. Pure; called again after each read.
//!
//! The possible locations of a node's machine follow upstream `pkg/provider/azure_vmss.go`
//! (`getVMManagementTypeByNodeName`), except that they are read in the order of their cost, each only if the previous one
//! lacks the machine.

use std::{sync::Arc, time::Duration};

use super::{
    InventorySettings,
    build::ScaleSetSummary,
    names,
    query::{PendingQuery, QueryEvaluation, RequiredRead},
    read::{ArmRead, ListScope, group_of, uniform_set_of},
    snapshot::{InventorySnapshot, MachineEntry},
};
use crate::providers::azure::model::{
    ArmError, ArmErrorClass, LookupError, Machine, MachineKind, ResourceId, api, spelling,
};

/// Upper limit of [`QueryView::list_absent_ttl`].
const LIST_ABSENCE_TTL: Duration = Duration::from_secs(15);

/// Time for which a list is trusted to lack a machine that one read could show: a new Node must not wait.
const SINGLE_READ_ABSENCE_TTL: Duration = Duration::from_secs(3);

/// View of the snapshot for one query.
pub(super) struct QueryView<'a> {
    pub(super) pending_query: &'a PendingQuery,
    pub(super) snapshot: &'a InventorySnapshot,
    pub(super) settings: &'a InventorySettings,
}

/// Machine, or the reason why there is none.
pub(super) type LookupResult = Result<Arc<Machine>, LookupError>;

/// State of an unknown machine in one location.
pub(super) enum CandidateState {
    /// The machine is not in this location.
    Absent,
    /// ARM did not respond.
    Failed(ArmError),
    /// Unknown until this read has succeeded.
    Unread(RequiredRead),
}

/// Returns the machine of the query, or the required reads.
pub(super) fn lookup(view: &QueryView<'_>) -> QueryEvaluation<LookupResult> {
    match (view.cached_entry(), &view.pending_query.query.id) {
        (Some(entry), _) => from_cache(view, entry),
        (None, Some(id)) => by_id(view, id),
        (None, None) => by_name(view),
    }
}

fn from_cache(view: &QueryView<'_>, entry: &MachineEntry) -> QueryEvaluation<LookupResult> {
    let id = &entry.machine.id;
    let ttl = view.ttl_of(entry);
    let need = if entry.missing_since.is_some() {
        RequiredRead::Machine(id.clone(), None)
    } else if !view.pending_query.is_fresh(entry.read_at, ttl) {
        RequiredRead::Machine(id.clone(), view.unread_list(Some(ListScope::of(&entry.machine)), ArmRead::Machines, ttl))
    } else if entry.interfaces_read_at.is_none_or(|read| !view.pending_query.is_fresh(read, ttl)) {
        RequiredRead::Interfaces(
            id.clone(),
            view.unread_list(Some(ListScope::of_interfaces(&entry.machine)), ArmRead::Interfaces, ttl),
        )
    } else {
        return QueryEvaluation::Done(require_address(&entry.machine));
    };
    match view.failure_of(&need) {
        // A stale cached machine is better than none, for callers without higher requirements.
        Some(_) if view.pending_query.freshness == super::Freshness::Cached && entry.interfaces_read_at.is_some() => {
            QueryEvaluation::Done(require_address(&entry.machine))
        }
        Some(error) => QueryEvaluation::Done(Err(error.clone().into())),
        None => QueryEvaluation::NeedsReads(vec![need]),
    }
}

/// Returns the machine, unless it is still being created: then it does not exist yet for lookups.
fn require_address(machine: &Arc<Machine>) -> LookupResult {
    match machine.has_address() {
        true => Ok(Arc::clone(machine)),
        false => Err(LookupError::NoAddress(machine.id.to_string())),
    }
}

fn by_id(view: &QueryView<'_>, id: &ResourceId) -> QueryEvaluation<LookupResult> {
    if let Some(need) = view.scale_sets_needed(id) {
        return view.read_or(need, |error| Err(error.clone().into()));
    }
    match view.candidate(id, view.list_scope(id)) {
        CandidateState::Absent => view.not_listed(&format!("{id} does not exist")),
        CandidateState::Failed(error) => QueryEvaluation::Done(Err(error.into())),
        CandidateState::Unread(need) => QueryEvaluation::NeedsReads(vec![need]),
    }
}

fn by_name(view: &QueryView<'_>) -> QueryEvaluation<LookupResult> {
    let name = &view.pending_query.query.node_name;
    let mut matching = Vec::new();
    if view.settings.uniform || view.settings.flex {
        matching = view.matching_sets(name);
        // An old list would lack a new scale set.
        let ttl = if matching.is_empty() { view.list_absent_ttl() } else { view.settings.scale_sets_ttl };
        if let Some(need) = view.unless_listed(ArmRead::ScaleSets(view.pending_query.group.clone()), ttl) {
            return view.read_or(need, |error| Err(error.clone().into()));
        }
    }
    let mut failure = None;
    let stages = [view.uniform_candidates(name), view.flex_candidates(&matching, true), view.standard_candidate(name)];
    for indices in stages.into_iter().chain(std::iter::once_with(|| view.flex_candidates(&matching, false))) {
        let mut needs = Vec::new();
        for index in indices {
            match index {
                CandidateState::Absent => {}
                CandidateState::Failed(error) => failure = failure.or(Some(error)),
                CandidateState::Unread(need) => needs.push(need),
            }
        }
        if !needs.is_empty() {
            return QueryEvaluation::NeedsReads(needs);
        }
    }
    match failure {
        Some(error) => QueryEvaluation::Done(Err(error.into())),
        None => view.not_listed(&format!("no machine of resource group {} has this name", view.pending_query.group.name())),
    }
}

impl<'a> QueryView<'a> {
    /// Returns the cached entry of the machine.
    pub(super) fn cached_entry(&self) -> Option<&'a MachineEntry> {
        match &self.pending_query.query.id {
            Some(id) => self.snapshot.entries.get(id),
            None => self.snapshot.by_name(&self.pending_query.group, &self.pending_query.query.node_name),
        }
    }

    fn ttl(&self, machine: &Machine) -> Duration {
        match machine.kind {
            MachineKind::ScaleSetInstance { .. } => self.settings.instances_ttl,
            MachineKind::FlexInstance { .. } => self.settings.flex_ttl,
            MachineKind::AvailabilitySet { .. } | MachineKind::Standalone => self.settings.standard_ttl,
        }
    }

    /// Returns the age limit of an entry, which is short for a machine that is still being created, without interface or
    /// address.
    fn ttl_of(&self, entry: &MachineEntry) -> Duration {
        let ttl = self.ttl(&entry.machine);
        let is_complete = entry.interfaces_read_at.is_none() || entry.machine.has_address();
        if is_complete { ttl } else { ttl.min(self.list_absent_ttl()) }
    }

    /// Returns how long a list proves that a machine is missing: briefly, because a machine created since must not wait long
    /// for its Node.
    fn list_absent_ttl(&self) -> Duration {
        self.settings.absent_ttl.min(LIST_ABSENCE_TTL)
    }

    /// Returns how long a list proves that a machine is missing if a single read of the machine is possible.
    fn one_absent_ttl(&self) -> Duration {
        self.settings.absent_ttl.min(SINGLE_READ_ABSENCE_TTL)
    }

    /// Returns the list, unless it has been read already or there is none; then only a single read is more informative.
    pub(super) fn unread_list(
        &self,
        scope: Option<ListScope>,
        list: fn(ListScope) -> ArmRead,
        ttl: Duration,
    ) -> Option<ListScope> {
        scope.filter(|scope| {
            let list = list(scope.clone());
            !self.is_listed(&list, ttl) && !self.has_no_list(&list)
        })
    }

    /// Returns `true` if the scale set of a list is gone: it has no list, but its machines must be read to be confirmed as
    /// gone.
    fn has_no_list(&self, list: &ArmRead) -> bool {
        let missing = |class| matches!(class, ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound);
        let failure = self.snapshot.failures.get(list).filter(|(at, _)| self.pending_query.is_resolved_by_failure(*at));
        failure.is_some_and(|(_, error)| missing(error.class))
    }

    /// Returns `true` if a list has been read recently enough.
    pub(super) fn is_listed(&self, list: &ArmRead, ttl: Duration) -> bool {
        self.snapshot.last_read(list).is_some_and(|stamp| self.pending_query.is_fresh(stamp.read_at, ttl))
    }

    /// Returns the read as a need, unless it was read recently enough.
    pub(super) fn unless_listed(&self, list: ArmRead, ttl: Duration) -> Option<RequiredRead> {
        (!self.is_listed(&list, ttl)).then_some(RequiredRead::Read(list))
    }

    /// Returns the failure that already resolves the need.
    pub(super) fn failure_of(&self, need: &RequiredRead) -> Option<&'a ArmError> {
        let (single, list) = need.alternatives();
        let failures = [Some(single), list].into_iter().flatten().filter_map(|read| self.snapshot.failures.get(&read));
        failures.filter(|(at, _)| self.pending_query.is_resolved_by_failure(*at)).map(|(_, error)| error).next()
    }

    /// Returns the read, or the result of the failure that already resolves it.
    pub(super) fn read_or<T>(&self, need: RequiredRead, failed: impl FnOnce(&ArmError) -> T) -> QueryEvaluation<T> {
        match self.failure_of(&need) {
            Some(error) => QueryEvaluation::Done(failed(error)),
            None => QueryEvaluation::NeedsReads(vec![need]),
        }
    }

    fn not_listed(&self, reason: &str) -> QueryEvaluation<LookupResult> {
        QueryEvaluation::Done(Err(LookupError::NotListed(format!("node {}: {reason}", self.pending_query.query.node_name))))
    }

    /// Returns the state of a machine that is not in the snapshot. `list`: the list that might have it.
    pub(super) fn candidate(&self, id: &ResourceId, list: Option<ListScope>) -> CandidateState {
        let absent_ttl = self.settings.absent_ttl;
        if self.snapshot.absences.get(id).is_some_and(|absence| self.pending_query.is_fresh(absence.at, absent_ttl)) {
            return CandidateState::Absent;
        }
        let listed = uniform_set_of(id)
            .is_some_and(|set| self.is_listed(&ArmRead::Machines(ListScope::Uniform(set)), self.one_absent_ttl()));
        if listed && !self.pending_query.is_existence_check {
            return CandidateState::Absent;
        }
        let list = self.unread_list(list, ArmRead::Machines, self.list_absent_ttl());
        self.unread_or_failed(RequiredRead::Machine(id.clone(), list))
    }

    /// Returns the need, or the failure that already resolves it.
    pub(super) fn unread_or_failed(&self, need: RequiredRead) -> CandidateState {
        self.failure_of(&need).cloned().map_or(CandidateState::Unread(need), CandidateState::Failed)
    }

    /// Returns the scale sets that may have given this name.
    pub(super) fn matching_sets(&self, name: &str) -> Vec<&'a ScaleSetSummary> {
        let sets = self.snapshot.scale_sets(&self.pending_query.group).iter();
        let is_covered = |set: &&ScaleSetSummary| if set.flexible { self.settings.flex } else { self.settings.uniform };
        let matches = |set: &&ScaleSetSummary| match set.flexible {
            true => names::has_prefix(name, &set.prefix),
            false => names::instance_number(name, &set.prefix).is_some(),
        };
        sets.filter(is_covered).filter(matches).collect()
    }

    /// Returns the instances of uniform sets that the name's number leads to, with their sets.
    pub(super) fn instance_ids(&self, name: &str) -> Vec<(&'a ResourceId, ResourceId)> {
        let sets = self.matching_sets(name).into_iter().filter(|set| !set.flexible);
        let instance = |set: &'a ScaleSetSummary| {
            let number = names::instance_number(name, &set.prefix)?;
            Some((&set.id, set.id.child("virtualMachines", &number.to_string())))
        };
        sets.filter_map(instance).collect()
    }

    fn uniform_candidates(&self, name: &str) -> Vec<CandidateState> {
        self.instance_ids(name).into_iter().map(|(set, id)| self.instance_candidate(set, &id)).collect()
    }

    fn instance_candidate(&self, set: &ResourceId, id: &ResourceId) -> CandidateState {
        let scope = ListScope::Uniform(set.clone());
        // The number belongs to a machine of another name: this set counts differently, and only its list is conclusive.
        match self.snapshot.entries.get(id).is_some_and(|entry| !entry.machine.node_name().is_empty()) {
            true => self.list_candidate(scope, self.settings.absent_ttl),
            false => self.candidate(id, Some(scope)),
        }
    }

    /// Returns the state of a location that only a list can show.
    fn list_candidate(&self, scope: ListScope, ttl: Duration) -> CandidateState {
        let need = self.unless_listed(ArmRead::Machines(scope), ttl);
        need.map_or(CandidateState::Absent, |need| self.unread_or_failed(need))
    }

    /// Returns the flexible sets whose prefix fits, or the others: a host name there may not begin with the prefix.
    fn flex_candidates(&self, matching: &[&ScaleSetSummary], fitting: bool) -> Vec<CandidateState> {
        let sets =
            self.snapshot.scale_sets(&self.pending_query.group).iter().filter(|set| set.flexible && self.settings.flex);
        let ttl = if fitting { self.list_absent_ttl() } else { self.settings.absent_ttl };
        let query = sets.filter(|set| matching.iter().any(|it| it.id == set.id) == fitting);
        query.map(|set| self.list_candidate(ListScope::Flex(set.id.clone()), ttl)).collect()
    }

    /// Returns the machine outside scale sets that has the node's name.
    pub(super) fn standard_candidate(&self, name: &str) -> Vec<CandidateState> {
        if !self.settings.standard {
            return Vec::new();
        }
        let id = self.standard_id(name);
        let list = ListScope::Group(self.pending_query.group.clone());
        let listed = self.is_listed(&ArmRead::Machines(list.clone()), self.one_absent_ttl());
        // Cached under this ID but not by this name: a machine of a flexible set.
        if self.snapshot.entries.contains_key(&id) || (listed && !self.pending_query.is_existence_check) {
            return vec![CandidateState::Absent];
        }
        vec![self.candidate(&id, Some(list))]
    }

    /// Returns the ID of the machine outside scale sets that has the node's name.
    pub(super) fn standard_id(&self, name: &str) -> ResourceId {
        self.pending_query.group.resource(api::VIRTUAL_MACHINES.resource_type, &[name])
    }

    /// Returns the list that would show a machine of this ID.
    pub(super) fn list_scope(&self, id: &ResourceId) -> Option<ListScope> {
        if let Some(set) = uniform_set_of(id) {
            return Some(ListScope::Uniform(set));
        }
        let group = group_of(id);
        // Azure calls a machine of a flexible set `<set>_<digits>`.
        let stem = id.name().rsplit_once('_').map_or("", |(stem, _)| stem);
        let name = &self.pending_query.query.node_name;
        let fits = |set: &&ScaleSetSummary| spelling::same_name(set.id.name(), stem) || names::has_prefix(name, &set.prefix);
        let mut sets = self.snapshot.scale_sets(&group).iter().filter(|set| set.flexible && self.settings.flex);
        match sets.find(fits) {
            Some(set) => Some(ListScope::Flex(set.id.clone())),
            None => self.settings.standard.then_some(ListScope::Group(group)),
        }
    }

    /// Returns the read of the scale sets: flexible sets must be known to select the list of a machine.
    pub(super) fn scale_sets_needed(&self, id: &ResourceId) -> Option<RequiredRead> {
        let matters = self.settings.flex && uniform_set_of(id).is_none();
        let list = ArmRead::ScaleSets(group_of(id));
        if matters && self.snapshot.last_read(&list).is_none() { Some(RequiredRead::Read(list)) } else { None }
    }
}

#[cfg(test)]
mod tests;

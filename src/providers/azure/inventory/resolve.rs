//! Answers a look-up from the snapshot, or says what has to be read next. Pure; asked again after each read.
//!
//! Where a node's machine can be follows upstream `pkg/provider/azure_vmss.go` (`getVMManagementTypeByNodeName`), except that the
//! places are tried from the cheapest to the dearest and each only when the one before does not have it.

use std::{sync::Arc, time::Duration};

use super::{
    InventorySettings, LookupError, Machine, MachineKind,
    build::ScaleSet,
    names,
    question::{Need, Question, Step},
    read::{Read, Scope, group_of, uniform_set_of},
    snapshot::{Entry, Snapshot},
};
use crate::providers::azure::arm::{ArmError, ErrorClass, ResourceId, api};

/// See [`View::list_absent_ttl`].
const LIST_STANDS: Duration = Duration::from_secs(15);

/// How long a list is believed to lack a machine that one read could show: a Node that has just come must not wait.
const LIST_STANDS_AGAINST_ONE: Duration = Duration::from_secs(3);

/// The snapshot as one question sees it.
pub(super) struct View<'a> {
    pub(super) question: &'a Question,
    pub(super) snapshot: &'a Snapshot,
    pub(super) settings: &'a InventorySettings,
}

/// A machine, or why there is none.
pub(super) type Found = Result<Arc<Machine>, LookupError>;

/// What one place says of a machine that is not known yet.
pub(super) enum Place {
    /// It is not there.
    Empty,
    /// ARM did not answer.
    Failed(ArmError),
    /// This has to be read.
    Unread(Need),
}

/// The machine of the question, or what to read.
pub(super) fn look_up(view: &View<'_>) -> Step<Found> {
    match (view.known(), &view.question.wanted.id) {
        (Some(entry), _) => of_known(view, entry),
        (None, Some(id)) => by_id(view, id),
        (None, None) => by_name(view),
    }
}

fn of_known(view: &View<'_>, entry: &Entry) -> Step<Found> {
    let id = &entry.machine.id;
    let ttl = view.ttl_of(entry);
    let need = if entry.missing.is_some() {
        Need::Machine(id.clone(), None)
    } else if !view.question.fresh(entry.read, ttl) {
        Need::Machine(id.clone(), view.unread_list(Some(Scope::of(&entry.machine)), Read::Machines, ttl))
    } else if entry.interfaces.is_none_or(|read| !view.question.fresh(read, ttl)) {
        Need::Interfaces(id.clone(), view.unread_list(Some(Scope::of_interfaces(&entry.machine)), Read::Interfaces, ttl))
    } else {
        return Step::Done(addressed(&entry.machine));
    };
    match view.failure_of(&need) {
        // Old but known beats nothing, for those who do not ask for better.
        Some(_) if view.question.freshness == super::Freshness::Cached && entry.interfaces.is_some() => {
            Step::Done(addressed(&entry.machine))
        }
        Some(error) => Step::Done(Err(error.clone().into())),
        None => Step::Need(vec![need]),
    }
}

/// A machine that is still being made is not there yet, for those who look it up.
fn addressed(machine: &Arc<Machine>) -> Found {
    match machine.has_address() {
        true => Ok(Arc::clone(machine)),
        false => Err(LookupError::NoAddress(machine.id.to_string())),
    }
}

fn by_id(view: &View<'_>, id: &ResourceId) -> Step<Found> {
    if let Some(need) = view.scale_sets_needed(id) {
        return view.step(need);
    }
    match view.machine_at(id, view.hint(id)) {
        Place::Empty => view.not_listed(&format!("{id} does not exist")),
        Place::Failed(error) => Step::Done(Err(error.into())),
        Place::Unread(need) => Step::Need(vec![need]),
    }
}

fn by_name(view: &View<'_>) -> Step<Found> {
    let name = &view.question.wanted.node_name;
    let mut matching = Vec::new();
    if view.settings.uniform || view.settings.flex {
        matching = view.matching_sets(name);
        // A set that is new would not be in an old list.
        let ttl = if matching.is_empty() { view.list_absent_ttl() } else { view.settings.scale_sets_ttl };
        if let Some(need) = view.unless_listed(Read::ScaleSets(view.question.group.clone()), ttl) {
            return view.step(need);
        }
    }
    let mut failure = None;
    let stages = [view.uniform_places(name), view.flex_places(&matching, true), view.standard_place(name)];
    for places in stages.into_iter().chain(std::iter::once_with(|| view.flex_places(&matching, false))) {
        let mut needs = Vec::new();
        for place in places {
            match place {
                Place::Empty => {}
                Place::Failed(error) => failure = failure.or(Some(error)),
                Place::Unread(need) => needs.push(need),
            }
        }
        if !needs.is_empty() {
            return Step::Need(needs);
        }
    }
    match failure {
        Some(error) => Step::Done(Err(error.into())),
        None => view.not_listed(&format!("no machine of resource group {} has this name", view.question.group.name())),
    }
}

impl<'a> View<'a> {
    /// What is known of the machine.
    pub(super) fn known(&self) -> Option<&'a Entry> {
        match &self.question.wanted.id {
            Some(id) => self.snapshot.entry(id),
            None => self.snapshot.by_name(&self.question.group, &self.question.wanted.node_name),
        }
    }

    fn ttl(&self, machine: &Machine) -> Duration {
        match machine.kind {
            MachineKind::ScaleSetInstance { .. } => self.settings.instances_ttl,
            MachineKind::FlexInstance { .. } => self.settings.flex_ttl,
            MachineKind::AvailabilitySet { .. } | MachineKind::Standalone => self.settings.standard_ttl,
        }
    }

    /// A machine that is still being made, with no interface or no address yet, is looked at again soon, document and all.
    fn ttl_of(&self, entry: &Entry) -> Duration {
        let ttl = self.ttl(&entry.machine);
        let is_complete = entry.interfaces.is_none() || entry.machine.has_address();
        if is_complete { ttl } else { ttl.min(self.list_absent_ttl()) }
    }

    /// How long a list tells that a machine is not there. Short, for a machine made since must not wait long for its Node.
    fn list_absent_ttl(&self) -> Duration {
        self.settings.absent_ttl.min(LIST_STANDS)
    }

    /// The same where one read of the machine by itself can tell.
    fn one_absent_ttl(&self) -> Duration {
        self.settings.absent_ttl.min(LIST_STANDS_AGAINST_ONE)
    }

    /// The list, unless it has been read already or there is none; then only a single read can tell more.
    pub(super) fn unread_list(&self, scope: Option<Scope>, list: fn(Scope) -> Read, ttl: Duration) -> Option<Scope> {
        scope.filter(|scope| {
            let list = list(scope.clone());
            !self.is_listed(&list, ttl) && !self.has_no_list(&list)
        })
    }

    /// A scale set that is gone has no list, but its machines have to be asked for to be believed gone.
    fn has_no_list(&self, list: &Read) -> bool {
        let missing = |class| matches!(class, ErrorClass::NotFound | ErrorClass::ParentNotFound);
        let failure = self.snapshot.failure(list).filter(|(at, _)| self.question.answered_by_failure(*at));
        failure.is_some_and(|(_, error)| missing(error.class))
    }

    /// Whether a list has been read recently enough.
    pub(super) fn is_listed(&self, list: &Read, ttl: Duration) -> bool {
        self.snapshot.last_read(list).is_some_and(|stamp| self.question.fresh(stamp.at, ttl))
    }

    /// The read as a need, unless it was read recently enough.
    pub(super) fn unless_listed(&self, list: Read, ttl: Duration) -> Option<Need> {
        (!self.is_listed(&list, ttl)).then_some(Need::Read(list))
    }

    /// The failure that already answers the need.
    pub(super) fn failure_of(&self, need: &Need) -> Option<&'a ArmError> {
        let reads = match need {
            Need::Read(read) => [Some(read.clone()), None],
            Need::Machine(id, scope) => [Some(Read::Machine(id.clone())), scope.clone().map(Read::Machines)],
            Need::Interfaces(id, scope) => [Some(Read::InterfacesOf(id.clone())), scope.clone().map(Read::Interfaces)],
        };
        let failures = reads.into_iter().flatten().filter_map(|read| self.snapshot.failure(&read));
        failures.filter(|(at, _)| self.question.answered_by_failure(*at)).map(|(_, error)| error).next()
    }

    fn step(&self, need: Need) -> Step<Found> {
        match self.failure_of(&need) {
            Some(error) => Step::Done(Err(error.clone().into())),
            None => Step::Need(vec![need]),
        }
    }

    fn not_listed(&self, why: &str) -> Step<Found> {
        Step::Done(Err(LookupError::NotListed(format!("node {}: {why}", self.question.wanted.node_name))))
    }

    /// What is known of a machine that is not in the snapshot. `list`: the list that might have it.
    pub(super) fn machine_at(&self, id: &ResourceId, list: Option<Scope>) -> Place {
        let absent_ttl = self.settings.absent_ttl;
        if self.snapshot.absence(id).is_some_and(|absence| self.question.fresh(absence.at, absent_ttl)) {
            return Place::Empty;
        }
        let listed = uniform_set_of(id)
            .is_some_and(|set| self.is_listed(&Read::Machines(Scope::Uniform(set)), self.one_absent_ttl()));
        if listed && !self.question.confirm {
            return Place::Empty;
        }
        let list = self.unread_list(list, Read::Machines, self.list_absent_ttl());
        let need = Need::Machine(id.clone(), list);
        self.failure_of(&need).cloned().map_or(Place::Unread(need), Place::Failed)
    }

    /// Scale sets that may have given this name.
    pub(super) fn matching_sets(&self, name: &str) -> Vec<&'a ScaleSet> {
        let sets = self.snapshot.scale_sets(&self.question.group).iter();
        let looked_at = |set: &&ScaleSet| if set.flexible { self.settings.flex } else { self.settings.uniform };
        let matches = |set: &&ScaleSet| match set.flexible {
            true => names::has_prefix(name, &set.prefix),
            false => names::instance_number(name, &set.prefix).is_some(),
        };
        sets.filter(looked_at).filter(matches).collect()
    }

    /// The instances of uniform sets that the name's number leads to, with their sets.
    pub(super) fn instance_ids(&self, name: &str) -> Vec<(&'a ResourceId, ResourceId)> {
        let sets = self.matching_sets(name).into_iter().filter(|set| !set.flexible);
        let instance = |set: &'a ScaleSet| {
            let number = names::instance_number(name, &set.prefix)?;
            Some((&set.id, set.id.child("virtualMachines", &number.to_string())))
        };
        sets.filter_map(instance).collect()
    }

    fn uniform_places(&self, name: &str) -> Vec<Place> {
        self.instance_ids(name).into_iter().map(|(set, id)| self.instance_place(set, &id)).collect()
    }

    fn instance_place(&self, set: &ResourceId, id: &ResourceId) -> Place {
        let scope = Scope::Uniform(set.clone());
        // The number leads to a machine of another name: this set counts differently, only its list can tell.
        match self.snapshot.entry(id).is_some_and(|entry| !entry.machine.node_name().is_empty()) {
            true => self.list_place(scope, self.settings.absent_ttl),
            false => self.machine_at(id, Some(scope)),
        }
    }

    /// A place that only a list can show.
    fn list_place(&self, scope: Scope, ttl: Duration) -> Place {
        match self.unless_listed(Read::Machines(scope), ttl) {
            Some(need) => self.failure_of(&need).cloned().map_or(Place::Unread(need), Place::Failed),
            None => Place::Empty,
        }
    }

    /// Flexible sets whose prefix fits, or the others: a host name there need not begin with the prefix.
    fn flex_places(&self, matching: &[&ScaleSet], fitting: bool) -> Vec<Place> {
        let sets = self.snapshot.scale_sets(&self.question.group).iter().filter(|set| set.flexible && self.settings.flex);
        let ttl = if fitting { self.list_absent_ttl() } else { self.settings.absent_ttl };
        let wanted = sets.filter(|set| matching.iter().any(|it| it.id == set.id) == fitting);
        wanted.map(|set| self.list_place(Scope::Flex(set.id.clone()), ttl)).collect()
    }

    /// The machine outside scale sets that has the node's name.
    pub(super) fn standard_place(&self, name: &str) -> Vec<Place> {
        if !self.settings.standard {
            return Vec::new();
        }
        let id = self.standard_id(name);
        let list = Scope::Group(self.question.group.clone());
        let listed = self.is_listed(&Read::Machines(list.clone()), self.one_absent_ttl());
        // Known under this id but not by this name: a machine of a flexible set.
        if self.snapshot.entry(&id).is_some() || (listed && !self.question.confirm) {
            return vec![Place::Empty];
        }
        vec![self.machine_at(&id, Some(list))]
    }

    /// Id of the machine outside scale sets that has the node's name.
    pub(super) fn standard_id(&self, name: &str) -> ResourceId {
        self.question.group.resource(api::VIRTUAL_MACHINES.resource_type, &[name])
    }

    /// Which list would show a machine of this id.
    pub(super) fn hint(&self, id: &ResourceId) -> Option<Scope> {
        if let Some(set) = uniform_set_of(id) {
            return Some(Scope::Uniform(set));
        }
        let group = group_of(id);
        // Azure calls a machine of a flexible set `<set>_<digits>`.
        let stem = id.name().rsplit_once('_').map_or("", |(stem, _)| stem);
        let name = &self.question.wanted.node_name;
        let fits = |set: &&ScaleSet| set.id.name().eq_ignore_ascii_case(stem) || names::has_prefix(name, &set.prefix);
        let mut sets = self.snapshot.scale_sets(&group).iter().filter(|set| set.flexible && self.settings.flex);
        match sets.find(fits) {
            Some(set) => Some(Scope::Flex(set.id.clone())),
            None => self.settings.standard.then_some(Scope::Group(group)),
        }
    }

    /// To know which list would show a machine, flexible sets must be known.
    pub(super) fn scale_sets_needed(&self, id: &ResourceId) -> Option<Need> {
        let matters = self.settings.flex && uniform_set_of(id).is_none();
        let list = Read::ScaleSets(group_of(id));
        if matters && self.snapshot.last_read(&list).is_none() { Some(Need::Read(list)) } else { None }
    }
}

#[cfg(test)]
mod tests;

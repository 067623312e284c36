//! Last state of ARM: machines by ID and by node name, and the last success or failure of each read.
//!
//! In: results of reads with the moment they were sent. Out: lookups, no decision. A list never removes a machine; one that
//! a newer list lacks is marked, and removed when ARM reports directly that it does not exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    build::{self, ScaleSetSummary},
    denial::denies_instance,
    names,
    read::{ArmRead, ArmReadPayload, ListScope, group_of, is_in},
};
use crate::providers::azure::model::{
    ArmError, ArmErrorClass, Machine, MachineInterface, MachineKind, ResourceId, spelling,
};

/// Longest time for which the absence of a machine is remembered.
const ABSENCE_RETENTION: Duration = Duration::from_secs(3600);
/// Time for which single reads of one list's machines are counted together; failures are kept at least as long.
const RECENT_WINDOW: Duration = Duration::from_secs(60);

/// A machine, and when its parts were read.
#[derive(Debug)]
pub(super) struct MachineEntry {
    pub(super) machine: Arc<Machine>,
    /// Time at which its own document was read.
    pub(super) read_at: Instant,
    /// Time at which its instance view was read.
    pub(super) instance_view_at: Option<Instant>,
    /// Time at which its own document was read alone, not in a list.
    pub(super) single_read_at: Option<Instant>,
    /// Time at which all its interfaces were read.
    pub(super) interfaces_read_at: Option<Instant>,
    /// Time at which a list was read that should have contained it and did not.
    pub(super) missing_since: Option<Instant>,
}

/// Absence of a resource, as reported directly by ARM.
#[derive(Debug, Clone)]
pub(super) struct ResourceAbsence {
    pub(super) at: Instant,
    /// Time of ARM's first report, without contradiction since.
    pub(super) since: Instant,
    /// The scale set the machine belonged to, when it was known.
    pub(super) scale_set: Option<ResourceId>,
    /// Name of its node, if it was known (a key of names).
    pub(super) node_name: Option<Box<str>>,
}

/// The last success of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListReadStamp {
    pub(super) read_at: Instant,
    /// Number of its items.
    pub(super) items: usize,
}

#[derive(Debug, Default)]
pub(super) struct InventorySnapshot {
    /// Scale sets by the group in which they were listed.
    pub(super) scale_sets: BTreeMap<ResourceId, Vec<ScaleSetSummary>>,
    /// Cached states of machines.
    pub(super) entries: BTreeMap<ResourceId, MachineEntry>,
    names: BTreeMap<ResourceId, BTreeMap<Box<str>, ResourceId>>,
    list_reads: BTreeMap<ArmRead, ListReadStamp>,
    /// Failures of reads that have not succeeded since.
    pub(super) failures: BTreeMap<ArmRead, (Instant, ArmError)>,
    /// Resources that do not exist, as ARM reported directly; discarded when they have been seen since.
    pub(super) absences: BTreeMap<ResourceId, ResourceAbsence>,
    single_reads: BTreeMap<ArmRead, (Instant, usize)>,
}

impl InventorySnapshot {
    /// Returns the machine that a node of this name is, in this group.
    pub(super) fn by_name(&self, group: &ResourceId, node_name: &str) -> Option<&MachineEntry> {
        self.entries.get(self.names.get(group)?.get(&names::key(node_name))?)
    }

    /// Returns the scale sets of a group, once listed.
    pub(super) fn scale_sets(&self, group: &ResourceId) -> &[ScaleSetSummary] {
        self.scale_sets.get(group).map_or(&[], Vec::as_slice)
    }

    /// Returns the last success of a list (or of the read of one scale set).
    pub(super) fn last_read(&self, read: &ArmRead) -> Option<ListReadStamp> {
        self.list_reads.get(read).copied()
    }

    /// Returns all lists that have succeeded.
    pub(super) fn lists(&self) -> impl Iterator<Item = (&ArmRead, &ListReadStamp)> {
        self.list_reads.iter().filter(|(read, _)| read.is_list())
    }

    /// Returns the lists that were empty although machines that they should contain are known to exist.
    pub(super) fn contradicted_lists(&self) -> impl Iterator<Item = &ArmRead> {
        let empty = self.lists().filter(|(_, stamp)| stamp.items == 0).map(|(read, _)| read);
        empty.filter(|read| {
            let shown = |machine: &Machine| match read {
                ArmRead::ScaleSets(group) => {
                    !matches!(ListScope::of(machine), ListScope::Group(_)) && is_in(&machine.id, group)
                }
                ArmRead::Machines(scope) => scope.lists(machine),
                _ => false,
            };
            self.entries.values().any(|entry| entry.missing_since.is_none() && shown(&entry.machine))
        })
    }

    /// Returns `true` if the failure says that the scale set of a list is gone, which is no failure of ARM.
    pub(super) fn is_of_missing_set(read: &ArmRead, error: &ArmError) -> bool {
        let of_set = matches!(
            read,
            ArmRead::Machines(ListScope::Uniform(_) | ListScope::Flex(_)) | ArmRead::Interfaces(ListScope::Uniform(_))
        );
        of_set && matches!(error.class, ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound)
    }

    /// Returns how many machines a list would show, as far as is known. `None`: unknown.
    pub(super) fn size(&self, scope: &ListScope) -> Option<usize> {
        let existing = self.entries.values().filter(|entry| scope.lists(&entry.machine)).count();
        match scope {
            ListScope::Uniform(id) | ListScope::Flex(id) => {
                let mut sets = self.scale_sets.values().flatten();
                sets.find(|set| set.id == *id).map(|set| set.capacity.unwrap_or_default().max(existing))
            }
            ListScope::Group(_) => self.last_read(&ArmRead::Machines(scope.clone())).map(|_| existing),
        }
    }

    /// Returns how many single reads have been sent lately of what this list shows, since it was last read.
    pub(super) fn recent_single_reads(&self, list: &ArmRead, now: Instant) -> usize {
        let recent = |(since, _): &&(Instant, usize)| now.saturating_duration_since(*since) < RECENT_WINDOW;
        self.single_reads.get(list).filter(recent).map_or(0, |(_, count)| *count)
    }

    /// Counts one more single read.
    pub(super) fn count_single_read(&mut self, list: ArmRead, now: Instant) {
        let before = self.recent_single_reads(&list, now);
        let spent = self.single_reads.entry(list).or_insert((now, 0));
        *spent = if before == 0 { (now, 1) } else { (spent.0, before + 1) };
    }

    /// Applies the result of a read that was sent at `at`.
    pub(super) fn record(&mut self, read: ArmRead, at: Instant, outcome: Result<ArmReadPayload, ArmError>) {
        match outcome {
            Ok(result) => {
                self.failures.remove(&read);
                self.take(read, at, result);
            }
            Err(error) if (error.class == ArmErrorClass::NotFound && !read.is_list()) || denies_instance(&read, &error) => {
                self.failures.remove(&read);
                match read {
                    ArmRead::Machine(id) | ArmRead::ScaleSet(id) => self.note_absence(&id, at),
                    other => self.note_failure(other, at, error),
                }
            }
            Err(error) => self.note_failure(read, at, error),
        }
    }

    fn note_failure(&mut self, read: ArmRead, at: Instant, error: ArmError) {
        self.failures.retain(|read, (since, _)| read.is_list() || at.saturating_duration_since(*since) < ABSENCE_RETENTION);
        self.failures.insert(read, (at, error));
    }

    fn take(&mut self, read: ArmRead, at: Instant, result: ArmReadPayload) {
        let items = match (&read, result) {
            (ArmRead::ScaleSets(group), ArmReadPayload::ScaleSets(sets)) => self.take_scale_sets(group, at, sets),
            (ArmRead::Machines(scope), ArmReadPayload::Machines(machines)) => self.take_list(scope, at, machines),
            (ArmRead::Interfaces(scope), ArmReadPayload::Interfaces(interfaces)) => {
                self.take_interfaces(scope, at, &interfaces)
            }
            (ArmRead::InterfacesOf(id), ArmReadPayload::Interfaces(interfaces)) => {
                if let Some(entry) = self.entries.get_mut(id) {
                    fill(entry, at, &interfaces);
                }
                return;
            }
            (_, ArmReadPayload::Machines(machines)) => {
                return machines.into_iter().for_each(|(machine, view)| self.put_direct(machine, view, at));
            }
            (ArmRead::ScaleSet(id), ArmReadPayload::Exists) => {
                self.absences.remove(id);
                1
            }
            _ => return,
        };
        self.single_reads.remove(&read);
        self.list_reads.insert(read, ListReadStamp { read_at: at, items });
    }

    fn take_scale_sets(&mut self, group: &ResourceId, at: Instant, sets: Vec<ScaleSetSummary>) -> usize {
        let listed: BTreeSet<&ResourceId> = sets.iter().map(|set| &set.id).collect();
        // A failure about a deleted set does not have to succeed again. Recent failures still resolve queries.
        let is_relevant = |read: &ArmRead| match read {
            ArmRead::Machines(ListScope::Uniform(id) | ListScope::Flex(id))
            | ArmRead::Interfaces(ListScope::Uniform(id))
            | ArmRead::ScaleSet(id) => group_of(id) != *group || listed.contains(id),
            _ => true,
        };
        let recent = |since: &Instant| at.saturating_duration_since(*since) < RECENT_WINDOW;
        self.failures.retain(|read, (since, _)| recent(since) || is_relevant(read));
        self.list_reads.retain(|read, _| is_relevant(read));
        self.single_reads.retain(|read, _| is_relevant(read));
        let count = sets.len();
        self.scale_sets.insert(group.clone(), sets);
        count
    }

    fn take_list(&mut self, scope: &ListScope, at: Instant, machines: Vec<(Machine, bool)>) -> usize {
        let count = machines.len();
        for (mut machine, view) in machines {
            share_scale_set(&mut machine, scope);
            // A group's list has machines of flexible sets too, without the instance view that their own list gives.
            if scope.lists(&machine) {
                self.put(machine, view, at);
            }
        }
        for entry in self.entries.values_mut() {
            if entry.read_at < at && entry.missing_since.is_none() && scope.lists(&entry.machine) {
                entry.missing_since = Some(at);
            }
        }
        self.forget_unasked(at);
        self.absences.retain(|_, absence| at.saturating_duration_since(absence.at) < ABSENCE_RETENTION);
        count
    }

    /// Evicts machines that lists have lacked for [`ABSENCE_RETENTION`]; a queried machine would have been read directly.
    fn forget_unasked(&mut self, at: Instant) {
        let long = |since: Instant| at.saturating_duration_since(since) >= ABSENCE_RETENTION;
        let lost = self.entries.values().filter(|entry| entry.missing_since.is_some_and(long));
        for machine in lost.map(|entry| Arc::clone(&entry.machine)).collect::<Vec<_>>() {
            self.remove_name(&machine.id, &machine);
            self.entries.remove(&machine.id);
        }
    }

    fn take_interfaces(
        &mut self,
        scope: &ListScope,
        at: Instant,
        interfaces: &BTreeMap<ResourceId, MachineInterface>,
    ) -> usize {
        for entry in self.entries.values_mut().filter(|entry| scope.lists_interfaces(&entry.machine)) {
            fill(entry, at, interfaces);
        }
        interfaces.len()
    }

    /// Records a machine whose document was read alone.
    fn put_direct(&mut self, machine: Machine, view: bool, at: Instant) {
        let id = machine.id.clone();
        self.put(machine, view, at);
        if let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.read_at == at) {
            entry.single_read_at = Some(at);
        }
    }

    /// Records a machine whose document was read at `at`.
    pub(super) fn put(&mut self, mut machine: Machine, view: bool, at: Instant) {
        let id = machine.id.clone();
        if self.entries.get(&id).is_some_and(|existing| existing.read_at > at) {
            return;
        }
        let older = self.entries.remove(&id);
        self.absences.remove(&id);
        self.failures.remove(&ArmRead::Machine(id.clone()));
        let same = older.as_ref().filter(|older| older.machine.vm_id == machine.vm_id);
        let direct = same.and_then(|older| older.single_read_at);
        let mut entry_view = view.then_some(at);
        let mut interfaces = machine.interfaces.is_empty().then_some(at);
        if let Some(older) = same {
            if !view {
                machine.fault_domain = older.machine.fault_domain;
                machine.power_state.clone_from(&older.machine.power_state);
                entry_view = older.instance_view_at;
            }
            let complete = build::carry_over(&mut machine, &older.machine);
            interfaces = interfaces.or(older.interfaces_read_at.filter(|_| complete));
        }
        self.rename(&id, older.as_ref().map(|older| &*older.machine), &machine);
        let machine = match older {
            Some(older) if *older.machine == machine => older.machine,
            _ => Arc::new(machine),
        };
        self.entries.insert(
            id,
            MachineEntry {
                machine,
                read_at: at,
                instance_view_at: entry_view,
                single_read_at: direct,
                interfaces_read_at: interfaces,
                missing_since: None,
            },
        );
    }

    /// Records a machine with its addresses, from the response to a write or from another reader.
    pub(super) fn observe(&mut self, machine: Machine, at: Instant) {
        let (id, view) = (machine.id.clone(), machine.power_state.is_some());
        let addresses = machine.interfaces.clone();
        self.put(machine, view, at);
        let existing = addresses.into_iter().filter(|interface| !interface.ip_configurations.is_empty());
        let existing = existing.map(|interface| (interface.id.clone(), interface)).collect();
        if let Some(entry) = self.entries.get_mut(&id) {
            fill(entry, at, &existing);
        }
    }

    /// Records that ARM reported at `at` that this resource itself does not exist.
    pub(super) fn note_absence(&mut self, id: &ResourceId, at: Instant) {
        let before = self.absences.get(id);
        let since = before.map_or(at, |absence| absence.since);
        let mut scale_set = before.and_then(|absence| absence.scale_set.clone());
        let mut node_name = before.and_then(|absence| absence.node_name.clone());
        if let Some(entry) = self.entries.get(id) {
            if entry.read_at > at {
                return;
            }
            if let ListScope::Uniform(set) | ListScope::Flex(set) = ListScope::of(&entry.machine) {
                scale_set = Some(set);
            }
            node_name = Some(names::key(entry.machine.node_name()));
            self.remove_name(id, &Arc::clone(&entry.machine));
            self.entries.remove(id);
        }
        self.absences.insert(id.clone(), ResourceAbsence { at, since, scale_set, node_name });
    }

    fn rename(&mut self, id: &ResourceId, older: Option<&Machine>, machine: &Machine) {
        let name = machine.node_name();
        if let Some(older) = older.filter(|older| !spelling::same_name(older.node_name(), name)) {
            self.remove_name(id, older);
        }
        if !name.is_empty() {
            self.names.entry(group_of(id)).or_default().insert(names::key(name), id.clone());
        }
    }

    fn remove_name(&mut self, id: &ResourceId, machine: &Machine) {
        let Some(names) = self.names.get_mut(&group_of(id)) else { return };
        let key = names::key(machine.node_name());
        if names.get(&key).is_some_and(|named| named == id) {
            names.remove(&key);
        }
    }
}

/// Shares the text of the set's ID among all machines of a list.
fn share_scale_set(machine: &mut Machine, scope: &ListScope) {
    if let MachineKind::ScaleSetInstance { scale_set, .. } | MachineKind::FlexInstance { scale_set } = &mut machine.kind
        && scale_set == scope.id()
    {
        scale_set.clone_from(scope.id());
    }
}

fn fill(entry: &mut MachineEntry, at: Instant, interfaces: &BTreeMap<ResourceId, MachineInterface>) {
    let mut machine = Machine::clone(&entry.machine);
    if entry.interfaces_read_at.is_some_and(|read| read > at) || !build::fill(&mut machine, interfaces) {
        return;
    }
    entry.interfaces_read_at = Some(at);
    if machine != *entry.machine {
        entry.machine = Arc::new(machine);
    }
}

#[cfg(test)]
mod tests;

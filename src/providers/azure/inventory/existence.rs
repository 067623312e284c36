//! Decides whether a machine exists, or returns the reads that this requires. Pure; called again after each read.
//!
//! Deleting a Node cannot be undone. So a machine is gone only if ARM reports directly that it does not exist, and its
//! surroundings are intact: its resource group responds and is not empty, and its scale set exists or is itself directly
//! reported as missing. Everything else is unknown. A machine that is being deleted still exists.

use std::sync::Arc;

use super::{
    MachineExistence, names,
    query::{QueryEvaluation, RequiredRead},
    read::{ArmRead, ListScope, group_of, is_in, uniform_set_of},
    resolve::{CandidateState, QueryView},
    snapshot::{InventorySnapshot, MachineEntry},
};
use crate::providers::azure::model::{ArmError, ArmErrorClass, Machine, MachineKind, ResourceId, spelling};

/// Maximum number of missing siblings before the group is listed.
const MAX_ABSENT_SIBLINGS: usize = 3;

/// Checks whether the machine of the query exists.
pub(super) fn check_existence(view: &QueryView<'_>) -> QueryEvaluation<MachineExistence> {
    let ids = match candidate_ids(view) {
        Ok(ids) => ids,
        Err(step) => return step,
    };
    let mut needs = Vec::new();
    for id in &ids {
        match unless_absent(view, id) {
            Ok(need) => needs.extend(need),
            Err(verdict) => return QueryEvaluation::Done(verdict),
        }
    }
    if !needs.is_empty() {
        return QueryEvaluation::NeedsReads(needs);
    }
    match ids.iter().map(|id| check_surroundings(view, id)).find(|step| *step != QueryEvaluation::Done(Ok(()))) {
        None if was_known(view, &ids) => QueryEvaluation::Done(MachineExistence::Gone),
        None => unknown_existence(format!(
            "no machine called {} has been seen in resource group {}, and the Node has no provider id: it may be somewhere else",
            view.pending_query.query.node_name,
            view.pending_query.group.name()
        )),
        Some(QueryEvaluation::NeedsReads(needs)) => QueryEvaluation::NeedsReads(needs),
        Some(QueryEvaluation::Done(checked)) => unknown_existence(checked.err().unwrap_or_default()),
    }
}

/// Returns `true` if a machine has been seen under the name: only then it can be gone, because a name is a guess. A provider
/// ID needs no guess.
fn was_known(view: &QueryView<'_>, ids: &[ResourceId]) -> bool {
    let name = names::key(&view.pending_query.query.node_name);
    let seen =
        |id: &ResourceId| view.snapshot.absences.get(id).and_then(|absence| absence.node_name.as_ref()) == Some(&name);
    view.pending_query.query.id.is_some() || ids.iter().any(seen)
}

fn unknown_existence<T: Into<String>>(reason: T) -> QueryEvaluation<MachineExistence> {
    QueryEvaluation::Done(MachineExistence::Unknown(reason.into()))
}

/// Returns all machines that the Node may run on: by its ID, or else by its name.
fn candidate_ids(view: &QueryView<'_>) -> Result<Vec<ResourceId>, QueryEvaluation<MachineExistence>> {
    let (pending_query, settings) = (view.pending_query, view.settings);
    if let Some(id) = pending_query.query.id.clone().or_else(|| view.cached_entry().map(|entry| entry.machine.id.clone())) {
        return match view.scale_sets_needed(&id) {
            Some(need) => Err(view.read_or(need, |error| MachineExistence::Unknown(error.to_string()))),
            None => Ok(vec![id]),
        };
    }
    let (name, group) = (&pending_query.query.node_name, &pending_query.group);
    let mut ids = Vec::new();
    if settings.uniform || settings.flex {
        if let Some(need) = view.unless_listed(ArmRead::ScaleSets(group.clone()), settings.scale_sets_ttl) {
            return Err(view.read_or(need, |error| MachineExistence::Unknown(error.to_string())));
        }
        if view.snapshot.scale_sets(group).iter().any(|set| set.flexible) && settings.flex {
            return Err(unknown_existence(
                "a machine of a flexible scale set can be identified only by its id, and the Node has none",
            ));
        }
        ids.extend(view.instance_ids(name).into_iter().map(|(_, id)| id));
    }
    if settings.standard {
        ids.push(view.standard_id(name));
    }
    match ids.is_empty() {
        true => Err(unknown_existence(format!("no scale set of resource group {} has names like this", group.name()))),
        false => Ok(ids),
    }
}

/// Returns the read that one machine needs; `None` if ARM reports it as missing.
///
/// The error is the verdict if the machine exists, is not the Node's, or could not be read.
fn unless_absent(view: &QueryView<'_>, id: &ResourceId) -> Result<Option<RequiredRead>, MachineExistence> {
    let state = match view.snapshot.entries.get(id) {
        Some(entry) => unless_present(view, id, entry)?,
        None => view.candidate(id, view.list_scope(id).filter(shows_power_state)),
    };
    match state {
        CandidateState::Unread(need) => Ok(Some(need)),
        CandidateState::Failed(error) if !is_without_parent(id, &error) => Err(MachineExistence::Unknown(error.to_string())),
        CandidateState::Failed(_) | CandidateState::Absent => Ok(None),
    }
}

/// Returns the state of a cached machine. The error is the verdict if the machine exists or is not the Node's.
fn unless_present(view: &QueryView<'_>, id: &ResourceId, entry: &MachineEntry) -> Result<CandidateState, MachineExistence> {
    let by_name = view.pending_query.query.id.is_none();
    if by_name && !spelling::same_name(entry.machine.node_name(), &view.pending_query.query.node_name) {
        return Err(MachineExistence::Unknown(format!("{id} has another host name")));
    }
    if entry.missing_since.is_none() && is_entry_fresh(view, entry) {
        return Err(MachineExistence::Found(with_fresh_power(view, entry)));
    }
    let scope = ListScope::of(&entry.machine);
    let list = (entry.missing_since.is_none() && shows_power_state(&scope) && !view.pending_query.needs_single_read)
        .then_some(scope);
    let list = view.unread_list(list, ArmRead::Machines, view.settings.absent_ttl);
    Ok(view.unread_or_failed(RequiredRead::Machine(id.clone(), list)))
}

/// Returns `true` for ARM's response if the scale set is gone as well, which the surroundings show.
fn is_without_parent(id: &ResourceId, error: &ArmError) -> bool {
    error.class == ArmErrorClass::ParentNotFound && uniform_set_of(id).is_some()
}

/// Returns `true` if the list shows what a single read shows. Where the configuration keeps instance views out of lists,
/// they are not requested.
fn shows_power_state(scope: &ListScope) -> bool {
    !matches!(scope, ListScope::Group(_))
}

fn is_entry_fresh(view: &QueryView<'_>, entry: &MachineEntry) -> bool {
    let uniform = matches!(entry.machine.kind, MachineKind::ScaleSetInstance { .. });
    let state = if uniform && view.settings.without_instance_view { Some(entry.read_at) } else { entry.instance_view_at };
    let is_fresh = |at| is_fresh(view, at);
    let read = if view.pending_query.needs_single_read { entry.single_read_at } else { Some(entry.read_at) };
    read.is_some_and(is_fresh) && state.is_some_and(is_fresh)
}

/// Returns the machine without a power state that a list without instance view carried along: it is outdated, and would
/// put taints on running machines.
fn with_fresh_power(view: &QueryView<'_>, entry: &MachineEntry) -> Arc<Machine> {
    if entry.machine.power_state.is_none() || entry.instance_view_at.is_some_and(|at| is_fresh(view, at)) {
        return Arc::clone(&entry.machine);
    }
    Arc::new(Machine { power_state: None, ..Machine::clone(&entry.machine) })
}

/// Checks the surroundings of a machine that ARM reports as missing. The error describes the anomaly.
fn check_surroundings(view: &QueryView<'_>, id: &ResourceId) -> QueryEvaluation<Result<(), String>> {
    let group = group_of(id);
    let existing = view.snapshot.absences.get(id).and_then(|absence| absence.scale_set.clone());
    let Some(set) = uniform_set_of(id).or(existing) else { return check_group_not_empty(view, &group, id) };
    match read_if_stale(view, ArmRead::ScaleSets(group.clone())) {
        Some(step) => return step,
        None if view.snapshot.scale_sets(&group).iter().any(|it| it.id == set) => {
            return match view.snapshot.absences.get(id) {
                Some(_) => QueryEvaluation::Done(Ok(())),
                None => QueryEvaluation::Done(Err(format!("ARM does not find the parent of {id}, but lists it"))),
            };
        }
        None => {}
    }
    let missing = view.snapshot.absences.get(&set).is_some_and(|absence| is_fresh(view, absence.at));
    if !missing {
        let exists = QueryEvaluation::Done(Err(format!("scale set {} exists, but ARM does not list it", set.name())));
        return read_if_stale(view, ArmRead::ScaleSet(set)).unwrap_or(exists);
    }
    match view.snapshot.scale_sets(&group).is_empty() {
        true => check_group_not_empty(view, &group, id),
        false => QueryEvaluation::Done(Ok(())),
    }
}

/// Checks that the group has not turned empty, which says nothing about a machine: a role assignment or ARM itself may be
/// broken.
fn check_group_not_empty(
    view: &QueryView<'_>,
    group: &ResourceId,
    missing: &ResourceId,
) -> QueryEvaluation<Result<(), String>> {
    let lost = |entry: &&MachineEntry| match &entry.machine.kind {
        MachineKind::ScaleSetInstance { scale_set, .. } => view.snapshot.absences.contains_key(scale_set),
        _ => entry.machine.id == *missing,
    };
    let siblings = || siblings(view.snapshot, group).filter(|entry| !lost(entry));
    if siblings().any(|entry| is_fresh(view, entry.read_at)) {
        return QueryEvaluation::Done(Ok(()));
    }
    let absences = view.snapshot.absences.iter().filter(|(id, absence)| is_fresh(view, absence.at) && is_in(id, group));
    // A sibling whose scale set is gone as well proves nothing.
    let orphaned =
        |read: &RequiredRead| view.failure_of(read).is_some_and(|error| error.class == ArmErrorClass::ParentNotFound);
    if absences.count() <= MAX_ABSENT_SIBLINGS
        && let Some(sibling) = siblings().max_by_key(|entry| entry.read_at)
        && let single = ArmRead::Machine(sibling.machine.id.clone())
        && !orphaned(&RequiredRead::Read(single.clone()))
    {
        return read_if_stale(view, single).unwrap_or(QueryEvaluation::Done(Ok(())));
    }
    let list = ArmRead::Machines(ListScope::Group(group.clone()));
    match read_if_stale(view, list.clone()) {
        Some(step) => step,
        None if view.snapshot.last_read(&list).is_some_and(|stamp| stamp.items > 0) => QueryEvaluation::Done(Ok(())),
        None => {
            QueryEvaluation::Done(Err(format!("resource group {} has no machines and no scale sets any more", group.name())))
        }
    }
}

fn siblings<'a>(snapshot: &'a InventorySnapshot, group: &'a ResourceId) -> impl Iterator<Item = &'a MachineEntry> {
    snapshot.entries.values().filter(move |entry| entry.missing_since.is_none() && is_in(&entry.machine.id, group))
}

fn is_fresh(view: &QueryView<'_>, at: tokio::time::Instant) -> bool {
    view.pending_query.is_fresh(at, view.settings.absent_ttl)
}

/// Returns the read, unless its result is recent; a recent failure is the result.
fn read_if_stale(view: &QueryView<'_>, read: ArmRead) -> Option<QueryEvaluation<Result<(), String>>> {
    let need = view.unless_listed(read, view.settings.absent_ttl)?;
    Some(view.read_or(need, |error| Err(error.to_string())))
}

#[cfg(test)]
mod tests;

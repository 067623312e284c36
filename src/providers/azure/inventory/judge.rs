//! Judges whether a machine exists, or says what has to be read first. Pure; asked again after each read.
//!
//! Deleting a Node cannot be undone, so that a machine is gone only when ARM says of it directly that it does not exist, and when
//! what surrounds it looks as it should: its resource group answers and is not empty, and its scale set exists or is itself
//! directly gone. Everything else is unknown. A machine that is being deleted still exists.

use std::sync::Arc;

use super::{
    Machine, MachineKind, Sighting, names,
    question::{Need, Step},
    read::{Read, Scope, group_of, is_in, uniform_set_of},
    resolve::{Place, View},
    snapshot::{Entry, Snapshot},
};
use crate::providers::azure::arm::{ArmError, ErrorClass, ResourceId};

/// Siblings that may turn out to be gone before the group is listed.
const SIBLINGS: usize = 3;

/// Whether the question's machine exists.
pub(super) fn confirm(view: &View<'_>) -> Step<Sighting> {
    let ids = match targets(view) {
        Ok(ids) => ids,
        Err(step) => return step,
    };
    let mut needs = Vec::new();
    for id in &ids {
        match sight(view, id) {
            Seen::Here(machine) => return Step::Done(Sighting::Found(machine)),
            Seen::Other => return unknown(format!("{id} has another host name")),
            Seen::Failed(error) => return unknown(error.to_string()),
            Seen::Unread(need) => needs.push(need),
            Seen::Absent => {}
        }
    }
    if !needs.is_empty() {
        return Step::Need(needs);
    }
    match ids.iter().map(|id| surroundings(view, id)).find(|step| *step != Step::Done(Ok(()))) {
        None if was_known(view, &ids) => Step::Done(Sighting::Gone),
        None => unknown(format!(
            "no machine called {} has been seen in resource group {}, and the Node has no provider id: it may be somewhere else",
            view.question.wanted.node_name,
            view.question.group.name()
        )),
        Some(Step::Need(needs)) => Step::Need(needs),
        Some(Step::Done(sane)) => unknown(sane.err().unwrap_or_default()),
    }
}

/// Where a name leads is a guess: only a machine that has been seen under it can be gone. What a provider id names needs no guess.
fn was_known(view: &View<'_>, ids: &[ResourceId]) -> bool {
    let name = names::key(&view.question.wanted.node_name);
    let seen = |id| view.snapshot.absence(id).and_then(|absence| absence.node_name.as_ref()) == Some(&name);
    view.question.wanted.id.is_some() || ids.iter().any(seen)
}

fn unknown<T: Into<String>>(why: T) -> Step<Sighting> {
    Step::Done(Sighting::Unknown(why.into()))
}

/// The machines that the node can be, all of them: by its id, or else by its name.
fn targets(view: &View<'_>) -> Result<Vec<ResourceId>, Step<Sighting>> {
    let (question, settings) = (view.question, view.settings);
    if let Some(id) = question.wanted.id.clone().or_else(|| view.known().map(|entry| entry.machine.id.clone())) {
        return match view.scale_sets_needed(&id) {
            Some(need) => Err(failed_or(view, need)),
            None => Ok(vec![id]),
        };
    }
    let (name, group) = (&question.wanted.node_name, &question.group);
    let mut ids = Vec::new();
    if settings.uniform || settings.flex {
        if let Some(need) = view.unless_listed(Read::ScaleSets(group.clone()), settings.scale_sets_ttl) {
            return Err(failed_or(view, need));
        }
        if view.snapshot.scale_sets(group).iter().any(|set| set.flexible) && settings.flex {
            return Err(unknown("a machine of a flexible scale set can be told only by its id, and the Node has none"));
        }
        ids.extend(view.instance_ids(name).into_iter().map(|(_, id)| id));
    }
    if settings.standard {
        ids.push(view.standard_id(name));
    }
    match ids.is_empty() {
        true => Err(unknown(format!("no scale set of resource group {} has names like this", group.name()))),
        false => Ok(ids),
    }
}

fn failed_or(view: &View<'_>, need: Need) -> Step<Sighting> {
    match view.failure_of(&need) {
        Some(error) => unknown(error.to_string()),
        None => Step::Need(vec![need]),
    }
}

enum Seen {
    Here(Arc<Machine>),
    /// A machine, but not the node's.
    Other,
    Absent,
    Failed(ArmError),
    Unread(Need),
}

/// What is known of one machine, freshly enough.
fn sight(view: &View<'_>, id: &ResourceId) -> Seen {
    let Some(entry) = view.snapshot.entry(id) else {
        return match view.machine_at(id, view.hint(id).filter(tells_state)) {
            Place::Empty => Seen::Absent,
            Place::Failed(error) if is_without_parent(id, &error) => Seen::Absent,
            Place::Failed(error) => Seen::Failed(error),
            Place::Unread(need) => Seen::Unread(need),
        };
    };
    let by_name = view.question.wanted.id.is_none();
    if by_name && !entry.machine.node_name().eq_ignore_ascii_case(&view.question.wanted.node_name) {
        return Seen::Other;
    }
    if entry.missing.is_none() && is_fresh(view, entry) {
        return Seen::Here(with_fresh_power(view, entry));
    }
    let scope = Scope::of(&entry.machine);
    let list = (entry.missing.is_none() && tells_state(&scope) && !view.question.direct).then_some(scope);
    let need = Need::Machine(id.clone(), view.unread_list(list, Read::Machines, view.settings.absent_ttl));
    match view.failure_of(&need) {
        Some(error) if is_without_parent(id, error) => Seen::Absent,
        Some(error) => Seen::Failed(error.clone()),
        None => Seen::Unread(need),
    }
}

/// ARM answers so when the scale set is gone as well; whether that is so is looked at with the surroundings.
fn is_without_parent(id: &ResourceId, error: &ArmError) -> bool {
    error.class == ErrorClass::ParentNotFound && uniform_set_of(id).is_some()
}

/// Whether the list shows what a single read shows. Where configuration keeps instance views out of lists, nobody asks for them.
fn tells_state(scope: &Scope) -> bool {
    !matches!(scope, Scope::Group(_))
}

fn is_fresh(view: &View<'_>, entry: &Entry) -> bool {
    let uniform = matches!(entry.machine.kind, MachineKind::ScaleSetInstance { .. });
    let state = if uniform && view.settings.without_instance_view { Some(entry.read) } else { entry.view };
    let fresh = |at| view.question.fresh(at, view.settings.absent_ttl);
    let read = if view.question.direct { entry.direct } else { Some(entry.read) };
    read.is_some_and(fresh) && state.is_some_and(fresh)
}

/// A power state that a list without instance view has carried along is from earlier, and would put taints on running machines.
fn with_fresh_power(view: &View<'_>, entry: &Entry) -> Arc<Machine> {
    if entry.machine.power_state.is_none() || entry.view.is_some_and(|at| fresh(view, at)) {
        return Arc::clone(&entry.machine);
    }
    Arc::new(Machine { power_state: None, ..Machine::clone(&entry.machine) })
}

/// Whether the surroundings of a machine that ARM says does not exist are as they should be; the error says what is strange.
fn surroundings(view: &View<'_>, id: &ResourceId) -> Step<Result<(), String>> {
    let group = group_of(id);
    let known = view.snapshot.absence(id).and_then(|absence| absence.scale_set.clone());
    let Some(set) = uniform_set_of(id).or(known) else { return not_empty(view, &group, id) };
    match need(view, Read::ScaleSets(group.clone())) {
        Some(step) => return step,
        None if view.snapshot.scale_sets(&group).iter().any(|it| it.id == set) => {
            return match view.snapshot.absence(id) {
                Some(_) => Step::Done(Ok(())),
                None => Step::Done(Err(format!("ARM does not find the parent of {id}, but lists it"))),
            };
        }
        None => {}
    }
    let gone = view.snapshot.absence(&set).is_some_and(|absence| fresh(view, absence.at));
    if !gone {
        let exists = Step::Done(Err(format!("scale set {} exists, but ARM does not list it", set.name())));
        return need(view, Read::ScaleSet(set)).unwrap_or(exists);
    }
    match view.snapshot.scale_sets(&group).is_empty() {
        true => not_empty(view, &group, id),
        false => Step::Done(Ok(())),
    }
}

/// A group that has turned empty says nothing about a machine: a role assignment or ARM itself may be broken.
fn not_empty(view: &View<'_>, group: &ResourceId, gone: &ResourceId) -> Step<Result<(), String>> {
    let lost = |entry: &&Entry| match &entry.machine.kind {
        MachineKind::ScaleSetInstance { scale_set, .. } => view.snapshot.absence(scale_set).is_some(),
        _ => entry.machine.id == *gone,
    };
    let siblings = || siblings(view.snapshot, group).filter(|entry| !lost(entry));
    if siblings().any(|entry| fresh(view, entry.read)) {
        return Step::Done(Ok(()));
    }
    let absences = view.snapshot.absences().filter(|(id, absence)| fresh(view, absence.at) && is_in(id, group));
    // A sibling whose scale set is gone as well tells nothing.
    let orphaned = |read: &Need| view.failure_of(read).is_some_and(|error| error.class == ErrorClass::ParentNotFound);
    if absences.count() <= SIBLINGS
        && let Some(sibling) = siblings().max_by_key(|entry| entry.read)
        && let single = Read::Machine(sibling.machine.id.clone())
        && !orphaned(&Need::Read(single.clone()))
    {
        return need(view, single).unwrap_or(Step::Done(Ok(())));
    }
    let list = Read::Machines(Scope::Group(group.clone()));
    match need(view, list.clone()) {
        Some(step) => step,
        None if view.snapshot.last_read(&list).is_some_and(|stamp| stamp.items > 0) => Step::Done(Ok(())),
        None => Step::Done(Err(format!("resource group {} has no machines and no scale sets any more", group.name()))),
    }
}

fn siblings<'a>(snapshot: &'a Snapshot, group: &'a ResourceId) -> impl Iterator<Item = &'a Entry> {
    snapshot.entries().filter(move |entry| entry.missing.is_none() && is_in(&entry.machine.id, group))
}

fn fresh(view: &View<'_>, at: tokio::time::Instant) -> bool {
    view.question.fresh(at, view.settings.absent_ttl)
}

/// The read, unless it is known freshly; its failure is the answer.
fn need(view: &View<'_>, read: Read) -> Option<Step<Result<(), String>>> {
    let need = view.unless_listed(read, view.settings.absent_ttl)?;
    Some(match view.failure_of(&need) {
        Some(error) => Step::Done(Err(error.to_string())),
        None => Step::Need(vec![need]),
    })
}

#[cfg(test)]
mod tests;

//! Verdict of lists on a machine that ARM reported as missing. Pure; called again after each read.
//!
//! Single reads may be wrong for many machines at once, if a part of ARM is outdated or has lost its data. So before many
//! Nodes are deleted, the lists that should contain their machines must lack them, too: lists that were read afterwards,
//! show other machines, and as many as the capacity of their scale set.

use tokio::time::Instant;

use super::{
    build::ScaleSetSummary,
    query::{QueryEvaluation, RequiredRead},
    read::{ArmRead, ListScope, group_of, uniform_set_of},
    resolve::QueryView,
    snapshot::ResourceAbsence,
};
use crate::{cloud_provider::SecondLook, providers::azure::model::ResourceId};

/// Returns the verdict of the lists on the machine of the query.
pub(super) fn evaluate(view: &QueryView<'_>) -> QueryEvaluation<SecondLook> {
    let Some(id) = &view.pending_query.query.id else { return silent("the Node has no provider id") };
    let (absence, group) = (view.snapshot.absences.get(id), group_of(id));
    let Some(set) = uniform_set_of(id).or_else(|| absence?.scale_set.clone()) else {
        return absence.map_or_else(|| not_absent(view, id), |it| in_list(view, it, ListScope::Group(group), None));
    };
    let denied = absence.or_else(|| view.snapshot.absences.get(&set)).map(|it| it.since);
    if let Some(step) = unless_read(view, ArmRead::ScaleSets(group.clone()), denied) {
        return step;
    }
    match (view.snapshot.scale_sets(&group).iter().find(|it| it.id == set), absence) {
        (Some(_), None) => not_absent(view, id),
        (Some(listed), Some(absence)) if listed.flexible => in_list(view, absence, ListScope::Flex(set), Some(listed)),
        (Some(listed), Some(absence)) => in_list(view, absence, ListScope::Uniform(set), Some(listed)),
        (None, _) => of_missing_set(view, &group, &set),
    }
}

/// Handles a machine that ARM returned after it had reported it as missing, or that was not read.
fn not_absent(view: &QueryView<'_>, id: &ResourceId) -> QueryEvaluation<SecondLook> {
    match view.snapshot.entries.get(id) {
        Some(entry) if entry.missing_since.is_none() => {
            QueryEvaluation::Done(SecondLook::Contradicts(format!("ARM lists {id}, and answers 404 when asked for it")))
        }
        _ => silent(format!("ARM was not asked for {id}")),
    }
}

fn silent(reason: impl Into<String>) -> QueryEvaluation<SecondLook> {
    QueryEvaluation::Done(SecondLook::Silent(reason.into()))
}

/// Handles a scale set that ARM itself reports as gone; the list that lacks it must show others.
fn of_missing_set(view: &QueryView<'_>, group: &ResourceId, set: &ResourceId) -> QueryEvaluation<SecondLook> {
    let others = !view.snapshot.scale_sets(group).is_empty();
    match view.snapshot.absences.get(set) {
        Some(_) if others => QueryEvaluation::Done(SecondLook::Agrees),
        Some(_) => silent(format!("ARM lists no scale sets in resource group {} any more", group.name())),
        None => silent(format!("ARM does not list scale set {}", set.name())),
    }
}

/// Returns the verdict of a list that does not show the machine: one that did would have revoked its absence.
fn in_list(
    view: &QueryView<'_>,
    absence: &ResourceAbsence,
    scope: ListScope,
    set: Option<&ScaleSetSummary>,
) -> QueryEvaluation<SecondLook> {
    let list = ArmRead::Machines(scope);
    if let Some(step) = unless_read(view, list.clone(), Some(absence.since)) {
        return step;
    }
    let listed = view.snapshot.last_read(&list).map_or(0, |stamp| stamp.items);
    match set.map(|set| (set.id.name(), set.capacity)) {
        Some((name, None)) => silent(format!("scale set {name} lacks the machine, and its capacity is not reported")),
        Some((name, Some(capacity))) if capacity > listed => {
            silent(format!("scale set {name} should have {capacity} machines, and ARM lists {listed}"))
        }
        None if listed == 0 => silent("ARM lists no machines there any more"),
        _ => QueryEvaluation::Done(SecondLook::Agrees),
    }
}

/// Returns the read of the list, unless it was read recently and after ARM reported the machine as missing.
fn unless_read(view: &QueryView<'_>, list: ArmRead, denied: Option<Instant>) -> Option<QueryEvaluation<SecondLook>> {
    let stamp = view.snapshot.last_read(&list);
    let is_later = |at: Instant| denied.is_none_or(|denied| at > denied);
    if stamp
        .is_some_and(|stamp| is_later(stamp.read_at) && view.pending_query.is_fresh(stamp.read_at, view.settings.absent_ttl))
    {
        return None;
    }
    Some(view.read_or(RequiredRead::Read(list), |error| SecondLook::Silent(error.to_string())))
}

#[cfg(test)]
mod tests;

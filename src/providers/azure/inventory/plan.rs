//! Chooses between lists and single reads, by what they cost. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    InventorySettings,
    build::ScaleSetSummary,
    query::RequiredRead,
    read::{ArmRead, ListScope},
    snapshot::InventorySnapshot,
};
use crate::providers::azure::model::ResourceId;

/// Items on a page of ARM's lists. Pages may be longer; then lists are cheaper than estimated.
const PAGE: usize = 100;
/// Assumed size of an unknown list: single machines are read alone, many with the list.
const UNKNOWN_SIZE: usize = 1000;

/// Returns the number of pages of a list with this many items.
fn pages(items: usize) -> usize {
    items.div_ceil(PAGE).max(1)
}

/// Returns `true` if a list pays off: `singles` reads are due, `spent` have been sent already for machines that it shows.
///
/// Counting those limits the cost of many small queries in a row to twice the best. On a tie, the list wins because it
/// contains more.
fn list_pays(singles: usize, spent: usize, items: Option<usize>) -> bool {
    singles + spent >= pages(items.unwrap_or(UNKNOWN_SIZE))
}

/// Returns the reads to send for these needs, each once.
pub(super) fn plan(needs: &[RequiredRead], snapshot: &InventorySnapshot, now: Instant) -> Vec<ArmRead> {
    let mut reads = Vec::new();
    let mut by_list: BTreeMap<ArmRead, BTreeMap<ResourceId, ArmRead>> = BTreeMap::new();
    for need in needs {
        match need.alternatives() {
            (single, None) => reads.push(single),
            (single, Some(list)) => {
                by_list.entry(list).or_default().insert(single.subject().clone(), single);
            }
        }
    }
    for (list, singles) in by_list {
        let costs = singles.keys().map(|id| cost(&list, id, snapshot)).sum();
        match reads.contains(&list) || list_pays(costs, snapshot.recent_single_reads(&list, now), size(&list, snapshot)) {
            true => reads.push(list),
            false => reads.extend(singles.into_values()),
        }
    }
    let mut seen = BTreeSet::new();
    reads.retain(|read| seen.insert(read.clone()));
    reads
}

/// Returns `true` if one of the reads in progress covers the need.
pub(super) fn is_in_flight(need: &RequiredRead, reading: &BTreeSet<ArmRead>) -> bool {
    let (single, list) = need.alternatives();
    reading.contains(&single) || list.is_some_and(|list| reading.contains(&list))
}

/// Returns the reads that are due for their age, so that no later caller waits for them: of the cluster's group and of
/// others that have been queried.
///
/// Reads that depend on others' results are returned by a later call. `attempted`: the reads that have been sent already.
pub(super) fn due(
    snapshot: &InventorySnapshot,
    settings: &InventorySettings,
    now: Instant,
    attempted: &BTreeSet<ArmRead>,
) -> Vec<ArmRead> {
    let old = |read: &ArmRead, ttl: Duration| {
        snapshot.last_read(read).is_none_or(|stamp| now.saturating_duration_since(stamp.read_at) > ttl)
    };
    let mut groups: BTreeSet<ResourceId> = snapshot.scale_sets.keys().cloned().collect();
    groups.insert(settings.group.clone());
    let mut reads: Vec<(ArmRead, Duration)> = Vec::new();
    for group in groups {
        if settings.uniform || settings.flex {
            reads.push((ArmRead::ScaleSets(group.clone()), settings.scale_sets_ttl));
        }
        if settings.standard {
            reads.push((ArmRead::Machines(ListScope::Group(group.clone())), settings.standard_ttl));
        }
        for set in snapshot.scale_sets(&group).iter().filter(|set| set.capacity != Some(0)) {
            match set.flexible {
                true if settings.flex => reads.push((ArmRead::Machines(ListScope::Flex(set.id.clone())), settings.flex_ttl)),
                false if settings.uniform => {
                    reads.push((ArmRead::Machines(ListScope::Uniform(set.id.clone())), settings.instances_ttl));
                }
                _ => {}
            }
        }
    }
    let ttl = |scope: &ListScope| match scope {
        ListScope::Uniform(_) => settings.instances_ttl,
        ListScope::Flex(_) | ListScope::Group(_) => settings.flex_ttl.max(settings.standard_ttl),
    };
    let with_interfaces = snapshot.entries.values().filter(|entry| !entry.machine.interfaces.is_empty());
    let scopes: BTreeSet<ListScope> = with_interfaces.map(|entry| ListScope::of_interfaces(&entry.machine)).collect();
    reads.extend(scopes.into_iter().map(|scope| (ArmRead::Interfaces(scope.clone()), ttl(&scope))));
    let failed = snapshot.failures.iter().filter(|(read, _)| read.is_list());
    let failed = failed.map(|(read, (_, error))| match InventorySnapshot::is_of_missing_set(read, error) {
        true => ArmRead::ScaleSets(super::read::group_of(read.subject())),
        false => read.clone(),
    });
    let mut due: BTreeSet<ArmRead> = reads.into_iter().filter(|(read, ttl)| old(read, *ttl)).map(|(read, _)| read).collect();
    due.extend(failed);
    due.extend(snapshot.contradicted_lists().cloned());
    due.into_iter().filter(|read| !attempted.contains(read)).collect()
}

/// Returns the list that a single read replaces; `None` for other reads.
pub(super) fn list_of(read: &ArmRead, snapshot: &InventorySnapshot) -> Option<ArmRead> {
    let scope = |id: &ResourceId| snapshot.entries.get(id).map(|entry| entry.machine.as_ref());
    match read {
        ArmRead::Machine(id) => {
            let uniform = super::read::uniform_set_of(id).map(ListScope::Uniform);
            let other = || scope(id).map_or_else(|| ListScope::Group(super::read::group_of(id)), ListScope::of);
            Some(ArmRead::Machines(uniform.unwrap_or_else(other)))
        }
        ArmRead::InterfacesOf(id) => Some(ArmRead::Interfaces(ListScope::of_interfaces(scope(id)?))),
        _ => None,
    }
}

/// Returns the cost of single reads instead of the list, for one machine.
fn cost(list: &ArmRead, id: &ResourceId, snapshot: &InventorySnapshot) -> usize {
    match list {
        ArmRead::Interfaces(ListScope::Group(_)) => {
            snapshot.entries.get(id).map_or(1, |entry| entry.machine.interfaces.len().max(1))
        }
        _ => 1,
    }
}

fn size(list: &ArmRead, snapshot: &InventorySnapshot) -> Option<usize> {
    match list {
        ArmRead::Interfaces(ListScope::Group(group)) => {
            let read = snapshot.last_read(list).map(|stamp| stamp.items);
            let scope = ListScope::Group(group.clone());
            let existing = snapshot.entries.values().filter(|entry| scope.lists_interfaces(&entry.machine)).count();
            let is_listed =
                |set: &ScaleSetSummary| snapshot.last_read(&ArmRead::Machines(ListScope::Flex(set.id.clone()))).is_some();
            let listed = snapshot.last_read(&ArmRead::Machines(ListScope::Group(group.clone()))).is_some()
                || snapshot.scale_sets(group).iter().any(is_listed);
            read.or(listed.then_some(0)).map(|items| items.max(existing))
        }
        ArmRead::Machines(scope) | ArmRead::Interfaces(scope) => snapshot.size(scope),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

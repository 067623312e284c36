//! Status of the inventory: whether it can be trusted, and its content. Pure.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::{
    InventorySettings,
    read::{ArmRead, group_of},
    snapshot::InventorySnapshot,
};
use crate::{
    providers::azure::model::{ArmError, MachineKind},
    status::{FailureClass, InventoryStatus, ListStatus, MachineCounts, ReadFailure},
};

/// Maximum number of failures of single reads that are shown; the newest ones.
const MAX_SHOWN_FAILURES: usize = 20;

/// Returns the reason why the snapshot cannot be trusted. `unfound_nodes`: number of Nodes in the last lookup, if it found
/// none of them.
pub(super) fn health(
    snapshot: &InventorySnapshot,
    settings: &InventorySettings,
    unfound_nodes: usize,
) -> Result<(), String> {
    // A group that a label names must not block the whole cluster.
    let ours = |read: &ArmRead| *read.subject() == settings.group || group_of(read.subject()) == settings.group;
    let mut failed = snapshot
        .failures
        .iter()
        .filter(|(read, (_, error))| read.is_list() && ours(read) && !InventorySnapshot::is_of_missing_set(read, error));
    if let Some((read, (_, error))) = failed.next() {
        return Err(format!("cannot list {read}: {error}"));
    }
    let group = settings.group.name();
    let present = snapshot.entries.values().filter(|entry| entry.missing_since.is_none()).count();
    let existing = snapshot.entries.len();
    if existing == 0 && snapshot.lists().next().is_none() {
        let failure = snapshot.failures.iter().next().map(|(read, (_, error))| format!(": {read}: {error}"));
        return Err(format!("nothing has been read from ARM yet{}", failure.unwrap_or_default()));
    }
    if present == 0 && existing > 0 {
        return Err(format!("ARM lists none of the {existing} machines in resource group {group} that were known before"));
    }
    let denied = snapshot.contradicted_lists().find(|read| ours(read));
    if let Some(read) = denied {
        return Err(format!("ARM's list of {read} is empty, although machines of it exist"));
    }
    if present == 0 && unfound_nodes > 0 {
        return Err(format!("ARM lists no machines in resource group {group}, but {unfound_nodes} nodes were looked up"));
    }
    Ok(())
}

/// Returns the age of the oldest list.
pub(super) fn age(snapshot: &InventorySnapshot, now: Instant) -> Option<Duration> {
    snapshot.lists().map(|(_, stamp)| now.saturating_duration_since(stamp.read_at)).max()
}

/// Returns counts, ages and errors: of each list when it last succeeded, with how many items, and what failed since.
pub(super) fn status(snapshot: &InventorySnapshot, now: Instant) -> InventoryStatus {
    let count = |kind: fn(&MachineKind) -> bool| snapshot.entries.values().filter(|entry| kind(&entry.machine.kind)).count();
    let age = |at: Instant| now.saturating_duration_since(at).as_secs();
    let class = |error: &ArmError| FailureClass::named(&format!("{:?}", error.class));
    let list = |read: &ArmRead| ListStatus {
        list: read.to_string(),
        id: read.subject().as_str().to_owned(),
        ..ListStatus::default()
    };
    let mut lists = BTreeMap::new();
    for (read, stamp) in snapshot.lists() {
        let (items, age_seconds) = (Some(stamp.items), Some(age(stamp.read_at)));
        lists.insert(name(read), ListStatus { items, age_seconds, ..list(read) });
    }
    let (of_lists, mut singles): (Vec<_>, Vec<_>) = snapshot.failures.iter().partition(|(read, _)| read.is_list());
    for (read, (at, error)) in of_lists {
        let list = lists.entry(name(read)).or_insert_with(|| list(read));
        list.last_error = Some(error.to_string());
        list.last_error_class = Some(class(error));
        list.last_error_age_seconds = Some(age(*at));
    }
    singles.sort_by_key(|(_, (at, _))| Reverse(*at));
    let failure = |(read, (at, error)): &(&ArmRead, &(Instant, ArmError))| ReadFailure {
        read: read.to_string(),
        error: error.to_string(),
        class: class(error),
        age_seconds: age(*at),
    };
    InventoryStatus {
        machines: MachineCounts {
            uniform: count(|kind| matches!(kind, MachineKind::ScaleSetInstance { .. })),
            flexible: count(|kind| matches!(kind, MachineKind::FlexInstance { .. })),
            other: count(|kind| matches!(kind, MachineKind::AvailabilitySet { .. } | MachineKind::Standalone)),
            missing: snapshot.entries.values().filter(|entry| entry.missing_since.is_some()).count(),
        },
        lists: lists.into_values().collect(),
        failures: singles.iter().take(MAX_SHOWN_FAILURES).map(failure).collect(),
        ..InventoryStatus::default()
    }
}

fn name(read: &ArmRead) -> String {
    format!("{read} {}", read.subject())
}

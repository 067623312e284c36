//! What the inventory says about itself: whether it can be trusted, and what it holds. Pure.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    InventorySettings, MachineKind,
    read::{Read, group_of},
    snapshot::Snapshot,
};

/// Why the snapshot cannot be trusted. `in_vain`: nodes of the last look-up, when it found none of them.
pub(super) fn health(snapshot: &Snapshot, settings: &InventorySettings, in_vain: usize) -> Result<(), String> {
    // A group that a label names must not make the whole cluster wait.
    let ours = |read: &Read| *read.subject() == settings.group || group_of(read.subject()) == settings.group;
    let mut failed = snapshot
        .failures()
        .filter(|(read, (_, error))| read.is_list() && ours(read) && !Snapshot::is_of_missing_set(read, error));
    if let Some((read, (_, error))) = failed.next() {
        return Err(format!("cannot list {read}: {error}"));
    }
    let group = settings.group.name();
    let present = snapshot.entries().filter(|entry| entry.missing.is_none()).count();
    let known = snapshot.entries().count();
    if known == 0 && snapshot.lists().next().is_none() {
        let failure = snapshot.failures().next().map(|(read, (_, error))| format!(": {read}: {error}"));
        return Err(format!("nothing has been read from ARM yet{}", failure.unwrap_or_default()));
    }
    if present == 0 && known > 0 {
        return Err(format!("ARM lists none of the {known} machines in resource group {group} that were known before"));
    }
    let denied = snapshot.contradicted_lists().find(|read| ours(read));
    if let Some(read) = denied {
        return Err(format!("ARM's list of {read} is empty, although machines of it exist"));
    }
    if present == 0 && in_vain > 0 {
        return Err(format!("ARM lists no machines in resource group {group}, but {in_vain} nodes were asked for"));
    }
    Ok(())
}

/// Counts, ages and errors.
pub(super) fn status(snapshot: &Snapshot, now: Instant) -> Value {
    let count = |kind: fn(&MachineKind) -> bool| snapshot.entries().filter(|entry| kind(&entry.machine.kind)).count();
    let age = |at: Instant| seconds(now.saturating_duration_since(at));
    let mut lists: Vec<(String, Value)> = snapshot
        .lists()
        .map(|(read, stamp)| {
            let id = read.subject().as_str();
            (
                format!("{read} {id}"),
                json!({"list": read.to_string(), "id": id, "items": stamp.items, "ageSeconds": age(stamp.at)}),
            )
        })
        .collect();
    lists.sort_by(|left, right| left.0.cmp(&right.0));
    let mut failures: Vec<Value> = snapshot
        .failures()
        .map(|(read, (at, error))| json!({"read": read.to_string(), "error": error.to_string(), "ageSeconds": age(*at)}))
        .collect();
    failures.sort_by_key(|failure| failure["read"].to_string());
    failures.truncate(20);
    json!({
        "machines": {
            "uniform": count(|kind| matches!(kind, MachineKind::ScaleSetInstance { .. })),
            "flexible": count(|kind| matches!(kind, MachineKind::FlexInstance { .. })),
            "other": count(|kind| matches!(kind, MachineKind::AvailabilitySet { .. } | MachineKind::Standalone)),
            "missing": snapshot.entries().filter(|entry| entry.missing.is_some()).count(),
        },
        "lists": lists.into_iter().map(|(_, list)| list).collect::<Vec<_>>(),
        "failures": failures,
    })
}

fn seconds(age: Duration) -> u64 {
    age.as_secs()
}

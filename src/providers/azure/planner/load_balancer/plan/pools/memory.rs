//! What is remembered of members of pools and no document tells. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    super::super::pools::{member_updates::PoolMemberUpdate, orphans::OrphanedPoolMembers, stand_ins::ReadyEntries},
    changes::{PoolChange, PoolChangeKind},
};
use crate::providers::azure::arm::{ArmError, ResourceId};

/// Longest that the instances of a scale set wait for the write of its model.
pub const MODEL_WAIT: Duration = Duration::from_secs(10);

/// What no document tells: lost with the process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolMemory {
    /// Members without a Node.
    pub orphans: OrphanedPoolMembers,
    /// Entries whose own Nodes can take over from stand-ins.
    pub ready_entries: ReadyEntries,
    /// Machines that our last write may have left in a failed state, by key.
    pub failed_members: BTreeMap<String, PoolMemberUpdate>,
    /// Scale sets in the same state.
    pub failed_models: BTreeSet<ResourceId>,
    /// Documents that were not written although planned.
    pub paused: BTreeMap<ResourceId, PausedWrite>,
    /// Documents whose writes have not ended.
    pub in_flight: BTreeMap<ResourceId, WriteInFlight>,
}

impl PoolMemory {
    /// Takes out a write in flight that has ended. Returns whether a later plan waits for it.
    ///
    /// `pause`: how long it is not repeated, and why it failed, if it did.
    pub fn end_write(&mut self, id: &ResourceId, pause: Option<(Duration, Option<ArmError>)>, now: Instant) -> bool {
        let Some(WriteInFlight { change, is_awaited, .. }) = self.in_flight.remove(id) else { return false };
        self.paused.retain(|_, paused| paused.until > now);
        if let Some((pause, error)) = pause {
            let kind = self.repeated(&change);
            self.paused.insert(id.clone(), PausedWrite { kind, until: now + pause, error });
        }
        is_awaited
    }

    /// Returns a change as the next plan has it if nothing else differs: it repeats a failed write.
    fn repeated(&self, change: &PoolChange) -> PoolChangeKind {
        let mut repeated = change.kind.clone();
        match &mut repeated {
            PoolChangeKind::Model(patch) => patch.last_write_failed = self.failed_models.contains(&change.id),
            PoolChangeKind::Member(update) => {
                update.patch.last_write_failed = self.failed_members.contains_key(&update.resource.key());
            }
            PoolChangeKind::Pool(_) | PoolChangeKind::Migration(_) => {}
        }
        repeated
    }

    /// Whether a write in flight has to end before a change. Pools and migrations are writes of their load balancer, and instances follow the
    /// model of their scale set.
    pub(super) fn holds_back(&self, change: &PoolChange, now: Instant) -> bool {
        let in_flight = &self.in_flight;
        let has_model = |set: &ResourceId| {
            in_flight.get(set).is_some_and(|write| now.saturating_duration_since(write.since) < MODEL_WAIT)
        };
        in_flight.contains_key(&change.id)
            || match &change.kind {
                PoolChangeKind::Member(update) => update.resource.scale_set().is_some_and(|set| has_model(&set)),
                PoolChangeKind::Pool(_) => {
                    let is_migrating = change.id.parent().is_some_and(|balancer| in_flight.contains_key(&balancer));
                    is_migrating || in_flight.values().any(|write| write.change.leaves(&change.id))
                }
                PoolChangeKind::Migration(_) => in_flight.keys().any(|id| id.parent().as_ref() == Some(&change.id)),
                PoolChangeKind::Model(_) => false,
            }
    }
}

/// A document that is not written again for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct PausedWrite {
    /// What was to be written. Another change is written at once.
    pub kind: PoolChangeKind,
    pub until: Instant,
    /// Why the write failed; `None`: the document needs no write, or nobody waits for it.
    pub error: Option<ArmError>,
}

/// A write of a pool, a member or a model that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteInFlight {
    pub change: Arc<PoolChange>,
    pub since: Instant,
    /// Whether a later plan changes the document otherwise.
    pub is_awaited: bool,
}

//! Memory of facts about pool members that no Azure document has. Pure.

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
use crate::providers::azure::model::{ArmError, ResourceId};

/// Longest time for which the instances of a scale set wait for the write of its model.
pub const MODEL_WAIT: Duration = Duration::from_secs(10);

/// Facts that no Azure document has. They are lost when the process ends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolMemory {
    /// Members without a Node.
    pub orphans: OrphanedPoolMembers,
    /// Entries whose own Nodes can take over from stand-ins.
    pub ready_entries: ReadyEntries,
    /// Machines that the last write of this process may have left in a failed state, by resource key.
    pub failed_members: BTreeMap<String, PoolMemberUpdate>,
    /// Scale sets whose models the last write of this process may have left in a failed state.
    pub failed_models: BTreeSet<ResourceId>,
    /// Planned writes that are not sent for a while, by document.
    pub paused: BTreeMap<ResourceId, PausedWrite>,
    /// Writes that have not ended, by document.
    pub in_flight: BTreeMap<ResourceId, WriteInFlight>,
    /// Number of plans that were carried out.
    pub rounds: u64,
}

impl PoolMemory {
    /// Removes a write of a plan that has ended. Returns `true` if a later plan waits for it.
    ///
    /// `pause`: time for which the write is not repeated, and the error if the write failed.
    pub fn end_write(
        &mut self,
        (round, id): (u64, &ResourceId),
        pause: Option<(Duration, Option<ArmError>)>,
        now: Instant,
    ) -> bool {
        if self.in_flight.get(id).is_none_or(|write| write.round != round) {
            return false;
        }
        let Some(WriteInFlight { change, is_awaited, .. }) = self.in_flight.remove(id) else { return false };
        self.paused.retain(|_, paused| paused.until > now);
        if let Some((pause, error)) = pause {
            let kind = self.repeated(&change);
            self.paused.insert(id.clone(), PausedWrite { kind, until: now + pause, error });
        }
        is_awaited
    }

    /// Begins to carry out a plan. Returns the number of the plan.
    ///
    /// The plan does not know the result of writes in flight that it does not repeat, so another plan follows them.
    pub fn begin(&mut self, changes: &[PoolChange], blocked: &[PoolChange], now: Instant) -> u64 {
        let repeated: BTreeMap<&ResourceId, &PoolChange> = blocked.iter().map(|change| (&change.id, change)).collect();
        for (id, write) in &mut self.in_flight {
            let is_repeated = repeated.get(id).is_some_and(|change| change.kind.is_same(&write.change.kind));
            write.is_awaited |= !is_repeated;
        }
        let blockers: Vec<ResourceId> =
            blocked.iter().flat_map(|change| self.blockers(change)).map(|(id, _)| id.clone()).collect();
        for id in blockers {
            self.in_flight.entry(id).and_modify(|write| write.is_awaited = true);
        }
        self.rounds += 1;
        let round = self.rounds;
        let begun = changes.iter().map(|change| {
            let write = WriteInFlight { change: Arc::new(change.clone()), since: now, round, is_awaited: false };
            (change.id.clone(), write)
        });
        self.in_flight.extend(begun);
        round
    }

    /// Returns a change in the form in which the next plan repeats it after a failed write, if nothing else differs.
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

    /// Returns the writes of other documents that a change waits for.
    ///
    /// A write of a pool and a migration change the document of their load balancer, and instances follow the model of their scale set.
    fn blockers(&self, change: &PoolChange) -> Vec<(&ResourceId, &WriteInFlight)> {
        let parent = match &change.kind {
            PoolChangeKind::Member(update) => update.resource.scale_set(),
            PoolChangeKind::Pool(_) => change.id.parent(),
            PoolChangeKind::Migration(_) | PoolChangeKind::Model(_) => None,
        };
        let parent = parent.and_then(|id| self.in_flight.get_key_value(&id));
        let leaves =
            |write: &WriteInFlight| matches!(change.kind, PoolChangeKind::Pool(_)) && write.change.leaves(&change.id);
        let is_part = |id: &ResourceId| id.parent().as_ref() == Some(&change.id);
        // Members never wait for each other. There may be many of them, so they are not searched.
        let others =
            matches!(change.kind, PoolChangeKind::Pool(_) | PoolChangeKind::Migration(_)).then_some(&self.in_flight);
        let others = others.into_iter().flatten().filter(|(id, write)| leaves(write) || is_part(id));
        parent.into_iter().chain(others).collect()
    }

    /// Returns `true` if a write in flight must end before a change. Instances wait for their model for at most [`MODEL_WAIT`].
    pub(super) fn holds_back(&self, change: &PoolChange, now: Instant) -> bool {
        let is_member = matches!(change.kind, PoolChangeKind::Member(_));
        let is_recent = |write: &WriteInFlight| now.saturating_duration_since(write.since) < MODEL_WAIT;
        self.in_flight.contains_key(&change.id)
            || self.blockers(change).into_iter().any(|(_, write)| !is_member || is_recent(write))
    }
}

/// Planned write that is not sent for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct PausedWrite {
    /// Planned content. A different change of the document is written at once.
    pub kind: PoolChangeKind,
    pub until: Instant,
    /// Error of the write; `None` if the document needs no write, or if no Service waits for it.
    pub error: Option<ArmError>,
}

/// Write of a pool, a member or a model, or a migration, that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteInFlight {
    pub change: Arc<PoolChange>,
    pub since: Instant,
    /// Number of the plan that began the write.
    pub round: u64,
    /// Whether a later plan has a change that waits for this write.
    pub is_awaited: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::{
        model::{ArmErrorClass, network::BackendAddressPool},
        planner::load_balancer::{
            desired::{pool_members::node_ip_configuration::PoolMembershipPatch, samples},
            pools::{member_resource::PoolMemberResource, member_updates::LeaveReason},
        },
        samples::arm_error,
    };

    const MACHINE: &str = "virtualMachineScaleSets/v/virtualMachines/0";

    fn compute(path: &str) -> ResourceId {
        ResourceId::parse(&samples::network(path).replace("Microsoft.Network", "Microsoft.Compute")).unwrap()
    }

    fn balancer() -> ResourceId {
        ResourceId::parse(&samples::network("loadBalancers/l")).unwrap()
    }

    fn pool() -> ResourceId {
        balancer().child("backendAddressPools", "p")
    }

    fn member(leave: Vec<ResourceId>) -> PoolChange {
        let patch = PoolMembershipPatch { leave, ..PoolMembershipPatch::default() };
        let (resource, leave_reason) = (PoolMemberResource::Instance(compute(MACHINE)), LeaveReason::NotInPool);
        PoolChange::of_member(PoolMemberUpdate { resource, node: "n".to_owned(), patch, leave_reason })
    }

    fn written() -> PoolChange {
        PoolChange::of_pool(pool(), &BackendAddressPool::default(), BackendAddressPool::default())
    }

    fn model() -> PoolChange {
        let (set, patch) = (compute("virtualMachineScaleSets/v"), PoolMembershipPatch::default());
        PoolChange::of_model(set, patch, &LeaveReason::NotInPool)
    }

    fn migration() -> PoolChange {
        PoolChange::of_migration(balancer(), vec!["p".to_owned()])
    }

    fn flying(change: &PoolChange, now: Instant) -> PoolMemory {
        let write = WriteInFlight { change: Arc::new(change.clone()), since: now, round: 0, is_awaited: false };
        PoolMemory { in_flight: BTreeMap::from([(change.id.clone(), write)]), ..PoolMemory::default() }
    }

    #[test]
    fn changes_are_blocked_by_writes_of_their_documents() {
        let now = Instant::now();
        let (model, migration) = (model(), migration());
        for (in_flight, change, age, expected) in [
            (member(Vec::new()), member(vec![pool()]), 600, true),
            (model.clone(), member(Vec::new()), 9, true),
            (model.clone(), member(Vec::new()), 10, false),
            (member(Vec::new()), model, 0, false),
            (member(vec![pool()]), written(), 600, true),
            (member(Vec::new()), written(), 0, false),
            (migration.clone(), written(), 600, true),
            (written(), migration, 600, true),
        ] {
            let holds_back = flying(&in_flight, now).holds_back(&change, now + Duration::from_secs(age));
            assert_eq!(holds_back, expected, "{in_flight:?} {change:?}");
        }
    }

    #[test]
    fn a_plan_follows_the_writes_that_its_changes_wait_for() {
        let now = Instant::now();
        let (model, migration) = (model(), migration());
        for (in_flight, change, expected) in [
            (member(Vec::new()), member(Vec::new()), false),
            (member(Vec::new()), member(vec![pool()]), true),
            (model.clone(), member(Vec::new()), true),
            (model.clone(), model, false),
            (member(vec![pool()]), written(), true),
            (migration.clone(), written(), true),
            (written(), migration, true),
            (member(Vec::new()), written(), true),
        ] {
            let mut memory = flying(&in_flight, now);
            assert_eq!(memory.begin(&[], std::slice::from_ref(&change), now), 1);
            assert_eq!(memory.end_write((0, &in_flight.id), None, now), expected, "{in_flight:?} {change:?}");
        }
    }

    #[test]
    fn a_failed_write_is_paused_as_the_next_plan_repeats_it() {
        let (now, change) = (Instant::now(), member(vec![pool()]));
        let mut memory = flying(&change, now);
        let PoolChangeKind::Member(update) = &change.kind else { unreachable!() };
        memory.failed_members.insert(update.resource.key(), update.as_ref().clone());
        let error = Some(arm_error(ArmErrorClass::Invalid, "", "refused"));
        assert!(!memory.end_write((1, &change.id), None, now) && !memory.in_flight.is_empty(), "another plan's");
        assert!(!memory.end_write((0, &change.id), Some((Duration::from_secs(60), error.clone())), now));
        assert!(memory.in_flight.is_empty());
        let paused = &memory.paused[&change.id];
        let PoolChangeKind::Member(repeated) = &paused.kind else { unreachable!() };
        assert!(repeated.patch.last_write_failed && repeated.patch.leave == [pool()]);
        assert_eq!((paused.until, &paused.error), (now + Duration::from_secs(60), &error));
    }
}

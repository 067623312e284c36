//! Whether the back-end pools have the members that the Nodes ask for, and whether security rules that lead to machines follow those.
//!
//! In: what a sync has brought the pools to, and who calls that into question; what the rules were brought to. Out: what the pools were last
//! brought to, unless somebody has; whether rules are due.

use tokio::time::Instant;

/// Whether the pools are where they have to be.
#[derive(Debug, Default)]
pub(super) struct PoolSyncState {
    /// How often that was called into question.
    invalidations: u64,
    /// What the pools were last brought to; `None`: something is missing, or nobody knows.
    pub(super) synced: Option<PoolSyncRecord>,
    /// Whether security rules that lead to machines follow them.
    pub(super) machine_rules: MachineRuleState,
    /// Whether a plan of members is about to begin.
    pub(super) is_plan_due: bool,
    /// Whether another configuration has replaced this one, so that no plan follows those that are carried out.
    pub(super) is_retired: bool,
}

impl PoolSyncState {
    /// Pools are not where they have to be, as of what is answered.
    pub(super) fn invalidate(&mut self) -> u64 {
        self.invalidations = self.invalidations.wrapping_add(1);
        self.synced = None;
        self.invalidations
    }

    /// The pools were brought to this, unless somebody has called that into question `since`.
    pub(super) fn record(&mut self, since: u64, followed: PoolSyncRecord) {
        if self.invalidations == since {
            self.synced = Some(followed);
        }
    }
}

/// Whether security rules that lead to machines follow the pools.
#[derive(Debug, Default)]
pub(super) struct MachineRuleState {
    /// How often the members of pools have changed.
    changes: u64,
    /// What the rules were last brought to.
    followed: Option<MachineRuleRecord>,
}

/// What rules that lead to machines depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MachineRuleRecord {
    /// Of the Nodes.
    fingerprint: u64,
    /// How often members had changed.
    changes: u64,
}

impl MachineRuleState {
    /// Pools have other members, or may have.
    pub(super) fn note_change(&mut self) {
        self.changes = self.changes.wrapping_add(1);
    }

    /// What the rules have to be brought to; `None`: they are there. `fingerprint`: of the Nodes.
    pub(super) fn due(&self, fingerprint: u64) -> Option<MachineRuleRecord> {
        let wanted = MachineRuleRecord { fingerprint, changes: self.changes };
        (self.followed != Some(wanted)).then_some(wanted)
    }

    /// All rules were brought to this.
    pub(super) fn record(&mut self, followed: MachineRuleRecord) {
        self.followed = Some(followed);
    }
}

/// What the pools were brought to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PoolSyncRecord {
    pub(super) fingerprint: u64,
    /// How often endpoints had been followed then.
    pub(super) publications: u64,
    /// When there is something to do although no Node changes.
    pub(super) due: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_into_question_meanwhile_is_not_followed() {
        let (mut following, followed) =
            (PoolSyncState::default(), PoolSyncRecord { fingerprint: 1, publications: 0, due: None });
        let since = following.invalidate();
        following.record(since, followed);
        assert_eq!(following.synced, Some(followed));
        let since = following.invalidate();
        assert_eq!(following.synced, None);
        // A load balancer stays after all, or a pool is new.
        following.invalidate();
        following.record(since, followed);
        assert_eq!(following.synced, None);
    }

    #[test]
    fn rules_are_due_until_they_follow_all_nodes_and_members() {
        let mut rules = MachineRuleState::default();
        let first = rules.due(1).unwrap();
        rules.record(first);
        assert_eq!(rules.due(1), None);
        assert!(rules.due(2).is_some(), "Nodes have other addresses");
        rules.note_change();
        let begun = rules.due(1).unwrap();
        // A member changes while rules are written.
        rules.note_change();
        rules.record(begun);
        let last = rules.due(1).unwrap();
        rules.record(last);
        assert_eq!(rules.due(1), None);
    }
}

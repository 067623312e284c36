//! Whether the back-end pools have the members that the Nodes ask for.
//!
//! In: what a sync has brought the pools to, and who calls that into question. Out: what they were last brought to, unless somebody has.

use tokio::time::Instant;

/// Whether the pools are where they have to be.
#[derive(Debug, Default)]
pub(super) struct PoolSyncState {
    /// How often that was called into question.
    invalidations: u64,
    /// What the pools were last brought to; `None`: something is missing, or nobody knows.
    pub(super) synced: Option<PoolSyncRecord>,
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
}

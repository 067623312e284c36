use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::providers::azure::model::ResourceId;

/// Number of entries below which the table is not pruned.
const PRUNE_MINIMUM: usize = 64;

/// Locks by id. Locks without a holder or waiter are pruned when the table has doubled.
#[derive(Default)]
pub(super) struct DocumentLocks {
    table: Mutex<LockTable>,
}

#[derive(Default)]
struct LockTable {
    locks: HashMap<ResourceId, Weak<tokio::sync::Mutex<()>>>,
    prune_at: usize,
}

impl DocumentLocks {
    /// Waits for the lock of `id`. Waiters acquire it in order.
    pub(super) async fn lock(&self, id: &ResourceId) -> OwnedMutexGuard<()> {
        self.entry(id).lock_owned().await
    }

    fn entry(&self, id: &ResourceId) -> Arc<tokio::sync::Mutex<()>> {
        let mut entries = self.table.lock();
        if let Some(lock) = entries.locks.get(id).and_then(Weak::upgrade) {
            return lock;
        }
        if entries.locks.len() >= entries.prune_at {
            entries.locks.retain(|_, lock| lock.strong_count() > 0);
            entries.prune_at = PRUNE_MINIMUM.max(2 * entries.locks.len());
        }
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        entries.locks.insert(id.clone(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn one_at_a_time_for_each_id() {
        let locks = DocumentLocks::default();
        let id = |name: &str| ResourceId::group_of("s", name);
        let first = locks.lock(&id("a")).await;
        assert!(locks.lock(&id("A")).now_or_never().is_none());
        assert!(locks.lock(&id("b")).now_or_never().is_some());
        drop(first);
        assert!(locks.lock(&id("a")).now_or_never().is_some());
    }

    #[tokio::test]
    async fn released_locks_are_forgotten() {
        let locks = DocumentLocks::default();
        let held = locks.lock(&ResourceId::group_of("s", "held")).await;
        for number in 0..1000 {
            drop(locks.lock(&ResourceId::group_of("s", &number.to_string())).await);
        }
        assert!(locks.table.lock().locks.len() <= PRUNE_MINIMUM);
        assert!(locks.lock(&ResourceId::group_of("s", "held")).now_or_never().is_none());
        drop(held);
    }
}

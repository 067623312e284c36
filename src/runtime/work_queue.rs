//! Queue of keys to reconcile: a state machine over (key, now). Pure.
//!
//! In: keys with a [`ReconcilePriority`], and the [`ReconcileResult`] of each reconcile. Out: the next key to reconcile, or
//! how long to wait. Rules: a key is pending at most once and runs at most once at a time; a key added while it runs runs
//! again afterwards; the earlier time and the more urgent priority win; failures back off exponentially per key;
//! [`ReconcileResult::RequeueAfter`] is not a failure and does not change the failure count. Rejected keys have separate
//! delays, which grow with the number of such keys. A resync does not shorten a backoff or a wait, every other reason does.
//!
//! The async shell is [`super::worker`]. Upstream: client-go `util/workqueue`.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

use super::backoff::ExponentialBackoff;
use crate::status::UnsettledKey;

/// Reason for adding a key; among due keys the most urgent runs first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReconcilePriority {
    /// A user changed the object and waits for the effect.
    UserChange,
    /// A user deleted the object.
    Deletion,
    /// The set of nodes changed.
    NodeChange,
    /// Periodic resync without a known change.
    Resync,
}

/// Bounds of [`ReconcileResult::RequeueAfter`]. A short delay must not cause a busy loop, and a long delay no overflow.
const REQUEUE_BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30 * 24 * 3600));

/// Backoff after [`ReconcileResult::Rejected`]. The cause may be removed at any time, and each attempt costs a request.
const REJECTED: KeyBackoff = KeyBackoff { base: Duration::from_secs(15), max: Duration::from_secs(300) };

/// Minimum delay per key that runs or was rejected, so that hundreds of keys with one cause do not exhaust a request quota.
const REJECTED_SHARE: Duration = Duration::from_secs(2);

/// Outcome of a reconcile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReconcileResult {
    /// The actual state matches the desired state for this key.
    Done,
    /// Not finished, without a failure: requeue after this delay, for this reason.
    RequeueAfter(Duration, String),
    /// Failed, for this reason: retry after the key's backoff.
    Failed(String),
    /// Rejected, for this reason, until a person removes the cause: retry after a delay of 15 s that grows to 5 minutes.
    Rejected(String),
}

/// Exponential backoff per key: `base`, doubled with each failure, up to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyBackoff {
    /// Delay after the first failure.
    pub base: Duration,
    pub max: Duration,
}

impl KeyBackoff {
    /// client-go's default for controllers.
    pub const DEFAULT: Self = Self { base: Duration::from_millis(5), max: Duration::from_secs(1000) };

    /// Returns the delay after `failures` failures in a row.
    pub fn delay(&self, failures: u32) -> Duration {
        ExponentialBackoff::doubling(self.base, self.max).delay(failures)
    }
}

/// Next step of the queue.
#[derive(Debug, PartialEq, Eq)]
pub enum NextKey<K> {
    /// Reconcile this key and report with [`WorkQueue::finish`]. Carries how long it was due.
    Run(K, Duration),
    /// No key is due before this time.
    WaitUntil(Instant),
    /// No key is pending.
    Idle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PendingKey {
    due: Instant,
    priority: ReconcilePriority,
    order: u64,
    /// Whether the key is already counted as added.
    counted_as_added: bool,
}

#[derive(Debug, Default)]
struct QueuedKeyState {
    pending: Option<PendingKey>,
    running: Option<Instant>,
    failures: u32,
    /// Whether the last reconcile was rejected.
    is_rejected: bool,
    reason: Option<String>,
}

impl QueuedKeyState {
    fn is_idle(&self) -> bool {
        self.pending.is_none() && self.running.is_none() && self.failures == 0
    }
}

/// Queue of keys. `order` breaks ties, first come first served.
#[derive(Debug)]
pub struct WorkQueue<K> {
    backoff: KeyBackoff,
    entries: HashMap<K, QueuedKeyState>,
    /// Pending keys that do not run and are not due yet.
    scheduled: BTreeSet<(Instant, u64, K)>,
    /// Pending keys that do not run and are due.
    ready: BTreeSet<(ReconcilePriority, u64, K)>,
    order: u64,
    /// Number of keys that became due since the last read.
    became_due: u64,
}

impl<K: Clone + Ord + Hash + fmt::Display> WorkQueue<K> {
    pub fn new(backoff: KeyBackoff) -> Self {
        Self {
            backoff,
            entries: HashMap::new(),
            scheduled: BTreeSet::new(),
            ready: BTreeSet::new(),
            order: 0,
            became_due: 0,
        }
    }

    /// Makes `key` due at `due`, unless it is already due earlier.
    pub fn add_at(&mut self, key: K, priority: ReconcilePriority, due: Instant) {
        let waits = self.entries.get(&key).is_some_and(|e| e.reason.is_some() && e.pending.is_some());
        if priority == ReconcilePriority::Resync && waits {
            return;
        }
        self.merge(key, priority, due);
    }

    fn merge(&mut self, key: K, priority: ReconcilePriority, due: Instant) {
        self.order += 1;
        let new = PendingKey { due, priority, order: self.order, counted_as_added: false };
        let entry = self.entries.entry(key.clone()).or_default();
        let running = entry.running.is_some();
        let merged = match entry.pending {
            None => new,
            Some(old) => PendingKey { due: old.due.min(new.due), priority: old.priority.min(new.priority), ..old },
        };
        let old = entry.pending.replace(merged);
        if !running {
            old.iter().for_each(|old| self.unschedule(&key, *old));
            self.scheduled.insert((merged.due, merged.order, key));
        }
    }

    fn unschedule(&mut self, key: &K, pending: PendingKey) {
        self.scheduled.remove(&(pending.due, pending.order, key.clone()));
        self.ready.remove(&(pending.priority, pending.order, key.clone()));
    }

    fn promote(&mut self, now: Instant) {
        while let Some((due, order, key)) = self.scheduled.pop_first() {
            if due > now {
                self.scheduled.insert((due, order, key));
                return;
            }
            let pending = self.entries.get_mut(&key).and_then(|entry| entry.pending.as_mut());
            if let Some(pending) = pending {
                self.became_due += u64::from(!std::mem::replace(&mut pending.counted_as_added, true));
                self.ready.insert((pending.priority, order, key));
            }
        }
    }

    /// Returns the most urgent due key, which counts as running from here on.
    pub fn next(&mut self, now: Instant) -> NextKey<K> {
        self.promote(now);
        let Some((_, _, key)) = self.ready.pop_first() else {
            return self.scheduled.first().map_or(NextKey::Idle, |(due, _, _)| NextKey::WaitUntil(*due));
        };
        let entry = self.entries.entry(key.clone()).or_default();
        let due = entry.pending.take().map_or(now, |pending| pending.due);
        entry.running = Some(now);
        NextKey::Run(key, now.saturating_duration_since(due))
    }

    /// Records the end of a reconcile, and returns its duration.
    pub fn finish(&mut self, key: &K, outcome: ReconcileResult, now: Instant) -> Duration {
        let is_rejected = matches!(outcome, ReconcileResult::Rejected(_));
        let crowd_pause = if is_rejected { self.crowd_pause() } else { Duration::ZERO };
        let Some(entry) = self.entries.get_mut(key) else { return Duration::ZERO };
        let Some(start) = entry.running.take() else { return Duration::ZERO };
        let duration = now.saturating_duration_since(start);
        entry.is_rejected = is_rejected;
        if outcome != ReconcileResult::Done {
            // A resync that was added meanwhile must not shorten the wait; every other reason does.
            entry.pending = entry.pending.filter(|pending| pending.priority != ReconcilePriority::Resync);
        }
        let failures = entry.failures.saturating_add(1);
        let (failures, requeue) = match outcome {
            ReconcileResult::Done => (0, None),
            ReconcileResult::RequeueAfter(delay, reason) => {
                (entry.failures, Some((delay.clamp(REQUEUE_BOUNDS.0, REQUEUE_BOUNDS.1), reason)))
            }
            ReconcileResult::Failed(reason) => (failures, Some((self.backoff.delay(failures), reason))),
            ReconcileResult::Rejected(reason) => (failures, Some((REJECTED.delay(failures).max(crowd_pause), reason))),
        };
        let (delay, reason) = requeue.unzip();
        (entry.failures, entry.reason) = (failures, reason);
        let pending = entry.pending;
        if let Some(pending) = pending {
            self.scheduled.insert((pending.due, pending.order, key.clone()));
        }
        if let Some(delay) = delay {
            let priority = pending.map_or(ReconcilePriority::Resync, |pending| pending.priority);
            self.merge(key.clone(), priority, now + delay);
        }
        if self.entries.get(key).is_some_and(QueuedKeyState::is_idle) {
            self.entries.remove(key);
        }
        duration
    }

    /// Returns the shortest delay that limits the attempts of all rejected keys together.
    ///
    /// Of the running keys, it counts the share that was rejected so far.
    fn crowd_pause(&self) -> Duration {
        let count = |matches: fn(&QueuedKeyState) -> bool| self.entries.values().filter(|entry| matches(entry)).count();
        let rejected = count(|entry| entry.is_rejected) + 1;
        let running = count(|entry| entry.running.is_some() && !entry.is_rejected);
        let crowd = u32::try_from(rejected + running.min(4 * rejected)).unwrap_or(u32::MAX);
        REJECTED_SHARE.saturating_mul(crowd).min(REJECTED.max)
    }

    /// Removes the key of a deleted object. A running reconcile is not interrupted.
    ///
    /// Otherwise, the queue of a standby replica would keep the key of every object that ever existed.
    pub fn forget(&mut self, key: &K) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let pending = entry.pending.take();
        if entry.running.is_none() {
            self.entries.remove(key);
            pending.iter().for_each(|pending| self.unschedule(key, *pending));
        }
    }

    /// Returns the number of keys that became due since the last call.
    ///
    /// A due key counts once until it runs, however often it is added.
    pub fn take_added(&mut self) -> u64 {
        std::mem::take(&mut self.became_due)
    }

    /// Returns the number of keys that are due and do not run.
    pub fn depth(&mut self, now: Instant) -> usize {
        self.promote(now);
        self.ready.len()
    }

    /// Ages of running reconciles: their sum and the oldest.
    pub fn running_ages(&self, now: Instant) -> (Duration, Duration) {
        let ages = self.entries.values().filter_map(|e| e.running).map(|start| now.saturating_duration_since(start));
        ages.fold((Duration::ZERO, Duration::ZERO), |(sum, oldest), age| (sum + age, oldest.max(age)))
    }

    /// Returns all keys that are pending, running or failing, in key order.
    pub fn unsettled(&self, now: Instant) -> Vec<UnsettledKey> {
        let mut keys: Vec<_> = self.entries.iter().collect();
        keys.sort_by(|a, b| a.0.cmp(b.0));
        let row = |(key, entry): (&K, &QueuedKeyState)| UnsettledKey {
            key: key.to_string(),
            running_for_seconds: entry.running.map(|start| now.saturating_duration_since(start).as_secs_f64()),
            due_in_seconds: entry.pending.map(|pending| pending.due.saturating_duration_since(now).as_secs_f64()),
            failures: entry.failures,
            reason: entry.reason.clone(),
            class: None,
        };
        keys.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests;

//! Loop that reconciles due keys: key → reconcile → [`ReconcileResult`].
//!
//! In: keys, added by informers' handlers on every replica, leading or not. Keys are deduplicated, and handlers remove those
//! of deleted objects, so the number of objects bounds the queue of a standby. Out: calls of the controller's reconcile
//! function, each in its own task; a panic fails only its key.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    hash::Hash,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::{sync::Notify, task::JoinSet, time::Instant};

use super::{
    clock::Clock,
    shutdown::Shutdown,
    work_queue::{KeyBackoff, NextKey, ReconcilePriority, ReconcileResult, WorkQueue},
};
use crate::{metrics::Metrics, status::UnsettledKey};

/// Handle on a work queue. Clones are the same queue.
pub struct ReconcileQueue<K> {
    shared: Arc<ReconcileQueueShared<K>>,
}

impl<K> Clone for ReconcileQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

struct ReconcileQueueShared<K> {
    name: &'static str,
    /// Queue, whose lock is never held across an await.
    state: Mutex<WorkQueue<K>>,
    wake: Notify,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl<K> ReconcileQueue<K>
where
    K: Clone + Ord + Hash + fmt::Display + Send + Sync + 'static,
{
    /// Creates an empty queue; `name` is its label in the `workqueue_*` metrics.
    pub fn new(name: &'static str, backoff: KeyBackoff, clock: Clock, metrics: Arc<Metrics>) -> Self {
        // The metric exists from the start, so that the first panic is a change.
        metrics.reconcile_panics_total.with_label_values(&[name]);
        metrics.workqueue_retries_total.with_label_values(&[name]);
        let state = Mutex::new(WorkQueue::new(backoff));
        Self { shared: Arc::new(ReconcileQueueShared { name, state, wake: Notify::new(), clock, metrics }) }
    }

    /// Makes `key` due now.
    pub fn add(&self, key: K, priority: ReconcilePriority) {
        self.add_after(key, priority, Duration::ZERO);
    }

    /// Makes `key` due after `delay`, unless it is already due earlier.
    pub fn add_after(&self, key: K, priority: ReconcilePriority, delay: Duration) {
        self.shared.state.lock().add_at(key, priority, self.shared.clock.now() + delay);
        self.shared.wake.notify_one();
    }

    /// Removes `key`, whose object is deleted and needs no cleanup.
    pub fn forget(&self, key: &K) {
        self.shared.state.lock().forget(key);
    }

    /// Returns all keys that are pending, running or failing, in key order.
    pub fn unsettled(&self) -> Vec<UnsettledKey> {
        self.shared.state.lock().unsettled(self.shared.clock.now())
    }

    /// Updates the gauges. Called before metrics are read.
    pub fn observe(&self) {
        let now = self.shared.clock.now();
        let (depth, (sum, oldest), added) = {
            let mut state = self.shared.state.lock();
            (state.depth(now), state.running_ages(now), state.take_added())
        };
        self.count_added(added);
        let (metrics, name) = (&self.shared.metrics, &[self.shared.name]);
        metrics.workqueue_depth.with_label_values(name).set(f64::from(u32::try_from(depth).unwrap_or(u32::MAX)));
        metrics.workqueue_unfinished_work.with_label_values(name).set(sum.as_secs_f64());
        metrics.workqueue_longest_running.with_label_values(name).set(oldest.as_secs_f64());
    }

    fn next(&self) -> NextKey<K> {
        let (next, added) = {
            let mut state = self.shared.state.lock();
            (state.next(self.shared.clock.now()), state.take_added())
        };
        self.count_added(added);
        if let NextKey::Run(_, waited) = &next {
            let duration = &self.shared.metrics.workqueue_queue_duration;
            duration.with_label_values(&[self.shared.name]).observe(waited.as_secs_f64());
        }
        next
    }

    fn count_added(&self, added: u64) {
        let added = f64::from(u32::try_from(added).unwrap_or(u32::MAX));
        self.shared.metrics.workqueue_adds_total.with_label_values(&[self.shared.name]).inc_by(added);
    }

    fn finish(&self, key: &K, outcome: ReconcileResult) {
        let (metrics, name) = (&self.shared.metrics, &[self.shared.name]);
        if let ReconcileResult::Failed(reason) = &outcome {
            metrics.workqueue_retries_total.with_label_values(name).inc();
            tracing::warn!(queue = self.shared.name, %key, reason, "reconcile failed, retrying with backoff");
        }
        let duration = self.shared.state.lock().finish(key, outcome, self.shared.clock.now());
        metrics.workqueue_work_duration.with_label_values(name).observe(duration.as_secs_f64());
    }

    /// Reconciles due keys until `shutdown` begins, then waits for running reconciles and returns.
    ///
    /// At most `limit` keys run concurrently (`None`: no limit). Other keys remain in the queue.
    pub async fn run<F, R>(&self, limit: Option<usize>, shutdown: &Shutdown, reconcile: F)
    where
        F: Fn(K) -> R,
        R: Future<Output = ReconcileResult> + Send + 'static,
    {
        self.run_in_passes(limit, shutdown, reconcile, |_| ()).await;
    }

    /// Reconciles like [`ReconcileQueue::run`], and reports the duration of each pass to `observe`.
    ///
    /// A pass lasts from the start of a first reconcile until none runs and no key is due.
    pub async fn run_in_passes<F, R>(
        &self,
        limit: Option<usize>,
        shutdown: &Shutdown,
        reconcile: F,
        observe: impl Fn(Duration),
    ) where
        F: Fn(K) -> R,
        R: Future<Output = ReconcileResult> + Send + 'static,
    {
        let limit = limit.unwrap_or(usize::MAX);
        let mut running = JoinSet::new();
        let mut keys: HashMap<tokio::task::Id, K> = HashMap::new();
        let mut pass_start = None;
        loop {
            let wait_until = self.start_due(limit, &mut running, &mut keys, &reconcile, shutdown);
            let now = self.shared.clock.now();
            if !running.is_empty() {
                pass_start.get_or_insert(now);
            } else if let Some(start) = pass_start.take() {
                observe(now.saturating_duration_since(start));
            }
            tokio::select! {
                biased;
                () = shutdown.begun() => break,
                Some(ended) = running.join_next_with_id() => self.finish_task(ended, &mut keys),
                () = self.shared.wake.notified(), if running.len() < limit => {}
                () = tokio::time::sleep_until(wait_until.unwrap_or(now)), if wait_until.is_some() => {}
            }
        }
        while let Some(ended) = running.join_next_with_id().await {
            self.finish_task(ended, &mut keys);
        }
    }

    /// Starts due keys up to the limit. Returns when the next key is due; `None` if there is none or the limit is reached.
    fn start_due<F, R>(
        &self,
        limit: usize,
        running: &mut JoinSet<ReconcileResult>,
        keys: &mut HashMap<tokio::task::Id, K>,
        reconcile: &F,
        shutdown: &Shutdown,
    ) -> Option<Instant>
    where
        F: Fn(K) -> R,
        R: Future<Output = ReconcileResult> + Send + 'static,
    {
        while running.len() < limit && !shutdown.has_begun() {
            match self.next() {
                NextKey::Run(key, _) => {
                    let task = running.spawn(isolated(reconcile, key.clone()));
                    keys.insert(task.id(), key);
                }
                NextKey::WaitUntil(due) => return Some(due),
                NextKey::Idle => return None,
            }
        }
        None
    }

    fn finish_task(
        &self,
        ended: Result<(tokio::task::Id, ReconcileResult), tokio::task::JoinError>,
        keys: &mut HashMap<tokio::task::Id, K>,
    ) {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                self.shared.metrics.reconcile_panics_total.with_label_values(&[self.shared.name]).inc();
                (error.id(), ReconcileResult::Failed(format!("reconcile panicked: {error}")))
            }
        };
        if let Some(key) = keys.remove(&id) {
            self.finish(&key, outcome);
        }
    }
}

/// Returns the reconcile of `key`. If `reconcile` panics before it returns its future, the returned future panics instead.
fn isolated<K, F, R>(reconcile: &F, key: K) -> impl Future<Output = ReconcileResult> + Send + 'static + use<K, F, R>
where
    F: Fn(K) -> R,
    R: Future<Output = ReconcileResult> + Send + 'static,
{
    match catch_unwind(AssertUnwindSafe(|| reconcile(key))) {
        Ok(work) => work.left_future(),
        Err(panic) => async move { resume_unwind(panic) }.right_future(),
    }
}

#[cfg(test)]
mod tests;

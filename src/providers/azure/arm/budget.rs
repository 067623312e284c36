//! Admission of requests: token buckets that mirror ARM's own quotas, corrected by the remaining quotas that ARM reports.
//!
//! In: the charge and urgency of a request, with the namespaces that cause it; later, the status and headers of its response.
//! Out: admission, sooner for more urgent requests and for namespaces that have used less. Callers wait; they do not fail. The
//! decisions are in `limits`, `buckets`, `usage`, `queue` and `quota_headers`; this file holds the lock and the timer.

mod buckets;
mod charge;
mod delay;
mod gate;
mod limits;
mod queue;
mod quota_headers;
mod status;
mod urgency;
mod usage;
mod window;

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

pub use charge::{Causes, ChargeTarget, ChargedOperation, RequestCharge};
pub use delay::RequestDelay;
pub use gate::{RequestGate, SendPermit, ServiceCount};
pub use limits::BudgetSettings;
pub use urgency::Urgency;

use self::{
    buckets::QuotaBuckets,
    queue::{BudgetQueue, QueueClaim, QueueTicket},
    quota_headers::{QuotaHeaders, QuotaUpdate},
};
use super::retry_after::retry_after;
use crate::{
    metrics::Metrics,
    providers::azure::metrics::{AzureMetrics, OTHER},
    runtime::clock::Clock,
    status::BudgetStatus,
};

/// Interval of gauge updates while a bucket refills.
const REFRESH: Duration = Duration::from_secs(10);
/// Minimum wait for a quota that is logged.
const LOGGED_WAIT: Duration = Duration::from_secs(5);
/// Minimum time between two log lines about waits.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Gate that every ARM request passes. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct Budget {
    shared: Arc<BudgetShared>,
}

struct BudgetShared {
    settings: BudgetSettings,
    metrics: Arc<Metrics>,
    clock: Clock,
    state: Mutex<BudgetState>,
    /// Signal to the driver to run earlier than planned.
    earlier: Notify,
}

#[derive(Default)]
struct BudgetState {
    buckets: QuotaBuckets,
    queue: BudgetQueue,
    /// Senders that admit the waiting callers.
    callers: HashMap<u64, oneshot::Sender<()>>,
    /// Time of the next run of the driver; `None` while no driver runs.
    driver: Option<Instant>,
    /// Time of the last log line about waiting requests.
    logged: Option<Instant>,
}

impl BudgetState {
    /// Admits all callers that can send. Returns when to run again, if any caller still waits.
    fn admit(&mut self, now: Instant) -> Option<Instant> {
        let queued = self.queue.admit(&mut self.buckets, now);
        for number in queued.tickets {
            // A cancelled caller has returned its tokens: see `QueueEntry`.
            self.callers.remove(&number).map(|caller| caller.send(()));
        }
        queued.retry_at
    }

    /// Logs a long wait, at most once per [`LOG_INTERVAL`], because hundreds of requests may wait for the same quota.
    fn log(&mut self, delay: &RequestDelay, now: Instant) {
        let is_long = delay.until.saturating_duration_since(now) >= LOGGED_WAIT;
        if is_long && self.logged.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL) {
            self.logged = Some(now);
            let seconds = delay.until.duration_since(now).as_secs();
            let RequestDelay { quota, subscription, .. } = delay;
            tracing::warn!(quota, subscription, seconds, "requests to Azure wait for a request quota; /statusz shows it");
        }
    }
}

impl Budget {
    /// Creates a budget with full buckets.
    pub fn new(settings: BudgetSettings, metrics: Arc<Metrics>, clock: Clock) -> Self {
        let (state, earlier) = (Mutex::default(), Notify::new());
        Self { shared: Arc::new(BudgetShared { settings, metrics, clock, state, earlier }) }
    }

    /// Returns `previous` with its state if its settings are the same, otherwise a new budget.
    pub fn renewed(previous: Option<&Self>, settings: BudgetSettings, metrics: &Arc<Metrics>, clock: Clock) -> Self {
        let same = previous.filter(|previous| previous.shared.settings == settings);
        same.cloned().unwrap_or_else(|| Self::new(settings, Arc::clone(metrics), clock))
    }

    /// Waits until the request may be sent, and takes its tokens. Returns the waiting time.
    ///
    /// Dropping the future leaves the queue and takes nothing. Must run inside a tokio runtime.
    pub async fn acquire(&self, charge: &RequestCharge, urgency: Urgency) -> Duration {
        self.wait_in_queue(charge, QueueClaim { causes: charge.causes.clone(), ..urgency.into() }).await
    }

    /// Returns the usage of the namespaces of `charge`; `None` while enough is left for all namespaces.
    fn usage_while_scarce(&self, charge: &RequestCharge) -> Option<u32> {
        let charges = limits::bucket_charges(charge, &self.shared.settings);
        let (state, now) = (self.shared.state.lock(), self.shared.clock.now());
        state.buckets.is_scarce(&charges, now).then(|| state.buckets.usage.of_causes(&charge.causes, now))
    }

    async fn wait_in_queue(&self, charge: &RequestCharge, claim: QueueClaim) -> Duration {
        let (shared, urgency) = (&self.shared, claim.urgency);
        let start = shared.clock.now();
        let charges = limits::bucket_charges(charge, &shared.settings);
        let (sender, mut receiver) = oneshot::channel();
        let (mut entry, obstacle) = {
            let mut state = shared.state.lock();
            let obstacle = state.buckets.send_time(&charges, |_| 0.0, start);
            let ticket = state.queue.join(charges, claim, start);
            state.callers.insert(ticket.number, sender);
            let quota = ticket.charges.get(obstacle.limiting_bucket);
            quota.into_iter().for_each(|charge| state.log(&RequestDelay::new(&charge.id, obstacle.at, None), start));
            shared.admit_and_schedule(&mut state, start);
            (QueueEntry { shared: Arc::clone(shared), ticket, is_admitted: false }, obstacle)
        };
        // An error would mean that the state was dropped, which `entry` prevents.
        let _ = (&mut receiver).await;
        entry.is_admitted = true;
        let waited = shared.clock.now().saturating_duration_since(start);
        let obstacle = entry.ticket.charges.get(obstacle.limiting_bucket).filter(|_| !waited.is_zero());
        if let Some(metrics) = shared.metrics.table::<AzureMetrics>() {
            let labels = [obstacle.map_or("none", |charge| charge.id.name.as_ref()), urgency.as_str()];
            metrics.rows.azure_arm_budget_wait.with_label_values(&labels).observe(waited.as_secs_f64());
        }
        waited
    }

    /// Returns the buckets in use, for the status page: remaining tokens, capacity, refill, share, other users, remaining pause, and the
    /// number of waiting requests by urgency.
    pub fn status(&self) -> BudgetStatus {
        let state = self.shared.state.lock();
        status::page(&state.buckets, &state.queue, &self.shared.settings, self.shared.clock.now())
    }
}

#[async_trait]
impl RequestGate for Budget {
    async fn acquire(&self, charge: &RequestCharge, urgency: Urgency) {
        Budget::acquire(self, charge, urgency).await;
    }

    async fn enter(&self, charge: &RequestCharge, urgency: Urgency, services: &ServiceCount<'_>) -> bool {
        let Some(used) = self.usage_while_scarce(charge) else { return false };
        // Counting Services is expensive: do it without the lock, and only while tokens are scarce.
        let allowance = usage::allowance(services());
        let waits = used > allowance;
        if waits {
            let claim = QueueClaim { urgency, causes: charge.causes.clone(), allowance: Some(allowance) };
            self.wait_in_queue(charge, claim).await;
        }
        waits
    }

    fn give_back(&self, charge: &RequestCharge, admitted: Instant) {
        let charges = limits::bucket_charges(charge, &self.shared.settings);
        let mut state = self.shared.state.lock();
        state.buckets.give_back(&charges, admitted, self.shared.clock.now());
        if charge.target != ChargeTarget::Permit {
            state.buckets.usage.remove(&charges, &charge.causes, admitted);
        }
        self.shared.wake_driver(&state);
    }

    fn delay(&self, namespace: &str) -> Option<RequestDelay> {
        let (state, now) = (self.shared.state.lock(), self.shared.clock.now());
        state.queue.longest_wait(namespace, &state.buckets, now)
    }

    fn observe(&self, charge: &RequestCharge, status: u16, headers: &HeaderMap, code: &str) {
        let shared = &self.shared;
        let retry_after = retry_after(headers, shared.clock.wall());
        let charges = limits::bucket_charges(charge, &shared.settings);
        let response = QuotaHeaders { status, headers, code, retry_after };
        let updates = quota_headers::quota_updates(charge.operation, &charges, &shared.settings, &response);
        let now = shared.clock.now();
        let mut state = shared.state.lock();
        for update in updates {
            match update {
                QuotaUpdate::AtMost(index, tokens) => state.buckets.at_most(&charges[index], tokens, now),
                QuotaUpdate::Remaining(index, tokens) => state.buckets.set_remaining(&charges[index], tokens, now),
                QuotaUpdate::Pause(index, pause) => {
                    if state.buckets.pause(&charges[index], now + pause, now) {
                        shared.count_pause(&charges[index].id, pause);
                    }
                }
            }
        }
        // A response can raise the tokens of a resource.
        if !state.queue.is_empty() {
            shared.wake_driver(&state);
        }
    }
}

impl BudgetShared {
    /// Wakes the driver if it runs; otherwise no caller waits.
    fn wake_driver(&self, state: &BudgetState) {
        if state.driver.is_some() {
            self.earlier.notify_one();
        }
    }

    /// Admits all callers that can send, and schedules the next run of the driver.
    fn admit_and_schedule(self: &Arc<Self>, state: &mut BudgetState, now: Instant) {
        let next = state.admit(now).unwrap_or(now + REFRESH);
        match state.driver {
            None => {
                state.driver = Some(next);
                tokio::spawn(drive(Arc::clone(self)));
            }
            Some(planned) if next < planned => self.earlier.notify_one(),
            Some(_) => {}
        }
    }

    fn count_pause(&self, id: &limits::BucketId, pause: Duration) {
        tracing::warn!(bucket = %id.name, subscription = id.subscription, resource = id.resource, seconds = pause.as_secs_f64(),
            "ARM throttled requests; requests of this quota pause");
        let subscription = if self.settings.is_labeled(&id.subscription) { id.subscription.as_str() } else { OTHER };
        let labels = [subscription, id.name.as_ref()];
        let Some(metrics) = self.metrics.table::<AzureMetrics>() else { return };
        metrics.rows.azure_arm_budget_pauses_total.with_label_values(&labels).inc();
        metrics.rows.azure_arm_budget_paused_seconds.with_label_values(&labels).inc_by(pause.as_secs_f64());
    }

    fn publish(&self, state: &BudgetState, now: Instant) {
        let Some(metrics) = self.metrics.table::<AzureMetrics>() else { return };
        let is_published = |id: &limits::BucketId| id.resource.is_none() && self.settings.is_labeled(&id.subscription);
        for (id, bucket) in state.buckets.iter().filter(|(id, _)| is_published(id)) {
            let labels = [id.subscription.as_str(), id.name.as_ref()];
            let remaining = if bucket.paused_for(now).is_zero() { bucket.remaining(now) } else { 0.0 };
            metrics.rows.azure_arm_budget_tokens.with_label_values(&labels).set(remaining);
            metrics.rows.azure_arm_budget_capacity.with_label_values(&labels).set(bucket.limit().capacity);
        }
    }

    /// Runs the driver once. Returns the time of its next run; `None` if no bucket changes.
    fn drive_once(&self) -> Option<Instant> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let next = state.admit(now);
        let is_full = state.buckets.tidy(now);
        self.publish(&state, now);
        let is_idle = is_full && state.queue.is_empty();
        state.driver = (!is_idle).then(|| next.map_or(now + REFRESH, |next| next.min(now + REFRESH)));
        state.driver
    }
}

/// Admits callers as tokens are refilled, and ends when all buckets are full: one timer for all callers.
async fn drive(shared: Arc<BudgetShared>) {
    while let Some(next) = shared.drive_once() {
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(next) => {}
            () = shared.earlier.notified() => {}
        }
    }
}

/// Caller's entry in the queue. Dropping it before admission is received leaves the queue, or returns the tokens.
struct QueueEntry {
    shared: Arc<BudgetShared>,
    ticket: QueueTicket,
    is_admitted: bool,
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        if self.is_admitted {
            return;
        }
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        state.callers.remove(&self.ticket.number);
        if !state.queue.leave(&self.ticket) {
            self.ticket.give_back(&mut state.buckets, now);
        }
        self.shared.wake_driver(&state);
    }
}

#[cfg(test)]
mod tests;

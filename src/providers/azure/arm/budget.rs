//! Admission of requests: token buckets that mirror ARM's own quotas, corrected by the remaining quotas that ARM reports.
//!
//! In: the charge of a request with the namespaces that cause it, and its urgency; after it, the response's status and headers.
//! Out: permission, sooner for more urgent requests and for namespaces that have used less. Callers wait, they do not fail. The
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

/// Interval at which the gauges are updated while a bucket refills.
const REFRESH: Duration = Duration::from_secs(10);
/// A wait for a quota from which on it is logged, and the time between two lines.
const LOGGED_WAIT: Duration = Duration::from_secs(5);
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The gate that every ARM request passes. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct Budget {
    shared: Arc<BudgetShared>,
}

struct BudgetShared {
    settings: BudgetSettings,
    metrics: Arc<Metrics>,
    clock: Clock,
    state: Mutex<BudgetState>,
    /// Notified when the driver must run earlier than planned.
    earlier: Notify,
}

#[derive(Default)]
struct BudgetState {
    buckets: QuotaBuckets,
    queue: BudgetQueue,
    /// Senders that admit the waiting callers.
    callers: HashMap<u64, oneshot::Sender<()>>,
    /// Next run of the driver; `None` while there is none.
    driver: Option<Instant>,
    /// Time of the last log line about waiting requests.
    logged: Option<Instant>,
}

impl BudgetState {
    /// Admits all callers that can send. Returns when to run again, if any caller still waits.
    fn admit(&mut self, now: Instant) -> Option<Instant> {
        let queued = self.queue.admit(&mut self.buckets, now);
        for number in queued.tickets {
            // A caller that is gone gives its tokens back itself: see `QueuePlace`.
            self.callers.remove(&number).map(|caller| caller.send(()));
        }
        queued.retry_at
    }

    /// Logs a long wait, unless there was a line a moment ago: hundreds of requests wait for the same quota.
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

    /// Creates a budget with these settings: `before` with all it knows, if it has them already, else a new one.
    pub fn renewed(before: Option<&Self>, settings: BudgetSettings, metrics: &Arc<Metrics>, clock: Clock) -> Self {
        let same = before.filter(|before| before.shared.settings == settings);
        same.cloned().unwrap_or_else(|| Self::new(settings, Arc::clone(metrics), clock))
    }

    /// Waits until the request may be sent, and takes its tokens. Returns the waiting time.
    ///
    /// Dropping the future leaves the queue and takes nothing. Must run inside a tokio runtime.
    pub async fn acquire(&self, charge: &RequestCharge, urgency: Urgency) -> Duration {
        self.wait_in_queue(charge, QueueClaim { causes: charge.causes.clone(), ..urgency.into() }).await
    }

    /// Returns what the namespaces of `charge` have used, unless enough is left for all namespaces.
    fn usage_while_scarce(&self, charge: &RequestCharge) -> Option<u32> {
        let charges = limits::bucket_charges(charge, &self.shared.settings);
        let (state, now) = (self.shared.state.lock(), self.shared.clock.now());
        state.buckets.is_scarce(&charges, now).then(|| state.buckets.usage.of_causes(&charge.causes, now))
    }

    async fn wait_in_queue(&self, charge: &RequestCharge, claim: QueueClaim) -> Duration {
        let (shared, urgency) = (&self.shared, claim.urgency);
        let start = shared.clock.now();
        let drains = limits::bucket_charges(charge, &shared.settings);
        let (sender, mut receiver) = oneshot::channel();
        let (mut index, obstacle) = {
            let mut state = shared.state.lock();
            let obstacle = state.buckets.send_time(&drains, |_| 0.0, start);
            let ticket = state.queue.join(drains, claim, start);
            state.callers.insert(ticket.number, sender);
            let quota = ticket.charges.get(obstacle.limiting_bucket);
            quota.into_iter().for_each(|charge| state.log(&RequestDelay::new(&charge.id, obstacle.at, None), start));
            shared.admit_and_schedule(&mut state, start);
            (QueuePlace { shared: Arc::clone(shared), ticket, is_admitted: false }, obstacle)
        };
        // An error would mean that the state was dropped, which `index` prevents.
        let _ = (&mut receiver).await;
        index.is_admitted = true;
        let waited = shared.clock.now().saturating_duration_since(start);
        let obstacle = index.ticket.charges.get(obstacle.limiting_bucket).filter(|_| !waited.is_zero());
        if let Some(metrics) = shared.metrics.table::<AzureMetrics>() {
            let labels = [obstacle.map_or("none", |drain| drain.id.name.as_ref()), urgency.as_str()];
            metrics.rows.azure_arm_budget_wait.with_label_values(&labels).observe(waited.as_secs_f64());
        }
        waited
    }

    /// Returns every bucket in use, for the status page: what is left of what, refill, share, who shares it, seconds of
    /// pause, who waits for it by urgency.
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
        // Counted without the lock, and only when it matters.
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
        let drains = limits::bucket_charges(charge, &shared.settings);
        let response = QuotaHeaders { status, headers, code, retry_after };
        let lessons = quota_headers::quota_updates(charge.operation, &drains, &shared.settings, &response);
        let now = shared.clock.now();
        let mut state = shared.state.lock();
        for lesson in lessons {
            match lesson {
                QuotaUpdate::AtMost(index, tokens) => state.buckets.at_most(&drains[index], tokens, now),
                QuotaUpdate::Left(index, tokens) => state.buckets.set_left(&drains[index], tokens, now),
                QuotaUpdate::Pause(index, pause) => {
                    if state.buckets.pause(&drains[index], now + pause, now) {
                        shared.count_pause(&drains[index].id, pause);
                    }
                }
            }
        }
        // What is left may be more than was thought.
        if !state.queue.is_empty() {
            shared.wake_driver(&state);
        }
    }
}

impl BudgetShared {
    /// Wakes the driver. Without one no caller waits, and a runtime may be shutting down.
    fn wake_driver(&self, state: &BudgetState) {
        if state.driver.is_some() {
            self.earlier.notify_one();
        }
    }

    /// Admits all callers that can send, and makes sure that the driver runs in time.
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
        let subscription = if self.settings.is_labelled(&id.subscription) { id.subscription.as_str() } else { OTHER };
        let labels = [subscription, id.name.as_ref()];
        let Some(metrics) = self.metrics.table::<AzureMetrics>() else { return };
        metrics.rows.azure_arm_budget_pauses_total.with_label_values(&labels).inc();
        metrics.rows.azure_arm_budget_paused_seconds.with_label_values(&labels).inc_by(pause.as_secs_f64());
    }

    fn publish(&self, state: &BudgetState, now: Instant) {
        let Some(metrics) = self.metrics.table::<AzureMetrics>() else { return };
        let shown = |id: &limits::BucketId| id.resource.is_none() && self.settings.is_labelled(&id.subscription);
        for (id, bucket) in state.buckets.iter().filter(|(id, _)| shown(id)) {
            let labels = [id.subscription.as_str(), id.name.as_ref()];
            let remaining = if bucket.paused_for(now).is_zero() { bucket.left(now) } else { 0.0 };
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
        let at_rest = is_full && state.queue.is_empty();
        state.driver = (!at_rest).then(|| next.map_or(now + REFRESH, |next| next.min(now + REFRESH)));
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

/// A caller's place in the queue. Dropped before the request is sent, it gives the place or the tokens back.
struct QueuePlace {
    shared: Arc<BudgetShared>,
    ticket: QueueTicket,
    is_admitted: bool,
}

impl Drop for QueuePlace {
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

//! Token buckets over (now): what is left, when the next token is there, what a correction or a pause does. Pure.
//!
//! In: the buckets a request drains, and corrections. Out: taken, or when to ask again. A bucket that was never used is full; a
//! full bucket of a single resource is forgotten, so memory follows what is in use.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::{
    limits::{BucketCharge, BucketId, BucketLimit, QuotaLevel},
    usage::NamespaceUsage,
    window::{STRICT_FOR, SendWindow},
};

/// Tolerance of rounding errors: far below one token, far above the error of summed refills.
const EPSILON: f64 = 1e-6;

/// Longest computed wait; a bucket that refills slower is evaluated again then.
const HORIZON: f64 = 3600.0;

/// Token bucket. `at` is in the future while it is paused: until then it neither admits nor fills.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct QuotaBucket {
    limit: BucketLimit,
    tokens: f64,
    at: Instant,
    sends: SendWindow,
    /// Until when it borrows nothing.
    strict_until: Option<Instant>,
}

impl QuotaBucket {
    fn full(limit: BucketLimit, now: Instant) -> Self {
        Self { limit, tokens: limit.capacity, at: now, sends: SendWindow::default(), strict_until: None }
    }

    fn refill(&mut self, now: Instant) {
        self.tokens = self.tokens(now);
        self.at = self.at.max(now);
    }

    pub(super) fn limit(&self) -> BucketLimit {
        self.limit
    }

    fn tokens(&self, now: Instant) -> f64 {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.tokens + elapsed * self.limit.per_second).min(self.limit.capacity)
    }

    /// Returns the largest number of sends within five minutes, if they are counted.
    fn most_sends(&self, now: Instant) -> Option<f64> {
        let is_strict = self.strict_until.is_some_and(|until| now < until);
        self.limit.window.map(|window| if is_strict { window.share } else { window.borrowing })
    }

    /// Returns the tokens at `now`, or those that a paused bucket will start with.
    pub(super) fn left(&self, now: Instant) -> f64 {
        let of_window = self.most_sends(now).map_or(f64::MAX, |most| self.sends.left(most, now));
        self.tokens(now).min(of_window).max(0.0)
    }

    /// Returns the remaining pause.
    pub(super) fn paused_for(&self, now: Instant) -> Duration {
        self.at.saturating_duration_since(now)
    }

    /// Returns `true` if it is as if it had never been used.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.paused_for(now).is_zero() && self.tokens(now) >= self.limit.capacity - EPSILON
    }

    /// Returns when it holds `level` tokens, if none are taken.
    fn holds_at(&self, level: f64, now: Instant) -> Instant {
        let missing = level - self.tokens(now);
        let wait = if missing <= EPSILON { 0.0 } else { (missing / self.limit.per_second).min(HORIZON) };
        // Timers have whole milliseconds; a wait that rounds down to zero would loop.
        let wait = Duration::from_millis(Duration::from_secs_f64(wait).as_micros().div_ceil(1000).try_into().unwrap_or(0));
        let room = self.most_sends(now).map_or(now, |most| self.sends.room_at(level, most, now));
        (self.at.max(now) + wait).max(room)
    }
}

/// Time at which a request may be sent, and the bucket that delays it most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SendTime {
    /// The moment; not after `now` when it may go at once.
    pub(super) at: Instant,
    /// Index among its drains.
    pub(super) limiting_bucket: usize,
}

/// Buckets in use.
#[derive(Debug, Default, Clone)]
pub(super) struct QuotaBuckets {
    in_use: BTreeMap<BucketId, QuotaBucket>,
    /// Namespaces that used them.
    pub(super) usage: NamespaceUsage,
}

impl QuotaBuckets {
    fn bucket(&mut self, drain: &BucketCharge, now: Instant) -> &mut QuotaBucket {
        self.in_use.entry(drain.id.clone()).or_insert_with(|| QuotaBucket::full(drain.limit, now))
    }

    /// Returns `true` if a bucket of `charges` holds less than twice its reserve.
    pub(super) fn is_scarce(&self, charges: &[BucketCharge], now: Instant) -> bool {
        let remaining = |charge: &BucketCharge| self.in_use.get(&charge.id).map(|bucket| bucket.left(now));
        charges.iter().any(|charge| remaining(charge).is_some_and(|tokens| tokens < 2.0 * charge.limit.reserve()))
    }

    /// Returns when a request may be sent that must leave `reserved(charge)` tokens behind.
    pub(super) fn send_time(
        &self,
        drains: &[BucketCharge],
        reserved: impl Fn(&BucketCharge) -> f64,
        now: Instant,
    ) -> SendTime {
        let times = drains.iter().enumerate().map(|(index, drain)| {
            let needed = 1.0 + reserved(drain);
            let unused = QuotaBucket::full(drain.limit, now);
            let bucket = self.in_use.get(&drain.id).unwrap_or(&unused);
            SendTime { at: bucket.holds_at(needed, now), limiting_bucket: index }
        });
        times.max_by_key(|ready| ready.at).unwrap_or(SendTime { at: now, limiting_bucket: 0 })
    }

    /// Takes a token from each, for a request that may be sent at `now`.
    pub(super) fn take(&mut self, drains: &[BucketCharge], now: Instant) {
        for drain in drains {
            let bucket = self.bucket(drain, now);
            bucket.refill(now);
            bucket.tokens -= 1.0;
            if bucket.limit.window.is_some() {
                bucket.sends.add(1, now);
            }
        }
    }

    /// Puts back what [`Self::take`] took, by `admitted` at the latest, for a request that was not sent after all.
    pub(super) fn give_back(&mut self, drains: &[BucketCharge], admitted: Instant, now: Instant) {
        for drain in drains {
            let bucket = self.bucket(drain, now);
            bucket.refill(now);
            bucket.tokens = (bucket.tokens + 1.0).min(bucket.limit.capacity);
            bucket.sends.remove(1, admitted);
        }
    }

    /// Lowers the remaining tokens to at most `tokens`. Never raises them.
    pub(super) fn at_most(&mut self, drain: &BucketCharge, tokens: f64, now: Instant) {
        let bucket = self.bucket(drain, now);
        bucket.refill(now);
        bucket.tokens = bucket.tokens.min(tokens.max(0.0));
    }

    /// Sets the remaining tokens, or lowers them if the bucket is paused.
    pub(super) fn set_left(&mut self, drain: &BucketCharge, tokens: f64, now: Instant) {
        self.at_most(drain, tokens, now);
        let bucket = self.bucket(drain, now);
        if bucket.paused_for(now).is_zero() {
            bucket.tokens = tokens.clamp(0.0, bucket.limit.capacity);
        }
    }

    /// Pauses the bucket until `until`; then it admits one request, and the others at the refill. Never shortens a pause.
    /// Returns `true` if the bucket was running before.
    pub(super) fn pause(&mut self, drain: &BucketCharge, until: Instant, now: Instant) -> bool {
        let bucket = self.bucket(drain, now);
        let was_running = bucket.paused_for(now).is_zero();
        if until > bucket.at.max(now) {
            (bucket.tokens, bucket.at, bucket.strict_until) = (1.0, until, Some(until + STRICT_FOR));
        }
        was_running
    }

    /// Forgets full buckets of single resources. Answers whether every bucket is full.
    pub(super) fn tidy(&mut self, now: Instant) -> bool {
        self.usage.tidy(now);
        self.in_use.retain(|id, bucket| id.level != QuotaLevel::Resource || !bucket.is_full(now));
        self.in_use.values().all(|bucket| bucket.is_full(now))
    }

    /// Returns every bucket that was used.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&BucketId, &QuotaBucket)> {
        self.in_use.iter()
    }
}

#[cfg(test)]
pub(super) mod tests;

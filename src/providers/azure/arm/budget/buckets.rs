//! Token buckets: remaining tokens, refill, corrections and pauses. Pure: callers pass the time.
//!
//! In: the charges of a request, and corrections. Out: taken tokens, or the time at which to retry. A bucket that was never used is full.
//! A full bucket of a single resource is removed, which bounds the memory.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::{
    limits::{BucketCharge, BucketId, BucketLimit, QuotaLevel},
    usage::NamespaceUsage,
    window::{STRICT_FOR, SendWindow},
};

/// Tolerance for rounding errors: far below one token, far above the error of summed refills.
const EPSILON: f64 = 1e-6;

/// Maximum computed wait, in seconds. A bucket that refills more slowly is evaluated again after it.
const MAX_WAIT: f64 = 3600.0;

/// Token bucket. While it is paused, `at` is in the future: until then the bucket neither admits nor refills.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct QuotaBucket {
    limit: BucketLimit,
    tokens: f64,
    at: Instant,
    sends: SendWindow,
    /// End of the time without borrowing, after a 429.
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

    /// Returns the maximum number of requests within five minutes, if they are counted.
    fn max_sends(&self, now: Instant) -> Option<f64> {
        let is_strict = self.strict_until.is_some_and(|until| now < until);
        self.limit.window.map(|window| if is_strict { window.share } else { window.borrowing })
    }

    /// Returns the tokens at `now`; for a paused bucket, the tokens at the end of the pause.
    pub(super) fn remaining(&self, now: Instant) -> f64 {
        let of_window = self.max_sends(now).map_or(f64::MAX, |max| self.sends.remaining(max, now));
        self.tokens(now).min(of_window).max(0.0)
    }

    /// Returns the remaining pause.
    pub(super) fn paused_for(&self, now: Instant) -> Duration {
        self.at.saturating_duration_since(now)
    }

    /// Returns `true` if the bucket does not differ from an unused one.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.paused_for(now).is_zero() && self.tokens(now) >= self.limit.capacity - EPSILON
    }

    /// Returns the time at which the bucket holds `level` tokens, if none are taken.
    fn holds_at(&self, level: f64, now: Instant) -> Instant {
        let missing = level - self.tokens(now);
        let wait = if missing <= EPSILON { 0.0 } else { (missing / self.limit.per_second).min(MAX_WAIT) };
        // Timers have millisecond resolution; a wait that rounds down to zero would loop.
        let wait = Duration::from_millis(Duration::from_secs_f64(wait).as_micros().div_ceil(1000).try_into().unwrap_or(0));
        let room = self.max_sends(now).map_or(now, |max| self.sends.room_at(level, max, now));
        (self.at.max(now) + wait).max(room)
    }
}

/// Time at which a request may be sent, and the bucket that delays it most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SendTime {
    /// Time of the next possible send; not after `now` if the request may be sent immediately.
    pub(super) at: Instant,
    /// Index of the bucket among the charges of the request.
    pub(super) limiting_bucket: usize,
}

/// Buckets that requests have used, and the usage of namespaces.
#[derive(Debug, Default, Clone)]
pub(super) struct QuotaBuckets {
    in_use: BTreeMap<BucketId, QuotaBucket>,
    /// Writes of each namespace within the window.
    pub(super) usage: NamespaceUsage,
}

impl QuotaBuckets {
    fn bucket(&mut self, charge: &BucketCharge, now: Instant) -> &mut QuotaBucket {
        self.in_use.entry(charge.id.clone()).or_insert_with(|| QuotaBucket::full(charge.limit, now))
    }

    /// Returns `true` if a bucket of `charges` holds less than twice its reserve.
    pub(super) fn is_scarce(&self, charges: &[BucketCharge], now: Instant) -> bool {
        let remaining = |charge: &BucketCharge| self.in_use.get(&charge.id).map(|bucket| bucket.remaining(now));
        charges.iter().any(|charge| remaining(charge).is_some_and(|tokens| tokens < 2.0 * charge.limit.reserve()))
    }

    /// Returns the time at which a request may be sent that must leave `reserved(charge)` tokens in each bucket.
    pub(super) fn send_time(
        &self,
        charges: &[BucketCharge],
        reserved: impl Fn(&BucketCharge) -> f64,
        now: Instant,
    ) -> SendTime {
        let times = charges.iter().enumerate().map(|(index, charge)| {
            let needed = 1.0 + reserved(charge);
            let unused = QuotaBucket::full(charge.limit, now);
            let bucket = self.in_use.get(&charge.id).unwrap_or(&unused);
            SendTime { at: bucket.holds_at(needed, now), limiting_bucket: index }
        });
        times.max_by_key(|ready| ready.at).unwrap_or(SendTime { at: now, limiting_bucket: 0 })
    }

    /// Takes a token from each bucket, for a request that may be sent at `now`.
    pub(super) fn take(&mut self, charges: &[BucketCharge], now: Instant) {
        for charge in charges {
            let bucket = self.bucket(charge, now);
            bucket.refill(now);
            bucket.tokens -= 1.0;
            if bucket.limit.window.is_some() {
                bucket.sends.add(1, now);
            }
        }
    }

    /// Returns the tokens that [`Self::take`] took at `admitted` or before, for a request that was not sent.
    pub(super) fn give_back(&mut self, charges: &[BucketCharge], admitted: Instant, now: Instant) {
        for charge in charges {
            let bucket = self.bucket(charge, now);
            bucket.refill(now);
            bucket.tokens = (bucket.tokens + 1.0).min(bucket.limit.capacity);
            bucket.sends.remove(1, admitted);
        }
    }

    /// Lowers the remaining tokens to at most `tokens`. Never raises them.
    pub(super) fn at_most(&mut self, charge: &BucketCharge, tokens: f64, now: Instant) {
        let bucket = self.bucket(charge, now);
        bucket.refill(now);
        bucket.tokens = bucket.tokens.min(tokens.max(0.0));
    }

    /// Sets the remaining tokens, or lowers them if the bucket is paused.
    pub(super) fn set_remaining(&mut self, charge: &BucketCharge, tokens: f64, now: Instant) {
        self.at_most(charge, tokens, now);
        let bucket = self.bucket(charge, now);
        if bucket.paused_for(now).is_zero() {
            bucket.tokens = tokens.clamp(0.0, bucket.limit.capacity);
        }
    }

    /// Pauses the bucket until `until`; it then admits one request, and the others as it refills. Never shortens a pause.
    /// Returns `true` if the bucket was not paused before.
    pub(super) fn pause(&mut self, charge: &BucketCharge, until: Instant, now: Instant) -> bool {
        let bucket = self.bucket(charge, now);
        let was_running = bucket.paused_for(now).is_zero();
        if until > bucket.at.max(now) {
            (bucket.tokens, bucket.at, bucket.strict_until) = (1.0, until, Some(until + STRICT_FOR));
        }
        was_running
    }

    /// Removes full buckets of single resources. Returns `true` if every bucket is full.
    pub(super) fn tidy(&mut self, now: Instant) -> bool {
        self.usage.tidy(now);
        self.in_use.retain(|id, bucket| id.level != QuotaLevel::Resource || !bucket.is_full(now));
        self.in_use.values().all(|bucket| bucket.is_full(now))
    }

    /// Returns the used buckets, ordered by ID.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&BucketId, &QuotaBucket)> {
        self.in_use.iter()
    }
}

#[cfg(test)]
pub(super) mod tests;

//! Token bucket: a burst at once, then a rate per second. Pure.
//!
//! In: the time. Out: the wait for a token, or whether there is one. The bucket may owe tokens: a caller that
//! takes a missing token gets the time until it is available.

use std::time::Duration;

use tokio::time::Instant;

/// Token bucket, initially full.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    refilled_at: Instant,
}

impl TokenBucket {
    /// Creates a full bucket of at least one token. If `per_second` is not positive, no caller waits.
    pub fn new(per_second: f64, burst: f64, now: Instant) -> Self {
        Self { per_second, burst: burst.max(1.0), tokens: burst.max(1.0), refilled_at: now }
    }

    /// Takes a token, and returns the time until it is available.
    pub fn take(&mut self, now: Instant) -> Duration {
        if self.per_second <= 0.0 {
            return Duration::ZERO;
        }
        self.refill(now);
        self.tokens -= 1.0;
        Duration::from_secs_f64((-self.tokens).max(0.0) / self.per_second)
    }

    /// Takes a token if there is one.
    pub fn try_take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let allowed = self.tokens >= 1.0;
        if allowed {
            self.tokens -= 1.0;
        }
        allowed
    }

    /// Returns a token that was not needed.
    pub fn give_back(&mut self) {
        self.tokens += 1.0;
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.refilled_at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.burst);
        self.refilled_at = now.max(self.refilled_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_applies() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(10.0, 3.0, start);
        let waits: Vec<_> = (0..5).map(|_| bucket.take(start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        assert_eq!(bucket.take(start + Duration::from_millis(300)).as_millis(), 0, "the owed tokens are repaid");
        let later = start + Duration::from_secs(3600);
        assert_eq!(
            (0..4).map(|_| bucket.take(later).as_millis()).collect::<Vec<_>>(),
            [0, 0, 0, 100],
            "never more than the burst"
        );
    }

    #[test]
    fn without_a_rate_no_caller_waits() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(0.0, 0.0, now);
        assert!((0..100).all(|_| bucket.take(now).is_zero()));
    }

    #[test]
    fn refused_and_returned_tokens_cost_nothing() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(1.0 / 300.0, 2.0, start);
        assert_eq!(
            [0, 0, 0, 299, 300, 300].map(|at| bucket.try_take(start + Duration::from_secs(at))),
            [true, true, false, false, true, false]
        );
        bucket.give_back();
        assert!(bucket.try_take(start + Duration::from_secs(300)));
    }
}

//! A token bucket, filled by the second. In: its size and the time. Out: what remains, or the time to wait.

use tokio::time::Instant;

/// A bucket that holds `burst` requests and gains `per_second`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BucketSize {
    /// Most requests at once.
    pub burst: f64,
    /// Requests regained per second.
    pub per_second: f64,
}

impl BucketSize {
    /// Creates a bucket of `burst` requests that gains this many in a minute.
    pub fn per_minute(burst: f64, tokens: f64) -> Self {
        Self { burst, per_second: tokens / 60.0 }
    }

    /// Returns the size of `count` buckets together.
    pub fn times(self, count: f64) -> Self {
        Self { burst: self.burst * count, per_second: self.per_second * count }
    }
}

/// Content of one bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    size: BucketSize,
    level: f64,
    at: Instant,
}

impl Bucket {
    pub(super) fn full(size: BucketSize, now: Instant) -> Self {
        Self { size, level: size.burst, at: now }
    }

    /// Returns the whole seconds until it has a token, if it has none.
    pub(super) fn wait(&mut self, now: Instant) -> Option<u64> {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * self.size.per_second;
        *self = Self { level: (self.level + gained).min(self.size.burst), at: now, ..*self };
        (self.level < 1.0).then(|| whole(((1.0 - self.level) / self.size.per_second).ceil().max(1.0)))
    }

    /// Takes a token. Returns how many remain.
    pub(super) fn take(&mut self) -> String {
        self.level -= 1.0;
        format!("{:.0}", self.level.floor())
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded up and at least one")]
pub(super) fn whole(seconds: f64) -> u64 {
    seconds as u64
}

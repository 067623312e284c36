//! Exponential backoff: the delay after a number of failures. Pure.
//!
//! In: a policy, failures in a row, and a random number where there is jitter. Out: the delay. All retries in this program
//! use it; whether to retry at all is up to the caller.

use std::time::Duration;

/// Policy of a delay that grows with each failure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExponentialBackoff {
    /// Delay after the first failure.
    pub first: Duration,
    /// Factor between consecutive delays.
    pub factor: f64,
    /// Largest random share that is added to a delay: 0.2 adds up to a fifth.
    pub jitter: f64,
    /// Longest delay, including jitter.
    pub max: Duration,
}

impl ExponentialBackoff {
    /// Creates a policy whose delay doubles from `first` to `max`, without jitter.
    pub const fn doubling(first: Duration, max: Duration) -> Self {
        Self { first, factor: 2.0, jitter: 0.0, max }
    }

    /// Returns the delay after `failures` in a row, at least one, without jitter.
    pub fn delay(&self, failures: u32) -> Duration {
        self.delay_with(failures, 0.0)
    }

    /// Returns the delay with jitter. `random` is between 0 and 1.
    pub fn delay_with(&self, failures: u32, random: f64) -> Duration {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        // Infinity times zero would be NaN.
        let grown = self.factor.powi(exponent).min(f64::MAX);
        let seconds = self.first.as_secs_f64() * grown * (1.0 + self.jitter * random);
        Duration::try_from_secs_f64(seconds).unwrap_or(self.max).min(self.max)
    }

    /// Returns the delay after `previous`, for callers that store the delay rather than the failures.
    pub fn after(&self, previous: Option<Duration>) -> Duration {
        let grown = |pause: Duration| Duration::try_from_secs_f64(pause.as_secs_f64() * self.factor).unwrap_or(self.max);
        previous.map_or(self.first, grown).min(self.max)
    }
}

/// Returns `pause`, shorter by up to `share` of it. `random` is between 0 and 1; with 1 it is unchanged.
pub fn shortened(pause: Duration, share: f64, random: f64) -> Duration {
    pause.mul_f64(1.0 - share + share * random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn pauses_grow_to_the_longest_and_stay_there() {
        let doubling = ExponentialBackoff::doubling(millis(5), millis(1_000_000));
        let pauses = [0, 1, 2, 3, 18, 19, 40, u32::MAX].map(|failures| doubling.delay(failures).as_millis());
        assert_eq!(pauses, [5, 5, 10, 20, 655_360, 1_000_000, 1_000_000, 1_000_000]);
        let by_half = ExponentialBackoff { factor: 1.5, ..doubling };
        assert_eq!([1, 2, 3].map(|failures| by_half.delay(failures).as_micros()), [5000, 7500, 11_250]);
    }

    #[test]
    fn jitter_adds_up_to_its_share_and_never_passes_the_longest() {
        let backoff = ExponentialBackoff { jitter: 0.5, ..ExponentialBackoff::doubling(millis(1000), millis(2500)) };
        let rows = [(1, 0.0, 1000), (1, 1.0, 1500), (2, 0.2, 2200), (2, 1.0, 2500), (u32::MAX, 1.0, 2500)];
        for (failures, random, expected) in rows {
            assert_eq!(backoff.delay_with(failures, random).as_millis(), expected, "{failures} {random}");
        }
        let none = ExponentialBackoff { first: Duration::ZERO, ..backoff };
        assert_eq!(none.delay_with(u32::MAX, 1.0), Duration::ZERO, "zero does not grow");
        assert_eq!(
            [0.0, 0.5, 1.0, 7.0].map(|random| shortened(millis(800), 0.25, random).as_millis()),
            [600, 700, 800, 800]
        );
    }

    #[test]
    fn the_previous_delay_determines_the_next() {
        let backoff = ExponentialBackoff::doubling(millis(800), millis(30_000));
        let mut last = None;
        let pauses: Vec<_> = (0..7)
            .map(|_| {
                let pause = backoff.after(last);
                last = Some(pause);
                pause.as_millis()
            })
            .collect();
        assert_eq!(pauses, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000]);
        assert_eq!(backoff.after(Some(Duration::MAX)), backoff.max);
    }
}

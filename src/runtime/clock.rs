//! Injected time and randomness. Durations are measured on tokio's clock, which tests can pause; wall time then follows it.
//!
//! Tokio's clock does not advance while the machine is suspended. [`Uptime`] also measures on a clock that does.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    ops::Add,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Source of the current time.
#[derive(Debug, Clone, Copy, Default)]
pub enum Clock {
    #[default]
    System,
    /// Wall time that starts at a given moment and advances with tokio's (paused) clock.
    Manual {
        /// Wall time at `origin`.
        epoch: Timestamp,
        /// Time at which the clock was created.
        origin: Instant,
        /// Changes of the wall time since.
        jump: Option<&'static WallJump>,
    },
}

impl Clock {
    /// Creates a clock for tests, which starts at `epoch` and advances with `tokio::time`.
    pub fn manual(epoch: Timestamp) -> Self {
        Clock::Manual { epoch, origin: Instant::now(), jump: None }
    }

    /// Creates a clock for tests as [`Clock::manual`] does, whose wall time can be set. Leaks a few bytes.
    pub fn adjustable(epoch: Timestamp) -> (Self, &'static WallJump) {
        let jump: &'static WallJump = Box::leak(Box::default());
        (Clock::Manual { epoch, origin: Instant::now(), jump: Some(jump) }, jump)
    }

    /// Returns the monotonic time, for measuring and waiting.
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// Returns the time on both clocks, which differ on a suspended machine.
    pub fn uptime(&self) -> Uptime {
        match self {
            Clock::System => Uptime { running: Instant::now(), boot: since_boot() },
            Clock::Manual { .. } => Instant::now().into(),
        }
    }

    /// Returns the wall time, for timestamps in objects.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    pub fn wall(&self) -> Timestamp {
        match self {
            Clock::System => Timestamp::now(),
            Clock::Manual { epoch, origin, jump } => {
                let jump = jump.map_or(SignedDuration::ZERO, WallJump::get);
                *epoch + SignedDuration::try_from(origin.elapsed()).unwrap_or(SignedDuration::ZERO) + jump
            }
        }
    }

    /// Returns a random number from 0 up to but not including 1, for jitter.
    ///
    /// A manual clock derives it from the wall time and `purpose`, not from earlier calls: a repeated run waits as long as
    /// the first one, even if tasks call in another order.
    pub fn chance(&self, purpose: impl Hash) -> f64 {
        match self {
            Clock::System => rand::random(),
            Clock::Manual { .. } => share_of(&(self.wall(), purpose)),
        }
    }
}

/// Difference between a wall clock and the time that it would show if it had not been set.
#[derive(Debug, Default)]
pub struct WallJump(AtomicI64);

impl WallJump {
    /// Sets the clock this far ahead of where it would be; negative is behind.
    pub fn set(&self, ahead: SignedDuration) {
        self.0.store(ahead.as_secs(), Relaxed);
    }

    fn get(&self) -> SignedDuration {
        SignedDuration::from_secs(self.0.load(Relaxed))
    }
}

/// Returns a share below 1 that depends on `value` only.
fn share_of(value: &impl Hash) -> f64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    let upper = u32::try_from(hasher.finish() >> 32).unwrap_or_default();
    f64::from(upper) / (f64::from(u32::MAX) + 1.0)
}

/// Time on the clock that does not advance while the machine is suspended, and on the clock that does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uptime {
    /// Time on the clock of timers (`CLOCK_MONOTONIC`).
    running: Instant,
    /// Time since the start of the machine, including suspended time (`CLOCK_BOOTTIME`); `None` without such a clock, or for
    /// simulated time.
    boot: Option<Duration>,
}

impl Uptime {
    /// Returns the time on the clock of timers.
    pub fn running(&self) -> Instant {
        self.running
    }

    /// Returns `true` if `now`, on either clock, is at or after this moment.
    pub fn is_reached_at(&self, now: Uptime) -> bool {
        let on_boot_clock = self.boot.zip(now.boot).is_some_and(|(moment, now)| now >= moment);
        on_boot_clock || now.running >= self.running
    }

    /// Returns `true` if this moment has passed.
    pub fn is_over(&self) -> bool {
        self.is_reached_at(Uptime { running: Instant::now(), boot: self.boot.and_then(|_| since_boot()) })
    }
}

impl From<Instant> for Uptime {
    fn from(running: Instant) -> Self {
        Self { running, boot: None }
    }
}

impl Add<Duration> for Uptime {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self { running: self.running + later, boot: self.boot.map(|boot| boot + later) }
    }
}

#[cfg(target_os = "linux")]
fn since_boot() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::leader_election::{Leadership, LeadershipState};

    /// A moment `running` seconds from now on one clock and `boot` seconds on the other.
    fn moment(now: Uptime, running: u64, boot: u64) -> Uptime {
        let ahead = now + Duration::from_secs(boot);
        Uptime { running: now.running + Duration::from_secs(running), boot: ahead.boot }
    }

    #[test]
    fn a_moment_is_over_when_either_clock_says_so() {
        let start = Clock::System.uptime();
        let end = start + Duration::from_secs(10);
        for (running, boot, over) in [(9, 9, false), (10, 10, true), (0, 70, cfg!(target_os = "linux")), (10, 0, true)] {
            assert_eq!(end.is_reached_at(moment(start, running, boot)), over, "{running} {boot}");
        }
        let simulated = Uptime::from(start.running + Duration::from_secs(10));
        assert!(!simulated.is_reached_at(moment(start, 9, 70)), "a simulated clock has no other beside it");
    }

    #[tokio::test(start_paused = true)]
    async fn chance_repeats_with_time_and_purpose() {
        let clock = || Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        let (first, second) = (clock(), clock());
        assert_eq!(first.chance("a"), second.chance("a"));
        let shares: Vec<f64> = (0..1000).map(|number| first.chance(number)).collect();
        assert!(shares.iter().all(|share| (0.0..1.0).contains(share)));
        let mean = shares.iter().sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
        let before = first.chance("a");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_ne!(first.chance("a"), before);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn suspension_beyond_the_renew_deadline_ends_leadership() {
        let now = Clock::System.uptime();
        let (state, leadership) = Leadership::channel();
        state.send_replace(LeadershipState::Leading { until: now + Duration::from_secs(600) });
        assert!(leadership.is_leading());
        // The state after a suspension: the running clock has not advanced.
        let before = now.boot.map(|boot| boot.saturating_sub(Duration::from_nanos(1)));
        state.send_replace(LeadershipState::Leading { until: Uptime { boot: before, ..now + Duration::from_secs(600) } });
        assert!(!leadership.is_leading());
    }
}

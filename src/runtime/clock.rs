//! Time, injected. Durations are measured on tokio's clock, which tests pause; wall time follows it there.
//!
//! Tokio's clock stands still while the machine is suspended. What others count on must not: see [`Uptime`].

use std::{ops::Add, time::Duration};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Where "now" comes from.
#[derive(Debug, Clone, Copy, Default)]
pub enum Clock {
    /// The machine's clock.
    #[default]
    System,
    /// Wall time that starts at a given moment and advances with tokio's (paused) clock.
    Manual {
        /// Wall time at `origin`.
        epoch: Timestamp,
        /// When the clock was made.
        origin: Instant,
    },
}

impl Clock {
    /// A clock for tests: starts at `epoch` and moves with `tokio::time`.
    pub fn manual(epoch: Timestamp) -> Self {
        Clock::Manual { epoch, origin: Instant::now() }
    }

    /// Monotonic time, for measuring and waiting.
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// Both clocks that a suspended machine tells apart.
    pub fn uptime(&self) -> Uptime {
        match self {
            Clock::System => Uptime { running: Instant::now(), boot: since_boot() },
            Clock::Manual { .. } => Instant::now().into(),
        }
    }

    /// Wall time, for what is written into objects.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    pub fn wall(&self) -> Timestamp {
        match self {
            Clock::System => Timestamp::now(),
            Clock::Manual { epoch, origin } => {
                *epoch + SignedDuration::try_from(origin.elapsed()).unwrap_or(SignedDuration::ZERO)
            }
        }
    }
}

/// A moment on the clock that stands still while the machine is suspended, and on the one that does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uptime {
    /// The clock that waits are measured on (`CLOCK_MONOTONIC`).
    running: Instant,
    /// Time since the machine was started, suspended time included (`CLOCK_BOOTTIME`); `None` where there is no such clock, or time
    /// is simulated.
    boot: Option<Duration>,
}

impl Uptime {
    /// The moment on the clock that waits are measured on.
    pub fn running(&self) -> Instant {
        self.running
    }

    /// Whether `now`, on either clock, is at or after this moment.
    pub fn is_reached_at(&self, now: Uptime) -> bool {
        let on_boot_clock = self.boot.zip(now.boot).is_some_and(|(moment, now)| now >= moment);
        on_boot_clock || now.running >= self.running
    }

    /// Whether this moment is over.
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

    #[cfg(target_os = "linux")]
    #[test]
    fn who_was_suspended_beyond_the_renew_deadline_writes_no_more() {
        let now = Clock::System.uptime();
        let (state, leadership) = Leadership::channel();
        state.send_replace(LeadershipState::Leading { until: now + Duration::from_secs(600) });
        assert!(leadership.is_leading());
        // As seen after a minute of suspension: nothing has passed on the clock that stood still.
        let before = now.boot.map(|boot| boot.saturating_sub(Duration::from_nanos(1)));
        state.send_replace(LeadershipState::Leading { until: Uptime { boot: before, ..now + Duration::from_secs(600) } });
        assert!(!leadership.is_leading());
    }
}

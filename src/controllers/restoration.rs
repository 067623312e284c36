//! Rate limit for the restoration of a field that another writer keeps changing. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::runtime::backoff::ExponentialBackoff;

/// Delays between restorations of one object.
const PAUSE: ExponentialBackoff = ExponentialBackoff::doubling(Duration::from_secs(5), Duration::from_secs(300));
/// Time without a restoration after which the next one is immediate again.
pub(super) const QUIET_TIME: Duration = Duration::from_secs(3600);

/// Last restoration of an object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Restoration {
    at: Instant,
    /// Minimum time until the next restoration.
    pause: Duration,
}

impl Restoration {
    /// Creates the restoration at `now`. A recent `previous` one doubles the pause, up to 5 minutes.
    pub fn after(previous: Option<Self>, now: Instant) -> Self {
        let recent = previous.filter(|previous| previous.is_recent(now));
        Self { at: now, pause: PAUSE.after(recent.map(|recent| recent.pause)) }
    }

    /// Returns the time until the next restoration is allowed.
    pub fn remaining(&self, now: Instant) -> Duration {
        (self.at + self.pause).saturating_duration_since(now)
    }

    /// Returns `true` if a restoration at `now` would continue the same conflict.
    pub fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < QUIET_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_while_another_writer_interferes() {
        let mut now = Instant::now();
        let mut last = None;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let restoration = Restoration::after(last, now);
            pauses.push(restoration.remaining(now).as_secs());
            now += restoration.remaining(now);
            last = Some(restoration);
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(Restoration::after(last, now + QUIET_TIME).pause.as_secs(), 5);
        assert_eq!(last.unwrap().remaining(now + QUIET_TIME), Duration::ZERO);
    }
}

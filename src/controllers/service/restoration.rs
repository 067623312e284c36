//! Limits repeated restorations after another writer, and names what the writer removed. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::runtime::backoff::ExponentialBackoff;

/// Pauses between restorations of one Service.
const PAUSE: ExponentialBackoff = ExponentialBackoff::doubling(Duration::from_secs(5), Duration::from_secs(300));
/// After so long without a restoration, the next one is immediate again.
const QUIET_TIME: Duration = Duration::from_secs(3600);

/// The last restoration of a Service.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StatusRestoration {
    at: Instant,
    /// Least time until the next one.
    pause: Duration,
}

impl StatusRestoration {
    /// Returns the restoration that happens `now`, after `previous`.
    pub fn after(previous: Option<Self>, now: Instant) -> Self {
        let recent = previous.filter(|previous| now.saturating_duration_since(previous.at) < QUIET_TIME);
        Self { at: now, pause: PAUSE.after(recent.map(|recent| recent.pause)) }
    }

    /// Returns the time until the next one.
    pub fn remaining(&self, now: Instant) -> Duration {
        (self.at + self.pause).saturating_duration_since(now)
    }
}

/// Field that another writer removed, for people and for the label of the metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StrippedField(&'static str);

impl StrippedField {
    pub const ALL: [Self; 2] = [Self("finalizer"), Self("status")];

    pub fn as_str(self) -> &'static str {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_while_another_writer_fights() {
        let mut now = Instant::now();
        let mut last = None;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let restoration = StatusRestoration::after(last, now);
            pauses.push(restoration.remaining(now).as_secs());
            now += restoration.remaining(now);
            last = Some(restoration);
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(StatusRestoration::after(last, now + QUIET_TIME).pause.as_secs(), 5);
        assert_eq!(last.unwrap().remaining(now + QUIET_TIME), Duration::ZERO);
    }
}

//! Time, injected. Durations are measured on tokio's clock, which tests pause; wall time follows it there.

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

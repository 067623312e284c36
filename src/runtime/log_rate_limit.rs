//! Rate limit of log lines that requests can cause.
//!
//! In: a call before each line. Out: permission to log, with the number of omitted lines.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

const PAUSE: Duration = Duration::from_secs(1);

/// Rate limit of one kind of log line.
#[derive(Debug, Default)]
pub(crate) struct LogRateLimit(Mutex<(Option<Instant>, u64)>);

impl LogRateLimit {
    /// Returns how many lines were omitted since the last one, if a line may be written now.
    pub(crate) fn permit(&self) -> Option<u64> {
        let (last, hidden) = &mut *self.0.lock();
        let now = Instant::now();
        if last.is_some_and(|last| now.duration_since(last) < PAUSE) {
            *hidden += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(hidden))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_per_second_counts_the_omitted_lines() {
        let limit = LogRateLimit::default();
        assert_eq!([limit.permit(), limit.permit(), limit.permit()], [Some(0), None, None]);
        tokio::time::advance(PAUSE).await;
        assert_eq!([limit.permit(), limit.permit()], [Some(2), None]);
    }
}

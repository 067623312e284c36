//! Few lines in the log, whatever many requests do wrong.
//!
//! In: the wish to log. Out: whether to, and how many lines were left out before.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

const PAUSE: Duration = Duration::from_secs(1);

/// Of one kind of line.
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
    async fn a_line_a_second_says_how_many_it_stands_for() {
        let pace = LogRateLimit::default();
        assert_eq!([pace.permit(), pace.permit(), pace.permit()], [Some(0), None, None]);
        tokio::time::advance(PAUSE).await;
        assert_eq!([pace.permit(), pace.permit()], [Some(2), None]);
    }
}

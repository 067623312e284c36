//! Decides whether and when a request to the metadata service is repeated. Pure.
//!
//! Azure's documentation: 404, 410, 429 and 5xx are transient and must be retried; 404 and 410 may last for 70 s during maintenance
//! of the machine. After the attempts here, the queue of the node controller retries, so that the reason is reported between the two.

use std::time::Duration;

use crate::runtime::backoff::{self, ExponentialBackoff};

/// Reason why a request returned no document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataFailure {
    /// Request without a response.
    #[error("{0}")]
    NoResponse(String),
    /// Response with another status than 200.
    #[error("HTTP {status}{}", if text.is_empty() { String::new() } else { format!(": {text}") })]
    Refused {
        status: u16,
        /// Beginning of the body.
        text: String,
        /// Delay that the header `Retry-After` requests.
        retry_after: Option<Duration>,
    },
    /// HTTP 200 without the requested document.
    #[error("the response is not the requested document: {0}")]
    Malformed(String),
}

/// Number and duration of the attempts for a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataRetryPolicy {
    /// Time after the first attempt until which further attempts may begin.
    pub total: Duration,
    /// Timeout of an attempt.
    pub per_attempt: Duration,
    /// Whether 404 means that the document does not exist, instead of a transient error.
    pub may_be_missing: bool,
}

/// Delays between attempts, of which half is random.
const BACKOFF: ExponentialBackoff = ExponentialBackoff::doubling(Duration::from_millis(500), Duration::from_secs(8));

/// Returns the pause before the next attempt; `None` to stop. `attempts` counts the attempts during `elapsed`; `random` is between 0
/// and 1.
pub fn next_delay(
    failure: &MetadataFailure,
    policy: MetadataRetryPolicy,
    attempts: u32,
    elapsed: Duration,
    random: f64,
) -> Option<Duration> {
    let (is_transient, requested_delay) = match failure {
        MetadataFailure::NoResponse(_) => (true, None),
        MetadataFailure::Refused { status: 404, .. } if policy.may_be_missing => (false, None),
        MetadataFailure::Refused { status, retry_after, .. } => (matches!(status, 404 | 410 | 429 | 500..), *retry_after),
        MetadataFailure::Malformed(_) => (false, None),
    };
    // Half of the delay is random, because all machines of a rack may restart at the same time.
    let pause = backoff::shortened(BACKOFF.delay(attempts), 0.5, random).max(requested_delay.unwrap_or_default());
    (is_transient && elapsed.saturating_add(pause) < policy.total).then_some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: MetadataRetryPolicy =
        MetadataRetryPolicy { total: Duration::from_secs(30), per_attempt: Duration::from_secs(10), may_be_missing: false };

    fn refused(status: u16, after: Option<u64>) -> MetadataFailure {
        MetadataFailure::Refused { status, text: String::new(), retry_after: after.map(Duration::from_secs) }
    }

    #[test]
    fn transient_failures_are_retried() {
        for (failure, expected) in [
            (refused(404, None), true),
            (refused(410, None), true),
            (refused(429, None), true),
            (refused(500, None), true),
            (refused(503, None), true),
            (refused(400, None), false),
            (refused(403, None), false),
            (refused(405, None), false),
            (refused(429, Some(31)), false),
            (MetadataFailure::NoResponse("down".into()), true),
            (MetadataFailure::Malformed("<html>".into()), false),
        ] {
            assert_eq!(next_delay(&failure, POLICY, 1, Duration::ZERO, 0.0).is_some(), expected, "{failure:?}");
        }
        assert_eq!(next_delay(&refused(429, Some(u64::MAX)), POLICY, 3, Duration::from_secs(2), 0.0), None, "no overflow");
        let missing = MetadataRetryPolicy { may_be_missing: true, ..POLICY };
        assert_eq!(next_delay(&refused(404, None), missing, 1, Duration::ZERO, 0.0), None);
        assert!(next_delay(&refused(410, None), missing, 1, Duration::ZERO, 0.0).is_some());
    }

    #[test]
    fn pauses_grow_with_jitter_up_to_the_total_time() {
        let after = |attempts, elapsed, random| {
            let elapsed = Duration::from_secs(elapsed);
            next_delay(&refused(500, None), POLICY, attempts, elapsed, random).map(|pause| pause.as_millis())
        };
        assert_eq!(
            [1, 2, 3, 4, 5, 40].map(|attempts| after(attempts, 0, 1.0)),
            [500, 1000, 2000, 4000, 8000, 8000].map(Some)
        );
        assert_eq!(after(3, 0, 0.0), Some(1000));
        assert_eq!(after(1, 30, 0.0), None);
        let delay = next_delay(&refused(429, Some(7)), POLICY, 1, Duration::ZERO, 1.0);
        assert_eq!(delay, Some(Duration::from_secs(7)));
    }
}

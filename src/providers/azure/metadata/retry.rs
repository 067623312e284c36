//! Decides whether and when a request to the metadata service is repeated. Pure.
//!
//! Azure's documentation: 404, 410, 429 and 5xx are transient, retry; 404 and 410 may last for 70 s while the machine is
//! being serviced. The node controller's queue continues where the attempts here end, so that the reason is reported in
//! between.

use std::time::Duration;

use crate::runtime::backoff::{self, ExponentialBackoff};

/// Reason why there is no document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataFailure {
    /// No response came back.
    #[error("{0}")]
    NoResponse(String),
    /// Refusal: status, text of the body, and requested delay.
    #[error("HTTP {status}{}", if text.is_empty() { String::new() } else { format!(": {text}") })]
    Refused {
        status: u16,
        /// First words of the body.
        text: String,
        /// `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// HTTP 200 with something else.
    #[error("the response is not the requested document: {0}")]
    Malformed(String),
}

/// Number and duration of the attempts for a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataRetryPolicy {
    /// No try begins later than this after the first.
    pub total: Duration,
    /// Longest wait for one answer.
    pub per_attempt: Duration,
    /// Whether 404 means that there is no such document, rather than not now.
    pub may_be_missing: bool,
}

/// Delay between attempts.
const BACKOFF: ExponentialBackoff = ExponentialBackoff::doubling(Duration::from_millis(500), Duration::from_secs(8));

/// Returns the pause before the next try; `None` to give up. `tries` have been made since `elapsed`; `random` is between 0
/// and 1.
pub fn next_delay(
    failure: &MetadataFailure,
    policy: MetadataRetryPolicy,
    tries: u32,
    elapsed: Duration,
    random: f64,
) -> Option<Duration> {
    let (passes, requested_delay) = match failure {
        MetadataFailure::NoResponse(_) => (true, None),
        MetadataFailure::Refused { status: 404, .. } if policy.may_be_missing => (false, None),
        MetadataFailure::Refused { status, retry_after, .. } => (matches!(status, 404 | 410 | 429 | 500..), *retry_after),
        MetadataFailure::Malformed(_) => (false, None),
    };
    // Half of it is by chance: the machines of a rack come back together.
    let pause = backoff::shortened(BACKOFF.delay(tries), 0.5, random).max(requested_delay.unwrap_or_default());
    (passes && elapsed.saturating_add(pause) < policy.total).then_some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: MetadataRetryPolicy =
        MetadataRetryPolicy { total: Duration::from_secs(30), per_attempt: Duration::from_secs(10), may_be_missing: false };

    fn refused(status: u16, after: Option<u64>) -> MetadataFailure {
        MetadataFailure::Refused { status, text: String::new(), retry_after: after.map(Duration::from_secs) }
    }

    #[test]
    fn what_passes_is_tried_again() {
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
            assert_eq!(next_delay(&failure, PATIENCE, 1, Duration::ZERO, 0.0).is_some(), expected, "{failure:?}");
        }
        assert_eq!(next_delay(&refused(429, Some(u64::MAX)), PATIENCE, 3, Duration::from_secs(2), 0.0), None, "no overflow");
        let missing = MetadataRetryPolicy { may_be_missing: true, ..PATIENCE };
        assert_eq!(next_delay(&refused(404, None), missing, 1, Duration::ZERO, 0.0), None);
        assert!(next_delay(&refused(410, None), missing, 1, Duration::ZERO, 0.0).is_some());
    }

    #[test]
    fn pauses_grow_with_jitter_and_end_with_the_patience() {
        let after = |tries, elapsed, random| {
            let elapsed = Duration::from_secs(elapsed);
            next_delay(&refused(500, None), PATIENCE, tries, elapsed, random).map(|pause| pause.as_millis())
        };
        assert_eq!([1, 2, 3, 4, 5, 40].map(|tries| after(tries, 0, 1.0)), [500, 1000, 2000, 4000, 8000, 8000].map(Some));
        assert_eq!(after(3, 0, 0.0), Some(1000));
        assert_eq!(after(1, 30, 0.0), None);
        let asked = next_delay(&refused(429, Some(7)), PATIENCE, 1, Duration::ZERO, 1.0);
        assert_eq!(asked, Some(Duration::from_secs(7)));
    }
}

//! How long an answer asks to wait. Pure. The headers are read by [`super::budget::retry_after`].

use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;

/// Longest wait that is believed; a larger value is a mistake of whoever sent it.
const LONGEST: Duration = Duration::from_secs(3600);

/// The wait that `headers` ask for, at most an hour; `None` when they do not, or not legibly. `wall` is now.
pub(super) fn in_headers(headers: &HeaderMap, wall: Timestamp) -> Option<Duration> {
    super::budget::retry_after(headers, wall).map(|wait| wait.min(LONGEST))
}

/// The wait in network's messages about a resource that is in use: `… can be retried in 14 seconds.`
pub(super) fn in_message(message: &str) -> Option<Duration> {
    let (_, rest) = message.split_once("retried in ")?;
    let (number, unit) = rest.split_once(' ')?;
    let seconds = number.parse().ok().filter(|_| unit.starts_with("second"))?;
    Some(Duration::from_secs(seconds).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_in_headers_are_capped() {
        let asks = |value: &str| {
            let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, value.parse().unwrap())]);
            in_headers(&headers, Timestamp::UNIX_EPOCH).map(|wait| wait.as_secs())
        };
        assert_eq!([asks("17"), asks("99999999"), asks("soon")], [Some(17), Some(3600), None]);
    }

    #[test]
    fn waits_in_messages() {
        let busy = "Operation X is updating resource y. The call can be retried in 14 seconds.";
        assert_eq!(in_message(busy), Some(Duration::from_secs(14)));
        for other in ["retried in a while", "retried in 5 days", "retried in ", "never"] {
            assert_eq!(in_message(other), None, "{other}");
        }
    }
}

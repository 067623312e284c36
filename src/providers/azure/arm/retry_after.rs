//! How long an answer asks to wait. Pure.
//!
//! Upstream: azcore `internal/shared` (`RetryAfter`): two headers in milliseconds, then `Retry-After` in seconds or as an HTTP date.

use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;

/// Longest wait that is believed; a larger value is a mistake of whoever sent it.
const LONGEST: Duration = Duration::from_secs(3600);

/// The wait that `headers` ask for, at most an hour; `None` when they do not, or not legibly. `wall` is now.
pub(super) fn parse(headers: &HeaderMap, wall: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let milliseconds = |name| text(name)?.parse::<u64>().ok().map(Duration::from_millis);
    let wait = milliseconds("retry-after-ms")
        .or_else(|| milliseconds("x-ms-retry-after-ms"))
        .or_else(|| seconds_or_date(text("retry-after")?, wall))?;
    Some(wait.min(LONGEST))
}

fn seconds_or_date(text: &str, wall: Timestamp) -> Option<Duration> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().map_or(LONGEST, Duration::from_secs));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(wall)).unwrap_or_default())
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

    fn parsed(rows: &[(&'static str, &str)]) -> Option<u128> {
        let mut headers = HeaderMap::new();
        for (name, value) in rows {
            headers.insert(*name, value.parse().unwrap());
        }
        parse(&headers, "2015-10-21T07:27:50Z".parse().unwrap()).map(|wait| wait.as_millis())
    }

    #[test]
    fn every_form() {
        assert_eq!(parsed(&[("retry-after", "17")]), Some(17_000));
        assert_eq!(parsed(&[("retry-after", " 0 ")]), Some(0));
        assert_eq!(parsed(&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")]), Some(10_000));
        assert_eq!(parsed(&[("retry-after", "Wed, 21 Oct 2015 07:00:00 GMT")]), Some(0), "in the past");
        assert_eq!(parsed(&[("retry-after-ms", "250"), ("retry-after", "17")]), Some(250));
        assert_eq!(parsed(&[("x-ms-retry-after-ms", "750")]), Some(750));
        assert_eq!(parsed(&[("retry-after", "99999999999999999999999")]), Some(3_600_000), "capped");
        for bad in ["", "soon", "-5", "1.5", "Wed, 99 Oct 2015 07:28:00 GMT"] {
            assert_eq!(parsed(&[("retry-after", bad)]), None, "{bad:?}");
        }
        assert_eq!(parsed(&[]), None);
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

//! Delay that a response requests. Pure.

use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;

/// Maximum delay; a larger value is an error of the sender.
const MAX_DELAY: Duration = Duration::from_secs(3600);

/// Returns the delay that `headers` request, at most [`MAX_DELAY`]; `None` without a valid one. `wall` is the current time.
pub(super) fn in_headers(headers: &HeaderMap, wall: Timestamp) -> Option<Duration> {
    retry_after(headers, wall).map(|wait| wait.min(MAX_DELAY))
}

/// Returns the delay in messages of the network provider about a busy resource: `… can be retried in 14 seconds.`
pub(super) fn in_message(message: &str) -> Option<Duration> {
    let (_, rest) = message.split_once("retried in ")?;
    let (number, unit) = rest.split_once(' ')?;
    let seconds = number.parse().ok().filter(|_| unit.starts_with("second"))?;
    Some(Duration::from_secs(seconds).min(MAX_DELAY))
}

/// Returns the delay in `Retry-After` (seconds, or an HTTP date relative to `wall`) or in the milliseconds of
/// `x-ms-retry-after-ms` and `retry-after-ms`.
pub fn retry_after(headers: &HeaderMap, wall: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |name: &str| text(name)?.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    let milliseconds = number("retry-after-ms").or_else(|| number("x-ms-retry-after-ms")).map(|number| number / 1000.0);
    if let Some(seconds) = milliseconds.or_else(|| number("retry-after")) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text("retry-after")?).ok()?;
    Some(Duration::try_from(date.duration_since(wall)).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_in_headers_are_capped() {
        let delay = |value: &str| {
            let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, value.parse().unwrap())]);
            in_headers(&headers, Timestamp::UNIX_EPOCH).map(|wait| wait.as_secs())
        };
        assert_eq!([delay("17"), delay("99999999"), delay("soon")], [Some(17), Some(3600), None]);
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

//! Throttle that follows `Retry-After` of the API server.
//!
//! In: responses of code 429 or 503 with `Retry-After`. Out: the time before which the client sends no other request. The
//! rejected request fails, and its caller decides about a retry. Upstream: client-go `rest/with_retry.go`.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Response, StatusCode, header::RETRY_AFTER};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// Longest delay of a client, whatever the server requests.
const LONGEST: Duration = Duration::from_secs(60);

/// Returns the delay that such a response requests, or `None`.
fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let value = headers.get(RETRY_AFTER).filter(|_| busy)?;
    let seconds = value.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST))
}

/// Earliest time of the next request. Clones belong to the same client.
#[derive(Clone, Default)]
pub(in crate::runtime) struct RetryAfterThrottle(Arc<Mutex<Option<Instant>>>);

impl RetryAfterThrottle {
    /// Resolves when requests may leave.
    pub(in crate::runtime) async fn open(&self) {
        while let Some(until) = self.until() {
            sleep_until(until).await;
        }
    }

    /// Records the delay that `response` requests.
    pub(in crate::runtime) fn note<B>(&self, response: &Response<B>) {
        if let Some(pause) = retry_after(response.status(), response.headers()) {
            let until = Instant::now() + pause;
            let mut retry_at = self.0.lock();
            *retry_at = (*retry_at).max(Some(until));
        }
    }

    fn until(&self) -> Option<Instant> {
        let retry_at = *self.0.lock();
        retry_at.filter(|until| *until > Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_busy_server_makes_a_client_wait_and_never_for_long() {
        let headers = |value: &str| HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
        for (code, value, seconds) in [
            (429, "7", Some(7)),
            (503, "1", Some(1)),
            (429, "86400", Some(60)),
            (429, "Wed, 21 Oct 2026 07:28:00 GMT", None),
            (429, "-1", None),
            (200, "7", None),
            (301, "7", None),
        ] {
            let found = retry_after(StatusCode::from_u16(code).unwrap(), &headers(value));
            assert_eq!(found.map(|pause| pause.as_secs()), seconds, "{code} {value}");
        }
        assert_eq!(retry_after(StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new()), None);
    }
}

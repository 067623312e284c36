//! Throttle that follows `Retry-After` of the API server.
//!
//! In: responses of code 429 or 503 with `Retry-After`. Out: the moment before which nothing else leaves the client. The
//! rejected request fails: its sender decides about a retry. Upstream: client-go `rest/with_retry.go`.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{HeaderMap, Request, Response, StatusCode, header::RETRY_AFTER};
use tokio::time::{Instant, Sleep, sleep_until};
use tower::{Layer, Service};

/// No server makes a client wait longer.
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
        if let Some(until) = self.until() {
            sleep_until(until).await;
        }
    }

    /// Records the delay that `response` requests.
    pub(in crate::runtime) fn note<B>(&self, response: &Response<B>) {
        if let Some(pause) = retry_after(response.status(), response.headers()) {
            let until = Instant::now() + pause;
            let mut retry_at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *retry_at = (*retry_at).max(Some(until));
        }
    }

    fn until(&self) -> Option<Instant> {
        let retry_at = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        retry_at.filter(|until| *until > Instant::now())
    }
}

impl<S> Layer<S> for RetryAfterThrottle {
    type Service = RetryAfterService<S>;

    fn layer(&self, inner: S) -> RetryAfterService<S> {
        RetryAfterService { inner, throttle: self.clone(), waiting: None }
    }
}

/// See [`RetryAfterThrottle`]. It waits in `poll_ready`, which the client's single worker calls before each request.
pub(in crate::runtime) struct RetryAfterService<S> {
    inner: S,
    throttle: RetryAfterThrottle,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S, Q, B> Service<Request<Q>> for RetryAfterService<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        while let Some(until) = self.throttle.until() {
            let sleep = self.waiting.insert(Box::pin(sleep_until(until)));
            ready!(sleep.as_mut().poll(context));
        }
        self.waiting = None;
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let (pending, throttle) = (self.inner.call(request), self.throttle.clone());
        Box::pin(async move {
            let response = pending.await?;
            throttle.note(&response);
            Ok(response)
        })
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

//! Steps of a request between the queue of its client and the connection, in this order.
//!
//! In: a request. Out: its response. The request waits for the rate limit and for `Retry-After`, and a write without
//! leadership is refused. Then the request is counted and timed, gets the token of a ServiceAccount, and leaves with its
//! deadlines. Each step is optional.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::time::sleep;
use tower::{BoxError, Layer, Service};

use super::{
    deadline::{RequestDeadlines, with_deadlines},
    fence::check_write,
    rate_limit::RateLimit,
    request_metrics::{MeasuredBody, RequestMetrics, RequestTimer},
    throttle::RetryAfterThrottle,
};
use crate::runtime::{leader_election::Leadership, service_account::ServiceAccountToken};

/// Steps that a client takes with each request.
#[derive(Clone, Default)]
pub(super) struct RequestSteps {
    pub(super) limit: Option<RateLimit>,
    pub(super) throttle: Option<RetryAfterThrottle>,
    /// Leadership that writes require.
    pub(super) leadership: Option<Leadership>,
    pub(super) metrics: Option<RequestMetrics>,
    /// Token in place of the credentials of the process.
    pub(super) token: Option<ServiceAccountToken>,
    pub(super) has_deadlines: bool,
}

impl RequestSteps {
    /// Returns the steps of a client that only ends its waits.
    pub(super) fn with_deadlines() -> Self {
        Self { has_deadlines: true, ..Self::default() }
    }

    /// Takes a token of the rate limit. Resolves when the request may leave, with its wait for the token.
    fn admission(&mut self) -> BoxFuture<'static, Duration> {
        let wait = self.limit.as_mut().map(RateLimit::take);
        let throttle = self.throttle.clone();
        Box::pin(async move {
            if let Some(wait) = wait {
                sleep(wait).await;
            }
            if let Some(throttle) = throttle {
                throttle.open().await;
            }
            wait.unwrap_or_default()
        })
    }

    /// Starts the timer of `request` and adds the token to it, or returns the reason to refuse it.
    fn prepare<Q: Body>(&self, request: &mut Request<Q>, waited: Duration) -> Result<Option<RequestTimer>, BoxError> {
        if let Some(limit) = &self.limit {
            limit.observe(request.method(), waited);
        }
        check_write(self.leadership.as_ref(), request.method())?;
        let timer = self.metrics.as_ref().map(|metrics| metrics.start(request));
        if let Some(token) = &self.token {
            token.authorize(request.headers_mut())?;
        }
        Ok(timer)
    }
}

impl<S> Layer<S> for RequestSteps {
    type Service = RequestService<S>;

    fn layer(&self, inner: S) -> RequestService<S> {
        RequestService { inner, steps: self.clone(), waiting: None, admitted: None }
    }
}

/// See [`RequestSteps`]. It waits in `poll_ready`, which the client's single worker calls before each request.
pub(super) struct RequestService<S> {
    inner: S,
    steps: RequestSteps,
    /// Admission of the next request.
    waiting: Option<BoxFuture<'static, Duration>>,
    /// Wait of the request that is admitted. Its token is for the next one if it is canceled.
    admitted: Option<Duration>,
}

impl<S, Q, B> Service<Request<Q>> for RequestService<S>
where
    S: Service<Request<Q>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    Q: Body,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<MeasuredBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<MeasuredBody>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.admitted.is_none() {
            let waiting = self.waiting.get_or_insert_with(|| self.steps.admission());
            self.admitted = Some(ready!(waiting.as_mut().poll(context)));
            self.waiting = None;
        }
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Q>) -> Self::Future {
        let waited = self.admitted.take().unwrap_or_default();
        let timer = match self.steps.prepare(&mut request, waited) {
            Ok(timer) => timer,
            Err(refused) => return Box::pin(std::future::ready(Err(refused))),
        };
        let deadlines = RequestDeadlines::of(request.method(), request.uri().query());
        let deadlines = self.steps.has_deadlines.then_some(deadlines);
        let pending = self.inner.call(request);
        let (throttle, fairness) =
            (self.steps.throttle.clone(), self.steps.limit.as_ref().and_then(|limit| limit.fairness.clone()));
        Box::pin(async move {
            let response = match deadlines {
                Some(deadlines) => with_deadlines(deadlines, pending, || ()).await,
                None => pending.await.map(|response| response.map(|body| body.map_err(Into::into).boxed_unsync())),
            };
            let response = RequestTimer::finish(timer, response)?;
            throttle.iter().for_each(|throttle| throttle.note(&response));
            fairness.iter().for_each(|fairness| fairness.note(&response));
            Ok(response)
        })
    }
}

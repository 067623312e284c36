//! Client-side rate limit: the tower layer that waits for a token of a bucket.
//!
//! A default limit applies only while the server has no priority and fairness: a server that has names the flow schema of
//! each request in its response, queues excess requests, and rejects more with 429.
//!
//! Upstream: client-go `util/flowcontrol`, a bucket of `burst` tokens refilled with `qps` per second.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use http::StatusCode;
use tokio::time::{Instant, Sleep};
use tower::{Layer, Service};

use crate::{metrics::Metrics, runtime::token_bucket::TokenBucket};

/// Header of the flow schema. Upstream: `k8s.io/api/flowcontrol`, `ResponseHeaderMatchedFlowSchemaUID`.
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";
/// On each answer of an API server. Upstream: `k8s.io/apiserver/pkg/apis/audit`, `HeaderAuditID`.
const AUDIT_ID: &str = "audit-id";

/// Priority and fairness of the server, according to its last response. Clones are of the same server.
#[derive(Clone, Default)]
pub(super) struct ServerFairness(Arc<AtomicBool>);

impl ServerFairness {
    /// Records whether the server has priority and fairness.
    ///
    /// Rejections may come from a proxy in front of the server, or from the server before priority and fairness applies: to
    /// unauthenticated callers, or during its shutdown.
    fn note<B>(&self, response: &http::Response<B>) {
        const EARLY: [StatusCode; 2] = [StatusCode::UNAUTHORIZED, StatusCode::TOO_MANY_REQUESTS];
        let (status, headers) = (response.status(), response.headers());
        let is_fair = headers.contains_key(FLOW_SCHEMA);
        let is_own = headers.contains_key(AUDIT_ID) && status.is_client_error() && !EARLY.contains(&status);
        if is_fair || status.is_success() || is_own {
            self.0.store(is_fair, Relaxed);
        }
    }

    fn is_known(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Lets requests through at the bucket's rate.
#[derive(Clone)]
pub(super) struct RateLimitLayer {
    bucket: TokenBucket,
    /// State that lifts the limit; `None` if it always applies.
    fairness: Option<ServerFairness>,
    host: String,
    metrics: Arc<Metrics>,
}

impl RateLimitLayer {
    pub(super) fn new(qps: f32, burst: u32, fairness: Option<ServerFairness>, host: String, metrics: Arc<Metrics>) -> Self {
        Self { bucket: TokenBucket::new(f64::from(qps), f64::from(burst), Instant::now()), fairness, host, metrics }
    }

    /// Returns how long the next request must wait.
    fn take(&mut self) -> Duration {
        if self.fairness.as_ref().is_some_and(ServerFairness::is_known) {
            return Duration::ZERO;
        }
        self.bucket.take(Instant::now())
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimitService<S>;

    fn layer(&self, inner: S) -> RateLimitService<S> {
        RateLimitService { inner, layer: self.clone(), waiting: None }
    }
}

/// See [`RateLimitLayer`]. It waits in `poll_ready`, which the client's single worker calls before each request.
pub(super) struct RateLimitService<S> {
    inner: S,
    layer: RateLimitLayer,
    /// The token that was taken, until the request that it is for.
    waiting: Option<(Pin<Box<Sleep>>, Duration)>,
}

impl<S, Q, B> Service<http::Request<Q>> for RateLimitService<S>
where
    S: Service<http::Request<Q>, Response = http::Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let layer = &mut self.layer;
        let (sleep, _) = self.waiting.get_or_insert_with(|| {
            let wait = layer.take();
            (Box::pin(tokio::time::sleep(wait)), wait)
        });
        ready!(sleep.as_mut().poll(context));
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Q>) -> Self::Future {
        let waited = self.waiting.take().map_or(Duration::ZERO, |(_, wait)| wait);
        let duration = &self.layer.metrics.rest_client_rate_limiter_duration;
        duration.with_label_values(&[request.method().as_str(), &self.layer.host]).observe(waited.as_secs_f64());
        let (pending, fairness) = (self.inner.call(request), self.layer.fairness.clone());
        Box::pin(async move {
            let response = pending.await?;
            fairness.iter().for_each(|fairness| fairness.note(&response));
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAIR: Option<&str> = Some("X-Kubernetes-PF-FlowSchema-UID");
    const OWN: Option<&str> = Some("Audit-Id");

    /// Answers with this code, and with or without a header.
    fn answers(
        code: u16,
        header: Option<&'static str>,
    ) -> impl Service<
        http::Request<()>,
        Response = http::Response<()>,
        Error = std::convert::Infallible,
        Future = impl Future<Output = Result<http::Response<()>, std::convert::Infallible>> + Send + 'static,
    > {
        tower::service_fn(move |_: http::Request<()>| {
            let response = http::Response::builder().status(code);
            let response = header.into_iter().fold(response, |response, name| response.header(name, "a"));
            std::future::ready(Ok(response.body(()).unwrap()))
        })
    }

    /// How long 31 requests take at one per second after two.
    async fn seconds(code: u16, header: Option<&'static str>, fairness: &ServerFairness) -> u64 {
        use tower::ServiceExt;
        let metrics = Arc::new(Metrics::new().unwrap());
        let layer = RateLimitLayer::new(1.0, 2, Some(fairness.clone()), "host".into(), metrics);
        let mut service = layer.layer(answers(code, header));
        let start = Instant::now();
        for _ in 0..31 {
            service.ready().await.unwrap().call(http::Request::new(())).await.unwrap();
        }
        start.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_with_priority_and_fairness_lifts_a_limit_that_nobody_asked_for() {
        let fairness = ServerFairness::default();
        assert_eq!(seconds(200, None, &fairness).await, 29);
        assert_eq!(seconds(200, FAIR, &fairness).await, 0);
        assert_eq!(seconds(502, None, &fairness).await, 0, "a proxy says nothing about the server");
        assert_eq!(seconds(403, None, &fairness).await, 0, "nor does what stands in front of it");
        for code in [401, 429] {
            assert_eq!(seconds(code, OWN, &fairness).await, 0, "{code} may come before fairness");
        }
        assert_eq!(seconds(200, None, &fairness).await, 28, "it was switched off: the first request passed");
        for code in [403, 404, 409, 422] {
            seconds(200, FAIR, &fairness).await;
            assert_eq!(seconds(code, OWN, &fairness).await, 28, "{code}: it was switched off, and all is refused");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_layer_waits_and_counts() {
        use tower::ServiceExt;
        let metrics = Arc::new(Metrics::new().unwrap());
        let layer = RateLimitLayer::new(10.0, 1, None, "host".into(), Arc::clone(&metrics));
        let mut service = layer.layer(answers(200, FAIR));
        let start = Instant::now();
        for _ in 0..3 {
            service.ready().await.unwrap().call(http::Request::new(())).await.unwrap();
        }
        assert_eq!(start.elapsed().as_millis(), 200);
        let text = metrics.render().unwrap();
        assert!(text.contains("rest_client_rate_limiter_duration_seconds_count{host=\"host\",verb=\"GET\"} 3"), "{text}");
    }
}

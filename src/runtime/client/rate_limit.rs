//! Client-side rate limit: a bucket of tokens, of which each request takes one.
//!
//! A default limit applies only while the server has no priority and fairness: a server that has names the flow schema of
//! each request in its response, queues excess requests, and rejects more with 429.
//!
//! Upstream: client-go `util/flowcontrol`, a bucket of `burst` tokens refilled with `qps` per second.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{Method, StatusCode};
use tokio::time::Instant;

use crate::{metrics::Metrics, runtime::token_bucket::TokenBucket};

/// Header of the flow schema. Upstream: `k8s.io/api/flowcontrol`, `ResponseHeaderMatchedFlowSchemaUID`.
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";
/// Header of each response of an API server. Upstream: `k8s.io/apiserver/pkg/apis/audit`, `HeaderAuditID`.
const AUDIT_ID: &str = "audit-id";

/// Priority and fairness of the server, according to its last response. Clones share the state.
#[derive(Clone, Default)]
pub(super) struct ServerFairness(Arc<AtomicBool>);

impl ServerFairness {
    /// Records whether the server has priority and fairness.
    ///
    /// Rejections may come from a proxy in front of the server, or from the server before priority and fairness applies: to
    /// unauthenticated callers, or during its shutdown.
    pub(super) fn note<B>(&self, response: &http::Response<B>) {
        const EARLY: [StatusCode; 2] = [StatusCode::UNAUTHORIZED, StatusCode::TOO_MANY_REQUESTS];
        let (status, headers) = (response.status(), response.headers());
        let is_fair = headers.contains_key(FLOW_SCHEMA);
        let is_own = headers.contains_key(AUDIT_ID) && status.is_client_error() && !EARLY.contains(&status);
        if is_fair || status.is_success() || is_own {
            self.0.store(is_fair, Relaxed);
        }
    }
}

/// Limit of a client's request rate.
#[derive(Clone)]
pub(super) struct RateLimit {
    bucket: TokenBucket,
    /// State that lifts the limit; `None` if it always applies.
    pub(super) fairness: Option<ServerFairness>,
    host: String,
    metrics: Arc<Metrics>,
}

impl RateLimit {
    pub(super) fn new(qps: f32, burst: u32, fairness: Option<ServerFairness>, host: String, metrics: Arc<Metrics>) -> Self {
        Self { bucket: TokenBucket::new(f64::from(qps), f64::from(burst), Instant::now()), fairness, host, metrics }
    }

    /// Returns how long the next request must wait.
    pub(super) fn take(&mut self) -> Duration {
        if self.fairness.as_ref().is_some_and(|fairness| fairness.0.load(Relaxed)) {
            return Duration::ZERO;
        }
        self.bucket.take(Instant::now())
    }

    /// Records that a request has waited for its token.
    pub(super) fn observe(&self, method: &Method, waited: Duration) {
        let duration = &self.metrics.rest_client_rate_limiter_duration;
        duration.with_label_values(&[method.as_str(), &self.host]).observe(waited.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use tower::{BoxError, Layer, Service, ServiceExt};

    use super::*;
    use crate::runtime::client::requests::RequestSteps;

    const FAIR: Option<&str> = Some("X-Kubernetes-PF-FlowSchema-UID");
    const OWN: Option<&str> = Some("Audit-Id");

    /// Returns the duration of sequential requests whose responses have this code and header.
    async fn duration(limit: RateLimit, requests: usize, code: u16, header: Option<&'static str>) -> Duration {
        let server = tower::service_fn(move |_: http::Request<Body>| {
            let response = http::Response::builder().status(code);
            let response = header.into_iter().fold(response, |response, name| response.header(name, "a"));
            std::future::ready(Ok::<_, BoxError>(response.body(Body::empty()).unwrap()))
        });
        let mut service = RequestSteps { limit: Some(limit), ..RequestSteps::default() }.layer(server);
        let start = Instant::now();
        for _ in 0..requests {
            service.ready().await.unwrap().call(http::Request::new(Body::empty())).await.unwrap();
        }
        start.elapsed()
    }

    /// Returns the duration of 31 requests at one per second with a burst of two.
    async fn seconds(code: u16, header: Option<&'static str>, fairness: &ServerFairness) -> u64 {
        let metrics = Arc::new(Metrics::new().unwrap());
        let limit = RateLimit::new(1.0, 2, Some(fairness.clone()), "host".into(), metrics);
        duration(limit, 31, code, header).await.as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn priority_and_fairness_lifts_the_default_limit() {
        let fairness = ServerFairness::default();
        assert_eq!(seconds(200, None, &fairness).await, 29);
        assert_eq!(seconds(200, FAIR, &fairness).await, 0);
        assert_eq!(seconds(502, None, &fairness).await, 0, "a response of a proxy proves nothing about the server");
        assert_eq!(seconds(403, None, &fairness).await, 0, "a proxy may also respond 403");
        for code in [401, 429] {
            assert_eq!(seconds(code, OWN, &fairness).await, 0, "{code} may come before fairness");
        }
        assert_eq!(seconds(200, None, &fairness).await, 28, "fairness was disabled: the first request passed");
        for code in [403, 404, 409, 422] {
            seconds(200, FAIR, &fairness).await;
            assert_eq!(
                seconds(code, OWN, &fairness).await,
                28,
                "{code}: fairness was disabled, and all requests are rejected"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_and_are_counted() {
        let metrics = Arc::new(Metrics::new().unwrap());
        let limit = RateLimit::new(10.0, 1, None, "host".into(), Arc::clone(&metrics));
        assert_eq!(duration(limit, 3, 200, FAIR).await.as_millis(), 200);
        let text = metrics.render().unwrap();
        assert!(text.contains("rest_client_rate_limiter_duration_seconds_count{host=\"host\",verb=\"GET\"} 3"), "{text}");
    }
}

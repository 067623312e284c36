//! Counts and times requests to the API server. Labels carry the host, never a path.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Method, StatusCode};
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::metrics::Metrics;

/// Adds `rest_client_requests_total` and `rest_client_request_duration_seconds` to a client.
#[derive(Clone)]
pub(super) struct RequestMetricsLayer {
    host: String,
    metrics: Arc<Metrics>,
}

impl RequestMetricsLayer {
    pub(super) fn new(host: String, metrics: Arc<Metrics>) -> Self {
        Self { host, metrics }
    }

    fn record(&self, method: &str, code: &str, started: Instant) {
        self.metrics.rest_client_requests_total.with_label_values(&[code, method, &self.host]).inc();
        let duration = &self.metrics.rest_client_request_duration;
        duration.with_label_values(&[method, &self.host]).observe(started.elapsed().as_secs_f64());
    }
}

/// A request that has left. It is counted when this is dropped, so also when whoever sent it waits no longer.
struct Sent {
    layer: RequestMetricsLayer,
    method: Method,
    started: Instant,
    code: Option<StatusCode>,
}

impl Sent {
    fn ended(&mut self, code: Option<StatusCode>) {
        self.code = code;
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        // Upstream's label for a request without an answer.
        let code = self.code.as_ref().map_or("<error>", StatusCode::as_str);
        self.layer.record(self.method.as_str(), code, self.started);
    }
}

impl<S> Layer<S> for RequestMetricsLayer {
    type Service = RequestMetrics<S>;

    fn layer(&self, inner: S) -> RequestMetrics<S> {
        RequestMetrics { inner, layer: self.clone() }
    }
}

/// See [`RequestMetricsLayer`].
pub(super) struct RequestMetrics<S> {
    inner: S,
    layer: RequestMetricsLayer,
}

impl<S, B, R> Service<http::Request<B>> for RequestMetrics<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let (layer, method) = (self.layer.clone(), request.method().clone());
        let mut sent = Sent { layer, method, started: Instant::now(), code: None };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            sent.ended(answer.as_ref().ok().map(http::Response::status));
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_given_up_is_counted_once_as_one_without_answer() {
        let metrics = Arc::new(Metrics::new().unwrap());
        let layer = RequestMetricsLayer::new("host".into(), Arc::clone(&metrics));
        let never = layer.layer(tower::service_fn(|_: http::Request<()>| {
            std::future::pending::<Result<http::Response<()>, std::convert::Infallible>>()
        }));
        let asked = never.oneshot(http::Request::new(()));
        tokio::time::timeout(std::time::Duration::from_secs(30), asked).await.unwrap_err();
        assert_eq!(metrics.rest_client_requests_total.with_label_values(&["<error>", "GET", "host"]).get(), 1.0);

        let answering = layer.layer(tower::service_fn(|_: http::Request<()>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(()))
        }));
        answering.oneshot(http::Request::new(())).await.unwrap();
        let of = |code| metrics.rest_client_requests_total.with_label_values(&[code, "GET", "host"]).get();
        assert_eq!((of("<error>"), of("200")), (1.0, 1.0));
    }
}

//! Counts and times requests to the API server. Labels carry the host, never a path.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

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
        let (layer, method, started) = (self.layer.clone(), request.method().clone(), Instant::now());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            // Upstream's label for a request without an answer.
            let code = answer.as_ref().map_or("<error>".to_owned(), |answer| answer.status().as_u16().to_string());
            layer.record(method.as_str(), &code, started);
            answer
        })
    }
}

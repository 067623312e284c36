//! Counts, times and measures requests to the API server. Labels carry the host, never a path.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, StatusCode};
use hyper::body::{Body, Frame};
use tokio::time::Instant;
use tower::{Layer, Service};

use super::deadline::RequestDeadlines;
use crate::metrics::Metrics;

/// Upstream's label for a request without an answer.
const NO_RESPONSE: &str = "<error>";

/// Adds `rest_client_requests_total`, `rest_client_request_duration_seconds` and the sizes of bodies to a client.
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

    /// Records that a request was sent again.
    pub(super) fn record_retry(&self, method: &Method, code: Option<StatusCode>) {
        let code = code.as_ref().map_or(NO_RESPONSE, StatusCode::as_str);
        self.metrics.rest_client_request_retries_total.with_label_values(&[code, method.as_str(), &self.host]).inc();
    }

    /// Records the size of a request. A body of unknown length, or none, is not measured.
    fn record_request(&self, method: &Method, body: &impl Body) {
        if let Some(size) = body.size_hint().exact().filter(|size| *size > 0) {
            observe(&self.metrics.rest_client_request_size, &[method.as_str(), &self.host], size);
        }
    }
}

fn observe(histogram: &prometheus::HistogramVec, labels: &[&str], bytes: u64) {
    histogram.with_label_values(labels).observe(f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)));
}

/// The body of an answer, which is measured when it has come whole.
pub(super) struct MeasuredBody<B> {
    inner: B,
    bytes: u64,
    /// `None` for watches, which have no size, and once it was measured.
    measure: Option<(RequestMetricsLayer, Method)>,
}

impl<B: Body<Data = Bytes> + Unpin> Body for MeasuredBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) => self.measure = None,
            None => {
                if let Some((layer, method)) = self.measure.take() {
                    observe(&layer.metrics.rest_client_response_size, &[method.as_str(), &layer.host], self.bytes);
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // The reader must come for the end, which records the measurement.
        self.measure.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.inner.size_hint()
    }
}

/// Timer of a request that has left. It records on drop, so also if the caller was cancelled.
struct RequestTimer {
    layer: RequestMetricsLayer,
    method: Method,
    started: Instant,
    code: Option<StatusCode>,
}

impl RequestTimer {
    fn set_code(&mut self, code: Option<StatusCode>) {
        self.code = code;
    }
}

impl Drop for RequestTimer {
    fn drop(&mut self) {
        let code = self.code.as_ref().map_or(NO_RESPONSE, StatusCode::as_str);
        self.layer.record(self.method.as_str(), code, self.started);
    }
}

impl<S> Layer<S> for RequestMetricsLayer {
    type Service = RequestMetricsService<S>;

    fn layer(&self, inner: S) -> RequestMetricsService<S> {
        RequestMetricsService { inner, layer: self.clone() }
    }
}

pub(super) struct RequestMetricsService<S> {
    inner: S,
    layer: RequestMetricsLayer,
}

impl<S, B, R> Service<http::Request<B>> for RequestMetricsService<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>>,
    S::Future: Send + 'static,
    B: Body,
{
    type Response = http::Response<MeasuredBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let (layer, method) = (self.layer.clone(), request.method().clone());
        layer.record_request(&method, request.body());
        let is_watch = matches!(RequestDeadlines::of(&method, request.uri().query()), RequestDeadlines::Watch(_));
        let measure = (!is_watch).then(|| (layer.clone(), method.clone()));
        let mut sent = RequestTimer { layer, method, started: Instant::now(), code: None };
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await;
            sent.set_code(response.as_ref().ok().map(http::Response::status));
            Ok(response?.map(|inner| MeasuredBody { inner, bytes: 0, measure }))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt, Full};
    use tower::ServiceExt;

    use super::*;

    type Answer = Result<http::Response<Full<Bytes>>, Infallible>;

    fn request(uri: &str, body: &'static str) -> http::Request<Full<Bytes>> {
        http::Request::builder().uri(uri).body(Full::from(body)).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_given_up_is_counted_once_as_one_without_answer() {
        let metrics = Arc::new(Metrics::new().unwrap());
        let layer = RequestMetricsLayer::new("host".into(), Arc::clone(&metrics));
        let never = layer.layer(tower::service_fn(|_: http::Request<Full<Bytes>>| std::future::pending::<Answer>()));
        let asked = never.oneshot(request("/", ""));
        tokio::time::timeout(std::time::Duration::from_secs(30), asked).await.map(drop).unwrap_err();
        assert_eq!(metrics.rest_client_requests_total.with_label_values(&["<error>", "GET", "host"]).get(), 1.0);

        let answering = layer.layer(tower::service_fn(|_: http::Request<Full<Bytes>>| async {
            Answer::Ok(http::Response::new(Full::default()))
        }));
        answering.oneshot(request("/", "")).await.unwrap();
        let of = |code| metrics.rest_client_requests_total.with_label_values(&[code, "GET", "host"]).get();
        assert_eq!((of("<error>"), of("200")), (1.0, 1.0));
    }

    #[tokio::test]
    async fn bodies_are_measured_but_for_those_of_watches() {
        let metrics = Arc::new(Metrics::new().unwrap());
        let layer = RequestMetricsLayer::new("host".into(), Arc::clone(&metrics));
        for (uri, body) in [("/pods", ""), ("/pods?watch=true", ""), ("/pods", "twelve bytes")] {
            let answering = layer.layer(tower::service_fn(|_: http::Request<Full<Bytes>>| async {
                Answer::Ok(http::Response::new(Full::from("seven b")))
            }));
            let answer = answering.oneshot(request(uri, body)).await.unwrap();
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 7);
        }
        let of = |histogram: &prometheus::HistogramVec| {
            let series = histogram.with_label_values(&["GET", "host"]);
            (series.get_sample_count(), series.get_sample_sum())
        };
        assert_eq!(of(&metrics.rest_client_request_size), (1, 12.0));
        assert_eq!(of(&metrics.rest_client_response_size), (2, 14.0));
    }
}

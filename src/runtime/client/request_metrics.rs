//! Counts, times and measures requests to the API server. Labels carry the host, never a path.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use hyper::body::{Body, Frame};
use tokio::time::Instant;
use tower::BoxError;

use super::deadline::{BoxedResponseBody, RequestDeadlines};
use crate::metrics::Metrics;

/// Upstream's label for a request without a response.
const NO_RESPONSE: &str = "<error>";

/// Adds `rest_client_requests_total`, `rest_client_request_duration_seconds` and the sizes of bodies to a client.
#[derive(Clone)]
pub(super) struct RequestMetrics {
    host: String,
    metrics: Arc<Metrics>,
}

impl RequestMetrics {
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

    /// Records the size of a request that leaves, and starts its timer. A body of unknown length, or none, is not measured.
    pub(super) fn start<B: Body>(&self, request: &Request<B>) -> RequestTimer {
        let method = request.method().clone();
        if let Some(size) = request.body().size_hint().exact().filter(|size| *size > 0) {
            observe(&self.metrics.rest_client_request_size, &[method.as_str(), &self.host], size);
        }
        let is_watch = matches!(RequestDeadlines::of(&method, request.uri().query()), RequestDeadlines::Watch(_));
        RequestTimer { metrics: self.clone(), method, is_watch, started: Instant::now(), code: None }
    }
}

fn observe(histogram: &prometheus::HistogramVec, labels: &[&str], bytes: u64) {
    histogram.with_label_values(labels).observe(f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)));
}

/// Body of a response, which is measured when it is complete.
pub(super) struct MeasuredBody {
    inner: BoxedResponseBody,
    bytes: u64,
    /// `None` without metrics, for watches, which have no size, and once it was measured.
    measure: Option<(RequestMetrics, Method)>,
}

impl Body for MeasuredBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) => self.measure = None,
            None => {
                if let Some((metrics, method)) = self.measure.take() {
                    observe(&metrics.metrics.rest_client_response_size, &[method.as_str(), &metrics.host], self.bytes);
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // The reader must read up to the end, which records the measurement.
        self.measure.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.inner.size_hint()
    }
}

/// Timer of a request that has left. It records on drop, so also if the caller was cancelled.
pub(super) struct RequestTimer {
    metrics: RequestMetrics,
    method: Method,
    is_watch: bool,
    started: Instant,
    code: Option<StatusCode>,
}

impl RequestTimer {
    /// Stops `timer`, if there is one, at the head of `response`, whose body is then measured.
    pub(super) fn finish(
        timer: Option<Self>,
        response: Result<Response<BoxedResponseBody>, BoxError>,
    ) -> Result<Response<MeasuredBody>, BoxError> {
        let measure = timer.and_then(|mut timer| {
            timer.code = response.as_ref().ok().map(Response::status);
            (!timer.is_watch).then(|| (timer.metrics.clone(), timer.method.clone()))
        });
        Ok(response?.map(|inner| MeasuredBody { inner, bytes: 0, measure }))
    }
}

impl Drop for RequestTimer {
    fn drop(&mut self) {
        let code = self.code.as_ref().map_or(NO_RESPONSE, StatusCode::as_str);
        self.metrics.record(self.method.as_str(), code, self.started);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};
    use tower::{Layer, ServiceExt};

    use super::*;
    use crate::runtime::client::requests::RequestSteps;

    type Answer = Result<Response<Full<Bytes>>, BoxError>;

    fn steps(metrics: &Arc<Metrics>) -> RequestSteps {
        RequestSteps { metrics: Some(RequestMetrics::new("host".into(), Arc::clone(metrics))), ..RequestSteps::default() }
    }

    fn request(uri: &str, body: &'static str) -> Request<Full<Bytes>> {
        Request::builder().uri(uri).body(Full::from(body)).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_request_is_counted_once_without_response() {
        let metrics = Arc::new(Metrics::new().unwrap());
        let never = steps(&metrics).layer(tower::service_fn(|_: Request<Full<Bytes>>| std::future::pending::<Answer>()));
        let pending = never.oneshot(request("/", ""));
        tokio::time::timeout(std::time::Duration::from_secs(30), pending).await.map(drop).unwrap_err();
        assert_eq!(metrics.rest_client_requests_total.with_label_values(&["<error>", "GET", "host"]).get(), 1.0);

        let responding = steps(&metrics)
            .layer(tower::service_fn(|_: Request<Full<Bytes>>| async { Answer::Ok(Response::new(Full::default())) }));
        responding.oneshot(request("/", "")).await.unwrap();
        let of = |code| metrics.rest_client_requests_total.with_label_values(&[code, "GET", "host"]).get();
        assert_eq!((of("<error>"), of("200")), (1.0, 1.0));
    }

    #[tokio::test]
    async fn bodies_are_measured_except_those_of_watches() {
        let metrics = Arc::new(Metrics::new().unwrap());
        for (uri, body) in [("/pods", ""), ("/pods?watch=true", ""), ("/pods", "twelve bytes")] {
            let responding = steps(&metrics).layer(tower::service_fn(|_: Request<Full<Bytes>>| async {
                Answer::Ok(Response::new(Full::from("seven b")))
            }));
            let response = responding.oneshot(request(uri, body)).await.unwrap();
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), 7);
        }
        let of = |histogram: &prometheus::HistogramVec| {
            let series = histogram.with_label_values(&["GET", "host"]);
            (series.get_sample_count(), series.get_sample_sum())
        };
        assert_eq!(of(&metrics.rest_client_request_size), (1, 12.0));
        assert_eq!(of(&metrics.rest_client_response_size), (2, 14.0));
    }
}

//! The client-side rate limit: the tower layer that waits for a token of a bucket.
//!
//! Upstream: client-go `util/flowcontrol`, a bucket of `burst` tokens refilled with `qps` per second.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep};
use tower::{Layer, Service};

use crate::{metrics::Metrics, runtime::token_bucket::TokenBucket};

/// Lets requests through at the bucket's rate.
#[derive(Clone)]
pub(super) struct RateLimitLayer {
    bucket: TokenBucket,
    host: String,
    metrics: Arc<Metrics>,
}

impl RateLimitLayer {
    pub(super) fn new(qps: f32, burst: u32, host: String, metrics: Arc<Metrics>) -> Self {
        Self { bucket: TokenBucket::new(f64::from(qps), f64::from(burst), Instant::now()), host, metrics }
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

impl<S, B> Service<http::Request<B>> for RateLimitService<S>
where
    S: Service<http::Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let bucket = &mut self.layer.bucket;
        let (sleep, _) = self.waiting.get_or_insert_with(|| {
            let wait = bucket.take(Instant::now());
            (Box::pin(tokio::time::sleep(wait)), wait)
        });
        ready!(sleep.as_mut().poll(context));
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> S::Future {
        let waited = self.waiting.take().map_or(Duration::ZERO, |(_, wait)| wait);
        let duration = &self.layer.metrics.rest_client_rate_limiter_duration;
        duration.with_label_values(&[request.method().as_str(), &self.layer.host]).observe(waited.as_secs_f64());
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_layer_waits_and_counts() {
        use tower::ServiceExt;
        let metrics = Arc::new(Metrics::new().unwrap());
        let layer = RateLimitLayer::new(10.0, 1, "host".into(), Arc::clone(&metrics));
        let mut service =
            layer.layer(tower::service_fn(|_: http::Request<()>| async { Ok::<_, std::convert::Infallible>(()) }));
        let start = Instant::now();
        for _ in 0..3 {
            service.ready().await.unwrap().call(http::Request::new(())).await.unwrap();
        }
        assert_eq!(start.elapsed().as_millis(), 200);
        let text = metrics.render().unwrap();
        assert!(text.contains("rest_client_rate_limiter_duration_seconds_count{host=\"host\",verb=\"GET\"} 3"), "{text}");
    }
}

//! The client-side rate limit: a token bucket (pure) and the tower layer that waits for it.
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

use crate::metrics::Metrics;

/// A token bucket that may owe tokens: whoever takes one is told how long to wait for it.
#[derive(Debug, Clone)]
pub(super) struct QpsTokenBucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    refilled_at: Instant,
}

impl QpsTokenBucket {
    /// A full bucket. Without a positive `per_second` nobody ever waits.
    pub(super) fn new(per_second: f64, burst: f64, now: Instant) -> Self {
        Self { per_second, burst: burst.max(1.0), tokens: burst.max(1.0), refilled_at: now }
    }

    /// Takes one token; answers how long it takes until it is there.
    pub(super) fn take(&mut self, now: Instant) -> Duration {
        if self.per_second <= 0.0 {
            return Duration::ZERO;
        }
        let elapsed = now.saturating_duration_since(self.refilled_at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.burst) - 1.0;
        self.refilled_at = now.max(self.refilled_at);
        Duration::from_secs_f64((-self.tokens).max(0.0) / self.per_second)
    }
}

/// Lets requests through at the bucket's rate.
#[derive(Clone)]
pub(super) struct RateLimitLayer {
    bucket: QpsTokenBucket,
    host: String,
    metrics: Arc<Metrics>,
}

impl RateLimitLayer {
    pub(super) fn new(qps: f32, burst: u32, host: String, metrics: Arc<Metrics>) -> Self {
        Self { bucket: QpsTokenBucket::new(f64::from(qps), f64::from(burst), Instant::now()), host, metrics }
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
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let start = Instant::now();
        let mut bucket = QpsTokenBucket::new(10.0, 3.0, start);
        let waits: Vec<_> = (0..5).map(|_| bucket.take(start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        assert_eq!(bucket.take(start + Duration::from_millis(300)).as_millis(), 0, "what was owed has come in");
        let later = start + Duration::from_secs(3600);
        assert_eq!(
            (0..4).map(|_| bucket.take(later).as_millis()).collect::<Vec<_>>(),
            [0, 0, 0, 100],
            "never more than the burst"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_nobody_waits() {
        let now = Instant::now();
        let mut bucket = QpsTokenBucket::new(0.0, 0.0, now);
        assert!((0..100).all(|_| bucket.take(now).is_zero()));
    }

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

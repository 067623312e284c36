//! Webhook port: admission webhooks over TLS, on every replica, leading or not.
//!
//! In: a [`WebhookServingConfig`] and the selected webhooks. Out: a listening HTTPS server. As upstream, it does not
//! authenticate clients: the responses of a webhook are public, and the cost of a client is bounded. Connections and heads
//! have the limits of the secure port, bodies have limits each and in total ([`body`]), and requests have a deadline. A
//! panic of a webhook fails only its request. Upstream: `k8s.io/cloud-provider/app/webhooks.go`, `webhook_metrics.go`.

mod body;

use std::{collections::BTreeMap, net::SocketAddr, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{Router, body::Body, response::IntoResponse};
use futures::FutureExt;
use http::{Method, Request, Response, StatusCode, header};
use tokio::time::{Instant, timeout};

use super::{
    ServingError,
    config::WebhookServingConfig,
    connections::ConnectionTracker,
    listener::{self, Http2Limits},
    open, tls,
};
use crate::{
    metrics::Metrics,
    runtime::{
        admission::{AdmissionRequest, AdmissionWebhook, parse_review, respond_to_review},
        clock::Clock,
        shutdown::Shutdown,
    },
};
use body::{BodyBudget, WebhookReply};

/// Time from the head of a request to its response. By default, the API server waits for 10 s.
const DEADLINE: Duration = Duration::from_secs(10);
/// Bytes that a client may send on one HTTP/2 stream before they are read.
const STREAM_WINDOW: u32 = 256 * 1024;

/// Webhook port that listens for connections.
pub struct ServedWebhooks {
    pub address: SocketAddr,
    certificates: Arc<tls::ServingCertificates>,
}

impl ServedWebhooks {
    /// Returns the PEM of the issuer of a generated certificate; `None` for a configured certificate.
    pub fn own_authority(&self) -> Option<String> {
        self.certificates.own_authority()
    }
}

/// Checks the settings, binds the address, and serves in the background until `shutdown` begins.
pub async fn serve_webhooks(
    config: &WebhookServingConfig,
    webhooks: Vec<Arc<dyn AdmissionWebhook>>,
    metrics: Arc<Metrics>,
    clock: Clock,
    shutdown: &Shutdown,
) -> Result<ServedWebhooks, ServingError> {
    let opened = open(&config.secure, clock).await;
    let (socket, certificates, tls) = opened.map_err(|error| ServingError::Webhooks(Box::new(error)))?;
    shutdown.spawn(Arc::clone(&certificates).reload(config.secure.reload_interval, None, shutdown.clone()));
    let address = socket.local;
    let names: Vec<&str> = webhooks.iter().map(|webhook| webhook.name()).collect();
    tracing::info!(%address, ?names, "Serving webhooks");
    let host = Arc::new(WebhookHost::new(webhooks, Arc::clone(&metrics)));
    let router = Router::new().fallback(move |request| {
        let host = Arc::clone(&host);
        async move { host.respond(request).await }
    });
    let limits = Http2Limits { streams: config.secure.http2_max_streams, stream_window: STREAM_WINDOW };
    shutdown.spawn(listener::run(socket, tls, router, ConnectionTracker::new(&metrics), limits, shutdown.clone()));
    Ok(ServedWebhooks { address, certificates })
}

/// Webhooks by path, with their metrics.
struct WebhookHost {
    webhooks: BTreeMap<&'static str, Arc<dyn AdmissionWebhook>>,
    metrics: Arc<Metrics>,
    bodies: BodyBudget,
}

impl WebhookHost {
    fn new(webhooks: Vec<Arc<dyn AdmissionWebhook>>, metrics: Arc<Metrics>) -> Self {
        let webhooks = webhooks.into_iter().map(|webhook| (webhook.path(), webhook)).collect();
        Self { webhooks, metrics, bodies: BodyBudget::default() }
    }

    async fn respond(&self, request: Request<Body>) -> Response<Body> {
        let Some(webhook) = self.webhooks.get(request.uri().path()) else {
            return respond((StatusCode::NOT_FOUND, "404 page not found".to_owned()));
        };
        let begun = Instant::now();
        let response = timeout(DEADLINE, self.review(webhook.as_ref(), request)).await;
        let reply = response.unwrap_or_else(|_| (StatusCode::INTERNAL_SERVER_ERROR, "no response in time".to_owned()));
        let code = reply.0.as_str().to_owned();
        let labels = [code.as_str(), webhook.name()];
        self.metrics.webhook_requests_total.with_label_values(&labels).inc();
        self.metrics.webhook_request_duration.with_label_values(&labels).observe(begun.elapsed().as_secs_f64());
        respond(reply)
    }

    async fn review(&self, webhook: &dyn AdmissionWebhook, request: Request<Body>) -> WebhookReply {
        let bad = |reason: String| (StatusCode::BAD_REQUEST, reason);
        let content_type = request.headers().get(header::CONTENT_TYPE).map(|value| value.as_bytes());
        if request.method() != Method::POST || content_type != Some(b"application/json") {
            return bad("want a POST of type application/json".to_owned());
        }
        let body = match self.bodies.read(request).await {
            Ok(body) => body,
            Err(reply) => return reply,
        };
        match parse_review(&body.bytes) {
            Ok(request) => judge(webhook, &request).await,
            Err(reason) => bad(reason),
        }
    }
}

/// Calls the webhook. A panic is returned as a failed reply.
async fn judge(webhook: &dyn AdmissionWebhook, request: &AdmissionRequest) -> WebhookReply {
    let failed = |reason: &str| {
        tracing::warn!(
            webhook = webhook.name(),
            ?request,
            reason,
            "webhook failed; failurePolicy decides about the request"
        );
        (StatusCode::INTERNAL_SERVER_ERROR, reason.to_owned())
    };
    match AssertUnwindSafe(webhook.review(request)).catch_unwind().await {
        Ok(Ok(verdict)) => (StatusCode::OK, respond_to_review(&request.uid, &verdict).to_string()),
        Ok(Err(reason)) => failed(&reason),
        Err(_) => failed("the webhook panicked"),
    }
}

fn respond((status, text): WebhookReply) -> Response<Body> {
    let kind = if status == StatusCode::OK { "application/json" } else { "text/plain; charset=utf-8" };
    (status, [(header::CONTENT_TYPE, kind)], Body::from(text)).into_response()
}

#[cfg(test)]
mod tests;

//! The secure port: TLS, delegated authentication and authorization, health, metrics, status pages.
//!
//! In: a [`SecureServingConfig`] (plain data, built by `cli`) and [`ServingDeps`] (the content of the pages). Out: a
//! listening HTTPS server, whose address [`serve`] returns and which ends gracefully when the shutdown begins.
//!
//! A request passes: `listener` (TCP, TLS, limits) → `authentication` (identity) → `authorization` (permission) → `pages`
//! (response).
//!
//! A caller without permissions gets few resources. Bounded, for each network and in all: connections (`connection_table`),
//! bytes and time of a request's head and body and of its response (`listener`, `backpressure`, `activity`, `chunked_body`),
//! the form of a request (`request_validation`), reviews by the API server (`review_budget`), cached reviews
//! (`review_cache`), responses in flight (`peer_network`), and lines in the log (`runtime::log_rate_limit`). Every pod has a
//! token, so only callers that may read a page count as authorized (`authorized_networks`). Health checks need neither a
//! review nor a share.
//!
//! Differences from upstream (`k8s.io/apiserver`): an unreachable API server never ends the process, it only makes `/readyz`
//! fail until the authentication ConfigMap is read. A failed health check reports its reason to authenticated callers.

mod activity;
mod authentication;
mod authorization;
mod authorized_networks;
mod backpressure;
mod chunked_body;
pub(crate) mod config;
mod connection_table;
mod connections;
mod deps;
mod error;
mod health;
mod listener;
mod metrics_reference;
mod pages;
mod peer_network;
pub mod request_validation;
mod review_budget;
mod review_cache;
mod review_client;
mod slis;
mod tls;
mod webhooks;

use std::{net::SocketAddr, sync::Arc};

pub use config::{
    DelegatedAuthenticationConfig, DelegatedAuthorizationConfig, RequestHeaderNames, SecureServingConfig, SniCertKey,
    TlsMinVersion, WebhookServiceName, WebhookServingConfig,
};
pub use deps::{PlanError, PlanKind, PlanRequest, Planner, ReviewClients, ServingDeps};
pub use error::ServingError;
pub use health::{HealthChecks, HealthEndpointSet};
pub use metrics_reference::metrics_reference;
pub use tls::accepted_cipher_suites;
pub use webhooks::{ServedWebhooks, serve_webhooks};

use crate::runtime::{clock::Clock, shutdown::Shutdown};

type OpenPort = (listener::BoundListener, Arc<tls::ServingCertificates>, Arc<rustls::ServerConfig>);

/// Checks the settings, binds the address, and loads the certificates.
async fn open(config: &SecureServingConfig, clock: Clock) -> Result<OpenPort, ServingError> {
    config::validate(config)?;
    let socket = listener::bind(config)?;
    let certificates = tls::ServingCertificates::load(config, clock).await?;
    let tls = tls::server_config(config, Arc::clone(&certificates))?;
    Ok((socket, certificates, tls))
}

/// Checks the settings, binds, serves in the background until `shutdown` begins, and returns the bound address.
pub async fn serve(config: SecureServingConfig, parts: ServingDeps, shutdown: Shutdown) -> Result<SocketAddr, ServingError> {
    let (socket, certificates, tls) = open(&config, parts.clock).await?;
    let familiar = Arc::<authorized_networks::AuthorizedNetworks>::default();
    let authenticator = authentication::RequestAuthenticator::start(&config, &parts, &familiar, &shutdown).await?;
    let access_reviews = parts.reviews.as_ref().map(|reviews| reviews.authorization.clone());
    let authorizer = authorization::RequestAuthorizer::new(&config.authorization, access_reviews, &familiar, &parts.metrics);
    let expiration = parts.metrics.serving_certificate_expiration.clone();
    shutdown.spawn(certificates.reload(config.reload_interval, Some(expiration), shutdown.clone()));
    let connections = connections::ConnectionTracker::new(&parts.metrics);
    let router = pages::router(&config, parts, authenticator, authorizer, familiar);
    let address = socket.local;
    tracing::info!(%address, "Serving securely");
    let limits = listener::Http2Limits { streams: config.http2_max_streams, stream_window: listener::STREAM_WINDOW };
    shutdown.spawn(listener::run(socket, tls, router, connections, limits, shutdown.clone()));
    Ok(address)
}

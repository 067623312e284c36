//! The secure port: TLS, delegated authentication and authorization, health, metrics, status pages.
//!
//! In: a [`SecureServingConfig`] (plain data, mapped from the flags) and [`ServingDeps`] (what the pages show). Out: a listening HTTPS
//! server, whose address [`serve`] returns and which ends gracefully when the shutdown begins.
//!
//! A request passes: `listener` (TCP, TLS, limits) → `authentication` (who) → `authorization` (may they) → `pages` (answer).
//!
//! Who may read nothing gets little. Bounded, for each network and in all: connections (`connection_table`), bytes and time of a
//! request's head and body and of its answer (`listener`, `backpressure`, `activity`, `chunked_body`), the form of a request
//! (`request_validation`), questions to the API server (`review_budget`), what is remembered of its answers (`review_cache`), answers under way
//! (`peer_network`), and lines in the log (`log_rate_limit`). Every pod has a token, so that only those count as known who may read a page
//! (`authorized_networks`). Health needs no question and no share.
//!
//! Differences from upstream (`k8s.io/apiserver`): an unreachable API server never ends the process, it only makes `/readyz`
//! fail until the authentication ConfigMap could be read; and a failing health check tells authenticated callers why.

mod activity;
mod authentication;
mod authorization;
mod authorized_networks;
mod backpressure;
mod chunked_body;
mod config;
mod connection_table;
mod connections;
mod health;
mod listener;
mod log_rate_limit;
mod metrics_reference;
mod pages;
mod peer_network;
pub mod request_validation;
mod review_budget;
mod review_cache;
mod review_client;
mod slis;
mod tls;

use std::{net::SocketAddr, sync::Arc};

use futures::future::BoxFuture;
use serde_json::Value;

pub use config::{
    DelegatedAuthenticationConfig, DelegatedAuthorizationConfig, RequestHeaderNames, SecureServingConfig, SniCertKey,
    TlsMinVersion,
};
pub use health::{HealthCheckFn, HealthChecks, HealthEndpoint, HealthEndpointSet};
pub use metrics_reference::metrics_reference;
pub use tls::accepted_cipher_suites;

use crate::{
    metrics::Metrics,
    runtime::{clock::Clock, shutdown::Shutdown},
};

/// Tells what would be done now for the load balancer of the Service called `namespace/name`, or why that cannot be said.
pub type DryRunPlanner = Arc<dyn Fn(String) -> BoxFuture<'static, Result<String, DryRunError>> + Send + Sync>;

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRunError {
    /// Status of the answer.
    pub code: u16,
    /// For whoever asked.
    pub reason: String,
}

/// What the pages show, handed over by the application.
#[derive(Clone)]
pub struct ServingDeps {
    /// For `/metrics`, and where this server counts.
    pub metrics: Arc<Metrics>,
    /// For `/healthz`, `/livez` and `/readyz`.
    pub health: HealthChecks,
    /// Answers TokenReviews and SubjectAccessReviews, which have limits of their own here: a client that limits its rate too would let
    /// strangers hold up its other users. Without one, only always-allowed paths and `system:masters` pass.
    pub client: Option<kube::Client>,
    /// The configuration, shown by `/configz` under the key `cloudcontrollermanager.config.k8s.io`.
    pub configz: Value,
    /// Every flag with its value in effect, for `/flagz`.
    pub flagz: Vec<(String, String)>,
    /// What this process is doing now, for `/statusz`.
    pub status: Arc<dyn Fn() -> Value + Send + Sync>,
    /// For `/planz`; `None`: there is no such page.
    pub planner: Option<DryRunPlanner>,
    /// Brings gauges up to date before they are rendered.
    pub before_metrics: Arc<dyn Fn() + Send + Sync>,
    /// Sets the log verbosity (`PUT /debug/flags/v`).
    pub set_verbosity: Arc<dyn Fn(u8) + Send + Sync>,
    /// Wall time, for the validity of certificates.
    pub clock: Clock,
}

/// Why the secure port cannot be served. All are for the operator to fix.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// A flag has a value that cannot be used.
    #[error("--{flag}: {reason}")]
    Setting {
        /// Name of the flag, without dashes.
        flag: &'static str,
        /// What is wrong, and what is accepted.
        reason: String,
    },
    /// The address cannot be listened on.
    #[error("--bind-address, --secure-port: cannot listen on {address}: {source}")]
    Bind {
        /// Address and port asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

impl ServingError {
    fn setting(flag: &'static str, reason: impl Into<String>) -> Self {
        Self::Setting { flag, reason: reason.into() }
    }
}

/// The first `limit` bytes of `text`, or fewer where a character would be cut, and a sign that there was more.
fn truncate(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// Checks the settings, binds, serves in the background until `shutdown` begins, and returns the bound address.
pub async fn serve(config: SecureServingConfig, parts: ServingDeps, shutdown: Shutdown) -> Result<SocketAddr, ServingError> {
    config::validate(&config)?;
    let socket = listener::bind(&config)?;
    let certificates = tls::ServingCertificates::load(&config, parts.clock).await?;
    let tls = tls::server_config(&config, Arc::clone(&certificates))?;
    let familiar = Arc::<authorized_networks::AuthorizedNetworks>::default();
    let authenticator = authentication::RequestAuthenticator::start(&config, &parts, &familiar, &shutdown).await?;
    let authorizer =
        authorization::RequestAuthorizer::new(&config.authorization, parts.client.clone(), &familiar, &parts.metrics);
    shutdown.spawn(certificates.reload(config.reload_interval, shutdown.clone()));
    let connections = connections::ConnectionTracker::new(&parts.metrics);
    let router = pages::router(&config, parts, authenticator, authorizer, familiar);
    let address = socket.local;
    tracing::info!(%address, "Serving securely");
    shutdown.spawn(listener::run(socket, tls, router, connections, config.http2_max_streams, shutdown.clone()));
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        let rows = [("", 2, ""), ("ab", 2, "ab"), ("abc", 2, "ab…"), ("aé", 2, "a…"), ("é", 1, "…")];
        for (text, limit, expected) in rows {
            assert_eq!(truncate(text, limit), expected, "{text} {limit}");
        }
    }
}

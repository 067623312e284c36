//! What the application hands over: what the pages show, and whom they ask.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::health::HealthChecks;
use crate::{metrics::Metrics, runtime::clock::Clock};

/// Tells what would be done now, or why that cannot be said.
pub type DryRunPlanner = Arc<dyn Fn(DryRunScope) -> BoxFuture<'static, Result<String, DryRunError>> + Send + Sync>;

/// What `/planz` is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DryRunScope {
    /// The load balancer of the Service called `namespace/name`.
    Service(String),
    /// The cluster.
    Cluster {
        /// Only this; `None`: all.
        kind: Option<DryRunKind>,
        /// Only Services whose `namespace/name` comes after this.
        after: Option<String>,
    },
    /// What a shadow manager found: `/reportz`.
    Report {
        /// For machines.
        json: bool,
    },
}

/// A part of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRunKind {
    /// Nodes.
    Nodes,
    /// Routes.
    Routes,
    /// Services.
    Services,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRunError {
    /// Status of the answer.
    pub code: u16,
    /// For whoever asked.
    pub reason: String,
}

/// Clients of the API servers that review callers. Reviews have limits of their own here: a client that limits its rate too would let
/// strangers hold up its other users.
#[derive(Clone)]
pub struct ReviewClients {
    /// For TokenReviews, and the ConfigMap with the authorities of callers.
    pub authentication: kube::Client,
    /// For SubjectAccessReviews.
    pub authorization: kube::Client,
}

impl From<kube::Client> for ReviewClients {
    fn from(client: kube::Client) -> Self {
        Self { authentication: client.clone(), authorization: client }
    }
}

/// What the pages show, handed over by the application.
#[derive(Clone)]
pub struct ServingDeps {
    /// For `/metrics`, and where this server counts.
    pub metrics: Arc<Metrics>,
    /// For `/healthz`, `/livez` and `/readyz`.
    pub health: HealthChecks,
    /// Without them, only always-allowed paths and `system:masters` pass.
    pub reviews: Option<ReviewClients>,
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

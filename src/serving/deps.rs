//! Dependencies from the application: the content of the pages, and the clients of reviews.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::health::HealthChecks;
use crate::{metrics::Metrics, runtime::clock::Clock, status::ManagerStatus};

/// Returns the plan as text, or why there is none.
pub type Planner = Arc<dyn Fn(PlanRequest) -> BoxFuture<'static, Result<String, PlanError>> + Send + Sync>;

/// Subject of a request to `/planz`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanRequest {
    /// The load balancer of the Service called `namespace/name`.
    Service(String),
    Cluster {
        /// Only this; `None`: all.
        kind: Option<PlanKind>,
        /// Only Services whose `namespace/name` comes after this.
        after: Option<String>,
    },
    /// The report of a manager with `--dry-run`: `/reportz`.
    Report {
        /// Whether to return JSON.
        json: bool,
    },
}

/// A part of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanKind {
    Nodes,
    Routes,
    Services,
}

/// Reason why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError {
    /// Status of the answer.
    pub code: u16,
    /// Message for the caller.
    pub reason: String,
}

/// Clients of the API servers that review callers. Reviews have limits of their own here: a client that limits its rate too would let
/// strangers hold up its other users.
#[derive(Clone)]
pub struct ReviewClients {
    /// For TokenReviews, and the ConfigMap with the authorities of callers.
    pub authentication: kube::Client,
    /// Client for SubjectAccessReviews only.
    pub authorization: kube::Client,
}

impl From<kube::Client> for ReviewClients {
    fn from(client: kube::Client) -> Self {
        Self { authentication: client.clone(), authorization: client }
    }
}

/// Content of the pages, supplied by the application.
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
    /// Current state of this process, for `/statusz`.
    pub status: Arc<dyn Fn() -> ManagerStatus + Send + Sync>,
    /// For `/planz`; `None`: there is no such page.
    pub planner: Option<Planner>,
    /// Brings gauges up to date before they are rendered.
    pub before_metrics: Arc<dyn Fn() + Send + Sync>,
    /// Sets the log verbosity (`PUT /debug/flags/v`).
    pub set_verbosity: Arc<dyn Fn(u8) + Send + Sync>,
    /// Wall time, for the validity of certificates.
    pub clock: Clock,
}

//! Dependencies from the application: the content of the pages, and the clients of reviews.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::health::HealthChecks;
use crate::{metrics::Metrics, runtime::clock::Clock, status::ManagerStatus};

/// Function that returns a plan as text, or the reason why there is none.
pub type Planner = Arc<dyn Fn(PlanRequest) -> BoxFuture<'static, Result<String, PlanError>> + Send + Sync>;

/// Subject of a request to `/planz`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanRequest {
    /// Plan of the load balancer of the Service `namespace/name`.
    Service(String),
    Cluster {
        /// Part of the cluster; `None`: all parts.
        kind: Option<PlanKind>,
        /// Lower bound of the Services: only those whose `namespace/name` sorts after it.
        after: Option<String>,
    },
    /// Report of a manager with `--dry-run`, for `/reportz`.
    Report {
        /// Whether to return JSON.
        json: bool,
    },
}

/// Part of the cluster in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanKind {
    Nodes,
    Routes,
    Services,
}

/// Reason why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError {
    /// HTTP status code of the response.
    pub code: u16,
    /// Message for the caller.
    pub reason: String,
}

/// Clients of the API servers that review callers.
///
/// They must have no rate limit, because reviews are limited here. Otherwise, unauthorized callers could delay other
/// requests of the clients.
#[derive(Clone)]
pub struct ReviewClients {
    /// Client for TokenReviews, and for the ConfigMap with the certificate authorities of callers.
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
    /// Metrics of the process, which `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// Checks of `/healthz`, `/livez` and `/readyz`.
    pub health: HealthChecks,
    /// Clients of reviews; `None` permits only always-allowed paths and `system:masters`.
    pub reviews: Option<ReviewClients>,
    /// Configuration that `/configz` shows under the key `cloudcontrollermanager.config.k8s.io`.
    pub configz: Value,
    /// Flags with their effective values, for `/flagz`.
    pub flagz: Vec<(String, String)>,
    /// Current state of this process, for `/statusz`.
    pub status: Arc<dyn Fn() -> ManagerStatus + Send + Sync>,
    /// Planner for `/planz`; `None`: the page does not exist.
    pub planner: Option<Planner>,
    /// Function that updates gauges before they are rendered.
    pub before_metrics: Arc<dyn Fn() + Send + Sync>,
    /// Function that sets the log verbosity (`PUT /debug/flags/v`).
    pub set_verbosity: Arc<dyn Fn(u8) + Send + Sync>,
    /// Wall time, for the validity of certificates.
    pub clock: Clock,
}

//! Controllers, with their common types.
//!
//! Each controller is a file `<name>.rs`, which wires watches to the work queue, with a folder: `plan.rs` (pure), `reconcile.rs` (reads
//! the store, calls the provider, writes) and `events.rs` (every event as a named function).
//!
//! A controller is built on every replica, leading or not, and subscribes to the informers before they start;
//! [`Controller::run`] is called when this process leads. Controllers see the cloud through [`crate::cloud_provider`] alone.

pub mod leader_migration;
pub mod names;
pub mod node;
pub mod node_ipam;
pub mod node_lifecycle;
mod restoration;
pub mod route;
pub mod service;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use kube::Api;
use parking_lot::Mutex;

use crate::{
    cloud_provider::{self, CloudError, CloudProvider, CloudResult, InstancesV2, WritePlan},
    metrics::Metrics,
    runtime::{
        clock::Clock,
        events::EventRecorder,
        informer::Informer,
        patch::{ApiError, ObjectWriter},
        shutdown::Shutdown,
        work_queue::ReconcileResult,
    },
    status::ControllerStatus,
};

/// The shared informers, before they start.
pub struct Informers {
    pub nodes: Informer<Node>,
    pub services: Informer<Service>,
    /// Runs only if the provider needs Namespaces.
    pub namespaces: Informer<Namespace>,
}

impl Informers {
    /// Adds an informer of Namespaces, which keeps names and labels only.
    pub fn new(nodes: Informer<Node>, services: Informer<Service>) -> Self {
        Self { nodes, services, namespaces: Informer::new(prune_namespace) }
    }
}

/// Removes all fields of a Namespace but its name and labels, which are the only ones with readers.
fn prune_namespace(namespace: &mut Namespace) {
    namespace.metadata.annotations = None;
    (namespace.spec, namespace.status) = (None, None);
}

/// Dependencies that all controllers share.
#[derive(Clone)]
pub struct ControllerContext {
    /// `--cluster-name`.
    pub cluster_name: String,
    /// Client that reads and writes objects, with the controller's own user agent and credentials.
    pub writer: ObjectWriter,
    /// Recorder of events, with the controller's own source component.
    pub events: EventRecorder,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
}

impl ControllerContext {
    fn nodes(&self) -> Api<Node> {
        Api::all(self.writer.client().clone())
    }
}

/// Error of the node and the node-lifecycle controller if the provider offers no instances.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cloud provider {provider:?} offers neither InstancesV2 nor Instances, which {controller} needs: disable it with \
     --controllers=*,-{controller}, or choose another --cloud-provider"
)]
pub struct NoInstances {
    provider: String,
    controller: &'static str,
}

/// Returns the instances of `provider`, which `controller` needs.
fn instances_of(provider: &dyn CloudProvider, controller: &'static str) -> Result<Arc<dyn InstancesV2>, NoInstances> {
    let missing = || NoInstances { provider: provider.provider_name().to_owned(), controller };
    cloud_provider::instances_of(provider).ok_or_else(missing)
}

/// Delay before a retry of a request that was blocked because this replica does not lead.
const NOT_LEADING_DELAY: Duration = Duration::from_secs(5);

/// Returns the outcome after a failed request to the cloud about a Node. `retry_interval` is the delay for errors that an early retry
/// cannot resolve.
fn after_cloud_error(error: &CloudError, retry_interval: Duration) -> ReconcileResult {
    match error {
        CloudError::ImplementedElsewhere => ReconcileResult::Done,
        CloudError::RetryAfter { after, .. } | CloudError::MissingReference { after, .. } => {
            ReconcileResult::RequeueAfter(*after, error.to_string())
        }
        CloudError::Invalid(_) | CloudError::Refused(_) => ReconcileResult::RequeueAfter(retry_interval, error.to_string()),
        CloudError::NotLeader(_) => ReconcileResult::RequeueAfter(NOT_LEADING_DELAY, error.to_string()),
        _ => ReconcileResult::Failed(error.to_string()),
    }
}

/// Returns the outcome after the API server rejected a write of a Node.
fn after_api_error(error: &ApiError) -> ReconcileResult {
    match error {
        ApiError::NotFound(_) => ReconcileResult::Done,
        ApiError::NotLeading(_) => ReconcileResult::RequeueAfter(NOT_LEADING_DELAY, error.to_string()),
        _ => ReconcileResult::Failed(error.to_string()),
    }
}

/// Returns the outcome after the API server rejected a write of a Node, and records a missing right in `forbidden`.
fn after_write_error(error: &ApiError, forbidden: &Mutex<Option<String>>) -> ReconcileResult {
    if matches!(error, ApiError::Forbidden(_)) {
        *forbidden.lock() = Some(error.to_string());
    }
    after_api_error(error)
}

/// Maximum number of Nodes of one kind that a plan of [`ServiceScope::Only`] looks up, because each may cost a request.
const MAX_NODE_LOOKUPS: usize = 100;

/// Services that a plan covers; all others keep what they have.
///
/// Routes are always planned as a whole, and so are Nodes, up to the limit of lookups of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceScope {
    All,
    /// Services with these keys, `namespace/name`.
    Only(BTreeSet<String>),
}

impl ServiceScope {
    /// Removes the Nodes of a kind that exceed the lookups of a page, and returns a line that counts them for the failed reads of
    /// the plan.
    ///
    /// Returns `None` if no Node was removed; [`Self::All`] removes none.
    fn omit_nodes(
        &self,
        nodes: &mut Vec<Arc<Node>>,
        kind: &'static str,
        is_of_kind: impl Fn(&Node) -> bool,
    ) -> Option<String> {
        if *self == Self::All {
            return None;
        }
        let mut count: usize = 0;
        nodes.retain(|node| {
            let is_of_kind = is_of_kind(node);
            count += usize::from(is_of_kind);
            !is_of_kind || count <= MAX_NODE_LOOKUPS
        });
        let omitted = count.saturating_sub(MAX_NODE_LOOKUPS);
        (omitted > 0).then(|| {
            format!("{omitted} more Nodes {kind}: a page looks up {MAX_NODE_LOOKUPS}, the command `plan --all` looks up all")
        })
    }

    /// Returns `true` if the plan covers the Service with the key `namespace/name`.
    pub fn includes(&self, service: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(keys) => keys.contains(service),
        }
    }
}

/// Control loop that reconciles one kind of object with the cloud. Upstream:
/// `controller.Interface` of `k8s.io/controller-manager`.
///
/// A controller is built on every replica, so that standby replicas can report its status and its plan. Only the leader calls
/// [`Self::run`], which is the only method that writes.
pub trait Controller: Send + Sync {
    /// Reconciles until `shutdown` begins, then waits for running reconciles and returns.
    ///
    /// Called once, after this process became the leader and the informers have synced. Errors do not end the run: the work queue
    /// retries failed keys with backoff. The caller drops the future after a grace period, so a reconcile must be safe to
    /// cancel at each await.
    fn run(self: Arc<Self>, shutdown: Shutdown) -> BoxFuture<'static, ()>;
    /// Returns the current state for status pages: unsettled keys, facts and, if something blocks all work, the problem.
    fn status(&self) -> ControllerStatus;
    /// Plans the writes that this controller would send if the process started now, without events and leases.
    ///
    /// Reads the cloud, writes nothing and changes no cached state. This means that every replica can plan, leading or not. The
    /// default returns an empty plan.
    ///
    /// # Errors
    ///
    /// A read of the cloud that the whole plan depends on failed. Other failed reads are lines of [`WritePlan::unread`].
    fn plan<'a>(&'a self, _scope: &'a ServiceScope) -> BoxFuture<'a, CloudResult<WritePlan>> {
        std::future::ready(Ok(WritePlan::default())).boxed()
    }
    /// Updates the gauges of this controller. Called before each scrape of the metrics.
    fn observe(&self) {}
}

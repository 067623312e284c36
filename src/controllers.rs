//! The controllers.
//!
//! Each is a file `<name>.rs`, which wires watches to the work queue, with a folder: `plan.rs` (pure), `reconcile.rs` (reads
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
    /// Runs only when the provider needs it.
    pub namespaces: Informer<Namespace>,
}

impl Informers {
    /// Creates informers of these, and an informer of Namespaces.
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
    /// Reads and writes of objects, under the controller's own user agent and credentials.
    pub writer: ObjectWriter,
    /// Events, under the controller's own source component.
    pub events: EventRecorder,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
}

impl ControllerContext {
    /// Returns the API of Nodes.
    fn nodes(&self) -> Api<Node> {
        Api::all(self.writer.client().clone())
    }
}

/// The cloud offers no instances: neither the node nor the node-lifecycle controller can work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cloud provider {provider:?} offers neither InstancesV2 nor Instances, which {controller} needs: take it out with \
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

/// Delay before a retry of what only another replica may do now.
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

/// Returns the outcome after the API server rejected a write of a Node, and records in `forbidden` what it forbids.
fn after_write_error(error: &ApiError, forbidden: &Mutex<Option<String>>) -> ReconcileResult {
    if matches!(error, ApiError::Forbidden(_)) {
        *forbidden.lock() = Some(error.to_string());
    }
    after_api_error(error)
}

/// Most Nodes of one kind that a plan of [`ServiceScope::Only`] looks up in the cloud, where each may cost a request.
const MAX_NODE_LOOKUPS: usize = 100;

/// Services that a plan is made for; all others keep what they have. Routes are always planned as a whole, and Nodes unless a page would look
/// up too many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceScope {
    All,
    /// Services with these keys, `namespace/name`.
    Only(BTreeSet<String>),
}

impl ServiceScope {
    /// Removes the Nodes of a kind that a page does not look up. Returns a line that counts them, for the failed reads of the plan.
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

    /// Returns `true` if the Service `namespace/name` is planned for.
    pub fn includes(&self, service: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(keys) => keys.contains(service),
        }
    }
}

/// A controller that has been built.
pub trait Controller: Send + Sync {
    /// Does its work until `shutdown` begins, then lets running steps end. Called once, when this process leads and the informers
    /// have synced.
    fn run(self: Arc<Self>, shutdown: Shutdown) -> BoxFuture<'static, ()>;
    /// Returns the current state.
    fn status(&self) -> ControllerStatus;
    /// Plans what this controller would write if the process started now, without events and leases.
    ///
    /// Reads the cloud, writes nothing and changes no cached state, so every replica can plan, leading or not.
    fn plan<'a>(&'a self, _scope: &'a ServiceScope) -> BoxFuture<'a, CloudResult<WritePlan>> {
        std::future::ready(Ok(WritePlan::default())).boxed()
    }
    /// Brings gauges up to date before metrics are read.
    fn observe(&self) {}
}

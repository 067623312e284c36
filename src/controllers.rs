//! The controllers. Each is a folder: `mod.rs` (which watches enqueue which keys), `plan.rs` (pure), `reconcile.rs` (reads the
//! store, calls the provider, plans, writes) and `events.rs` (every event as a named function).
//!
//! A controller is built on every replica, leading or not, and subscribes to the informers before they start; [`Controller::run`]
//! is called when this process leads. Controllers see the cloud through [`crate::cloud_provider`] alone.

pub mod leader_migration;
pub mod names;
pub mod node;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod route;
pub mod service;

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::{Namespace, Node, Service};

use crate::{
    cloud_provider::{CloudResult, WritePlan, drift::DriftNote},
    metrics::Metrics,
    runtime::{
        clock::Clock, events::EventRecorder, informer::Informer, patch::ObjectWriter, shutdown::Shutdown,
        work_queue::UnsettledKey,
    },
};

/// Most Nodes that one printed plan asks the cloud about.
const PLANNED_NODES: usize = 100;

/// The shared informers, before they start.
pub struct Informers {
    pub nodes: Informer<Node>,
    pub services: Informer<Service>,
    /// Runs only when the provider needs it.
    pub namespaces: Informer<Namespace>,
}

impl Informers {
    /// With these, and one of Namespaces.
    pub fn new(nodes: Informer<Node>, services: Informer<Service>) -> Self {
        Self { nodes, services, namespaces: Informer::new(prune_namespace) }
    }
}

/// Takes out of a Namespace what nobody reads: all but its name and labels.
fn prune_namespace(namespace: &mut Namespace) {
    namespace.metadata.annotations = None;
    (namespace.spec, namespace.status) = (None, None);
}

/// What every controller gets.
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

/// How a controller is doing, for health checks and status pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControllerStatus {
    /// Why it cannot do its work, if so. Shown by `/readyz`.
    pub problem: Option<String>,
    /// Keys that are pending, running or failing.
    pub unsettled: Vec<UnsettledKey>,
    /// Facts worth showing, name and value.
    pub facts: Vec<(String, String)>,
    /// What somebody else changed lately of what the controller keeps in the cloud.
    pub drift: Vec<DriftNote>,
}

/// A controller that has been built.
pub trait Controller: Send + Sync {
    /// Canonical name, as in `--controllers`.
    fn name(&self) -> &'static str;
    /// Does its work until `shutdown` begins, then lets running steps end. Called once, when this process leads and the informers
    /// have synced.
    fn run(self: Arc<Self>, shutdown: Shutdown) -> BoxFuture<'static, ()>;
    /// How it is doing.
    fn status(&self) -> ControllerStatus;
    /// What it would do now, for people to read, one line each; empty when nothing. Reads the cloud, writes nothing and changes nothing
    /// that is remembered, so that it is asked on every replica, leading or not.
    fn dry_run(&self) -> BoxFuture<'_, CloudResult<String>> {
        std::future::ready(Ok(String::new())).boxed()
    }
    /// The same as requests, for the whole cluster and without limits. Everything is planned as by a process that begins now. Events and
    /// leases are not in it.
    fn planned_writes(&self) -> BoxFuture<'_, CloudResult<WritePlan>> {
        std::future::ready(Ok(WritePlan::default())).boxed()
    }
    /// Brings gauges up to date before metrics are read.
    fn observe(&self) {}
}

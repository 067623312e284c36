//! The node-lifecycle controller: taints Nodes whose instance is shut down, and deletes Nodes whose instance does not exist.
//!
//! Upstream: `controllers/nodelifecycle`. It has no watches: every [`NodeLifecycleControllerConfig::monitor_period`] all
//! Nodes that are not ready, or that still carry the shutdown taint, become due. Each is checked on its own, so that a
//! blocked cloud call does not delay the others.

pub(crate) mod config;
mod deletion;
mod events;
mod instances;
mod mass_deletion;
mod plan;
mod reconcile;
mod write_plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;

pub use config::NodeLifecycleControllerConfig;
pub use events::EVENTS;

use self::{
    instances::InstanceStateSource,
    plan::{DeletionTracker, TrackerInput},
};
use super::{Controller, ControllerContext, ControllerStatus, Informers, NoInstances, ServiceScope};
use crate::{
    cloud_provider::{CloudProvider, CloudResult, WritePlan},
    node::{is_ready, provider_id, taints, uid},
    runtime::{
        shutdown::Shutdown,
        store::{InformerStore, ObjectKey},
        work_queue::{KeyBackoff, ReconcilePriority},
        worker::ReconcileQueue,
    },
};

/// Controller that deletes Nodes without an instance. Upstream: `CloudNodeLifecycleController`.
pub struct NodeLifecycleController {
    context: ControllerContext,
    config: NodeLifecycleControllerConfig,
    nodes: InformerStore<Node>,
    source: InstanceStateSource,
    provider: Arc<dyn CloudProvider>,
    queue: ReconcileQueue<ObjectKey>,
    /// UIDs of all Nodes, as of the last period.
    uids: ArcSwap<BTreeSet<String>>,
    /// Never held across an await.
    tracker: Mutex<DeletionTracker>,
    /// Reason of the last RBAC refusal, while it applies.
    forbidden: Mutex<Option<String>>,
}

impl NodeLifecycleController {
    /// Creates the controller on the store of Nodes.
    ///
    /// # Errors
    ///
    /// The provider offers neither `InstancesV2` nor `Instances`.
    pub fn new(
        context: &ControllerContext,
        informers: &mut Informers,
        provider: Arc<dyn CloudProvider>,
        config: NodeLifecycleControllerConfig,
    ) -> Result<Arc<Self>, NoInstances> {
        let source = InstanceStateSource::of(provider.as_ref(), &context.metrics)?;
        let backoff = KeyBackoff { base: config.monitor_period, max: config.monitor_period.saturating_mul(12) };
        Ok(Arc::new(Self {
            context: context.clone(),
            config,
            nodes: informers.nodes.store(),
            source,
            provider,
            queue: ReconcileQueue::new("NodeLifecycle", backoff, context.clock, Arc::clone(&context.metrics)),
            uids: ArcSwap::default(),
            tracker: Mutex::default(),
            forbidden: Mutex::default(),
        }))
    }

    async fn enqueue(&self, shutdown: &Shutdown) {
        loop {
            let nodes = self.nodes.list();
            self.uids.store(Arc::new(nodes.iter().map(|node| uid(node).to_owned()).collect()));
            self.tracker.lock().forget(self.input(&self.uids.load()));
            self.note_ready(&nodes);
            nodes
                .iter()
                .filter(|node| self.is_due(node))
                .for_each(|node| self.queue.add(ObjectKey::of(node.as_ref()), ReconcilePriority::Resync));
            let period = self.config.monitor_period.max(Duration::from_millis(10));
            if shutdown.run_until_begun(tokio::time::sleep(period)).await.is_none() {
                return;
            }
        }
    }

    /// Returns `true` if `node` is checked every period. Nodes of other clouds are not checked.
    fn is_due(&self, node: &Node) -> bool {
        (!is_ready(node) || taints::has_shutdown(node)) && !self.provider.is_foreign(node)
    }

    fn note_ready(&self, nodes: &[Arc<Node>]) {
        if !self.config.delete_uninitialized_after.is_zero() {
            let ready = nodes.iter().filter(|node| is_ready(node) && provider_id(node).is_none());
            self.tracker.lock().note_ready(ready.map(|node| uid(node).to_owned()));
        }
    }

    /// Returns the input of a decision at the current time. `nodes` are the UIDs of all Nodes.
    fn input<'a>(&'a self, nodes: &'a BTreeSet<String>) -> TrackerInput<'a> {
        TrackerInput { nodes, now: self.context.clock.now(), config: &self.config }
    }
}

impl Controller for NodeLifecycleController {
    fn run(self: Arc<Self>, shutdown: Shutdown) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let check = |key| Arc::clone(&self).reconcile(key);
            let seconds = self.context.metrics.monitor_nodes_duration.with_label_values::<&str>(&[]);
            let observe = |pass: Duration| seconds.observe(pass.as_secs_f64());
            let checks = self.queue.run_in_passes(Some(self.config.concurrent_syncs), &shutdown, check, observe);
            tokio::join!(checks, self.enqueue(&shutdown));
        })
    }

    fn status(&self) -> ControllerStatus {
        let missing_count = self.tracker.lock().mass_deletion(self.input(&self.uids.load()));
        let held_back = missing_count.map_or_else(|| "no".to_owned(), |missing_count| missing_count.to_string());
        ControllerStatus {
            problem: self.forbidden.lock().clone(),
            unsettled: self.queue.unsettled(),
            facts: BTreeMap::from([("node deletions held back".to_owned(), held_back)]),
            ..ControllerStatus::default()
        }
    }

    fn plan<'a>(&'a self, scope: &'a ServiceScope) -> BoxFuture<'a, CloudResult<WritePlan>> {
        self.write_plan(scope).map(Ok).boxed()
    }

    fn observe(&self) {
        self.queue.observe();
    }
}

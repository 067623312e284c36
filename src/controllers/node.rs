//! The node controller: initializes new Nodes from the metadata of their instances, and keeps addresses and labels up to
//! date. Upstream: `controllers/node`.
//!
//! Watches and keys: a Node with the uninitialized taint, or with labels that drifted, is added to the queue `Nodes`; all
//! initialized Nodes are added to `NodeAddresses` every [`NodeControllerConfig::status_update_frequency`].

pub(crate) mod config;
mod events;
mod label_refresh;
mod metadata_batcher;
mod plan;
mod reconcile;
mod write_plan;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub use config::{BetaLabels, NodeControllerConfig};
pub use events::EVENTS;

use self::{metadata_batcher::MetadataBatcher, plan::NodeKind};
use super::{
    Controller, ControllerContext, ControllerStatus, Informers, NoInstances, ServiceScope, instances_of, names::NODE,
    node_ipam::PodCidrPool,
};
use crate::{
    cloud_provider::{CloudProvider, CloudResult, WritePlan},
    node::{is_never_initialized, labels::Labels, taints},
    runtime::{
        informer::ObjectChange,
        shutdown::Shutdown,
        store::{InformerStore, ObjectKey},
        work_queue::{KeyBackoff, ReconcilePriority},
        worker::ReconcileQueue,
    },
};

/// Nodes that hold a write permit at the same time, in addition to those whose metadata is being requested.
///
/// More than the client sends at once, so that it always has a next request. Waiting Nodes hold no request yet, which for
/// thousands of Nodes would take tens of MiB.
const WRITES_AT_ONCE: usize = 128;

/// Controller that initializes Nodes. Upstream: `CloudNodeController`.
pub struct NodeController {
    context: ControllerContext,
    config: NodeControllerConfig,
    provider: Arc<dyn CloudProvider>,
    nodes: InformerStore<Node>,
    queue: ReconcileQueue<ObjectKey>,
    address_queue: ReconcileQueue<ObjectKey>,
    metadata_batcher: Arc<MetadataBatcher>,
    address_batcher: Arc<MetadataBatcher>,
    /// Resource versions that this controller has replaced; while the store still has one, it is behind.
    replaced: Mutex<HashMap<ObjectKey, Vec<String>>>,
    /// Permits to write an initialization.
    writes: Semaphore,
    /// Reason of the last RBAC refusal, while it applies.
    forbidden: Mutex<Option<String>>,
    /// Labels of Nodes that differ from their instances, as of the last comparison.
    outdated_labels: Mutex<HashMap<ObjectKey, Labels>>,
    /// Source of pod CIDRs, if this process allocates them.
    pod_cidrs: Option<Arc<PodCidrPool>>,
}

impl NodeController {
    /// Creates the controller and subscribes to Nodes. With `pod_cidrs`, the patches that initialize Nodes also set pod CIDRs.
    ///
    /// # Errors
    ///
    /// The provider offers neither `InstancesV2` nor `Instances`.
    pub fn new(
        context: &ControllerContext,
        informers: &mut Informers,
        provider: Arc<dyn CloudProvider>,
        config: NodeControllerConfig,
        pod_cidrs: Option<Arc<PodCidrPool>>,
    ) -> Result<Arc<Self>, NoInstances> {
        let instances = instances_of(provider.as_ref(), NODE.canonical)?;
        let make = |name, backoff| ReconcileQueue::new(name, backoff, context.clock, Arc::clone(&context.metrics));
        let slow = KeyBackoff { base: Duration::from_secs(1), max: config.status_update_frequency };
        let queue = make("Nodes", config.backoff);
        let enqueue_handle = queue.clone();
        let kinds = Arc::clone(&provider);
        informers.nodes.subscribe(move |change| {
            let key = ObjectKey::of(change.object().as_ref());
            match (plan::priority(change, config.reconciles_beta_labels(), |node| kind_of(kinds.as_ref(), node)), change) {
                (Some(priority), _) => enqueue_handle.add(key, priority),
                (None, ObjectChange::Deleted(_)) => enqueue_handle.forget(&key),
                (None, _) => {}
            }
        });
        Ok(Arc::new(Self {
            context: context.clone(),
            config,
            provider,
            nodes: informers.nodes.store(),
            queue,
            address_queue: make("NodeAddresses", slow),
            metadata_batcher: MetadataBatcher::new(Arc::clone(&instances)),
            address_batcher: MetadataBatcher::new(instances),
            replaced: Mutex::default(),
            writes: Semaphore::new(WRITES_AT_ONCE),
            forbidden: Mutex::default(),
            outdated_labels: Mutex::default(),
            pod_cidrs,
        }))
    }

    /// Returns the Nodes that do not belong to another cloud.
    fn own_nodes(&self) -> Vec<Arc<Node>> {
        let mut nodes = self.nodes.list();
        nodes.retain(|node| !self.provider.is_foreign(node));
        nodes
    }

    fn kind_of(&self, node: &Node) -> NodeKind {
        kind_of(self.provider.as_ref(), node)
    }

    fn uninitialized_count(&self) -> usize {
        self.own_nodes().iter().filter(|node| taints::is_uninitialized(node)).count()
    }

    fn never_initialized_count(&self) -> usize {
        self.nodes.list().iter().filter(|node| self.kind_of(node) == NodeKind::NeverInitialized).count()
    }

    /// Enqueues all initialized Nodes once per period, starting immediately.
    async fn enqueue_addresses(&self, shutdown: &Shutdown) {
        loop {
            let initialized = self.own_nodes().into_iter().filter(|node| !taints::is_uninitialized(node));
            initialized.for_each(|node| self.address_queue.add(ObjectKey::of(node.as_ref()), ReconcilePriority::Resync));
            self.forget_deleted();
            let period = self.config.status_update_frequency.max(Duration::from_millis(10));
            if shutdown.run_until_begun(tokio::time::sleep(period)).await.is_none() {
                return;
            }
        }
    }
}

fn kind_of(provider: &dyn CloudProvider, node: &Node) -> NodeKind {
    match node {
        foreign if provider.is_foreign(foreign) => NodeKind::Foreign,
        lacking if is_never_initialized(lacking) && provider.needs_provider_id(lacking) => NodeKind::NeverInitialized,
        _ => NodeKind::Ordinary,
    }
}

impl Controller for NodeController {
    fn run(self: Arc<Self>, shutdown: Shutdown) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let update = |key| Arc::clone(&self).update_addresses(key);
            tokio::join!(
                self.queue.run(self.config.workers, &shutdown, |key| Arc::clone(&self).reconcile(key)),
                self.address_queue.run(self.config.status_workers, &shutdown, update),
                self.enqueue_addresses(&shutdown),
            );
        })
    }

    fn status(&self) -> ControllerStatus {
        let waiting = self.uninitialized_count();
        let mut unsettled = self.queue.unsettled();
        unsettled.extend(self.address_queue.unsettled());
        let facts = BTreeMap::from([
            ("nodes".to_owned(), self.nodes.len().to_string()),
            ("uninitialized nodes".to_owned(), waiting.to_string()),
        ]);
        ControllerStatus {
            problem: self.forbidden.lock().clone(),
            facts,
            uninitialized_nodes: Some(waiting),
            unsettled,
            ..ControllerStatus::default()
        }
    }

    fn plan<'a>(&'a self, scope: &'a ServiceScope) -> BoxFuture<'a, CloudResult<WritePlan>> {
        self.write_plan(scope).map(Ok).boxed()
    }

    fn observe(&self) {
        let metrics = &self.context.metrics;
        for (gauge, count) in [
            (&metrics.uninitialized_nodes, self.uninitialized_count()),
            (&metrics.nodes_without_provider_id, self.never_initialized_count()),
        ] {
            #[expect(clippy::cast_precision_loss, reason = "a number of Nodes is far below 2⁵³")]
            gauge.with_label_values::<&str>(&[]).set(count as f64);
        }
        self.observe_labels();
        self.queue.observe();
        self.address_queue.observe();
    }
}

//! The node-ipam controller: allocates the pod CIDRs of each Node out of `--cluster-cidr`. Upstream: `pkg/nodeipam` of
//! cloud-provider-azure.
//!
//! In: Nodes, from a list of its own at the start and from the watch. Out: `spec.podCIDR` and `spec.podCIDRs`, events.
//! Allocations are rebuilt from that list, so there is no persistent state; which block is next is a pure function of the
//! allocations (`allocations`, `cidr_set`). If a node controller runs in the same process, the patch that initializes a
//! Node sets its pod CIDRs ([`PodCidrPool::spec_for`]); all other Nodes get a patch of their own.
//!
//! No CIDR is allocated twice:
//!
//! - Nothing is allocated before every Node has been read, and after another leader not before its last patches have expired
//!   (`PodCidrPool::quarantine`).
//! - A patch carries the version of the Node that it was decided on, so a late or outdated patch conflicts.
//! - A block remains the Node's until the API server rejects the patch. A missing response keeps it.
//! - A Node is identified by its UID. Its blocks are released when the watch reports its deletion, or a read does if the watch
//!   hides some Nodes.

mod allocations;
mod cidr_set;
pub(crate) mod config;
mod events;
mod listed;
mod plan;
mod pool;
mod reconcile;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use tokio::time::Instant;

pub use cidr_set::CidrSetError;
pub use config::{CidrAllocatorType, NodeIpamConfig};
pub use events::EVENTS;
pub use pool::PodCidrPool;

use self::{allocations::Allocations, listed::ListedNode, pool::PoolPhase};
use super::{Controller, ControllerContext, ControllerStatus, Informers};
use crate::{
    cloud_provider::{CloudProvider, PodCidrMasks},
    runtime::{
        informer::ObjectChange,
        shutdown::Shutdown,
        store::{InformerStore, ObjectKey},
        work_queue::KeyBackoff,
        worker::ReconcileQueue,
    },
};

/// Number of concurrent patches. Upstream: `cidrUpdateWorkers`.
const WRITERS: usize = 30;
/// Interval between attempts to read all Nodes. Upstream: `nodePollInterval`, which also delays the first one.
const READ_PERIOD: Duration = Duration::from_secs(10);
/// Time after which the attempts to read all Nodes end.
const READ_LIMIT: Duration = Duration::from_secs(600);
/// Time within which the API server may still execute requests of a leader that has ended. kube-apiserver:
/// `--request-timeout`.
const LATE_WRITES: Duration = Duration::from_secs(60);

/// Reason why the controller cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeIpamError {
    #[error("--cluster-cidr is empty, but --allocate-node-cidrs is set: give one CIDR, or one per address family")]
    NoClusterCidr,
    #[error("--cluster-cidr has {0} and {1}, which are of the same address family: one IPv4 and one IPv6 CIDR are accepted")]
    SameFamily(IpNet, IpNet),
    #[error("--cluster-cidr has {0} CIDRs: at most two are accepted, one per address family")]
    TooManyClusterCidrs(usize),
    #[error("--node-cidr-mask-size-{family}={mask}: {error}", family = if cluster.addr().is_ipv4() { "ipv4" } else { "ipv6" })]
    Mask { cluster: IpNet, mask: u8, error: CidrSetError },
    #[error(
        "cloud provider {0:?} does not report the sizes of pod CIDRs, which --cidr-allocator-type=CloudAllocator needs: \
         choose RangeAllocator"
    )]
    MasksUnsupported(String),
}

/// Controller that allocates the pod CIDRs of Nodes. Upstream: `nodeipam.Controller` of cloud-provider-azure.
pub struct NodeIpamController {
    context: ControllerContext,
    config: NodeIpamConfig,
    nodes: InformerStore<Node>,
    queue: ReconcileQueue<ObjectKey>,
    pool: Arc<PodCidrPool>,
    /// Source of block sizes, with the cloud allocator only.
    masks: Option<Arc<dyn PodCidrMasks>>,
    /// Whether a node controller of this process sets pod CIDRs in the patches that initialize Nodes.
    has_node_controller: bool,
    last_reclaim: Mutex<Option<Instant>>,
}

impl NodeIpamController {
    /// Creates the controller and subscribes to Nodes.
    ///
    /// With `has_node_controller`, a node controller of this process must be built with [`Self::pool`]; its patches then set the pod
    /// CIDRs of uninitialized Nodes.
    ///
    /// # Errors
    ///
    /// `--cluster-cidr` or the mask sizes are not usable, or the provider does not support the allocator.
    pub fn new(
        context: &ControllerContext,
        informers: &mut Informers,
        provider: &dyn CloudProvider,
        config: NodeIpamConfig,
        has_node_controller: bool,
    ) -> Result<Arc<Self>, NodeIpamError> {
        check(&config)?;
        let masks = provider.pod_cidr_masks();
        if config.allocator == CidrAllocatorType::CloudAllocator && masks.is_none() {
            return Err(NodeIpamError::MasksUnsupported(provider.provider_name().to_owned()));
        }
        let backoff = KeyBackoff { base: Duration::from_millis(100), max: Duration::from_secs(60) };
        let queue = ReconcileQueue::new("NodeIpam", backoff, context.clock, Arc::clone(&context.metrics));
        let pool =
            Arc::new(PodCidrPool::new(config.clone(), queue.clone(), Arc::clone(&context.metrics), context.events.clone()));
        subscribe(informers, queue.clone(), Arc::clone(&pool));
        let (context, nodes) = (context.clone(), informers.nodes.store());
        Ok(Arc::new(Self {
            context,
            config,
            nodes,
            queue,
            pool,
            masks,
            has_node_controller,
            last_reclaim: Mutex::default(),
        }))
    }

    /// Returns the pool that the node controller allocates from.
    pub fn pool(&self) -> Arc<PodCidrPool> {
        Arc::clone(&self.pool)
    }

    /// Reads the pod CIDRs of all Nodes and opens the pool. Returns `false` if no attempt succeeds within [`READ_LIMIT`].
    async fn open(&self) -> bool {
        let started = Instant::now();
        loop {
            match self.read().await {
                Ok(listed) => {
                    if self.context.writer.leadership().took_over() {
                        self.pool.quarantine(&listed, &self.nodes.list(), LATE_WRITES).await;
                    }
                    self.pool.decide(PoolPhase::Open);
                    return true;
                }
                Err(ReadError::Refused(problem)) => {
                    tracing::error!(problem, "no pod CIDRs are allocated");
                    self.pool.decide(PoolPhase::Refused(problem));
                }
                Err(ReadError::Failed(error)) => {
                    tracing::warn!(error, "cannot list Nodes; retrying");
                    self.pool.decide(PoolPhase::Refused(format!("Nodes cannot be listed: {error}")));
                    if started.elapsed() >= READ_LIMIT {
                        return false;
                    }
                }
            }
            tokio::time::sleep(READ_PERIOD).await;
        }
    }

    async fn read(&self) -> Result<Vec<ListedNode>, ReadError> {
        let empty = Allocations::new(&units(&self.config), &self.config.service_cidrs);
        let empty = empty.map_err(|error| ReadError::Refused(error.to_string()))?;
        self.pool.start_reading(match self.config.allocator {
            CidrAllocatorType::RangeAllocator => empty.limiting_claims(units(&self.config)),
            CidrAllocatorType::CloudAllocator => empty,
        });
        let listed = listed::list(self.context.writer.client()).await;
        let listed = listed.map_err(|error| ReadError::Failed(error.to_string()))?;
        self.pool.finish_reading(&listed, &self.nodes.list()).map_err(ReadError::Refused)?;
        Ok(listed)
    }

    async fn work(self: Arc<Self>, shutdown: Shutdown) {
        if shutdown.run_until_begun(self.open()).await != Some(true) {
            return;
        }
        self.queue.run(Some(WRITERS), &shutdown, |key| Arc::clone(&self).reconcile(key)).await;
    }
}

/// Reason why the pool remains closed.
enum ReadError {
    /// Nodes cannot be listed.
    Failed(String),
    /// The pod CIDRs of the Nodes cannot be recorded.
    Refused(String),
}

fn subscribe(informers: &mut Informers, queue: ReconcileQueue<ObjectKey>, pool: Arc<PodCidrPool>) {
    informers.nodes.subscribe(move |change| {
        let key = ObjectKey::of(change.object().as_ref());
        match change {
            ObjectChange::Deleted(node) => {
                queue.forget(&key);
                pool.on_removed(node);
            }
            ObjectChange::Added(node) | ObjectChange::Updated { new: node, .. } => pool.observe(node),
        }
        match plan::priority(change) {
            Some(priority) => queue.add(key, priority),
            None if !matches!(change, ObjectChange::Deleted(_)) => queue.forget(&key),
            None => {}
        }
    });
}

/// Checks what the command line cannot check, because the controller may be disabled.
fn check(config: &NodeIpamConfig) -> Result<(), NodeIpamError> {
    match config.cluster_cidrs.as_slice() {
        [] => return Err(NodeIpamError::NoClusterCidr),
        [_] | [IpNet::V4(_), IpNet::V6(_)] | [IpNet::V6(_), IpNet::V4(_)] => {}
        [first, second] => return Err(NodeIpamError::SameFamily(*first, *second)),
        more => return Err(NodeIpamError::TooManyClusterCidrs(more.len())),
    }
    for (cluster, mask) in units(config) {
        let mask_error = |error| NodeIpamError::Mask { cluster, mask, error };
        cidr_set::check(cluster.trunc(), mask).map_err(mask_error)?;
    }
    Ok(())
}

/// Returns the cluster CIDRs, each with the initial prefix of its blocks.
///
/// That is the prefix of the flags or, where the cloud chooses the prefix of each Node, the nearest one that the cluster
/// CIDR supports.
fn units(config: &NodeIpamConfig) -> Vec<(IpNet, u8)> {
    let unit = |cluster: &IpNet| match config.allocator {
        CidrAllocatorType::RangeAllocator => config.mask(cluster),
        CidrAllocatorType::CloudAllocator => cidr_set::nearest_unit(cluster, config.mask(cluster)),
    };
    config.cluster_cidrs.iter().map(|cluster| (*cluster, unit(cluster))).collect()
}

impl Controller for NodeIpamController {
    fn run(self: Arc<Self>, shutdown: Shutdown) -> BoxFuture<'static, ()> {
        self.work(shutdown).boxed()
    }

    fn status(&self) -> ControllerStatus {
        let phase = self.pool.phase();
        let problem = match &phase {
            PoolPhase::Refused(problem) => Some(format!("no pod CIDRs are allocated: {problem}")),
            _ => None,
        };
        let mut facts = BTreeMap::from([("pod CIDRs".to_owned(), describe(&phase).to_owned())]);
        facts.extend(self.pool.facts());
        ControllerStatus { problem, unsettled: self.queue.unsettled(), facts, ..ControllerStatus::default() }
    }

    fn observe(&self) {
        self.queue.observe();
        self.pool.publish();
    }
}

fn describe(phase: &PoolPhase) -> &'static str {
    match phase {
        PoolPhase::Closed => "allocated by the leader",
        PoolPhase::Reading => "being read from Nodes",
        PoolPhase::Quarantined => "not allocated while writes of the former leader may be in flight",
        PoolPhase::Refused(_) => "not allocated",
        PoolPhase::Open => "allocated",
    }
}

#[cfg(test)]
mod tests;

//! The shell of the node-ipam controller: reads Nodes, queries the cloud, lets the pool decide, writes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use tokio::time::Instant;

use super::{
    NodeIpamController,
    allocations::AllocationError,
    config::CidrAllocatorType,
    events, listed,
    plan::{self, FailedWrite, identity},
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    controllers::{after_api_error, after_cloud_error},
    node::pod_cidrs,
    runtime::{
        patch::{ApiError, PatchTarget},
        store::ObjectKey,
        work_queue::ReconcileResult,
    },
};

/// Maximum number of patches of one Node before its key backs off. Upstream: `cidrUpdateRetries`.
const MAX_ATTEMPTS: usize = 3;
/// Delay before a retry for a block or another prefix, unless an event comes first.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum time between searches for blocks of Nodes whose deletion was missed.
const RECLAIM_INTERVAL: Duration = Duration::from_secs(60);

impl NodeIpamController {
    pub(super) async fn reconcile(self: Arc<Self>, key: ObjectKey) -> ReconcileResult {
        if let Err(retry) = self.settle_unseen(&key).await {
            return retry;
        }
        let Some(node) = self.nodes.get(&key) else { return ReconcileResult::Done };
        self.pool.observe(&node);
        if self.pool.has(&node) {
            return ReconcileResult::Done;
        }
        match plan::needs_allocation(&node, self.pool.rules(&node, self.has_node_controller)) {
            true => self.allocate(&key, node).await,
            false => ReconcileResult::Done,
        }
    }

    /// Reads the Nodes that the informer no longer shows, and releases the blocks of deleted ones.
    async fn settle_unseen(&self, key: &ObjectKey) -> Result<(), ReconcileResult> {
        let unseen = self.pool.take_unseen(key);
        if unseen.is_empty() {
            return Ok(());
        }
        let existing = match self.read_live(key).await {
            Ok(live) => Some(identity(&live).to_owned()),
            Err(ApiError::NotFound(_)) => None,
            Err(error) => {
                self.pool.put_back_unseen(key, unseen);
                return Err(after_api_error(&error));
            }
        };
        unseen.iter().filter(|id| existing.as_deref() != Some(id)).for_each(|id| self.pool.on_deleted(id));
        Ok(())
    }

    async fn allocate(&self, key: &ObjectKey, node: Arc<Node>) -> ReconcileResult {
        let prefixes = match self.prefixes(&node).await {
            Ok(prefixes) => prefixes,
            Err(error @ CloudError::InstanceNotFound) => {
                return ReconcileResult::RequeueAfter(RETRY_INTERVAL, error.to_string());
            }
            Err(error) => return after_cloud_error(&error, RETRY_INTERVAL),
        };
        match self.reserve(&node, &prefixes).await {
            Ok(cidrs) if cidrs.is_empty() => {
                ReconcileResult::RequeueAfter(RETRY_INTERVAL, "pod CIDRs are being read".to_owned())
            }
            Ok(cidrs) => self.assign(key, node, &cidrs).await,
            Err(error) => {
                self.context.events.record(events::not_available(&node));
                ReconcileResult::RequeueAfter(RETRY_INTERVAL, error.to_string())
            }
        }
    }

    /// Returns one prefix for each cluster CIDR: the flags', or the one of the Node's machine in the cloud.
    async fn prefixes(&self, node: &Node) -> CloudResult<Vec<u8>> {
        let flags = self.pool.prefixes();
        let (CidrAllocatorType::CloudAllocator, Some(masks)) = (self.config.allocator, &self.masks) else {
            return Ok(flags);
        };
        let mask_sizes = masks.mask_sizes(node).await?;
        let of_family = |cluster: &IpNet| if cluster.addr().is_ipv4() { mask_sizes.ipv4 } else { mask_sizes.ipv6 };
        let prefixes = self.config.cluster_cidrs.iter().zip(flags);
        Ok(prefixes.map(|(cluster, flag)| of_family(cluster).unwrap_or(flag)).collect())
    }

    async fn reserve(&self, node: &Node, prefixes: &[u8]) -> Result<Vec<IpNet>, AllocationError> {
        match self.pool.reserve(node, prefixes) {
            Err(AllocationError::Exhausted { .. }) if self.reclaim().await => self.pool.reserve(node, prefixes),
            reserved => reserved,
        }
    }

    /// Releases the blocks of Nodes whose deletion no watch event reported. Returns `true` if a recent call did so.
    async fn reclaim(&self) -> bool {
        {
            let mut last = self.last_reclaim.lock();
            if last.is_some_and(|last| last.elapsed() < RECLAIM_INTERVAL) {
                return false;
            }
            *last = Some(Instant::now());
        }
        // Nodes that had pod CIDRs before the list began and are not in it are deleted.
        let holders = self.pool.holders();
        let Ok(listed) = listed::list(self.context.writer.client()).await else { return false };
        let existing: BTreeSet<&str> = listed.iter().map(listed::ListedNode::identity).collect();
        holders.iter().filter(|id| !existing.contains(&***id)).for_each(|id| self.pool.on_deleted(id));
        true
    }

    /// Patches the Node with `cidrs`, unless it already has pod CIDRs.
    async fn assign(&self, key: &ObjectKey, mut node: Arc<Node>, cidrs: &[IpNet]) -> ReconcileResult {
        let mut last = ApiError::Conflict(key.to_string());
        for _ in 0..MAX_ATTEMPTS {
            last = match self.write(key, &node, cidrs).await {
                Ok(()) => return ReconcileResult::Done,
                Err(error) if plan::failed_write(&error) == FailedWrite::Refused => {
                    self.pool.withdraw(&node);
                    last = error;
                    break;
                }
                Err(error) => error,
            };
            match self.read_live(key).await {
                Ok(live) if identity(&live) == identity(&node) => {
                    self.pool.observe(&live);
                    if !pod_cidrs(&live).is_empty() {
                        return ReconcileResult::Done;
                    }
                    node = live;
                }
                // A watch event will report another Node of this name.
                Ok(_) | Err(ApiError::NotFound(_)) => {
                    self.pool.on_deleted(identity(&node));
                    return ReconcileResult::Done;
                }
                Err(error) => last = error,
            }
        }
        self.handle_failure(&node, &last)
    }

    async fn write(&self, key: &ObjectKey, node: &Node, cidrs: &[IpNet]) -> Result<(), ApiError> {
        let (patch, version) = (Patch::Merge(plan::patch(node, cidrs)), node.metadata.resource_version.as_deref());
        if !self.pool.patch_begins(node, cidrs, version) {
            return Err(ApiError::Conflict(key.to_string()));
        }
        let written = self.context.writer.patch_briefly(&self.context.nodes(), key, PatchTarget::Object, &patch).await;
        self.pool.patch_ended(node, version, written.as_ref().err());
        written.map(drop)
    }

    /// Records the end of the attempts, and returns the outcome.
    ///
    /// A patch stopped by a conflict was not executed; after other errors that is uncertain, so the Node keeps its blocks.
    fn handle_failure(&self, node: &Node, error: &ApiError) -> ReconcileResult {
        if plan::failed_write(error) == FailedWrite::Conflict {
            self.pool.withdraw(node);
        }
        if !matches!(error, ApiError::NotFound(_) | ApiError::NotLeading(_)) {
            self.context.events.record(events::assignment_failed(node));
        }
        after_api_error(error)
    }

    async fn read_live(&self, key: &ObjectKey) -> Result<Arc<Node>, ApiError> {
        self.context.writer.get(&self.context.nodes(), key).await.map(Arc::new)
    }
}

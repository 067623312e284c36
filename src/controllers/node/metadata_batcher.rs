//! Batches concurrent metadata requests.
//!
//! In: one Node at a time, from many reconciles. Out: its result. One batch is in progress at a time, and meanwhile the next
//! one gathers; but a batch that takes longer than [`MAX_BATCH_WAIT`] does not delay the next. A Node for which a batch
//! returned no result, or none in time, is requested alone, so that one bad Node cannot spoil the others.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::cloud_provider::{CloudError, CloudResult, InstanceMetadata, InstancesV2};

/// Time that the first request of a batch waits for others.
pub(super) const BATCH_DELAY: Duration = Duration::from_millis(5);
/// Longest time that a batch delays the next one.
const MAX_BATCH_WAIT: Duration = Duration::from_secs(1);

/// Metadata of one instance; `None` if the cloud has no instance for the Node.
pub(super) type MetadataResult = CloudResult<Option<InstanceMetadata>>;

/// Nodes, with a reply channel for each. The reply contains the size of the batch.
#[derive(Default)]
struct MetadataBatch {
    nodes: Vec<Arc<Node>>,
    senders: Vec<oneshot::Sender<(MetadataResult, usize)>>,
}

#[derive(Default)]
struct PendingBatch {
    batch: MetadataBatch,
    /// Whether a task is running that will take the batch.
    has_task: bool,
}

/// Batcher for the metadata requests of one work queue.
pub(super) struct MetadataBatcher {
    pub(super) instances: Arc<dyn InstancesV2>,
    /// Never held across an await.
    pending: Mutex<PendingBatch>,
}

impl MetadataBatcher {
    pub(super) fn new(instances: Arc<dyn InstancesV2>) -> Arc<Self> {
        Arc::new(Self { instances, pending: Mutex::default() })
    }

    /// Returns the metadata of `node`, from a batch if there are concurrent requests.
    pub(super) async fn fetch(self: &Arc<Self>, node: &Arc<Node>) -> MetadataResult {
        match self.join_batch(node).await {
            Ok((result, _)) if !matches!(result, Err(CloudError::Deadline { .. })) => result,
            Ok((result, 1)) => result,
            Ok(_) | Err(_) => self.instances.instance_metadata(node).await,
        }
    }

    /// Adds `node` to the pending batch and waits for the result. Returns an error if the batch ended without one.
    async fn join_batch(self: &Arc<Self>, node: &Arc<Node>) -> Result<(MetadataResult, usize), oneshot::error::RecvError> {
        let (sender, receiver) = oneshot::channel();
        let first = {
            let mut waiting = self.pending.lock();
            waiting.batch.nodes.push(Arc::clone(node));
            waiting.batch.senders.push(sender);
            !std::mem::replace(&mut waiting.has_task, true)
        };
        if first {
            tokio::spawn(Arc::clone(self).run_batches());
        }
        receiver.await
    }

    async fn run_batches(self: Arc<Self>) {
        tokio::time::sleep(BATCH_DELAY).await;
        while let Some(batch) = self.take_batch() {
            let batch = tokio::spawn(Arc::clone(&self).run_batch(batch));
            // A batch that panics drops its senders, so its callers get an error.
            let _ = tokio::time::timeout(MAX_BATCH_WAIT, batch).await;
        }
    }

    fn take_batch(&self) -> Option<MetadataBatch> {
        let mut waiting = self.pending.lock();
        waiting.has_task = !waiting.batch.nodes.is_empty();
        waiting.has_task.then(|| std::mem::take(&mut waiting.batch))
    }

    async fn run_batch(self: Arc<Self>, MetadataBatch { nodes, senders: reply_senders }: MetadataBatch) {
        let results = self.instances.instance_metadata_batch(&nodes).await;
        for (sender, result) in reply_senders.into_iter().zip(results) {
            // The caller may have been cancelled.
            let _ = sender.send((result, nodes.len()));
        }
    }
}

#[cfg(test)]
mod tests;

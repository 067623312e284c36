//! Nodes that wait at the same moment are asked for together.
//!
//! In: one Node at a time, from many reconciles. Out: its answer. One batch is under way at a time, and meanwhile the next one
//! gathers; but a batch that takes longer than [`MAX_BATCH_WAIT`] does not hold up the next. A node that a batch gave no answer for, or
//! none in time, is asked for alone, so that one bad node cannot spoil the others.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use tokio::sync::oneshot;

use super::metadata::{MetadataResult, MetadataScope, MetadataSource};
use crate::cloud_provider::CloudError;

/// How long the first of a batch waits for others.
pub(super) const BATCH_DELAY: Duration = Duration::from_millis(5);
/// How long a batch may keep the next one waiting.
const MAX_BATCH_WAIT: Duration = Duration::from_secs(1);

/// Nodes, and who waits for the answer of each. With the answer goes the size of the batch.
#[derive(Default)]
struct MetadataBatch {
    nodes: Vec<Arc<Node>>,
    senders: Vec<oneshot::Sender<(MetadataResult, usize)>>,
}

#[derive(Default)]
struct PendingBatch {
    batch: MetadataBatch,
    /// Whether a task is there that will take them.
    has_task: bool,
}

/// Asks one question for many nodes.
pub(super) struct MetadataBatcher {
    source: Arc<MetadataSource>,
    scope: MetadataScope,
    /// Never held across an await.
    pending: Mutex<PendingBatch>,
}

impl MetadataBatcher {
    pub(super) fn new(source: Arc<MetadataSource>, question: MetadataScope) -> Arc<Self> {
        Arc::new(Self { source, scope: question, pending: Mutex::default() })
    }

    /// Whom it asks.
    pub(super) fn source(&self) -> &MetadataSource {
        &self.source
    }

    fn pending(&self) -> MutexGuard<'_, PendingBatch> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer for `node`, from a batch if others ask too.
    pub(super) async fn fetch(self: &Arc<Self>, node: &Arc<Node>) -> MetadataResult {
        match self.join_batch(node).await {
            Ok((answer, _)) if !matches!(answer, Err(CloudError::Deadline { .. })) => answer,
            Ok((answer, 1)) => answer,
            Ok(_) | Err(_) => self.source.fetch(self.scope, node).await,
        }
    }

    /// Waits for the batch's answer; an error when the batch ended without one.
    async fn join_batch(self: &Arc<Self>, node: &Arc<Node>) -> Result<(MetadataResult, usize), oneshot::error::RecvError> {
        let (sender, answer) = oneshot::channel();
        let first = {
            let mut waiting = self.pending();
            waiting.batch.nodes.push(Arc::clone(node));
            waiting.batch.senders.push(sender);
            !std::mem::replace(&mut waiting.has_task, true)
        };
        if first {
            tokio::spawn(Arc::clone(self).run_batches());
        }
        answer.await
    }

    async fn run_batches(self: Arc<Self>) {
        tokio::time::sleep(BATCH_DELAY).await;
        while let Some(batch) = self.take_batch() {
            let batch = tokio::spawn(Arc::clone(&self).run_batch(batch));
            // A batch that panics drops its senders: those who wait notice.
            let _ = tokio::time::timeout(MAX_BATCH_WAIT, batch).await;
        }
    }

    fn take_batch(&self) -> Option<MetadataBatch> {
        let mut waiting = self.pending();
        waiting.has_task = !waiting.batch.nodes.is_empty();
        waiting.has_task.then(|| std::mem::take(&mut waiting.batch))
    }

    async fn run_batch(self: Arc<Self>, MetadataBatch { nodes, senders: answers }: MetadataBatch) {
        let told = self.source.fetch_all(self.scope, &nodes).await;
        for (sender, answer) in answers.into_iter().zip(told) {
            // Whoever asked may be gone.
            let _ = sender.send((answer, nodes.len()));
        }
    }
}

#[cfg(test)]
mod tests;

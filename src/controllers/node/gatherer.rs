//! Nodes that wait at the same moment are asked for together.
//!
//! In: one Node at a time, from many reconciles. Out: its answer. One batch is under way at a time, and meanwhile the next one
//! gathers; but a batch that takes longer than [`PATIENCE`] does not hold up the next. A node that a batch gave no answer for, or
//! none in time, is asked for alone, so that one bad node cannot spoil the others.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use tokio::sync::oneshot;

use super::metadata::{Answer, Question, Source};
use crate::cloud_provider::CloudError;

/// How long the first of a batch waits for others.
pub(super) const GATHER: Duration = Duration::from_millis(5);
/// How long a batch may keep the next one waiting.
const PATIENCE: Duration = Duration::from_secs(1);

/// Nodes, and who waits for the answer of each. With the answer goes the size of the batch.
#[derive(Default)]
struct Batch {
    nodes: Vec<Arc<Node>>,
    answers: Vec<oneshot::Sender<(Answer, usize)>>,
}

#[derive(Default)]
struct Waiting {
    batch: Batch,
    /// Whether a task is there that will take them.
    gathering: bool,
}

/// Asks one question for many nodes.
pub(super) struct Gatherer {
    source: Arc<Source>,
    question: Question,
    /// Never held across an await.
    waiting: Mutex<Waiting>,
}

impl Gatherer {
    pub(super) fn new(source: Arc<Source>, question: Question) -> Arc<Self> {
        Arc::new(Self { source, question, waiting: Mutex::default() })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer for `node`, from a batch if others ask too.
    pub(super) async fn ask(self: &Arc<Self>, node: &Arc<Node>) -> Answer {
        match self.join_batch(node).await {
            Ok((answer, _)) if !matches!(answer, Err(CloudError::Deadline { .. })) => answer,
            Ok((answer, 1)) => answer,
            Ok(_) | Err(_) => self.source.ask_one(self.question, node).await,
        }
    }

    /// Waits for the batch's answer; an error when the batch ended without one.
    async fn join_batch(self: &Arc<Self>, node: &Arc<Node>) -> Result<(Answer, usize), oneshot::error::RecvError> {
        let (sender, answer) = oneshot::channel();
        let first = {
            let mut waiting = self.waiting();
            waiting.batch.nodes.push(Arc::clone(node));
            waiting.batch.answers.push(sender);
            !std::mem::replace(&mut waiting.gathering, true)
        };
        if first {
            tokio::spawn(Arc::clone(self).gather());
        }
        answer.await
    }

    async fn gather(self: Arc<Self>) {
        tokio::time::sleep(GATHER).await;
        while let Some(batch) = self.take() {
            let batch = tokio::spawn(Arc::clone(&self).run(batch));
            // A batch that panics drops its senders: those who wait notice.
            let _ = tokio::time::timeout(PATIENCE, batch).await;
        }
    }

    fn take(&self) -> Option<Batch> {
        let mut waiting = self.waiting();
        waiting.gathering = !waiting.batch.nodes.is_empty();
        waiting.gathering.then(|| std::mem::take(&mut waiting.batch))
    }

    async fn run(self: Arc<Self>, Batch { nodes, answers }: Batch) {
        let told = self.source.ask(self.question, &nodes).await;
        for (sender, answer) in answers.into_iter().zip(told) {
            // Whoever asked may be gone.
            let _ = sender.send((answer, nodes.len()));
        }
    }
}

#[cfg(test)]
mod tests;

//! The shell of the node-lifecycle controller: observes one Node and its instance, lets `plan` decide, writes.

use std::{collections::BTreeSet, sync::Arc};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::Patch;

use super::{
    NodeLifecycleController,
    deletion::{DeletionVerdict, RECREATED, deletion_verdict, is_silent_and_uninitialized},
    events,
    plan::{LifecycleAction, NodeObservation, removal_reason, waiting_reason},
};
use crate::{
    controllers::{ServiceScope, after_write_error},
    node::{is_ready, name, patch, taints, uid},
    runtime::{
        events::RecordedEvent,
        patch::{ApiError, PatchTarget},
        store::ObjectKey,
        work_queue::ReconcileResult,
    },
};

/// Maximum number of attempts to write taints after conflicts.
const ATTEMPTS: usize = 5;

/// Number of instances that a plan requests concurrently.
const MAX_CONCURRENT_LOOKUPS: usize = 10;

/// Node with the observation of its instance and the resulting action.
pub(super) type CheckedNode = (Arc<Node>, NodeObservation, LifecycleAction);

impl NodeLifecycleController {
    pub(super) async fn reconcile(self: Arc<Self>, key: ObjectKey) -> ReconcileResult {
        let Some(node) = self.nodes.get(&key) else { return ReconcileResult::Done };
        let observation = self.observe_instance(&node, || self.uids.load_full()).await;
        let action = self.tracker.lock().observe(uid(&node), &observation, self.input(&self.uids.load()));
        if let Err(error) = self.act(&node, &observation, &action).await {
            return after_write_error(&error, &self.forbidden);
        }
        match waiting_reason(&observation, &action) {
            Some(reason) if action != LifecycleAction::Delete => {
                ReconcileResult::RequeueAfter(self.config.monitor_period, reason)
            }
            _ => ReconcileResult::Done,
        }
    }

    /// Observes `node` and its instance, and queries a second source if the instance is one of many missing ones.
    ///
    /// `uids` returns the UIDs of all Nodes. It is called after the request for the instance, which may take long.
    async fn observe_instance(&self, node: &Node, uids: impl Fn() -> Arc<BTreeSet<String>>) -> NodeObservation {
        if is_ready(node) {
            return NodeObservation::Ready;
        }
        let seen = self.source.observe(node).await;
        match seen {
            NodeObservation::Gone if self.tracker.lock().needs_recheck(uid(node), self.input(&uids())) => {
                NodeObservation::GoneRechecked(self.source.instances.second_look(node).await)
            }
            NodeObservation::Unknown(reason) if self.is_unlisted(node).await => NodeObservation::Unlisted(reason),
            _ => seen,
        }
    }

    async fn is_unlisted(&self, node: &Node) -> bool {
        let may_be_unlisted = !self.config.delete_uninitialized_after.is_zero() && is_silent_and_uninitialized(node);
        may_be_unlisted && self.source.instances.is_unlisted(node).await.unwrap_or_default()
    }

    /// Observes the Nodes that are due, and decides on a copy of the tracker.
    ///
    /// Also returns a line about the Nodes that `scope` omits. On a replica that does not lead, the tracker has confirmed no
    /// missing instance.
    pub(super) async fn check_due_nodes(&self, scope: &ServiceScope) -> (Vec<CheckedNode>, Option<String>) {
        let nodes = self.nodes.list();
        let uids: Arc<BTreeSet<String>> = Arc::new(nodes.iter().map(|node| uid(node).to_owned()).collect());
        let mut due: Vec<_> = nodes.into_iter().filter(|node| self.is_due(node)).collect();
        due.sort_by(|left, right| name(left).cmp(name(right)));
        let omitted = scope.omit_nodes(&mut due, "whose machine may be gone", |_| true);
        let lookups: Vec<_> = due.iter().map(|node| self.observe_instance(node, || Arc::clone(&uids))).collect();
        let observations: Vec<_> = futures::stream::iter(lookups).buffered(MAX_CONCURRENT_LOOKUPS).collect().await;
        let (mut tracker, input) = (self.tracker.lock().clone(), self.input(&uids));
        let decide = |(node, observation): (Arc<Node>, NodeObservation)| {
            let action = tracker.observe(uid(&node), &observation, input);
            (node, observation, action)
        };
        (due.into_iter().zip(observations).map(decide).collect(), omitted)
    }

    async fn act(&self, node: &Arc<Node>, observation: &NodeObservation, action: &LifecycleAction) -> Result<(), ApiError> {
        match action {
            LifecycleAction::RemoveShutdownTaint => {
                let event = events::shutdown_taint_removed(node, removal_reason(observation));
                return self.change_taints(node, taints::without_shutdown, event).await;
            }
            LifecycleAction::AddShutdownTaint => {
                return self.change_taints(node, taints::with_shutdown, events::shutdown_taint_added(node)).await;
            }
            LifecycleAction::Delete => return self.delete(node).await,
            LifecycleAction::Report => self.context.events.record(events::instance_missing(node)),
            LifecycleAction::ReportUnknown(lasts) => {
                if let NodeObservation::Unknown(reason) | NodeObservation::Unlisted(reason) = observation {
                    let event = events::existence_unknown(node, reason, *lasts);
                    tracing::warn!(node = crate::node::name(node), "{}", event.message);
                    self.context.events.record(event);
                }
            }
            LifecycleAction::Delay { missing_count, first: true } => {
                self.context.events.record(events::delayed(node, *missing_count));
            }
            LifecycleAction::Refuse { missing_count, reason, first: true } => {
                self.refused("mass_deletion");
                self.context.events.record(events::refused(node, *missing_count, reason));
                tracing::warn!(node = crate::node::name(node), "node not deleted: {missing_count}; {reason}");
            }
            LifecycleAction::Nothing | LifecycleAction::Delay { .. } | LifecycleAction::Refuse { .. } => {}
        }
        Ok(())
    }

    /// Deletes `node` unless [`deletion_verdict`] refuses it after a read of the live Node.
    async fn delete(&self, node: &Node) -> Result<(), ApiError> {
        let result = match self.context.writer.get(&self.context.nodes(), &ObjectKey::of(node)).await {
            Ok(live) => {
                let pruned = self.nodes.pruned(live.clone());
                match deletion_verdict(node, &live, &pruned) {
                    DeletionVerdict::Delete => self.delete_live(&live).await,
                    DeletionVerdict::AlreadyDeleting => return Ok(()),
                    DeletionVerdict::Refuse(reason) => {
                        self.refuse_deletion(node, reason);
                        return Ok(());
                    }
                }
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => *self.forbidden.lock() = None,
            Err(ApiError::NotFound(_)) => {}
            Err(ApiError::Conflict(_)) => self.refuse_deletion(node, RECREATED),
            Err(error) => {
                self.tracker.lock().not_deleted(uid(node));
                self.context.events.record(events::deleting_failed(node, &error));
                return Err(error);
            }
        }
        Ok(())
    }

    async fn delete_live(&self, live: &Node) -> Result<(), ApiError> {
        let event = events::deleting(live);
        tracing::info!(node = name(live), "{}", event.message);
        self.context.events.record(event);
        self.context.writer.delete(&self.context.nodes(), &ObjectKey::of(live), uid(live)).await
    }

    fn refuse_deletion(&self, node: &Node, reason: &str) {
        self.refused(reason);
        self.tracker.lock().not_deleted(uid(node));
    }

    fn refused(&self, reason: &str) {
        self.context.metrics.node_deletions_refused_total.with_label_values(&[reason]).inc();
    }

    /// Writes the taints that `decide` computes for `node`, and records `event` if they changed. After a conflict, it decides again
    /// for the current Node.
    async fn change_taints(
        &self,
        node: &Arc<Node>,
        decide: fn(&Node) -> Option<Vec<Taint>>,
        event: RecordedEvent,
    ) -> Result<(), ApiError> {
        let key = ObjectKey::of(node.as_ref());
        let mut current = Arc::clone(node);
        for _ in 0..ATTEMPTS {
            let Some(taints) = decide(&current) else { return Ok(()) };
            let changes = patch::NodeChanges { taints: Some(taints), ..Default::default() };
            let body = Patch::Merge(patch::node(&current, &changes));
            match self.context.writer.patch(&self.context.nodes(), &key, PatchTarget::Object, &body).await {
                Ok(_) => {
                    *self.forbidden.lock() = None;
                    self.context.events.record(event);
                    return Ok(());
                }
                Err(ApiError::NotFound(_)) => return Ok(()),
                Err(ApiError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
            current = match self.context.writer.get(&self.context.nodes(), &key).await {
                Ok(live) if uid(&live) == uid(node) && is_ready(&live) == is_ready(node) => Arc::new(live),
                Ok(_) | Err(ApiError::NotFound(_)) => return Ok(()),
                Err(error) => return Err(error),
            };
        }
        Err(ApiError::Conflict(key.to_string()))
    }
}

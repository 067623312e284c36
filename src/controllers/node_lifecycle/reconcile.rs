//! The shell of the node-lifecycle controller: looks at one Node and its instance, lets `plan` decide, writes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Api;

use super::{
    NodeLifecycleController, events,
    plan::{Action, Observation, waits_for},
};
use crate::{
    node::{is_being_deleted, is_ready, patch, taints, uid},
    runtime::{
        patch::{ApiError, Part, PatchKind},
        store::ObjectKey,
        work_queue::Outcome,
    },
};

/// How often a decision is made anew after conflicts.
const ATTEMPTS: usize = 5;

impl NodeLifecycleController {
    pub(super) async fn reconcile(&self, key: &ObjectKey) -> Outcome {
        let Some(node) = self.nodes.get(key) else { return Outcome::Done };
        let observation = self.look(&node).await;
        let now = self.context.clock.now();
        let action = self.state().observe(uid(&node), &observation, &self.uids.load(), now, &self.config);
        if let Err(error) = self.act(&node, &observation, &action).await {
            return self.failed(&error);
        }
        match waits_for(&observation, &action) {
            Some(reason) if action != Action::Delete => Outcome::After(self.config.monitor_period, reason),
            _ => Outcome::Done,
        }
    }

    /// Looks at `node` and its instance, and at a second source when the instance is one of many that are gone.
    async fn look(&self, node: &Node) -> Observation {
        if is_ready(node) {
            return Observation::Ready;
        }
        let seen = self.source.observe(node).await;
        let now = self.context.clock.now();
        match seen {
            Observation::Gone if self.state().needs_second_look(uid(node), &self.uids.load(), now, &self.config) => {
                Observation::GoneInCrowd(self.source.second_look(node).await)
            }
            _ => seen,
        }
    }

    async fn act(&self, node: &Arc<Node>, observation: &Observation, action: &Action) -> Result<(), ApiError> {
        match action {
            Action::Nothing => Ok(()),
            Action::RemoveShutdownTaint => self.change_taints(node, taints::without_shutdown).await,
            Action::AddShutdownTaint => self.change_taints(node, taints::with_shutdown).await,
            Action::Report => {
                self.context.events.record(events::instance_missing(node));
                Ok(())
            }
            Action::Delete => self.delete(node).await,
            Action::ReportUnknown(lasts) => {
                if let Observation::Unknown(why) = observation {
                    let event = events::unknown(node, why, *lasts);
                    tracing::warn!(node = crate::node::name(node), "{}", event.message);
                    self.context.events.record(event);
                }
                Ok(())
            }
            Action::Delay { crowd, first } => {
                if *first {
                    self.context.events.record(events::delayed(node, *crowd));
                }
                Ok(())
            }
            Action::Refuse { crowd, why, first } => {
                if *first {
                    self.refused("mass_deletion");
                    self.context.events.record(events::refused(node, *crowd, why));
                    tracing::warn!(node = crate::node::name(node), "node not deleted: {crowd}; {why}");
                }
                Ok(())
            }
        }
    }

    /// Deletes `node` unless a fresh look at it shows another one of its name, or one that is ready again.
    async fn delete(&self, node: &Node) -> Result<(), ApiError> {
        let key = ObjectKey::of(node);
        let result = match self.context.writer.get(&self.api(), &key).await {
            Ok(live) if uid(&live) != uid(node) => Err(ApiError::Conflict(key.to_string())),
            Ok(live) if is_ready(&live) => {
                self.refused("ready_again");
                self.state().not_deleted(uid(node));
                return Ok(());
            }
            // `--node-filter-requirements` may hide it by now: the informer shows whether it does.
            Ok(live) if live.metadata.labels != node.metadata.labels => {
                self.refused("relabelled");
                self.state().not_deleted(uid(node));
                return Ok(());
            }
            Ok(live) if is_being_deleted(&live) => return Ok(()),
            Ok(live) => {
                self.context.events.record(events::deleting(&live));
                self.context.writer.delete(&self.api(), &key, uid(node)).await
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => *self.forbidden() = None,
            Err(ApiError::NotFound(_)) => {}
            Err(ApiError::Conflict(_)) => {
                self.refused("recreated");
                self.state().not_deleted(uid(node));
            }
            Err(error) => {
                self.state().not_deleted(uid(node));
                self.context.events.record(events::deleting_failed(node, &error));
                return Err(error);
            }
        }
        Ok(())
    }

    fn refused(&self, reason: &str) {
        self.context.metrics.node_deletions_refused_total.with_label_values(&[reason]).inc();
    }

    /// Writes the taints that `decide` wants for `node`; after a conflict for the Node as it is then.
    async fn change_taints(&self, node: &Arc<Node>, decide: fn(&Node) -> Option<Vec<Taint>>) -> Result<(), ApiError> {
        let key = ObjectKey::of(node.as_ref());
        let mut current = Arc::clone(node);
        for _ in 0..ATTEMPTS {
            let Some(taints) = decide(&current) else { return Ok(()) };
            let changes = patch::MainChanges { taints: Some(taints), ..Default::default() };
            let body = patch::main(&current, &changes);
            let written = self.context.writer.patch(&self.api(), &key, Part::Main, PatchKind::Merge, body).await;
            match written {
                Ok(_) => {
                    *self.forbidden() = None;
                    return Ok(());
                }
                Err(ApiError::NotFound(_)) => return Ok(()),
                Err(ApiError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
            current = match self.context.writer.get(&self.api(), &key).await {
                Ok(live) if uid(&live) == uid(node) && is_ready(&live) == is_ready(node) => Arc::new(live),
                Ok(_) | Err(ApiError::NotFound(_)) => return Ok(()),
                Err(error) => return Err(error),
            };
        }
        Err(ApiError::Conflict(key.to_string()))
    }

    fn failed(&self, error: &ApiError) -> Outcome {
        match error {
            ApiError::NotFound(_) => return Outcome::Done,
            ApiError::NotLeading(_) => return Outcome::After(self.config.monitor_period, error.to_string()),
            ApiError::Forbidden(_) => *self.forbidden() = Some(error.to_string()),
            ApiError::Conflict(_) | ApiError::Failed(_) => {}
        }
        Outcome::Failed(error.to_string())
    }

    fn api(&self) -> Api<Node> {
        Api::all(self.context.writer.client().clone())
    }
}

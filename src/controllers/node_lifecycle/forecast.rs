//! What the node-lifecycle controller would write now, as requests.
//!
//! In: every Node that is due, with its instance. Out: a [`WritePlan`]. A deletion needs evidence from two looks, so that a process that
//! begins now deletes nothing yet: the Node stands under what comes later.

use super::{
    NodeLifecycleController,
    plan::{LifecycleAction, NodeObservation},
    preview,
};
use crate::{
    cloud_provider::{PlannedWrite, WritePlan},
    node::{is_being_deleted, name, patch, taints},
};
use k8s_openapi::api::core::v1::{Node, Taint};

impl NodeLifecycleController {
    /// Looks at every Node that is due.
    pub(super) async fn forecast(&self) -> WritePlan {
        let mut plan = WritePlan::default();
        for (node, observation, action) in self.check_due_nodes(usize::MAX).await.0 {
            let told = || preview::plan(&node, &observation, &action).map(|line| line.trim_end().to_owned());
            match (&observation, write(&node, &observation, &action)) {
                (_, Some(write)) => plan.writes.push(write),
                (NodeObservation::Unknown(_) | NodeObservation::Exists(_), None) => plan.unread.extend(told()),
                (_, None) => plan.later.extend(told()),
            }
        }
        plan
    }
}

fn write(node: &Node, observation: &NodeObservation, action: &LifecycleAction) -> Option<PlannedWrite> {
    let target = format!("/api/v1/nodes/{}", name(node));
    let taint = |taints: Vec<Taint>, why: &str| {
        let changes = patch::NodeChanges { taints: Some(taints), ..Default::default() };
        PlannedWrite::patch("node", target.clone(), why, patch::node(node, &changes))
    };
    match action {
        LifecycleAction::Delete if is_being_deleted(node) => None,
        LifecycleAction::Delete => Some(PlannedWrite::deletion("node", target, "its instance is gone")),
        LifecycleAction::AddShutdownTaint => {
            taints::with_shutdown(node).map(|all| taint(all, "put the shutdown taint on: its instance is shut down"))
        }
        LifecycleAction::RemoveShutdownTaint => {
            let reason = format!("remove the shutdown taint: {}", preview::removal_reason(observation));
            taints::without_shutdown(node).map(|all| taint(all, &reason))
        }
        _ => None,
    }
}

//! Plan of the writes that the node-lifecycle controller would send now.
//!
//! In: every Node that is due, with its instance. Out: a [`WritePlan`]. A deletion needs evidence from two observations. A process
//! that has just started has none, so it lists the Node under `later`.

use k8s_openapi::api::core::v1::{Node, Taint};

use super::{
    NodeLifecycleController,
    plan::{LifecycleAction, NodeObservation, removal_reason, waiting_reason},
};
use crate::{
    cloud_provider::{PlannedWrite, WritePlan},
    controllers::ServiceScope,
    node::{is_being_deleted, name, patch, taints},
};

impl NodeLifecycleController {
    /// Plans for the Nodes that are due, limited by `scope`.
    pub(super) async fn write_plan(&self, scope: &ServiceScope) -> WritePlan {
        let (checked, omitted) = self.check_due_nodes(scope).await;
        let mut plan = WritePlan { unread: omitted.into_iter().collect(), ..WritePlan::default() };
        for (node, observation, action) in checked {
            plan.extend(plan_node(&node, &observation, &action));
        }
        plan
    }
}

/// Plans the write for `action`, or a line that says why there is none.
fn plan_node(node: &Node, observation: &NodeObservation, action: &LifecycleAction) -> WritePlan {
    let mut plan = WritePlan::default();
    plan.writes.extend(write(node, observation, action));
    let Some(reason) = held_back(node, observation, action) else { return plan };
    let line = format!("Node {:?} {reason}", name(node));
    match observation {
        NodeObservation::Unknown(_) | NodeObservation::Exists(_) => plan.unread.insert(line),
        _ => plan.later.insert(line),
    };
    plan
}

/// Returns the reason why nothing is written for a Node whose state is not normal.
fn held_back(node: &Node, observation: &NodeObservation, action: &LifecycleAction) -> Option<String> {
    match action {
        LifecycleAction::Delete => is_being_deleted(node).then(|| "waits: it is being deleted already".to_owned()),
        LifecycleAction::AddShutdownTaint | LifecycleAction::RemoveShutdownTaint => None,
        LifecycleAction::Delay { .. } | LifecycleAction::Refuse { .. } => {
            waiting_reason(observation, action).map(|reason| format!("is held back: {reason}"))
        }
        LifecycleAction::Nothing | LifecycleAction::Report | LifecycleAction::ReportUnknown(_) => {
            waiting_reason(observation, action).map(|reason| format!("waits: {reason}"))
        }
    }
}

fn write(node: &Node, observation: &NodeObservation, action: &LifecycleAction) -> Option<PlannedWrite> {
    let target = format!("/api/v1/nodes/{}", name(node));
    let taint = |taints: Vec<Taint>, reason: &str| {
        let changes = patch::NodeChanges { taints: Some(taints), ..Default::default() };
        PlannedWrite::patch("node", target.clone(), reason, patch::node(node, &changes))
    };
    match action {
        LifecycleAction::Delete if is_being_deleted(node) => None,
        LifecycleAction::Delete => {
            Some(PlannedWrite::deletion("node", target, "delete: its instance is confirmed to be missing"))
        }
        LifecycleAction::AddShutdownTaint => {
            taints::with_shutdown(node).map(|all| taint(all, "add the shutdown taint: its instance is shut down"))
        }
        LifecycleAction::RemoveShutdownTaint => {
            let reason = format!("remove the shutdown taint: {}", removal_reason(observation));
            taints::without_shutdown(node).map(|all| taint(all, &reason))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::mass_deletion::MissingNodeCount, *};
    use crate::node::fixtures::*;

    #[test]
    fn deletions_taints_and_delays_are_planned_with_the_reason() {
        let missing_count = MissingNodeCount { missing: 9, all: 10, allowance: 5 };
        let refuse = LifecycleAction::Refuse { missing_count, reason: "a list has it".to_owned(), first: true };
        let (missing, bare) = (NodeObservation::Gone, node("n"));
        let tainted = node("n").with(|n| spec(n).taints = Some(vec![taints::shutdown()]));
        let uncertain = NodeObservation::Unknown("HTTP 500".to_owned());
        let lines = |node: &Node, observation: &NodeObservation, action: &LifecycleAction| -> Vec<String> {
            let plan = plan_node(node, observation, action);
            let unread = plan.unread.iter().map(|line| format!("unread: {line}"));
            plan.writes.iter().map(ToString::to_string).chain(plan.later.clone()).chain(unread).collect()
        };
        for (node, observation, action, expected) in [
            (
                &bare,
                &missing,
                &LifecycleAction::Delete,
                "DELETE /api/v1/nodes/n: delete: its instance is confirmed to be missing",
            ),
            (
                &bare,
                &missing,
                &LifecycleAction::Report,
                "Node \"n\" waits: the instance is missing, which is not confirmed yet",
            ),
            (&bare, &missing, &refuse, "Node \"n\" is held back: the instances of 9 of 10 nodes are gone"),
            (
                &bare,
                &NodeObservation::ShutDown,
                &LifecycleAction::AddShutdownTaint,
                "PATCH /api/v1/nodes/n: add the shutdown taint: its instance is shut down",
            ),
            (&tainted, &NodeObservation::ShutDown, &LifecycleAction::AddShutdownTaint, ""),
            (&bare, &NodeObservation::Ready, &LifecycleAction::RemoveShutdownTaint, ""),
            (
                &tainted,
                &NodeObservation::Ready,
                &LifecycleAction::RemoveShutdownTaint,
                "PATCH /api/v1/nodes/n: remove the shutdown taint: it is ready",
            ),
            (
                &tainted,
                &NodeObservation::Restarted,
                &LifecycleAction::RemoveShutdownTaint,
                "PATCH /api/v1/nodes/n: remove the shutdown taint: its instance runs",
            ),
            (&tainted, &NodeObservation::Running, &LifecycleAction::Nothing, ""),
            (
                &bare,
                &uncertain,
                &LifecycleAction::Nothing,
                "unread: Node \"n\" waits: cannot determine whether the instance exists",
            ),
        ] {
            let found = lines(node, observation, action).join("\n");
            assert!(found.starts_with(expected) && found.is_empty() == expected.is_empty(), "{expected}: {found}");
        }
        assert!(lines(&bare, &missing, &refuse)[0].contains("a list has it"));
    }
}

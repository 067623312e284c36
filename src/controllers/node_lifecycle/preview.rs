//! What the node-lifecycle controller would do to a Node, for people: pure.
//!
//! In: the Node, what was seen of its instance, and the action that follows. Out: one line, if there is anything to tell.

use k8s_openapi::api::core::v1::Node;

use super::plan::{LifecycleAction, NodeObservation, waiting_reason};
use crate::node::{is_being_deleted, name, taints};

/// Tells what `action` means for `node`.
pub(super) fn plan(node: &Node, observation: &NodeObservation, action: &LifecycleAction) -> Option<String> {
    let told = match action {
        LifecycleAction::Delete if is_being_deleted(node) => "waits: it is being deleted already".to_owned(),
        LifecycleAction::Delete => "delete: its instance is gone, which is confirmed".to_owned(),
        LifecycleAction::AddShutdownTaint => {
            taints::with_shutdown(node).map(|_| "put the shutdown taint on: its instance is shut down".to_owned())?
        }
        LifecycleAction::RemoveShutdownTaint => {
            taints::without_shutdown(node).map(|_| format!("remove the shutdown taint: {}", removal_reason(observation)))?
        }
        LifecycleAction::Delay { .. } | LifecycleAction::Refuse { .. } => {
            format!("is held back: {}", waiting_reason(observation, action)?)
        }
        LifecycleAction::Nothing | LifecycleAction::Report | LifecycleAction::ReportUnknown(_) => {
            format!("waits: {}", waiting_reason(observation, action)?)
        }
    };
    Some(format!("Node {:?}: {told}\n", name(node)))
}

/// Why the shutdown taint is removed.
pub(super) fn removal_reason(observation: &NodeObservation) -> &'static str {
    match observation {
        NodeObservation::Restarted => "its instance runs",
        _ => "it is ready",
    }
}

#[cfg(test)]
mod tests {
    use super::{super::mass_deletion::MissingNodeCount, *};
    use crate::node::fixtures::*;

    #[test]
    fn deletions_taints_and_what_is_held_back_are_told_with_the_reason() {
        let missing_count = MissingNodeCount { gone: 9, all: 10, allowance: 5 };
        let refuse = LifecycleAction::Refuse { missing_count, why: "a list has it".to_owned(), first: true };
        let tainted = node("n").with(|n| spec(n).taints = Some(vec![taints::shutdown()]));
        let told = |node: &Node, observation: &NodeObservation, action: &LifecycleAction| plan(node, observation, action);
        let of = |text: &str| Some(format!("Node \"n\": {text}\n"));
        let (gone, bare) = (NodeObservation::Gone, node("n"));
        assert_eq!(told(&bare, &gone, &LifecycleAction::Delete), of("delete: its instance is gone, which is confirmed"));
        assert_eq!(
            told(&bare, &gone, &LifecycleAction::Report),
            of("waits: the instance is gone, which is to be confirmed")
        );
        let held = told(&bare, &gone, &refuse).unwrap();
        assert!(held.contains("is held back: the instances of 9 of 10 nodes are gone") && held.contains("a list has it"));
        let add = |node| told(node, &NodeObservation::ShutDown, &LifecycleAction::AddShutdownTaint);
        assert_eq!(add(&bare), of("put the shutdown taint on: its instance is shut down"));
        assert_eq!(add(&tainted), None);
        let remove = |node| told(node, &NodeObservation::Ready, &LifecycleAction::RemoveShutdownTaint);
        assert_eq!((remove(&bare), remove(&tainted)), (None, of("remove the shutdown taint: it is ready")));
        let restarted = told(&tainted, &NodeObservation::Restarted, &LifecycleAction::RemoveShutdownTaint);
        assert_eq!(restarted, of("remove the shutdown taint: its instance runs"));
        assert_eq!(told(&bare, &NodeObservation::Running, &LifecycleAction::Nothing), None);
    }
}

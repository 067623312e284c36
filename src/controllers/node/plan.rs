//! Decisions about a Node. Pure.

use k8s_openapi::api::core::v1::Node;

use crate::{
    node::{labels, patch::NodeChanges, routes, taints},
    runtime::{informer::ObjectChange, work_queue::ReconcilePriority},
};

/// Reason why a Node is not initialized whose instance does not exist in the cloud.
pub(super) const NO_INSTANCE: &str = "the cloud provider has no instance for this node";

/// Next step for a Node.
#[derive(Debug, PartialEq)]
pub(super) enum NodeAction {
    Initialize,
    /// Write deprecated labels so that they equal the stable ones.
    UpdateLabels(NodeChanges),
    Nothing,
}

/// Relation of a Node to this controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeKind {
    /// Node of another cloud: an event reports it, and nothing is written.
    Foreign,
    /// Node that needs a provider id but has no taint that would cause its initialization: an event reports it.
    NeverInitialized,
    Ordinary,
}

/// Returns the next step for `node`, without its instance.
pub(super) fn next_action(node: &Node, beta_labels: bool) -> NodeAction {
    if taints::is_uninitialized(node) {
        return NodeAction::Initialize;
    }
    let missing = if beta_labels { labels::missing_beta(labels::of(node)) } else { labels::Labels::new() };
    let changes = NodeChanges { labels: missing, ..NodeChanges::default() };
    if changes.is_empty() { NodeAction::Nothing } else { NodeAction::UpdateLabels(changes) }
}

/// Returns `true` if the taint must remain until there is a route to the Pods of `node`.
pub(super) fn awaits_route(node: &Node, waits_for_routes: bool) -> bool {
    waits_for_routes && routes::is_network_available(node) != Some(true)
}

/// Returns the priority of a change, or `None` if it is no reason to reconcile.
///
/// A change that does not affect initialization (mostly kubelet's heartbeat) does not cut a backoff short.
pub(super) fn priority(
    change: &ObjectChange<Node>,
    beta_labels: bool,
    kind: impl Fn(&Node) -> NodeKind,
) -> Option<ReconcilePriority> {
    let needs = |node: &Node| kind(node) != NodeKind::Foreign && next_action(node, beta_labels) != NodeAction::Nothing;
    let is_reported = |node: &Node| kind(node) != NodeKind::Ordinary;
    match change {
        ObjectChange::Deleted(_) => None,
        ObjectChange::Added(new) => (needs(new) || is_reported(new)).then_some(ReconcilePriority::UserChange),
        ObjectChange::Updated { old, new } if kind(new) == NodeKind::Foreign || !(needs(old) || needs(new)) => {
            // Reported once.
            (is_reported(new) && kind(old) != kind(new)).then_some(ReconcilePriority::UserChange)
        }
        ObjectChange::Updated { old, new } => {
            let routes = |node: &Node| routes::is_network_available(node);
            let inputs = |node: &Node| {
                (node.metadata.labels.clone(), node.metadata.annotations.clone(), node.spec.clone(), routes(node))
            };
            Some(if inputs(old) == inputs(new) { ReconcilePriority::Resync } else { ReconcilePriority::UserChange })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        cloud_provider::CloudError,
        controllers::{after_api_error, after_cloud_error},
        node::{fixtures::*, well_known::*},
        runtime::{patch::ApiError, work_queue::ReconcileResult},
    };

    fn tainted() -> Node {
        node("n").with(|n| spec(n).taints = Some(vec![taint(TAINT_UNINITIALIZED, "NoSchedule")]))
    }

    #[test]
    fn only_tainted_nodes_and_drifted_labels_need_an_action() {
        let drifted = node("n").with(|n| n.metadata.labels = Some(labels(&[(LABEL_ZONE, "z")])));
        let next_action = |node: &Node| next_action(node, true);
        assert_eq!(next_action(&tainted()), NodeAction::Initialize);
        assert_eq!(next_action(&node("n")), NodeAction::Nothing);
        assert_eq!(super::next_action(&drifted, false), NodeAction::Nothing);
        assert!(
            matches!(next_action(&drifted), NodeAction::UpdateLabels(changes) if changes.labels == labels(&[(LABEL_ZONE_BETA, "z")]))
        );
    }

    #[test]
    fn heartbeats_have_the_priority_of_a_resync() {
        let update = |old: Node, new: Node| ObjectChange::Updated { old: Arc::new(old), new: Arc::new(new) };
        let priority = |change: &ObjectChange<Node>| priority(change, false, |_| NodeKind::Ordinary);
        let beat = tainted().with(|n| status(n).conditions = Some(vec![condition("Ready", "True")]));
        let moved = tainted().with(|n| spec(n).provider_id = Some("fake://1".into()));
        assert_eq!(priority(&update(tainted(), beat)), Some(ReconcilePriority::Resync));
        assert_eq!(priority(&update(tainted(), moved)), Some(ReconcilePriority::UserChange));
        let routed =
            tainted().with(|n| status(n).conditions = Some(vec![condition(CONDITION_NETWORK_UNAVAILABLE, "False")]));
        assert_eq!(priority(&update(tainted(), routed)), Some(ReconcilePriority::UserChange));
        assert_eq!(priority(&update(tainted(), node("n"))), Some(ReconcilePriority::UserChange), "ends the wait of the key");
        assert_eq!(priority(&update(node("n"), node("n"))), None);
        assert_eq!(priority(&ObjectChange::Added(Arc::new(tainted()))), Some(ReconcilePriority::UserChange));
        assert_eq!(priority(&ObjectChange::Added(Arc::new(node("n")))), None);
        assert_eq!(priority(&ObjectChange::Deleted(Arc::new(tainted()))), None);
    }

    #[test]
    fn foreign_nodes_are_due_once() {
        let foreign = || tainted().with(|n| spec(n).provider_id = Some("metal3://1".into()));
        let kind = |node: &Node| match crate::node::provider_id(node) {
            Some(_) => NodeKind::Foreign,
            None => NodeKind::Ordinary,
        };
        let priority = |change: ObjectChange<Node>| priority(&change, true, kind);
        let update = |old: Node, new: Node| ObjectChange::Updated { old: Arc::new(old), new: Arc::new(new) };
        let relabeled = foreign().with(|n| n.metadata.labels = Some(labels(&[(LABEL_ZONE, "z")])));
        assert_eq!(priority(ObjectChange::Added(Arc::new(foreign()))), Some(ReconcilePriority::UserChange));
        assert_eq!(priority(update(tainted(), foreign())), Some(ReconcilePriority::UserChange), "it became foreign");
        assert_eq!(priority(update(foreign(), relabeled)), None);
        assert_eq!(priority(update(foreign(), tainted())), Some(ReconcilePriority::UserChange), "it is ours again");
    }

    #[test]
    fn nodes_that_are_never_initialized_are_due_once() {
        let kind = |node: &Node| match crate::node::is_never_initialized(node) {
            true => NodeKind::NeverInitialized,
            false => NodeKind::Ordinary,
        };
        let priority = |change: ObjectChange<Node>| priority(&change, false, kind);
        let update = |old: Node, new: Node| ObjectChange::Updated { old: Arc::new(old), new: Arc::new(new) };
        let with_id = || node("n").with(|n| spec(n).provider_id = Some("fake://1".into()));
        let beat = node("n").with(|n| status(n).conditions = Some(vec![condition("Ready", "True")]));
        let reported = Some(ReconcilePriority::UserChange);
        assert_eq!(priority(ObjectChange::Added(Arc::new(node("n")))), reported);
        assert_eq!(priority(ObjectChange::Added(Arc::new(with_id()))), None);
        assert_eq!(priority(update(node("n"), beat)), None);
        assert_eq!(priority(update(tainted(), node("n"))), reported, "the taint was removed by hand");
        assert_eq!(priority(update(with_id(), node("n"))), reported, "the Node was replaced");
        assert_eq!(priority(update(node("n"), tainted())), reported, "the remedy");
    }

    #[test]
    fn errors_determine_the_next_attempt() {
        let retry_interval = Duration::from_secs(300);
        let wait = CloudError::RetryAfter { after: Duration::from_secs(7), message: "busy".into() };
        let after = |outcome| match outcome {
            ReconcileResult::RequeueAfter(delay, _) => Some(delay.as_secs()),
            _ => None,
        };
        assert_eq!(after(after_cloud_error(&wait, retry_interval)), Some(7));
        assert_eq!(after(after_cloud_error(&CloudError::invalid("x"), retry_interval)), Some(300));
        assert_eq!(after_cloud_error(&CloudError::failed("x"), retry_interval), ReconcileResult::Failed("x".into()));
        assert_eq!(after_api_error(&ApiError::NotFound("n".into())), ReconcileResult::Done);
        assert!(matches!(after_api_error(&ApiError::Conflict("n".into())), ReconcileResult::Failed(_)));
    }
}

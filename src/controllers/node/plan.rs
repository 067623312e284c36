//! What to do with a Node: pure.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use crate::{
    cloud_provider::CloudError,
    node::{labels, patch::MainChanges, routes, taints},
    runtime::{
        informer::Change,
        patch::ApiError,
        work_queue::{Outcome, Priority},
    },
};

/// How long to leave alone what only another replica may do now.
const NOT_LEADING: Duration = Duration::from_secs(5);

/// What a Node needs.
#[derive(Debug, PartialEq)]
pub(super) enum Need {
    /// To be initialised.
    Initialize,
    /// Labels that follow older ones.
    Labels(MainChanges),
    /// Nothing.
    Nothing,
}

/// Looks at `node` alone.
pub(super) fn need(node: &Node) -> Need {
    if taints::is_uninitialized(node) {
        return Need::Initialize;
    }
    let changes = MainChanges { labels: labels::follow_beta(labels::of(node)), ..MainChanges::default() };
    if changes.is_empty() { Need::Nothing } else { Need::Labels(changes) }
}

/// Whether a change is a reason to reconcile, and how urgent. A change that leaves alone what initialisation depends on (kubelet's
/// heartbeat, mostly) does not cut a back-off short.
pub(super) fn urgency(change: &Change<Node>) -> Option<Priority> {
    let needs = |node: &Node| need(node) != Need::Nothing;
    match change {
        Change::Deleted(_) => None,
        Change::Added(new) => needs(new).then_some(Priority::UserChange),
        Change::Updated { old, new } if !needs(old) && !needs(new) => None,
        Change::Updated { old, new } => {
            let routes = |node: &Node| routes::are_there(node);
            let inputs = |node: &Node| {
                (node.metadata.labels.clone(), node.metadata.annotations.clone(), node.spec.clone(), routes(node))
            };
            Some(if inputs(old) == inputs(new) { Priority::Resync } else { Priority::UserChange })
        }
    }
}

/// When to come back after the cloud did not answer. `slowly` is for what does not change by asking again.
pub(super) fn after_cloud_error(error: &CloudError, slowly: Duration) -> Outcome {
    match error {
        CloudError::ImplementedElsewhere => Outcome::Done,
        CloudError::RetryAfter { after, .. } => Outcome::After(*after, error.to_string()),
        CloudError::Invalid(_) | CloudError::Refused(_) => Outcome::After(slowly, error.to_string()),
        CloudError::NotLeader(_) => Outcome::After(NOT_LEADING, error.to_string()),
        _ => Outcome::Failed(error.to_string()),
    }
}

/// When to come back after a write that the API server did not take.
pub(super) fn after_api_error(error: &ApiError) -> Outcome {
    match error {
        ApiError::NotFound(_) => Outcome::Done,
        ApiError::NotLeading(_) => Outcome::After(NOT_LEADING, error.to_string()),
        _ => Outcome::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::{fixtures::*, well_known::*};

    fn tainted() -> Node {
        node("n").with(|n| spec(n).taints = Some(vec![taint(TAINT_UNINITIALIZED, "NoSchedule")]))
    }

    #[test]
    fn only_tainted_nodes_and_drifted_labels_need_anything() {
        let drifted = node("n").with(|n| n.metadata.labels = Some(labels(&[(LABEL_ZONE_BETA, "z")])));
        assert_eq!(need(&tainted()), Need::Initialize);
        assert_eq!(need(&node("n")), Need::Nothing);
        assert!(matches!(need(&drifted), Need::Labels(changes) if changes.labels == labels(&[(LABEL_ZONE, "z")])));
    }

    #[test]
    fn heartbeats_do_not_hurry() {
        let update = |old: Node, new: Node| Change::Updated { old: Arc::new(old), new: Arc::new(new) };
        let beat = tainted().with(|n| status(n).conditions = Some(vec![condition("Ready", "True")]));
        let moved = tainted().with(|n| spec(n).provider_id = Some("fake://1".into()));
        assert_eq!(urgency(&update(tainted(), beat)), Some(Priority::Resync));
        assert_eq!(urgency(&update(tainted(), moved)), Some(Priority::UserChange));
        let routed =
            tainted().with(|n| status(n).conditions = Some(vec![condition(CONDITION_NETWORK_UNAVAILABLE, "False")]));
        assert_eq!(urgency(&update(tainted(), routed)), Some(Priority::UserChange));
        assert_eq!(urgency(&update(tainted(), node("n"))), Some(Priority::UserChange), "settles what waits");
        assert_eq!(urgency(&update(node("n"), node("n"))), None);
        assert_eq!(urgency(&Change::Added(Arc::new(tainted()))), Some(Priority::UserChange));
        assert_eq!(urgency(&Change::Added(Arc::new(node("n")))), None);
        assert_eq!(urgency(&Change::Deleted(Arc::new(tainted()))), None);
    }

    #[test]
    fn errors_say_when_to_come_back() {
        let slowly = Duration::from_secs(300);
        let wait = CloudError::RetryAfter { after: Duration::from_secs(7), message: "busy".into() };
        let after = |outcome| match outcome {
            Outcome::After(delay, _) => Some(delay.as_secs()),
            _ => None,
        };
        assert_eq!(after(after_cloud_error(&wait, slowly)), Some(7));
        assert_eq!(after(after_cloud_error(&CloudError::invalid("x"), slowly)), Some(300));
        assert_eq!(after_cloud_error(&CloudError::failed("x"), slowly), Outcome::Failed("x".into()));
        assert_eq!(after_api_error(&ApiError::NotFound("n".into())), Outcome::Done);
        assert!(matches!(after_api_error(&ApiError::Conflict("n".into())), Outcome::Failed(_)));
    }
}

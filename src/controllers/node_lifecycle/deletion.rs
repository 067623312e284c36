//! Final check of a deletion against the live Node. Pure.
//!
//! In: the Node for which the deletion was decided, and the Node as the API server has it now. Out: a [`DeletionVerdict`].

use k8s_openapi::api::core::v1::Node;

use crate::node::{is_being_deleted, is_ready, kubelet_reports, provider_id, taints, uid};

/// Reason for a Node that was replaced by another one of its name.
pub(super) const RECREATED: &str = "recreated";
/// Reason for a Node whose labels changed. Value of a metric's label.
const LABELS_CHANGED: &str = "relabelled";

/// Decision about a deletion right before its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeletionVerdict {
    Delete,
    /// Another client has requested the deletion; finalizers delay it.
    AlreadyDeleting,
    /// Keep the Node, with this label `reason` of the metric.
    Refuse(&'static str),
}

/// Decides about the deletion of `node`. `live` is the Node as the API server has it now, and `pruned` its cached form.
pub(super) fn deletion_verdict(node: &Node, live: &Node, pruned: &Node) -> DeletionVerdict {
    let was_initialized = is_silent_and_uninitialized(live) != is_silent_and_uninitialized(node);
    if uid(live) != uid(node) {
        DeletionVerdict::Refuse(RECREATED)
    } else if is_ready(live) {
        DeletionVerdict::Refuse("ready_again")
    } else if was_initialized || provider_id(live) != provider_id(node) {
        DeletionVerdict::Refuse("initialized")
    } else if pruned.metadata.labels != node.metadata.labels {
        // `--node-filter-requirements` may now hide the Node: the informer shows whether it does.
        DeletionVerdict::Refuse(LABELS_CHANGED)
    } else if is_being_deleted(live) {
        DeletionVerdict::AlreadyDeleting
    } else {
        DeletionVerdict::Delete
    }
}

/// Returns `true` if there is no evidence that the machine of `node` ever existed or still runs.
pub(super) fn is_silent_and_uninitialized(node: &Node) -> bool {
    provider_id(node).is_none() && taints::is_uninitialized(node) && !kubelet_reports(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{fixtures::*, well_known};

    fn initialized() -> Node {
        node("n").with(|n| {
            n.metadata.uid = Some("u".into());
            n.metadata.labels = Some(labels(&[("a", "b")]));
            spec(n).provider_id = Some("fake://1".into());
        })
    }

    fn uninitialized() -> Node {
        initialized().with(|n| {
            spec(n).provider_id = None;
            spec(n).taints = Some(vec![taint(well_known::TAINT_UNINITIALIZED, "NoSchedule")]);
        })
    }

    fn ready(value: &str) -> impl FnOnce(&mut Node) {
        move |n| status(n).conditions = Some(vec![condition("Ready", value)])
    }

    #[test]
    fn deletion_verdict_follows_the_live_read() {
        let replaced = |n: &mut Node| n.metadata.uid = Some("other".into());
        let labeled = |n: &mut Node| n.metadata.labels = Some(labels(&[("a", "c")]));
        let deleting = |n: &mut Node| {
            n.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap().into())
        };
        let moved = |n: &mut Node| spec(n).provider_id = Some("fake://2".into());
        let refuse = DeletionVerdict::Refuse;
        for (case, node, live, expected) in [
            ("unchanged", initialized(), initialized(), DeletionVerdict::Delete),
            ("silent", initialized(), initialized().with(ready("Unknown")), DeletionVerdict::Delete),
            ("replaced", initialized(), initialized().with(replaced), refuse("recreated")),
            ("replaced and ready", initialized(), initialized().with(replaced).with(ready("True")), refuse("recreated")),
            ("ready", initialized(), initialized().with(ready("True")), refuse("ready_again")),
            ("ready and deleting", initialized(), initialized().with(ready("True")).with(deleting), refuse("ready_again")),
            ("another instance", initialized(), initialized().with(moved), refuse("initialized")),
            ("uninitialized", uninitialized(), uninitialized(), DeletionVerdict::Delete),
            ("initialized", uninitialized(), initialized(), refuse("initialized")),
            ("kubelet reports", uninitialized(), uninitialized().with(ready("False")), refuse("initialized")),
            ("labeled", initialized(), initialized().with(labeled), refuse(LABELS_CHANGED)),
            ("labeled and deleting", initialized(), initialized().with(labeled).with(deleting), refuse(LABELS_CHANGED)),
            ("deleting", initialized(), initialized().with(deleting), DeletionVerdict::AlreadyDeleting),
        ] {
            assert_eq!(deletion_verdict(&node, &live, &live), expected, "{case}");
        }
        let filtered = initialized().with(|n| n.metadata.labels = None);
        assert_eq!(
            deletion_verdict(&filtered, &initialized(), &filtered),
            DeletionVerdict::Delete,
            "the informer drops labels"
        );
    }
}

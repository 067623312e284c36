//! Events of the node-lifecycle controller, each a named function.

use std::{fmt::Display, time::Duration};

use k8s_openapi::api::core::v1::Node;

use super::mass_deletion::MissingNodeCount;
use crate::{
    node::{name, well_known::TAINT_SHUTDOWN},
    runtime::events::{EventDescription, RecordedEvent},
};

const INSTANCE_MISSING: EventDescription = EventDescription::normal(
    "InstanceMissing",
    "The cloud provider first reported that the instance of a NotReady Node does not exist.",
);
const DELETING: EventDescription = EventDescription::normal(
    "DeletingNode",
    "The program deletes a Node: the cloud provider confirmed that its instance does not exist.",
);
const DELETING_FAILED: EventDescription =
    EventDescription::warning("DeletingNodeFailed", "The API server failed to delete a Node.");
const REFUSED: EventDescription = EventDescription::warning(
    "NodeDeletionRefused",
    "A Node is kept: too many instances are missing at once, and the evidence is doubtful.",
);
const DELAYED: EventDescription = EventDescription::normal(
    "NodeDeletionDelayed",
    "Deletion of a Node is delayed: many instances are missing at once, so Nodes are deleted at a limited rate.",
);
const EXISTENCE_UNKNOWN: EventDescription = EventDescription::warning(
    "InstanceExistenceUnknown",
    "For 5 minutes the cloud provider could not confirm whether the instance of a NotReady Node exists; repeated every hour.",
);
const SHUTDOWN_TAINT_ADDED: EventDescription = EventDescription::normal(
    "ShutdownTaintAdded",
    "The shutdown taint has been added to a Node: its instance is shut down.",
);
const SHUTDOWN_TAINT_REMOVED: EventDescription = EventDescription::normal(
    "ShutdownTaintRemoved",
    "The shutdown taint of a Node has been removed: its instance runs, or the Node is ready.",
);

/// Events of this controller, for the reference page.
pub const EVENTS: &[EventDescription] = &[
    INSTANCE_MISSING,
    DELETING,
    DELETING_FAILED,
    REFUSED,
    DELAYED,
    EXISTENCE_UNKNOWN,
    SHUTDOWN_TAINT_ADDED,
    SHUTDOWN_TAINT_REMOVED,
];

/// Reports that the cloud does not find the instance, which is not confirmed yet.
pub(super) fn instance_missing(node: &Node) -> RecordedEvent {
    let message = "The cloud provider does not find the instance; the node will be deleted once this is confirmed";
    INSTANCE_MISSING.about(node, message)
}

/// Reports that the Node is about to be deleted, in upstream's words.
pub(super) fn deleting(node: &Node) -> RecordedEvent {
    let message = format!("Deleting node {} because it does not exist in the cloud provider", name(node));
    DELETING.about(node, message)
}

/// Reports that the deletion failed, in upstream's words.
pub(super) fn deleting_failed(node: &Node, error: &dyn Display) -> RecordedEvent {
    DELETING_FAILED.about(node, format!("Failed deleting node {}: {error}", name(node)))
}

pub(super) fn refused(node: &Node, missing_count: MissingNodeCount, reason: &str) -> RecordedEvent {
    let message = format!(
        "Not deleting node {}: {missing_count}, and the evidence is doubtful. If the instances are gone, delete the nodes by hand or raise \
         --node-deletion-max-percent or, up to half of the nodes, --node-deletion-max-count. Evidence: {reason}",
        name(node)
    );
    REFUSED.about(node, message)
}

pub(super) fn delayed(node: &Node, missing_count: MissingNodeCount) -> RecordedEvent {
    let message =
        format!("Deletion of node {} delayed: {missing_count}; confirmed nodes are deleted at a limited rate", name(node));
    DELAYED.about(node, message)
}

/// Reports that the existence of the instance has been unknown for the time `lasts`.
pub(super) fn existence_unknown(node: &Node, reason: &str, lasts: Duration) -> RecordedEvent {
    let message = format!(
        "For {} minutes the cloud provider could not confirm whether the instance of node {node} exists; the node is kept. Fix the \
         cause or, if the instance is gone, run `kubectl delete node {node}`. The cause: {reason}",
        lasts.as_secs() / 60,
        node = name(node)
    );
    EXISTENCE_UNKNOWN.about(node, message)
}

pub(super) fn shutdown_taint_added(node: &Node) -> RecordedEvent {
    SHUTDOWN_TAINT_ADDED.about(node, format!("Taint {TAINT_SHUTDOWN} added: the instance is shut down"))
}

pub(super) fn shutdown_taint_removed(node: &Node, reason: &str) -> RecordedEvent {
    SHUTDOWN_TAINT_REMOVED.about(node, format!("Taint {TAINT_SHUTDOWN} removed: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fixtures::node;

    #[test]
    fn table_lists_every_event() {
        let node = node("n");
        let missing_count = MissingNodeCount { missing: 15, all: 50, allowance: 10 };
        let all = [
            instance_missing(&node),
            deleting(&node),
            deleting_failed(&node, &"broken"),
            refused(&node, missing_count, "HTTP 403"),
            delayed(&node, missing_count),
            existence_unknown(&node, "HTTP 500", Duration::from_secs(301)),
            shutdown_taint_added(&node),
            shutdown_taint_removed(&node, "it is ready"),
        ];
        let table: Vec<_> = EVENTS.iter().map(|row| (row.reason, row.type_)).collect();
        assert_eq!(all.clone().map(|event| (event.reason, event.type_)).to_vec(), table);
        assert_eq!(all[1].message, "Deleting node n because it does not exist in the cloud provider");
        assert_eq!(all[2].message, "Failed deleting node n: broken");
        assert!(all[3].message.contains("15 of 50 nodes") && all[3].message.contains("HTTP 403"), "{}", all[3].message);
        assert!(all[4].message.contains("15 of 50 nodes"), "{}", all[4].message);
        let message = &all[5].message;
        assert!(message.starts_with("For 5 minutes") && message.contains("run `kubectl delete node n`"), "{message}");
        assert!(message.ends_with("The cause: HTTP 500"), "{message}");
    }
}

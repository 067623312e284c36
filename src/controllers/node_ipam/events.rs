//! Events of the node-ipam controller, each a named function. Words and types are upstream's if upstream has the event.

use std::fmt::Display;

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use crate::runtime::events::{EventDescription, RecordedEvent};

const NOT_AVAILABLE: EventDescription = EventDescription::normal(
    "CIDRNotAvailable",
    "No block of a cluster CIDR is free for the Node, which gets none until one is released.",
);
const ASSIGNMENT_FAILED: EventDescription = EventDescription::normal(
    "CIDRAssignmentFailed",
    "The API server rejected the Node's pod CIDRs three times in a row. Retries with backoff.",
);

const IGNORED: EventDescription = EventDescription::warning(
    "PodCIDRIgnored",
    "A Node has a pod CIDR that is much larger than that of a node: other Nodes get its addresses when no others are free.",
);

/// Events of this controller, for the reference page.
pub const EVENTS: &[EventDescription] = &[NOT_AVAILABLE, ASSIGNMENT_FAILED, IGNORED];

/// Reports pod CIDRs that the Node claims and that are not reserved for it.
pub(super) fn ignored(name: &str, uid: &str, error: &dyn Display) -> RecordedEvent {
    let metadata = ObjectMeta { name: Some(name.to_owned()), uid: Some(uid.to_owned()), ..ObjectMeta::default() };
    let node = Node { metadata, ..Node::default() };
    let message = format!(
        "Node {name}: {error}; other nodes get its addresses when no others are free. Delete the node and register it again"
    );
    IGNORED.about(&node, message)
}

/// Reports that the cluster CIDR is exhausted.
pub(super) fn not_available(node: &Node) -> RecordedEvent {
    status_is_now(node, &NOT_AVAILABLE)
}

pub(super) fn assignment_failed(node: &Node) -> RecordedEvent {
    status_is_now(node, &ASSIGNMENT_FAILED)
}

fn status_is_now(node: &Node, event: &EventDescription) -> RecordedEvent {
    event.about(node, format!("Node {} status is now: {}", crate::node::name(node), event.reason))
}

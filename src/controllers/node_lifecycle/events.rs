//! Every event of the node-lifecycle controller.

use std::fmt::Display;

use k8s_openapi::api::core::v1::Node;

use super::plan::Crowd;
use crate::{
    node::name,
    runtime::events::{Event, EventDoc, EventType, reference},
};

/// All of them, for the reference page.
pub const EVENTS: &[EventDoc] = &[
    EventDoc {
        reason: INSTANCE_MISSING,
        type_: EventType::Normal,
        when: "The cloud provider said for the first time that the instance of a Node that is not ready is gone.",
    },
    EventDoc {
        reason: DELETING,
        type_: EventType::Normal,
        when: "A Node is about to be deleted: the cloud provider confirmed that its instance is gone.",
    },
    EventDoc { reason: DELETING_FAILED, type_: EventType::Warning, when: "The API server did not delete a Node." },
    EventDoc {
        reason: REFUSED,
        type_: EventType::Warning,
        when: "A Node is not deleted because too many instances are gone at once, which may be an error of the cloud.",
    },
];

const INSTANCE_MISSING: &str = "InstanceMissing";
const DELETING: &str = "DeletingNode";
const DELETING_FAILED: &str = "DeletingNodeFailed";
const REFUSED: &str = "NodeDeletionRefused";

fn event(node: &Node, type_: EventType, reason: &'static str, message: String) -> Event {
    Event { about: reference(node), type_, reason, message }
}

/// Gone, says the cloud; not confirmed yet.
pub(super) fn instance_missing(node: &Node) -> Event {
    let message = "The cloud provider does not know the instance; the node is deleted when that is confirmed".to_owned();
    event(node, EventType::Normal, INSTANCE_MISSING, message)
}

/// About to be deleted. Upstream's words.
pub(super) fn deleting(node: &Node) -> Event {
    let message = format!("Deleting node {} because it does not exist in the cloud provider", name(node));
    event(node, EventType::Normal, DELETING, message)
}

/// Not deleted. Upstream's words.
pub(super) fn deleting_failed(node: &Node, error: &dyn Display) -> Event {
    event(node, EventType::Warning, DELETING_FAILED, format!("Failed deleting node {}: {error}", name(node)))
}

/// Held back.
pub(super) fn refused(node: &Node, crowd: Crowd) -> Event {
    event(node, EventType::Warning, REFUSED, format!("Not deleting node {}: {crowd}", name(node)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fixtures::node;

    #[test]
    fn every_event_stands_in_the_table() {
        let node = node("n");
        let crowd = Crowd { gone: 15, all: 50, allowance: 10 };
        let all = [instance_missing(&node), deleting(&node), deleting_failed(&node, &"broken"), refused(&node, crowd)];
        let table: Vec<_> = EVENTS.iter().map(|row| (row.reason, row.type_)).collect();
        assert_eq!(all.clone().map(|event| (event.reason, event.type_)).to_vec(), table);
        assert_eq!(all[1].message, "Deleting node n because it does not exist in the cloud provider");
        assert_eq!(all[2].message, "Failed deleting node n: broken");
        assert!(all[3].message.contains("15 of 50 nodes"), "{}", all[3].message);
    }
}

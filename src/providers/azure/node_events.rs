//! Every event about Nodes that this provider records itself. Pure.

use k8s_openapi::api::core::v1::Node;

use super::{
    node,
    out_of_service::decide::{MachinePower, OUT_OF_SERVICE, TaintDecision},
};
use crate::runtime::events::{EventDescription, EventType, RecordedEvent, object_reference};

/// Every event, for the reference page.
pub const EVENTS: &[EventDescription] = &[
    EventDescription {
        reason: ADDED,
        type_: EventType::Normal,
        when: "A Node that is not ready has been given the taint `node.kubernetes.io/out-of-service`: its machine is shut down.",
    },
    EventDescription {
        reason: REMOVED,
        type_: EventType::Normal,
        when: "The taint `node.kubernetes.io/out-of-service` of a Node has been removed: its machine runs, or the Node is ready.",
    },
    EventDescription {
        reason: CONFLICT,
        type_: EventType::Warning,
        when: "The provider id of a Node is that of another Node's machine: load balancers ignore the Node.",
    },
];

const ADDED: &str = "OutOfServiceTaintAdded";
const REMOVED: &str = "OutOfServiceTaintRemoved";
const CONFLICT: &str = "ProviderIDConflict";
/// Longest part of a value in a message.
const SHOWN_VALUE: usize = 64;

/// The event about a written `decision` of the taint out-of-service.
pub fn taint_written(node: &Node, decision: TaintDecision, power: MachinePower) -> Option<RecordedEvent> {
    let (reason, change, cause) = match (decision, power) {
        (TaintDecision::Nothing, _) => return None,
        (TaintDecision::Add, _) => (ADDED, "added", "the machine is shut down, so its disks can be detached"),
        (TaintDecision::Remove, MachinePower::Running) => (REMOVED, "removed", "the machine runs"),
        (TaintDecision::Remove, _) => (REMOVED, "removed", "the node is ready"),
    };
    let message = format!("Taint {}:{} {change}: {cause}", OUT_OF_SERVICE.0, OUT_OF_SERVICE.1);
    Some(RecordedEvent { about: object_reference(node), type_: EventType::Normal, reason, message })
}

/// `node` claims the machine of the Node `owner`.
pub fn provider_id_conflict(node: &Node, owner: &str) -> RecordedEvent {
    let id: String = node::provider_id(node).unwrap_or_default().chars().take(SHOWN_VALUE).collect();
    let message = format!(
        "spec.providerID {id:?}… is that of the machine of node {owner}: load balancers ignore this node. Delete the node and register it \
         with its own provider id"
    );
    RecordedEvent { about: object_reference(node), type_: EventType::Warning, reason: CONFLICT, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::node::fixtures::node;

    #[test]
    fn every_event_stands_in_the_table() {
        let node = node("n").provider_id("azure:///subscriptions/s").build();
        let all = [
            taint_written(&node, TaintDecision::Add, MachinePower::ShutDown),
            taint_written(&node, TaintDecision::Remove, MachinePower::Running),
            Some(provider_id_conflict(&node, "other")),
        ];
        let recorded: Vec<_> = all.into_iter().flatten().map(|event| (event.reason, event.type_)).collect();
        assert_eq!(recorded, EVENTS.iter().map(|row| (row.reason, row.type_)).collect::<Vec<_>>());
        assert_eq!(taint_written(&node, TaintDecision::Nothing, MachinePower::Running), None);
    }
}

//! Events about the taint of Nodes that are out of service. Pure.

use k8s_openapi::api::core::v1::Node;

use super::decide::{MachinePower, OUT_OF_SERVICE, TaintDecision};
use crate::runtime::events::{EventDescription, RecordedEvent};

/// Every event, for the reference page.
pub const EVENTS: &[EventDescription] = &[ADDED, REMOVED];

const ADDED: EventDescription = EventDescription::normal(
    "OutOfServiceTaintAdded",
    "A Node that is not ready has been given the taint `node.kubernetes.io/out-of-service`: its machine is shut down.",
);
const REMOVED: EventDescription = EventDescription::normal(
    "OutOfServiceTaintRemoved",
    "The taint `node.kubernetes.io/out-of-service` of a Node has been removed: its machine runs, or the Node is ready.",
);

/// Returns the event about a written `decision` of the taint out-of-service.
pub fn taint_written(node: &Node, decision: TaintDecision, power: MachinePower) -> Option<RecordedEvent> {
    let (event, change, cause) = match (decision, power) {
        (TaintDecision::Nothing, _) => return None,
        (TaintDecision::Add, _) => (ADDED, "added", "the machine is shut down, so its disks can be detached"),
        (TaintDecision::Remove, MachinePower::Running) => (REMOVED, "removed", "the machine runs"),
        (TaintDecision::Remove, _) => (REMOVED, "removed", "the node is ready"),
    };
    Some(event.about(node, format!("Taint {}:{} {change}: {cause}", OUT_OF_SERVICE.0, OUT_OF_SERVICE.1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::node::fixtures::node;

    #[test]
    fn every_event_is_in_the_table() {
        let node = node("n").build();
        let all = [
            taint_written(&node, TaintDecision::Add, MachinePower::ShutDown),
            taint_written(&node, TaintDecision::Remove, MachinePower::Running),
        ];
        let recorded: Vec<_> = all.into_iter().flatten().map(|event| (event.reason, event.type_)).collect();
        assert_eq!(recorded, EVENTS.iter().map(|row| (row.reason, row.type_)).collect::<Vec<_>>());
        assert_eq!(taint_written(&node, TaintDecision::Nothing, MachinePower::Running), None);
    }
}

//! Initialization that waits for the route to the Pods of a Node (`--wait-routes`).
//!
//! In: the Node, and its initialization. Out: the initialization without the taint's removal, and the condition that reports
//! the wait. Upstream (`pkg/nodemanager/nodemanager.go`, `updateNetworkingCondition`) writes the condition and removes the
//! taint immediately, and relies on kube-controller-manager to taint the Node again. Here no Pod can be scheduled in between.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::{condition_status, initialize::NodeInitialization, well_known::CONDITION_NETWORK_UNAVAILABLE};

/// Returns whether Pods of `node` can be reached, as its route controller reports; `None` without a report.
pub fn is_network_available(node: &Node) -> Option<bool> {
    condition_status(node, CONDITION_NETWORK_UNAVAILABLE).map(|status| status == "False")
}

/// Returns the part of the initialization that may be written while there is no route: all but the taint's removal.
pub fn without_taint_removal(mut initialization: NodeInitialization) -> NodeInitialization {
    initialization.changes.taints = None;
    initialization
}

/// Returns the condition `NetworkUnavailable`, as of `now`.
pub fn network_unavailable(status: &str, reason: &str, message: &str, now: Timestamp) -> NodeCondition {
    NodeCondition {
        type_: CONDITION_NETWORK_UNAVAILABLE.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// Returns the strategic merge patch of the status that reports the wait; `None` if the condition exists.
///
/// It carries the resource version, so that it cannot overwrite a report of the route controller in between.
pub fn network_unavailable_patch(node: &Node, now: Timestamp) -> Option<Value> {
    let condition = network_unavailable("True", "NodeInitialization", "Waiting for cloud routes", now);
    let version = &node.metadata.resource_version;
    is_network_available(node)
        .is_none()
        .then(|| json!({"metadata": {"resourceVersion": version}, "status": {"conditions": [condition]}}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fixtures::*;

    fn with_condition(type_: &str, value: &str) -> Node {
        node("n").with(|n| status(n).conditions = Some(vec![condition("Ready", "True"), condition(type_, value)]))
    }

    #[test]
    fn only_the_status_false_reports_a_route() {
        for (type_, value, expected, announced) in [
            ("NetworkUnavailable", "False", Some(true), false),
            ("NetworkUnavailable", "True", Some(false), false),
            ("NetworkUnavailable", "Unknown", Some(false), false),
            ("DiskPressure", "False", None, true),
        ] {
            let node = with_condition(type_, value);
            assert_eq!(is_network_available(&node), expected, "{type_} {value}");
            assert_eq!(network_unavailable_patch(&node, Timestamp::UNIX_EPOCH).is_some(), announced, "{type_} {value}");
        }
        let patch = network_unavailable_patch(&node("n"), Timestamp::UNIX_EPOCH).unwrap();
        let condition = &patch["status"]["conditions"][0];
        assert_eq!((&condition["type"], &condition["status"]), (&json!("NetworkUnavailable"), &json!("True")));
        assert_eq!(
            (&condition["reason"], &condition["message"]),
            (&json!("NodeInitialization"), &json!("Waiting for cloud routes"))
        );
    }
}

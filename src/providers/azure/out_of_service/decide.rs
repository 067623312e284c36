//! Decides when a Node is out of service. Pure.
//!
//! In: a Node, and the power of its machine. Out: whether its taint is added or removed, and the resulting taints. Upstream:
//! `pkg/provider/azure.go` (`updateNodeTaint`), which trusts the shutdown taint.

use k8s_openapi::api::core::v1::{Node, Taint};

use crate::providers::azure::node::{is_ready, taints};

/// Taint that lets Kubernetes detach the disks of a Node that is down, and start its Pods elsewhere. Upstream:
/// `well_known_taints.go`.
pub const OUT_OF_SERVICE: (&str, &str) = ("node.kubernetes.io/out-of-service", "NoExecute");
/// Value that this program gives to [`OUT_OF_SERVICE`].
///
/// A taint with another value is a user's or of the Go program: it is removed only when the Node is ready, as in Go.
const OWN_VALUE: &str = "azure-machine-is-shut-down";
/// Taint of the node-lifecycle controller for a Node whose machine is shut down.
const SHUTDOWN: (&str, &str) = ("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule");

/// Current power of a machine according to ARM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachinePower {
    /// Shut down: no disk is in use.
    ShutDown,
    /// The machine runs, and no operation changes it.
    Running,
    /// Unknown: ARM was not called or did not respond, or an operation changes the machine.
    Unknown,
}

/// Decision about the taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaintDecision {
    /// Add the taint: the Node is not ready, and its machine is known to be shut down.
    Add,
    /// Remove the taint: the Node is ready, or its machine runs and the taint is this program's.
    ///
    /// From a ready Node, the taint of a user is removed as well, as upstream.
    Remove,
    Nothing,
}

/// Returns `true` if the power of the machine decides about the taint of `node`.
pub fn depends_on_power(node: &Node) -> bool {
    !is_ready(node) && (may_be_added(node) || has_own_taint(node))
}

/// Returns `true` if the taint is added if the machine is shut down: the node-lifecycle controller saw that before.
fn may_be_added(node: &Node) -> bool {
    !has_taint(node, OUT_OF_SERVICE) && has_taint(node, SHUTDOWN)
}

fn has_own_taint(node: &Node) -> bool {
    taints(node).iter().any(|taint| is_same_taint(taint, OUT_OF_SERVICE) && taint.value.as_deref() == Some(OWN_VALUE))
}

/// Decides about the taint of `node`.
pub fn decide(node: &Node, power: MachinePower) -> TaintDecision {
    match power {
        _ if is_ready(node) => {
            if has_taint(node, OUT_OF_SERVICE) {
                TaintDecision::Remove
            } else {
                TaintDecision::Nothing
            }
        }
        MachinePower::ShutDown if may_be_added(node) => TaintDecision::Add,
        MachinePower::Running if has_own_taint(node) => TaintDecision::Remove,
        MachinePower::ShutDown | MachinePower::Running | MachinePower::Unknown => TaintDecision::Nothing,
    }
}

/// Returns the taints of `node` after `decision`.
pub fn taints_after(node: &Node, decision: TaintDecision) -> Vec<Taint> {
    let mut taints = taints(node).to_vec();
    match decision {
        TaintDecision::Nothing => {}
        TaintDecision::Remove => taints.retain(|taint| !is_same_taint(taint, OUT_OF_SERVICE)),
        TaintDecision::Add => {
            let (key, effect) = OUT_OF_SERVICE;
            taints.push(Taint { key: key.into(), effect: effect.into(), value: Some(OWN_VALUE.into()), time_added: None });
        }
    }
    taints
}

fn has_taint(node: &Node, pass: (&str, &str)) -> bool {
    taints(node).iter().any(|taint| is_same_taint(taint, pass))
}

/// Compares key and effect, which identify a taint; the value does not count.
fn is_same_taint(taint: &Taint, (key, effect): (&str, &str)) -> bool {
    taint.key == key && taint.effect == effect
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::node::fixtures::{NodeBuilder, node};

    fn down(node: NodeBuilder) -> NodeBuilder {
        node.taint(SHUTDOWN.0, SHUTDOWN.1, None)
    }

    fn out(node: NodeBuilder) -> NodeBuilder {
        node.taint(OUT_OF_SERVICE.0, OUT_OF_SERVICE.1, None)
    }

    #[test]
    fn shut_down_and_not_ready_adds_and_ready_removes() {
        for (builder, expected) in [
            (down(node("n").ready("False")), TaintDecision::Add),
            (down(node("n").ready("Unknown")), TaintDecision::Add),
            (down(node("n")), TaintDecision::Add),
            (out(down(node("n").ready("False"))), TaintDecision::Nothing),
            (node("n").ready("False"), TaintDecision::Nothing),
            (out(node("n").ready("False")), TaintDecision::Nothing),
            (out(node("n").ready("True")), TaintDecision::Remove),
            (out(down(node("n").ready("True"))), TaintDecision::Remove),
            (down(node("n").ready("True")), TaintDecision::Nothing),
            (node("n").ready("True"), TaintDecision::Nothing),
            // Key and effect identify the taint, the value does not.
            (node("n").ready("True").taint(OUT_OF_SERVICE.0, OUT_OF_SERVICE.1, Some("nodeshutdown")), TaintDecision::Remove),
            (node("n").ready("True").taint(OUT_OF_SERVICE.0, "NoSchedule", None), TaintDecision::Nothing),
            (node("n").taint(SHUTDOWN.0, "NoExecute", None), TaintDecision::Nothing),
        ] {
            let node = builder.build();
            assert_eq!(decide(&node, MachinePower::ShutDown), expected, "{node:?}");
            assert_eq!(depends_on_power(&node), expected == TaintDecision::Add, "{node:?}");
            for power in [MachinePower::Running, MachinePower::Unknown] {
                let without = if expected == TaintDecision::Add { TaintDecision::Nothing } else { expected };
                assert_eq!(decide(&node, power), without, "{power:?} {node:?}");
            }
            let mut after = node.clone();
            after.spec.get_or_insert_default().taints = Some(taints_after(&node, expected));
            assert_eq!(decide(&after, MachinePower::ShutDown), TaintDecision::Nothing, "decided once and for all: {node:?}");
        }
    }

    #[test]
    fn other_taints_are_kept() {
        let node = out(down(node("n").ready("True").taint("dedicated", "NoSchedule", Some("db")))).build();
        let remaining = taints_after(&node, TaintDecision::Remove);
        assert_eq!(remaining.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), ["dedicated", SHUTDOWN.0]);
        let node = down(super::super::super::node::fixtures::node("n")).build();
        let added = taints_after(&node, TaintDecision::Add).pop().unwrap();
        assert_eq!((added.key.as_str(), added.effect.as_str()), OUT_OF_SERVICE);
        assert_eq!(added.value.as_deref(), Some(OWN_VALUE));
    }

    #[test]
    fn a_machine_that_runs_again_loses_only_our_taint() {
        let tainted = |value| down(node("n").ready("Unknown").taint(OUT_OF_SERVICE.0, OUT_OF_SERVICE.1, value)).build();
        for (value, power, expected) in [
            (Some(OWN_VALUE), MachinePower::Running, TaintDecision::Remove),
            (Some(OWN_VALUE), MachinePower::ShutDown, TaintDecision::Nothing),
            (Some(OWN_VALUE), MachinePower::Unknown, TaintDecision::Nothing),
            (Some("nodeshutdown"), MachinePower::Running, TaintDecision::Nothing),
            (None, MachinePower::Running, TaintDecision::Nothing),
        ] {
            assert_eq!(decide(&tainted(value), power), expected, "{value:?} {power:?}");
            assert_eq!(depends_on_power(&tainted(value)), value == Some(OWN_VALUE), "{value:?}");
        }
    }
}

//! Taints of a Node. Upstream: `cloud-provider/node/helpers/taints.go`.

use k8s_openapi::api::core::v1::{Node, Taint};

use super::well_known::{EFFECT_NO_SCHEDULE, TAINT_SHUTDOWN, TAINT_UNINITIALIZED};
use crate::cloud_provider::node_fields::taints;

/// Returns `true` if `node` is uninitialized: it has the taint, with any effect and value.
pub fn is_uninitialized(node: &Node) -> bool {
    taints(node).iter().any(|taint| taint.key == TAINT_UNINITIALIZED)
}

/// Returns the command that requests the initialization of the Node with this name.
pub fn initialization_command(name: &str) -> String {
    format!("kubectl taint node {name} {TAINT_UNINITIALIZED}=true:{EFFECT_NO_SCHEDULE}")
}

/// Returns `true` if `node` is marked as shut down.
pub fn has_shutdown(node: &Node) -> bool {
    taints(node).iter().any(is_shutdown)
}

/// Returns the taint of a shut down instance.
pub fn shutdown() -> Taint {
    Taint { key: TAINT_SHUTDOWN.into(), effect: EFFECT_NO_SCHEDULE.into(), time_added: None, value: None }
}

/// Compares key and effect, which identify a taint; the value does not count.
fn is_shutdown(taint: &Taint) -> bool {
    taint.key == TAINT_SHUTDOWN && taint.effect == EFFECT_NO_SCHEDULE
}

/// Returns the taints of `node` without the uninitialized one; `None` if it has none.
pub fn without_uninitialized(node: &Node) -> Option<Vec<Taint>> {
    keep(node, |taint| taint.key != TAINT_UNINITIALIZED)
}

/// Returns the taints of `node` without the shutdown one; `None` if it has none.
pub fn without_shutdown(node: &Node) -> Option<Vec<Taint>> {
    keep(node, |taint| !is_shutdown(taint))
}

/// Returns the taints of `node` with the shutdown one, which has no value; `None` if nothing changes.
pub fn with_shutdown(node: &Node) -> Option<Vec<Taint>> {
    let has_value = |taint: &Taint| taint.value.as_deref().is_some_and(|value| !value.is_empty());
    if taints(node).iter().any(|taint| is_shutdown(taint) && !has_value(taint)) {
        return None;
    }
    let mut taints: Vec<_> = taints(node).iter().filter(|taint| !is_shutdown(taint)).cloned().collect();
    taints.push(shutdown());
    Some(taints)
}

fn keep(node: &Node, is_retained: impl Fn(&Taint) -> bool) -> Option<Vec<Taint>> {
    let retained: Vec<_> = taints(node).iter().filter(|taint| is_retained(taint)).cloned().collect();
    (retained.len() != taints(node).len()).then_some(retained)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fixtures::*;

    #[test]
    fn the_uninitialized_taint_is_found_by_key_alone() {
        let other = taint("dedicated", "NoSchedule");
        for uninitialized in [
            Taint { value: Some("true".into()), ..taint(TAINT_UNINITIALIZED, "NoSchedule") },
            taint(TAINT_UNINITIALIZED, "NoExecute"),
        ] {
            let node = node("n").with(|n| spec(n).taints = Some(vec![uninitialized, other.clone()]));
            assert!(is_uninitialized(&node));
            assert_eq!(without_uninitialized(&node), Some(vec![other.clone()]));
        }
        assert!(!is_uninitialized(&node("n")));
        assert_eq!(without_uninitialized(&node("n")), None);
    }

    #[test]
    fn the_shutdown_taint_is_matched_by_key_and_effect() {
        let with = |taints: Vec<Taint>| node("n").with(|n| spec(n).taints = Some(taints));
        let valued = Taint { value: Some("x".into()), ..shutdown() };
        let other_effect = taint(TAINT_SHUTDOWN, "NoExecute");

        assert_eq!(with_shutdown(&node("n")), Some(vec![shutdown()]));
        assert_eq!(with_shutdown(&with(vec![shutdown()])), None);
        assert_eq!(with_shutdown(&with(vec![valued.clone()])), Some(vec![shutdown()]), "refreshed without its value");
        assert_eq!(with_shutdown(&with(vec![other_effect.clone()])), Some(vec![other_effect.clone(), shutdown()]));

        assert_eq!(without_shutdown(&with(vec![valued])), Some(vec![]));
        assert_eq!(without_shutdown(&with(vec![other_effect.clone()])), None);
        assert!(!has_shutdown(&with(vec![other_effect])));
        assert!(has_shutdown(&with(vec![shutdown()])));
    }
}

//! Pure functions on Node objects, shared by the controllers and cloud-node-manager.
//!
//! In: a Node as last observed and the metadata of its instance. Out: the desired changes ([`initialize`], [`labels`],
//! [`addresses`], [`taints`], [`routes`]) and the minimal patches with them ([`patch`]). Nothing here reads, writes, waits
//! or logs.

pub mod addresses;
pub mod initialize;
pub mod labels;
pub mod patch;
mod prune;
pub mod routes;
pub mod taints;
pub mod well_known;

#[cfg(test)]
pub(crate) mod fixtures;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

pub use crate::cloud_provider::node_fields::{condition_status, is_ready, name, pod_cidrs, provider_id, uid};
pub use prune::{prune_node, prune_node_and_labels, unread_fields, unread_fields_and_labels};

/// Returns `true` if no controller initializes `node`: it has no provider id, and lacks the taint that requests initialization.
pub fn is_never_initialized(node: &Node) -> bool {
    provider_id(node).is_none() && !taints::is_uninitialized(node)
}

/// Returns `true` if the kubelet of `node` reports: the condition `Ready` exists and is not `Unknown`.
///
/// kube-controller-manager sets `Unknown` when the kubelet stops reporting.
pub fn kubelet_reports(node: &Node) -> bool {
    condition_status(node, "Ready").is_some_and(|status| status != "Unknown")
}

/// Returns `true` if the deletion of `node` was requested.
pub fn is_being_deleted(node: &Node) -> bool {
    node.metadata.deletion_timestamp.is_some()
}

/// Returns the seconds from the creation of `node` until `now`; zero if the creation is unknown.
pub fn age_in_seconds(node: &Node, now: Timestamp) -> f64 {
    let created = node.metadata.creation_timestamp.as_ref().map_or(now, |created| created.0);
    now.duration_since(created).as_secs_f64().max(0.0)
}

#[cfg(test)]
mod tests {
    use super::{fixtures::*, *};

    #[test]
    fn ready_condition_decides_readiness_and_reports() {
        for (conditions, ready, reports) in [
            (vec![], false, false),
            (vec![condition("Ready", "True")], true, true),
            (vec![condition("Ready", "False")], false, true),
            (vec![condition("Ready", "Unknown")], false, false),
            (vec![condition("MemoryPressure", "True")], false, false),
            (vec![condition("MemoryPressure", "True"), condition("Ready", "True")], true, true),
        ] {
            let node = node("n").with(|n| status(n).conditions = Some(conditions.clone()));
            assert_eq!((is_ready(&node), kubelet_reports(&node)), (ready, reports), "{conditions:?}");
        }
        assert!(!is_ready(&Node::default()) && !kubelet_reports(&Node::default()));
    }

    #[test]
    fn age_is_never_negative() {
        let now: Timestamp = "2024-01-01T00:01:00Z".parse().unwrap();
        let created_at =
            |at: &str| node("n").with(|n| n.metadata.creation_timestamp = Some(at.parse::<Timestamp>().unwrap().into()));
        assert!((age_in_seconds(&created_at("2024-01-01T00:00:00Z"), now) - 60.0).abs() < 1e-9);
        assert!(age_in_seconds(&created_at("2024-01-01T00:02:00Z"), now) == 0.0);
        assert!(age_in_seconds(&node("n"), now) == 0.0);
    }

    #[test]
    fn an_empty_provider_id_counts_as_none() {
        assert_eq!(provider_id(&node("n").with(|n| spec(n).provider_id = Some(String::new()))), None);
        assert_eq!(provider_id(&node("n").with(|n| spec(n).provider_id = Some("fake://1".into()))), Some("fake://1"));
    }

    #[test]
    fn node_without_id_and_taint_is_never_initialized() {
        let tainted = node("n").with(|n| spec(n).taints = Some(vec![taint(well_known::TAINT_UNINITIALIZED, "NoSchedule")]));
        assert!(!is_never_initialized(&tainted));
        assert!(is_never_initialized(&node("n")));
        assert!(!is_never_initialized(&node("n").with(|n| spec(n).provider_id = Some("fake://1".into()))));
    }
}

//! Decisions of the node-ipam controller about a Node. Pure.

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};

use crate::{
    node::{is_being_deleted, name, pod_cidrs, provider_id, taints, uid},
    runtime::{informer::ObjectChange, patch::ApiError, work_queue::ReconcilePriority},
};

/// Rules about the events that a Node waits for before its allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PodCidrRules {
    /// Whether the patch that initializes the Node also sets its pod CIDRs.
    pub(super) comes_with_initialization: bool,
    /// Whether the cloud is queried about the Node's machine.
    pub(super) needs_provider_id: bool,
}

/// Returns `true` if pod CIDRs must be allocated for `node` now.
///
/// A Node that waits for its initialization or its provider ID is reconciled again when a watch event reports either.
pub(super) fn needs_allocation(node: &Node, rules: PodCidrRules) -> bool {
    let awaits_initialization = rules.comes_with_initialization && taints::is_uninitialized(node);
    let awaits_provider_id = rules.needs_provider_id && provider_id(node).is_none();
    pod_cidrs(node).is_empty() && !is_being_deleted(node) && !awaits_initialization && !awaits_provider_id
}

/// Returns the identity of a Node: its UID, which distinguishes it from other Nodes of its name.
pub(super) fn identity(node: &Node) -> &str {
    match uid(node) {
        "" => name(node),
        uid => uid,
    }
}

/// Returns the priority of a change, or `None` if it is no reason to reconcile.
///
/// A change that the Node waits for is due immediately; heartbeats do not cut a backoff short.
pub(super) fn priority(change: &ObjectChange<Node>) -> Option<ReconcilePriority> {
    let inputs = |node: &Node| (taints::is_uninitialized(node), provider_id(node).map(str::to_owned), uid(node).to_owned());
    match change {
        ObjectChange::Deleted(_) => None,
        ObjectChange::Added(new) => pod_cidrs(new).is_empty().then_some(ReconcilePriority::NodeChange),
        ObjectChange::Updated { new, .. } if !pod_cidrs(new).is_empty() => None,
        ObjectChange::Updated { old, new } if inputs(old) == inputs(new) => Some(ReconcilePriority::Resync),
        ObjectChange::Updated { .. } => Some(ReconcilePriority::NodeChange),
    }
}

/// Returns the part of a Node's spec that contains its pod CIDRs.
pub(super) fn spec_with(cidrs: &[IpNet]) -> Map<String, Value> {
    let texts: Vec<String> = cidrs.iter().map(IpNet::to_string).collect();
    Map::from_iter([("podCIDR".to_owned(), json!(texts.first())), ("podCIDRs".to_owned(), json!(texts))])
}

/// Returns the patch that sets the pod CIDRs of this version of `node`.
pub(super) fn patch(node: &Node, cidrs: &[IpNet]) -> Value {
    json!({ "metadata": { "resourceVersion": node.metadata.resource_version }, "spec": spec_with(cidrs) })
}

/// Certainty about a write that the API server did not confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailedWrite {
    /// Not executed: another writer changed the Node, or the server was busy. Read the Node again.
    Conflict,
    /// Not executed, and never will be.
    Refused,
    /// Possibly executed, now or later.
    Unknown,
}

/// Classifies a failed patch. Upstream keeps blocks after a server's timeout only, but a broken connection is as inconclusive.
pub(super) fn failed_write(error: &ApiError) -> FailedWrite {
    match error {
        ApiError::Conflict(_) | ApiError::Busy(_) => FailedWrite::Conflict,
        ApiError::NotFound(_) | ApiError::Forbidden(_) | ApiError::NotLeading(_) | ApiError::Rejected(_) => {
            FailedWrite::Refused
        }
        ApiError::Failed(_) => FailedWrite::Unknown,
    }
}

/// Returns `true` if `version` is later than another one of the same Node. Versions that are not numbers are never later.
pub(super) fn is_later(version: Option<&str>, than: &str) -> bool {
    let number = |text: &str| text.parse::<u128>().ok();
    version.and_then(number).zip(number(than)).is_some_and(|(version, than)| version > than)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::{fixtures::*, well_known::TAINT_UNINITIALIZED};

    fn tainted() -> Node {
        node("n").with(|n| spec(n).taints = Some(vec![taint(TAINT_UNINITIALIZED, "NoSchedule")]))
    }

    fn allocated() -> Node {
        node("n").with(|n| spec(n).pod_cidrs = Some(vec!["10.244.0.0/24".into()]))
    }

    #[test]
    fn allocation_waits_for_initialization_or_provider_id() {
        let deleting = node("n").with(|n| n.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH.into()));
        let with_id = tainted().with(|n| spec(n).provider_id = Some("fake://1".into()));
        let (merged, cloud) = (
            PodCidrRules { comes_with_initialization: true, ..PodCidrRules::default() },
            PodCidrRules { needs_provider_id: true, ..PodCidrRules::default() },
        );
        for (node, rules, expected) in [
            (allocated(), PodCidrRules::default(), false),
            (deleting, PodCidrRules::default(), false),
            (node("n"), merged, true),
            (tainted(), merged, false),
            (tainted(), PodCidrRules::default(), true),
            (node("n"), cloud, false),
            (with_id, cloud, true),
        ] {
            assert_eq!(needs_allocation(&node, rules), expected, "{node:?} {rules:?}");
        }
    }

    #[test]
    fn heartbeats_have_the_priority_of_a_resync() {
        let update = |old: Node, new: Node| ObjectChange::Updated { old: Arc::new(old), new: Arc::new(new) };
        let beat = tainted().with(|n| status(n).conditions = Some(vec![condition("Ready", "True")]));
        for (change, expected) in [
            (ObjectChange::Added(Arc::new(node("n"))), Some(ReconcilePriority::NodeChange)),
            (ObjectChange::Added(Arc::new(allocated())), None),
            (ObjectChange::Deleted(Arc::new(node("n"))), None),
            (update(tainted(), beat), Some(ReconcilePriority::Resync)),
            (update(tainted(), node("n")), Some(ReconcilePriority::NodeChange)),
            (update(node("n"), allocated()), None),
        ] {
            assert_eq!(priority(&change), expected, "{change:?}");
        }
    }

    #[test]
    fn first_cidr_is_in_both_fields() {
        let node = node("n").with(|n| n.metadata.resource_version = Some("7".into()));
        let cidrs = ["10.244.3.0/24".parse().unwrap(), "fd00:3::/64".parse().unwrap()];
        let expected = json!({
            "metadata": {"resourceVersion": "7"},
            "spec": {"podCIDR": "10.244.3.0/24", "podCIDRs": ["10.244.3.0/24", "fd00:3::/64"]},
        });
        assert_eq!(patch(&node, &cidrs), expected);
    }

    #[test]
    fn only_a_response_proves_that_nothing_was_written() {
        let text = || "n".to_owned();
        for (error, expected) in [
            (ApiError::Conflict(text()), FailedWrite::Conflict),
            (ApiError::Busy(text()), FailedWrite::Conflict),
            (ApiError::NotFound(text()), FailedWrite::Refused),
            (ApiError::Forbidden(text()), FailedWrite::Refused),
            (ApiError::Rejected(text()), FailedWrite::Refused),
            (ApiError::Failed(text()), FailedWrite::Unknown),
        ] {
            assert_eq!(failed_write(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, than, expected) in
            [(Some("10"), "9", true), (Some("9"), "9", false), (None, "9", false), (Some("x"), "9", false)]
        {
            assert_eq!(is_later(version, than), expected, "{version:?}");
        }
    }
}

//! What a Node needs of the node-ipam controller: pure.

use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};

use crate::{
    node::{is_being_deleted, name, pod_cidrs, provider_id, taints, uid},
    runtime::{
        informer::ObjectChange,
        patch::ApiError,
        work_queue::{ReconcilePriority, ReconcileResult},
    },
};

/// How long to leave alone what only another replica may do now.
const NOT_LEADING: Duration = Duration::from_secs(5);

/// What else has to be known to say what a Node needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PodCidrRules {
    /// The patch that initialises the Node brings its pod CIDRs along.
    pub(super) comes_with_initialization: bool,
    /// The cloud is asked about the Node's machine.
    pub(super) needs_provider_id: bool,
}

/// What a Node needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodCidrAction {
    /// It has pod CIDRs, or goes.
    Nothing,
    /// Its initialisation or its provider id comes first, and the watch tells of it.
    Wait,
    Allocate,
}

/// Looks at `node` alone.
pub(super) fn next_action(node: &Node, rules: PodCidrRules) -> PodCidrAction {
    if !pod_cidrs(node).is_empty() || is_being_deleted(node) {
        return PodCidrAction::Nothing;
    }
    let initialized_first = rules.comes_with_initialization && taints::is_uninitialized(node);
    let waits = initialized_first || rules.needs_provider_id && provider_id(node).is_none();
    if waits { PodCidrAction::Wait } else { PodCidrAction::Allocate }
}

/// What a Node is known by: its UID, which another Node of its name does not have.
pub(super) fn identity(node: &Node) -> &str {
    match uid(node) {
        "" => name(node),
        uid => uid,
    }
}

/// Whether a change is a reason to reconcile, and how urgent. What a Node waits for makes it due at once; its heartbeats do not cut a
/// back-off short.
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

/// The part of a Node's spec that says its pod CIDRs.
pub(super) fn spec_with(cidrs: &[IpNet]) -> Map<String, Value> {
    let texts: Vec<String> = cidrs.iter().map(IpNet::to_string).collect();
    Map::from_iter([("podCIDR".to_owned(), json!(texts.first())), ("podCIDRs".to_owned(), json!(texts))])
}

/// The patch that gives `node` its pod CIDRs if it is still as it is here.
pub(super) fn patch(node: &Node, cidrs: &[IpNet]) -> Value {
    json!({ "metadata": { "resourceVersion": node.metadata.resource_version }, "spec": spec_with(cidrs) })
}

/// What is known of a write that the API server did not confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailedWrite {
    /// Nothing was written for now: the Node has to be read again, since somebody else wrote or the server was busy.
    Conflict,
    /// It has not happened and will not.
    Refused,
    /// It may have happened, or happen yet.
    Unknown,
}

/// Classes what became of a patch. Upstream keeps blocks on a server's time-out only; a connection that breaks says no more.
pub(super) fn failed_write(error: &ApiError) -> FailedWrite {
    match error {
        ApiError::Conflict(_) | ApiError::Busy(_) => FailedWrite::Conflict,
        ApiError::NotFound(_) | ApiError::Forbidden(_) | ApiError::NotLeading(_) | ApiError::Rejected(_) => {
            FailedWrite::Refused
        }
        ApiError::Failed(_) => FailedWrite::Unknown,
    }
}

/// When to come back after a write that the API server did not take.
pub(super) fn after_api_error(error: &ApiError) -> ReconcileResult {
    match error {
        ApiError::NotFound(_) => ReconcileResult::Done,
        ApiError::NotLeading(_) => ReconcileResult::RequeueAfter(NOT_LEADING, error.to_string()),
        _ => ReconcileResult::Failed(error.to_string()),
    }
}

/// Whether a version is later than another one of the same Node. What is no number can be compared with nothing.
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

    fn given() -> Node {
        node("n").with(|n| spec(n).pod_cidrs = Some(vec!["10.244.0.0/24".into()]))
    }

    #[test]
    fn who_waits_for_what() {
        let going = node("n").with(|n| n.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH.into()));
        let known = tainted().with(|n| spec(n).provider_id = Some("fake://1".into()));
        let (merged, cloud) = (
            PodCidrRules { comes_with_initialization: true, ..PodCidrRules::default() },
            PodCidrRules { needs_provider_id: true, ..PodCidrRules::default() },
        );
        for (node, rules, expected) in [
            (given(), PodCidrRules::default(), PodCidrAction::Nothing),
            (going, PodCidrRules::default(), PodCidrAction::Nothing),
            (node("n"), merged, PodCidrAction::Allocate),
            (tainted(), merged, PodCidrAction::Wait),
            (tainted(), PodCidrRules::default(), PodCidrAction::Allocate),
            (node("n"), cloud, PodCidrAction::Wait),
            (known, cloud, PodCidrAction::Allocate),
        ] {
            assert_eq!(next_action(&node, rules), expected, "{node:?} {rules:?}");
        }
    }

    #[test]
    fn heartbeats_do_not_hurry() {
        let update = |old: Node, new: Node| ObjectChange::Updated { old: Arc::new(old), new: Arc::new(new) };
        let beat = tainted().with(|n| status(n).conditions = Some(vec![condition("Ready", "True")]));
        for (change, expected) in [
            (ObjectChange::Added(Arc::new(node("n"))), Some(ReconcilePriority::NodeChange)),
            (ObjectChange::Added(Arc::new(given())), None),
            (ObjectChange::Deleted(Arc::new(node("n"))), None),
            (update(tainted(), beat), Some(ReconcilePriority::Resync)),
            (update(tainted(), node("n")), Some(ReconcilePriority::NodeChange)),
            (update(node("n"), given()), None),
        ] {
            assert_eq!(priority(&change), expected, "{change:?}");
        }
    }

    #[test]
    fn the_first_cidr_stands_in_both_fields() {
        let node = node("n").with(|n| n.metadata.resource_version = Some("7".into()));
        let cidrs = ["10.244.3.0/24".parse().unwrap(), "fd00:3::/64".parse().unwrap()];
        let expected = json!({
            "metadata": {"resourceVersion": "7"},
            "spec": {"podCIDR": "10.244.3.0/24", "podCIDRs": ["10.244.3.0/24", "fd00:3::/64"]},
        });
        assert_eq!(patch(&node, &cidrs), expected);
    }

    #[test]
    fn only_an_answer_tells_that_nothing_was_written() {
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

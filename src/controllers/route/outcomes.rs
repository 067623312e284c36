//! Evaluation of the results of a plan. Pure.
//!
//! In: a [`RoutePlan`] and the provider's [`RouteOutcomes`]. Out: which nodes have all their routes, which creations failed,
//! and the outcome of the reconcile. Upstream: `route_controller.go`, `reconcile` (last part) and
//! `updateNetworkingCondition`.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::plan::{NodeRoutePlan, RequiredRoute, RoutePlan};
use crate::{
    cloud_provider::{CloudError, CloudResult, PlannedWrite, Route, RouteOutcomes},
    node::{condition_status, routes, well_known::CONDITION_NETWORK_UNAVAILABLE as NETWORK_UNAVAILABLE},
    runtime::{patch::ApiError, work_queue::ReconcileResult},
};

/// Consequences of the provider's outcomes for Nodes, events and the queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RouteSyncResult {
    /// Nodes, each with whether it has all its routes; Nodes that another component decides about are omitted.
    pub(super) node_results: Vec<(Arc<Node>, bool)>,
    /// Creations that failed, for events: the Node, the index of the creation in [`RoutePlan::changes`], and the error.
    pub(super) failed: Vec<(Arc<Node>, usize, CloudError)>,
    /// Operations that need another attempt.
    pub(super) retries: Vec<ReconcileResult>,
}

/// Returns the retry after an error of the provider about `subject`, or `None` if nothing remains to be done by this process.
pub(super) fn retry_after_cloud_error(subject: &str, error: &CloudError) -> Option<ReconcileResult> {
    let reason = format!("{subject}: {error}");
    match error {
        CloudError::NotImplemented | CloudError::ImplementedElsewhere | CloudError::NotLeader(_) => None,
        CloudError::RetryAfter { after, .. } | CloudError::MissingReference { after, .. } => {
            Some(ReconcileResult::RequeueAfter(*after, reason))
        }
        CloudError::Invalid(_) | CloudError::Refused(_) => Some(ReconcileResult::Rejected(reason)),
        CloudError::Incomplete { error, .. } => retry_after_cloud_error(subject, error),
        CloudError::InstanceNotFound | CloudError::Deadline { .. } | CloudError::Failed(_) => {
            Some(ReconcileResult::Failed(reason))
        }
    }
}

/// Returns the failure after an error of the API server about `subject`, or `None` if nothing remains to be done.
pub(super) fn api_failure(subject: &str, error: &ApiError) -> Option<String> {
    let is_settled = matches!(error, ApiError::NotFound(_) | ApiError::NotLeading(_));
    (!is_settled).then(|| format!("{subject}: {error}"))
}

/// Returns the outcome of a reconcile: a failure if there is one, else the shortest requested delay, else a rejection.
///
/// The reason names one retry and the number of the others.
pub(super) fn outcome(retries: &[ReconcileResult]) -> ReconcileResult {
    let urgency = |retry: &&ReconcileResult| match retry {
        ReconcileResult::Failed(_) => (0, Duration::ZERO),
        ReconcileResult::RequeueAfter(delay, _) => (1, *delay),
        ReconcileResult::Rejected(_) => (2, Duration::ZERO),
        ReconcileResult::Done => (3, Duration::ZERO),
    };
    let mut outcome = retries.iter().min_by_key(urgency).cloned().unwrap_or(ReconcileResult::Done);
    match &mut outcome {
        ReconcileResult::RequeueAfter(_, reason) | ReconcileResult::Failed(reason) | ReconcileResult::Rejected(reason)
            if retries.len() > 1 =>
        {
            *reason = format!("{reason} (and {} more)", retries.len() - 1);
        }
        _ => {}
    }
    outcome
}

pub(super) fn evaluate(plan: &RoutePlan, outcomes: &RouteOutcomes) -> RouteSyncResult {
    let mut settled = RouteSyncResult::default();
    for (index, route) in plan.changes.delete.iter().enumerate() {
        if let Err(error) = outcome_at(&outcomes.deleted, index) {
            settled.retries.extend(retry_after_cloud_error(&format!("deleting {}", describe(route)), &error));
        }
    }
    for node in &plan.nodes {
        let has_all = evaluate_node(node, plan, outcomes, &mut settled);
        settled.node_results.extend(has_all.map(|has_all| (Arc::clone(&node.node), has_all)));
    }
    settled
}

/// Returns whether a node has all its routes; `None` if another component decides that.
fn evaluate_node(
    node: &NodeRoutePlan,
    plan: &RoutePlan,
    outcomes: &RouteOutcomes,
    settled: &mut RouteSyncResult,
) -> Option<bool> {
    // A node without pod CIDRs that routes lead to has none of its own.
    let mut has_all = !node.routes.is_empty();
    let mut is_decided = true;
    for needed in &node.routes {
        has_all &= *needed != RequiredRoute::Refused;
        let RequiredRoute::Create(index) = *needed else { continue };
        let Err(error) = outcome_at(&outcomes.created, index) else { continue };
        has_all = false;
        let (_, route) = &plan.changes.create[index];
        let retry = retry_after_cloud_error(&format!("creating {}", describe(route)), &error);
        is_decided &= retry.is_some();
        if matches!(retry, Some(ReconcileResult::Failed(_) | ReconcileResult::Rejected(_))) {
            settled.failed.push((Arc::clone(&node.node), index, error));
        }
        settled.retries.extend(retry);
    }
    is_decided.then_some(has_all)
}

/// Returns the outcome of a change; a change that the provider does not report counts as failed.
fn outcome_at(outcomes: &[CloudResult<()>], index: usize) -> CloudResult<()> {
    let unreported = || Err(CloudError::failed("the cloud provider reported no outcome"));
    outcomes.get(index).cloned().unwrap_or_else(unreported)
}

/// Formats a route for messages.
fn describe(route: &Route) -> String {
    let name = if route.name.is_empty() { String::new() } else { format!("{} ", route.name) };
    format!("route {name}{} to node {:?}", route.destination_cidr, route.target_node)
}

/// Returns the patch of `nodes/status` that reports whether `node` has all its routes; `None` if its condition has that status
/// already.
///
/// Another writer's reason is kept, because network plugins insist on theirs. The patch carries the UID: a Node that was registered again under
/// this name meanwhile has other pod CIDRs, and the server rejects the patch for it.
pub(super) fn condition_patch(node: &Node, has_all: bool, now: Timestamp) -> Option<Value> {
    let (status, reason, message) = match has_all {
        true => ("False", "RouteCreated", "RouteController created a route"),
        false => ("True", "NoRouteCreated", "RouteController failed to create a route"),
    };
    if condition_status(node, NETWORK_UNAVAILABLE) == Some(status) {
        return None;
    }
    let condition = routes::network_unavailable(status, reason, message, now);
    let metadata = node.uid().map_or_else(|| json!({}), |uid| json!({"uid": uid}));
    Some(json!({"metadata": metadata, "status": {"conditions": [condition]}}))
}

/// Returns `true` if the update of a Node changed the condition that [`condition_patch`] writes.
pub(super) fn changes_condition(old: &Node, new: &Node) -> bool {
    condition_status(old, NETWORK_UNAVAILABLE) != condition_status(new, NETWORK_UNAVAILABLE)
}

/// Returns the conditions that are written if all of `plan` succeeds.
pub(super) fn planned_conditions(plan: &RoutePlan, now: Timestamp) -> Vec<PlannedWrite> {
    let (deleted, created) = (plan.changes.delete.iter().map(|_| Ok(())), plan.changes.create.iter().map(|_| Ok(())));
    let outcomes = RouteOutcomes { deleted: deleted.collect(), created: created.collect() };
    let patch = |(node, has_all): &(Arc<Node>, bool)| {
        let (name, reason) = (node.name_any(), if *has_all { "it has its routes" } else { "it has no routes" });
        let body = condition_patch(node, *has_all, now)?;
        let target = format!("/api/v1/nodes/{name}/status");
        Some(PlannedWrite::patch("node", target, format!("condition {NETWORK_UNAVAILABLE}: {reason}"), body))
    };
    evaluate(plan, &outcomes).node_results.iter().filter_map(patch).collect()
}

/// Returns the description of a node's condition for messages.
pub(super) fn condition_of(node: &Node) -> String {
    format!("condition {NETWORK_UNAVAILABLE} of node {:?}", node.name_any())
}

#[cfg(test)]
mod tests;

//! Plan for the whole cluster, collected from all controllers of this process.
//!
//! In: the state that this process watches. Out: a [`ClusterPlan`]. A controller that cannot plan adds a line to the failed
//! reads, so that the plan is visibly incomplete.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::{
    app::manager_state::ManagerState,
    cloud_provider::{CloudError, PlannedWrite, WritePlan},
    controllers::{
        Controller, ServiceScope,
        names::{ControllerNames, NODE, NODE_LIFECYCLE, ROUTE, SERVICE},
    },
    node::provider_id,
    serving::PlanKind,
};

/// Time limit of a plan of the whole cluster, unless a caller waits for less.
const PLAN_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Number of shares of a plan's time. Each later part has one reserved, so that a slow part does not use up the time of others.
const TIME_SHARES: u32 = 8;

/// Maximum number of characters of a provider ID in a message.
const SHOWN: usize = 64;

/// Controllers in the order in which a plan shows them, with their headings.
const PARTS: [(ControllerNames, &str, PlanKind); 4] = [
    (SERVICE, "Services", PlanKind::Services),
    (ROUTE, "Routes", PlanKind::Routes),
    (NODE, "Nodes", PlanKind::Nodes),
    (NODE_LIFECYCLE, "Nodes whose machine may be gone", PlanKind::Nodes),
];

/// Subject and time limit of a plan.
pub(crate) struct ClusterPlanRequest {
    /// Controllers to plan for; `None` for all.
    pub(crate) kind: Option<PlanKind>,
    pub(crate) scope: ServiceScope,
    pub(crate) deadline: Instant,
}

impl ClusterPlanRequest {
    /// Returns a request for everything.
    pub(crate) fn everything() -> Self {
        Self { kind: None, scope: ServiceScope::All, deadline: Instant::now() + PLAN_TIMEOUT }
    }
}

/// Planned writes, by controller.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ClusterPlan {
    /// Heading and plan, in a fixed order.
    pub parts: Vec<(&'static str, WritePlan)>,
    /// Parts that do not run with this configuration, with the reasons.
    pub skipped: Vec<(&'static str, String)>,
}

impl ClusterPlan {
    /// Returns every request, in the order in which a part sends it.
    pub fn writes(&self) -> impl Iterator<Item = &PlannedWrite> {
        self.plans().flat_map(|plan| &plan.writes)
    }

    /// Returns the failed reads.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        self.plans().flat_map(|plan| plan.unread.iter().map(String::as_str))
    }

    /// Returns `true` if every read of the plan succeeded.
    pub fn is_complete(&self) -> bool {
        self.plans().all(WritePlan::is_complete)
    }

    /// Returns `true` if the plan has writes, now or later.
    pub fn has_changes(&self) -> bool {
        self.plans().any(WritePlan::has_changes)
    }

    /// Returns `true` if the plan refuses an object.
    pub fn has_refusals(&self) -> bool {
        self.plans().any(|plan| !plan.refused.is_empty())
    }

    /// Returns `true` if a manager with this configuration would only remove leftovers, and refuse nothing.
    pub fn is_ready(&self) -> bool {
        let has_later = self.plans().any(|plan| !plan.later.is_empty());
        self.is_complete() && !has_later && !self.has_refusals() && self.writes().all(|write| write.leftover)
    }

    pub(super) fn plans(&self) -> impl Iterator<Item = &WritePlan> {
        self.parts.iter().map(|(_, plan)| plan)
    }

    /// Restricts the plan to one Service, `namespace/name`, and failed reads.
    #[must_use]
    pub fn of_service(mut self, key: &str) -> Self {
        let names = |line: &String| line.split_whitespace().any(|word| word.trim_end_matches([':', ',']) == key);
        self.parts.retain(|(heading, _)| ["Cluster", "Services"].contains(heading));
        self.skipped.retain(|(heading, _)| *heading == "Services");
        for (_, plan) in &mut self.parts {
            plan.writes.retain(|write| write.subjects.iter().any(|subject| subject == key));
            [&mut plan.later, &mut plan.refused, &mut plan.retained].into_iter().for_each(|lines| lines.retain(names));
        }
        self
    }

    /// Returns the plan as JSON.
    pub fn json(&self) -> Value {
        self.json_with(false)
    }

    /// Returns the plan as JSON. With `documents`, each write has its document before and after.
    pub fn json_with(&self, documents: bool) -> Value {
        let of_part = |(heading, plan): &(&str, WritePlan)| {
            let mut part = json!(plan);
            for (shown, write) in part["writes"].as_array_mut().into_iter().flatten().zip(&plan.writes).filter(|_| documents)
            {
                (shown["before"], shown["after"]) = (json!(write.before), json!(write.after));
            }
            ((*heading).to_owned(), part)
        };
        json!({
            "complete": self.is_complete(),
            "changes": self.has_changes(),
            "parts": self.parts.iter().map(of_part).collect::<serde_json::Map<_, _>>(),
            "skipped": self.skipped.iter().map(|(heading, reason)| json!({"part": heading, "reason": reason})).collect::<Vec<_>>(),
        })
    }
}

/// Collects the plans of the controllers, one after the other. A part may use all time that is not reserved for later parts.
pub(crate) async fn plan_cluster(state: &ManagerState, request: &ClusterPlanRequest) -> ClusterPlan {
    let mut plan = ClusterPlan::default();
    if let Some(mismatch) = provider_mismatch(&state.nodes.list(), state.provider.provider_name()) {
        plan.parts.push(("Cluster", WritePlan::unread(mismatch)));
    }
    let is_requested = |kind: PlanKind| request.kind.is_none_or(|requested| requested == kind);
    let mut parts = Vec::new();
    for (names, heading, _) in PARTS.into_iter().filter(|(_, _, kind)| is_requested(*kind)) {
        match state.controllers.iter().find(|(running, _)| *running == names) {
            Some((_, controller)) => parts.push((heading, controller)),
            None => {
                let skipped = state.skipped.iter().find(|(name, _)| *name == names.canonical);
                plan.skipped.push((heading, skipped.map_or_else(String::new, |(_, reason)| reason.clone())));
            }
        }
    }
    let share = request.deadline.saturating_duration_since(Instant::now()) / TIME_SHARES;
    for (remaining, (heading, controller)) in (0..parts.len()).rev().zip(parts) {
        let reserved = share.saturating_mul(u32::try_from(remaining).unwrap_or(TIME_SHARES));
        let part = plan_of(heading, controller, &request.scope, request.deadline - reserved).await;
        plan.parts.push((heading, part));
    }
    plan
}

/// Returns the reason why this may not be the cluster of the configuration: it has Nodes with machines, and all belong to
/// another cloud.
fn provider_mismatch(nodes: &[Arc<Node>], provider: &str) -> Option<String> {
    let scheme = format!("{provider}://");
    let mut ids = nodes.iter().filter_map(|node| provider_id(node));
    let first = ids.next()?;
    let is_other = !first.starts_with(&scheme) && ids.all(|id| !id.starts_with(&scheme));
    is_other.then(|| {
        let first: String = first.chars().take(SHOWN).filter(|character| !character.is_control()).collect();
        format!("no Node has a machine of {provider}, the first is {first:?}: does --kubeconfig name the right cluster?")
    })
}

async fn plan_of(heading: &str, controller: &Arc<dyn Controller>, scope: &ServiceScope, deadline: Instant) -> WritePlan {
    match timeout_at(deadline, controller.plan(scope)).await {
        Ok(Ok(plan)) => plan,
        Ok(Err(CloudError::NotImplemented)) => WritePlan::unread("the cloud provider does not plan its writes"),
        Ok(Err(error)) => WritePlan::unread(error.to_string()),
        Err(_) => WritePlan::unread(format!("{heading}: no plan was made in time")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_foreign_nodes_are_a_provider_mismatch() {
        for (ids, is_mismatch) in [
            (&[][..], false),
            (&[""], false),
            (&["azure:///a"], false),
            (&["", "kind://docker/a", "azure:///a"], false),
            (&["", "kind://docker/a"], true),
            (&["aws:///a", "aws:///b"], true),
        ] {
            let node = |id: &&str| {
                Arc::new(serde_json::from_value::<Node>(json!({"metadata": {}, "spec": {"providerID": id}})).unwrap())
            };
            let nodes: Vec<_> = ids.iter().map(node).collect();
            assert_eq!(provider_mismatch(&nodes, "azure").is_some(), is_mismatch, "{ids:?}");
        }
    }
}

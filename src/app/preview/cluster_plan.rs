//! One plan for the whole cluster, from every controller that runs here.
//!
//! In: what this process watches. Out: a [`ClusterPlan`], or what keeps it from being made. A controller that cannot plan leaves a line under
//! what was not read: the plan is then not complete, and does not look so.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::manager_state::ManagerState;
use crate::{
    cloud_provider::{CloudError, PlannedWrite, WritePlan},
    controllers::{
        Controller,
        names::{ControllerNames, NODE, NODE_LIFECYCLE, ROUTE, SERVICE},
    },
};

/// Longest that one controller may plan.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// Characters of a provider id that a line shows.
const SHOWN: usize = 64;

/// Controllers in the order in which a plan shows them, with their headings.
const PARTS: [(ControllerNames, &str); 4] =
    [(SERVICE, "Services"), (ROUTE, "Routes"), (NODE, "Nodes"), (NODE_LIFECYCLE, "Nodes whose machine may be gone")];

/// What would be written, by controller.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ClusterPlan {
    /// Heading and plan, in a fixed order.
    pub parts: Vec<(&'static str, WritePlan)>,
    /// Parts of which this configuration takes no care, and why.
    pub skipped: Vec<(&'static str, String)>,
}

impl ClusterPlan {
    /// Every request, in the order in which a part sends it.
    pub fn writes(&self) -> impl Iterator<Item = &PlannedWrite> {
        self.plans().flat_map(|plan| &plan.writes)
    }

    /// What could not be read.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        self.plans().flat_map(|plan| plan.unread.iter().map(String::as_str))
    }

    /// Whether everything was seen that it depends on.
    pub fn is_complete(&self) -> bool {
        self.plans().all(WritePlan::is_complete)
    }

    /// Whether something is written, now or later.
    pub fn has_changes(&self) -> bool {
        self.plans().any(WritePlan::has_changes)
    }

    /// Whether some Service cannot have what it requests.
    pub fn has_refusals(&self) -> bool {
        self.plans().any(|plan| !plan.refused.is_empty())
    }

    /// Whether a manager with this configuration would write nothing but remove leftovers, and refuse nothing.
    pub fn is_ready(&self) -> bool {
        let has_later = self.plans().any(|plan| !plan.later.is_empty());
        self.is_complete() && !has_later && !self.has_refusals() && self.writes().all(|write| write.leftover)
    }

    pub(super) fn plans(&self) -> impl Iterator<Item = &WritePlan> {
        self.parts.iter().map(|(_, plan)| plan)
    }

    /// Only what concerns one Service, `namespace/name`, and what could not be read.
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

    /// For machines.
    pub fn json(&self) -> Value {
        self.json_with(false)
    }

    /// The same, with each write's document before and after on request.
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
            "skipped": self.skipped.iter().map(|(heading, why)| json!({"part": heading, "reason": why})).collect::<Vec<_>>(),
        })
    }
}

/// Plans for the whole cluster.
pub(crate) async fn plan_cluster(watched: &ManagerState) -> ClusterPlan {
    let mut plan = ClusterPlan::default();
    let nodes = watched.nodes.list();
    if let Some(doubt) = another_clouds(&nodes, watched.provider.provider_name()) {
        plan.parts.push(("Cluster", WritePlan::unread(doubt)));
    }
    for (names, heading) in PARTS {
        match watched.controllers.iter().find(|(known, _)| *known == names) {
            Some((_, controller)) => plan.parts.push((heading, plan_of(controller).await)),
            None => {
                let skipped = watched.skipped.iter().find(|(name, _)| *name == names.canonical);
                plan.skipped.push((heading, skipped.map_or_else(String::new, |(_, why)| why.clone())));
            }
        }
    }
    plan
}

/// Why this may be another cluster than the one that the configuration belongs to: it has Nodes with machines, and all are another cloud's.
fn another_clouds(nodes: &[Arc<Node>], provider: &str) -> Option<String> {
    let scheme = format!("{provider}://");
    let mut ids = nodes.iter().filter_map(|node| node.spec.as_ref()?.provider_id.as_deref()).filter(|id| !id.is_empty());
    let first = ids.next()?;
    let is_other = !first.starts_with(&scheme) && ids.all(|id| !id.starts_with(&scheme));
    is_other.then(|| {
        let first: String = first.chars().take(SHOWN).filter(|one| !one.is_control()).collect();
        format!("no Node has a machine of {provider}, the first is {first:?}: does --kubeconfig name the right cluster?")
    })
}

async fn plan_of(controller: &Arc<dyn Controller>) -> WritePlan {
    match timeout(LIMIT, controller.planned_writes()).await {
        Ok(Ok(plan)) => plan,
        Ok(Err(CloudError::NotImplemented)) => WritePlan::unread("the cloud provider does not tell what it would write"),
        Ok(Err(error)) => WritePlan::unread(error.to_string()),
        Err(_) => WritePlan::unread(format!("no plan was made within {LIMIT:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_another_cloud_alone_are_another_cluster() {
        for (ids, is_told) in [
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
            assert_eq!(another_clouds(&nodes, "azure").is_some(), is_told, "{ids:?}");
        }
    }
}

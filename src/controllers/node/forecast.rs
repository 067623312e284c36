//! What the node controller would write now, as requests.
//!
//! In: every Node, and what the cloud tells of its instance. Out: a [`WritePlan`]: what initialises new Nodes, addresses of the others that
//! differ, labels that follow older ones. A Node of which the cloud could not tell stands under what was not read.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::{
    NodeController,
    metadata::{MetadataResult, MetadataScope},
    plan,
    preview::{self, NodePlan},
};
use crate::{
    cloud_provider::{CloudError, PlannedWrite, WritePlan},
    node::{
        addresses,
        initialize::NodeInitialization,
        name,
        patch::{self, NodeChanges},
        taints,
    },
};

impl NodeController {
    /// Asks the cloud about all Nodes.
    pub(super) async fn forecast(&self) -> WritePlan {
        let mut nodes = self.own_nodes();
        nodes.sort_by(|one, other| name(one).cmp(name(other)));
        let (new, known): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| taints::is_uninitialized(node));
        let source = self.metadata_batcher.source();
        let described = source.fetch_all(MetadataScope::All, &new).await;
        let addressed = source.fetch_all(MetadataScope::Addresses, &known).await;
        let mut plan = WritePlan::default();
        new.iter().zip(&described).for_each(|(node, told)| self.forecast_initialization(node, told, &mut plan));
        known.iter().zip(&addressed).for_each(|(node, told)| self.forecast_known(node, told, &mut plan));
        plan
    }

    fn forecast_initialization(&self, node: &Arc<Node>, told: &MetadataResult, plan: &mut WritePlan) {
        let line = |why: &str| format!("Node {:?} waits for its initialisation: {why}", name(node));
        match preview::plan(node, Some(told), &self.config) {
            Some(NodePlan::Initialize(decided)) => plan.writes.extend(initialization(node, &decided)),
            Some(NodePlan::AwaitRoute(decided)) => {
                plan.writes.extend(initialization(node, &decided));
                plan.later.insert(line("a route to its Pods comes first"));
            }
            Some(NodePlan::UpdateLabels(changes)) => plan.writes.push(labels(node, &changes)),
            Some(NodePlan::Wait(why)) if told.is_err() => {
                plan.unread.insert(line(&why));
            }
            Some(NodePlan::Wait(why)) => {
                plan.later.insert(line(&why));
            }
            None => {}
        }
    }

    fn forecast_known(&self, node: &Node, told: &MetadataResult, plan: &mut WritePlan) {
        if let plan::NodeAction::UpdateLabels(changes) = plan::next_action(node, self.config.beta_labels) {
            plan.writes.push(labels(node, &changes));
        }
        let metadata = match told {
            Ok(Some((metadata, _))) => metadata,
            Ok(None) | Err(CloudError::InstanceNotFound | CloudError::ImplementedElsewhere) => return,
            Err(error) => {
                plan.unread.insert(format!("addresses of Node {:?}: {error}", name(node)));
                return;
            }
        };
        let outdated = self.label_changes(node, metadata);
        if !outdated.is_empty() {
            plan.writes.push(labels(node, &outdated));
        }
        match addresses::changed(node, &metadata.node_addresses) {
            Ok(None) => {}
            Ok(Some(new)) => {
                let body = patch::addresses(node, &new);
                plan.writes.push(PlannedWrite::patch(
                    "node",
                    path(node, "/status"),
                    "the cloud tells other addresses",
                    body,
                ));
            }
            Err(error) => {
                plan.refused.insert(format!("Node {:?}: {error}", name(node)));
            }
        }
    }
}

/// Addresses, then all the rest.
fn initialization(node: &Node, decided: &NodeInitialization) -> Vec<PlannedWrite> {
    let status = decided.addresses.as_ref().map(|addresses| {
        PlannedWrite::patch("node", path(node, "/status"), "set its addresses", patch::addresses(node, addresses))
    });
    let rest = (!decided.changes.is_empty()).then(|| {
        let body = patch::node(node, &decided.changes);
        PlannedWrite::patch("node", path(node, ""), format!("initialise: {}", decided.changes), body)
    });
    status.into_iter().chain(rest).collect()
}

fn labels(node: &Node, changes: &NodeChanges) -> PlannedWrite {
    PlannedWrite::patch("node", path(node, ""), changes.to_string(), patch::node(node, changes))
}

fn path(node: &Node, part: &str) -> String {
    format!("/api/v1/nodes/{}{part}", name(node))
}

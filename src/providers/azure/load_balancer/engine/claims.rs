//! Nodes that claim another Node's machine are left out of pools and rules.
//!
//! In: the Nodes, and the machines that several of them claim, as the inventory lists them. Out: the Nodes whose claims count, and one event
//! for each of the others. While the inventory does not tell, all claims count.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError},
};

use k8s_openapi::api::core::v1::Node;

use super::stage_context::StageContext;
use crate::providers::azure::{
    inventory::Freshness,
    load_balancer::events,
    node,
    planner::load_balancer::pools::claims::{FalseClaim, contested_machines, false_claims},
};

impl StageContext {
    /// The Nodes that claim another Node's machine.
    pub(super) async fn false_claims(&self) -> Vec<FalseClaim> {
        let contested = contested_machines(&self.service_index.nodes());
        if contested.is_empty() {
            return Vec::new();
        }
        let queries: Vec<_> = contested.iter().map(|machine| machine.query.clone()).collect();
        let found = self.inventory.look_up(&queries, Freshness::Cached).await;
        let listed = contested.iter().zip(&found).filter_map(|(contested, found)| Some((contested, found.as_ref().ok()?)));
        listed.flat_map(|(contested, machine)| false_claims(contested, machine)).collect()
    }

    /// Records one event for each of `claims` that is new.
    pub(super) fn report_false_claims(&self, claims: &[FalseClaim]) {
        let new = self.reported_claims.lock().unwrap_or_else(PoisonError::into_inner).update(claims);
        for claim in new {
            tracing::warn!(node = node::name(&claim.node), owner = claim.owner, "node claims the machine of another node");
            self.events.record(events::provider_id_conflict(&claim.node, &claim.owner));
        }
    }
}

/// `nodes` without those of `claims`.
pub(super) fn without(nodes: &[Arc<Node>], claims: &[FalseClaim]) -> Vec<Arc<Node>> {
    let names: BTreeSet<&str> = claims.iter().map(|claim| node::name(&claim.node)).collect();
    nodes.iter().filter(|node| !names.contains(node::name(node))).cloned().collect()
}

//! Nodes that claim another Node's machine join no pools and rules, and addresses that their machines lack are in none.
//!
//! In: the Nodes, and their machines as the inventory has them. Out: the claims that do not count, and one event for each Node that is left
//! out. While the inventory has no machine, the claim counts.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;

use super::stage_context::StageContext;
use crate::providers::azure::{
    inventory::Freshness,
    load_balancer::{backend_pools::fingerprint, events},
    node,
    planner::load_balancer::pools::claims::NodeClaims,
};

/// Age up to which a machine's addresses are believed although its Node has none of them: the Node may be newer.
const CONTRADICTED_TTL: Duration = Duration::from_secs(60);

impl StageContext {
    /// Returns the claims of `nodes`. Machines that may be newer than the inventory are read again.
    pub(super) async fn claims(&self, nodes: &[Arc<Node>]) -> NodeClaims {
        let claims = self.cached_claims(nodes);
        let outdated = claims.outdated_machines();
        if outdated.is_empty() {
            return claims;
        }
        // After an error, what is known stays.
        drop(self.inventory.lookup(&outdated, Freshness::Within(CONTRADICTED_TTL)).await);
        self.cached_claims(nodes)
    }

    fn cached_claims(&self, nodes: &[Arc<Node>]) -> NodeClaims {
        NodeClaims::new(nodes, |queries| self.inventory.cached(queries))
    }

    /// Returns what of the Nodes decides who is in the pools, as a number. `hosts`: the Nodes that shall be behind load balancers.
    pub(super) fn node_fingerprint(&self, hosts: &[Arc<Node>]) -> u64 {
        let nodes = self.service_index.nodes();
        let claims = self.cached_claims(&nodes);
        fingerprint(&claims.counted(hosts), &claims.counted(&nodes), &self.settings)
    }

    /// Notes the Nodes that count, and records one event for each false claim that is new.
    pub(super) fn note_nodes(&self) {
        let nodes = self.service_index.nodes();
        let claims = self.cached_claims(&nodes);
        self.service_index.note_nodes(&claims.counted(&nodes));
        let new = self.reported_claims.lock().update(&claims.rejected);
        for claim in new {
            tracing::warn!(node = node::name(&claim.node), owner = claim.owner, "node claims the machine of another node");
            self.events.record(events::provider_id_conflict(&claim.node, &claim.owner));
        }
    }
}

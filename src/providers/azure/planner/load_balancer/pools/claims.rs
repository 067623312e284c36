//! Nodes that claim the same machine: only the machine's own Node counts. Pure.
//!
//! In: Nodes, and the machines that more than one of them claims. Out: the claims that do not count. The kubelet that registers a Node
//! chooses its provider id, so a claim alone must not take another Node's machine out of service.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;

use super::nodes::machine_query;
use crate::providers::azure::{
    arm::spelling,
    inventory::{Machine, MachineQuery},
    node,
};

/// A machine that several Nodes claim.
#[derive(Debug, Clone, PartialEq)]
pub struct ContestedMachine {
    /// How the machine is found.
    pub query: MachineQuery,
    /// The Nodes that claim it.
    pub claimants: Vec<Arc<Node>>,
}

/// A Node whose provider id is that of another Node's machine.
#[derive(Debug, Clone, PartialEq)]
pub struct FalseClaim {
    pub node: Arc<Node>,
    /// Name of the machine's own Node.
    pub owner: String,
}

/// Names of the Nodes whose false claims were reported last.
#[derive(Debug, Default)]
pub struct ReportedClaims(BTreeSet<String>);

impl ReportedClaims {
    /// Replaces what was reported; returns the claims that are new.
    pub fn update<'a>(&mut self, claims: &'a [FalseClaim]) -> Vec<&'a FalseClaim> {
        let names = claims.iter().map(|claim| node::name(&claim.node).to_owned()).collect();
        let before = std::mem::replace(&mut self.0, names);
        claims.iter().filter(|claim| !before.contains(node::name(&claim.node))).collect()
    }
}

/// The machines that more than one of `nodes` claims.
pub fn contested_machines(nodes: &[Arc<Node>]) -> Vec<ContestedMachine> {
    let mut by_machine: BTreeMap<String, ContestedMachine> = BTreeMap::new();
    for node in nodes {
        let query = machine_query(node);
        let Some(key) = query.id.as_ref().map(|id| id.key()) else { continue };
        let machine = by_machine.entry(key).or_insert_with(|| ContestedMachine { query, claimants: Vec::new() });
        machine.claimants.push(Arc::clone(node));
    }
    by_machine.retain(|_, machine| machine.claimants.len() > 1);
    by_machine.into_values().collect()
}

/// The claims that do not count. The machine's own Node is the one that has its name; if none of the Nodes has it, the oldest.
pub fn false_claims(contested: &ContestedMachine, machine: &Machine) -> Vec<FalseClaim> {
    let has_name = |node: &&Arc<Node>| spelling::same_name(machine.node_name(), node::name(node));
    let age = |node: &&Arc<Node>| (node::created(node), node::name(node).to_owned());
    let named = contested.claimants.iter().find(has_name);
    let Some(owner) = named.or_else(|| contested.claimants.iter().min_by_key(age)) else { return Vec::new() };
    let others = contested.claimants.iter().filter(|node| !Arc::ptr_eq(node, owner));
    let claim = |node: &Arc<Node>| FalseClaim { node: Arc::clone(node), owner: node::name(owner).to_owned() };
    others.map(claim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::{instances::fixtures::scale_set_instance, node::fixtures::node};

    const MACHINE: &str = "azure:///subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/";

    fn claimant(name: &str, instance: &str, created: &str) -> Arc<Node> {
        Arc::new(node(name).provider_id(&format!("{MACHINE}{instance}")).created(created).build())
    }

    fn ignored(nodes: &[Arc<Node>], computer_name: &str) -> Vec<(String, String)> {
        let machine = Machine { computer_name: computer_name.to_owned(), ..scale_set_instance("set", 0) };
        let claims = contested_machines(nodes).into_iter().flat_map(|contested| false_claims(&contested, &machine));
        claims.map(|claim| (node::name(&claim.node).to_owned(), claim.owner)).collect()
    }

    #[test]
    fn only_the_node_with_the_machines_name_counts() {
        let evil = claimant("evil", "0", "2026-01-01T00:00:00Z");
        let own = claimant("set000000", "0", "2026-01-02T00:00:00Z");
        let other = claimant("set000001", "1", "2026-01-02T00:00:00Z");
        let plain = Arc::new(node("plain").build());
        assert_eq!(contested_machines(&[Arc::clone(&own), Arc::clone(&other), plain]), []);
        let nodes = [evil, own, other];
        assert_eq!(ignored(&nodes, "SET000000"), [("evil".to_owned(), "set000000".to_owned())], "although it is younger");
        assert_eq!(ignored(&nodes, ""), [("set000000".to_owned(), "evil".to_owned())], "the oldest");
    }
}

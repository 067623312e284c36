//! Claims of Nodes: only a machine's own Node counts, with the addresses that the machine has. Pure.
//!
//! In: Nodes, and their machines in the inventory. Out: the claims that do not count, and Nodes without invented addresses.
//! The kubelet that registers a Node chooses its provider id and its addresses, so neither may bring another machine into
//! pools and rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Node, NodeAddress};

use super::nodes::{INTERNAL_IP, internal_addresses, machine_query};
use crate::providers::azure::{
    model::{Machine, MachineQuery, spelling},
    node,
};

/// A Node whose provider id is that of another Node's machine.
#[derive(Debug, Clone, PartialEq)]
pub struct FalseClaim {
    pub node: Arc<Node>,
    /// Name of the machine's own Node.
    pub owner: String,
}

/// Claims of Nodes that do not count.
#[derive(Debug, Default, PartialEq)]
pub struct NodeClaims {
    /// Claims of Nodes to the machine of another Node.
    pub rejected: Vec<FalseClaim>,
    /// Nodes without the internal addresses that their machines lack, by name.
    corrected: BTreeMap<String, Arc<Node>>,
}

impl NodeClaims {
    /// Checks the claims of `nodes`. `cached_machines` returns the machine of each query, or `None` if the inventory has
    /// none. In that case the claim counts.
    pub fn new(nodes: &[Arc<Node>], cached_machines: impl FnOnce(&[MachineQuery]) -> Vec<Option<Arc<Machine>>>) -> Self {
        let queries: Vec<MachineQuery> = nodes.iter().map(|node| machine_query(node)).collect();
        let machines = cached_machines(&queries);
        let mut claimed: BTreeMap<String, (Option<&Machine>, Vec<&Arc<Node>>)> = BTreeMap::new();
        let mut corrected = BTreeMap::new();
        for ((node, query), machine) in nodes.iter().zip(&queries).zip(&machines) {
            let machine = machine.as_deref();
            if let Some(id) = &query.id {
                claimed.entry(id.key()).or_insert_with(|| (machine, Vec::new())).1.push(node);
            }
            let without = machine.and_then(|machine| without_invented_addresses(node, machine));
            corrected.extend(without.map(|without| (node::name(node).to_owned(), Arc::new(without))));
        }
        let rejected = claimed.into_values().flat_map(|(machine, claimants)| false_claims(&claimants, machine)).collect();
        Self { rejected, corrected }
    }

    /// Returns the Nodes whose claims count, with the addresses that count.
    pub fn counted(&self, nodes: &[Arc<Node>]) -> Vec<Arc<Node>> {
        let rejected: BTreeSet<&str> = self.rejected.iter().map(|claim| node::name(&claim.node)).collect();
        let counted = nodes.iter().filter(|node| !rejected.contains(node::name(node)));
        counted.map(|node| Arc::clone(self.corrected.get(node::name(node)).unwrap_or(node))).collect()
    }

    /// Returns `true` if some Node has addresses that its machine lacks. The machine may have gained them since it was read.
    pub fn has_corrected_nodes(&self) -> bool {
        !self.corrected.is_empty()
    }

    /// Returns queries for the machines of Nodes that have none of the cached addresses. The cached machines may be
    /// outdated.
    pub fn outdated_machines(&self) -> Vec<MachineQuery> {
        let without_address = self.corrected.values().filter(|node| internal_addresses(node).is_empty());
        without_address.map(|node| machine_query(node)).collect()
    }
}

/// Names of the Nodes whose false claims were reported last.
#[derive(Debug, Default)]
pub struct ReportedClaims(BTreeSet<String>);

impl ReportedClaims {
    /// Replaces the reported claims and returns the new ones.
    pub fn update<'a>(&mut self, claims: &'a [FalseClaim]) -> Vec<&'a FalseClaim> {
        let names = claims.iter().map(|claim| node::name(&claim.node).to_owned()).collect();
        let before = std::mem::replace(&mut self.0, names);
        claims.iter().filter(|claim| !before.contains(node::name(&claim.node))).collect()
    }
}

/// Returns `true` if `node` is the name of the machine's own Node, or if the name of the machine is unknown.
pub fn is_own_node(machine: &Machine, node: &str) -> bool {
    machine.node_name().is_empty() || has_name(machine, node)
}

/// Returns `true` if the machine has this name. Outside scale sets, Azure's name and the host name may differ; both count.
fn has_name(machine: &Machine, node: &str) -> bool {
    [machine.node_name(), &machine.computer_name].iter().any(|name| spelling::same_name(name, node))
}

/// Returns the claims of all claimants except the machine's own Node.
fn false_claims(claimants: &[&Arc<Node>], machine: Option<&Machine>) -> Vec<FalseClaim> {
    let own = own_node(claimants, machine);
    let owner = own.map_or_else(|| machine.map_or("", Machine::node_name), |node| node::name(node));
    let others = claimants.iter().copied().filter(|node| own.is_none_or(|own| !Arc::ptr_eq(node, own)));
    others.map(|node| FalseClaim { node: Arc::clone(node), owner: owner.to_owned() }).collect()
}

/// Returns the Node with the machine's name, or the oldest claimant if that name is unknown.
fn own_node<'a>(claimants: &[&'a Arc<Node>], machine: Option<&Machine>) -> Option<&'a Arc<Node>> {
    let claimants = claimants.iter().copied();
    match machine.filter(|machine| !machine.node_name().is_empty()) {
        Some(machine) => {
            let named = claimants.filter(|node| has_name(machine, node::name(node)));
            named.min_by_key(|node| !spelling::same_name(machine.node_name(), node::name(node)))
        }
        None => claimants.min_by_key(|node| (node::created(node), node::name(node).to_owned())),
    }
}

/// Returns `node` without the internal addresses that its machine lacks. `None` if it has no such address, or if the
/// machine's addresses are unknown.
fn without_invented_addresses(node: &Node, machine: &Machine) -> Option<Node> {
    let own: BTreeSet<IpAddr> = machine.private_addresses().collect();
    let is_invented = |address: &NodeAddress| {
        address.type_ == INTERNAL_IP && address.address.parse::<IpAddr>().is_ok_and(|address| !own.contains(&address))
    };
    let listed = node.status.as_ref()?.addresses.as_ref()?;
    if own.is_empty() || !listed.iter().any(is_invented) {
        return None;
    }
    let mut corrected = node.clone();
    corrected.status.as_mut()?.addresses.as_mut()?.retain(|address| !is_invented(address));
    Some(corrected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::{instances::fixtures::scale_set_instance, node::fixtures::node};

    const MACHINE: &str = "azure:///subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/";

    fn claimant(name: &str, instance: &str, created: &str) -> Arc<Node> {
        Arc::new(node(name).provider_id(&format!("{MACHINE}{instance}")).created(created).build())
    }

    /// Returns the claims of `nodes` if each instance has this host name.
    fn claims(nodes: &[Arc<Node>], computer_name: &str) -> NodeClaims {
        let machine = Machine { computer_name: computer_name.to_owned(), ..scale_set_instance("set", 0) };
        let machine = Arc::new(machine);
        NodeClaims::new(nodes, |queries| {
            queries.iter().map(|query| query.id.as_ref().map(|_| Arc::clone(&machine))).collect()
        })
    }

    fn ignored(claims: NodeClaims) -> Vec<(String, String)> {
        claims.rejected.into_iter().map(|claim| (node::name(&claim.node).to_owned(), claim.owner)).collect()
    }

    #[test]
    fn only_the_node_with_the_machines_name_counts() {
        let evil = claimant("evil", "0", "2026-01-01T00:00:00Z");
        let own = claimant("set000000", "0", "2026-01-02T00:00:00Z");
        let plain = Arc::new(node("plain").build());
        let nodes = [Arc::clone(&evil), Arc::clone(&own), Arc::clone(&plain)];
        let rejected = claims(&nodes, "SET000000");
        assert_eq!(rejected.counted(&nodes), [own, plain]);
        assert_eq!(ignored(rejected), [("evil".to_owned(), "set000000".to_owned())], "although it is older");
        let oldest = [("set000000".to_owned(), "evil".to_owned())];
        assert_eq!(ignored(claims(&nodes, "")), oldest, "the machine has no name");
        let uncached = NodeClaims::new(&nodes, |queries| vec![None; queries.len()]);
        assert_eq!(ignored(uncached), oldest, "the inventory has no machine");
    }

    #[test]
    fn a_single_claim_of_another_machine_does_not_count() {
        let nodes = [claimant("evil", "0", "2026-01-01T00:00:00Z")];
        assert_eq!(ignored(claims(&nodes, "set000000")), [("evil".to_owned(), "set000000".to_owned())]);
        assert_eq!(ignored(claims(&nodes, "")), []);
        assert_eq!(NodeClaims::new(&nodes, |_| vec![None]).counted(&nodes), nodes, "the inventory has no machine");
    }

    #[test]
    fn only_addresses_of_the_machine_count() {
        let with = |addresses: &[&str]| {
            let builder = node("set000000").provider_id(&format!("{MACHINE}0"));
            let builder = addresses.iter().fold(builder, |builder, address| builder.address(INTERNAL_IP, address));
            Arc::new(builder.address("ExternalIP", "20.0.0.1").build())
        };
        // The machine has 10.0.0.4.
        for (listed, counted, is_outdated) in [
            (&["10.0.0.4"][..], &["10.0.0.4"][..], false),
            (&["10.0.0.9", "10.0.0.4", "fd00::9"][..], &["10.0.0.4"][..], false),
            (&["10.0.0.9"][..], &[][..], true),
        ] {
            let nodes = [with(listed)];
            let claims = claims(&nodes, "set000000");
            assert_eq!(claims.counted(&nodes), [with(counted)], "{listed:?}");
            assert_eq!(!claims.outdated_machines().is_empty(), is_outdated, "{listed:?}");
            assert_eq!(claims.has_corrected_nodes(), listed != counted, "{listed:?}");
        }
        let nodes = [with(&["10.0.0.9"])];
        let unread = Machine { interfaces: Vec::new(), computer_name: String::new(), ..scale_set_instance("set", 0) };
        let claims = NodeClaims::new(&nodes, |_| vec![Some(Arc::new(unread))]);
        assert_eq!(claims.counted(&nodes), nodes, "its addresses are unknown");
    }
}

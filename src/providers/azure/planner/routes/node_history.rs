//! Facts about Nodes that the table does not show: CIDRs of unmanaged Nodes, and current and former addresses of all Nodes.
//! Pure.
//!
//! Upstream also keeps the CIDRs of unmanaged Nodes (`routeCIDRs` in `pkg/provider/azure.go`), but does not check next hops.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use k8s_openapi::api::core::v1::Node;

use crate::providers::azure::node;

/// Remembered facts about Nodes. A restart loses them without harm, because a new process reads the Nodes again.
#[derive(Debug, Clone, Default)]
pub struct RouteNodeHistory {
    unmanaged: BTreeMap<String, BTreeSet<String>>,
    addresses: BTreeMap<String, NodeAddressHistory>,
}

#[derive(Debug, Clone, Default)]
struct NodeAddressHistory {
    current: BTreeSet<IpAddr>,
    former: BTreeSet<IpAddr>,
}

impl RouteNodeHistory {
    /// Remembers a route to `cidr` of an unmanaged Node, which another component maintains.
    pub fn remember(&mut self, name: &str, cidr: &str) {
        self.unmanaged.entry(name.to_owned()).or_default().insert(cidr.to_owned());
    }

    /// Forgets a route that is no longer desired. Does nothing for Nodes without remembered routes.
    pub fn forget(&mut self, name: &str, cidr: &str) {
        if let Some(cidrs) = self.unmanaged.get_mut(name) {
            cidrs.remove(cidr);
            if cidrs.is_empty() {
                self.unmanaged.remove(name);
            }
        }
    }

    /// Returns the Node and the CIDR of each remembered route.
    pub fn unmanaged(&self) -> impl Iterator<Item = (&str, &str)> {
        self.unmanaged.iter().flat_map(|(name, cidrs)| cidrs.iter().map(move |cidr| (name.as_str(), cidr.as_str())))
    }

    /// Records the addresses of the present Nodes, and forgets all other Nodes.
    pub fn observe<'a>(&mut self, nodes: impl Iterator<Item = &'a Node>) {
        let mut known = std::mem::take(&mut self.addresses);
        for node in nodes {
            let name = node::name(node);
            let mut addresses = known.remove(name).unwrap_or_default();
            let now: BTreeSet<IpAddr> = internal_addresses(node).collect();
            if !now.is_empty() {
                let gone = addresses.current.difference(&now).copied().collect::<Vec<_>>();
                addresses.former.extend(gone);
                addresses.former.retain(|address| !now.contains(address));
                addresses.current = now;
            }
            self.addresses.insert(name.to_owned(), addresses);
        }
        self.unmanaged.retain(|name, _| self.addresses.contains_key(name));
    }

    /// Returns the Nodes by their current addresses.
    pub fn address_owners(&self) -> BTreeMap<IpAddr, &str> {
        let taken = self
            .addresses
            .iter()
            .flat_map(|(name, known)| known.current.iter().map(move |address| (*address, name.as_str())));
        taken.collect()
    }

    /// Returns `true` if a route with this next hop misdirects the packets of the Node `name`.
    ///
    /// In that case the Node has other addresses of that family, and it had this address before or another Node has it. An
    /// unrecorded address may have been set on purpose. Like upstream, this program keeps it.
    pub fn leads_astray(&self, name: &str, next_hop: IpAddr, taken: &BTreeMap<IpAddr, &str>) -> bool {
        let Some(known) = self.addresses.get(name) else { return false };
        let has_family = known.current.iter().any(|address| address.is_ipv6() == next_hop.is_ipv6());
        let has_it = known.current.contains(&next_hop);
        let belongs_elsewhere = taken.get(&next_hop).is_some_and(|other| *other != name);
        has_family && !has_it && (known.former.contains(&next_hop) || belongs_elsewhere)
    }
}

fn internal_addresses(node: &Node) -> impl Iterator<Item = IpAddr> + '_ {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    addresses.iter().filter(|address| address.type_ == "InternalIP").filter_map(|address| address.address.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::node::fixtures::node;

    fn with(name: &str, addresses: &[&str]) -> Node {
        addresses.iter().fold(node(name), |node, address| node.address("InternalIP", address)).build()
    }

    fn astray(memory: &RouteNodeHistory, name: &str, hop: &str) -> bool {
        memory.leads_astray(name, hop.parse().unwrap(), &memory.address_owners())
    }

    #[test]
    fn a_former_address_and_that_of_another_node_lead_astray() {
        let mut memory = RouteNodeHistory::default();
        memory.observe([with("a", &["10.0.0.1", "fd00::1"]), with("b", &["10.0.0.2"])].iter());
        let cases = [("10.0.0.1", false), ("10.9.9.9", false), ("10.0.0.2", true), ("fd00::1", false), ("fd00::2", false)];
        for (hop, expected) in cases {
            assert_eq!(astray(&memory, "a", hop), expected, "{hop}");
        }
        assert!(!astray(&memory, "b", "fd00::1"), "b has no address of that family");
        assert!(!astray(&memory, "gone", "10.0.0.1"), "no such Node: the controller deletes its routes");

        memory.observe([with("a", &["10.0.0.7", "fd00::1"]), with("b", &["10.0.0.2"])].iter());
        assert!(astray(&memory, "a", "10.0.0.1") && !astray(&memory, "a", "10.0.0.7"));
        memory.observe([with("a", &[]), with("b", &["10.0.0.2"])].iter());
        assert!(astray(&memory, "a", "10.0.0.1") && !astray(&memory, "a", "10.0.0.7"), "no address is no news");
        memory.observe([with("a", &["10.0.0.1"])].iter());
        assert!(!astray(&memory, "a", "10.0.0.1") && astray(&memory, "a", "10.0.0.7"), "back again");
        memory.observe(std::iter::empty());
        memory.observe([with("a", &["10.0.0.3"])].iter());
        assert!(!astray(&memory, "a", "10.0.0.1"), "another Node of that name");
    }

    #[test]
    fn cidrs_go_with_their_node() {
        let mut memory = RouteNodeHistory::default();
        for name in ["a", "b"] {
            memory.remember(name, "10.0.0.0/24");
        }
        memory.observe([with("b", &[])].iter());
        assert_eq!(memory.unmanaged().collect::<Vec<_>>(), [("b", "10.0.0.0/24")]);
    }

    #[test]
    fn cidrs_of_unmanaged_nodes_are_remembered_until_forgotten() {
        let mut memory = RouteNodeHistory::default();
        for cidr in ["10.0.0.0/24", "fd00::/64", "10.0.0.0/24"] {
            memory.remember("a", cidr);
        }
        memory.forget("b", "10.0.0.0/24");
        assert_eq!(memory.unmanaged().collect::<Vec<_>>(), [("a", "10.0.0.0/24"), ("a", "fd00::/64")]);
        memory.forget("a", "10.0.0.0/24");
        memory.forget("a", "fd00::/64");
        assert_eq!(memory.unmanaged().count(), 0);
    }
}

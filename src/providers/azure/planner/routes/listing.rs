//! Existing routes as the route controller sees them: pure.
//!
//! In: the table, the Nodes, and the remembered facts about them. Out: one [`Route`] per route of the table, including
//! routes of other owners: the controller ignores routes outside of the cluster's CIDRs. Upstream:
//! `pkg/provider/azure_routes.go`, `processRoutes` and `ListRoutes`.

use std::net::IpAddr;

use super::{
    names::{node_of, route_name},
    node_history::RouteNodeHistory,
    plan::routes_of,
};
use crate::{
    cloud_provider::Route,
    providers::azure::model::network::{self, RouteTable},
};

/// Returns the routes of `table`, or none if it does not exist, then those of unmanaged Nodes.
///
/// `is_unmanaged` returns `true` for a Node that exists and is unmanaged. A route that misdirects the packets of a Node is
/// listed as a blackhole, so that the controller replaces it.
pub fn list(table: Option<&RouteTable>, memory: &RouteNodeHistory, is_unmanaged: impl Fn(&str) -> bool) -> Vec<Route> {
    let taken = memory.address_owners();
    let in_table = routes_of(table).iter().filter_map(|route| {
        let name = route.name.clone().unwrap_or_default();
        let target = node_of(&name);
        let next_hop = next_hop(route);
        let astray = next_hop.is_some_and(|hop| memory.leads_astray(&target, hop, &taken)) && !is_unmanaged(&target);
        Some(Route { name, blackhole: astray, ..route_to(target, route.properties.as_ref()?.address_prefix.as_deref()?) })
    });
    let remembered = memory.unmanaged().filter(|(node, _)| is_unmanaged(node));
    let remembered =
        remembered.map(|(node, cidr)| Route { name: route_name(node, cidr), ..route_to(node.to_owned(), cidr) });
    in_table.chain(remembered).collect()
}

fn route_to(target_node: String, cidr: &str) -> Route {
    Route { target_node, destination_cidr: cidr.to_owned(), ..Route::default() }
}

fn next_hop(route: &network::ArmRoute) -> Option<IpAddr> {
    route.properties.as_ref()?.next_hop_ip_address.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::providers::azure::node::fixtures::node;

    #[test]
    fn all_routes_are_listed_with_their_nodes_and_unmanaged_ones_after_them() {
        let route = |name: &str, prefix: &str| json!({"name": name, "properties": {"addressPrefix": prefix, "nextHopIpAddress": "10.0.0.1"}});
        let routes = [
            route("A____1", "10.1.0.0/24"),
            route("b____2", "10.1.1.0/24"),
            route("to-firewall", "0.0.0.0/0"),
            json!({"name": "odd"}),
        ];
        let table = serde_json::from_value(json!({"properties": {"routes": routes}})).unwrap();
        let mut memory = RouteNodeHistory::default();
        let nodes = [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("u", "10.0.0.3")];
        memory.observe(nodes.map(|(name, ip)| node(name).address("InternalIP", ip).build()).iter());
        memory.remember("u", "10.1.2.0/24");
        memory.remember("gone", "10.1.3.0/24");
        let listed = list(Some(&table), &memory, |name| name == "u");
        let rows: Vec<_> = listed
            .iter()
            .map(|route| (route.name.as_str(), route.target_node.as_str(), route.destination_cidr.as_str(), route.blackhole))
            .collect();
        assert_eq!(
            rows,
            [
                ("A____1", "a", "10.1.0.0/24", false),
                ("b____2", "b", "10.1.1.0/24", true),
                ("to-firewall", "to-firewall", "0.0.0.0/0", false),
                ("u____1012024", "u", "10.1.2.0/24", false),
            ]
        );
        assert_eq!(list(None, &memory, |_| false), []);
    }
}

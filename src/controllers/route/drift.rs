//! Detects external changes to the routes since a successful reconcile. Pure.
//!
//! In: the routes, the plan and the results of a reconcile; then the routes and the plan of the next. Out: each route that
//! was deleted, changed or added in between. Only changes that Nodes do not explain count: a Node that was replaced, or
//! whose addresses, labels or pod CIDRs changed, is skipped. The state does not outlive the process: a difference at the
//! start is not reported as drift.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::plan::{Cidr, PrintedRoute, RouteCreationReason, RoutePlan, addresses};
use crate::{
    cloud_provider::{NodeAddress, Route},
    node::{pod_cidrs, provider_id},
};

/// Identity of a route by its purpose: the Node and the CIDR.
type RouteKey = (String, Cidr);

/// Observed and written routes at the end of a reconcile.
#[derive(Debug)]
pub(super) struct KnownRoutes {
    pub(super) at: Timestamp,
    /// Nodes that had all their routes.
    baseline: HashMap<String, Arc<Node>>,
    addresses: HashMap<String, Vec<NodeAddress>>,
    /// Routes that were listed or created.
    routes: HashSet<RouteKey>,
}

/// External change to a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RouteDriftChange {
    Deleted,
    Changed,
    Added,
}

/// Externally changed route of a Node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RouteDrift {
    pub(super) change: RouteDriftChange,
    pub(super) route: Route,
    /// Node that the route leads to, if that Node exists.
    pub(super) node: Option<Arc<Node>>,
}

impl RouteDriftChange {
    pub(super) const ALL: [Self; 3] = [Self::Deleted, Self::Changed, Self::Added];

    /// Returns the name for metrics and messages.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Changed => "changed",
            Self::Added => "added",
        }
    }
}

impl fmt::Display for RouteDrift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.change.as_str(), PrintedRoute(&self.route))
    }
}

impl KnownRoutes {
    /// Records the end of a reconcile that began with `listed` and `nodes`. `results` says which Nodes now have all their
    /// routes.
    pub(super) fn new(
        listed: &[Route],
        nodes: &[Arc<Node>],
        plan: &RoutePlan,
        results: &[(Arc<Node>, bool)],
        at: Timestamp,
    ) -> Self {
        let has_all = results.iter().filter(|(_, has_all)| *has_all);
        let sent = plan.changes.create.iter().map(|(_, route)| route);
        Self {
            at,
            baseline: has_all.map(|(node, _)| (node.name_any(), Arc::clone(node))).collect(),
            addresses: addresses_by_name(nodes),
            routes: listed.iter().chain(sent).map(key).collect(),
        }
    }

    /// Returns `true` if `node` had all its routes then, and needs the same routes now.
    pub(super) fn has_routes(&self, node: &Node) -> bool {
        self.baseline.get(&node.name_any()).is_some_and(|old| is_unchanged(old, node))
    }

    /// Returns the external changes that the next plan reveals.
    pub(super) fn drift(&self, plan: &RoutePlan, nodes: &[Arc<Node>]) -> Vec<RouteDrift> {
        let by_name: BTreeMap<String, &Arc<Node>> = nodes.iter().map(|node| (node.name_any(), node)).collect();
        let node_of = |route: &Route| by_name.get(&route.target_node).copied();
        // A route may only look changed because another Node has taken over the address that it leads to.
        let are_addresses_same = self.addresses == addresses_by_name(nodes);
        let found = |change: RouteDriftChange, route: &Route| RouteDrift {
            change,
            route: route.clone(),
            node: node_of(route).cloned(),
        };
        let created = plan.changes.create.iter().zip(&plan.creation_reasons).filter_map(|((_, route), reason)| {
            let old_and_new = self.baseline.get(&route.target_node).zip(node_of(route));
            let is_same = old_and_new.is_some_and(|(old, new)| is_unchanged(old, new));
            match reason {
                RouteCreationReason::Missing if is_same => Some(found(RouteDriftChange::Deleted, route)),
                RouteCreationReason::Replaces if is_same && are_addresses_same => {
                    Some(found(RouteDriftChange::Changed, route))
                }
                RouteCreationReason::Missing | RouteCreationReason::Replaces => None,
            }
        });
        let unexpected = plan.changes.delete.iter().filter(|route| !self.routes.contains(&key(route)));
        created.chain(unexpected.map(|route| found(RouteDriftChange::Added, route))).collect()
    }
}

fn key(route: &Route) -> RouteKey {
    (route.target_node.clone(), Cidr::of(&route.destination_cidr))
}

fn addresses_by_name(nodes: &[Arc<Node>]) -> HashMap<String, Vec<NodeAddress>> {
    nodes.iter().map(|node| (node.name_any(), addresses(node))).collect()
}

/// Returns `true` if both are the same Node and need the same routes.
fn is_unchanged(old: &Node, new: &Node) -> bool {
    old.uid() == new.uid()
        && old.metadata.labels == new.metadata.labels
        && pod_cidrs(old) == pod_cidrs(new)
        && addresses(old) == addresses(new)
        && provider_id(old) == provider_id(new)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::plan::plan, *};

    fn node(name: &str, cidr: &str, address: &str) -> Arc<Node> {
        let node = json!({
            "metadata": {"name": name, "uid": format!("uid-{name}")},
            "spec": {"podCIDRs": [cidr]},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        });
        Arc::new(serde_json::from_value(node).unwrap())
    }

    fn route(target: &str, cidr: &str) -> Route {
        Route { target_node: target.to_owned(), destination_cidr: cidr.to_owned(), ..Route::default() }
    }

    fn blackhole(route: Route) -> Route {
        Route { blackhole: true, ..route }
    }

    /// Returns the drift reported for the second state after a successful reconcile of the first.
    fn drift(first: (&[Arc<Node>], &[Route]), second: (&[Arc<Node>], &[Route])) -> Vec<String> {
        let ours = ["10.0.0.0/8".parse().unwrap()];
        let before = plan(first.1, first.0, &ours);
        let results: Vec<_> = before.nodes.iter().map(|planned| (Arc::clone(&planned.node), true)).collect();
        let baseline = KnownRoutes::new(first.1, first.0, &before, &results, Timestamp::UNIX_EPOCH);
        let found = baseline.drift(&plan(second.1, second.0, &ours), second.0);
        let line = |drift: &RouteDrift| format!("{drift}{}", if drift.node.is_some() { "" } else { ", not a Node" });
        found.iter().map(line).collect()
    }

    /// Name of the case, Nodes and routes at the second reconcile, and the reported drift.
    type DriftCase<'a> = (&'a str, &'a [Arc<Node>], &'a [Route], &'a [&'a str]);

    #[test]
    fn node_changes_are_not_reported_as_drift() {
        let (a, b) = (node("a", "10.0.1.0/24", "1.1.1.1"), node("b", "10.0.2.0/24", "1.1.1.2"));
        let (to_a, to_b) = (route("a", "10.0.1.0/24"), route("b", "10.0.2.0/24"));
        let (moved, renumbered) = (node("a", "10.0.1.0/24", "9.9.9.9"), node("a", "10.0.9.0/24", "1.1.1.1"));
        let mut recreated = Node::clone(&a);
        recreated.metadata.uid = Some("another".to_owned());
        let mut labeled = Node::clone(&a);
        labeled.metadata.labels = Some([("managed".to_owned(), "false".to_owned())].into());
        let both = [a.clone(), b.clone()];
        let routes = [to_a.clone(), to_b.clone()];
        let thief = node("b", "10.0.2.0/24", "1.1.1.1");
        let rows: &[DriftCase<'_>] = &[
            ("nothing", &both, &routes, &[]),
            ("a route is gone", &both, &routes[1..], &["deleted route for 10.0.1.0/24 of Node \"a\""]),
            (
                "all are gone",
                &both,
                &[],
                &["deleted route for 10.0.1.0/24 of Node \"a\"", "deleted route for 10.0.2.0/24 of Node \"b\""],
            ),
            (
                "a route becomes a blackhole",
                &both,
                &[blackhole(to_a.clone()), to_b.clone()],
                &["changed route for 10.0.1.0/24 of Node \"a\""],
            ),
            ("another Node has its address", &[a.clone(), thief], &[blackhole(to_a.clone()), to_b.clone()], &[]),
            (
                "a route of another component",
                &both,
                &[to_a.clone(), to_b.clone(), route("x", "10.0.5.0/24")],
                &["added route for 10.0.5.0/24 of Node \"x\", not a Node"],
            ),
            (
                "of another CIDR",
                &both,
                &[to_a.clone(), to_b.clone(), route("a", "10.0.5.0/24")],
                &["added route for 10.0.5.0/24 of Node \"a\""],
            ),
            ("outside of the cluster", &both, &[to_a, to_b, route("x", "192.0.2.0/24")], &[]),
            ("a Node is deleted", &both[1..], &routes, &[]),
            ("a Node is added", &[a, b.clone(), node("c", "10.0.3.0/24", "1.1.1.3")], &routes, &[]),
            ("a Node gets another address", &[moved, b.clone()], &routes[1..], &[]),
            ("a Node gets another CIDR", &[renumbered, b.clone()], &routes, &[]),
            ("a Node is recreated", &[Arc::new(recreated), b.clone()], &routes[1..], &[]),
            ("a Node gets a label", &[Arc::new(labeled), b], &routes[1..], &[]),
        ];
        for (name, nodes, routes_now, expected) in rows {
            assert_eq!(drift((&both, &routes), (nodes, routes_now)), *expected, "{name}");
        }
        assert_eq!(drift((&both, &[]), (&both, &routes)), Vec::<String>::new(), "created routes appear");
    }

    #[test]
    fn failed_routes_are_not_reported_as_drift() {
        let nodes = [node("a", "10.0.1.0/24", "1.1.1.1")];
        let ours = ["10.0.0.0/8".parse().unwrap()];
        let failed = plan(&[], &nodes, &ours);
        let baseline = KnownRoutes::new(&[], &nodes, &failed, &[(nodes[0].clone(), false)], Timestamp::UNIX_EPOCH);
        assert_eq!(baseline.drift(&plan(&[], &nodes, &ours), &nodes), []);
    }
}

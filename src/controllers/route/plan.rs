//! Plan of the routes to delete and to create. Pure.
//!
//! In: the routes that the provider listed, the nodes, the cluster CIDRs. Out: a [`RoutePlan`]: the changes, their reasons
//! and, per node, the required routes. The same value is executed and printed. Upstream: `route_controller.go`, `reconcile`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    sync::Arc,
};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::config::{NodeMaskSizes, RefusedCidr, RouteLimits};
use crate::{
    cloud_provider::{NodeAddress, Route, RouteChanges},
    node::{is_ready, pod_cidrs},
};

/// Minimum number of Ready Nodes that determines the usual prefix.
const MIN_NODES_FOR_MASK: usize = 3;

impl NodeMaskSizes {
    /// Adds the prefix that most Ready Nodes have for each family without one.
    pub(super) fn or_of_nodes(self, nodes: &[Arc<Node>]) -> Self {
        let ready_nodes = nodes.iter().filter(|node| is_ready(node));
        let cidrs: Vec<IpNet> = ready_nodes.flat_map(|node| pod_cidrs(node)).filter_map(|text| text.parse().ok()).collect();
        let of_family = |is_ipv4: bool| {
            most_frequent(cidrs.iter().filter(|cidr| cidr.addr().is_ipv4() == is_ipv4).map(IpNet::prefix_len))
        };
        Self { ipv4: self.ipv4.or_else(|| of_family(true)), ipv6: self.ipv6.or_else(|| of_family(false)) }
    }
}

/// Returns the most frequent prefix, of several the shortest; `None` if there are fewer than [`MIN_NODES_FOR_MASK`].
fn most_frequent(prefixes: impl Iterator<Item = u8>) -> Option<u8> {
    let mut counts = BTreeMap::<u8, usize>::new();
    for prefix in prefixes {
        *counts.entry(prefix).or_default() += 1;
    }
    let has_enough = counts.values().sum::<usize>() >= MIN_NODES_FOR_MASK;
    // Of equal counts, `max_by_key` returns the last one.
    let mode = counts.into_iter().rev().max_by_key(|(_, count)| *count);
    mode.filter(|_| has_enough).map(|(prefix, _)| prefix)
}

/// Planned changes to routes, and their reasons.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RoutePlan {
    /// Changes for the provider, sent in one batch.
    pub(super) changes: RouteChanges,
    /// Nodes with pod CIDRs or routes, in the order of the input.
    pub(super) nodes: Vec<NodeRoutePlan>,
    /// Number of routes that need no change.
    pub(super) unchanged: usize,
    /// Reason of each deletion, in the order of [`RouteChanges::delete`].
    pub(super) deletion_reasons: Vec<RouteDeletionReason>,
    /// Reason of each creation, in the order of [`RouteChanges::create`].
    pub(super) creation_reasons: Vec<RouteCreationReason>,
    /// Routes that are kept until their Node is confirmed to be deleted.
    pub(super) waiting: Vec<Route>,
    /// Pod CIDRs that get no new route.
    pub(super) refused: Vec<RefusedRoute>,
}

/// Reason for a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RouteDeletionReason {
    #[error("there is no such Node")]
    NodeGone,
    #[error("the Node does not have this pod CIDR")]
    OtherPodCidrs,
    #[error("it is a blackhole")]
    Blackhole,
    #[error("the Node has other addresses")]
    OtherAddresses,
}

/// Reason for a creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RouteCreationReason {
    #[error("the Node has this pod CIDR and no route leads there")]
    Missing,
    /// The existing route is a blackhole, or leads to addresses that the Node does not have.
    #[error("the existing route does not lead to the Node")]
    Replaces,
}

/// Required routes of one node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeRoutePlan {
    pub(super) node: Arc<Node>,
    /// Required route of each pod CIDR. Empty if the node has a route but no pod CIDRs.
    pub(super) routes: Vec<RequiredRoute>,
}

/// State of a route that a node needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequiredRoute {
    Exists,
    /// Route to be created: index in [`RouteChanges::create`].
    Create(usize),
    /// Route that is not created: see [`RoutePlan::refused`].
    Refused,
}

/// A pod CIDR that gets no new route.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RefusedRoute {
    pub(super) node: Arc<Node>,
    pub(super) cidr: IpNet,
    pub(super) reason: RefusedCidr,
    /// Whether the Node has a route for the CIDR. That route is kept, because Pods use it, whatever the limits are now.
    pub(super) has_route: bool,
}

/// CIDR that is compared by its meaning, or by its text if it is not valid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Cidr {
    Net(IpNet),
    Text(String),
}

impl Cidr {
    pub(super) fn of(text: &str) -> Self {
        text.parse().map_or_else(|_| Cidr::Text(text.to_owned()), |net: IpNet| Cidr::Net(net.trunc()))
    }
}

/// Plans the changes from the listed `routes` to the required ones, without prefixes from flags.
pub(super) fn plan(routes: &[Route], nodes: &[Arc<Node>], cluster_cidrs: &[IpNet]) -> RoutePlan {
    plan_within(routes, nodes, RouteLimits { cluster_cidrs, node_masks: NodeMaskSizes::default() })
}

/// Plans the changes from the listed `routes` to those that `nodes` require within `limits`.
pub(super) fn plan_within(routes: &[Route], nodes: &[Arc<Node>], limits: RouteLimits<'_>) -> RoutePlan {
    let limits = RouteLimits { node_masks: limits.node_masks.or_of_nodes(nodes), ..limits };
    let listed = ListedRoutes::new(routes, limits);
    let mut plan = RoutePlan::default();
    let mut required = HashSet::new();
    for node in nodes {
        let name = node.name_any();
        if pod_cidrs(node).is_empty() && !listed.targets.contains(name.as_str()) {
            continue;
        }
        let routes = required_routes(node, &listed, &mut required, &mut plan);
        plan.nodes.push(NodeRoutePlan { node: Arc::clone(node), routes });
    }
    let is_required = |index: &usize| required.contains(index) || !listed.ours.contains(index);
    plan.unchanged = required.len();
    plan.changes.delete = (0..routes.len()).filter(|index| !is_required(index)).map(|index| routes[index].clone()).collect();
    let by_name: HashMap<String, &Node> = nodes.iter().map(|node| (node.name_any(), node.as_ref())).collect();
    let node_of = |route: &Route| by_name.get(&route.target_node).copied();
    plan.deletion_reasons = plan.changes.delete.iter().map(|route| deletion_reason(route, node_of(route))).collect();
    plan.creation_reasons = plan.changes.create.iter().map(|(_, route)| listed.creation_reason(route)).collect();
    plan
}

/// Returns the reason why `route` to `node` is not required.
fn deletion_reason(route: &Route, node: Option<&Node>) -> RouteDeletionReason {
    let Some(node) = node else { return RouteDeletionReason::NodeGone };
    let destination = Cidr::of(&route.destination_cidr);
    if !pod_cidrs(node).iter().any(|own| Cidr::of(own) == destination) {
        return RouteDeletionReason::OtherPodCidrs;
    }
    if route.blackhole { RouteDeletionReason::Blackhole } else { RouteDeletionReason::OtherAddresses }
}

/// Returns the names of the Nodes that routes to be deleted lead to and that are not in the plan.
pub(super) fn unlisted_nodes(plan: &RoutePlan) -> BTreeSet<String> {
    let listed: HashSet<_> = plan.nodes.iter().map(|planned| planned.node.name_any()).collect();
    let targets = plan.changes.delete.iter().map(|route| &route.target_node).filter(|name| !name.is_empty());
    targets.filter(|name| !listed.contains(*name)).cloned().collect()
}

/// State of a Node that is missing from the informer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UnlistedNode {
    /// Not existing in the cluster.
    Gone,
    /// Existing but hidden by the informer's selector, with these pod CIDRs.
    Hidden(Vec<String>),
    /// Not determined, because the API server could not be read.
    Unknown,
}

impl UnlistedNode {
    /// Returns `true` if the Node needs `route`. Matching the name is not enough: the CIDR may have been reassigned to
    /// another Node.
    fn keeps(&self, route: &Route) -> bool {
        let within = |cidr: &String| match (Cidr::of(cidr), Cidr::of(&route.destination_cidr)) {
            (Cidr::Net(own), Cidr::Net(destination)) => own.contains(&destination),
            (own, destination) => own == destination,
        };
        match self {
            Self::Gone => false,
            Self::Hidden(pod_cidrs) => pod_cidrs.iter().any(within),
            Self::Unknown => true,
        }
    }
}

/// Retains the routes that unlisted Nodes need. A Node that is not in `seen` keeps all its routes.
pub(super) fn retain_routes_of_unlisted_nodes(plan: &mut RoutePlan, seen: &HashMap<String, UnlistedNode>) {
    let unlisted = unlisted_nodes(plan);
    let keeps = |route: &Route| seen.get(&route.target_node).unwrap_or(&UnlistedNode::Unknown).keeps(route);
    let is_retained = |route: &Route| unlisted.contains(&route.target_node) && keeps(route);
    let before = plan.changes.delete.len();
    let reasons = std::mem::take(&mut plan.deletion_reasons);
    let (retained, deleted): (Vec<_>, Vec<_>) =
        std::mem::take(&mut plan.changes.delete).into_iter().zip(reasons).partition(|(route, _)| is_retained(route));
    (plan.changes.delete, plan.deletion_reasons) = deleted.into_iter().unzip();
    plan.unchanged += before - plan.changes.delete.len();
    let is_unknown =
        |route: &Route| seen.get(&route.target_node).is_none_or(|existence| *existence == UnlistedNode::Unknown);
    plan.waiting.extend(retained.into_iter().map(|(route, _)| route).filter(is_unknown));
}

impl RoutePlan {
    /// Returns a line for each change, with its reason.
    pub(super) fn reasons(&self) -> impl Iterator<Item = String> {
        let deleted = self.changes.delete.iter().zip(&self.deletion_reasons);
        let created = self.changes.create.iter().map(|(_, route)| route).zip(&self.creation_reasons);
        let deleted = deleted.map(|(route, reason)| format!("delete {}: {reason}", PrintedRoute(route)));
        deleted.chain(created.map(|(route, reason)| format!("create {}: {reason}", PrintedRoute(route))))
    }

    /// Returns a line for each route that is kept because the existence of its Node is unknown.
    pub(super) fn unresolved(&self) -> impl Iterator<Item = String> {
        self.waiting.iter().map(|route| format!("{} waits: it is not known whether its Node exists", PrintedRoute(route)))
    }
}

impl fmt::Display for RefusedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, cidr, reason, has_route } = self;
        let (start, end) = if *has_route { ("", " is kept, but a new one would be refused") } else { ("no ", "") };
        write!(f, "{start}route for {cidr} of Node {:?}{end}: {reason}", node.name_any())
    }
}

/// Route as formatted for messages.
pub(super) struct PrintedRoute<'a>(pub(super) &'a Route);

impl fmt::Display for PrintedRoute<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Route { name, destination_cidr, target_node, .. } = self.0;
        let space = if name.is_empty() { "" } else { " " };
        write!(f, "route{space}{name} for {destination_cidr} of Node {target_node:?}")
    }
}

/// Listed routes, indexed by target.
struct ListedRoutes<'a> {
    routes: &'a [Route],
    /// Routes by target node and CIDR; a blackhole serves no Node and is omitted.
    serving: HashMap<(&'a str, Cidr), Vec<usize>>,
    /// Nodes that any route leads to.
    targets: HashSet<&'a str>,
    /// Indexes of the routes that this cluster is responsible for.
    ours: HashSet<usize>,
    limits: RouteLimits<'a>,
}

impl<'a> ListedRoutes<'a> {
    fn new(routes: &'a [Route], limits: RouteLimits<'a>) -> Self {
        let mut serving: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, route) in routes.iter().enumerate().filter(|(_, route)| !route.blackhole) {
            serving.entry((route.target_node.as_str(), Cidr::of(&route.destination_cidr))).or_default().push(index);
        }
        let targets = routes.iter().map(|route| route.target_node.as_str()).filter(|name| !name.is_empty()).collect();
        let is_ours = |(index, route): (usize, &Route)| is_responsible_for(route, limits.cluster_cidrs).then_some(index);
        let ours = routes.iter().enumerate().filter_map(is_ours).collect();
        Self { routes, serving, targets, ours, limits }
    }

    fn creation_reason(&self, required: &Route) -> RouteCreationReason {
        let has_route = self.has_route(&required.target_node, &Cidr::of(&required.destination_cidr));
        if has_route { RouteCreationReason::Replaces } else { RouteCreationReason::Missing }
    }

    /// Returns `true` if there is a route for `cidr` of `node`, even if it is a blackhole or leads to former addresses.
    fn has_route(&self, node: &str, cidr: &Cidr) -> bool {
        let matches = |route: &Route| route.target_node == node && Cidr::of(&route.destination_cidr) == *cidr;
        self.targets.contains(node) && self.routes.iter().any(matches)
    }

    /// Returns the reason why this pod CIDR of `node` may have no new route, if any. The provider refuses invalid CIDRs.
    fn refusal(&self, node: &Arc<Node>, cidr: &Cidr) -> Option<RefusedRoute> {
        let Cidr::Net(net) = cidr else { return None };
        let reason = self.limits.check(net).err()?;
        let has_route = self.has_route(&node.name_any(), cidr);
        Some(RefusedRoute { node: Arc::clone(node), cidr: *net, reason, has_route })
    }

    /// Returns `true` if a route to the node needs no change: it is not ours, has no addresses, or has those of the node.
    fn is_good(&self, index: usize, node_addresses: &HashSet<NodeAddress>) -> bool {
        let route = &self.routes[index];
        let tracked = route.enable_node_addresses && self.ours.contains(&index);
        !tracked || route.target_node_addresses.iter().cloned().collect::<HashSet<_>>() == *node_addresses
    }
}

/// Returns the required routes of `node`. Adds the routes that serve it to `required`, and missing ones and refused pod
/// CIDRs to `plan`.
fn required_routes(
    node: &Arc<Node>,
    listed: &ListedRoutes<'_>,
    required: &mut HashSet<usize>,
    plan: &mut RoutePlan,
) -> Vec<RequiredRoute> {
    let name = node.name_any();
    let addresses = addresses(node);
    let address_set: HashSet<_> = addresses.iter().cloned().collect();
    let mut seen = HashSet::new();
    let mut needed = Vec::new();
    for text in pod_cidrs(node) {
        let cidr = Cidr::of(text);
        if !seen.insert(cidr.clone()) {
            continue;
        }
        let refusal = listed.refusal(node, &cidr);
        let serving = listed.serving.get(&(name.as_str(), cidr)).map(Vec::as_slice).unwrap_or_default();
        let good: Vec<_> = serving.iter().copied().filter(|index| listed.is_good(*index, &address_set)).collect();
        // A route that this cluster is not responsible for is kept, whatever the limits.
        let is_foreign = good.iter().any(|index| !listed.ours.contains(index));
        let refusal = refusal.filter(|_| !is_foreign);
        if refusal.as_ref().is_some_and(|refusal| !refusal.has_route) {
            needed.push(RequiredRoute::Refused);
        } else if good.is_empty() {
            needed.push(RequiredRoute::Create(plan.changes.create.len()));
            let route = Route {
                target_node: name.clone(),
                target_node_addresses: addresses.clone(),
                destination_cidr: text.clone(),
                ..Route::default()
            };
            plan.changes.create.push((node.uid().unwrap_or_default(), route));
        } else {
            needed.push(RequiredRoute::Exists);
            required.extend(good);
        }
        plan.refused.extend(refusal);
    }
    needed
}

/// Returns `true` if the first or last address of a route is in a cluster CIDR. Upstream: `isResponsibleForRoute`.
fn is_responsible_for(route: &Route, cluster_cidrs: &[IpNet]) -> bool {
    let Ok(cidr) = route.destination_cidr.parse::<IpNet>() else { return false };
    cluster_cidrs.iter().any(|cluster| cluster.contains(&cidr.network()) || cluster.contains(&cidr.broadcast()))
}

/// Returns the addresses in a node's status. An address whose type no provider can name is omitted.
pub(super) fn addresses(node: &Node) -> Vec<NodeAddress> {
    let convert = |address: &k8s_openapi::api::core::v1::NodeAddress| {
        let type_ = serde_json::from_value(address.type_.as_str().into()).ok()?;
        Some(NodeAddress { type_, address: address.address.clone() })
    };
    crate::node::addresses::of(node).iter().filter_map(convert).collect()
}

#[cfg(test)]
mod tests;

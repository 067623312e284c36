//! Which routes to delete and to create: pure.
//!
//! In: the routes that the provider listed, the nodes, the cluster CIDRs. Out: a [`RoutePlan`], that is the changes, why they are made and,
//! per node, what has to be there once they are. The same value is carried out and printed. Upstream: `route_controller.go`, `reconcile`.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    sync::Arc,
};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::config::{RefusedCidr, RouteLimits};
use crate::{
    cloud_provider::{AddressType, NodeAddress, Route, RouteChanges},
    node::pod_cidrs,
};

/// What to do, and what it is good for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RoutePlan {
    /// For the provider, in one batch.
    pub(super) changes: RouteChanges,
    /// The nodes concerned, in the order of the input.
    pub(super) nodes: Vec<NodeRoutePlan>,
    /// How many routes are as they should be.
    pub(super) kept: usize,
    /// Why each deletion is made, in the order of [`RouteChanges::delete`].
    pub(super) deletion_reasons: Vec<RouteDeletionReason>,
    /// Why each creation is made, in the order of [`RouteChanges::create`].
    pub(super) creation_reasons: Vec<RouteCreationReason>,
    /// Routes that would be deleted if somebody knew that their Node is gone.
    pub(super) waiting: Vec<Route>,
    /// Pod CIDRs that get no route.
    pub(super) refused: Vec<RefusedRoute>,
}

/// Why a route goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteDeletionReason {
    /// No Node has the name that it leads to.
    NodeGone,
    /// The Node has other pod CIDRs.
    OtherPodCidrs,
    /// Its target is gone.
    Blackhole,
    /// The Node has other addresses.
    OtherAddresses,
}

/// Why a route is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteCreationReason {
    /// There is none.
    Missing,
    /// The one that there is leads nowhere, or to addresses that the Node does not have.
    Replaces,
}

/// What one node needs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeRoutePlan {
    pub(super) node: Arc<Node>,
    /// One per pod CIDR. Empty for a node without pod CIDRs that a route leads to all the same.
    pub(super) routes: Vec<RequiredRoute>,
}

/// A route that a node needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequiredRoute {
    Exists,
    /// It is to be created: index in [`RouteChanges::create`].
    Create(usize),
    /// It is not created: see [`RoutePlan::refused`].
    Refused,
}

/// A pod CIDR that gets no route.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RefusedRoute {
    pub(super) node: Arc<Node>,
    pub(super) cidr: IpNet,
    pub(super) reason: RefusedCidr,
}

/// A CIDR by what it means; one that is none, by its text.
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

/// Compares what is with what should be, for pod CIDRs of any size.
pub(super) fn plan(routes: &[Route], nodes: &[Arc<Node>], cluster_cidrs: &[IpNet]) -> RoutePlan {
    plan_within(routes, nodes, RouteLimits { cluster_cidrs, node_masks: None })
}

/// Compares what is with what should be.
pub(super) fn plan_within(routes: &[Route], nodes: &[Arc<Node>], limits: RouteLimits<'_>) -> RoutePlan {
    let listed = ListedRoutes::new(routes, limits);
    let mut plan = RoutePlan::default();
    let mut wanted = HashSet::new();
    for node in nodes {
        let name = node.name_any();
        if pod_cidrs(node).is_empty() && !listed.targets.contains(name.as_str()) {
            continue;
        }
        let routes = required_routes(node, &listed, &mut wanted, &mut plan);
        plan.nodes.push(NodeRoutePlan { node: Arc::clone(node), routes });
    }
    let is_wanted = |index: &usize| wanted.contains(index) || !listed.ours.contains(index);
    plan.kept = wanted.len();
    plan.changes.delete = (0..routes.len()).filter(|index| !is_wanted(index)).map(|index| routes[index].clone()).collect();
    let by_name: HashMap<String, &Node> = nodes.iter().map(|node| (node.name_any(), node.as_ref())).collect();
    let node_of = |route: &Route| by_name.get(&route.target_node).copied();
    plan.deletion_reasons = plan.changes.delete.iter().map(|route| deletion_reason(route, node_of(route))).collect();
    plan.creation_reasons = plan.changes.create.iter().map(|(_, route)| listed.creation_reason(route)).collect();
    plan
}

/// Why `route` to `node` is not wanted.
fn deletion_reason(route: &Route, node: Option<&Node>) -> RouteDeletionReason {
    let Some(node) = node else { return RouteDeletionReason::NodeGone };
    let destination = Cidr::of(&route.destination_cidr);
    if !pod_cidrs(node).iter().any(|own| Cidr::of(own) == destination) {
        return RouteDeletionReason::OtherPodCidrs;
    }
    if route.blackhole { RouteDeletionReason::Blackhole } else { RouteDeletionReason::OtherAddresses }
}

/// Nodes that routes to be deleted lead to and that are not among the plan's, each once.
pub(super) fn unlisted_nodes(plan: &RoutePlan) -> BTreeSet<String> {
    let known: HashSet<_> = plan.nodes.iter().map(|planned| planned.node.name_any()).collect();
    let targets = plan.changes.delete.iter().map(|route| &route.target_node).filter(|name| !name.is_empty());
    targets.filter(|name| !known.contains(*name)).cloned().collect()
}

/// What is known of a stranger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UnlistedNode {
    /// There is no such Node.
    Gone,
    /// There is, with these pod CIDRs.
    Hidden(Vec<String>),
    Unknown,
}

impl UnlistedNode {
    /// A name alone protects nothing: the CIDR that a Node of this name had before may be another's by now.
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

/// Keeps the routes that those strangers need; one of which nothing was asked keeps all.
pub(super) fn keep_routes_of_unlisted(plan: &mut RoutePlan, seen: &HashMap<String, UnlistedNode>) {
    let strangers = unlisted_nodes(plan);
    let keeps = |route: &Route| seen.get(&route.target_node).unwrap_or(&UnlistedNode::Unknown).keeps(route);
    let stays = |route: &Route| strangers.contains(&route.target_node) && keeps(route);
    let before = plan.changes.delete.len();
    let reasons = std::mem::take(&mut plan.deletion_reasons);
    let (kept, deleted): (Vec<_>, Vec<_>) =
        std::mem::take(&mut plan.changes.delete).into_iter().zip(reasons).partition(|(route, _)| stays(route));
    (plan.changes.delete, plan.deletion_reasons) = deleted.into_iter().unzip();
    plan.kept += before - plan.changes.delete.len();
    let is_unknown = |route: &Route| seen.get(&route.target_node).is_none_or(|known| *known == UnlistedNode::Unknown);
    plan.waiting.extend(kept.into_iter().map(|(route, _)| route).filter(is_unknown));
}

/// One line per change, then those that wait. Nothing, when there is nothing to do.
impl fmt::Display for RoutePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (route, reason) in self.changes.delete.iter().zip(&self.deletion_reasons) {
            writeln!(f, "delete {}: {reason}", PrintedRoute(route))?;
        }
        for ((_, route), reason) in self.changes.create.iter().zip(&self.creation_reasons) {
            writeln!(f, "create {}: {reason}", PrintedRoute(route))?;
        }
        for RefusedRoute { node, cidr, reason } in &self.refused {
            writeln!(f, "no route for {cidr} of Node {:?}: {reason}", node.name_any())?;
        }
        for route in &self.waiting {
            writeln!(f, "{} waits: nobody can tell whether its Node is gone", PrintedRoute(route))?;
        }
        Ok(())
    }
}

/// A route for people.
pub(super) struct PrintedRoute<'a>(pub(super) &'a Route);

impl fmt::Display for PrintedRoute<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Route { name, destination_cidr, target_node, .. } = self.0;
        let space = if name.is_empty() { "" } else { " " };
        write!(f, "route{space}{name} for {destination_cidr} of Node {target_node:?}")
    }
}

impl fmt::Display for RouteDeletionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NodeGone => "there is no such Node",
            Self::OtherPodCidrs => "the Node does not have this pod CIDR",
            Self::Blackhole => "it leads nowhere",
            Self::OtherAddresses => "the Node has other addresses",
        })
    }
}

impl fmt::Display for RouteCreationReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "the Node has this pod CIDR and no route leads there",
            Self::Replaces => "the route that there is does not lead to the Node",
        })
    }
}

/// Routes as listed, indexed.
struct ListedRoutes<'a> {
    routes: &'a [Route],
    /// By target node and CIDR; a blackhole serves nobody and is not in here.
    serving: HashMap<(&'a str, Cidr), Vec<usize>>,
    /// Nodes that any route leads to.
    targets: HashSet<&'a str>,
    /// Those that this cluster is responsible for.
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

    fn creation_reason(&self, wanted: &Route) -> RouteCreationReason {
        let destination = Cidr::of(&wanted.destination_cidr);
        let stands_for =
            |route: &Route| route.target_node == wanted.target_node && Cidr::of(&route.destination_cidr) == destination;
        let is_there = self.targets.contains(wanted.target_node.as_str()) && self.routes.iter().any(stands_for);
        if is_there { RouteCreationReason::Replaces } else { RouteCreationReason::Missing }
    }

    /// Why this pod CIDR of `node` may have no route. What is not a CIDR is for the provider to refuse.
    fn refusal(&self, node: &Arc<Node>, cidr: &Cidr) -> Option<RefusedRoute> {
        let Cidr::Net(cidr) = cidr else { return None };
        let reason = self.limits.check(cidr).err()?;
        Some(RefusedRoute { node: Arc::clone(node), cidr: *cidr, reason })
    }

    /// A route that leads to the node is good as it is when it is not ours to change, carries no addresses, or the right ones.
    fn is_good(&self, index: usize, node_addresses: &HashSet<NodeAddress>) -> bool {
        let route = &self.routes[index];
        let tracked = route.enable_node_addresses && self.ours.contains(&index);
        !tracked || route.target_node_addresses.iter().cloned().collect::<HashSet<_>>() == *node_addresses
    }
}

/// What `node` needs; marks the routes that serve it as `wanted`, and adds to `plan` the missing ones and the pod CIDRs without route.
fn required_routes(
    node: &Arc<Node>,
    listed: &ListedRoutes<'_>,
    wanted: &mut HashSet<usize>,
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
        // A route that this cluster is not responsible for is left as it is, whatever the limits.
        let is_left = good.iter().any(|index| !listed.ours.contains(index));
        if let Some(refusal) = refusal.filter(|_| !is_left) {
            needed.push(RequiredRoute::Refused);
            plan.refused.push(refusal);
        } else if good.is_empty() {
            needed.push(RequiredRoute::Create(plan.changes.create.len()));
            plan.changes.create.push((node.uid().unwrap_or_default(), route_to(&name, &addresses, text)));
        } else {
            needed.push(RequiredRoute::Exists);
            wanted.extend(good);
        }
    }
    needed
}

fn route_to(node: &str, addresses: &[NodeAddress], cidr: &str) -> Route {
    Route {
        target_node: node.to_owned(),
        target_node_addresses: addresses.to_vec(),
        destination_cidr: cidr.to_owned(),
        ..Route::default()
    }
}

/// A route is ours when its first or last address lies in a cluster CIDR. Upstream: `isResponsibleForRoute`.
fn is_responsible_for(route: &Route, cluster_cidrs: &[IpNet]) -> bool {
    let Ok(cidr) = route.destination_cidr.parse::<IpNet>() else { return false };
    cluster_cidrs.iter().any(|cluster| cluster.contains(&cidr.network()) || cluster.contains(&cidr.broadcast()))
}

/// Addresses in a node's status. One of a type that no provider can name is left out.
pub(super) fn addresses(node: &Node) -> Vec<NodeAddress> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let known = addresses.iter().filter_map(|address| {
        let type_ = match address.type_.as_str() {
            "Hostname" => AddressType::Hostname,
            "InternalIP" => AddressType::InternalIP,
            "ExternalIP" => AddressType::ExternalIP,
            "InternalDNS" => AddressType::InternalDNS,
            "ExternalDNS" => AddressType::ExternalDNS,
            _ => return None,
        };
        Some(NodeAddress { type_, address: address.address.clone() })
    });
    known.collect()
}

#[cfg(test)]
mod tests;

//! Selection of the nodes that load balancers use, and of the changes of a Node that can affect them. Pure.
//!
//! Upstream: `service/controller.go` (`stableNodeSetPredicates`, `shouldSyncUpdatedNode`), KEP-3458. Readiness is left to
//! the health checks of the load balancer, so that a flapping node causes no writes.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;

pub use crate::cloud_provider::helpers::{EXCLUDE_LABEL, is_excluded};
use crate::{
    cloud_provider::node_fields::taints,
    node::{addresses, name, provider_id},
};

/// Taint of a node that the cluster autoscaler is about to delete.
pub const TO_BE_DELETED_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// Returns `true` if the cluster autoscaler is about to delete `node`.
pub fn is_being_scaled_down(node: &Node) -> bool {
    taints(node).iter().any(|taint| taint.key == TO_BE_DELETED_TAINT)
}

/// Returns `true` if `node` belongs to the stable node set, which load balancers send traffic to.
pub fn is_host(node: &Node) -> bool {
    node.metadata.deletion_timestamp.is_none() && !is_excluded(node) && !is_being_scaled_down(node)
}

/// Returns `true` if the update of a Node requires a sync of the hosts.
///
/// Taints and deletion do not: they are applied with the next such change, so that connections to a node that is being removed
/// can drain.
pub fn should_sync_updated_node(old: &Node, new: &Node) -> bool {
    is_excluded(old) != is_excluded(new) || provider_id(old) != provider_id(new)
}

/// Returns `true` if the update of a Node may add it to or remove it from load balancers: providers also read labels and
/// addresses.
///
/// An upcoming deletion does not count, as in [`should_sync_updated_node`]; a canceled one does.
pub fn may_change_hosts(old: &Node, new: &Node) -> bool {
    old.metadata.labels != new.metadata.labels
        || provider_id(old) != provider_id(new)
        || addresses::of(old) != addresses::of(new)
        || (is_host(new) && !is_host(old))
}

/// Returns `true` if the update of a Node does not concern providers: kubelet's regular report changes only times and
/// messages.
///
/// A large cluster has hundreds of these updates per second, which must not invalidate the list of hosts.
pub fn is_heartbeat(old: &Node, new: &Node) -> bool {
    let (a, b) = (&old.metadata, &new.metadata);
    let same_metadata = a.uid == b.uid
        && a.labels == b.labels
        && a.annotations == b.annotations
        && a.deletion_timestamp == b.deletion_timestamp;
    same_metadata && old.spec == new.spec && addresses::of(old) == addresses::of(new) && conditions(old).eq(conditions(new))
}

fn conditions(node: &Node) -> impl Iterator<Item = (&str, &str)> {
    let conditions = node.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.map(|condition| (condition.type_.as_str(), condition.status.as_str()))
}

/// Names and provider IDs of the hosts. Equal sets need no call of the provider.
///
/// Comparisons are cheap: sets that differ nearly always differ in their hash, and equal ones are nearly always the same allocation.
#[derive(Debug, Clone)]
pub struct NodeSet {
    hash: u64,
    members: Arc<[(String, String)]>,
}

impl NodeSet {
    /// Returns the set of `nodes`, in any order.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Self {
        let member = |node: &Node| (name(node).to_owned(), provider_id(node).unwrap_or_default().to_owned());
        let mut members: Vec<_> = nodes.into_iter().map(member).collect();
        members.sort();
        let mut hasher = DefaultHasher::new();
        members.hash(&mut hasher);
        Self { hash: hasher.finish(), members: members.into() }
    }
}

impl PartialEq for NodeSet {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && (Arc::ptr_eq(&self.members, &other.members) || self.members == other.members)
    }
}

impl Eq for NodeSet {}

/// Hosts of all load balancers: the nodes for the provider, and their set.
#[derive(Debug, Clone)]
pub struct LoadBalancerHosts {
    /// Nodes in name order.
    pub nodes: Vec<Arc<Node>>,
    pub set: NodeSet,
}

impl LoadBalancerHosts {
    /// Returns the hosts among `nodes`. Reuses `previous`' set if it is equal, so that all load balancers share one.
    pub fn among(nodes: Vec<Arc<Node>>, previous: Option<&NodeSet>) -> Self {
        let nodes: Vec<_> = nodes.into_iter().filter(|node| is_host(node)).collect();
        let set = NodeSet::of(nodes.iter().map(AsRef::as_ref));
        let set = previous.filter(|previous| **previous == set).cloned().unwrap_or(set);
        Self { nodes, set }
    }
}

#[cfg(test)]
mod tests;

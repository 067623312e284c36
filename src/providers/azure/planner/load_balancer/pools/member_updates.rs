//! Changes of member resources that put Nodes into the pools they belong into. Pure.
//!
//! In: the pools ([`ManagedPool`]), the machines of Nodes ([`PoolMember`]). Out: the pools that each document must list and
//! must not list ([`PoolMemberUpdate`]s), and the pools that the models of scale sets must list. One write of a document
//! covers all pools of all load balancers.
//! Upstream: `pkg/provider/azure_vmss.go` (`EnsureHostsInPool`), `azure_loadbalancer_backendpool.go`
//! (`ReconcileBackendPools`).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    managed_pool::ManagedPool,
    member_resource::{PoolMemberResource, key_of_entry},
};
use crate::providers::azure::{
    config::LoadBalancerSku,
    model::{Machine, MachineKind, ResourceId},
    planner::load_balancer::{
        desired::pool_members::node_ip_configuration::{self, PoolMembershipPatch, is_active},
        settings::LoadBalancerSettings,
        spec::IpFamily,
    },
};

/// Properties of a Node's machine that decide its membership in pools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolMember {
    /// Name of the Node that owns the machine.
    pub node: String,
    /// Resource whose document lists the pools of the machine.
    pub resource: PoolMemberResource,
    /// Id of its uniform or flexible scale set, if it has one.
    pub scale_set: Option<ResourceId>,
    /// Name of its scale set or availability set; empty without set.
    pub set: String,
    /// Whether its scale set, if any, is a flexible one.
    pub is_flex: bool,
    /// Presence of an IPv6 address; `None` if it is unknown.
    pub has_ipv6: Option<bool>,
    /// Whether it runs, so that it can be written. `true` if that is unknown.
    pub is_active: bool,
}

impl PoolMember {
    /// Returns the member for a machine; `None` if the machine has no network interface.
    pub fn of(node: &str, machine: &Machine) -> Option<Self> {
        let (scale_set, set, is_flex) = match &machine.kind {
            MachineKind::ScaleSetInstance { scale_set, .. } => (Some(scale_set.clone()), scale_set.name(), false),
            MachineKind::FlexInstance { scale_set } => (Some(scale_set.clone()), scale_set.name(), true),
            MachineKind::AvailabilitySet { set } => (None, set.name(), false),
            MachineKind::Standalone => (None, "", false),
        };
        let configurations = || machine.interfaces.iter().flat_map(|interface| &interface.ip_configurations);
        Some(Self {
            node: node.to_owned(),
            resource: PoolMemberResource::of(machine)?,
            set: set.to_owned(),
            scale_set,
            is_flex,
            has_ipv6: configurations().next().map(|_| configurations().any(|configuration| configuration.ipv6)),
            is_active: is_active(machine),
        })
    }

    /// Returns the member for an instance of a uniform scale set of which only the id is known; `None` for other ids.
    pub fn of_instance(node: &str, id: &ResourceId) -> Option<Self> {
        let place = PoolMemberResource::of_instance(id)?;
        let scale_set = place.scale_set();
        Some(Self {
            node: node.to_owned(),
            set: scale_set.as_ref().map(|set| set.name().to_owned()).unwrap_or_default(),
            scale_set,
            resource: place,
            is_flex: false,
            has_ipv6: None,
            is_active: true,
        })
    }

    /// Returns `true` if the machine may be in this pool.
    fn fits(&self, target: &ManagedPool, settings: &LoadBalancerSettings) -> bool {
        let flex_on_basic = self.is_flex && settings.sku == LoadBalancerSku::Basic;
        let has_family = target.family == IpFamily::V4 || self.has_ipv6 != Some(false);
        !flex_on_basic && has_family && target.takes(&self.set)
    }

    /// Returns `true` if the machine is missing in a pool that it may be in.
    pub fn lacks(&self, targets: &[ManagedPool], settings: &LoadBalancerSettings) -> bool {
        let key = self.resource.key();
        targets.iter().any(|target| self.fits(target, settings) && !target.members.contains(&key))
    }
}

/// Change of the pools that one document lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolMemberUpdate {
    pub resource: PoolMemberResource,
    /// Name of the Node that owns the machine; empty if no such Node is known.
    pub node: String,
    /// Pools to join and to leave.
    pub patch: PoolMembershipPatch,
    /// Reason for leaving pools, if the machine leaves any.
    pub leave_reason: LeaveReason,
}

/// Reason why a machine leaves pools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaveReason {
    /// Node that does not belong into the pools.
    NotInPool,
    /// No Node claims the machine, so no reconciliation waits for the change.
    Orphan,
    /// Load balancers with these names are deleted.
    LoadBalancersGo(Vec<String>),
    /// Pools list addresses instead.
    ByAddress,
}

impl fmt::Display for LeaveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInPool => f.write_str("the Node does not belong into it"),
            Self::Orphan => f.write_str("no Node claims it"),
            Self::LoadBalancersGo(names) => match &names[..] {
                [name] => write!(f, "load balancer {name} goes"),
                names => write!(f, "load balancers {} go", names.join(", ")),
            },
            Self::ByAddress => f.write_str("the pool lists addresses from now on"),
        }
    }
}

/// Required changes by key of the member resource.
pub type PoolMemberUpdates = BTreeMap<String, PoolMemberUpdate>;

/// Returns a patch without pools to join or to leave.
pub fn empty_patch(settings: &LoadBalancerSettings) -> PoolMembershipPatch {
    PoolMembershipPatch { is_standard: settings.sku == LoadBalancerSku::Standard, ..PoolMembershipPatch::default() }
}

/// Returns the updates for machines that are missing in pools they belong into.
pub fn joins(targets: &[ManagedPool], members: &[PoolMember], settings: &LoadBalancerSettings) -> PoolMemberUpdates {
    let mut tasks = PoolMemberUpdates::new();
    for member in members.iter().filter(|member| member.is_active) {
        let key = member.resource.key();
        let missing = targets.iter().filter(|target| member.fits(target, settings) && !target.members.contains(&key));
        let join: Vec<ResourceId> = missing.map(|target| target.id.clone()).collect();
        if !join.is_empty() {
            let patch = PoolMembershipPatch { join, ..empty_patch(settings) };
            let (resource, node) = (member.resource.clone(), member.node.clone());
            tasks.insert(key, PoolMemberUpdate { resource, node, patch, leave_reason: LeaveReason::NotInPool });
        }
    }
    tasks
}

/// Returns the pools that the models of scale sets must list, so that new instances begin in these pools. Only scale sets of
/// `group` are written.
pub fn models(
    targets: &[ManagedPool],
    members: &[PoolMember],
    settings: &LoadBalancerSettings,
    group: &ResourceId,
) -> BTreeMap<ResourceId, PoolMembershipPatch> {
    let is_own = |set: &ResourceId| {
        set.resource_group().map(str::to_ascii_lowercase) == group.resource_group().map(str::to_ascii_lowercase)
    };
    let mut models = BTreeMap::new();
    for member in members {
        let Some(set) = member.scale_set.clone().filter(is_own) else { continue };
        if models.contains_key(&set) || (member.is_flex && settings.sku == LoadBalancerSku::Basic) {
            continue;
        }
        let taken = targets.iter().filter(|target| target.takes(&member.set));
        let join: Vec<ResourceId> = taken.map(|target| target.id.clone()).collect();
        models.insert(set, PoolMembershipPatch { join, ..empty_patch(settings) });
    }
    models.retain(|_, claim| !claim.join.is_empty());
    models
}

/// Adds the member resources that must leave pools to `tasks`. The map has the names of their Nodes by key of the resource.
pub fn leaves(
    targets: &[ManagedPool],
    standings: &BTreeMap<String, String>,
    settings: &LoadBalancerSettings,
    tasks: &mut PoolMemberUpdates,
) {
    for target in targets.iter().filter(|target| standings.keys().any(|key| target.members.contains(key))) {
        let key = |entry: &ResourceId| key_of_entry(entry.as_str());
        let is_excluded = |entry: &ResourceId| key(entry).is_some_and(|key| standings.contains_key(&key));
        let leaving = node_ip_configuration::entries_to_remove(&target.document, is_excluded);
        let keys = leaving.iter().filter_map(key).collect();
        leave(target, keys, standings, (&LeaveReason::NotInPool, settings), tasks);
    }
}

fn leave(
    target: &ManagedPool,
    keys: BTreeSet<String>,
    standings: &BTreeMap<String, String>,
    (why, settings): (&LeaveReason, &LoadBalancerSettings),
    tasks: &mut PoolMemberUpdates,
) {
    for key in keys {
        let Some(place) = PoolMemberResource::of_key(&key) else { continue };
        let node = standings.get(&key).cloned().unwrap_or_default();
        let task = tasks.entry(key).or_insert_with(|| PoolMemberUpdate {
            resource: place,
            node,
            patch: empty_patch(settings),
            leave_reason: why.clone(),
        });
        task.patch.leave.push(target.id.clone());
    }
}

/// Sets the reason [`LeaveReason::Orphan`] for member resources that no Node claims.
pub fn mark_orphans(tasks: &mut PoolMemberUpdates, is_orphan: impl Fn(&str) -> bool) {
    let orphans = tasks.iter_mut().filter(|(key, _)| is_orphan(key));
    orphans.for_each(|(_, task)| task.leave_reason = LeaveReason::Orphan);
}

/// Returns the updates that remove all members from these pools.
pub fn evict(targets: &[ManagedPool], why: &LeaveReason, settings: &LoadBalancerSettings) -> PoolMemberUpdates {
    let mut tasks = PoolMemberUpdates::new();
    for target in targets {
        leave(target, target.members.clone(), &BTreeMap::new(), (why, settings), &mut tasks);
    }
    tasks
}

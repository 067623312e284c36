//! Decides which documents have to be touched so that nodes are in the pools they belong into. Pure.
//!
//! In: the pools ([`ManagedPool`]), the machines of nodes ([`PoolMember`]). Out: what each document shall list and shall
//! not ([`PoolMemberUpdate`]s), and what the models of scale sets shall. All pools of all load balancers in one write of a
//! document. Upstream: `pkg/provider/azure_vmss.go` (`EnsureHostsInPool`), `azure_loadbalancer_backendpool.go`
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

/// A Node's machine, as far as pools are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolMember {
    /// Name of the Node.
    pub node: String,
    /// Where it is written which pools it is in.
    pub resource: PoolMemberResource,
    /// Its scale set.
    pub scale_set: Option<ResourceId>,
    /// Name of its scale set or availability set; empty when it is in none.
    pub set: String,
    /// Whether its scale set, if any, is a flexible one.
    pub is_flex: bool,
    /// Whether it has an IPv6 address, as far as is known.
    pub has_ipv6: Option<bool>,
    /// Whether it runs, as far as is known, so that it can be written.
    pub is_active: bool,
}

impl PoolMember {
    /// The seat of a machine; `None` when it has no network interface.
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

    /// The seat of an instance of a uniform scale set of which only the id is known; `None` for other ids.
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

    /// Whether it may be in this pool.
    fn fits(&self, target: &ManagedPool, settings: &LoadBalancerSettings) -> bool {
        let flex_on_basic = self.is_flex && settings.sku == LoadBalancerSku::Basic;
        let has_family = target.family == IpFamily::V4 || self.has_ipv6 != Some(false);
        !flex_on_basic && has_family && target.takes(&self.set)
    }

    /// Whether some pool that it may be in does not have it.
    pub fn lacks(&self, targets: &[ManagedPool], settings: &LoadBalancerSettings) -> bool {
        let key = self.resource.key();
        targets.iter().any(|target| self.fits(target, settings) && !target.members.contains(&key))
    }
}

/// What one document shall list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolMemberUpdate {
    /// The document.
    pub resource: PoolMemberResource,
    /// Whose machine it is; empty when no Node is known.
    pub node: String,
    /// What to list and what not.
    pub patch: PoolMembershipPatch,
    /// Why it leaves, if it does.
    pub leave_reason: LeaveReason,
}

/// Why a machine leaves pools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaveReason {
    /// Its Node does not belong into them.
    NotInPool,
    /// No Node claims it: nobody waits for it.
    Orphan,
    /// These load balancers are deleted.
    LoadBalancersGo(Vec<String>),
    /// The pools list addresses instead.
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

/// What has to be touched, by key of the place.
pub type PoolMemberUpdates = BTreeMap<String, PoolMemberUpdate>;

/// A wish for nothing yet.
pub fn empty_patch(settings: &LoadBalancerSettings) -> PoolMembershipPatch {
    PoolMembershipPatch { is_standard: settings.sku == LoadBalancerSku::Standard, ..PoolMembershipPatch::default() }
}

/// The documents of machines that belong into pools and are not in all of them.
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

/// What the models of scale sets shall list, so that new instances begin in the pools. `group`: only its scale sets are written.
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

/// Adds to `tasks` the places that have to leave pools. `standings`: of those that may not stay, by key; `node` names theirs.
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

/// Says of those that no Node claims that this is why they leave.
pub fn mark_orphans(tasks: &mut PoolMemberUpdates, is_orphan: impl Fn(&str) -> bool) {
    let orphans = tasks.iter_mut().filter(|(key, _)| is_orphan(key));
    orphans.for_each(|(_, task)| task.leave_reason = LeaveReason::Orphan);
}

/// All places that list one of these pools, to list them no more.
pub fn evict(targets: &[ManagedPool], why: &LeaveReason, settings: &LoadBalancerSettings) -> PoolMemberUpdates {
    let mut tasks = PoolMemberUpdates::new();
    for target in targets {
        leave(target, target.members.clone(), &BTreeMap::new(), (why, settings), &mut tasks);
    }
    tasks
}

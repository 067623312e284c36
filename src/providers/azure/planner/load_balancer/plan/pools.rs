//! Who joins and leaves back-end pools, once load balancers are as planned. Pure.
//!
//! In: load balancers, Nodes, what was read of their machines, and what is remembered of earlier writes. Out: a [`PoolPlan`], which
//! prints and is carried out by `load_balancer::backend_pools`. A plan that [`PoolNeeds`] something is made again when that was read.

mod by_address;
mod by_interface;
mod changes;
mod memory;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

pub use self::{
    by_address::AddressPools,
    changes::{PoolChange, PoolChangeKind},
    memory::{MODEL_WAIT, PausedWrite, PoolMemory, WriteInFlight},
};
use super::{
    super::{
        desired::{
            load_balancers::{LoadBalancerChange, LoadBalancerWrite},
            pool_members::node_ip_configuration::{self, PoolMembershipPatch},
            pools_of,
        },
        observed::ObservedNetwork,
        pools::{
            local_pools::LocalPools,
            located::MachineAnswer,
            managed_pool::{self, ManagedPool, managed_pools, without_addresses},
            member_addresses::PoolMemberAddresses,
            member_updates::{self, LeaveReason, PoolMemberUpdates},
            orphans::OrphanedPoolMembers,
            stand_ins::ReadyEntries,
        },
        settings::LoadBalancerSettings,
    },
    network::NetworkPlan,
    waiting::WaitingFor,
};
use crate::providers::azure::{
    config::{BackendPoolType, VmType},
    model::{
        ArmError, ArmResult, LookupError, Machine, MachineQuery, ResourceId,
        compute::VirtualMachineScaleSet,
        network::{ArmLoadBalancer, BackendAddressPool},
        spelling,
    },
};

/// Models of scale sets by id.
pub type ScaleSetModels = BTreeMap<ResourceId, Arc<VirtualMachineScaleSet>>;

/// What was read for a plan, by value.
#[derive(Debug, Default)]
pub struct PoolReads {
    /// The answer about each Node's machine, by the Node's name.
    pub machines: BTreeMap<String, MachineAnswer>,
    /// Machines with one of [`PoolNeeds::interfaces`].
    pub machines_at: Option<Vec<Arc<Machine>>>,
    /// The scale sets of the cluster's resource group.
    pub models: Option<ArmResult<ScaleSetModels>>,
    /// Whether Nodes may exist that the plan does not have, because a list of them is pending. Members without a Node stay meanwhile.
    pub may_lack_nodes: bool,
    /// Whether some Node has addresses that its machine lacks, which may have gained them since it was read.
    pub has_corrected_nodes: bool,
}

/// What has to be read before a plan is complete.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolNeeds {
    /// Machines, by the names of their Nodes.
    pub machines: BTreeMap<String, MachineQuery>,
    /// Keys of network interfaces whose machines are wanted.
    pub interfaces: BTreeSet<String>,
    /// Whether the models of scale sets are wanted.
    pub models: bool,
}

impl PoolNeeds {
    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What members of pools are planned on.
pub struct PoolInput<'a> {
    /// The Nodes that shall be behind load balancers; `None`: the service controller has not listed them yet.
    pub hosts: Option<&'a [Arc<Node>]>,
    /// Every Node of the cluster.
    pub all_nodes: &'a [Arc<Node>],
    pub reads: &'a PoolReads,
    pub memory: &'a PoolMemory,
    /// Pools that Services have for themselves.
    pub local: &'a LocalPools,
    /// Pools that were made and not filled yet: they are filled even where `preConfiguredBackendPoolLoadBalancerTypes` leaves them to others.
    pub unfilled: &'a [ResourceId],
    /// Load balancers that are about to be deleted: nothing joins their pools.
    pub deleting: &'a [ResourceId],
    /// The group whose scale sets get new models.
    pub group: &'a ResourceId,
    /// `enableMigrateToIPBasedBackendPoolAPI`.
    pub migrate_api: bool,
    pub now: Instant,
}

/// What has to become of the members of pools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolPlan {
    /// Documents to write, in this order; neighbors of one kind are written side by side.
    pub changes: Vec<PoolChange>,
    /// Changes that wait for a write in flight.
    pub blocked: Vec<PoolChange>,
    /// Changes that failed recently and are paused, with the reason.
    pub failing: Vec<(PoolChange, ArmError)>,
    /// Pools without a member.
    pub empty: BTreeSet<ResourceId>,
    /// Pools that members leave before addresses come: they are read and planned again in between.
    pub rechecked: BTreeSet<ResourceId>,
    /// What has to be read before the plan is complete.
    pub needs: PoolNeeds,
    /// Nodes whose machines are unknown, and Nodes without an entry.
    pub waiting: BTreeSet<WaitingFor>,
    /// Nodes that should join and whose machines cannot be told, with the reason.
    pub unlocated: Vec<(String, LookupError)>,
    /// Why the models of scale sets are unknown.
    pub unread_models: Option<ArmError>,
    /// When to plan again although no Node changes.
    pub resync_after: Option<Duration>,
    /// To be remembered once the plan is carried out.
    pub orphans: OrphanedPoolMembers,
    /// The same.
    pub ready_entries: ReadyEntries,
    /// How pools get addresses; `None`: they list none.
    addresses: Option<AddressPools>,
}

impl PoolPlan {
    /// What has to become of one of the pools that is written, when it is as `document` says; `None`: nothing.
    pub fn of_pool(
        &self,
        id: &ResourceId,
        document: &BackendAddressPool,
        settings: &LoadBalancerSettings,
    ) -> Option<PoolChange> {
        match &self.addresses {
            Some(addresses) => addresses.of_pool(id, document, settings),
            None => Some(PoolChange::of_pool(id.clone(), document, without_addresses(document)?)),
        }
    }

    /// How many interfaces list a pool that gets addresses.
    pub fn members_of(&self, pool: &ResourceId) -> usize {
        self.addresses.as_ref().map_or(0, |addresses| addresses.members_of(pool))
    }
}

/// A machine that is off, not ready to be written, or older than its Node is looked at again after this.
pub const POWERED_OFF_RESYNC: Duration = Duration::from_secs(300);

/// Members stay for this long while the list of Nodes may be incomplete, and are then planned again.
const INCOMPLETE_RESYNC: Duration = Duration::from_secs(60);

/// Pools that a load balancer has once it is written, and had not before.
pub fn new_pools(observed: &ObservedNetwork, change: &LoadBalancerChange) -> Vec<ResourceId> {
    let LoadBalancerWrite::Put(after) = &change.write else { return Vec::new() };
    let before = observed.load_balancer(&change.id).map(pool_names).unwrap_or_default();
    let new = pool_names(after).into_iter().filter(|name| !before.iter().any(|other| spelling::same_name(other, name)));
    new.map(|name| change.id.child("backendAddressPools", name)).collect()
}

fn pool_names(balancer: &ArmLoadBalancer) -> Vec<&str> {
    pools_of(balancer).iter().filter_map(|pool| pool.name.as_deref()).collect()
}

/// Where the machines of Nodes are in pools, as far as they were read, and what is to be read.
pub fn member_addresses(
    nodes: &[Arc<Node>],
    reads: &PoolReads,
    settings: &LoadBalancerSettings,
) -> (PoolMemberAddresses, PoolNeeds) {
    let (mut addresses, unknown) = PoolMemberAddresses::of_nodes(nodes, settings);
    let mut needs = PoolNeeds::default();
    for (query, node) in unknown {
        let answer = reads.machines.get(&query.node_name);
        addresses.add(node, answer.and_then(|answer| answer.as_deref().ok()), settings);
        if answer.is_none() {
            needs.machines.insert(query.node_name.clone(), query);
        }
    }
    (addresses, needs)
}

/// Plans for load balancers that are about to change. `observed`: before they do; `written`: after.
pub(super) fn plan_pools(
    observed: &ObservedNetwork,
    written: &ObservedNetwork,
    network: &NetworkPlan,
    input: &PoolInput<'_>,
    settings: &LoadBalancerSettings,
) -> PoolPlan {
    let mut planner = PoolPlanner::new(input, settings);
    let changes = || network.load_balancers.changes.iter();
    let deleted = changes().filter(|change| change.write == LoadBalancerWrite::Delete);
    let deleted: Vec<&ArmLoadBalancer> = deleted.filter_map(|change| observed.load_balancer(&change.id)).collect();
    planner.evict_deleted(&deleted);
    let new = changes().flat_map(|change| new_pools(observed, change));
    let unfilled: Vec<ResourceId> = new.chain(input.unfilled.iter().cloned()).collect();
    planner.follow_nodes(written, &unfilled);
    planner.finish()
}

/// Plans for load balancers that stay as they are.
pub fn plan_members(observed: &ObservedNetwork, input: &PoolInput<'_>, settings: &LoadBalancerSettings) -> PoolPlan {
    let mut planner = PoolPlanner::new(input, settings);
    planner.follow_nodes(observed, input.unfilled);
    planner.finish()
}

/// Everything leaves the pools of load balancers that are about to be deleted: models first, so that no new instance comes.
pub fn plan_eviction(
    load_balancers: &[&ArmLoadBalancer],
    input: &PoolInput<'_>,
    settings: &LoadBalancerSettings,
) -> PoolPlan {
    let mut planner = PoolPlanner::new(input, settings);
    planner.evict_deleted(load_balancers);
    planner.finish()
}

/// A plan in the making.
struct PoolPlanner<'a> {
    input: &'a PoolInput<'a>,
    settings: &'a LoadBalancerSettings,
    plan: PoolPlan,
}

impl<'a> PoolPlanner<'a> {
    fn new(input: &'a PoolInput<'a>, settings: &'a LoadBalancerSettings) -> Self {
        let PoolMemory { orphans, ready_entries, .. } = input.memory;
        let plan = PoolPlan { orphans: orphans.clone(), ready_entries: ready_entries.clone(), ..PoolPlan::default() };
        Self { input, settings, plan }
    }

    fn evict_deleted(&mut self, load_balancers: &[&ArmLoadBalancer]) {
        if load_balancers.is_empty() {
            return;
        }
        let pools: Vec<ManagedPool> = load_balancers.iter().flat_map(|document| managed_pool::all_of(document)).collect();
        let names = load_balancers.iter().filter_map(|document| document.name.clone()).collect();
        self.evict(&pools, &LeaveReason::LoadBalancersGo(names));
        // Who is still joining them leaves them afterwards.
        let in_flight = self.input.memory.in_flight.values().map(|write| write.change.as_ref());
        self.plan.blocked.extend(in_flight.filter(|change| pools.iter().any(|pool| change.joins(&pool.id))).cloned());
    }

    fn follow_nodes(&mut self, observed: &ObservedNetwork, unfilled: &[ResourceId]) {
        let Some(hosts) = self.input.hosts else { return };
        let mut pools = managed_pools(observed, self.settings, self.input.local, unfilled);
        pools.retain(|pool| !self.input.deleting.contains(&pool.load_balancer));
        if pools.is_empty() {
            return;
        }
        let empty = pools.iter().filter(|pool| pool.members.is_empty() && !pool.has_addresses());
        self.plan.empty = empty.map(|pool| pool.id.clone()).collect();
        match self.settings.pool_type {
            BackendPoolType::NodeIp => self.by_address(observed, pools, hosts),
            BackendPoolType::NodeIpConfiguration | BackendPoolType::PodIp => self.by_interface(&pools, hosts),
        }
        let corrected = self.input.reads.has_corrected_nodes.then_some(POWERED_OFF_RESYNC);
        self.plan.resync_after = corrected.into_iter().chain(self.plan.resync_after).min();
    }

    /// Everything that lists one of these pools lists it no more.
    fn evict(&mut self, pools: &[ManagedPool], why: &LeaveReason) {
        let updates = member_updates::evict(pools, why, self.settings);
        let sets: BTreeSet<ResourceId> = updates.values().filter_map(|update| update.resource.scale_set()).collect();
        if !pools.is_empty() && (self.settings.vm_type != VmType::Standard || !sets.is_empty()) {
            let leave = pools.iter().map(|pool| pool.id.clone()).collect();
            let patch = PoolMembershipPatch { leave, ..member_updates::empty_patch(self.settings) };
            let listed = self.models().into_iter().flat_map(BTreeMap::keys).cloned();
            let patches = listed.chain(sets).map(|set| (set, patch.clone())).collect();
            self.push_models(patches, why);
        }
        self.push_members(updates);
    }

    /// The models of scale sets; `None`: they are not read yet, or cannot be.
    fn models(&mut self) -> Option<&'a ScaleSetModels> {
        match &self.input.reads.models {
            Some(Ok(models)) => return Some(models),
            Some(Err(error)) => {
                self.plan.waiting.insert(WaitingFor::Models(error.to_string()));
                self.plan.unread_models = Some(error.clone());
            }
            None => self.plan.needs.models = true,
        }
        None
    }

    /// Models that have to change. A set that is not listed is new.
    fn push_models(&mut self, patches: BTreeMap<ResourceId, PoolMembershipPatch>, why: &LeaveReason) {
        if patches.is_empty() {
            return;
        }
        let Some(models) = self.models() else { return };
        for (set, mut patch) in patches {
            patch.last_write_failed = self.input.memory.failed_models.contains(&set);
            let differs = || models.get(&set).is_none_or(|model| node_ip_configuration::model(model, &patch).is_ok());
            if patch.last_write_failed || differs() {
                self.plan.changes.push(PoolChange::of_model(set, patch, why));
            }
        }
    }

    /// Machines that have to change, and those whose last write failed and that list what they shall by now.
    fn push_members(&mut self, mut updates: PoolMemberUpdates) {
        for (key, update) in &self.input.memory.failed_members {
            let is_planned = |change: &PoolChange| change.id.same_as(update.resource.id().as_str());
            if updates.contains_key(key) || !self.plan.changes.iter().any(is_planned) {
                updates.entry(key.clone()).or_insert_with(|| update.clone()).patch.last_write_failed = true;
            }
        }
        self.plan.changes.extend(updates.into_values().map(PoolChange::of_member));
    }

    /// Takes out what is paused, and holds back what has to wait for writes in flight.
    fn finish(mut self) -> PoolPlan {
        let paused = &self.input.memory.paused;
        let mut unmigrated = BTreeSet::new();
        for change in std::mem::take(&mut self.plan.changes) {
            let Some(change) = change.without(&unmigrated) else { continue };
            let leaves = |other: &PoolChange| matches!(change.kind, PoolChangeKind::Pool(_)) && other.leaves(&change.id);
            let paused = paused.get(&change.id).filter(|paused| paused.until > self.input.now);
            let paused = paused.filter(|paused| paused.kind.is_same(&change.kind));
            let is_blocked = self.input.memory.holds_back(&change, self.input.now) || self.plan.blocked.iter().any(leaves);
            if let (true, PoolChangeKind::Migration(names)) = (is_blocked || paused.is_some(), &change.kind) {
                unmigrated.extend(names.iter().map(|name| change.id.child("backendAddressPools", name)));
            }
            match paused {
                Some(PausedWrite { error: Some(error), .. }) => self.fail(change, error.clone()),
                // No Service waits for it.
                Some(_) if change.is_of_orphan() => {
                    self.plan.resync_after = self.plan.resync_after.into_iter().chain([POWERED_OFF_RESYNC]).min();
                }
                Some(_) => {}
                None if is_blocked => self.plan.blocked.push(change),
                None => self.plan.changes.push(change),
            }
        }
        self.plan
    }

    fn fail(&mut self, change: PoolChange, error: ArmError) {
        self.plan.waiting.insert(match &change.kind {
            PoolChangeKind::Model(_) => WaitingFor::Models(error.to_string()),
            _ => WaitingFor::Machine(change.name().to_owned(), error.to_string()),
        });
        self.plan.failing.push((change, error));
    }

    /// What was read about a Node's machine.
    fn machine(&mut self, query: &MachineQuery) -> Option<&'a MachineAnswer> {
        let answer = self.input.reads.machines.get(&query.node_name);
        if answer.is_none() {
            self.plan.needs.machines.insert(query.node_name.clone(), query.clone());
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::providers::azure::planner::load_balancer::desired::samples;

    #[test]
    fn pools_follow_corrected_nodes_without_an_event() {
        let document = json!({
            "id": samples::network("loadBalancers/kubernetes"),
            "name": "kubernetes",
            "sku": {"name": "Standard"},
            "properties": {"backendAddressPools": [{"name": "kubernetes"}]},
        });
        let there = samples::observed(vec![samples::load_balancer(document)]);
        for pool_type in [BackendPoolType::NodeIp, BackendPoolType::NodeIpConfiguration] {
            let settings = LoadBalancerSettings { pool_type, ..samples::settings() };
            for (has_corrected_nodes, expected) in [(false, None), (true, Some(POWERED_OFF_RESYNC))] {
                let reads = PoolReads { has_corrected_nodes, ..PoolReads::default() };
                let input = PoolInput {
                    hosts: Some(&[]),
                    all_nodes: &[],
                    reads: &reads,
                    memory: &PoolMemory::default(),
                    local: &LocalPools::default(),
                    unfilled: &[],
                    deleting: &[],
                    group: &settings.group,
                    migrate_api: false,
                    now: Instant::now(),
                };
                assert_eq!(plan_members(&there, &input, &settings).resync_after, expected, "{pool_type:?}");
            }
        }
    }
}

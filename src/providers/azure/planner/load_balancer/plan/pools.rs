//! Changes of the members of backend pools, after load balancers are written as planned. Pure.
//!
//! In: load balancers, Nodes, the reads of their machines, and the memory of earlier writes. Out: a [`PoolPlan`], which prints and is
//! carried out by `load_balancer::backend_pools`. A plan with [`PoolNeeds`] is made again after these were read.

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

/// Models of scale sets, by resource id.
pub type ScaleSetModels = BTreeMap<ResourceId, Arc<VirtualMachineScaleSet>>;

/// Results of the reads for a plan, by value.
#[derive(Debug, Default)]
pub struct PoolReads {
    /// Result of the lookup of each Node's machine, by the name of the Node. Nodes without a lookup are absent.
    pub machines: BTreeMap<String, MachineAnswer>,
    /// Machines with one of [`PoolNeeds::interfaces`]; `None` if they were not read.
    pub machines_at: Option<Vec<Arc<Machine>>>,
    /// Models of the scale sets in the cluster's resource group; `None` if they were not read.
    pub models: Option<ArmResult<ScaleSetModels>>,
    /// Whether the plan may lack Nodes because a list of Nodes is pending. Members without a Node remain until the list is complete.
    pub may_lack_nodes: bool,
    /// Whether a Node has addresses that its machine lacks. The machine may have gained them since it was read.
    pub has_corrected_nodes: bool,
}

/// Reads that are needed before a plan is complete.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolNeeds {
    /// Lookups of machines, by the names of their Nodes.
    pub machines: BTreeMap<String, MachineQuery>,
    /// Keys of network interfaces whose machines are needed.
    pub interfaces: BTreeSet<String>,
    /// Whether the models of scale sets are needed.
    pub models: bool,
}

impl PoolNeeds {
    /// Returns `true` if the plan needs no more reads.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Facts that the members of pools are planned on.
pub struct PoolInput<'a> {
    /// Nodes that must be behind load balancers; `None` if the service controller has not listed them yet.
    pub hosts: Option<&'a [Arc<Node>]>,
    /// Every Node of the cluster, including Nodes that are excluded from load balancers.
    pub all_nodes: &'a [Arc<Node>],
    pub reads: &'a PoolReads,
    pub memory: &'a PoolMemory,
    /// Pools that belong to one Service each.
    pub local: &'a LocalPools,
    /// Created pools without members. They are filled even if `preConfiguredBackendPoolLoadBalancerTypes` leaves their members to another
    /// component.
    pub unfilled: &'a [ResourceId],
    /// Load balancers that are about to be deleted. No member joins their pools.
    pub deleting: &'a [ResourceId],
    /// Resource group whose scale sets get new models.
    pub group: &'a ResourceId,
    /// `enableMigrateToIPBasedBackendPoolAPI`.
    pub migrate_api: bool,
    pub now: Instant,
}

/// Changes of the members of pools, with the blocked and the failing ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolPlan {
    /// Documents to write, in this order. Adjacent changes of one kind are written concurrently.
    pub changes: Vec<PoolChange>,
    /// Changes that wait for a write in flight.
    pub blocked: Vec<PoolChange>,
    /// Changes that failed recently and are paused, with the error.
    pub failing: Vec<(PoolChange, ArmError)>,
    /// Pools without a member.
    pub empty: BTreeSet<ResourceId>,
    /// Pools that interfaces leave before addresses join. These pools are read and planned again in between.
    pub rechecked: BTreeSet<ResourceId>,
    /// Reads that are needed before the plan is complete.
    pub needs: PoolNeeds,
    /// Nodes whose machines are unknown, Nodes without an entry, and models that cannot be read.
    pub waiting: BTreeSet<WaitingFor>,
    /// Nodes that should join and whose machines cannot be located, with the reason.
    pub unlocated: Vec<(String, LookupError)>,
    /// Error of the last read of the models of scale sets.
    pub unread_models: Option<ArmError>,
    /// Delay until the next plan if no Node changes; `None` if no such plan is needed.
    pub resync_after: Option<Duration>,
    /// Orphaned members to remember once the plan is carried out.
    pub orphans: OrphanedPoolMembers,
    /// Entries with ready Nodes, to remember once the plan is carried out.
    pub ready_entries: ReadyEntries,
    /// Pools and the Nodes whose addresses they list; `None` if no pool lists addresses.
    addresses: Option<AddressPools>,
}

impl PoolPlan {
    /// Returns the change of a pool of this plan whose current content is `document`; `None` if no change is needed.
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

    /// Returns the number of interfaces that list a pool which is about to list addresses.
    pub fn members_of(&self, pool: &ResourceId) -> usize {
        self.addresses.as_ref().map_or(0, |addresses| addresses.members_of(pool))
    }
}

/// Delay until the next check of a machine that is powered off, not ready to be written, or read before its Node got new addresses.
pub const POWERED_OFF_RESYNC: Duration = Duration::from_secs(300);

/// Delay until the next plan while the list of Nodes may be incomplete. Members without a Node remain until then.
const INCOMPLETE_RESYNC: Duration = Duration::from_secs(60);

/// Returns the pools that a load balancer has after the write and did not have before.
pub fn new_pools(observed: &ObservedNetwork, change: &LoadBalancerChange) -> Vec<ResourceId> {
    let LoadBalancerWrite::Put(after) = &change.write else { return Vec::new() };
    let before = observed.load_balancer(&change.id).map(pool_names).unwrap_or_default();
    let new = pool_names(after).into_iter().filter(|name| !before.iter().any(|other| spelling::same_name(other, name)));
    new.map(|name| change.id.child("backendAddressPools", name)).collect()
}

fn pool_names(balancer: &ArmLoadBalancer) -> Vec<&str> {
    pools_of(balancer).iter().filter_map(|pool| pool.name.as_deref()).collect()
}

/// Returns the pool membership of the Nodes' machines, as far as these were read, and the missing reads.
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

/// Plans the members of pools for load balancers that are about to change. `observed`: documents before the change; `written`: documents
/// after the change.
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

/// Plans the members of pools for load balancers that do not change.
pub fn plan_members(observed: &ObservedNetwork, input: &PoolInput<'_>, settings: &LoadBalancerSettings) -> PoolPlan {
    let mut planner = PoolPlanner::new(input, settings);
    planner.follow_nodes(observed, input.unfilled);
    planner.finish()
}

/// Plans that all members leave the pools of load balancers that are about to be deleted.
///
/// Models of scale sets change first, so that no new instance joins.
pub fn plan_eviction(
    load_balancers: &[&ArmLoadBalancer],
    input: &PoolInput<'_>,
    settings: &LoadBalancerSettings,
) -> PoolPlan {
    let mut planner = PoolPlanner::new(input, settings);
    planner.evict_deleted(load_balancers);
    planner.finish()
}

/// Builder of a [`PoolPlan`], which starts with the remembered orphans and ready entries.
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
        // A machine whose write to join is in flight leaves after that write.
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

    /// Adds the changes after which no model, instance or interface lists one of these pools.
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

    /// Returns the models of scale sets. For `None`, the plan records that they must be read, or the error of their read.
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

    /// Adds the models that must change. A scale set that is not listed is new, so its model is written.
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

    /// Adds the machines that must change, and the machines whose last write failed although they list the desired pools.
    fn push_members(&mut self, mut updates: PoolMemberUpdates) {
        for (key, update) in &self.input.memory.failed_members {
            let is_planned = |change: &PoolChange| change.id.same_as(update.resource.id().as_str());
            if updates.contains_key(key) || !self.plan.changes.iter().any(is_planned) {
                updates.entry(key.clone()).or_insert_with(|| update.clone()).patch.last_write_failed = true;
            }
        }
        self.plan.changes.extend(updates.into_values().map(PoolChange::of_member));
    }

    /// Removes the paused changes, and blocks the changes that must wait for writes in flight.
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
                // No Service waits for the removal of an orphan.
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

    /// Returns the lookup result for a Node's machine. If there is none yet, the plan records that the machine must be read.
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

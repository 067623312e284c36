//! Who is in which back-end pool.
//!
//! In: what there is ([`ObservedNetwork`]), the Nodes. Out: documents written so that each node that belongs into the pools
//! is in them, and no other: models of scale sets, instances, network interfaces, pools. What to write is decided in `plan`
//! and in [`crate::providers::azure::planner::load_balancer::desired::pool_members`], both pure; what is written is told in
//! [`PoolSyncSummary`].
//!
//! ```text
//! ObservedNetwork ─► managed_pool ─┐
//! Nodes ─► nodes ──────────────────┼─► plan ─► model_writer ─► member_writer    pools that interfaces list
//! inventory ─► member_resource ────┘
//!                    managed_pool ─► by_address ─► PoolWriter                  pools that list addresses
//! ```
//! Whether a machine is in a pool is told by the pools in [`ObservedNetwork`], so that nothing is read while nothing has to change. Every
//! document is written by itself, once for all pools, and planned from what it is then: a process killed between any two requests leaves what the next one
//! completes.

mod by_address;
mod member_list;
mod member_writer;
mod model_writer;
mod outcome;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::providers::azure::planner::load_balancer::{
    desired::pool_members::{
        PoolNode,
        node_ip_configuration::{PoolEntryStatus, PoolMembershipPatch},
    },
    observed::ObservedNetwork,
    plan::waiting::NO_ENTRY,
    pools::{
        local_pools::LocalPools,
        located::{self, ExcludedMembers, vm_set},
        managed_pool::{self, ManagedPool},
        member_addresses::PoolMemberAddresses,
        member_updates::{self, LeaveReason, PoolMember},
        node_placement::place_nodes,
        nodes,
        orphans::{OrphanedPoolMembers, PoolMemberOwners, members_of_node_sets},
        stand_ins::ReadyEntries,
    },
    settings::LoadBalancerSettings,
};
use crate::providers::azure::{
    arm::{
        ArmClient, ArmResult, ResourceId, Urgency,
        compute::VirtualMachineScaleSet,
        network::{ArmLoadBalancer, BackendAddressPool},
    },
    config::{BackendPoolType, VmType},
    inventory::{Freshness, Inventory, LookupError},
    node,
};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use member_writer::{PoolMemberWriter, ScaleSetFacts};
use model_writer::ScaleSetModelWriter;
use outcome::PoolSyncOutcome;
pub use outcome::{PoolSyncError, PoolSyncFailure, PoolSyncSummary};
use tokio::time::Instant;
use tracing::{debug, warn};

/// Writes pools. Whoever implements it notes that their load balancers have changed.
#[async_trait]
pub trait PoolWriter: Send + Sync {
    /// Replaces the pool with this id, without a precondition. `false`: the pool has gone, and nothing was written.
    async fn put_pool(&self, pool: &ResourceId, document: &BackendAddressPool, urgency: Urgency) -> ArmResult<bool>;
    /// Has ARM turn interfaces into addresses in pools (by name) of one load balancer: `POST migrateToIpBased`.
    async fn migrate_to_ip_based(&self, load_balancer: &ResourceId, pools: &[String], urgency: Urgency) -> ArmResult<()>;
}

/// What one call of [`BackendPoolSyncer::sync`] is about.
#[derive(Clone, Copy)]
pub struct PoolSyncRequest<'a> {
    /// What there is.
    pub observed: &'a ObservedNetwork,
    /// The Nodes that the service controller gives: not being deleted, not excluded.
    pub nodes: &'a [Arc<Node>],
    /// Every Node of the cluster.
    pub all_nodes: &'a [Arc<Node>],
    /// Pools that Services have for themselves.
    pub local: &'a LocalPools,
    /// Pools that the caller has just created: they are filled even when `preConfiguredBackendPoolLoadBalancerTypes` leaves pools of
    /// this kind to others.
    pub created: &'a [ResourceId],
    /// Load balancers that are about to be deleted: nobody joins their pools any more.
    pub deleting: &'a [ResourceId],
    /// How urgent the writes are.
    pub urgency: Urgency,
}

/// Names of the scale sets and availability sets of the Nodes' machines, in lower case. A Node without a machine has none.
pub async fn vm_sets(inventory: &Inventory, nodes: &[Arc<Node>]) -> Vec<String> {
    let own = nodes.iter().filter(|node| !node::is_foreign(node));
    let wanted: Vec<_> = own.map(|node| nodes::machine_query(node)).collect();
    let found = inventory.look_up(&wanted, Freshness::Cached).await;
    let names: BTreeSet<String> =
        found.iter().flatten().filter_map(|machine| Some(vm_set(machine)?.name().to_lowercase())).collect();
    names.into_iter().collect()
}

/// Where the machines of these Nodes are in pools.
pub async fn member_addresses(
    inventory: &Inventory,
    nodes: &[Arc<Node>],
    settings: &LoadBalancerSettings,
) -> PoolMemberAddresses {
    let (mut reached, unknown) = PoolMemberAddresses::of_nodes(nodes, settings);
    let wanted: Vec<_> = unknown.iter().map(|(wanted, _)| wanted.clone()).collect();
    let found = inventory.look_up(&wanted, Freshness::Cached).await;
    for ((_, node), machine) in unknown.into_iter().zip(found) {
        reached.add(node, machine.ok().as_deref(), settings);
    }
    reached
}

/// What of the Nodes decides who is in the pools, as a number: who may join and who may stay. From pools of interfaces, those who do not
/// belong have to be taken out by name.
pub fn fingerprint(nodes: &[Arc<Node>], all_nodes: &[Arc<Node>], settings: &LoadBalancerSettings) -> u64 {
    let mut hasher = DefaultHasher::new();
    let belongs = |node: &&Arc<Node>| nodes::pool_node(node, settings).belongs(settings);
    nodes.iter().filter(belongs).for_each(|node| node::name(node).hash(&mut hasher));
    let by_address = settings.pool_type == BackendPoolType::NodeIp;
    for node in all_nodes.iter().filter(|node| !by_address || belongs(node)) {
        // Readiness moves no Node by itself: a Node that flaps causes no writes.
        let known = PoolNode { is_ready: false, ..nodes::pool_node(node, settings) };
        (known, node::provider_id(node)).hash(&mut hasher);
    }
    hasher.finish()
}

/// What rounds remember: a copy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolSyncMemory {
    /// Members without a Node.
    pub orphans: OrphanedPoolMembers,
    /// Models of scale sets as they were last seen, by key.
    pub scale_sets: BTreeMap<String, Arc<VirtualMachineScaleSet>>,
}

/// A machine that is off, or not ready to be written, is looked at again after this.
const POWERED_OFF_RESYNC: Duration = Duration::from_secs(300);

/// A Node whose machine could not be told is looked at again after this.
const UNLOCATED_RESYNC: Duration = Duration::from_secs(60);

/// Nodes that stand in for an entry's own Nodes are checked again after this, and leave when those have been ready members for as long.
const STAND_IN_RESYNC: Duration = Duration::from_secs(60);

/// See the module.
pub struct BackendPoolSyncer {
    compute: ArmClient,
    network: ArmClient,
    inventory: Arc<Inventory>,
    settings: Arc<LoadBalancerSettings>,
    batch_size: usize,
    migrate_api: bool,
    model_writer: ScaleSetModelWriter,
    member_writer: PoolMemberWriter,
    orphans: Mutex<OrphanedPoolMembers>,
    resync_after: Mutex<Option<Duration>>,
    /// Nodes that no entry took when last looked at.
    unplaced: Mutex<BTreeSet<String>>,
    /// Entries whose own Nodes can take over from stand-ins.
    ready_entries: Mutex<ReadyEntries>,
}

impl BackendPoolSyncer {
    /// `batch_size`: `putVMSSVMBatchSize`; `migrate_api`: `enableMigrateToIPBasedBackendPoolAPI`.
    pub fn new(
        compute: ArmClient,
        network: ArmClient,
        inventory: Arc<Inventory>,
        settings: Arc<LoadBalancerSettings>,
        batch_size: usize,
        migrate_api: bool,
    ) -> Self {
        let known = inventory.settings();
        let models = ScaleSetModelWriter::new(known.group.clone(), known.scale_sets_ttl);
        let machines = PoolMemberWriter::new(Arc::clone(&inventory));
        let (unclaimed, again) = Default::default();
        Self {
            compute,
            network,
            inventory,
            settings,
            batch_size,
            migrate_api,
            model_writer: models,
            member_writer: machines,
            orphans: unclaimed,
            resync_after: again,
            unplaced: Mutex::default(),
            ready_entries: Mutex::default(),
        }
    }

    /// What is remembered of members and models now, to plan with.
    pub fn memory(&self) -> PoolSyncMemory {
        let orphans = self.orphans.lock().unwrap_or_else(PoisonError::into_inner).clone();
        PoolSyncMemory { orphans, scale_sets: self.model_writer.known_models() }
    }

    /// Sees to it that the models of scale sets are known to [`BackendPoolSyncer::memory`], where machines are in any.
    pub async fn look_at_models(&self, urgency: Urgency) -> ArmResult<()> {
        if self.settings.vm_type == VmType::Standard {
            return Ok(());
        }
        self.model_writer.look(&self.compute.with_urgency(urgency)).await
    }

    /// After how long there is something to do at the latest, although no Node changes: as of the last [`BackendPoolSyncer::sync`].
    pub fn resync_after(&self) -> Option<Duration> {
        *self.lock_resync_after()
    }

    fn lock_ready_entries(&self) -> MutexGuard<'_, ReadyEntries> {
        self.ready_entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_resync_after(&self) -> MutexGuard<'_, Option<Duration>> {
        self.resync_after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the cluster's pools of the managed load balancers to the nodes. Not for two calls at once.
    pub async fn sync(&self, round: &PoolSyncRequest<'_>, pools: &dyn PoolWriter) -> Result<PoolSyncSummary, PoolSyncError> {
        let mut targets = managed_pool::managed_pools(round.observed, &self.settings, round.local, round.created);
        targets.retain(|target| !round.deleting.contains(&target.load_balancer));
        *self.lock_resync_after() = None;
        if targets.is_empty() {
            return Ok(PoolSyncSummary::default());
        }
        match self.settings.pool_type {
            BackendPoolType::NodeIp => self.by_address(round, targets, pools).await.into_result(),
            BackendPoolType::NodeIpConfiguration | BackendPoolType::PodIp => {
                self.by_interface(round, targets, pools).await.into_result()
            }
        }
    }

    /// Takes everything out of the pools of load balancers that are about to be deleted: models first, so that no new instance comes.
    /// Scale sets are listed anew.
    pub async fn leave(
        &self,
        load_balancers: &[&ArmLoadBalancer],
        urgency: Urgency,
    ) -> Result<PoolSyncSummary, PoolSyncError> {
        let names = load_balancers.iter().filter_map(|document| document.name.clone()).collect();
        let targets: Vec<ManagedPool> = load_balancers.iter().flat_map(|document| managed_pool::all_of(document)).collect();
        self.evict(&targets, &LeaveReason::LoadBalancersGo(names), true, urgency).await.into_result()
    }

    async fn evict(&self, targets: &[ManagedPool], why: &LeaveReason, fresh: bool, urgency: Urgency) -> PoolSyncOutcome {
        let tasks = member_updates::evict(targets, why, &self.settings);
        let arm = self.compute.with_urgency(urgency);
        let leave = targets.iter().map(|target| target.id.clone()).collect();
        let claim = PoolMembershipPatch { leave, ..member_updates::empty_patch(&self.settings) };
        let sets: Vec<ResourceId> = tasks.values().filter_map(|task| task.resource.scale_set()).collect();
        let mut outcome = PoolSyncOutcome::default();
        if self.settings.vm_type != VmType::Standard || !sets.is_empty() {
            outcome.merge(self.model_writer.evict(&arm, (&claim, why), sets, fresh).await);
        }
        outcome.merge(self.member_writer.write(&arm, tasks, |set| self.facts(set)).await);
        outcome
    }

    fn facts(&self, set: &ResourceId) -> ScaleSetFacts {
        let batches = self.batch_size > 1 && self.model_writer.is_coordinated(set);
        ScaleSetFacts { at_once: batches.then_some(self.batch_size), instances: self.model_writer.capacity(set) }
    }

    async fn by_interface(
        &self,
        round: &PoolSyncRequest<'_>,
        targets: Vec<ManagedPool>,
        pools: &dyn PoolWriter,
    ) -> PoolSyncOutcome {
        let mut outcome = PoolSyncOutcome::default();
        let members = self.pool_members(round.nodes, &targets, &mut outcome).await;
        if !members.is_empty() {
            outcome.merge(self.clear(&targets, pools, round.urgency).await);
        }
        let arm = self.compute.with_urgency(round.urgency);
        outcome.merge(
            self.model_writer
                .ensure(&arm, member_updates::models(&targets, &members, &self.settings, self.model_writer.group()))
                .await,
        );
        let mut tasks = member_updates::joins(&targets, &members, &self.settings);
        let excluded = self.excluded_members(round.all_nodes, &targets).await;
        let mut standings = located::without_members(excluded, &members);
        let (unclaimed, due) = self.orphans(round.all_nodes, &members, &targets).await;
        let excluded = |(key, node): (&String, &String)| (key.clone(), (PoolEntryStatus::Excluded, node.clone()));
        standings.extend(unclaimed.iter().map(excluded));
        member_updates::leaves(&targets, &standings, &self.settings, &mut tasks);
        member_updates::mark_orphans(&mut tasks, |key| unclaimed.contains_key(key));
        outcome.merge(self.member_writer.write(&arm, tasks, |set| self.facts(set)).await);
        let is_off = |member: &PoolMember| !member.is_active && member.lacks(&targets, &self.settings);
        let off = (outcome.deferred || members.iter().any(is_off)).then_some(POWERED_OFF_RESYNC);
        *self.lock_resync_after() = off.into_iter().chain(due).min();
        outcome
    }

    /// Members of pools that no Node claims and that have to leave, by key, and after how long the next of them has to.
    async fn orphans(
        &self,
        nodes: &[Arc<Node>],
        seats: &[PoolMember],
        targets: &[ManagedPool],
    ) -> (BTreeMap<String, String>, Option<Duration>) {
        let members = located::member_keys(targets);
        let claims = self.member_owners(nodes, seats, &members).await;
        let companions = members_of_node_sets(&members, &claims.by_resource, &self.sets_of(&claims, &members));
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner).update(claims, &members, &companions, Instant::now())
    }

    /// Keys of the sets that the machines at these places are in, by key of the place, as far as they are known. None while all members
    /// have Nodes.
    fn sets_of(&self, claims: &PoolMemberOwners, members: &BTreeSet<String>) -> BTreeMap<String, String> {
        if claims.cover(members) {
            return BTreeMap::new();
        }
        let keys: HashSet<&str> = claims.by_resource.keys().chain(members).map(String::as_str).collect();
        located::sets_of_members(&keys, &self.inventory.with_interfaces(&keys))
    }

    /// The places of all Nodes. Machines are looked up only when some member would be nobody's otherwise.
    async fn member_owners(
        &self,
        nodes: &[Arc<Node>],
        seats: &[PoolMember],
        members: &BTreeSet<String>,
    ) -> PoolMemberOwners {
        let (mut claims, unknown) = located::member_owners(nodes, seats);
        if claims.cover(members) {
            return claims;
        }
        let found = self.inventory.look_up(&unknown, Freshness::Cached).await;
        for (wanted, found) in unknown.into_iter().zip(found) {
            located::add_owner(&mut claims, wanted, found);
        }
        claims
    }

    /// The machines of the nodes that belong into pools. Only those that the pools do not show are looked up.
    async fn pool_members(
        &self,
        nodes: &[Arc<Node>],
        targets: &[ManagedPool],
        outcome: &mut PoolSyncOutcome,
    ) -> Vec<PoolMember> {
        let (mut members, unknown) = located::shown_members(nodes, targets, &self.settings);
        let found = self.inventory.look_up(&unknown, Freshness::Cached).await;
        for (wanted, found) in unknown.iter().zip(found) {
            match located::looked_up_member(wanted, found) {
                Ok(member) => members.extend(member),
                Err(LookupError::NotListed(why)) => {
                    debug!(node = wanted.node_name, why, "node has no machine to join back-end pools")
                }
                Err(error) => outcome.fail(&wanted.node_name, error),
            }
        }
        members
    }

    /// Which places may not stay in the pools, by key, with the name of their Node.
    async fn excluded_members(&self, nodes: &[Arc<Node>], targets: &[ManagedPool]) -> ExcludedMembers {
        let (mut standings, unknown) = located::excluded_members(nodes, &self.settings);
        if targets.iter().all(|target| target.members.is_empty()) {
            return standings;
        }
        let found = self.inventory.look_up(&unknown, Freshness::Cached).await;
        standings
            .extend(unknown.into_iter().zip(found).filter_map(|(wanted, found)| located::looked_up_excluded(wanted, found)));
        standings
    }

    async fn by_address(
        &self,
        round: &PoolSyncRequest<'_>,
        targets: Vec<ManagedPool>,
        pools: &dyn PoolWriter,
    ) -> PoolSyncOutcome {
        let joining = self.located_nodes(round.nodes).await;
        let staying: Vec<PoolNode> = round.all_nodes.iter().map(|node| nodes::pool_node(node, &self.settings)).collect();
        let mut placement = place_nodes(round.observed, round.deleting, &joining, &self.settings);
        self.lock_ready_entries().keep_recent(&mut placement, Instant::now(), STAND_IN_RESYNC);
        self.report_unplaced(&placement.unplaced);
        let (migrated, mut outcome) = self.migrate(targets, &joining, pools, round.urgency).await;
        outcome.merge(self.fill(&migrated, (&joining, &staying), &placement, pools, round.urgency).await);
        let unlocated = joining.iter().any(|node| node.is_unlocated).then_some(UNLOCATED_RESYNC);
        let standing_in = placement.has_stand_ins().then_some(STAND_IN_RESYNC);
        *self.lock_resync_after() = unlocated.into_iter().chain(standing_in).min();
        outcome
    }

    /// Nodes that no entry takes are told once.
    fn report_unplaced(&self, unplaced: &BTreeSet<String>) {
        let mut told = self.unplaced.lock().unwrap_or_else(PoisonError::into_inner);
        unplaced.difference(&told).for_each(|node| warn!(node, reason = NO_ENTRY, "the node is behind no load balancer"));
        told.clone_from(unplaced);
    }

    /// Nodes with the VM sets of their machines, as far as placing them needs these. One whose machine cannot be told fails nobody.
    async fn located_nodes(&self, nodes: &[Arc<Node>]) -> Vec<PoolNode> {
        let (mut known, unknown) = located::pool_nodes(nodes, &self.settings);
        let wanted: Vec<_> = unknown.iter().map(|(_, wanted)| wanted.clone()).collect();
        let found = self.inventory.look_up(&wanted, Freshness::Cached).await;
        for ((place, wanted), found) in unknown.iter().zip(&found) {
            located::set_vm_set(&mut known[*place], found);
            if let (Err(error), true) = (found, known[*place].is_unlocated) {
                warn!(node = wanted.node_name, %error, "the scale set of the node is unknown, so that it stays in its back-end pools");
            }
        }
        known
    }
}

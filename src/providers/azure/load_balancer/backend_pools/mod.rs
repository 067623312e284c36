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
//! document is written by itself and planned from what it is then: a process killed between any two requests leaves what the next one
//! completes.

mod by_address;
mod managed_pool;
mod member_addresses;
mod member_resource;
mod member_writer;
mod model_writer;
mod nodes;
mod orphans;
mod outcome;
mod plan;
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
    settings::LoadBalancerSettings,
};
use crate::providers::azure::{
    arm::{
        ArmClient, ArmResult, ResourceId, Urgency,
        network::{ArmLoadBalancer, BackendAddressPool},
    },
    config::{BackendPoolType, VmType},
    inventory::{Freshness, Inventory, LookupError, Machine, MachineKind},
    node,
};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use managed_pool::ManagedPool;
pub use member_addresses::{PoolMemberAddresses, listed_in_pools};
use member_resource::PoolMemberResource;
use member_writer::PoolMemberWriter;
use model_writer::ScaleSetModelWriter;
use orphans::{OrphanedPoolMembers, PoolMemberOwners, members_of_node_sets};
use outcome::PoolSyncOutcome;
pub use outcome::{PoolSyncError, PoolSyncFailure, PoolSyncSummary};
use plan::PoolMember;
use tokio::time::Instant;
use tracing::debug;

/// Writes pools. Whoever implements it notes that their load balancers have changed.
#[async_trait]
pub trait PoolWriter: Send + Sync {
    /// Replaces the pool with this id, without a precondition.
    async fn put_pool(&self, pool: &ResourceId, document: &BackendAddressPool, urgency: Urgency) -> ArmResult<()>;
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
    let wanted: Vec<_> = nodes.iter().map(|node| nodes::machine_query(node)).collect();
    let found = inventory.look_up(&wanted, Freshness::Cached).await;
    let names: BTreeSet<String> =
        found.iter().flatten().filter_map(|machine| Some(vm_set(machine)?.name().to_lowercase())).collect();
    names.into_iter().collect()
}

/// The scale set or availability set of a machine.
fn vm_set(machine: &Machine) -> Option<&ResourceId> {
    match &machine.kind {
        MachineKind::ScaleSetInstance { scale_set: set, .. }
        | MachineKind::FlexInstance { scale_set: set }
        | MachineKind::AvailabilitySet { set } => Some(set),
        MachineKind::Standalone => None,
    }
}

/// What of the Nodes decides who is in the pools, as a number: who may join and who may stay. From pools of interfaces, those who do not
/// belong have to be taken out by name.
pub fn fingerprint(nodes: &[Arc<Node>], all_nodes: &[Arc<Node>], settings: &LoadBalancerSettings) -> u64 {
    let mut hasher = DefaultHasher::new();
    let belongs = |node: &&Arc<Node>| nodes::pool_node(node, settings).belongs(settings);
    nodes.iter().filter(belongs).for_each(|node| node::name(node).hash(&mut hasher));
    let by_address = settings.pool_type == BackendPoolType::NodeIp;
    for node in all_nodes.iter().filter(|node| !by_address || belongs(node)) {
        (nodes::pool_node(node, settings), node::provider_id(node)).hash(&mut hasher);
    }
    hasher.finish()
}

/// A machine that is off, or not ready to be written, is looked at again after this.
const POWERED_OFF_RESYNC: Duration = Duration::from_secs(300);

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
        }
    }

    /// After how long there is something to do at the latest, although no Node changes: as of the last [`BackendPoolSyncer::sync`].
    pub fn resync_after(&self) -> Option<Duration> {
        *self.lock_resync_after()
    }

    fn lock_resync_after(&self) -> MutexGuard<'_, Option<Duration>> {
        self.resync_after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the cluster's pools of the managed load balancers to the nodes. Not for two calls at once.
    pub async fn sync(&self, round: &PoolSyncRequest<'_>, pools: &dyn PoolWriter) -> Result<PoolSyncSummary, PoolSyncError> {
        let mut targets = managed_pool::managed_pools(round.observed, &self.settings, round.created);
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

    /// Takes everything out of the pools of a load balancer that is about to be deleted: models first, so that no new instance comes.
    /// Scale sets are listed anew.
    pub async fn leave(&self, load_balancer: &ArmLoadBalancer, urgency: Urgency) -> Result<PoolSyncSummary, PoolSyncError> {
        self.evict(&managed_pool::all_of(load_balancer), true, urgency).await.into_result()
    }

    async fn evict(&self, targets: &[ManagedPool], fresh: bool, urgency: Urgency) -> PoolSyncOutcome {
        let tasks = plan::evict(targets, &self.settings);
        let arm = self.compute.with_urgency(urgency);
        let leave = targets.iter().map(|target| target.id.clone()).collect();
        let wish = PoolMembershipPatch { leave, ..plan::empty_patch(&self.settings) };
        let sets: Vec<ResourceId> = tasks.values().filter_map(|task| task.resource.scale_set()).collect();
        let mut outcome = PoolSyncOutcome::default();
        if self.settings.vm_type != VmType::Standard || !sets.is_empty() {
            outcome.merge(self.model_writer.evict(&arm, &wish, sets, fresh).await);
        }
        outcome.merge(self.member_writer.write(&arm, tasks, |set| self.at_once(set)).await);
        outcome
    }

    fn at_once(&self, set: &ResourceId) -> Option<usize> {
        (self.batch_size > 1 && self.model_writer.is_coordinated(set)).then_some(self.batch_size)
    }

    async fn by_interface(
        &self,
        round: &PoolSyncRequest<'_>,
        targets: Vec<ManagedPool>,
        pools: &dyn PoolWriter,
    ) -> PoolSyncOutcome {
        let mut outcome = PoolSyncOutcome::default();
        let seats = self.pool_members(round.nodes, &targets, &mut outcome).await;
        if !seats.is_empty() {
            outcome.merge(self.clear(&targets, pools, round.urgency).await);
        }
        let arm = self.compute.with_urgency(round.urgency);
        outcome.merge(
            self.model_writer.ensure(&arm, plan::models(&targets, &seats, &self.settings, self.model_writer.group())).await,
        );
        let mut tasks = plan::joins(&targets, &seats, &self.settings);
        let mut standings = self.excluded_members(round.all_nodes, &targets).await;
        let (unclaimed, due) = self.orphans(round.all_nodes, &seats, &targets).await;
        let nobodys: BTreeSet<String> = unclaimed.keys().cloned().collect();
        standings.extend(unclaimed.into_iter().map(|(key, node)| (key, (PoolEntryStatus::Excluded, node))));
        plan::leaves(&targets, &standings, &self.settings, &mut tasks);
        tasks.iter_mut().for_each(|(key, task)| task.is_orphan = nobodys.contains(key));
        outcome.merge(self.member_writer.write(&arm, tasks, |set| self.at_once(set)).await);
        let is_off = |seat: &PoolMember| !seat.is_active && seat.lacks(&targets, &self.settings);
        let off = (outcome.deferred || seats.iter().any(is_off)).then_some(POWERED_OFF_RESYNC);
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
        let members = targets.iter().flat_map(|target| target.members.iter().cloned()).collect();
        let claims = self.member_owners(nodes, seats, &members).await;
        let companions = members_of_node_sets(&members, &claims.by_resource, &self.sets_of(&claims, &members));
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner).update(claims, &members, &companions, Instant::now())
    }

    /// Keys of the sets that the machines at these places are in, by key of the place, as far as they are known. None while all members
    /// have Nodes.
    fn sets_of(&self, claims: &PoolMemberOwners, members: &BTreeSet<String>) -> BTreeMap<String, String> {
        if members.iter().all(|member| claims.by_resource.contains_key(member)) {
            return BTreeMap::new();
        }
        let keys: HashSet<&str> = claims.by_resource.keys().chain(members).map(String::as_str).collect();
        let of_instance = |key: &str| Some((key.to_owned(), PoolMemberResource::of_key(key)?.scale_set()?.key()));
        let mut sets: BTreeMap<String, String> = keys.iter().filter_map(|key| of_instance(key)).collect();
        for machine in self.inventory.with_interfaces(&keys) {
            let Some(set) = vm_set(&machine).map(ResourceId::key) else { continue };
            sets.extend(machine.interfaces.iter().map(|interface| (interface.id.key(), set.clone())));
        }
        sets
    }

    /// The places of all Nodes. Machines are looked up only when some member would be nobody's otherwise.
    async fn member_owners(
        &self,
        nodes: &[Arc<Node>],
        seats: &[PoolMember],
        members: &BTreeSet<String>,
    ) -> PoolMemberOwners {
        let mut claims = PoolMemberOwners::default();
        claims.by_resource.extend(seats.iter().map(|seat| (seat.resource.key(), seat.node.clone())));
        let seated: BTreeSet<&str> = seats.iter().map(|seat| seat.node.as_str()).collect();
        let mut unknown = Vec::new();
        for node in nodes.iter().filter(|node| !seated.contains(node::name(node))) {
            let wanted = nodes::machine_query(node);
            match wanted.id.as_ref().and_then(PoolMemberResource::of_instance) {
                Some(place) => drop(claims.by_resource.insert(place.key(), wanted.node_name)),
                // A Node with another id, or that is said to be none of Azure's, has no machine to be asked for by name.
                None if wanted.id.is_none() && (node::is_unmanaged(node) || node::provider_id(node).is_some()) => {}
                None => unknown.push(wanted),
            }
        }
        if members.iter().all(|member| claims.by_resource.contains_key(member)) {
            return claims;
        }
        let found = self.inventory.look_up(&unknown, Freshness::Cached).await;
        for (wanted, found) in unknown.into_iter().zip(found) {
            match found {
                Ok(machine) => {
                    claims.by_resource.extend(PoolMemberResource::of(&machine).map(|place| (place.key(), wanted.node_name)))
                }
                // What the id names is gone.
                Err(LookupError::NotListed(_)) if wanted.id.is_some() => {}
                Err(_) => drop(claims.unlocated_nodes.insert(wanted.node_name)),
            }
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
        let belongs = |node: &&Arc<Node>| nodes::pool_node(node, &self.settings).belongs(&self.settings);
        let (mut seats, mut unknown) = (Vec::new(), Vec::new());
        for node in nodes.iter().filter(belongs) {
            let wanted = nodes::machine_query(node);
            let seat = wanted.id.as_ref().and_then(|id| PoolMember::of_instance(&wanted.node_name, id));
            match seat.filter(|seat| !seat.lacks(targets, &self.settings)) {
                Some(seat) => seats.push(seat),
                None => unknown.push(wanted),
            }
        }
        let found = self.inventory.look_up(&unknown, Freshness::Cached).await;
        for (wanted, found) in unknown.iter().zip(found) {
            let by_id = || wanted.id.as_ref().and_then(|id| PoolMember::of_instance(&wanted.node_name, id));
            match found {
                Ok(machine) => seats.extend(PoolMember::of(&wanted.node_name, &machine)),
                // The id says where to write, and the instance itself whether that can be: a list may be older than the machine.
                Err(LookupError::NoAddress(_) | LookupError::NotListed(_)) if by_id().is_some() => seats.extend(by_id()),
                Err(LookupError::NotListed(why)) => {
                    debug!(node = wanted.node_name, why, "node has no machine to join back-end pools")
                }
                Err(error) => outcome.fail(&wanted.node_name, error),
            }
        }
        seats
    }

    /// Which places may not stay in the pools, by key, with the name of their Node.
    async fn excluded_members(
        &self,
        nodes: &[Arc<Node>],
        targets: &[ManagedPool],
    ) -> BTreeMap<String, (PoolEntryStatus, String)> {
        let stays_out = |node: &&Arc<Node>| !nodes::pool_node(node, &self.settings).belongs(&self.settings);
        let (mut standings, mut unknown) = (BTreeMap::new(), Vec::new());
        // What is none of Azure's has no machine to be asked for by name.
        let is_azures = |node: &&Arc<Node>| !node::is_unmanaged(node) || nodes::machine_query(node).id.is_some();
        for wanted in nodes.iter().filter(stays_out).filter(is_azures).map(|node| nodes::machine_query(node)) {
            match wanted.id.as_ref().and_then(PoolMemberResource::of_instance) {
                Some(place) => drop(standings.insert(place.key(), (PoolEntryStatus::Excluded, wanted.node_name))),
                None => unknown.push(wanted),
            }
        }
        if targets.iter().all(|target| target.members.is_empty()) {
            return standings;
        }
        let found = self.inventory.look_up(&unknown, Freshness::Cached).await;
        for (wanted, machine) in unknown.into_iter().zip(found) {
            let place = machine.ok().and_then(|machine| PoolMemberResource::of(&machine));
            standings.extend(place.map(|place| (place.key(), (PoolEntryStatus::Excluded, wanted.node_name))));
        }
        standings
    }

    async fn by_address(
        &self,
        round: &PoolSyncRequest<'_>,
        targets: Vec<ManagedPool>,
        pools: &dyn PoolWriter,
    ) -> PoolSyncOutcome {
        let of = |nodes: &[Arc<Node>]| -> Vec<PoolNode> {
            nodes.iter().map(|node| nodes::pool_node(node, &self.settings)).collect()
        };
        let (joining, staying) = (of(round.nodes), of(round.all_nodes));
        let (migrated, mut outcome) = self.migrate(targets, &joining, pools, round.urgency).await;
        outcome.merge(self.fill(&migrated, (&joining, &staying), pools, round.urgency).await);
        outcome
    }
}

//! Carries out plans of who is in which back-end pool.
//!
//! ```text
//! ObservedNetwork, Nodes, PoolMemory ─► plan::pools ─► PoolNeeds ─► read ─┐
//!                                           ▲  └─► PoolPlan ─► carry_out  │
//!                                           └──────── PoolReads ──────────┘
//! ```
//! What is written is decided in [`plan::pools`](crate::providers::azure::planner::load_balancer::plan::pools), which is pure. Here is
//! read what a plan needs; then its changes are sent, and what was sent is in [`PoolSyncSummary`]. Members of a pool are in
//! `ObservedNetwork`, so that nothing is read while nothing has to change. Each document is written by itself, once for all pools, and
//! on the version that is read just before: a process killed between any two requests leaves what the next one completes.

mod by_address;
mod member_list;
mod member_writer;
mod model_writer;
mod outcome;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tracing::warn;

pub use self::by_address::PoolWriter;
pub use self::outcome::{PoolSyncError, PoolSyncFailure, PoolSyncSummary};
use self::{
    by_address::PoolUpdater,
    member_writer::{PoolMemberWriter, ScaleSetFacts},
    model_writer::ScaleSetModelWriter,
    outcome::PoolSyncOutcome,
};
use crate::providers::azure::{
    arm::{ArmClient, ResourceId, Urgency},
    config::BackendPoolType,
    inventory::{Freshness, Inventory},
    node,
    planner::load_balancer::{
        desired::pool_members::PoolNode,
        plan::{
            pools::{POWERED_OFF_RESYNC, PoolChange, PoolChangeKind, PoolInput, PoolMemory, PoolNeeds, PoolPlan, PoolReads},
            waiting::WaitingFor,
        },
        pools::{local_pools::LocalPools, located::vm_set, nodes},
        settings::LoadBalancerSettings,
    },
};

/// Names of the scale sets and availability sets of the Nodes' machines, in lower case. A Node without a machine has none.
pub async fn vm_sets(inventory: &Inventory, nodes: &[Arc<Node>]) -> Vec<String> {
    let own = nodes.iter().filter(|node| !node::is_foreign(node));
    let wanted: Vec<_> = own.map(|node| nodes::machine_query(node)).collect();
    let found = inventory.look_up(&wanted, Freshness::Cached).await;
    let names: BTreeSet<String> =
        found.iter().flatten().filter_map(|machine| Some(vm_set(machine)?.name().to_lowercase())).collect();
    names.into_iter().collect()
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
    memory: Arc<Mutex<PoolMemory>>,
    resync_after: Mutex<Option<Duration>>,
    /// Nodes that no entry took in the last plan, and Nodes whose machines were unknown.
    reported: Mutex<BTreeSet<WaitingFor>>,
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
        let (group, ttl) = (inventory.settings().group.clone(), inventory.settings().scale_sets_ttl);
        let memory: Arc<Mutex<PoolMemory>> = Arc::default();
        let model_writer = ScaleSetModelWriter::new(group, ttl, Arc::clone(&memory));
        let member_writer = PoolMemberWriter::new(Arc::clone(&inventory), Arc::clone(&memory));
        let (resync_after, reported) = Default::default();
        Self {
            compute,
            network,
            inventory,
            settings,
            batch_size,
            migrate_api,
            model_writer,
            member_writer,
            memory,
            resync_after,
            reported,
        }
    }

    /// A copy of what is remembered, to plan with.
    pub fn memory(&self) -> PoolMemory {
        self.lock_memory().clone()
    }

    /// When there is something to do at the latest although no Node changes, as of the last [`BackendPoolSyncer::sync`].
    pub fn resync_after(&self) -> Option<Duration> {
        *self.lock_resync_after()
    }

    fn lock_memory(&self) -> MutexGuard<'_, PoolMemory> {
        self.memory.lock()
    }

    fn lock_resync_after(&self) -> MutexGuard<'_, Option<Duration>> {
        self.resync_after.lock()
    }

    /// An input without Nodes.
    pub fn input<'a>(&'a self, reads: &'a PoolReads, memory: &'a PoolMemory, local: &'a LocalPools) -> PoolInput<'a> {
        PoolInput {
            hosts: None,
            all_nodes: &[],
            reads,
            memory,
            local,
            unfilled: &[],
            deleting: &[],
            group: self.model_writer.group(),
            migrate_api: self.migrate_api,
            now: Instant::now(),
        }
    }

    /// Carries out a plan of members. Two calls at once would undo each other's changes. `started`: when its reads began.
    pub async fn sync(
        &self,
        plan: &PoolPlan,
        started: Instant,
        writer: &dyn PoolWriter,
        urgency: Urgency,
    ) -> Result<PoolSyncSummary, PoolSyncError> {
        self.remember(plan);
        let outcome = self.carry_out(plan, started, Some(writer), urgency).await;
        let deferred = outcome.deferred.then_some(POWERED_OFF_RESYNC);
        *self.lock_resync_after() = deferred.into_iter().chain(plan.resync_after).min();
        outcome.into_result()
    }

    /// Carries out a plan by which everything leaves the pools of load balancers that are about to be deleted.
    pub async fn leave(
        &self,
        plan: &PoolPlan,
        started: Instant,
        urgency: Urgency,
    ) -> Result<PoolSyncSummary, PoolSyncError> {
        self.carry_out(plan, started, None, urgency).await.into_result()
    }

    /// The next plan lists scale sets anew.
    pub fn expire_models(&self) {
        self.model_writer.expire();
    }

    /// Reads what a plan needs. A list of scale sets may be as old as `vmssCacheTTLInSeconds`.
    pub async fn read(&self, needs: &PoolNeeds, reads: &mut PoolReads, urgency: Urgency) {
        if !needs.machines.is_empty() {
            let queries: Vec<_> = needs.machines.values().cloned().collect();
            let answers = self.inventory.look_up(&queries, Freshness::Cached).await;
            reads.machines.extend(queries.into_iter().map(|query| query.node_name).zip(answers));
        }
        if !needs.interfaces.is_empty() {
            let keys: BTreeSet<&str> = needs.interfaces.iter().map(String::as_str).collect();
            reads.machines_at = Some(self.inventory.with_interfaces(&keys));
        }
        if needs.models {
            reads.models = Some(self.model_writer.models(&self.compute.with_urgency(urgency)).await);
        }
    }

    /// Logs Nodes that join no pool, once.
    fn remember(&self, plan: &PoolPlan) {
        let mut memory = self.lock_memory();
        memory.orphans.clone_from(&plan.orphans);
        memory.ready_entries.clone_from(&plan.ready_entries);
        let mut reported = self.reported.lock();
        plan.waiting.difference(&reported).for_each(|waiting| warn!(%waiting, "node joins no back-end pool"));
        reported.clone_from(&plan.waiting);
    }

    /// Sends the changes of a plan: neighbors of one kind side by side, one kind after the other. `started`: when its reads began.
    /// `writer`: for changes of pools.
    async fn carry_out(
        &self,
        plan: &PoolPlan,
        started: Instant,
        writer: Option<&dyn PoolWriter>,
        urgency: Urgency,
    ) -> PoolSyncOutcome {
        let mut outcome = PoolSyncOutcome::default();
        let unread = plan.unread_models.iter().cloned();
        unread.for_each(|error| outcome.fail("models of scale sets", error));
        plan.unlocated.iter().for_each(|(node, error)| outcome.fail(node, error.clone()));
        let arm = self.compute.with_urgency(urgency);
        let updater = writer.map(|writer| PoolUpdater {
            network: self.network.with_urgency(urgency),
            writer,
            settings: &self.settings,
            plan,
            urgency,
        });
        let mut unmigrated = BTreeSet::new();
        for changes in plan.changes.chunk_by(|one, next| is_same_kind(&one.kind, &next.kind)) {
            let changes: Cow<'_, [PoolChange]> = match unmigrated.is_empty() {
                true => changes.into(),
                false => changes.iter().filter_map(|change| change.without(&unmigrated)).collect(),
            };
            let Some(first) = changes.first() else { continue };
            let sent = match (&first.kind, &updater) {
                (PoolChangeKind::Model(_), _) => self.model_writer.write(&arm, &changes, started).await,
                (PoolChangeKind::Member(_), _) => self.member_writer.write(&arm, &changes, |set| self.facts(set)).await,
                (PoolChangeKind::Pool(_), Some(updater)) => updater.write(&changes).await,
                (PoolChangeKind::Migration(_), Some(updater)) => updater.migrate(&changes, &mut unmigrated).await,
                // The pools of a load balancer that is about to be deleted are not written themselves.
                (PoolChangeKind::Pool(_) | PoolChangeKind::Migration(_), None) => continue,
            };
            outcome.merge(sent);
        }
        outcome
    }

    fn facts(&self, set: &ResourceId) -> ScaleSetFacts {
        let batches = self.batch_size > 1 && self.model_writer.is_coordinated(set);
        ScaleSetFacts { at_once: batches.then_some(self.batch_size), instances: self.model_writer.capacity(set) }
    }
}

fn is_same_kind(one: &PoolChangeKind, other: &PoolChangeKind) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

//! Execution of plans for the members of backend pools.
//!
//! ```text
//! ObservedNetwork, Nodes, PoolMemory ─► plan::pools ─► PoolNeeds ─► read ─┐
//!                                           ▲  └─► PoolPlan ─► write      │
//!                                           └──────── PoolReads ──────────┘
//! ```
//! The planned changes are computed in [`plan::pools`](crate::providers::azure::planner::load_balancer::plan::pools), which
//! is pure. This module reads what a plan needs, sends its changes, and reports the end of each write.
//!
//! `ObservedNetwork` contains the members of the pools, so nothing is read while no change is needed. Each document is
//! written in its own request, once for all pools, on the version that was read directly before it. If the process is killed
//! between two requests, the next process completes the change.

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
};

use futures::future::{OptionFuture, join};
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tracing::warn;

pub use self::by_address::PoolWriter;
pub use self::outcome::{PoolSyncError, PoolSyncFailure, PoolSyncOutcome, PoolSyncSummary, PoolWriteEnd, PoolWriteEnds};
use self::{
    by_address::PoolUpdater,
    member_writer::{PoolMemberWriter, ScaleSetFacts},
    model_writer::ScaleSetModelWriter,
};
use crate::providers::azure::{
    arm::{ArmClient, Urgency},
    config::BackendPoolType,
    inventory::{Freshness, Inventory},
    model::ResourceId,
    node,
    planner::load_balancer::{
        desired::pool_members::PoolNode,
        plan::{
            pools::{MODEL_WAIT, PoolChange, PoolChangeKind, PoolInput, PoolMemory, PoolNeeds, PoolPlan, PoolReads},
            waiting::WaitingFor,
        },
        pools::{local_pools::LocalPools, located::vm_set, nodes},
        settings::LoadBalancerSettings,
    },
};
use crate::runtime::watched::Watched;

/// Returns the names of the scale sets and availability sets of the Nodes' machines, in lower case. A Node without a machine
/// has none.
pub async fn vm_sets(inventory: &Inventory, nodes: &[Arc<Node>]) -> Vec<String> {
    let own = nodes.iter().filter(|node| !node::is_foreign(node));
    let wanted: Vec<_> = own.map(|node| nodes::machine_query(node)).collect();
    let found = inventory.lookup(&wanted, Freshness::Cached).await;
    let names: BTreeSet<String> =
        found.iter().flatten().filter_map(|machine| Some(vm_set(machine)?.name().to_lowercase())).collect();
    names.into_iter().collect()
}

/// Returns a hash of the facts about Nodes that determine the members of the pools: which Nodes may join and which may
/// remain.
///
/// With pools of interfaces, the hash includes Nodes that do not belong in a pool, because they must be removed by name.
pub fn fingerprint(nodes: &[Arc<Node>], all_nodes: &[Arc<Node>], settings: &LoadBalancerSettings) -> u64 {
    let mut hasher = DefaultHasher::new();
    let belongs = |node: &&Arc<Node>| nodes::pool_node(node, settings).belongs(settings);
    nodes.iter().filter(belongs).for_each(|node| node::name(node).hash(&mut hasher));
    let by_address = settings.pool_type == BackendPoolType::NodeIp;
    for node in all_nodes.iter().filter(|node| !by_address || belongs(node)) {
        // Readiness alone moves no Node, so a flapping Node causes no writes.
        let known = PoolNode { is_ready: false, ..nodes::pool_node(node, settings) };
        (known, node::provider_id(node)).hash(&mut hasher);
    }
    hasher.finish()
}

/// Reader and writer for plans of pool members, with the memory of earlier writes.
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
    /// Number of writes that have ended.
    ends: Watched<u64>,
    /// Nodes that the last plan added to no pool, because no entry selects them or their machines were not found.
    reported: Mutex<BTreeSet<WaitingFor>>,
}

impl BackendPoolSyncer {
    /// Creates a syncer that has read nothing yet. `batch_size` is `putVMSSVMBatchSize`; `migrate_api` is
    /// `enableMigrateToIPBasedBackendPoolAPI`.
    pub fn new(
        compute: ArmClient,
        network: ArmClient,
        inventory: Arc<Inventory>,
        settings: Arc<LoadBalancerSettings>,
        batch_size: usize,
        migrate_api: bool,
    ) -> Self {
        let (group, ttl) = (inventory.settings.group.clone(), inventory.settings.scale_sets_ttl);
        let memory: Arc<Mutex<PoolMemory>> = Arc::default();
        let model_writer = ScaleSetModelWriter::new(group, ttl, Arc::clone(&memory));
        let member_writer = PoolMemberWriter::new(Arc::clone(&inventory), Arc::clone(&memory));
        let (ends, reported) = Default::default();
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
            ends,
            reported,
        }
    }

    /// Returns a copy of the memory of earlier writes, to plan with.
    pub fn memory(&self) -> PoolMemory {
        self.memory.lock().clone()
    }

    /// Returns the input of a plan without Nodes.
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

    /// Records that the changes of a plan are in flight, and returns the number of the round. Do not make another plan
    /// between `plan` and this call.
    pub fn begin(&self, plan: &PoolPlan) -> u64 {
        self.memory.lock().begin(&plan.changes, &plan.blocked, Instant::now())
    }

    /// Records that writes of a plan have ended. Returns `true` if another plan must follow.
    pub fn end(&self, round: u64, ends: &[PoolWriteEnd]) -> bool {
        let (now, mut memory) = (Instant::now(), self.memory.lock());
        let awaited = ends.iter().filter(|end| memory.end_write((round, &end.id), end.pause(), now)).count();
        // Updated under the lock, so that a plan that began earlier detects that its memory is outdated.
        self.ends.update(|ends| *ends += 1);
        drop(memory);
        awaited > 0
    }

    /// Returns empty results for the changes of a plan that are in flight.
    pub fn unreported(&self, round: u64, plan: &PoolPlan) -> Vec<PoolWriteEnd> {
        let memory = self.memory.lock();
        let is_own = |change: &&PoolChange| memory.in_flight.get(&change.id).is_some_and(|write| write.round == round);
        let in_flight = plan.changes.iter().filter(is_own);
        in_flight.map(|change| PoolWriteEnd { id: change.id.clone(), outcome: PoolSyncOutcome::default() }).collect()
    }

    /// Returns `true` if a write of one of these documents is in flight.
    pub fn has_in_flight(&self, changes: &[PoolChange]) -> bool {
        let memory = self.memory.lock();
        changes.iter().any(|change| memory.in_flight.contains_key(&change.id))
    }

    /// Returns the number of writes that have ended.
    pub fn ends(&self) -> u64 {
        self.ends.read(|ends| *ends)
    }

    /// Waits until more than `before` writes have ended, but at most [`MODEL_WAIT`]: a write that has not begun yet must not
    /// delay the caller.
    pub async fn wait_for_end(&self, before: u64) {
        let _ = timeout(MODEL_WAIT, self.ends.until(|ends| *ends > before)).await;
    }

    /// Makes the next plan list the scale sets again.
    pub fn expire_models(&self) {
        self.model_writer.expire();
    }

    /// Reads what a plan needs. A cached list of scale sets may be as old as `vmssCacheTTLInSeconds`.
    pub async fn read(&self, needs: &PoolNeeds, reads: &mut PoolReads, urgency: Urgency) {
        if !needs.machines.is_empty() {
            let queries: Vec<_> = needs.machines.values().cloned().collect();
            let answers = self.inventory.lookup(&queries, Freshness::Cached).await;
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

    /// Records the memory of a plan of all members, and logs each Node that joins no pool, once.
    pub fn remember(&self, plan: &PoolPlan) {
        let mut memory = self.memory.lock();
        memory.orphans.clone_from(&plan.orphans);
        memory.ready_entries.clone_from(&plan.ready_entries);
        let mut reported = self.reported.lock();
        plan.waiting.difference(&reported).for_each(|waiting| warn!(%waiting, "node joins no back-end pool"));
        reported.clone_from(&plan.waiting);
    }

    /// Sends the changes of a plan: adjacent changes of one kind concurrently, one kind after the other.
    ///
    /// `started` is the time when the plan's reads began; `ends` receives the end of each write.
    pub async fn write(
        &self,
        plan: &PoolPlan,
        started: Instant,
        writer: &dyn PoolWriter,
        urgency: Urgency,
        ends: PoolWriteEnds,
    ) {
        let (arm, ends) = (self.compute.with_urgency(urgency), &ends);
        let network = self.network.with_urgency(urgency);
        let updater = PoolUpdater { network, writer, settings: &self.settings, plan, urgency };
        let mut unmigrated = BTreeSet::new();
        let mut chunks = plan.changes.chunk_by(|one, next| is_same_kind(&one.kind, &next.kind)).peekable();
        let mut late_models = None;
        // Instances should be written after their model, but a slow model does not delay them beyond the limit.
        if let Some(models) = chunks.next_if(|changes| matches!(changes[0].kind, PoolChangeKind::Model(_))) {
            let mut written = Box::pin(self.model_writer.write(&arm, models, started, ends));
            late_models = timeout(MODEL_WAIT, &mut written).await.is_err().then_some(written);
        }
        let others = async {
            for changes in chunks {
                let left = || changes.iter().filter_map(|change| change.without(&unmigrated)).collect();
                let changes: Cow<'_, [PoolChange]> = if unmigrated.is_empty() { changes.into() } else { left() };
                match changes.first().map(|first| &first.kind) {
                    Some(PoolChangeKind::Model(_)) => self.model_writer.write(&arm, &changes, started, ends).await,
                    Some(PoolChangeKind::Member(_)) => {
                        self.member_writer.write(&arm, &changes, |set| self.facts(set), ends).await;
                    }
                    Some(PoolChangeKind::Pool(_)) => updater.write(&changes, ends).await,
                    Some(PoolChangeKind::Migration(_)) => updater.migrate(&changes, &mut unmigrated, ends).await,
                    None => {}
                }
            }
        };
        join(others, OptionFuture::from(late_models)).await;
    }

    fn facts(&self, set: &ResourceId) -> ScaleSetFacts {
        let batches = self.batch_size > 1 && self.model_writer.is_coordinated(set);
        ScaleSetFacts { at_once: batches.then_some(self.batch_size), instances: self.model_writer.capacity(set) }
    }
}

fn is_same_kind(one: &PoolChangeKind, other: &PoolChangeKind) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

//! Carries out plans of who is in which back-end pool.
//!
//! ```text
//! ObservedNetwork, Nodes, PoolMemory ─► plan::pools ─► PoolNeeds ─► read ─┐
//!                                           ▲  └─► PoolPlan ─► write      │
//!                                           └──────── PoolReads ──────────┘
//! ```
//! What is written is decided in [`plan::pools`](crate::providers::azure::planner::load_balancer::plan::pools), which is pure. Here is
//! read what a plan needs; then its changes are sent, and each end is reported. Members of a pool are in
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
    /// How often writes have ended.
    ends: Watched<u64>,
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

    /// A copy of what is remembered, to plan with.
    pub fn memory(&self) -> PoolMemory {
        self.memory.lock().clone()
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

    /// Records that the changes of a plan are in flight, and returns its number. No other plan may be made between it and this call.
    pub fn begin(&self, plan: &PoolPlan) -> u64 {
        self.memory.lock().begin(&plan.changes, &plan.blocked, Instant::now())
    }

    /// Records that writes of a plan have ended. Returns whether another plan has to follow them.
    pub fn end(&self, round: u64, ends: &[PoolWriteEnd]) -> bool {
        let (now, mut memory) = (Instant::now(), self.memory.lock());
        let awaited = ends.iter().filter(|end| memory.end_write((round, &end.id), end.pause(), now)).count();
        // Under the lock, so that a plan that has begun before knows that its memory is old.
        self.ends.update(|ends| *ends += 1);
        drop(memory);
        awaited > 0
    }

    /// Returns ends of those changes of a plan that are in flight, without a result.
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

    /// Returns how often writes have ended.
    pub fn ends(&self) -> u64 {
        self.ends.read(|ends| *ends)
    }

    /// Waits until writes have ended more often than `before`, but not for long: a write that has not begun ends no other.
    pub async fn wait_for_end(&self, before: u64) {
        let _ = timeout(MODEL_WAIT, self.ends.until(|ends| *ends > before)).await;
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

    /// Records the memory of a plan of all members, and logs Nodes that join no pool, once.
    pub fn remember(&self, plan: &PoolPlan) {
        let mut memory = self.memory.lock();
        memory.orphans.clone_from(&plan.orphans);
        memory.ready_entries.clone_from(&plan.ready_entries);
        let mut reported = self.reported.lock();
        plan.waiting.difference(&reported).for_each(|waiting| warn!(%waiting, "node joins no back-end pool"));
        reported.clone_from(&plan.waiting);
    }

    /// Sends the changes of a plan: neighbors of one kind side by side, one kind after the other. `started`: when its reads began.
    /// `ends`: gets the end of each write.
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
        // Instances follow their model, but not for long.
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

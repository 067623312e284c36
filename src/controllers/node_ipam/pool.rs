//! The pod CIDRs of a cluster as those see them who give them out: the node-ipam controller, and the node controller, whose patches
//! bring them along.
//!
//! In: what the list at the start and the watch tell of Nodes, and what became of patches. Out: blocks for a Node. Decides nothing
//! itself: [`Allocations`] does. Closed until everything has been read that other leaders may have given out.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::{
    allocations::{AllocationError, Allocations, ForeignCidrError, ObservedCidrs},
    config::{CidrAllocatorType, NodeIpamConfig},
    events,
    listed::ListedNode,
    plan::{self, FailedWrite, PodCidrRules, identity},
};
use crate::{
    metrics::Metrics,
    node::pod_cidrs,
    runtime::{
        events::EventRecorder, patch::ApiError, store::ObjectKey, work_queue::ReconcilePriority, worker::ReconcileQueue,
    },
};

/// How long an initialisation waits for the pool to be read, before it goes on without pod CIDRs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether blocks are given out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PoolPhase {
    /// Another replica gives them out.
    Closed,
    /// What Nodes have is being read.
    Reading,
    /// Patches of the former leader may be under way.
    Quarantined,
    /// What Nodes have cannot be read or taken in, and why.
    Refused(String),
    Open,
}

#[derive(Default)]
struct PoolState {
    allocations: Option<Allocations>,
    /// Nodes that went while a list was read that may still have them.
    gone: Option<HashSet<Box<str>>>,
    /// Nodes without pod CIDRs that a patch of the former leader may still reach, with the version that it would be on.
    at_risk: HashMap<Box<str>, String>,
    /// Nodes whose initialisation does not get on, or whose API server takes no pod CIDRs with it.
    apart: HashSet<Box<str>>,
    /// Nodes for which no block was left.
    waiting: HashSet<ObjectKey>,
    /// Nodes that the informer's selector shows no longer.
    unseen: HashMap<ObjectKey, HashSet<Box<str>>>,
}

pub struct PodCidrPool {
    config: NodeIpamConfig,
    state: Mutex<PoolState>,
    phase: watch::Sender<PoolPhase>,
    queue: ReconcileQueue<ObjectKey>,
    metrics: Arc<Metrics>,
    events: EventRecorder,
}

impl PodCidrPool {
    pub(super) fn new(
        config: NodeIpamConfig,
        queue: ReconcileQueue<ObjectKey>,
        metrics: Arc<Metrics>,
        events: EventRecorder,
    ) -> Self {
        Self { config, state: Mutex::default(), phase: watch::Sender::new(PoolPhase::Closed), queue, metrics, events }
    }

    pub(super) fn phase(&self) -> PoolPhase {
        self.phase.borrow().clone()
    }

    fn is_open(&self) -> bool {
        *self.phase.borrow() == PoolPhase::Open
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in from here on what the watch tells. [`Self::finish_reading`] ends it.
    pub(super) fn start_reading(&self, nothing: Allocations) {
        let mut state = self.state();
        *state = PoolState { allocations: Some(nothing), gone: Some(HashSet::new()), ..PoolState::default() };
        drop(state);
        self.phase.send_replace(PoolPhase::Reading);
    }

    /// Takes in a list of all Nodes, and those that the watch had told of before. `Err`: a Node has what cannot be taken in.
    pub(super) fn finish_reading(&self, listed: &[ListedNode], seen: &[Arc<Node>]) -> Result<(), String> {
        let mut state = self.state();
        let gone = state.gone.take().unwrap_or_default();
        let Some(allocations) = state.allocations.as_mut() else { return Ok(()) };
        let listed = listed.iter().map(|node| (node.identity(), node.name(), node.pod_cidrs()));
        let seen = seen.iter().map(|node| (identity(node), crate::node::name(node), pod_cidrs(node)));
        for (id, name, cidrs) in listed.chain(seen).filter(|(id, _, cidrs)| !cidrs.is_empty() && !gone.contains(*id)) {
            if let Err(error) = allocations.observe(id, cidrs) {
                match error {
                    ForeignCidrError::TooLarge(..) => self.events.record(events::ignored(name, id, &error)),
                    ForeignCidrError::OutOfRange(_) if self.config.allocator == CidrAllocatorType::RangeAllocator => {
                        tracing::warn!(node = name, %error, "pod CIDRs that were not given out here");
                    }
                    _ => return Err(format!("Node {name}: {error}")),
                }
            }
        }
        Ok(())
    }

    /// Gives out blocks, or tells why not.
    pub(super) fn decide(&self, phase: PoolPhase) {
        self.phase.send_replace(phase);
    }

    /// Waits until no patch of a former leader can give any of these Nodes pod CIDRs: each has changed since `listed`, so that such a
    /// patch is a conflict, or the time is over within which the server may carry one out.
    pub(super) async fn quarantine(&self, listed: &[ListedNode], seen: &[Arc<Node>], horizon: Duration) {
        let bare = listed.iter().filter(|node| node.pod_cidrs().is_empty());
        let at_risk = bare.map(|node| (node.identity().into(), node.version().to_owned())).collect();
        self.state().at_risk = at_risk;
        self.phase.send_replace(PoolPhase::Quarantined);
        seen.iter().for_each(|node| self.note_version(node));
        self.settle_quarantine();
        let mut phase = self.phase.subscribe();
        let _ = tokio::time::timeout(horizon, phase.wait_for(|phase| *phase != PoolPhase::Quarantined)).await;
        self.state().at_risk.clear();
        self.phase.send_replace(PoolPhase::Open);
    }

    fn note_version(&self, node: &Node) {
        let mut state = self.state();
        let Some(version) = state.at_risk.get(identity(node)) else { return };
        if plan::is_later(node.metadata.resource_version.as_deref(), version) {
            state.at_risk.remove(identity(node));
        }
    }

    fn settle_quarantine(&self) {
        if self.state().at_risk.is_empty() {
            self.phase.send_if_modified(|phase| {
                let ends = *phase == PoolPhase::Quarantined;
                if ends {
                    *phase = PoolPhase::Open;
                }
                ends
            });
        }
    }

    /// Resolves when it is decided whether blocks are given out now, or that takes too long.
    pub async fn decided(&self) {
        let mut phase = self.phase.subscribe();
        let is_decided = |phase: &PoolPhase| !matches!(phase, PoolPhase::Closed | PoolPhase::Reading);
        let _ = tokio::time::timeout(PATIENCE, phase.wait_for(is_decided)).await;
    }

    /// A Node as the watch or a read shows it.
    pub(super) fn observe(&self, node: &Node) {
        if *self.phase.borrow() == PoolPhase::Closed {
            return;
        }
        self.note_version(node);
        if let Some(allocations) = self.state().allocations.as_mut() {
            allocations.is_at(identity(node), node.metadata.resource_version.as_deref());
        }
        let cidrs = pod_cidrs(node);
        if !cidrs.is_empty() {
            self.take_in(node, cidrs);
        }
        if *self.phase.borrow() == PoolPhase::Quarantined {
            self.settle_quarantine();
        }
    }

    fn take_in(&self, node: &Node, cidrs: &[String]) {
        let mut state = self.state();
        state.apart.remove(identity(node));
        let Some(allocations) = state.allocations.as_mut() else { return };
        match allocations.observe(identity(node), cidrs) {
            Ok(ObservedCidrs::Known | ObservedCidrs::Confirmed) => {}
            Ok(ObservedCidrs::Foreign) => {
                tracing::debug!(node = crate::node::name(node), ?cidrs, "pod CIDRs that were given out elsewhere");
                self.wake(&mut state);
            }
            Err(error) => {
                let name = crate::node::name(node);
                tracing::warn!(node = name, %error, "pod CIDRs that were not given out here");
                if matches!(error, ForeignCidrError::TooLarge(..)) {
                    self.events.record(events::ignored(name, identity(node), &error));
                }
            }
        }
    }

    /// A Node that the watch shows no longer: it is gone, but for one that the informer's selector may hide.
    pub(super) fn vanished(&self, node: &Node) {
        let mut state = self.state();
        if let Some(gone) = state.gone.as_mut().filter(|_| !self.config.nodes_are_filtered) {
            gone.insert(identity(node).into());
        }
        if state.allocations.is_none() {
            return;
        }
        if self.config.nodes_are_filtered {
            let key = ObjectKey::of(node);
            state.unseen.entry(key.clone()).or_default().insert(identity(node).into());
            drop(state);
            self.queue.add(key, ReconcilePriority::Deletion);
        } else {
            self.let_go(&mut state, identity(node));
            drop(state);
            self.settle_quarantine();
        }
    }

    /// The UIDs under which a Node was seen that the informer shows no longer.
    pub(super) fn take_unseen(&self, key: &ObjectKey) -> HashSet<Box<str>> {
        self.state().unseen.remove(key).unwrap_or_default()
    }

    pub(super) fn put_back_unseen(&self, key: &ObjectKey, ids: HashSet<Box<str>>) {
        self.state().unseen.entry(key.clone()).or_default().extend(ids);
    }

    /// The Node with this UID is gone.
    pub(super) fn gone(&self, id: &str) {
        let mut state = self.state();
        self.let_go(&mut state, id);
    }

    fn let_go(&self, state: &mut PoolState, id: &str) {
        state.apart.remove(id);
        state.at_risk.remove(id);
        let released = state.allocations.as_mut().is_some_and(|allocations| allocations.release(id));
        if released {
            self.wake(state);
        }
    }

    /// A block has come back: whoever waits for one tries again.
    fn wake(&self, state: &mut PoolState) {
        for key in std::mem::take(&mut state.waiting) {
            self.queue.add(key, ReconcilePriority::NodeChange);
        }
    }

    /// What decides whether `node` waits for something.
    pub(super) fn rules(&self, node: &Node, merges: bool) -> PodCidrRules {
        let is_cloud = self.config.allocator == CidrAllocatorType::CloudAllocator;
        let is_apart = || self.state().apart.contains(identity(node));
        PodCidrRules { comes_with_initialization: merges && !is_cloud && !is_apart(), needs_provider_id: is_cloud }
    }

    /// Blocks for `node`, the same ones until it is known that it does not get them. `prefixes`: one for each cluster CIDR.
    pub(super) fn reserve(&self, node: &Node, prefixes: &[u8]) -> Result<Vec<IpNet>, AllocationError> {
        let mut state = self.state();
        let reserved = state.allocations.as_mut().map(|allocations| allocations.reserve(identity(node), prefixes));
        let result = match reserved {
            None => return Ok(Vec::new()),
            Some(Err(error)) => {
                state.waiting.insert(ObjectKey::of(node));
                Err(error)
            }
            Some(Ok((cidrs, passed))) => {
                self.count_tries(&passed);
                Ok(cidrs)
            }
        };
        drop(state);
        result
    }

    fn count_tries(&self, passed: &[usize]) {
        for (cluster, passed) in self.config.cluster_cidrs.iter().zip(passed) {
            let tries = f64::from(u32::try_from(*passed).unwrap_or(u32::MAX));
            let metric = &self.metrics.cidrset_allocation_tries;
            metric.with_label_values(&[&cluster.trunc().to_string()]).observe(tries);
        }
    }

    /// The prefixes that the flags say, one for each cluster CIDR.
    pub(super) fn prefixes(&self) -> Vec<u8> {
        self.config.cluster_cidrs.iter().map(|cluster| self.config.mask(cluster)).collect()
    }

    /// What the patch that initialises `node`, on this version of it, says in its spec, so that it gets its pod CIDRs with it.
    /// [`Self::settle`] has to be told how that ends. `None`: it gets them some other way.
    pub fn spec_for(&self, node: &Node, version: Option<&str>) -> Option<Map<String, Value>> {
        let is_merged = self.rules(node, true).comes_with_initialization;
        if !self.is_open() || !is_merged || !pod_cidrs(node).is_empty() {
            return None;
        }
        let cidrs = self.reserve(node, &self.prefixes()).ok().filter(|cidrs| !cidrs.is_empty())?;
        self.patch_begins(node, &cidrs, version).then(|| plan::spec_with(&cidrs))
    }

    /// What became of the patch that [`Self::spec_for`] was for. One that was refused is sent without pod CIDRs the next time.
    pub fn settle(&self, node: &Node, version: Option<&str>, error: Option<&ApiError>) {
        self.patch_ended(node, version, error);
        if error.map(plan::failed_write) == Some(FailedWrite::Refused) {
            // First, so that whoever goes ahead reserves anew.
            self.withdraw(node);
            if matches!(error, Some(ApiError::Rejected(_) | ApiError::Forbidden(_))) {
                self.go_ahead(node);
            }
        }
    }

    /// A patch is about to be sent. `false`: what it brings is not the Node's any more. A version that nobody knows is never passed.
    pub(super) fn patch_begins(&self, node: &Node, cidrs: &[IpNet], version: Option<&str>) -> bool {
        let mut state = self.state();
        let allocations = state.allocations.as_mut();
        allocations.is_some_and(|all| all.patch_begins(identity(node), cidrs, version.unwrap_or_default()))
    }

    /// What became of it. After silence it may be carried out yet.
    pub(super) fn patch_ended(&self, node: &Node, version: Option<&str>, error: Option<&ApiError>) {
        match error.map(plan::failed_write) {
            None => self.confirm(node),
            Some(FailedWrite::Unknown) => {}
            Some(FailedWrite::Conflict | FailedWrite::Refused) => {
                if let Some(allocations) = self.state().allocations.as_mut() {
                    allocations.patch_failed(identity(node), version.unwrap_or_default());
                }
            }
        }
    }

    /// The Node has been given what was reserved for it.
    pub(super) fn confirm(&self, node: &Node) {
        let mut state = self.state();
        state.at_risk.remove(identity(node));
        if let Some(allocations) = state.allocations.as_mut() {
            allocations.confirm(identity(node));
        }
    }

    /// The Node does not get what was reserved for it, unless a patch may still give it that.
    pub(super) fn withdraw(&self, node: &Node) {
        let mut state = self.state();
        if state.allocations.as_mut().is_some_and(|allocations| allocations.withdraw(identity(node))) {
            self.wake(&mut state);
        }
    }

    /// The initialisation of the Node at `key` does not get on: it gets its pod CIDRs without.
    pub fn go_ahead(&self, node: &Node) {
        if pod_cidrs(node).is_empty() && self.state().apart.insert(identity(node).into()) {
            self.queue.add(ObjectKey::of(node), ReconcilePriority::NodeChange);
        }
    }

    /// Whether the Node has its pod CIDRs, although the store may not show them yet.
    pub(super) fn has(&self, node: &Node) -> bool {
        self.state().allocations.as_ref().is_some_and(|allocations| allocations.is_written(identity(node)))
    }

    /// The Nodes that have pod CIDRs, or may have.
    pub(super) fn holders(&self) -> HashSet<Box<str>> {
        self.state().allocations.as_ref().map(Allocations::written).unwrap_or_default()
    }

    /// Cluster CIDRs with what is taken of them, and the number of Nodes that have blocks.
    pub(super) fn facts(&self) -> Vec<(String, String)> {
        let state = self.state();
        let Some(allocations) = state.allocations.as_ref() else { return Vec::new() };
        let usage = allocations
            .usage()
            .into_iter()
            .map(|(cluster, taken, units)| (format!("blocks taken of {cluster}"), format!("{taken} of {units}")));
        usage.chain([("nodes with pod CIDRs".to_owned(), allocations.len().to_string())]).collect()
    }

    /// Brings the metrics up to date.
    pub(super) fn publish(&self) {
        let usage = self.state().allocations.as_mut().map(Allocations::take_usage).unwrap_or_default();
        let count = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        for usage in usage {
            let label = &[usage.cluster.to_string()];
            let share = count(usage.taken as u64) / count(usage.units as u64);
            self.metrics.cidrset_usage.with_label_values(label).set(share);
            self.metrics.cidrset_allocations_total.with_label_values(label).inc_by(count(usage.counts.taken));
            self.metrics.cidrset_releases_total.with_label_values(label).inc_by(count(usage.counts.returned));
        }
    }
}

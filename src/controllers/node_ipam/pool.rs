//! Pod CIDR pool of a cluster. Its users are the node-ipam controller, and the node controller, whose patches set pod CIDRs.
//!
//! In: Nodes from the initial list and the watch, and results of patches. Out: blocks for a Node. [`Allocations`] makes all
//! decisions. The pool is closed until all allocations of earlier leaders have been read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::{
    allocations::{AllocationError, Allocations, ForeignCidrError},
    config::{CidrAllocatorType, NodeIpamConfig},
    events,
    listed::ListedNode,
    plan::{self, FailedWrite, PodCidrRules, identity},
};
use crate::{
    metrics::Metrics,
    node::pod_cidrs,
    runtime::{
        events::EventRecorder, patch::ApiError, store::ObjectKey, watch, work_queue::ReconcilePriority,
        worker::ReconcileQueue,
    },
};

/// Time that an initialization waits for the pool to be read, before it continues without pod CIDRs.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// State of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PoolPhase {
    /// Another replica allocates pod CIDRs, or none does yet.
    Closed,
    /// The pod CIDRs of Nodes are being read.
    Reading,
    /// Patches of the former leader may be in flight.
    Quarantined,
    /// The pod CIDRs of Nodes cannot be read or recorded, for this reason.
    Refused(String),
    Open,
}

#[derive(Default)]
struct PoolState {
    /// Empty while the pool is closed.
    allocations: Allocations,
    /// Nodes that were deleted while a list was read that may still contain them.
    deleted: Option<BTreeSet<Box<str>>>,
    /// Nodes without pod CIDRs that a patch of the former leader may still reach, with the version that it would be on.
    at_risk: BTreeMap<Box<str>, String>,
    /// Nodes whose initialization is blocked, or whose API server does not accept pod CIDRs with it.
    allocated_separately: BTreeSet<Box<str>>,
    /// Nodes for which no block was left.
    waiting: BTreeSet<ObjectKey>,
    /// Nodes that the informer's selector shows no longer.
    unseen: BTreeMap<ObjectKey, BTreeSet<Box<str>>>,
}

/// Pod CIDRs of a cluster: which Node has which, and which are free.
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

    /// Starts to record watch events while the Nodes are being listed. [`Self::finish_reading`] ends this phase.
    pub(super) fn start_reading(&self, empty: Allocations) {
        let mut state = self.state.lock();
        *state = PoolState { allocations: empty, deleted: Some(BTreeSet::new()), ..PoolState::default() };
        drop(state);
        self.phase.send_replace(PoolPhase::Reading);
    }

    /// Records a list of all Nodes, and `seen`, those that the watch has reported before.
    ///
    /// # Errors
    ///
    /// A Node has pod CIDRs that cannot be recorded.
    pub(super) fn finish_reading(&self, listed: &[ListedNode], seen: &[Arc<Node>]) -> Result<(), String> {
        let mut state = self.state.lock();
        let deleted = state.deleted.take().unwrap_or_default();
        let listed =
            listed.iter().map(|node| (node.identity(), node.metadata.name.as_str(), node.spec.pod_cidrs.as_slice()));
        let seen = seen.iter().map(|node| (identity(node), crate::node::name(node), pod_cidrs(node)));
        for (id, name, cidrs) in listed.chain(seen).filter(|(id, _, cidrs)| !cidrs.is_empty() && !deleted.contains(*id)) {
            if let Err(error) = state.allocations.observe(id, cidrs) {
                match error {
                    ForeignCidrError::TooLarge(..) => self.events.record(events::ignored(name, id, &error)),
                    ForeignCidrError::OutOfRange(_) if self.config.allocator == CidrAllocatorType::RangeAllocator => {
                        tracing::warn!(node = name, %error, "found pod CIDRs that this process did not allocate");
                    }
                    _ => return Err(format!("Node {name}: {error}")),
                }
            }
        }
        Ok(())
    }

    /// Sets the phase after the Nodes were read, or could not be.
    pub(super) fn decide(&self, phase: PoolPhase) {
        self.phase.send_replace(phase);
    }

    /// Waits until no patch of a former leader can set the pod CIDRs of any of these Nodes.
    ///
    /// Each has then changed since `listed`, so that such a patch conflicts, or the time has passed within which the server
    /// may execute it.
    pub(super) async fn quarantine(&self, listed: &[ListedNode], seen: &[Arc<Node>], max_wait: Duration) {
        let bare = listed.iter().filter(|node| node.spec.pod_cidrs.is_empty());
        let at_risk = bare.map(|node| (node.identity().into(), node.metadata.resource_version.clone())).collect();
        self.state.lock().at_risk = at_risk;
        self.phase.send_replace(PoolPhase::Quarantined);
        seen.iter().for_each(|node| self.note_version(node));
        self.settle_quarantine();
        let mut phase = self.phase.subscribe();
        let _ = tokio::time::timeout(max_wait, phase.wait_for(|phase| *phase != PoolPhase::Quarantined)).await;
        self.state.lock().at_risk.clear();
        self.phase.send_replace(PoolPhase::Open);
    }

    fn note_version(&self, node: &Node) {
        let mut state = self.state.lock();
        let Some(version) = state.at_risk.get(identity(node)) else { return };
        if plan::is_later(node.metadata.resource_version.as_deref(), version) {
            state.at_risk.remove(identity(node));
        }
    }

    fn settle_quarantine(&self) {
        if self.state.lock().at_risk.is_empty() {
            self.phase.send_if_modified(|phase| {
                let ends = *phase == PoolPhase::Quarantined;
                if ends {
                    *phase = PoolPhase::Open;
                }
                ends
            });
        }
    }

    /// Waits until it is decided whether this process allocates blocks, at most 30 seconds.
    ///
    /// An initialization that waits longer continues without pod CIDRs.
    pub async fn wait_until_decided(&self) {
        let mut phase = self.phase.subscribe();
        let is_decided = |phase: &PoolPhase| !matches!(phase, PoolPhase::Closed | PoolPhase::Reading);
        let _ = tokio::time::timeout(READY_TIMEOUT, phase.wait_for(is_decided)).await;
    }

    /// Records a Node from the watch or a read.
    pub(super) fn observe(&self, node: &Node) {
        if *self.phase.borrow() == PoolPhase::Closed {
            return;
        }
        self.note_version(node);
        self.state.lock().allocations.record_version(identity(node), node.metadata.resource_version.as_deref());
        let cidrs = pod_cidrs(node);
        if !cidrs.is_empty() {
            self.record_cidrs(node, cidrs);
        }
        if *self.phase.borrow() == PoolPhase::Quarantined {
            self.settle_quarantine();
        }
    }

    fn record_cidrs(&self, node: &Node, cidrs: &[String]) {
        let mut state = self.state.lock();
        state.allocated_separately.remove(identity(node));
        match state.allocations.observe(identity(node), cidrs) {
            Ok(false) => {}
            Ok(true) => {
                tracing::debug!(node = crate::node::name(node), ?cidrs, "found pod CIDRs from another allocator");
                self.retry_waiting(&mut state);
            }
            Err(error) => {
                let name = crate::node::name(node);
                tracing::warn!(node = name, %error, "found pod CIDRs that this process did not allocate");
                if matches!(error, ForeignCidrError::TooLarge(..)) {
                    self.events.record(events::ignored(name, identity(node), &error));
                }
            }
        }
    }

    /// Records that the watch no longer shows a Node: it is deleted, or hidden by the informer's selector.
    pub(super) fn on_removed(&self, node: &Node) {
        let mut state = self.state.lock();
        if let Some(deleted) = state.deleted.as_mut().filter(|_| !self.config.nodes_are_filtered) {
            deleted.insert(identity(node).into());
        }
        if *self.phase.borrow() == PoolPhase::Closed {
            return;
        }
        if self.config.nodes_are_filtered {
            let key = ObjectKey::of(node);
            state.unseen.entry(key.clone()).or_default().insert(identity(node).into());
            drop(state);
            self.queue.add(key, ReconcilePriority::Deletion);
        } else {
            self.release(&mut state, identity(node));
            drop(state);
            self.settle_quarantine();
        }
    }

    /// Returns the UIDs of the Nodes of this key that the informer no longer shows.
    pub(super) fn take_unseen(&self, key: &ObjectKey) -> BTreeSet<Box<str>> {
        self.state.lock().unseen.remove(key).unwrap_or_default()
    }

    /// Records these UIDs again, after the Nodes could not be read.
    pub(super) fn put_back_unseen(&self, key: &ObjectKey, ids: BTreeSet<Box<str>>) {
        self.state.lock().unseen.entry(key.clone()).or_default().extend(ids);
    }

    /// Records the deletion of the Node with this UID.
    pub(super) fn on_deleted(&self, id: &str) {
        let mut state = self.state.lock();
        self.release(&mut state, id);
    }

    fn release(&self, state: &mut PoolState, id: &str) {
        state.allocated_separately.remove(id);
        state.at_risk.remove(id);
        if state.allocations.release(id) {
            self.retry_waiting(state);
        }
    }

    /// Enqueues all Nodes that wait for a block, because one was released.
    fn retry_waiting(&self, state: &mut PoolState) {
        for key in std::mem::take(&mut state.waiting) {
            self.queue.add(key, ReconcilePriority::NodeChange);
        }
    }

    /// Returns the rules that decide whether `node` waits for something. `has_node_controller` is whether the patch that initializes a
    /// Node can set its pod CIDRs.
    pub(super) fn rules(&self, node: &Node, has_node_controller: bool) -> PodCidrRules {
        let is_cloud = self.config.allocator == CidrAllocatorType::CloudAllocator;
        let is_separate = || self.state.lock().allocated_separately.contains(identity(node));
        let comes_with_initialization = has_node_controller && !is_cloud && !is_separate();
        PodCidrRules { comes_with_initialization, needs_provider_id: is_cloud }
    }

    /// Reserves blocks for `node`, one with each prefix for each cluster CIDR. Returns the same blocks until they are withdrawn.
    ///
    /// # Errors
    ///
    /// A cluster CIDR is exhausted, in which case the Node is enqueued after the next release, or a prefix does not fit.
    pub(super) fn reserve(&self, node: &Node, prefixes: &[u8]) -> Result<Vec<IpNet>, AllocationError> {
        let mut state = self.state.lock();
        let reserved = state.allocations.reserve(identity(node), prefixes);
        if reserved.is_err() {
            state.waiting.insert(ObjectKey::of(node));
        }
        drop(state);
        let (cidrs, passed) = reserved?;
        for (cluster, passed) in self.config.cluster_cidrs.iter().zip(passed) {
            let tries = f64::from(u32::try_from(passed).unwrap_or(u32::MAX));
            let metric = &self.metrics.cidrset_allocation_tries;
            metric.with_label_values(&[&cluster.trunc().to_string()]).observe(tries);
        }
        Ok(cidrs)
    }

    /// Returns the prefixes of the flags, one for each cluster CIDR.
    pub(super) fn prefixes(&self) -> Vec<u8> {
        self.config.cluster_cidrs.iter().map(|cluster| self.config.mask(cluster)).collect()
    }

    /// Returns the fields of the spec to set in the patch that initializes this version of `node`, or `None` if the patch must not set pod
    /// CIDRs.
    ///
    /// The caller must report the result of the patch to [`Self::settle`]; until then the blocks remain reserved.
    pub fn spec_for(&self, node: &Node, version: Option<&str>) -> Option<Map<String, Value>> {
        let comes_along = self.rules(node, true).comes_with_initialization;
        if self.phase() != PoolPhase::Open || !comes_along || !pod_cidrs(node).is_empty() {
            return None;
        }
        let cidrs = self.reserve(node, &self.prefixes()).ok().filter(|cidrs| !cidrs.is_empty())?;
        self.patch_begins(node, &cidrs, version).then(|| plan::spec_with(&cidrs))
    }

    /// Records the result of the patch that contained [`Self::spec_for`].
    ///
    /// After a rejection, the node-ipam controller allocates the pod CIDRs in a separate patch, so the next initialization must not set them.
    pub fn settle(&self, node: &Node, version: Option<&str>, error: Option<&ApiError>) {
        self.patch_ended(node, version, error);
        if error.map(plan::failed_write) == Some(FailedWrite::Refused) {
            // Withdraw first, so that a separate allocation reserves new blocks.
            self.withdraw(node);
            if matches!(error, Some(ApiError::Rejected(_) | ApiError::Forbidden(_))) {
                self.allocate_separately(node);
            }
        }
    }

    /// Records a patch before it is sent. Returns `false` if its CIDRs are no longer the Node's. A version that cannot be
    /// compared never expires.
    pub(super) fn patch_begins(&self, node: &Node, cidrs: &[IpNet], version: Option<&str>) -> bool {
        self.state.lock().allocations.patch_begins(identity(node), cidrs, version.unwrap_or_default())
    }

    /// Records the result of a patch. Without a response it may still be executed.
    pub(super) fn patch_ended(&self, node: &Node, version: Option<&str>, error: Option<&ApiError>) {
        match error.map(plan::failed_write) {
            None => self.confirm(node),
            Some(FailedWrite::Unknown) => {}
            Some(FailedWrite::Conflict | FailedWrite::Refused) => {
                self.state.lock().allocations.patch_failed(identity(node), version.unwrap_or_default());
            }
        }
    }

    /// Records that the Node has its reserved blocks.
    pub(super) fn confirm(&self, node: &Node) {
        let mut state = self.state.lock();
        state.at_risk.remove(identity(node));
        state.allocations.confirm(identity(node));
    }

    /// Releases the blocks reserved for the Node, unless a patch may still set them.
    pub(super) fn withdraw(&self, node: &Node) {
        let mut state = self.state.lock();
        if state.allocations.withdraw(identity(node)) {
            self.retry_waiting(&mut state);
        }
    }

    /// Allocates the pod CIDRs of `node` in a separate patch because its initialization is blocked.
    pub fn allocate_separately(&self, node: &Node) {
        if pod_cidrs(node).is_empty() && self.state.lock().allocated_separately.insert(identity(node).into()) {
            self.queue.add(ObjectKey::of(node), ReconcilePriority::NodeChange);
        }
    }

    /// Returns `true` if the Node has its pod CIDRs, although the store may lack them yet.
    pub(super) fn has(&self, node: &Node) -> bool {
        self.state.lock().allocations.is_written(identity(node))
    }

    /// Returns the Nodes that have, or may have, pod CIDRs.
    pub(super) fn holders(&self) -> BTreeSet<Box<str>> {
        self.state.lock().allocations.written()
    }

    /// Returns the usage of each cluster CIDR, and the number of Nodes that have blocks.
    pub(super) fn facts(&self) -> Vec<(String, String)> {
        if *self.phase.borrow() == PoolPhase::Closed {
            return Vec::new();
        }
        let state = self.state.lock();
        let usage =
            state.allocations.usage().into_iter().map(|(cluster, allocated, units)| {
                (format!("blocks taken of {cluster}"), format!("{allocated} of {units}"))
            });
        usage.chain([("nodes with pod CIDRs".to_owned(), state.allocations.len().to_string())]).collect()
    }

    /// Updates the metrics of each cluster CIDR.
    pub(super) fn publish(&self) {
        let count = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        for set in self.state.lock().allocations.sets() {
            let (label, counts) = (&[set.cluster.to_string()], set.take_counts());
            let share = count(set.allocated as u64) / count(set.units() as u64);
            self.metrics.cidrset_usage.with_label_values(label).set(share);
            self.metrics.cidrset_allocations_total.with_label_values(label).inc_by(count(counts.allocated));
            self.metrics.cidrset_releases_total.with_label_values(label).inc_by(count(counts.released));
        }
    }
}

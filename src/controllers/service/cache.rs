//! State of the service controller: the last applied state of each Service, the hosts, and the node change in progress.
//!
//! Plain data behind one lock that is never held across an await; the methods are the only places that change it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, Service};
use tokio::time::Instant;

use super::{
    conditions::LoadBalancerPhase,
    gauges::{self, STAGES, UnsettledServices},
    labels::SelectedLabels,
    needs_update::{ServiceFingerprint, is_being_deleted, needs_cleanup},
    plan::{AppliedService, ServiceStatusUpdate},
    predicates::{LoadBalancerHosts, NodeSet},
};
use crate::{
    cloud_provider::{
        drift::DriftLog,
        load_balancer_class::{LoadBalancerClasses, is_load_balancer},
    },
    controllers::restoration::Restoration,
    metrics::Metrics,
    runtime::{informer::ObjectChange, store::ObjectKey},
};

/// Maximum number of replaced versions that are cached of a Service; one reconcile writes no more.
const MAX_REPLACED: usize = 4;

/// Time from a change that the provider does not read until the Service is compared with the cloud.
///
/// Further changes during that time cause no other comparison.
const UNREAD_CHANGE_DELAY: Duration = Duration::from_secs(300);

/// State of the service controller.
#[derive(Debug, Default)]
pub(super) struct ServiceCache {
    /// Classes that this manager serves.
    classes: LoadBalancerClasses,
    /// Every Service that has, or may have, a load balancer of ours.
    applied: BTreeMap<ObjectKey, AppliedService>,
    unsettled: UnsettledServices,
    /// Current hosts; `None` after a Node changed.
    hosts: Option<Arc<LoadBalancerHosts>>,
    /// Last set of hosts, shared by all load balancers that have it.
    last_set: Option<NodeSet>,
    /// Time of the first node change that has not been processed yet.
    nodes_changed: Option<Instant>,
    /// Start of the node change in progress, and the Services that it waits for.
    node_sync: Option<(Instant, BTreeSet<ObjectKey>)>,
    /// Changes by other writers to Services, for status pages.
    pub(super) drift: DriftLog,
}

impl ServiceCache {
    pub(super) fn new(classes: LoadBalancerClasses) -> Self {
        Self { classes, ..Self::default() }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&AppliedService> {
        self.applied.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &AppliedService)> {
        self.applied.iter()
    }

    /// Records a change to a Service. Returns `true` if a Service that may have a load balancer was deleted.
    ///
    /// A replica that does not lead follows what it observes; the leader forgets nothing that it has not cleaned up.
    pub(super) fn observe(&mut self, change: &ObjectChange<Service>, leading: bool) -> bool {
        let key = ObjectKey::of(change.object().as_ref());
        match change {
            ObjectChange::Deleted(_) if leading => return self.applied.contains_key(&key),
            ObjectChange::Deleted(_) => self.forget(&key),
            ObjectChange::Added(new) | ObjectChange::Updated { new, .. } if may_have_load_balancer(&self.classes, new) => {
                let untracked = || AppliedService::unsynced(Arc::clone(new));
                if leading {
                    let applied = self.applied.entry(key).or_insert_with(untracked);
                    let fingerprint = |service| ServiceFingerprint::of(&self.classes, service);
                    if fingerprint(&applied.service) == fingerprint(new) {
                        // One copy in memory, as the store has this one.
                        applied.service = Arc::clone(new);
                    }
                } else {
                    self.applied.insert(key, untracked());
                }
            }
            ObjectChange::Added(_) | ObjectChange::Updated { .. } if leading => {}
            ObjectChange::Added(_) | ObjectChange::Updated { .. } => drop(self.applied.remove(&key)),
        }
        false
    }

    /// Marks `service` as unsynced before a provider call; the cached state is invalid until the call succeeds.
    pub(super) fn mark_pending(&mut self, key: &ObjectKey, service: &Arc<Service>, phase: LoadBalancerPhase) {
        let applied = self.applied.entry(key.clone()).or_insert_with(|| AppliedService::unsynced(Arc::clone(service)));
        applied.service = Arc::clone(service);
        applied.synced = false;
        if phase != LoadBalancerPhase::Updating {
            (applied.verify, applied.compare_at) = (false, None);
        }
        applied.phase = Some(phase);
        self.unsettled.begin(key, Instant::now());
    }

    /// Records that the call succeeded for these hosts and labels.
    pub(super) fn mark_synced(
        &mut self,
        key: &ObjectKey,
        (nodes, labels): (&NodeSet, SelectedLabels),
        update: ServiceStatusUpdate,
    ) {
        if let Some(applied) = self.applied.get_mut(key) {
            applied.synced = true;
            applied.nodes = Some(nodes.clone());
            applied.labels = labels;
            applied.phase = Some(update.phase.clone());
            applied.unpublished = Some(update);
        }
    }

    /// Records that a change of hosts was postponed: load balancer and hosts are unchanged.
    pub(super) fn postpone_update(&mut self, key: &ObjectKey) {
        self.applied.entry(key.clone()).and_modify(|applied| applied.synced = true);
    }

    /// Records that the status of the Service contains the result of the last call. `published` are our addresses in it, if the call
    /// returned any.
    pub(super) fn mark_published(&mut self, key: &ObjectKey, published: Option<LoadBalancerStatus>) {
        self.record_published(key, published);
        self.applied.entry(key.clone()).and_modify(|applied| applied.unpublished = None);
        self.unsettled.end(key);
    }

    /// Records our addresses in a Service that is not settled yet; `None` keeps the recorded ones.
    pub(super) fn record_published(&mut self, key: &ObjectKey, published: Option<LoadBalancerStatus>) {
        self.applied
            .entry(key.clone())
            .and_modify(|applied| applied.published = published.or_else(|| applied.published.take()));
    }

    /// Forgets which addresses in the Service are ours: the next result replaces all.
    pub(super) fn forget_published(&mut self, key: &ObjectKey) {
        self.applied.entry(key.clone()).and_modify(|applied| {
            applied.published = None;
            applied.is_reported = false;
        });
    }

    /// Records that an event reports a change by another writer. Returns `true` if none did before.
    pub(super) fn mark_reported(&mut self, key: &ObjectKey) -> bool {
        self.applied.get_mut(key).is_some_and(|applied| !std::mem::replace(&mut applied.is_reported, true))
    }

    /// Records that this process has overwritten `version` of the Service.
    pub(super) fn mark_replaced(&mut self, key: &ObjectKey, version: Option<&str>) {
        let Some((applied, version)) = self.applied.get_mut(key).zip(version) else { return };
        let surplus = (applied.replaced.len() + 1).saturating_sub(MAX_REPLACED);
        applied.replaced.drain(..surplus);
        applied.replaced.push(version.to_owned());
    }

    /// Returns the time until the next restoration of the Service.
    pub(super) fn restoration_pause(&self, key: &ObjectKey, now: Instant) -> Duration {
        let last = self.applied.get(key).and_then(|applied| applied.restored);
        last.map_or(Duration::ZERO, |last| last.remaining(now))
    }

    /// Records a restoration after which our addresses in the Service are `published`.
    pub(super) fn mark_restored(&mut self, key: &ObjectKey, now: Instant, published: Option<LoadBalancerStatus>) {
        self.applied.entry(key.clone()).and_modify(|applied| {
            applied.restored = Some(Restoration::after(applied.restored, now));
            applied.published = published.or_else(|| applied.published.take());
        });
    }

    pub(super) fn set_phase(&mut self, key: &ObjectKey, phase: LoadBalancerPhase) {
        if let Some(applied) = self.applied.get_mut(key) {
            applied.phase = Some(phase);
            self.unsettled.begin(key, Instant::now());
        }
    }

    /// Returns the Service of the last provider call, or `None` if this process has made none.
    pub(super) fn attempted(&self, key: &ObjectKey) -> Option<Arc<Service>> {
        self.get(key).filter(|applied| applied.phase.is_some()).map(|applied| Arc::clone(&applied.service))
    }

    /// Replaces `old` by `new`, which requests the same load balancer. Returns the time until it is compared with the cloud.
    ///
    /// Returns `None` if `old` is no longer the Service of the last call.
    pub(super) fn postpone_change(
        &mut self,
        (key, old): (&ObjectKey, &Arc<Service>),
        new: &Arc<Service>,
        now: Instant,
    ) -> Option<Duration> {
        let applied = self.applied.get_mut(key).filter(|applied| Arc::ptr_eq(&applied.service, old))?;
        applied.service = Arc::clone(new);
        let due = *applied.compare_at.get_or_insert(now + UNREAD_CHANGE_DELAY);
        Some(due.saturating_duration_since(now))
    }

    /// Marks a Service for a comparison if that is due, or returns the time until it is due.
    ///
    /// Also returns `None` if no comparison is pending.
    pub(super) fn begin_comparison(&mut self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let applied = self.applied.get_mut(key)?;
        let wait = applied.compare_at?.saturating_duration_since(now);
        applied.verify |= wait.is_zero();
        (!wait.is_zero()).then_some(wait)
    }

    /// Forgets a Service whose load balancer is deleted.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.applied.remove(key);
        self.unsettled.end(key);
    }

    /// Marks every load balancer for a check, and returns their keys.
    ///
    /// A call in flight began before, so its success does not clear the mark.
    pub(super) fn verify_all(&mut self) -> Vec<ObjectKey> {
        self.applied.values_mut().for_each(|applied| applied.verify = true);
        self.applied.keys().cloned().collect()
    }

    /// Returns the Services of this namespace that have, or may have, a load balancer.
    pub(super) fn keys_in_namespace(&self, namespace: &str) -> Vec<ObjectKey> {
        self.applied.keys().filter(|key| key.namespace == namespace).cloned().collect()
    }

    /// Invalidates the hosts after a Node changed by more than a heartbeat.
    pub(super) fn invalidate_hosts(&mut self) {
        self.hosts = None;
    }

    /// Records that a Node changed in a way that affects load balancers. Only for the leader: standbys do not process node
    /// changes.
    pub(super) fn nodes_changed(&mut self, now: Instant) {
        self.nodes_changed.get_or_insert(now);
    }

    /// Returns the hosts among the Nodes that `list` returns.
    pub(super) fn hosts(&mut self, list: impl FnOnce() -> Vec<Arc<Node>>) -> Arc<LoadBalancerHosts> {
        let last_set = &mut self.last_set;
        let read = || {
            let hosts = LoadBalancerHosts::among(list(), last_set.as_ref());
            *last_set = Some(hosts.set.clone());
            Arc::new(hosts)
        };
        Arc::clone(self.hosts.get_or_insert_with(read))
    }

    /// Starts the sync of a node change to the Services at `keys`. Returns its age if it affects none.
    pub(super) fn begin_node_sync(&mut self, keys: &[ObjectKey], now: Instant) -> Option<Duration> {
        let since = self.nodes_changed.take().unwrap_or(now);
        if keys.is_empty() {
            return Some(now.saturating_duration_since(since));
        }
        self.node_sync.get_or_insert((since, BTreeSet::new())).1.extend(keys.iter().cloned());
        None
    }

    /// Records the end of a reconcile of `key`. Returns the age of the node change if that was the last Service it waited
    /// for.
    pub(super) fn end_node_sync(&mut self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let (since, waiting) = self.node_sync.as_mut()?;
        let since = *since;
        (waiting.remove(key) && waiting.is_empty()).then(|| {
            self.node_sync = None;
            now.saturating_duration_since(since)
        })
    }

    /// Returns the reason in the condition of the Service `namespace/name`.
    pub(super) fn phase_of(&self, key: &str) -> Option<&'static str> {
        let (namespace, name) = key.split_once('/')?;
        self.applied.get(&ObjectKey::namespaced(namespace, name)).map(gauges::reason)
    }

    /// Returns the number of load balancers in each phase.
    pub(super) fn phases(&self) -> BTreeMap<&'static str, usize> {
        let mut phases = BTreeMap::new();
        for applied in self.applied.values() {
            *phases.entry(gauges::reason(applied)).or_default() += 1;
        }
        phases
    }

    /// Updates the gauges. They are 0 on standby replicas, which do not reconcile Services.
    #[expect(clippy::cast_precision_loss, reason = "a number of Services is far below 2⁵³")]
    pub(super) fn publish(&self, metrics: &Metrics, leading: bool, now: Instant) {
        let phases = if leading { self.phases() } else { BTreeMap::new() };
        for (stage, reason) in STAGES {
            let count = phases.get(reason).copied().unwrap_or_default();
            metrics.services.with_label_values(&[stage, reason]).set(count as f64);
        }
        let reason_of = |key: &ObjectKey| self.applied.get(key).filter(|_| leading).map(gauges::reason);
        let oldest = self.unsettled.oldest(reason_of, now);
        metrics.oldest_unsettled_service.with_label_values::<&str>(&[]).set(oldest.as_secs_f64());
    }
}

/// Returns `true` if a Service may have a load balancer. A Service of another class is checked once; while another manager
/// holds it, it is not cached.
fn may_have_load_balancer(classes: &LoadBalancerClasses, service: &Service) -> bool {
    let awaits_deletion = needs_cleanup(classes, service) && (classes.wants(service) || !is_load_balancer(service));
    classes.is_managed(service) && (awaits_deletion || (classes.wants(service) && !is_being_deleted(service)))
}

#[cfg(test)]
mod tests;

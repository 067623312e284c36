//! Reconcile of one Service: reads the store, calls the provider, writes. [`super::plan`] makes all decisions.
//!
//! A reconcile runs in rounds: every round executes the next step of the plan until no work remains. After a conflict the
//! Service is read and planned again, without repeating a successful call of the provider.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use super::{
    cache::ServiceCache,
    conditions::LoadBalancerPhase,
    events,
    keys::{ALL_HOSTS, ALL_NODES, COALESCING_DELAY},
    labels::SelectedLabels,
    missing_right::MissingRight,
    needs_update::{change_event, is_being_deleted, is_handed_over, owns_finalizer},
    plan::{self, EnsureReason, ServiceAction, ServiceStatusUpdate, ServiceSyncError, SyncResult},
    predicates::LoadBalancerHosts,
    status_patch,
};
use crate::{
    cloud_provider::{CloudError, LoadBalancer, LoadBalancerStatus, load_balancer_class::LoadBalancerClasses},
    controllers::ControllerContext,
    runtime::{
        events::RecordedEvent,
        patch::ApiError,
        store::{InformerStore, ObjectKey},
        work_queue::{ReconcilePriority, ReconcileResult},
        worker::ReconcileQueue,
    },
};

/// Maximum number of rounds of one reconcile. A Service that still conflicts afterwards is retried with backoff.
pub(super) const MAX_ROUNDS: usize = 10;

/// Result of one round.
pub(super) enum ServiceRoundResult {
    Done,
    /// Plan again, for the current Service.
    Replan,
    /// Plan again; the load balancer already has the current hosts.
    Applied,
    /// Wait for this time, because another writer keeps removing the fields that this one writes.
    Later(Duration),
}

/// Shorthand for results of the steps of a round.
pub(super) type RoundResult = SyncResult<ServiceRoundResult>;

/// Returns the Service without the addresses in its status, which belong to another component.
pub(super) fn without_status(service: &Service) -> Arc<Service> {
    Arc::new(Service { status: None, ..service.clone() })
}

/// Controller that manages the load balancers of Services. Upstream: `Controller` of `controllers/service`.
pub struct ServiceController {
    pub(super) context: ControllerContext,
    /// Client for Services that drops fields without a reader, such as up to 256 KiB of annotations.
    pub(super) client: kube::Client,
    pub(super) services: InformerStore<Service>,
    pub(super) nodes: InformerStore<Node>,
    /// Empty unless the provider needs them.
    pub(super) namespaces: InformerStore<Namespace>,
    pub(super) balancer: Arc<dyn LoadBalancer>,
    /// Classes that this manager serves.
    pub(super) classes: LoadBalancerClasses,
    pub(super) queue: ReconcileQueue<ObjectKey>,
    pub(super) node_queue: ReconcileQueue<&'static str>,
    pub(super) host_queue: ReconcileQueue<&'static str>,
    /// Never held across an await.
    pub(super) cache: Mutex<ServiceCache>,
    /// Number of node changes that require a sync of the nodes.
    pub(super) node_changes: AtomicU64,
    /// Number of node changes that may change hosts, which include those of `node_changes`.
    pub(super) host_changes: AtomicU64,
    /// Flag that the server drops `status.conditions` (Kubernetes before 1.20). Conditions are then not written alone.
    pub(super) conditions_are_dropped: AtomicBool,
    pub(super) missing_right: MissingRight,
    /// Largest number of concurrent Services; `None` for no limit.
    pub(super) limit: Option<usize>,
    pub(super) resync_period: Duration,
}

impl ServiceController {
    pub(super) fn cache(&self) -> MutexGuard<'_, ServiceCache> {
        self.cache.lock()
    }

    pub(super) fn hosts(&self) -> Arc<LoadBalancerHosts> {
        self.cache().hosts(|| self.nodes.list())
    }

    /// Returns the current labels that select the load balancer of `service`.
    fn labels(&self, service: Option<&Service>) -> SelectedLabels {
        let Some(service) = service else { return SelectedLabels::default() };
        let namespace = self.namespaces.get(&ObjectKey::cluster(service.metadata.namespace.as_deref().unwrap_or_default()));
        SelectedLabels::of(&self.balancer.labels_read(), service, namespace.as_deref())
    }

    pub(super) fn record(&self, event: RecordedEvent) {
        self.context.events.record(event);
    }

    pub(super) fn observe_node_sync(&self, age: Option<Duration>) {
        let latency = self.context.metrics.service_nodesync_latency.with_label_values::<&str>(&[]);
        age.iter().for_each(|age| latency.observe(age.as_secs_f64()));
    }

    /// Reconciles the load balancer of the Service at `key`.
    pub(super) async fn reconcile(self: Arc<Self>, key: ObjectKey) -> ReconcileResult {
        let node_changes = self.node_changes.load(Ordering::SeqCst);
        let host_changes = self.host_changes.load(Ordering::SeqCst);
        let outcome = self.reconcile_until_settled(&key).await;
        let age = self.cache().end_node_sync(&key, self.context.clock.now());
        self.observe_node_sync(age);
        if self.node_changes.load(Ordering::SeqCst) != node_changes {
            // The node sync may have read the state of this Service before the new hosts were applied.
            self.node_queue.add_after(ALL_NODES, ReconcilePriority::NodeChange, COALESCING_DELAY);
        }
        // This reconcile may have applied an outdated host list.
        if outcome != ReconcileResult::Done || self.host_changes.load(Ordering::SeqCst) != host_changes {
            self.host_queue.add_after(ALL_HOSTS, ReconcilePriority::Resync, COALESCING_DELAY);
        }
        outcome
    }

    async fn reconcile_until_settled(&self, key: &ObjectKey) -> ReconcileResult {
        let mut service = match self.current(key).await {
            Ok(service) => service,
            Err(failure) => return self.handle_failure(key, None, &failure).await,
        };
        let mut applied = false;
        for _ in 0..MAX_ROUNDS {
            let failure = match self.reconcile_once(key, &mut service, applied).await {
                Ok(ServiceRoundResult::Done) => return ReconcileResult::Done,
                Ok(ServiceRoundResult::Replan) => continue,
                Ok(ServiceRoundResult::Later(pause)) => {
                    return ReconcileResult::RequeueAfter(pause, "another writer keeps changing the Service".to_owned());
                }
                Ok(ServiceRoundResult::Applied) => {
                    applied = true;
                    continue;
                }
                Err(ServiceSyncError::Api { error: ApiError::Conflict(_), .. }) => match self.read(key).await {
                    Ok(latest) => {
                        service = latest;
                        continue;
                    }
                    Err(failure) => failure,
                },
                Err(failure) => failure,
            };
            return self.handle_failure(key, service, &failure).await;
        }
        ReconcileResult::Failed("the Service kept changing while its load balancer was reconciled".to_owned())
    }

    /// Runs one round of planning and execution.
    ///
    /// Nodes that change after this reconcile `applied` hosts are left to the node sync, which gathers them: while a cluster
    /// grows, a load balancer would otherwise be updated back to back until the rounds run out.
    async fn reconcile_once(&self, key: &ObjectKey, current: &mut Option<Arc<Service>>, applied: bool) -> RoundResult {
        let hosts = self.hosts();
        let labels = self.labels(current.as_deref());
        if let Some(service) = current.as_ref() {
            self.postpone_unread_change(key, service);
        }
        let wait = self.cache().begin_comparison(key, self.context.clock.now());
        // An earlier failure or delay may have removed the key from the queue.
        wait.into_iter().for_each(|wait| self.queue.add_after(key.clone(), ReconcilePriority::Resync, wait));
        let decision = plan::decide(&self.classes, current.as_deref(), self.cache().get(key), &hosts.set, &labels);
        let service = match (&decision, current) {
            (ServiceAction::DeleteOrphan(old), _) => return self.delete_orphan(key, old).await,
            (ServiceAction::Ignore, _) | (_, None) => return Ok(ServiceRoundResult::Done),
            (ServiceAction::Wait(finalizer), Some(service)) => {
                self.record(events::waiting(service, finalizer));
                return Ok(ServiceRoundResult::Done);
            }
            (ServiceAction::UpdateHosts, _) if applied => return Ok(ServiceRoundResult::Done),
            (_, Some(service)) => service,
        };
        let result = match decision {
            ServiceAction::HandOver => self.hand_over(key, service).await,
            ServiceAction::Cleanup => self.cleanup(key, service).await,
            ServiceAction::Ensure(reason) => self.ensure(key, service, (&hosts, labels), reason).await,
            ServiceAction::UpdateHosts => return self.update_hosts(key, service, (&hosts, labels)).await,
            ServiceAction::Publish(update) => self.publish(key, service, &update).await,
            ServiceAction::Restore(published) => self.restore(key, service, &published).await,
            ServiceAction::ReportAdditions => Ok(self.report_additions(key, service)),
            ServiceAction::Ignore | ServiceAction::Wait(_) | ServiceAction::DeleteOrphan(_) => Ok(ServiceRoundResult::Done),
        };
        result.inspect_err(|failure| self.record_failure(failure, |error| events::sync_failed(service, error)))
    }

    /// Records the event of a failure that concerns users.
    fn record_failure(&self, failure: &ServiceSyncError, event: impl FnOnce(&dyn fmt::Display) -> RecordedEvent) {
        if failure.is_reportable() {
            self.record(event(failure));
        }
    }

    async fn ensure(
        &self,
        key: &ObjectKey,
        service: &mut Arc<Service>,
        (hosts, labels): (&LoadBalancerHosts, SelectedLabels),
        reason: EnsureReason,
    ) -> RoundResult {
        let before = self.cache().get(key).map(|applied| Arc::clone(&applied.service));
        before.and_then(|old| change_event(&self.classes, &old, service)).into_iter().for_each(|change| {
            self.record(events::changed(service, change));
        });
        self.cache().mark_pending(key, service, LoadBalancerPhase::Ensuring);
        if reason == EnsureReason::Changed {
            self.cache().forget_published(key);
        }
        if reason != EnsureReason::Resync {
            self.record(events::ensuring(service));
        }
        if let Some(body) = status_patch::add_finalizer(&self.classes, service, self.context.clock.wall()) {
            *service = self.patch(key, body, "failed to add load balancer cleanup finalizer").await?;
        }
        if hosts.nodes.is_empty() {
            self.record(events::unavailable(service));
        }
        let update = match self.call_ensure(key, service, &hosts.nodes, reason).await {
            Ok(status) => ServiceStatusUpdate { status: Some(status), phase: LoadBalancerPhase::Ready },
            Err(CloudError::ImplementedElsewhere) => {
                ServiceStatusUpdate { status: None, phase: LoadBalancerPhase::ImplementedElsewhere }
            }
            Err(error) => return Err(ServiceSyncError::Cloud { operation: "failed to ensure load balancer", error }),
        };
        if reason != EnsureReason::Resync && update.phase == LoadBalancerPhase::Ready {
            self.record(events::ensured(service));
        }
        self.cache().mark_synced(key, (&hosts.set, labels), update);
        Ok(ServiceRoundResult::Applied)
    }

    async fn publish(&self, key: &ObjectKey, service: &mut Arc<Service>, update: &ServiceStatusUpdate) -> RoundResult {
        let published = self.write_status(key, service, update).await?;
        self.cache().mark_published(key, published);
        Ok(ServiceRoundResult::Replan)
    }

    /// Writes addresses and condition into the Service, unless it has them. Returns our addresses in it, if the update has any.
    pub(super) async fn write_status(
        &self,
        key: &ObjectKey,
        service: &mut Arc<Service>,
        update: &ServiceStatusUpdate,
    ) -> SyncResult<Option<LoadBalancerStatus>> {
        let published = self.cache().get(key).and_then(|applied| applied.published.clone());
        let desired = update.status.as_ref().filter(|desired| self.may_write_addresses(desired, published.as_ref()));
        let listed = desired.map(|desired| status_patch::addresses(service, desired, published.as_ref()));
        let body = status_patch::publish(service, listed.as_ref(), &update.phase, self.context.clock.wall());
        let is_listed = listed.as_ref().is_none_or(|listed| status_patch::is_published(service, listed));
        let is_unneeded = is_listed && self.conditions_are_dropped.load(Ordering::Relaxed);
        if let Some(body) = body.filter(|_| !is_unneeded) {
            match self.patch(key, body, "failed to update load balancer status").await {
                Ok(written) => *service = written,
                Err(ServiceSyncError::Api { error: ApiError::NotFound(_), .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        let own = desired.zip(listed.as_ref());
        Ok(own.map(|(desired, listed)| status_patch::own_addresses(service, desired, listed)))
    }

    async fn update_hosts(
        &self,
        key: &ObjectKey,
        service: &Arc<Service>,
        (hosts, labels): (&LoadBalancerHosts, SelectedLabels),
    ) -> RoundResult {
        self.cache().mark_pending(key, service, LoadBalancerPhase::Updating);
        let phase = match self.call_update(service, hosts).await {
            Ok(()) => {
                let event = if hosts.nodes.is_empty() { events::unavailable } else { events::updated };
                self.record(event(service));
                LoadBalancerPhase::Ready
            }
            Err(CloudError::ImplementedElsewhere) => LoadBalancerPhase::ImplementedElsewhere,
            // As upstream: an update of a deleted load balancer succeeds.
            Err(error) if self.is_deleted(service, &error).await => LoadBalancerPhase::Ready,
            Err(error) => return Err(self.update_failed(key, service, hosts, error)),
        };
        self.cache().mark_synced(key, (&hosts.set, labels), ServiceStatusUpdate { status: None, phase });
        Ok(ServiceRoundResult::Applied)
    }

    async fn call_update(&self, service: &Service, hosts: &LoadBalancerHosts) -> Result<(), CloudError> {
        let (metrics, clock) = (&self.context.metrics, &self.context.clock);
        metrics.service_loadbalancer_sync_total.with_label_values::<&str>(&[]).inc();
        let start = clock.now();
        let result = self.balancer.update_load_balancer(&self.context.cluster_name, service, &hosts.nodes).await;
        let latency = metrics.service_update_host_latency.with_label_values::<&str>(&[]);
        latency.observe(start.elapsed().as_secs_f64());
        // A failed update is followed by an attempt to ensure, which publishes the status.
        result.map_err(CloudError::without_status)
    }

    async fn is_deleted(&self, service: &Service, error: &CloudError) -> bool {
        let is_inconclusive =
            matches!(error, CloudError::RetryAfter { .. } | CloudError::NotLeader(_) | CloudError::Refused(_));
        !is_inconclusive && matches!(self.balancer.get_load_balancer(&self.context.cluster_name, service).await, Ok(None))
    }

    fn update_failed(
        &self,
        key: &ObjectKey,
        service: &Service,
        hosts: &LoadBalancerHosts,
        error: CloudError,
    ) -> ServiceSyncError {
        if matches!(error, CloudError::RetryAfter { .. }) {
            self.cache().postpone_update(key);
        } else {
            self.context.metrics.service_nodesync_error_total.with_label_values::<&str>(&[]).inc();
        }
        let failure = ServiceSyncError::Cloud { operation: "failed to update load balancer hosts", error };
        self.record_failure(&failure, |_| events::update_failed(service, &hosts.nodes, failure.cause()));
        failure
    }

    async fn cleanup(&self, key: &ObjectKey, service: &mut Arc<Service>) -> RoundResult {
        let cached = self.cache().get(key).map(|applied| Arc::clone(&applied.service));
        let (handed_over, was_cached) = (is_handed_over(&self.classes, service), cached.is_some());
        // Without our finalizer the informer prunes the Service to a stub, so the cached copy is used.
        let cached = cached.filter(|_| !self.classes.has_finalizer(service) || handed_over);
        let subject = cached.unwrap_or_else(|| if handed_over { without_status(service) } else { Arc::clone(service) });
        self.cache().set_phase(key, LoadBalancerPhase::Deleting);
        let cluster = &self.context.cluster_name;
        let operation = "failed to check if load balancer exists before cleanup";
        let found = self.balancer.get_load_balancer(cluster, &subject).await;
        let exists = found.map_err(|error| ServiceSyncError::Cloud { operation, error })?.is_some();
        if exists {
            self.record(events::deleting(service));
            match self.balancer.ensure_load_balancer_deleted(cluster, &subject).await {
                Ok(()) | Err(CloudError::ImplementedElsewhere) => {}
                Err(error) => return Err(ServiceSyncError::Cloud { operation: "failed to delete load balancer", error }),
            }
        }
        let is_own = was_cached || owns_finalizer(&self.classes, service);
        if handed_over && !exists && !is_own && !is_being_deleted(service) {
            // The finalizer may belong to the component that implements the class.
            return Ok(ServiceRoundResult::Done);
        }
        let is_reported = exists || (self.classes.has_finalizer(service) && !handed_over);
        let is_elsewhere = self.classes.is_elsewhere(service);
        let release = if is_elsewhere { status_patch::remove_finalizer_and_condition } else { status_patch::clean };
        self.release(key, release(&self.classes, service)).await?;
        if is_reported {
            self.record(events::deleted(service));
        }
        self.cache().forget(key);
        Ok(ServiceRoundResult::Done)
    }

    /// Sends the patch that removes our fields from the Service, if there is one. A deleted Service is a success.
    async fn release(&self, key: &ObjectKey, body: Option<Value>) -> SyncResult<()> {
        let Some(body) = body else { return Ok(()) };
        match self.patch(key, body, "failed to remove load balancer cleanup finalizer").await {
            Ok(_) | Err(ServiceSyncError::Api { error: ApiError::NotFound(_), .. }) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Hands the Service over to another manager: removes our finalizer and keeps the load balancer and the status.
    async fn hand_over(&self, key: &ObjectKey, service: &Service) -> RoundResult {
        self.release(key, status_patch::remove_finalizer(&self.classes, service)).await?;
        self.cache().forget(key);
        Ok(ServiceRoundResult::Done)
    }

    async fn delete_orphan(&self, key: &ObjectKey, old: &Arc<Service>) -> RoundResult {
        self.cache().set_phase(key, LoadBalancerPhase::Deleting);
        self.record(events::deleting(old));
        match self.balancer.ensure_load_balancer_deleted(&self.context.cluster_name, old).await {
            Ok(()) | Err(CloudError::ImplementedElsewhere) => {
                self.record(events::deleted(old));
                self.cache().forget(key);
                Ok(ServiceRoundResult::Replan)
            }
            Err(error) => {
                let failure = ServiceSyncError::Cloud { operation: "failed to delete load balancer", error };
                self.record_failure(&failure, |_| events::delete_failed(old, failure.cause()));
                Err(failure)
            }
        }
    }
}

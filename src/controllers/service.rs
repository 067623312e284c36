//! Service controller: reconciles the load balancer of every Service of type LoadBalancer.
//!
//! ```text
//! Service changes ─► queue "service" ─► plan::decide(Service, applied, hosts) ─► Ensure | UpdateHosts | Cleanup | …
//! changes of labels that the provider reads, of a Service or its Namespace ─► queue "service"
//! Node changes ─► queue "node" (after 1 s) ─► Services whose load balancers have other hosts ─► queue "service"
//!             └─► queue "hosts" (after 1 s) ─► sync of the hosts of all load balancers, independently of Services
//! changes that only the provider observes ─► queue "hosts"
//! ```
//!
//! In: Services and Nodes from the stores. Out: calls of [`crate::cloud_provider::LoadBalancer`], one at a time per Service and many
//! in parallel; patches of the Services' status (finalizer, ingress, condition); events. The state that was last applied is
//! cached per Service and compared with the store, so that no change is lost if events are lost or reordered.
//!
//! Upstream: `controllers/service/controller.go`.

mod cache;
pub mod conditions;
pub(crate) mod config;
mod delays;
pub mod events;
mod failures;
mod gauges;
mod hosts;
mod keys;
pub mod labels;
mod live_object;
mod missing_right;
pub mod needs_update;
pub mod plan;
pub mod predicates;
mod prune;
mod reason;
mod reconcile;
mod restore;
pub mod status_patch;
mod write_plan;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::{
    api::core::v1::{Namespace, Node, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use parking_lot::Mutex;

pub use config::ServiceControllerConfig;
pub use prune::{prune_endpoint_slice, service_informer};
pub use reconcile::ServiceController;

use self::{
    cache::ServiceCache,
    keys::{ALL_HOSTS, ALL_NODES, COALESCING_DELAY},
    missing_right::MissingRight,
    needs_update::{change_event, may_be_same_request},
};
use super::{Controller, ControllerContext, ControllerStatus, Informers, ServiceScope};
use crate::{
    cloud_provider::{CloudProvider, CloudResult, LoadBalancer, WritePlan},
    runtime::{
        informer::ObjectChange, shutdown::Shutdown, store::ObjectKey, work_queue::ReconcilePriority, worker::ReconcileQueue,
    },
    status::{FailureClass, UnsettledKey},
};

/// Error of a provider without load balancers, with which this controller cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the cloud provider {0:?} does not support external load balancers")]
pub struct NoLoadBalancer(String);

/// Creates the service controller and subscribes it to the informers.
///
/// # Errors
///
/// The provider has no load balancers.
#[expect(clippy::needless_pass_by_value, reason = "all controllers are built with the same arguments")]
pub fn new(
    context: &ControllerContext,
    informers: &mut Informers,
    provider: Arc<dyn CloudProvider>,
    config: ServiceControllerConfig,
) -> Result<Arc<ServiceController>, NoLoadBalancer> {
    let balancer = provider.load_balancer().ok_or_else(|| NoLoadBalancer(provider.provider_name().to_owned()))?;
    let limit = effective_limit(config.concurrent_syncs, &*balancer);
    let metrics = || Arc::clone(&context.metrics);
    let controller = Arc::new(ServiceController {
        context: context.clone(),
        client: informers.services.filtered(context.writer.client().clone()),
        services: informers.services.store(),
        nodes: informers.nodes.store(),
        namespaces: informers.namespaces.store(),
        balancer,
        classes: config.classes.clone(),
        queue: ReconcileQueue::new("service", plan::BACKOFF, context.clock, metrics()),
        node_queue: ReconcileQueue::new("node", plan::BACKOFF, context.clock, metrics()),
        host_queue: ReconcileQueue::new("hosts", plan::BACKOFF, context.clock, metrics()),
        cache: Mutex::new(ServiceCache::new(config.classes)),
        node_changes: 0.into(),
        host_changes: 0.into(),
        conditions_are_dropped: false.into(),
        missing_right: MissingRight::default(),
        limit,
        resync_period: config.resync_period,
    });
    let observer = Arc::clone(&controller);
    informers.services.subscribe(move |change| observer.observe_service(change));
    let observer = Arc::clone(&controller);
    informers.nodes.subscribe(move |change| observer.observe_node(change));
    let observer = Arc::clone(&controller);
    informers.namespaces.subscribe(move |change| observer.observe_namespace(change));
    Ok(controller)
}

/// Returns the largest number of concurrent Services, `None` for no limit: the requested one, or the one that the provider
/// supports.
fn effective_limit(requested_limit: usize, balancer: &dyn LoadBalancer) -> Option<usize> {
    match balancer.disregards_limit(requested_limit) {
        None if requested_limit > 0 => return Some(requested_limit),
        Some(reason) if requested_limit > 0 => {
            tracing::warn!("--concurrent-service-syncs={requested_limit} counts as 0: {reason}")
        }
        _ => {}
    }
    balancer.max_in_flight()
}

impl ServiceController {
    fn observe_service(&self, change: &ObjectChange<Service>) {
        let needs_deletion = self.cache().observe(change, self.context.writer.leadership().is_leading());
        let priority = match change {
            ObjectChange::Added(new) => plan::on_added(&self.classes, new, !self.services.status().synced),
            ObjectChange::Updated { old, new } => {
                let key = ObjectKey::of(new.as_ref());
                let is_read = |priority: &ReconcilePriority| {
                    *priority != ReconcilePriority::UserChange || !self.postpone_unread_change(&key, new)
                };
                let priority = plan::on_updated(&self.classes, old, new).filter(is_read);
                priority.or_else(|| self.priority_of_label_change(old, new)).or_else(|| self.priority_of_removal(&key, new))
            }
            ObjectChange::Deleted(_) => needs_deletion.then_some(ReconcilePriority::Deletion),
        };
        let key = ObjectKey::of(change.object().as_ref());
        match (priority, change) {
            (Some(priority), _) => self.queue.add(key, priority),
            (None, ObjectChange::Deleted(_)) => self.queue.forget(&key),
            (None, _) => {}
        }
    }

    /// Returns `true` if a changed Service requests the same load balancer as in the last attempt.
    ///
    /// The Service is then compared with the cloud later, once for all such changes.
    fn postpone_unread_change(&self, key: &ObjectKey, new: &Arc<Service>) -> bool {
        let attempted = self.cache().attempted(key);
        let is_unread =
            |old: &Arc<Service>| may_be_same_request(&self.classes, old, new) && self.balancer.is_same_request(old, new);
        let Some(old) = attempted.filter(is_unread) else { return false };
        let Some(wait) = self.cache().postpone_change((key, &old), new, self.context.clock.now()) else { return false };
        change_event(&self.classes, &old, new).into_iter().for_each(|change| self.record(events::changed(new, change)));
        self.queue.add_after(key.clone(), ReconcilePriority::Resync, wait);
        true
    }

    /// Returns the priority of a label change after which a Service may need another load balancer, if it is one.
    fn priority_of_label_change(&self, old: &Service, new: &Service) -> Option<ReconcilePriority> {
        let differs = || labels::differ(&self.balancer.labels_read().service, &old.metadata, &new.metadata);
        (self.classes.wants(new) && differs()).then_some(ReconcilePriority::UserChange)
    }

    /// Enqueues the Services of a Namespace whose selected labels changed, with priority `Resync` during the initial list.
    fn observe_namespace(&self, change: &ObjectChange<Namespace>) {
        let empty_metadata = ObjectMeta::default();
        let (old, new) = match change {
            ObjectChange::Added(new) => (&empty_metadata, &new.metadata),
            ObjectChange::Updated { old, new } => (&old.metadata, &new.metadata),
            ObjectChange::Deleted(old) => (&old.metadata, &empty_metadata),
        };
        if !labels::differ(&self.balancer.labels_read().namespace, old, new) {
            return;
        }
        let priority =
            if self.namespaces.status().synced { ReconcilePriority::UserChange } else { ReconcilePriority::Resync };
        let keys = self.cache().keys_in_namespace(change.object().metadata.name.as_deref().unwrap_or_default());
        keys.into_iter().for_each(|key| self.queue.add(key, priority));
    }

    fn observe_node(&self, change: &ObjectChange<Node>) {
        if matches!(change, ObjectChange::Updated { old, new } if predicates::is_heartbeat(old, new)) {
            return;
        }
        self.cache().invalidate_hosts();
        let affects_hosts = match change {
            ObjectChange::Added(_) | ObjectChange::Deleted(_) => true,
            ObjectChange::Updated { old, new } => predicates::should_sync_updated_node(old, new),
        };
        if affects_hosts {
            if self.context.writer.leadership().is_leading() {
                self.cache().nodes_changed(self.context.clock.now());
            }
            self.node_changes.fetch_add(1, Ordering::SeqCst);
            self.node_queue.add_after(ALL_NODES, ReconcilePriority::NodeChange, COALESCING_DELAY);
        }
        if affects_hosts || matches!(change, ObjectChange::Updated { old, new } if predicates::may_change_hosts(old, new)) {
            self.host_changes.fetch_add(1, Ordering::SeqCst);
            self.host_queue.add_after(ALL_HOSTS, ReconcilePriority::NodeChange, COALESCING_DELAY);
        }
    }

    /// Enqueues a check of every load balancer, with the lowest priority.
    fn enqueue_all(&self) {
        let keys = self.cache().verify_all();
        keys.into_iter().for_each(|key| self.queue.add(key, ReconcilePriority::Resync));
    }

    async fn work(self: &Arc<Self>, shutdown: &Shutdown) {
        let sync_nodes = |_| {
            let this = Arc::clone(self);
            async move { this.sync_nodes() }
        };
        tokio::join!(
            self.queue.run(self.limit, shutdown, |key| Arc::clone(self).reconcile(key)),
            self.node_queue.run(Some(1), shutdown, sync_nodes),
            self.host_queue.run(Some(1), shutdown, |_| Arc::clone(self).sync_hosts())
        );
    }

    async fn resync(&self, shutdown: &Shutdown) {
        if self.resync_period.is_zero() {
            return;
        }
        while shutdown.run_until_begun(tokio::time::sleep(self.resync_period)).await.is_some() {
            self.enqueue_all();
        }
    }

    /// Follows the provider's changes: syncs hosts, or compares all load balancers.
    async fn follow_provider(&self, shutdown: &Shutdown) {
        let hosts = async {
            loop {
                self.balancer.hosts_changed().await;
                self.host_queue.add(ALL_HOSTS, ReconcilePriority::NodeChange);
            }
        };
        let configuration = async {
            loop {
                self.balancer.configuration_changed().await;
                self.enqueue_all();
            }
        };
        tokio::select! {
            biased;
            () = shutdown.begun() => {}
            () = hosts => {}
            () = configuration => {}
        }
    }

    /// Waits for the initial lists. With an empty Node store, every load balancer would lose its hosts.
    async fn wait_until_synced(&self) {
        self.nodes.synced().await;
        self.services.synced().await;
    }
}

impl Controller for ServiceController {
    fn run(self: Arc<Self>, shutdown: Shutdown) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if shutdown.run_until_begun(self.wait_until_synced()).await.is_none() {
                return;
            }
            if let Some(problem) = self.balancer.problem() {
                tracing::error!("{problem}");
            }
            tokio::join!(
                self.work(&shutdown),
                self.follow_provider(&shutdown),
                self.resync_hosts(&shutdown),
                self.resync(&shutdown)
            );
        })
    }

    fn plan<'a>(&'a self, scope: &'a ServiceScope) -> BoxFuture<'a, CloudResult<WritePlan>> {
        self.write_plan(scope).boxed()
    }

    fn status(&self) -> ControllerStatus {
        let nodes = self.node_queue.unsettled().into_iter().chain(self.host_queue.unsettled());
        let hosts = self.hosts().nodes.len();
        let limit = self.limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        let mut facts =
            BTreeMap::from([("hosts".to_owned(), hosts.to_string()), ("max concurrent Services".to_owned(), limit)]);
        let services = self.queue.unsettled();
        let cache = self.cache();
        let load_balancers: BTreeMap<_, _> =
            cache.phases().into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect();
        facts.extend(load_balancers.iter().map(|(reason, count)| (format!("load balancers: {reason}"), count.to_string())));
        let classed = |row: UnsettledKey| UnsettledKey { class: cache.phase_of(&row.key).map(FailureClass::named), ..row };
        let unsettled: Vec<UnsettledKey> = services.into_iter().map(classed).chain(nodes).collect();
        let drift = cache.drift.latest();
        drop(cache);
        let problem = self.balancer.problem().or_else(|| self.missing_right.reason());
        ControllerStatus { problem, facts, load_balancers, unsettled, drift, ..ControllerStatus::default() }
    }

    fn observe(&self) {
        let ControllerContext { metrics, clock, writer, .. } = &self.context;
        self.cache().publish(metrics, writer.leadership().is_leading(), clock.now());
        self.queue.observe();
        self.node_queue.observe();
        self.host_queue.observe();
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::cloud_provider::{CloudError, CloudResult, LoadBalancerStatus};

    /// Provider that supports five concurrent Services. No call succeeds.
    struct Five;

    #[async_trait]
    impl LoadBalancer for Five {
        async fn get_load_balancer(&self, _: &str, _: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
            Err(CloudError::NotImplemented)
        }
        async fn ensure_load_balancer(&self, _: &str, _: &Service, _: &[Arc<Node>]) -> CloudResult<LoadBalancerStatus> {
            Err(CloudError::NotImplemented)
        }
        async fn update_load_balancer(&self, _: &str, _: &Service, _: &[Arc<Node>]) -> CloudResult<()> {
            Err(CloudError::NotImplemented)
        }
        async fn ensure_load_balancer_deleted(&self, _: &str, _: &Service) -> CloudResult<()> {
            Err(CloudError::NotImplemented)
        }
        fn max_in_flight(&self) -> Option<usize> {
            Some(5)
        }
        fn disregards_limit(&self, limit: usize) -> Option<&'static str> {
            (limit == 1).then_some("1 is ignored")
        }
    }

    #[test]
    fn requested_limit_applies_unless_the_provider_disregards_it() {
        for (requested_limit, expected) in [(0, 5), (1, 5), (2, 2), (50, 50)] {
            assert_eq!(effective_limit(requested_limit, &Five), Some(expected), "{requested_limit}");
        }
    }
}

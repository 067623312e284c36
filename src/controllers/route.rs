//! The route controller: keeps one route in the cloud for each pod CIDR of each node.
//!
//! The node condition `NetworkUnavailable` reports whether a node has all of its routes.
//!
//! In: changes of Nodes, and a slow resync. Out: at most one list and one batch of changes at the provider per reconcile,
//! conditions, events. There is one key for everything: a change makes it due after [`GATHERING_DELAY`], so that a burst of
//! new nodes is one batch. All failures are retried together, with backoff. A change of a node cuts the backoff short. Because
//! every reconcile covers all nodes, none waits for a failing one.
//!
//! Upstream: `controllers/route/route_controller.go`, in the form of KEP-5237 (watch instead of a list every 10 s).
//! Differences:
//!
//! - CIDRs are compared by their meaning: `10.0.0.1/24` is `10.0.0.0/24`, `FD00::/64` is `fd00::/64`. Upstream compares
//!   texts.
//! - Deletions always come before creations; upstream waits for them only where routes carry node addresses.
//! - A blackhole never counts as the route of its node: it is replaced immediately. Upstream deletes it and marks the node
//!   ready.
//! - A CIDR that a node lists twice is one route; upstream creates it twice.
//! - A node without pod CIDRs causes no reconcile when it appears or changes.
//! - External changes to a route between two reconciles are reported, counted and reverted.
//! - Work that another component does, or that the provider defers, is not reported as a failure (see [`CloudError`]'s variants).

mod condition_repair;
pub(crate) mod config;
mod drift;
mod events;
mod last_reconcile;
mod outcomes;
mod plan;
mod reconcile;
mod write_plan;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;

pub use config::{NodeMaskSizes, RESYNC_PERIOD, RouteControllerConfig, RouteControllerError};
pub use events::EVENTS;
pub use write_plan::plan_of_nodes;

use self::{drift::RouteDriftChange, last_reconcile::LastRouteReconcile};
use super::{Controller, ControllerContext, ControllerStatus, Informers, ServiceScope, restoration::Restoration};
#[cfg(doc)]
use crate::cloud_provider::CloudError;
use crate::{
    cloud_provider::{CloudProvider, CloudResult, Routes, WritePlan},
    node::pod_cidrs,
    runtime::{
        informer::ObjectChange,
        shutdown::Shutdown,
        store::{InformerStore, ObjectKey},
        work_queue::ReconcilePriority,
        worker::ReconcileQueue,
    },
};

/// Time for which the first of several changes waits for others.
pub const GATHERING_DELAY: Duration = Duration::from_millis(500);

/// Number of conditions that are repaired concurrently.
const MAX_CONDITION_REPAIRS: usize = 20;

/// Only key of the queue, for all routes of the cluster.
const ALL_ROUTES: &str = "routes";

/// Controller that keeps routes to Nodes in the cloud. Upstream: `RouteController`.
pub struct RouteController {
    queue: ReconcileQueue<&'static str>,
    /// Nodes whose condition changed.
    condition_queue: ReconcileQueue<ObjectKey>,
    context: ControllerContext,
    provider: Arc<dyn CloudProvider>,
    routes: Arc<dyn Routes>,
    nodes: InformerStore<Node>,
    config: RouteControllerConfig,
    /// Result of the last reconcile, for status pages and drift detection.
    last_reconcile: Mutex<LastRouteReconcile>,
    /// Last repair of the condition of each Node that another writer changed.
    condition_repairs: Mutex<HashMap<ObjectKey, Restoration>>,
}

impl RouteController {
    /// Creates the controller and subscribes to Nodes.
    ///
    /// # Errors
    ///
    /// The provider has no routes, or `--cluster-cidr` is not usable.
    pub fn new(
        context: &ControllerContext,
        informers: &mut Informers,
        provider: Arc<dyn CloudProvider>,
        config: RouteControllerConfig,
    ) -> Result<Arc<Self>, RouteControllerError> {
        let unsupported = || RouteControllerError::RoutesUnsupported(provider.provider_name().to_owned());
        let routes = provider.routes().ok_or_else(unsupported)?;
        config.check()?;
        // Upstream's queue name.
        let queue = ReconcileQueue::new("Routes", config.backoff(), context.clock, Arc::clone(&context.metrics));
        let condition_queue =
            ReconcileQueue::new("RouteConditions", config.backoff(), context.clock, Arc::clone(&context.metrics));
        if config.watch_based {
            let (due, conditions) = (queue.clone(), condition_queue.clone());
            informers.nodes.subscribe(move |change| {
                if let ObjectChange::Deleted(old) = change {
                    conditions.forget(&ObjectKey::of(old.as_ref()));
                }
                match change {
                    _ if concerns_routes(change) => {
                        due.add_after(ALL_ROUTES, ReconcilePriority::NodeChange, GATHERING_DELAY);
                    }
                    ObjectChange::Updated { old, new } if outcomes::changes_condition(old, new) => {
                        conditions.add(ObjectKey::of(new.as_ref()), ReconcilePriority::NodeChange);
                    }
                    _ => {}
                }
            });
        }
        for change in RouteDriftChange::ALL {
            drop(context.metrics.route_drift_total.with_label_values(&[change.as_str()]));
        }
        Ok(Arc::new(Self {
            queue,
            condition_queue,
            context: context.clone(),
            provider,
            routes,
            nodes: informers.nodes.store(),
            config,
            last_reconcile: Mutex::default(),
            condition_repairs: Mutex::default(),
        }))
    }

    async fn resync(&self) {
        let mut ticks = tokio::time::interval(self.config.resync_period());
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.queue.add(ALL_ROUTES, ReconcilePriority::Resync);
        }
    }

    async fn work(self: &Arc<Self>, shutdown: &Shutdown) {
        let repair = |key| Arc::clone(self).repair_condition(key);
        tokio::join!(
            self.queue.run(Some(1), shutdown, |_| Arc::clone(self).reconcile()),
            self.condition_queue.run(Some(MAX_CONDITION_REPAIRS), shutdown, repair)
        );
    }
}

impl Controller for RouteController {
    fn run(self: Arc<Self>, shutdown: Shutdown) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            tokio::select! {
                biased;
                () = self.work(&shutdown) => {}
                () = self.resync() => {}
            }
        })
    }

    fn plan(&self, _: &ServiceScope) -> BoxFuture<'_, CloudResult<WritePlan>> {
        self.write_plan().boxed()
    }

    fn status(&self) -> ControllerStatus {
        let unsettled = self.queue.unsettled().into_iter().chain(self.condition_queue.unsettled()).collect();
        ControllerStatus { unsettled, ..self.reconcile_status() }
    }

    fn observe(&self) {
        self.queue.observe();
        self.condition_queue.observe();
    }
}

/// Returns `true` if a change of a node can change the required routes.
///
/// Labels may name the location of the machine, or mark it as foreign to the provider. Upstream: `handleNodeUpdate`, without
/// labels. [`RouteController::resync`] replaces upstream's periodic replay of unchanged objects.
fn concerns_routes(change: &ObjectChange<Node>) -> bool {
    match change {
        ObjectChange::Added(node) => has_pod_cidrs(node),
        ObjectChange::Deleted(_) => true,
        ObjectChange::Updated { old, new } => {
            let differs = plan::addresses(old) != plan::addresses(new) || old.metadata.labels != new.metadata.labels;
            pod_cidrs(old) != pod_cidrs(new) || has_pod_cidrs(new) && differs
        }
    }
}

fn has_pod_cidrs(node: &Node) -> bool {
    !pod_cidrs(node).is_empty()
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;
    use serde_json::json;

    use super::{config::FIRST_RETRY, *};

    fn node(cidrs: &[&str], address: &str, condition: &str) -> Arc<Node> {
        let node = json!({
            "metadata": {"name": "n"},
            "spec": {"podCIDRs": cidrs},
            "status": {
                "addresses": [{"type": "InternalIP", "address": address}],
                "conditions": [{"type": "Ready", "status": condition}],
            },
        });
        Arc::new(serde_json::from_value(node).unwrap())
    }

    fn labeled(cidrs: &[&str]) -> Arc<Node> {
        let mut node = Node::clone(&node(cidrs, "1.1.1.1", "True"));
        node.metadata.labels = Some([("managed".to_owned(), "false".to_owned())].into());
        Arc::new(node)
    }

    #[test]
    fn changes_of_cidrs_addresses_and_labels_concern_routes() {
        let before = node(&["10.0.0.0/24"], "1.1.1.1", "True");
        let bare = node(&[], "1.1.1.1", "True");
        let updated = |old: &Arc<Node>, new: Arc<Node>| ObjectChange::Updated { old: Arc::clone(old), new };
        let table = [
            ("added", ObjectChange::Added(Arc::clone(&before)), true),
            ("added without CIDR", ObjectChange::Added(Arc::clone(&bare)), false),
            ("deleted", ObjectChange::Deleted(Arc::clone(&before)), true),
            ("address changed", updated(&before, node(&["10.0.0.0/24"], "2.2.2.2", "True")), true),
            ("address changed without CIDR", updated(&bare, node(&[], "2.2.2.2", "True")), false),
            ("label changed", updated(&before, labeled(&["10.0.0.0/24"])), true),
            ("label changed without CIDR", updated(&bare, labeled(&[])), false),
            ("CIDR changed", updated(&before, node(&["10.0.1.0/24"], "1.1.1.1", "True")), true),
            ("CIDR assigned", updated(&bare, node(&["10.0.1.0/24"], "1.1.1.1", "True")), true),
            ("CIDR withdrawn", updated(&before, Arc::clone(&bare)), true),
            ("condition changed", updated(&before, node(&["10.0.0.0/24"], "1.1.1.1", "False")), false),
        ];
        for (name, change, expected) in table {
            assert_eq!(concerns_routes(&change), expected, "{name}");
        }
    }

    fn config(seconds: u64) -> RouteControllerConfig {
        RouteControllerConfig {
            cluster_cidrs: Vec::new(),
            reconciliation_period: Duration::from_secs(seconds),
            watch_based: true,
            nodes_are_filtered: false,
            node_masks: NodeMaskSizes::default(),
        }
    }

    #[test]
    fn at_most_one_cluster_cidr_per_family_is_accepted() {
        let cidrs = |list: &[&str]| -> Vec<IpNet> { list.iter().map(|cidr| cidr.parse().unwrap()).collect() };
        let check = |list: &[&str]| RouteControllerConfig { cluster_cidrs: cidrs(list), ..config(10) }.check();
        let (a, b, c) = ("10.0.0.0/8", "fd00::/48", "11.0.0.0/8");
        for accepted in [&[a][..], &[b], &[a, b], &[b, a]] {
            assert_eq!(check(accepted), Ok(()), "{accepted:?}");
        }
        assert_eq!(check(&[]), Err(RouteControllerError::NoClusterCidr));
        assert_eq!(check(&[a, c]), Err(RouteControllerError::SameFamily(a.parse().unwrap(), c.parse().unwrap())));
        assert_eq!(check(&[a, b, c]), Err(RouteControllerError::TooManyClusterCidrs(3)));
    }

    #[test]
    fn periods_follow_the_flag() {
        assert_eq!(RouteControllerConfig { watch_based: false, ..config(10) }.resync_period(), Duration::from_secs(10));
        assert_eq!(config(10).resync_period(), RESYNC_PERIOD);
        assert_eq!(config(3600).resync_period(), Duration::from_secs(3600));
        assert_eq!(config(10).backoff().delay(20), Duration::from_secs(10));
        assert_eq!(config(0).backoff().delay(1), FIRST_RETRY);
    }
}

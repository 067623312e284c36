//! Sync of the hosts of all load balancers together, independently of Services: a Service that cannot be ensured does not
//! block changes of Nodes.
//!
//! In: changes of Nodes, Services that failed, time. Out: calls of [`crate::cloud_provider::LoadBalancer::sync_hosts`], one
//! at a time. Level-triggered: each call passes the current host list, whatever triggered it.

use std::{sync::Arc, time::Duration};

use super::{
    keys::{ALL_HOSTS, COALESCING_DELAY},
    plan,
    reconcile::ServiceController,
};
use crate::{
    cloud_provider::CloudError,
    runtime::{
        shutdown::Shutdown,
        store::ObjectKey,
        work_queue::{ReconcilePriority, ReconcileResult},
    },
};

/// Interval of host syncs without a change of a Node: the provider's configuration may have changed, or a machine may have
/// become available.
const PERIOD: Duration = Duration::from_secs(60);

impl ServiceController {
    /// Enqueues the Services whose load balancers do not have the current hosts.
    pub(super) fn sync_nodes(&self) -> ReconcileResult {
        let (hosts, now) = (self.hosts(), self.context.clock.now());
        let affected: Vec<ObjectKey> = plan::affected(self.cache().iter(), &hosts.set).into_iter().cloned().collect();
        tracing::info!(services = affected.len(), hosts = hosts.nodes.len(), "nodes changed");
        self.observe_node_sync(self.cache().begin_node_sync(&affected, now));
        affected.into_iter().for_each(|key| self.queue.add(key, ReconcilePriority::NodeChange));
        ReconcileResult::Done
    }

    /// Syncs the hosts periodically.
    pub(super) async fn resync_hosts(&self, shutdown: &Shutdown) {
        // Services that need a reconcile are processed first, and apply the hosts as well.
        let mut wait = COALESCING_DELAY;
        while shutdown.run_until_begun(tokio::time::sleep(wait)).await.is_some() {
            self.host_queue.add(ALL_HOSTS, ReconcilePriority::Resync);
            wait = PERIOD;
        }
    }

    /// Syncs the hosts of all load balancers with the Nodes.
    pub(super) async fn sync_hosts(self: Arc<Self>) -> ReconcileResult {
        let hosts = self.hosts();
        match self.balancer.sync_hosts(&self.context.cluster_name, &hosts.nodes).await {
            Ok(()) | Err(CloudError::ImplementedElsewhere | CloudError::NotImplemented) => ReconcileResult::Done,
            Err(CloudError::RetryAfter { after, message } | CloudError::MissingReference { after, message }) => {
                ReconcileResult::RequeueAfter(after, message)
            }
            Err(CloudError::NotLeader(message)) => ReconcileResult::RequeueAfter(plan::BACKOFF.base, message),
            Err(CloudError::Invalid(message)) => ReconcileResult::Rejected(message),
            Err(error) => ReconcileResult::Failed(error.to_string()),
        }
    }
}

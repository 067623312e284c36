//! The hosts of all load balancers together: a duty of its own, so that no Service that cannot be ensured keeps Nodes out or in.
//!
//! In: changes of Nodes, Services that failed, time. Out: calls of
//! [`crate::cloud_provider::LoadBalancer::sync_hosts`], one at a time. Level-triggered: whoever asks, the call is about what is.

use std::{sync::Arc, time::Duration};

use super::{
    keys::{COALESCING_DELAY, HostSync},
    plan,
    reconcile::ServiceReconciler,
};
use crate::{
    cloud_provider::CloudError,
    runtime::{
        shutdown::Shutdown,
        store::ObjectKey,
        work_queue::{ReconcilePriority, ReconcileResult},
    },
};

/// How often the provider is asked although no Node has changed: its configuration may have, or a machine may have been given time.
const PERIOD: Duration = Duration::from_secs(60);

impl ServiceReconciler {
    /// Finds the Services whose load balancers have other hosts than they should, and enqueues them.
    pub(super) fn sync_nodes(&self) -> ReconcileResult {
        let (hosts, now) = (self.hosts(), self.context.clock.now());
        let affected: Vec<ObjectKey> = plan::affected(self.cache().iter(), &hosts.set).into_iter().cloned().collect();
        tracing::info!(services = affected.len(), hosts = hosts.nodes.len(), "nodes changed");
        self.observe_node_sync(self.cache().begin_node_sync(&affected, now));
        affected.into_iter().for_each(|key| self.queue.add(key, ReconcilePriority::NodeChange));
        ReconcileResult::Done
    }

    /// Has the hosts looked at again and again.
    pub(super) async fn resync_hosts(&self, shutdown: &Shutdown) {
        // Services that need anything come first, and bring the hosts with them.
        let mut wait = COALESCING_DELAY;
        loop {
            tokio::select! {
                () = shutdown.begun() => return,
                () = tokio::time::sleep(wait) => self.host_queue.add(HostSync, ReconcilePriority::Resync),
            }
            wait = PERIOD;
        }
    }

    /// Brings the hosts of all load balancers to the Nodes.
    pub(super) async fn sync_hosts(self: Arc<Self>) -> ReconcileResult {
        let hosts = self.hosts();
        match self.balancer.sync_hosts(&self.context.cluster_name, &hosts.nodes).await {
            Ok(()) | Err(CloudError::ImplementedElsewhere | CloudError::NotImplemented) => ReconcileResult::Done,
            Err(CloudError::RetryAfter { after, message } | CloudError::MissingReference { after, message }) => {
                ReconcileResult::RequeueAfter(after, message)
            }
            Err(CloudError::NotLeader(message)) => ReconcileResult::RequeueAfter(plan::BACKOFF.base, message),
            Err(CloudError::Invalid(message)) => ReconcileResult::RequeueAfter(plan::BACKOFF.max, message),
            Err(error) => ReconcileResult::Failed(error.to_string()),
        }
    }
}

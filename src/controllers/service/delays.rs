//! Calls of the provider that take long: the condition of the Service says what it waits for.
//!
//! In: a call that ensures a load balancer. Out: its result. When there is none after [`SHOWN_AFTER`] and the provider knows what calls
//! wait for ([`LoadBalancer::delay`](crate::cloud_provider::LoadBalancer::delay)), the condition says so, once.

use std::{pin::pin, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Node, Service};
use tokio::time::sleep;

use super::{conditions::LoadBalancerPhase, plan::EnsureReason, reconcile::ServiceReconciler, status_patch};
use crate::{
    cloud_provider::{CloudResult, LoadBalancerStatus},
    runtime::store::ObjectKey,
};

/// How long a call may take before the condition says what it waits for, and how often that is looked at.
const SHOWN_AFTER: Duration = Duration::from_secs(10);

impl ServiceReconciler {
    /// Ensures the load balancer of `service`, which becomes the object as it was written last.
    pub(super) async fn call_ensure(
        &self,
        key: &ObjectKey,
        service: &mut Arc<Service>,
        nodes: &[Arc<Node>],
        reason: EnsureReason,
    ) -> CloudResult<LoadBalancerStatus> {
        let (cluster, subject) = (&self.context.cluster_name, Arc::clone(service));
        let mut call = pin!(async {
            match reason {
                EnsureReason::Resync => self.balancer.compare_load_balancer(cluster, &subject, nodes).await,
                EnsureReason::NotSynced | EnsureReason::Changed => {
                    self.balancer.ensure_load_balancer(cluster, &subject, nodes).await
                }
            }
        });
        loop {
            tokio::select! {
                biased;
                result = &mut call => return result,
                () = sleep(SHOWN_AFTER) => self.show_delay(key, service).await,
            }
        }
    }

    /// Best effort: the next write of the status says how the call ended.
    async fn show_delay(&self, key: &ObjectKey, service: &mut Arc<Service>) {
        let Some(delay) = self.balancer.delay() else { return };
        let phase = LoadBalancerPhase::Waiting(delay);
        self.cache().set_phase(key, phase.clone());
        let body = status_patch::publish(service, None, &phase, self.context.clock.wall());
        let Some(body) = body else { return };
        match self.patch(key, body, "failed to update condition").await {
            Ok(written) => *service = written,
            Err(error) => tracing::debug!(%key, %error, "condition not written"),
        }
    }
}

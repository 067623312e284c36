//! Reports of slow provider calls in the condition of the Service.
//!
//! In: a call that ensures a load balancer. Out: its result. If the call takes longer than [`SHOWN_AFTER`] and the provider returns a
//! reason ([`LoadBalancer::delay`](crate::cloud_provider::LoadBalancer::delay)), the condition reports it, once.

use std::{pin::pin, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Node, Service};
use tokio::time::sleep;

use super::{
    conditions::LoadBalancerPhase,
    plan::{EnsureReason, ServiceStatusUpdate},
    reconcile::ServiceController,
};
use crate::{
    cloud_provider::{CloudResult, LoadBalancerStatus},
    runtime::store::ObjectKey,
};

/// Duration of a call after which the condition reports what it waits for, and the interval of that check.
const SHOWN_AFTER: Duration = Duration::from_secs(10);

impl ServiceController {
    /// Ensures the load balancer of `service`, and replaces `service` by the object that was written last.
    ///
    /// A comparison reports no delay, because the Service is served meanwhile.
    pub(super) async fn call_ensure(
        &self,
        key: &ObjectKey,
        service: &mut Arc<Service>,
        nodes: &[Arc<Node>],
        reason: EnsureReason,
    ) -> CloudResult<LoadBalancerStatus> {
        let (cluster, subject) = (&self.context.cluster_name, Arc::clone(service));
        if reason == EnsureReason::Resync {
            return self.balancer.compare_load_balancer(cluster, &subject, nodes).await;
        }
        let call = pin!(self.balancer.ensure_load_balancer(cluster, &subject, nodes));
        // The call must not pause while the condition is written, because other calls may wait for it.
        tokio::select! {
            biased;
            result = call => result,
            never = self.show_delay(key, service) => match never {},
        }
    }

    /// Writes the delay into the condition, at best effort, because the next write of the status reports the result of the call.
    ///
    /// Never returns, so that the caller's `select` waits for the call.
    async fn show_delay(&self, key: &ObjectKey, service: &mut Arc<Service>) -> std::convert::Infallible {
        let delay = loop {
            sleep(SHOWN_AFTER).await;
            if let Some(delay) = self.balancer.delay(service) {
                break delay;
            }
        };
        let phase = LoadBalancerPhase::Waiting(delay);
        self.cache().set_phase(key, phase.clone());
        let update = ServiceStatusUpdate { status: None, phase };
        if let Some(written) = self.write_condition(key, Some(Arc::clone(service)), &update).await {
            *service = written;
        }
        std::future::pending().await
    }
}

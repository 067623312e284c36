//! Calls of the provider that take long: the condition of the Service says what it waits for.
//!
//! In: a call that ensures a load balancer. Out: its result. When there is none after [`SHOWN_AFTER`] and the provider knows what calls
//! wait for ([`LoadBalancer::delay`](crate::cloud_provider::LoadBalancer::delay)), the condition says so, once.

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
    /// Ensures the load balancer of `service`, which becomes the object as it was written last. A comparison shows no delay: the Service is
    /// served meanwhile.
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
        // Both go on while the other waits: others may wait for the call.
        tokio::select! {
            biased;
            result = call => result,
            never = self.show_delay(key, service) => match never {},
        }
    }

    /// Writes the delay into the condition, at best effort: the next write of the status reports how the call ended.
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

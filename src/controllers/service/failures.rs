//! Failed reconciles, and conditions that are written apart from the rest of the status.
//!
//! In: why a reconcile failed, or the phase of a Service. Out: its condition, and what the work queue does next.

use std::sync::{Arc, atomic::Ordering};

use k8s_openapi::api::core::v1::Service;

use super::{
    conditions::LoadBalancerPhase,
    plan::ServiceSyncError,
    reconcile::{MAX_ROUNDS, ServiceReconciler},
    status_patch,
};
use crate::runtime::{patch::ApiError, store::ObjectKey, work_queue::ReconcileResult};

impl ServiceReconciler {
    /// Reports a failure to the user, and returns the outcome for the queue.
    pub(super) async fn failed(
        &self,
        key: &ObjectKey,
        service: Option<Arc<Service>>,
        failure: &ServiceSyncError,
    ) -> ReconcileResult {
        let verdict = failure.response();
        if let Some(stage) = verdict.phase {
            self.cache().set_phase(key, stage.clone());
            self.write_condition(key, service, &stage).await;
        }
        verdict.outcome
    }

    /// Writes the condition if it is worth it; answers the Service if so. Best effort: the failure itself is in log, event and queue already.
    pub(super) async fn write_condition(
        &self,
        key: &ObjectKey,
        mut service: Option<Arc<Service>>,
        stage: &LoadBalancerPhase,
    ) -> Option<Arc<Service>> {
        for _ in 0..MAX_ROUNDS {
            let current = service.take()?;
            let body = status_patch::publish(&current, None, stage, self.context.clock.wall());
            let body = body.filter(|_| !self.conditions_are_dropped.load(Ordering::Relaxed))?;
            match self.patch(key, body, "failed to update condition").await {
                Err(ServiceSyncError::Api { error: ApiError::Conflict(_), .. }) => {
                    let same = |latest: &Arc<Service>| latest.metadata.uid == current.metadata.uid;
                    service = self.read(key).await.unwrap_or_default().filter(same);
                }
                Err(error) => {
                    tracing::debug!(%key, %error, "condition not written");
                    return None;
                }
                Ok(written) => return Some(written),
            }
        }
        None
    }
}

//! Failed reconciles, and conditions that are written apart from the rest of the status.
//!
//! In: why a reconcile failed, or the phase of a Service. Out: its condition, the addresses of a load balancer that is incomplete, and
//! what the work queue does next.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;

use super::{
    plan::{ServiceStatusUpdate, ServiceSyncError},
    reconcile::{MAX_ROUNDS, ServiceController},
};
use crate::runtime::{patch::ApiError, store::ObjectKey, work_queue::ReconcileResult};

impl ServiceController {
    /// Reports a failure to the user, and returns the outcome for the queue.
    pub(super) async fn failed(
        &self,
        key: &ObjectKey,
        service: Option<Arc<Service>>,
        failure: &ServiceSyncError,
    ) -> ReconcileResult {
        let verdict = failure.response();
        if let Some(phase) = verdict.phase {
            self.cache().set_phase(key, phase.clone());
            self.write_condition(key, service, &ServiceStatusUpdate { status: failure.status().cloned(), phase }).await;
        }
        verdict.outcome
    }

    /// Writes the condition, and the addresses if the update has any. Returns the Service as the server has it.
    ///
    /// Best effort: the failure itself is in log, event and queue already.
    pub(super) async fn write_condition(
        &self,
        key: &ObjectKey,
        mut service: Option<Arc<Service>>,
        update: &ServiceStatusUpdate,
    ) -> Option<Arc<Service>> {
        for _ in 0..MAX_ROUNDS {
            let mut current = service.take()?;
            match self.write_status(key, &mut current, update).await {
                Err(ServiceSyncError::Api { error: ApiError::Conflict(_), .. }) => {
                    let same = |latest: &Arc<Service>| latest.metadata.uid == current.metadata.uid;
                    service = self.read(key).await.unwrap_or_default().filter(same);
                }
                Err(error) => {
                    tracing::debug!(%key, %error, "condition not written");
                    return None;
                }
                Ok(published) => {
                    self.cache().record_published(key, published);
                    return Some(current);
                }
            }
        }
        None
    }
}

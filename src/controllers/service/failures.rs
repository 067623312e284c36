//! Failed reconciles, and conditions that are written separately from the rest of the status.
//!
//! In: the error of a reconcile, or the phase of a Service. Out: the condition, the addresses of an incomplete load balancer, and
//! the outcome for the work queue.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;

use super::{
    plan::{ServiceStatusUpdate, ServiceSyncError},
    reconcile::{MAX_ROUNDS, ServiceController},
};
use crate::runtime::{patch::ApiError, store::ObjectKey, work_queue::ReconcileResult};

impl ServiceController {
    /// Reports a failure to the user, and returns the outcome for the queue.
    pub(super) async fn handle_failure(
        &self,
        key: &ObjectKey,
        service: Option<Arc<Service>>,
        failure: &ServiceSyncError,
    ) -> ReconcileResult {
        let response = failure.response();
        if let Some(phase) = response.phase {
            self.cache().set_phase(key, phase.clone());
            self.write_condition(key, service, &ServiceStatusUpdate { status: failure.status().cloned(), phase }).await;
        }
        response.outcome
    }

    /// Writes the condition, and the addresses if the update has any. Returns the Service as the server has it.
    ///
    /// Best effort, because log, event and queue report the failure as well.
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
                    let is_same = |latest: &Arc<Service>| latest.metadata.uid == current.metadata.uid;
                    service = self.read(key).await.unwrap_or_default().filter(is_same);
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

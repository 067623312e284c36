//! Restores what another writer removes from a settled Service: the finalizer, the addresses and the condition.
//!
//! In: the Service from the watch and what was last published. Out: one patch, at once for the first removal and after growing pauses for
//! the next ones, so that two writers do not overwrite each other in a loop. Upstream never restores them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;

use super::{
    events::{self, StrippedField},
    plan::{self, ServiceStatusUpdate, ServiceSyncError},
    reconcile::{ServiceReconciler, ServiceRoundResult},
    status_patch,
};
use crate::{
    cloud_provider::drift::DriftOutcome,
    runtime::{store::ObjectKey, work_queue::ReconcilePriority},
};

impl ServiceReconciler {
    /// Returns a priority if an update shows that another writer removed a field of a settled Service.
    pub(super) fn on_stripped(&self, key: &ObjectKey, new: &Service) -> Option<ReconcilePriority> {
        let cache = self.cache();
        let applied = cache.get(key).filter(|applied| applied.service.metadata.uid == new.metadata.uid)?;
        plan::restoration(&self.classes, new, applied).map(|_| ReconcilePriority::UserChange)
    }

    pub(super) async fn restore(
        &self,
        key: &ObjectKey,
        service: &mut Arc<Service>,
        published: &ServiceStatusUpdate,
    ) -> Result<ServiceRoundResult, ServiceSyncError> {
        let now = self.context.clock.now();
        let remaining = self.cache().restoration_pause(key, now);
        if !remaining.is_zero() {
            return Ok(ServiceRoundResult::Later(remaining));
        }
        let wall = self.context.clock.wall();
        let [finalizer, status] = StrippedField::ALL;
        let field = if status_patch::lacks_finalizer(&self.classes, service) { finalizer } else { status };
        let body = status_patch::restore(&self.classes, service, (published.status.as_ref(), &published.phase), wall);
        *service = self.patch(key, body, "failed to restore finalizer and status").await?;
        self.context.metrics.service_drift_total.with_label_values(&[field.as_str()]).inc();
        let event = events::restored(service, field);
        let mut cache = self.cache();
        cache.mark_restored(key, now);
        cache.drift.note(&key.to_string(), wall, DriftOutcome::Repaired, &event.message);
        drop(cache);
        tracing::warn!(service = %key, field = field.as_str(), "another writer changed the Service; restored it");
        self.record(event);
        Ok(ServiceRoundResult::Replan)
    }
}

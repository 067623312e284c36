//! Restoration of the finalizer, the addresses and the condition that another writer removes from a settled Service.
//!
//! In: the Service from the watch, and our part of it as the server returned it. Out: one patch that adds the missing parts, immediately
//! for the first removal and after growing pauses for the next ones, so that two writers do not overwrite each other in a loop.
//! Additions are kept and reported once. Upstream restores nothing.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service};

use super::{
    events,
    plan::{self, ServiceStatusUpdate},
    reconcile::{RoundResult, ServiceController, ServiceRoundResult},
    status_patch,
};
use crate::{
    runtime::{store::ObjectKey, work_queue::ReconcilePriority},
    status::DriftOutcome,
};

impl ServiceController {
    /// Returns a priority if an update shows that another writer changed a field of a settled Service.
    pub(super) fn priority_of_removal(&self, key: &ObjectKey, new: &Service) -> Option<ReconcilePriority> {
        let cache = self.cache();
        let applied = cache.get(key).filter(|applied| applied.service.metadata.uid == new.metadata.uid)?;
        plan::after_other_writer(&self.classes, new, applied).map(|_| ReconcilePriority::UserChange)
    }

    /// Returns `true` if the configuration allows a write of the `desired` addresses.
    ///
    /// If they are the `published` ones, another writer has removed the missing ones.
    pub(super) fn may_write_addresses(&self, desired: &LoadBalancerStatus, published: Option<&LoadBalancerStatus>) -> bool {
        self.balancer.reverts_external_changes()
            || published.is_none_or(|published| !status_patch::lists_same(published, desired))
    }

    /// Reports that addresses of another writer are kept, once until the Service changes.
    pub(super) fn report_additions(&self, key: &ObjectKey, service: &Service) -> ServiceRoundResult {
        if self.cache().mark_reported(key) {
            self.record(events::additions_kept(service));
        }
        ServiceRoundResult::Done
    }

    /// Reports that `field` is not restored, once until the Service changes.
    fn report_unrestored(&self, key: &ObjectKey, service: &Service, field: &str) {
        let mut cache = self.cache();
        if !cache.mark_reported(key) {
            return;
        }
        let event = events::not_restored(service, field);
        cache.drift.note(&key.to_string(), self.context.clock.wall(), DriftOutcome::Reported, &event.message);
        drop(cache);
        self.record(event);
    }

    pub(super) async fn restore(
        &self,
        key: &ObjectKey,
        service: &mut Arc<Service>,
        published: &ServiceStatusUpdate,
    ) -> RoundResult {
        let field = if status_patch::lacks_finalizer(&self.classes, service) { "finalizer" } else { "status" };
        if !self.balancer.reverts_external_changes() {
            self.report_unrestored(key, service, field);
            return Ok(ServiceRoundResult::Done);
        }
        let now = self.context.clock.now();
        let remaining = self.cache().restoration_pause(key, now);
        if !remaining.is_zero() {
            return Ok(ServiceRoundResult::Later(remaining));
        }
        let wall = self.context.clock.wall();
        let own = published.status.as_ref();
        let listed = own.map(|own| status_patch::addresses(service, own, Some(own)));
        let body = status_patch::restore(&self.classes, service, (listed.as_ref(), &published.phase), wall);
        *service = self.patch(key, body, "failed to restore finalizer and status").await?;
        let own = own.zip(listed.as_ref()).map(|(own, listed)| status_patch::own_addresses(service, own, listed));
        self.context.metrics.service_drift_total.with_label_values(&[field]).inc();
        let event = events::restored(service, field);
        let mut cache = self.cache();
        cache.mark_restored(key, now, own);
        cache.drift.note(&key.to_string(), wall, DriftOutcome::Repaired, &event.message);
        drop(cache);
        tracing::warn!(service = %key, field, "another writer changed the Service; restored it");
        self.record(event);
        Ok(ServiceRoundResult::Replan)
    }
}

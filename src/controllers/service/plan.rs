//! Decision about the next step for one Service, from the current Service, the state last applied for it, and the hosts.
//! Pure.
//!
//! Level-triggered: the decision does not depend on the event that caused it, so lost, repeated and reordered events make no
//! difference.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service};
use tokio::time::Instant;

use super::{
    conditions::LoadBalancerPhase,
    labels::SelectedLabels,
    needs_update::{is_being_deleted, is_handed_over, needs_cleanup, needs_update},
    predicates::NodeSet,
    status_patch,
};
use crate::{
    cloud_provider::{CloudError, load_balancer_class::LoadBalancerClasses},
    controllers::restoration::Restoration,
    runtime::{
        patch::ApiError,
        work_queue::{KeyBackoff, ReconcilePriority, ReconcileResult},
    },
};

/// Backoff of failing Services. Upstream: `minRetryDelay`, `maxRetryDelay`.
pub const BACKOFF: KeyBackoff = KeyBackoff { base: Duration::from_secs(5), max: Duration::from_secs(300) };

/// State that this process last applied to the cloud for one Service. Upstream: `cachedService`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AppliedService {
    /// Service of the last or the next provider call, from which the load balancer is deleted if the Service disappears.
    pub service: Arc<Service>,
    /// Whether the cloud matches `service` and `nodes`. `false` from the start of a call until it has succeeded.
    pub synced: bool,
    /// Hosts that were last applied.
    pub nodes: Option<NodeSet>,
    /// Labels that were last applied.
    pub labels: SelectedLabels,
    /// Result of a provider call that may not be published in the Service yet.
    pub unpublished: Option<ServiceStatusUpdate>,
    /// Our addresses in the Service, as the server has them. With `None`, the next result replaces all listed addresses.
    pub published: Option<LoadBalancerStatus>,
    /// Resource versions that this process has replaced; while the store has one of them, it is outdated.
    pub replaced: Vec<String>,
    /// Last restoration after a change by another writer.
    pub restored: Option<Restoration>,
    /// Whether an event has reported a change by another writer that is kept.
    pub is_reported: bool,
    /// Whether the load balancer must be compared with the cloud although nothing changed.
    pub verify: bool,
    /// Time of the comparison with the cloud after a change that the provider does not read.
    pub compare_at: Option<Instant>,
    /// Phase of the load balancer, for status pages.
    pub phase: Option<LoadBalancerPhase>,
}

impl AppliedService {
    /// Creates an unsynced entry for a Service that needs, or needed, a load balancer.
    pub fn unsynced(service: Arc<Service>) -> Self {
        Self { service, ..Self::default() }
    }
}

/// Result of a successful provider call, for the Service's status.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceStatusUpdate {
    /// Addresses, if the call returns any.
    pub status: Option<LoadBalancerStatus>,
    /// Phase of the load balancer after the call.
    pub phase: LoadBalancerPhase,
}

/// Reason for ensuring a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnsureReason {
    /// No attempt of this process has succeeded yet, or the last one failed.
    NotSynced,
    Changed,
    /// The periodic check of the cloud is due.
    Resync,
}

/// Next step for one Service.
#[derive(Debug, Clone, PartialEq)]
pub enum ServiceAction {
    /// The state is as desired, or the Service is not ours.
    Ignore,
    /// Delete the load balancer of this Service, which was deleted without a cleanup; then decide again.
    DeleteOrphan(Arc<Service>),
    /// Wait for the removal of this finalizer: another manager has, or may have, a load balancer for the Service.
    Wait(String),
    /// Remove our finalizer and change nothing in the cloud, because another manager serves the Service.
    HandOver,
    /// Delete the load balancer, then remove finalizer and status.
    Cleanup,
    /// Create or update the load balancer.
    Ensure(EnsureReason),
    /// Update only the hosts of the load balancer.
    UpdateHosts,
    /// Write the result of the provider into the Service.
    Publish(ServiceStatusUpdate),
    /// Write the finalizer or the status again, which another writer removed.
    Restore(ServiceStatusUpdate),
    /// Report that another writer added addresses to the status; they are kept.
    ReportAdditions,
}

/// Returns the next step for a Service.
///
/// `classes` are the classes that this manager serves; `labels` are the current labels of the Service and its Namespace.
pub fn decide(
    classes: &LoadBalancerClasses,
    service: Option<&Service>,
    applied: Option<&AppliedService>,
    hosts: &NodeSet,
    labels: &SelectedLabels,
) -> ServiceAction {
    match (service, applied) {
        (None, None) => ServiceAction::Ignore,
        (None, Some(applied)) => ServiceAction::DeleteOrphan(Arc::clone(&applied.service)),
        (Some(service), Some(applied)) if service.metadata.uid != applied.service.metadata.uid => {
            ServiceAction::DeleteOrphan(Arc::clone(&applied.service))
        }
        (Some(service), applied) => decide_shared(classes, service, applied).unwrap_or_else(|| match applied {
            None => decide_untracked(classes, service),
            Some(applied) => decide_tracked(classes, service, applied, (hosts, labels)),
        }),
    }
}

/// Returns the next step for a Service with the finalizer of another manager, or `None` if that finalizer makes no difference.
///
/// Both managers may use the same names in the cloud, so resources with these names may be the other's.
fn decide_shared(
    classes: &LoadBalancerClasses,
    service: &Service,
    applied: Option<&AppliedService>,
) -> Option<ServiceAction> {
    let other = classes.other_finalizer(service)?;
    let (is_ours, is_tracked) = (classes.has_finalizer(service), applied.is_some());
    if classes.is_elsewhere(service) {
        return Some(if is_ours || is_tracked { ServiceAction::HandOver } else { ServiceAction::Ignore });
    }
    let has_begun = is_ours || applied.is_some_and(|applied| applied.synced);
    (classes.wants(service) && !has_begun).then(|| match is_being_deleted(service) {
        true => ServiceAction::HandOver,
        false => ServiceAction::Wait(other.to_owned()),
    })
}

fn decide_untracked(classes: &LoadBalancerClasses, service: &Service) -> ServiceAction {
    if needs_cleanup(classes, service) || is_handed_over(classes, service) {
        ServiceAction::Cleanup
    } else if classes.wants(service) && !is_being_deleted(service) {
        ServiceAction::Ensure(EnsureReason::NotSynced)
    } else {
        // A deletion without our finalizer: already cleaned up, and delayed by another finalizer.
        ServiceAction::Ignore
    }
}

fn decide_tracked(
    classes: &LoadBalancerClasses,
    service: &Service,
    applied: &AppliedService,
    (hosts, labels): (&NodeSet, &SelectedLabels),
) -> ServiceAction {
    if needs_cleanup(classes, service) || !classes.wants(service) || is_being_deleted(service) {
        ServiceAction::Cleanup
    } else if needs_update(classes, &applied.service, service) {
        ServiceAction::Ensure(EnsureReason::Changed)
    } else if !applied.synced {
        ServiceAction::Ensure(EnsureReason::NotSynced)
    } else if applied.labels != *labels {
        ServiceAction::Ensure(EnsureReason::Changed)
    } else if applied.verify {
        ServiceAction::Ensure(EnsureReason::Resync)
    } else if let Some(update) = &applied.unpublished {
        ServiceAction::Publish(update.clone())
    } else if applied.nodes.as_ref() != Some(hosts) {
        ServiceAction::UpdateHosts
    } else {
        after_other_writer(classes, service, applied).unwrap_or(ServiceAction::Ignore)
    }
}

/// Returns the next step for a settled Service whose finalizer or status another writer changed; `None` if there is no such step.
///
/// Missing parts are restored. Additions are kept and reported once.
pub fn after_other_writer(
    classes: &LoadBalancerClasses,
    service: &Service,
    applied: &AppliedService,
) -> Option<ServiceAction> {
    let is_final =
        |phase: &&LoadBalancerPhase| matches!(phase, LoadBalancerPhase::Ready | LoadBalancerPhase::ImplementedElsewhere);
    let phase = applied.phase.as_ref().filter(is_final)?;
    let is_stale = service.metadata.resource_version.as_ref().is_some_and(|version| applied.replaced.contains(version));
    let is_settled = applied.synced && applied.unpublished.is_none() && !is_stale;
    if !is_settled || !classes.wants(service) || is_being_deleted(service) {
        return None;
    }
    let published = applied.published.as_ref();
    let listed = published.map(|published| status_patch::addresses(service, published, Some(published)));
    if status_patch::lacks_finalizer(classes, service) || status_patch::needs_publish(service, listed.as_ref(), phase) {
        let update = ServiceStatusUpdate { status: published.cloned(), phase: phase.clone() };
        return Some(ServiceAction::Restore(update));
    }
    let has_additions = published.is_some_and(|published| status_patch::has_additions(service, published));
    (has_additions && !applied.is_reported).then_some(ServiceAction::ReportAdditions)
}

/// Returns the priority of a Service that the watch reports for the first time, or `None` if it needs no work.
///
/// In the first list (`initial`), Services that already have an address get the lowest priority.
pub fn on_added(classes: &LoadBalancerClasses, service: &Service, initial: bool) -> Option<ReconcilePriority> {
    if needs_cleanup(classes, service) {
        return Some(ReconcilePriority::Deletion);
    }
    if is_handed_over(classes, service) {
        return Some(ReconcilePriority::Resync);
    }
    let has_address = !status_patch::ingress(service).is_empty();
    let urgency = if initial && has_address { ReconcilePriority::Resync } else { ReconcilePriority::UserChange };
    classes.wants(service).then_some(urgency)
}

/// Returns the priority of an update of a Service, or `None` if it needs no work.
///
/// An update that changes no compared field, such as our own write of the status, must not cut a backoff short.
pub fn on_updated(classes: &LoadBalancerClasses, old: &Service, new: &Service) -> Option<ReconcilePriority> {
    let is_another = old.metadata.uid != new.metadata.uid;
    if needs_cleanup(classes, new) {
        return (!needs_cleanup(classes, old) || is_another).then_some(ReconcilePriority::Deletion);
    }
    if is_handed_over(classes, new) && (!is_handed_over(classes, old) || is_another) {
        return Some(ReconcilePriority::Deletion);
    }
    let holder = |service| classes.other_finalizer(service).is_some();
    let is_released = classes.wants(new) && holder(old) && !holder(new);
    (is_released || needs_update(classes, old, new)).then_some(ReconcilePriority::UserChange)
}

/// Returns the settled load balancers whose hosts differ from `hosts`. Unsettled ones get the hosts with their next reconcile.
pub fn affected<'a, K>(applied: impl IntoIterator<Item = (&'a K, &'a AppliedService)>, hosts: &NodeSet) -> Vec<&'a K> {
    let stale = |applied: &AppliedService| applied.synced && applied.nodes.as_ref() != Some(hosts);
    applied.into_iter().filter(|(_, applied)| stale(applied)).map(|(key, _)| key).collect()
}

/// Error of a step, classified by the response to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceSyncError {
    /// Failed call of the provider.
    #[error("{operation}: {error}")]
    Cloud {
        /// Purpose of the request, in upstream's words.
        operation: &'static str,
        error: CloudError,
    },
    /// Failed request to the API server.
    #[error("{operation}: {error}")]
    Api {
        /// Purpose of the request, in upstream's words.
        operation: &'static str,
        error: ApiError,
    },
}

/// Shorthand for results of the steps of a reconcile.
pub type SyncResult<T> = Result<T, ServiceSyncError>;

/// Consequences of a failure for the queue and for the Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureResponse {
    pub outcome: ReconcileResult,
    /// Phase for the condition; `None` if the failure does not concern users.
    pub phase: Option<LoadBalancerPhase>,
}

impl ServiceSyncError {
    /// Returns the error of the provider or the API server, without the purpose of the request.
    pub fn cause(&self) -> &dyn std::fmt::Display {
        match self {
            ServiceSyncError::Cloud { error, .. } => error,
            ServiceSyncError::Api { error, .. } => error,
        }
    }

    /// Returns the status to publish although the call failed, if any.
    pub fn status(&self) -> Option<&LoadBalancerStatus> {
        match self {
            ServiceSyncError::Cloud { error: CloudError::Incomplete { status, .. }, .. } => Some(status),
            _ => None,
        }
    }

    /// Returns `true` if an event reports the error. Conflicts are not reported, because the next read resolves them.
    pub fn is_reportable(&self) -> bool {
        let is_conflict = matches!(self, ServiceSyncError::Api { error: ApiError::Conflict(_), .. });
        !is_conflict && self.response().phase.is_some()
    }

    /// Returns the consequences of the error.
    pub fn response(&self) -> FailureResponse {
        type PhaseOf = fn(String) -> LoadBalancerPhase;
        if let ServiceSyncError::Cloud { operation, error: error @ CloudError::Incomplete { .. } } = self {
            return ServiceSyncError::Cloud { operation, error: error.clone().without_status() }.response();
        }
        let message = self.to_string();
        let requeue_after = |delay| ReconcileResult::RequeueAfter(delay, message.clone());
        let failed = || ReconcileResult::Failed(message.clone());
        let (outcome, phase): (_, Option<PhaseOf>) = match self {
            ServiceSyncError::Cloud { error, .. } => match error {
                CloudError::RetryAfter { after, .. } => (requeue_after(*after), Some(LoadBalancerPhase::Waiting)),
                CloudError::MissingReference { after, .. } => (requeue_after(*after), Some(LoadBalancerPhase::Invalid)),
                CloudError::Invalid(_) => (ReconcileResult::Rejected(message.clone()), Some(LoadBalancerPhase::Invalid)),
                // A refusal is reported at each attempt, to keep its event alive.
                CloudError::Refused(_) => (failed(), Some(LoadBalancerPhase::Invalid)),
                // The leader does the work. If this process becomes the leader, it retries.
                CloudError::NotLeader(_) => (requeue_after(BACKOFF.base), None),
                _ => (failed(), Some(LoadBalancerPhase::Failed)),
            },
            ServiceSyncError::Api { error: ApiError::NotLeading(_), .. } => (requeue_after(BACKOFF.base), None),
            ServiceSyncError::Api { error: ApiError::NotFound(_), .. } => (ReconcileResult::Done, None),
            ServiceSyncError::Api { .. } => (failed(), Some(LoadBalancerPhase::Failed)),
        };
        FailureResponse { outcome, phase: phase.map(|phase| phase(message)) }
    }
}

#[cfg(test)]
mod tests;

//! What to do for one Service: a pure function of the Service as it is, what this process last applied for it, and the hosts.
//!
//! Level-triggered: nothing here knows which event led to the question, so lost, repeated and reordered events make no difference.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service};

use super::{
    conditions::LoadBalancerPhase,
    labels::SelectedLabels,
    needs_update::{is_being_deleted, is_handed_over, needs_cleanup, needs_update},
    predicates::NodeSet,
    restoration::StatusRestoration,
    status_patch,
};
use crate::{
    cloud_provider::{CloudError, load_balancer_class::LoadBalancerClasses},
    runtime::{
        patch::ApiError,
        work_queue::{KeyBackoff, ReconcilePriority, ReconcileResult},
    },
};

/// Back-off of failing Services. Upstream: `minRetryDelay`, `maxRetryDelay`.
pub const BACKOFF: KeyBackoff = KeyBackoff { base: Duration::from_secs(5), max: Duration::from_secs(300) };

/// What this process knows to have asked of the cloud for one Service. Upstream: `cachedService`.
#[derive(Debug, Clone, PartialEq)]
pub struct AppliedService {
    /// The Service as it was last asked for, or will be: what to delete when it vanishes.
    pub service: Arc<Service>,
    /// Whether the cloud is known to be as `service` and `nodes` say. `false` from before a call until it has succeeded.
    pub synced: bool,
    /// The hosts that were last applied.
    pub nodes: Option<NodeSet>,
    /// The labels that counted then.
    pub labels: SelectedLabels,
    /// What the cloud answered and the Service may not say yet.
    pub unpublished: Option<ServiceStatusUpdate>,
    /// The addresses that the Service was last given, or had already.
    pub published: Option<LoadBalancerStatus>,
    /// Resource versions that this process has replaced: while the store shows one, it is behind.
    pub replaced: Vec<String>,
    /// The last time that the Service was restored after another writer.
    pub restored: Option<StatusRestoration>,
    /// Whether this is to be checked against the cloud although nothing changed.
    pub verify: bool,
    /// Whether its user has edited it since the last attempt that was counted as an edit.
    pub edited: bool,
    /// How far it is, for status pages.
    pub phase: Option<LoadBalancerPhase>,
}

impl AppliedService {
    /// A Service of which only is known that it wants, or wanted, a load balancer.
    pub fn unknown(service: Arc<Service>) -> Self {
        Self {
            service,
            synced: false,
            nodes: None,
            labels: SelectedLabels::default(),
            unpublished: None,
            published: None,
            replaced: Vec::new(),
            restored: None,
            verify: false,
            edited: false,
            phase: None,
        }
    }
}

/// What the cloud answered to a call that succeeded, for the Service's status.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceStatusUpdate {
    /// Addresses, if the call tells any.
    pub status: Option<LoadBalancerStatus>,
    /// How far the load balancer is now.
    pub phase: LoadBalancerPhase,
}

/// Why a load balancer is ensured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnsureReason {
    /// This process has not done so yet, or the last attempt did not succeed.
    NotSynced,
    /// The Service changed.
    Changed,
    /// It is time to look whether the cloud still is as it should be.
    Resync,
}

/// The next step for one Service.
#[derive(Debug, Clone, PartialEq)]
pub enum ServiceAction {
    /// All is as it should be, or it is not ours.
    Ignore,
    /// Delete the load balancer of this Service, which is gone without our having cleaned up; then decide again.
    DeleteOrphan(Arc<Service>),
    /// Another manager still has, or may have, a load balancer of it, as this finalizer says: its removal is waited for.
    Wait(String),
    /// Another manager is at work on it: take the own finalizer away and touch nothing in the cloud.
    HandOver,
    /// Delete the load balancer, then take finalizer and status away.
    Cleanup,
    /// Create or update the load balancer.
    Ensure(EnsureReason),
    /// Give the load balancer its new hosts, nothing else.
    UpdateHosts,
    /// The cloud is done; write its answer into the Service.
    Publish(ServiceStatusUpdate),
    /// Another writer removed the finalizer or the answer: write them again.
    Restore(ServiceStatusUpdate),
}

/// Whether a load balancer is ensured because its user edited the Service, even if the Service is now what it was at the last attempt.
/// The first attempt and retries are not.
pub fn is_user_edit(reason: EnsureReason, applied: Option<&AppliedService>) -> bool {
    let edited = applied.is_some_and(|applied| applied.edited);
    reason == EnsureReason::Changed || (reason == EnsureReason::NotSynced && edited)
}

/// The next step. `classes`: which Services are this manager's; `labels`: those of the Service and its Namespace that count now.
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
            None => decide_unknown(classes, service),
            Some(applied) => decide_known(classes, service, applied, (hosts, labels)),
        }),
    }
}

/// The next step for a Service that another manager holds, unless that is of no consequence. Both managers may use the same names in the cloud,
/// so that what is found there may be the other's by now.
fn decide_shared(
    classes: &LoadBalancerClasses,
    service: &Service,
    applied: Option<&AppliedService>,
) -> Option<ServiceAction> {
    let other = classes.other_finalizer(service)?;
    let (is_ours, is_known) = (classes.has_finalizer(service), applied.is_some());
    if classes.is_elsewhere(service) {
        return Some(if is_ours || is_known { ServiceAction::HandOver } else { ServiceAction::Ignore });
    }
    let has_begun = is_ours || applied.is_some_and(|applied| applied.synced);
    (classes.wants(service) && !has_begun).then(|| match is_being_deleted(service) {
        true => ServiceAction::HandOver,
        false => ServiceAction::Wait(other.to_owned()),
    })
}

fn decide_unknown(classes: &LoadBalancerClasses, service: &Service) -> ServiceAction {
    if needs_cleanup(classes, service) || is_handed_over(classes, service) {
        ServiceAction::Cleanup
    } else if classes.wants(service) && !is_being_deleted(service) {
        ServiceAction::Ensure(EnsureReason::NotSynced)
    } else {
        // Being deleted without our finalizer: cleaned up already, something else holds it.
        ServiceAction::Ignore
    }
}

fn decide_known(
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
    } else if let Some(answer) = &applied.unpublished {
        ServiceAction::Publish(answer.clone())
    } else if applied.nodes.as_ref() != Some(hosts) {
        ServiceAction::UpdateHosts
    } else {
        restoration(classes, service, applied).map_or(ServiceAction::Ignore, ServiceAction::Restore)
    }
}

/// What to write again into a settled Service because another writer removed it; `None` when nothing is missing. A process that starts now
/// would write the same.
pub fn restoration(
    classes: &LoadBalancerClasses,
    service: &Service,
    applied: &AppliedService,
) -> Option<ServiceStatusUpdate> {
    let is_final =
        |phase: &&LoadBalancerPhase| matches!(phase, LoadBalancerPhase::Ready | LoadBalancerPhase::ImplementedElsewhere);
    let phase = applied.phase.as_ref().filter(is_final)?;
    let is_stale = service.metadata.resource_version.as_ref().is_some_and(|version| applied.replaced.contains(version));
    let is_settled = applied.synced && applied.unpublished.is_none() && !is_stale;
    let is_wanted = classes.wants(service) && !is_being_deleted(service);
    let is_stripped = || {
        status_patch::lacks_finalizer(classes, service)
            || status_patch::needs_publish(service, applied.published.as_ref(), phase)
    };
    (is_settled && is_wanted && is_stripped())
        .then(|| ServiceStatusUpdate { status: applied.published.clone(), phase: phase.clone() })
}

/// Whether a Service that was just seen for the first time is enqueued, and how urgent it is. In the first list (`initial`),
/// Services that have their address already give way to whatever users do meanwhile.
pub fn on_added(classes: &LoadBalancerClasses, service: &Service, initial: bool) -> Option<ReconcilePriority> {
    if needs_cleanup(classes, service) {
        return Some(ReconcilePriority::Deletion);
    }
    if is_handed_over(classes, service) {
        return Some(ReconcilePriority::Resync);
    }
    let has_address = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref())
        .is_some_and(|status| status.ingress.as_ref().is_some_and(|ingress| !ingress.is_empty()));
    let urgency = if initial && has_address { ReconcilePriority::Resync } else { ReconcilePriority::UserChange };
    classes.wants(service).then_some(urgency)
}

/// Whether an update of a Service is enqueued, and how urgent it is. An update that changes nothing we compare (such as our own
/// write of the status) must not cut a back-off short.
pub fn on_updated(classes: &LoadBalancerClasses, old: &Service, new: &Service) -> Option<ReconcilePriority> {
    let is_another = old.metadata.uid != new.metadata.uid;
    if needs_cleanup(classes, new) {
        return (!needs_cleanup(classes, old) || is_another).then_some(ReconcilePriority::Deletion);
    }
    if is_handed_over(classes, new) && (!is_handed_over(classes, old) || is_another) {
        return Some(ReconcilePriority::Deletion);
    }
    let holder = |service| classes.other_finalizer(service).is_some();
    let is_let_go = classes.wants(new) && holder(old) && !holder(new);
    (is_let_go || needs_update(classes, old, new)).then_some(ReconcilePriority::UserChange)
}

/// Which load balancers have other hosts than `hosts`, of those that are settled; the others get them anyway.
pub fn affected<'a, K>(applied: impl IntoIterator<Item = (&'a K, &'a AppliedService)>, hosts: &NodeSet) -> Vec<&'a K> {
    let stale = |applied: &AppliedService| applied.synced && applied.nodes.as_ref() != Some(hosts);
    applied.into_iter().filter(|(_, applied)| stale(applied)).map(|(key, _)| key).collect()
}

/// What went wrong in a step, classed by what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceSyncError {
    /// A call of the provider.
    #[error("{doing}: {error}")]
    Cloud {
        /// What it was for, in upstream's words.
        doing: &'static str,
        /// What the provider said.
        error: CloudError,
    },
    /// A write to the cluster.
    #[error("{doing}: {error}")]
    Api {
        /// What it was for, in upstream's words.
        doing: &'static str,
        /// What the API server said.
        error: ApiError,
    },
    /// Its user edits the Service more often than edits are carried out.
    #[error("edited too often: the latest edit is carried out in {} s", .0.as_secs() + 1)]
    Paced(Duration),
}

/// What a failure means for the queue and for the Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureResponse {
    pub outcome: ReconcileResult,
    /// For the condition; `None` when users need not hear of it.
    pub phase: Option<LoadBalancerPhase>,
}

impl ServiceSyncError {
    /// What the cloud or the server said, without what it was for.
    pub fn cause(&self) -> &dyn std::fmt::Display {
        match self {
            ServiceSyncError::Cloud { error, .. } => error,
            ServiceSyncError::Api { error, .. } => error,
            ServiceSyncError::Paced(_) => self,
        }
    }

    /// Whether an event reports it. A conflict is resolved by reading again; an event for each edit would be as many as the edits.
    pub fn is_reportable(&self) -> bool {
        let is_expected =
            matches!(self, ServiceSyncError::Api { error: ApiError::Conflict(_), .. } | ServiceSyncError::Paced(_));
        !is_expected && self.response().phase.is_some()
    }

    /// What to do about it.
    pub fn response(&self) -> FailureResponse {
        let message = self.to_string();
        match self {
            ServiceSyncError::Cloud { error: CloudError::RetryAfter { after, .. }, .. } => FailureResponse {
                outcome: ReconcileResult::RequeueAfter(*after, message.clone()),
                phase: Some(LoadBalancerPhase::Waiting(message)),
            },
            ServiceSyncError::Paced(wait) => FailureResponse {
                outcome: ReconcileResult::RequeueAfter(*wait, message.clone()),
                phase: Some(LoadBalancerPhase::Waiting(message)),
            },
            ServiceSyncError::Cloud { error: CloudError::MissingReference { after, .. }, .. } => FailureResponse {
                outcome: ReconcileResult::RequeueAfter(*after, message.clone()),
                phase: Some(LoadBalancerPhase::Invalid(message)),
            },
            ServiceSyncError::Cloud { error: CloudError::Invalid(_), .. } => FailureResponse {
                outcome: ReconcileResult::RequeueAfter(BACKOFF.max, message.clone()),
                phase: Some(LoadBalancerPhase::Invalid(message)),
            },
            // A refusal is told with each try, so that its event stays alive.
            ServiceSyncError::Cloud { error: CloudError::Refused(_), .. } => FailureResponse {
                outcome: ReconcileResult::Failed(message.clone()),
                phase: Some(LoadBalancerPhase::Invalid(message)),
            },
            // The leader will do it. Should this process turn out to lead after all, nothing is lost.
            ServiceSyncError::Cloud { error: CloudError::NotLeader(_), .. }
            | ServiceSyncError::Api { error: ApiError::NotLeading(_), .. } => {
                FailureResponse { outcome: ReconcileResult::RequeueAfter(BACKOFF.base, message), phase: None }
            }
            ServiceSyncError::Api { error: ApiError::NotFound(_), .. } => {
                FailureResponse { outcome: ReconcileResult::Done, phase: None }
            }
            ServiceSyncError::Cloud { .. } | ServiceSyncError::Api { .. } => FailureResponse {
                outcome: ReconcileResult::Failed(message.clone()),
                phase: Some(LoadBalancerPhase::Failed(message)),
            },
        }
    }
}

#[cfg(test)]
mod tests;

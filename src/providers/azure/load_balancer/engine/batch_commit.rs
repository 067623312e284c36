//! Tries a batch, takes it apart when ARM rejects it, and goes on until everybody has an answer.
//!
//! In: asks, and something that plans and writes for a part of them. Out: an answer for each. Who was rejected alone is remembered and
//! tried alone from then on, after the others, until it is accepted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;

use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::batch::{
            bisect::{BatchError, BatchRequest, BisectLimits, Bisection, FailedPart},
            quarantine::Quarantine,
        },
        load_balancer::explain::{cloud_error, named_services, suspected_services, unprovisioned_public_ip},
        model::{ArmError, ArmErrorClass},
        planner::load_balancer::{desired::ServiceRequest, spec::ServiceIdentity},
    },
};

/// Everybody is tried, but for what is rejected too often in a row.
const LIMITS: BisectLimits = BisectLimits { attempts: usize::MAX, spare_rejections: 6, errors_end_batch: false };

/// Answers by Service.
pub(super) type ServiceResults<A> = BTreeMap<ServiceIdentity, CloudResult<A>>;

/// Why a part of a batch came to nothing.
#[derive(Debug)]
pub(super) enum AttemptError {
    /// ARM did not take, or could not do, what was sent.
    Arm(ArmError),
    /// Something else failed, for all of them.
    Cloud(CloudError),
    /// Something else failed, which only some of them need.
    SomeServices(CloudError),
}

impl From<ArmError> for AttemptError {
    fn from(error: ArmError) -> Self {
        AttemptError::Arm(error)
    }
}

impl From<CloudError> for AttemptError {
    fn from(error: CloudError) -> Self {
        AttemptError::Cloud(error)
    }
}

/// Plans and writes one document, or several that belong together.
#[async_trait]
pub(super) trait BatchStage: Sync {
    /// What each Service gets.
    type Output: Send;
    /// What it does, for messages.
    fn action(&self) -> &'static str;
    /// Returns `true` if a result is final: not if the Service comes again.
    fn is_settled(_: &Self::Output) -> bool {
        true
    }
    /// For these Services alone. Answers for each; an error is about all of them.
    async fn attempt(&self, requests: &[ServiceRequest]) -> Result<ServiceResults<Self::Output>, AttemptError>;
}

/// Services that were rejected alone.
pub(super) type ServiceQuarantine = Quarantine<ServiceIdentity>;

impl BatchRequest for ServiceRequest {
    type Identity = ServiceIdentity;

    fn identity(&self) -> &ServiceIdentity {
        self.identity()
    }
}

/// Has everybody served who can be.
pub(super) async fn commit_batch<D: BatchStage>(
    document: &D,
    requests: Vec<ServiceRequest>,
    quarantine: &ServiceQuarantine,
) -> ServiceResults<D::Output> {
    let mut answers = ServiceResults::new();
    if requests.is_empty() {
        return answers;
    }
    let mut bisection = Bisection::new(requests, &quarantine.all(), LIMITS);
    while let Some(part) = bisection.next_part() {
        let trouble = match document.attempt(&part).await {
            Ok(answered) => {
                let is_settled =
                    |who: &ServiceIdentity| answered.get(who).is_some_and(|it| it.as_ref().map_or(true, D::is_settled));
                let settled: Vec<_> = part.into_iter().filter(|request| is_settled(request.identity())).collect();
                quarantine.release(&settled);
                if !settled.is_empty() {
                    bisection.accepted();
                }
                answers.extend(answered);
                continue;
            }
            Err(trouble) => trouble,
        };
        let (failed, can_split) = (bisection.failed(part, &trouble), trouble.can_split());
        let error = into_cloud_error(document.action(), trouble);
        match failed {
            FailedPart::Split { size, blamed } => {
                tracing::warn!(%error, services = size, blamed, "a batch was rejected and is split");
            }
            FailedPart::Final(part) => {
                quarantine.record_failure(&part, can_split);
                answers.extend(part.iter().map(|request| (request.identity().clone(), Err(error.clone()))));
            }
        }
    }
    answers
}

impl BatchError<ServiceRequest> for AttemptError {
    fn can_split(&self) -> bool {
        match self {
            AttemptError::Arm(error) => is_rejection(error),
            AttemptError::Cloud(_) => false,
            AttemptError::SomeServices(_) => true,
        }
    }

    fn blamed(&self, part: &[ServiceRequest]) -> BTreeSet<ServiceIdentity> {
        let AttemptError::Arm(error) = self else { return BTreeSet::new() };
        let named = named_services(error, part.iter().map(ServiceRequest::identity));
        let blamed = if named.is_empty() {
            suspected_services(error, part.iter().filter_map(ServiceRequest::spec).map(Arc::as_ref))
        } else {
            named
        };
        blamed.into_iter().collect()
    }
}

/// What is said of something that the document refers to and that the caller may not use.
const LINKED_AUTHORIZATION_FAILED: &str = "LinkedAuthorizationFailed";

/// Whether something in the document is wrong, rather than the time or the caller.
fn is_rejection(error: &ArmError) -> bool {
    let is_linked = error.class == ArmErrorClass::Forbidden && error.mentions(LINKED_AUTHORIZATION_FAILED);
    is_linked
        || unprovisioned_public_ip(error).is_some()
        || matches!(error.class, ArmErrorClass::Invalid | ArmErrorClass::QuotaExceeded)
}

/// The answer to those who are in this trouble.
pub(super) fn into_cloud_error(doing: &str, trouble: AttemptError) -> CloudError {
    match trouble {
        AttemptError::Arm(error) => cloud_error(doing, error),
        AttemptError::Cloud(error) | AttemptError::SomeServices(error) => error,
    }
}

#[cfg(test)]
mod tests;

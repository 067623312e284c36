//! Tries a batch, takes it apart when ARM rejects it, and goes on until everybody has an answer.
//!
//! In: asks, and something that plans and writes for a part of them. Out: an answer for each. Who was rejected alone is remembered and
//! tried alone from then on, after the others, until it is accepted.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;

use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::{ArmError, ArmErrorClass},
        load_balancer::{
            batch::split,
            explain::{cloud_error, named_services, suspected_services, unprovisioned_public_ip},
        },
        planner::load_balancer::{desired::ServiceRequest, spec::ServiceIdentity},
    },
};

/// Writes that may be rejected in one go without any being accepted, beside those that halving needs: what concerns everybody is not
/// anybody's fault.
const SPARE_REJECTIONS: u32 = 6;

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
    /// For these Services alone. Answers for each; an error is about all of them.
    async fn attempt(&self, asks: &[ServiceRequest]) -> Result<ServiceResults<Self::Output>, AttemptError>;
}

/// Who was rejected alone.
#[derive(Default)]
pub(super) struct Quarantine(Mutex<BTreeSet<ServiceIdentity>>);

impl Quarantine {
    fn all(&self) -> BTreeSet<ServiceIdentity> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, part: &[ServiceRequest], suspected: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for ask in part {
            if suspected {
                all.insert(ask.identity().clone());
            } else {
                all.remove(ask.identity());
            }
        }
    }
}

/// Has everybody served who can be.
pub(super) async fn commit_batch<D: BatchStage>(
    document: &D,
    asks: Vec<ServiceRequest>,
    quarantine: &Quarantine,
) -> ServiceResults<D::Output> {
    let mut rejections = asks.len().max(1).ilog2() + SPARE_REJECTIONS;
    let mut parts: VecDeque<Vec<ServiceRequest>> =
        split::initial_parts(asks, ServiceRequest::identity, &quarantine.all()).into();
    let mut answers = ServiceResults::new();
    while let Some(part) = parts.pop_front() {
        match document.attempt(&part).await {
            Ok(answered) => {
                quarantine.set(&part, false);
                rejections = rejections.max(SPARE_REJECTIONS);
                answers.extend(answered);
            }
            Err(trouble) if trouble.can_split() && part.len() > 1 && rejections > 0 => {
                rejections -= 1;
                let blamed = trouble.blamed(&part);
                let error = into_cloud_error(document.action(), trouble);
                tracing::warn!(%error, services = part.len(), blamed = blamed.len(), "batch rejected, splitting it");
                let halves = split::split_rejected(part, ServiceRequest::identity, &blamed);
                halves.into_iter().rev().for_each(|half| parts.push_front(half));
            }
            Err(trouble) => {
                if part.len() == 1 {
                    quarantine.set(&part, trouble.can_split());
                }
                let error = into_cloud_error(document.action(), trouble);
                answers.extend(part.iter().map(|ask| (ask.identity().clone(), Err(error.clone()))));
            }
        }
    }
    answers
}

impl AttemptError {
    /// Whether a part of the batch may be better off without the rest.
    pub(super) fn can_split(&self) -> bool {
        match self {
            AttemptError::Arm(error) => is_rejection(error),
            AttemptError::Cloud(_) => false,
            AttemptError::SomeServices(_) => true,
        }
    }

    fn blamed(&self, part: &[ServiceRequest]) -> Vec<ServiceIdentity> {
        let AttemptError::Arm(error) = self else { return Vec::new() };
        let named = named_services(error, part.iter().map(ServiceRequest::identity));
        if named.is_empty() {
            suspected_services(error, part.iter().filter_map(ServiceRequest::spec).map(Arc::as_ref))
        } else {
            named
        }
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

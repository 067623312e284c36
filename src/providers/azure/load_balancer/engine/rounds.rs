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
        arm::{ArmError, ErrorClass},
        load_balancer::{
            commit::split,
            desired::Ask,
            explain::{blames, cloud_error, suspects, unprovisioned_public_ip},
            spec::Identity,
        },
    },
};

/// Writes that may be rejected in one go without any being accepted, beside those that halving needs: what concerns everybody is not
/// anybody's fault.
const SPARE_REJECTIONS: u32 = 6;

/// Answers by Service.
pub(super) type Answers<A> = BTreeMap<Identity, CloudResult<A>>;

/// Why a part of a batch came to nothing.
#[derive(Debug)]
pub(super) enum Trouble {
    /// ARM did not take, or could not do, what was sent.
    Arm(ArmError),
    /// Something else failed, for all of them.
    Cloud(CloudError),
    /// Something else failed, which only some of them need.
    Part(CloudError),
}

impl From<ArmError> for Trouble {
    fn from(error: ArmError) -> Self {
        Trouble::Arm(error)
    }
}

impl From<CloudError> for Trouble {
    fn from(error: CloudError) -> Self {
        Trouble::Cloud(error)
    }
}

/// Plans and writes one document, or several that belong together.
#[async_trait]
pub(super) trait Document: Sync {
    /// What each Service gets.
    type Answer: Send;
    /// What it does, for messages.
    fn doing(&self) -> &'static str;
    /// For these Services alone. Answers for each; an error is about all of them.
    async fn attempt(&self, asks: &[Ask]) -> Result<Answers<Self::Answer>, Trouble>;
}

/// Who was rejected alone.
#[derive(Default)]
pub(super) struct Suspects(Mutex<BTreeSet<Identity>>);

impl Suspects {
    fn all(&self) -> BTreeSet<Identity> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, part: &[Ask], suspected: bool) {
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
pub(super) async fn commit<D: Document>(document: &D, asks: Vec<Ask>, suspects: &Suspects) -> Answers<D::Answer> {
    let mut rejections = asks.len().max(1).ilog2() + SPARE_REJECTIONS;
    let mut parts: VecDeque<Vec<Ask>> = split::at_first(asks, Ask::identity, &suspects.all()).into();
    let mut answers = Answers::new();
    while let Some(part) = parts.pop_front() {
        match document.attempt(&part).await {
            Ok(answered) => {
                suspects.set(&part, false);
                rejections = rejections.max(SPARE_REJECTIONS);
                answers.extend(answered);
            }
            Err(trouble) if trouble.is_of_some() && part.len() > 1 && rejections > 0 => {
                rejections -= 1;
                let blamed = trouble.blamed(&part);
                let error = told(document.doing(), trouble);
                tracing::warn!(%error, services = part.len(), blamed = blamed.len(), "a batch was rejected and is split");
                let halves = split::after_rejection(part, Ask::identity, &blamed);
                halves.into_iter().rev().for_each(|half| parts.push_front(half));
            }
            Err(trouble) => {
                if part.len() == 1 {
                    suspects.set(&part, trouble.is_of_some());
                }
                let error = told(document.doing(), trouble);
                answers.extend(part.iter().map(|ask| (ask.identity().clone(), Err(error.clone()))));
            }
        }
    }
    answers
}

impl Trouble {
    /// Whether a part of the batch may be better off without the rest.
    pub(super) fn is_of_some(&self) -> bool {
        match self {
            Trouble::Arm(error) => is_rejection(error),
            Trouble::Cloud(_) => false,
            Trouble::Part(_) => true,
        }
    }

    fn blamed(&self, part: &[Ask]) -> Vec<Identity> {
        let Trouble::Arm(error) = self else { return Vec::new() };
        let named = blames(error, part.iter().map(Ask::identity));
        if named.is_empty() { suspects(error, part.iter().filter_map(Ask::spec).map(Arc::as_ref)) } else { named }
    }
}

/// What is said of something that the document refers to and that the caller may not use.
const LINKED: &str = "LinkedAuthorizationFailed";

/// Whether something in the document is wrong, rather than the time or the caller.
fn is_rejection(error: &ArmError) -> bool {
    let is_linked = error.class == ErrorClass::Forbidden && error.mentions(LINKED);
    is_linked
        || unprovisioned_public_ip(error).is_some()
        || matches!(error.class, ErrorClass::Invalid | ErrorClass::QuotaExceeded)
}

/// The answer to those who are in this trouble.
pub(super) fn told(doing: &str, trouble: Trouble) -> CloudError {
    match trouble {
        Trouble::Arm(error) => cloud_error(doing, error),
        Trouble::Cloud(error) | Trouble::Part(error) => error,
    }
}

#[cfg(test)]
mod tests;

//! Requests that were rejected alone, from one batch to the next.
//!
//! In: parts of batches, and whether they were rejected. Out: requests to try alone, after the others, until they are
//! accepted.

use std::collections::BTreeSet;

use parking_lot::{Mutex, MutexGuard};

use super::bisect::BatchRequest;

/// Identities of the requests that were rejected alone at their last attempt.
#[derive(Debug)]
pub struct Quarantine<I>(Mutex<BTreeSet<I>>);

impl<I> Default for Quarantine<I> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<I: Ord + Clone> Quarantine<I> {
    /// Returns the identities of all quarantined requests.
    pub fn all(&self) -> BTreeSet<I> {
        self.lock().clone()
    }

    /// Returns the quarantined requests among `batch`, and forgets the others, which are no longer requested.
    pub fn retain_requested<R: BatchRequest<Identity = I>>(&self, batch: &[R]) -> BTreeSet<I> {
        let requested: BTreeSet<&I> = batch.iter().map(BatchRequest::identity).collect();
        let mut all = self.lock();
        all.retain(|identity| requested.contains(identity));
        all.clone()
    }

    /// Removes the requests of `part`, which was accepted.
    pub fn release<R: BatchRequest<Identity = I>>(&self, part: &[R]) {
        let mut all = self.lock();
        part.iter().for_each(|request| {
            all.remove(request.identity());
        });
    }

    /// Records the final failure of `part`. A part of one request enters the quarantine if `is_rejected`, and leaves it otherwise.
    pub fn record_failure<R: BatchRequest<Identity = I>>(&self, part: &[R], is_rejected: bool) {
        match part {
            [alone] if is_rejected => drop(self.lock().insert(alone.identity().clone())),
            [_] => self.release(part),
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<I>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_rejected_alone_remains_until_accepted() {
        let quarantine = Quarantine::default();
        quarantine.record_failure(&[1_u8, 2], true);
        assert!(quarantine.all().is_empty(), "either of the two may be invalid");
        quarantine.record_failure(&[1], true);
        quarantine.record_failure(&[2], true);
        quarantine.record_failure(&[2], false);
        assert_eq!(quarantine.all(), BTreeSet::from([1]));
        quarantine.release(&[1, 3]);
        assert!(quarantine.all().is_empty());
    }

    #[test]
    fn an_identity_without_a_request_is_removed() {
        let quarantine = Quarantine::default();
        [1_u8, 2].iter().for_each(|number| quarantine.record_failure(&[*number], true));
        assert_eq!(quarantine.retain_requested(&[2, 3]), BTreeSet::from([2]));
        assert_eq!(quarantine.all(), BTreeSet::from([2]));
    }
}

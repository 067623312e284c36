//! Splits a batch that ARM rejects. Pure.
//!
//! In: the requests of the batch, those that ARM's message blames, and those that were rejected alone before. Out: parts to
//! try one after the other, so that rejected requests end up alone and the others succeed. Within a part the order of the
//! requests is unchanged.

use std::collections::{BTreeSet, VecDeque};

/// Request of a batch.
pub trait BatchRequest {
    /// Type that identifies a request.
    type Identity: Ord + Clone;
    /// Returns the identity of the request.
    fn identity(&self) -> &Self::Identity;
}

/// Reason why a part of a batch failed.
pub trait BatchError<R: BatchRequest> {
    /// Returns `true` if the document was rejected as invalid, so that a part of the batch may succeed without the others.
    fn can_split(&self) -> bool;
    /// Returns the requests in `part` that ARM's message names, if any.
    fn blamed(&self, part: &[R]) -> BTreeSet<R::Identity>;
}

/// Limits of the splitting of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BisectLimits {
    /// Maximum number of parts to write.
    pub attempts: usize,
    /// Allowed consecutive rejections, in addition to those that halving needs. An error that concerns all requests would
    /// otherwise be repeated for each of them.
    pub spare_rejections: u32,
    /// Whether an error other than a rejection ends the whole batch instead of the part.
    pub errors_end_batch: bool,
}

/// Next step for a part that was not accepted.
#[derive(Debug, PartialEq, Eq)]
pub enum FailedPart<R> {
    /// The part was split; its parts are tried next.
    Split {
        /// Number of requests in the failed part.
        size: usize,
        /// Number of blamed requests.
        blamed: usize,
    },
    /// The error is the result of all these requests.
    Final(Vec<R>),
}

/// A batch being written, part by part.
#[derive(Debug)]
pub struct Bisection<R> {
    parts: VecDeque<Vec<R>>,
    limits: BisectLimits,
    attempts: usize,
    rejections: u32,
}

impl<R: BatchRequest> Bisection<R> {
    /// Begins with the whole batch except `suspects`. An empty batch becomes one empty part, so that the document itself is written.
    pub fn new(batch: Vec<R>, suspects: &BTreeSet<R::Identity>, limits: BisectLimits) -> Self {
        let rejections = limits.spare_rejections.saturating_add(batch.len().max(1).ilog2());
        Self { parts: initial_parts(batch, suspects).into(), limits, attempts: limits.attempts, rejections }
    }

    /// Returns the next part to try. The caller reports the result to [`Self::accepted`] or [`Self::failed`].
    pub fn next_part(&mut self) -> Option<Vec<R>> {
        self.attempts = self.attempts.checked_sub(1)?;
        self.parts.pop_front()
    }

    /// Records that the last part was written.
    pub fn accepted(&mut self) {
        self.rejections = self.rejections.max(self.limits.spare_rejections);
    }

    /// Records that `part`, the last one, was not written.
    pub fn failed(&mut self, part: Vec<R>, error: &impl BatchError<R>) -> FailedPart<R> {
        if error.can_split() && part.len() > 1 && self.rejections > 0 {
            self.rejections -= 1;
            let (size, blamed) = (part.len(), error.blamed(&part));
            split_rejected(part, &blamed).into_iter().rev().for_each(|part| self.parts.push_front(part));
            return FailedPart::Split { size, blamed: blamed.len() };
        }
        if self.limits.errors_end_batch && !error.can_split() {
            self.attempts = 0;
        }
        FailedPart::Final(part)
    }

    /// Returns the requests that were not tried, at the end.
    pub fn untried(self) -> impl Iterator<Item = R> {
        self.parts.into_iter().flatten()
    }
}

/// Returns the initial parts of a batch: requests that were rejected alone before are tried last and alone, so that they
/// do not cause the rejection of others.
fn initial_parts<R: BatchRequest>(batch: Vec<R>, suspects: &BTreeSet<R::Identity>) -> Vec<Vec<R>> {
    let (suspected, others): (Vec<R>, Vec<R>) = batch.into_iter().partition(|request| suspects.contains(request.identity()));
    let others = Some(others).filter(|others| !others.is_empty() || suspected.is_empty());
    others.into_iter().chain(suspected.into_iter().map(|request| vec![request])).collect()
}

/// Splits a rejected batch of at least two requests: without the blamed ones, which follow alone; in halves if none is
/// blamed.
fn split_rejected<R: BatchRequest>(mut batch: Vec<R>, blamed: &BTreeSet<R::Identity>) -> Vec<Vec<R>> {
    let is_blamed = |request: &R| blamed.contains(request.identity());
    let blamed_requests = batch.iter().filter(|request| is_blamed(request)).count();
    if blamed_requests == 0 || blamed_requests == batch.len() {
        let half = batch.split_off(batch.len() / 2);
        return vec![batch, half];
    }
    let (blamed_requests, others): (Vec<R>, Vec<R>) = batch.into_iter().partition(is_blamed);
    std::iter::once(others).chain(blamed_requests.into_iter().map(|request| vec![request])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl BatchRequest for u8 {
        type Identity = u8;

        fn identity(&self) -> &u8 {
            self
        }
    }

    /// Rejection that blames these requests.
    #[derive(Clone, Default)]
    struct Rejected(Vec<u8>);

    impl BatchError<u8> for Rejected {
        fn can_split(&self) -> bool {
            true
        }
        fn blamed(&self, _: &[u8]) -> BTreeSet<u8> {
            self.0.iter().copied().collect()
        }
    }

    /// Error that is not a rejection.
    struct Outage;

    impl BatchError<u8> for Outage {
        fn can_split(&self) -> bool {
            false
        }
        fn blamed(&self, _: &[u8]) -> BTreeSet<u8> {
            BTreeSet::new()
        }
    }

    const LIMITS: BisectLimits = BisectLimits { attempts: usize::MAX, spare_rejections: 2, errors_end_batch: false };

    fn begin(batch: impl IntoIterator<Item = u8>, limits: BisectLimits) -> Bisection<u8> {
        Bisection::new(batch.into_iter().collect(), &BTreeSet::new(), limits)
    }

    /// Tries all parts, rejecting those with a request of `invalid` without blame. Returns the tried and the untried parts.
    fn run(mut bisection: Bisection<u8>, invalid: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut tried = Vec::new();
        while let Some(part) = bisection.next_part() {
            tried.push(part.clone());
            if part.iter().any(|request| invalid.contains(request)) {
                bisection.failed(part, &Rejected::default());
            } else {
                bisection.accepted();
            }
        }
        (tried, bisection.untried().collect())
    }

    #[test]
    fn blamed_requests_end_up_alone() {
        let split = |blamed: &[u8]| split_rejected(vec![1, 2, 3, 4], &blamed.iter().copied().collect());
        assert_eq!(split(&[]), [[1, 2], [3, 4]]);
        assert_eq!(split(&[3]), [vec![1, 2, 4], vec![3]]);
        assert_eq!(split(&[9]), [[1, 2], [3, 4]], "not in the batch");
        assert_eq!(split(&[1, 2, 3, 4]), [[1, 2], [3, 4]], "all requests");
        assert_eq!(split_rejected(vec![1, 2, 3], &BTreeSet::new()), [vec![1], vec![2, 3]]);
    }

    #[test]
    fn suspects_come_last_and_alone() {
        let parts = |batch: &[u8], suspects: &[u8]| initial_parts(batch.to_vec(), &suspects.iter().copied().collect());
        assert_eq!(parts(&[1, 2, 3, 4], &[]), [[1, 2, 3, 4]]);
        assert_eq!(parts(&[1, 2, 3, 4], &[1, 3, 9]), [vec![2, 4], vec![1], vec![3]]);
        assert_eq!(parts(&[1], &[1]), [[1]]);
        assert_eq!(parts(&[], &[1]), [Vec::<u8>::new()], "the document alone is written as well");
    }

    #[test]
    fn an_invalid_request_is_found_by_halving() {
        let (tried, _) = run(begin(1..=4, LIMITS), &[3]);
        assert_eq!(tried, [vec![1, 2, 3, 4], vec![1, 2], vec![3, 4], vec![3], vec![4]]);
        let mut bisection = begin(1..=4, LIMITS);
        let all = bisection.next_part().unwrap();
        assert_eq!(bisection.failed(all, &Rejected(vec![3])), FailedPart::Split { size: 4, blamed: 1 });
        assert_eq!(bisection.untried().collect::<Vec<_>>(), [1, 2, 4, 3], "the blamed request is last");
    }

    #[test]
    fn an_error_of_all_requests_ends_the_splitting_early() {
        let all: Vec<u8> = (1..=200).collect();
        let (tried, _) = run(begin(1..=200, LIMITS), &all);
        assert_eq!(tried.len(), 19, "9 splits and the remaining parts");
        let mut bisection = begin([1, 2], BisectLimits { spare_rejections: 0, ..LIMITS });
        let all = bisection.next_part().unwrap();
        assert_eq!(bisection.failed(all, &Outage), FailedPart::Final(vec![1, 2]));
    }

    #[test]
    fn the_limits_leave_the_rest_untried() {
        let few = BisectLimits { attempts: 2, spare_rejections: u32::MAX, ..LIMITS };
        let (tried, untried) = run(begin(1..=8, few), &[1]);
        assert_eq!((tried.len(), untried), (2, vec![1, 2, 3, 4, 5, 6, 7, 8]), "split twice, no request has a result");
        let mut bisection =
            Bisection::new(vec![1, 2], &BTreeSet::from([1]), BisectLimits { errors_end_batch: true, ..LIMITS });
        let first = bisection.next_part().unwrap();
        assert_eq!(bisection.failed(first, &Outage), FailedPart::Final(vec![2]));
        assert_eq!(bisection.next_part(), None);
        assert_eq!(bisection.untried().collect::<Vec<_>>(), [1]);
    }
}

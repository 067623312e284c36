//! Durations of recent operations by kind, and the next poll of one in progress. Pure.
//!
//! In: when the last operation of a kind was seen in progress and when it was seen ended, and the pause that would come
//! next. Out: a pause that is no longer, and that ends when the operation should have. Pauses that only grow detect the end
//! of an operation of five seconds after six and a half.

use std::{collections::HashMap, time::Duration};

/// Part of the time that an operation has taken, which no pause exceeds when a length is known: as pauses grow by half.
const MOST_PART: u32 = 2;
/// An operation is looked for this part of its length apart, around its end.
const FINE_PART: u32 = 20;
/// Number of polls between the last time that it was seen in progress and the first that it was seen ended.
const LOOKS: u32 = 3;

/// Between what times after its beginning an operation has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OperationLength {
    running: Duration,
    ended: Duration,
}

impl OperationLength {
    /// Returns the next pause. `own`: the pause that would come next. `elapsed`: the age of the operation. `first`: the
    /// shortest pause.
    fn pause(&self, own: Duration, elapsed: Duration, first: Duration) -> Duration {
        let own = own.min((elapsed / MOST_PART).max(first));
        let fine = (self.ended / FINE_PART).max(self.ended.saturating_sub(self.running) / LOOKS).max(first);
        if elapsed + own <= self.running || elapsed >= self.ended {
            return own;
        }
        own.min((self.running + fine).saturating_sub(elapsed).max(fine))
    }

    /// Returns the length with another operation, which was last seen in progress after `running` and ended after `ended`.
    fn with(self, running: Duration, ended: Duration) -> Self {
        let is_same = self.running > running && self.running < ended;
        Self { running: if is_same { self.running } else { running }, ended }
    }
}

/// Type of a resource, and the call.
pub(super) type OperationName = (&'static str, &'static str);

/// Length of each operation.
#[derive(Debug, Default)]
pub(super) struct OperationLengths(HashMap<OperationName, OperationLength>);

impl OperationLengths {
    /// Returns how long to wait for such an operation.
    pub(super) fn pause(&self, name: OperationName, own: Duration, elapsed: Duration, first: Duration) -> Duration {
        self.0.get(&name).map_or(own, |length| length.pause(own, elapsed, first))
    }

    /// Learns of an operation that has ended.
    pub(super) fn learn(&mut self, name: OperationName, running: Duration, ended: Duration) {
        let length = OperationLength { running, ended };
        self.0.entry(name).and_modify(|existing| *existing = existing.with(running, ended)).or_insert(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: OperationName = ("LoadBalancer", "create_or_update");
    const FIRST: Duration = Duration::from_millis(200);

    /// Asks for an operation until it has ended. Answers after how long that was seen, and with how many requests.
    fn follow(lengths: &mut OperationLengths, takes: Duration) -> (Duration, usize) {
        let (mut elapsed, mut own, mut running, mut polls) = (Duration::ZERO, FIRST, Duration::ZERO, 0);
        loop {
            elapsed += lengths.pause(NAME, own, elapsed, FIRST);
            (own, polls) = (own.mul_f64(1.5).min(Duration::from_secs(10)), polls + 1);
            if elapsed >= takes {
                lengths.learn(NAME, running, elapsed);
                return (elapsed, polls);
            }
            running = elapsed;
        }
    }

    #[test]
    fn the_end_is_seen_soon_after_a_few_operations_of_one_length() {
        for takes in [200, 900, 5_000, 12_000, 60_000].map(Duration::from_millis) {
            let mut lengths = OperationLengths::default();
            let (first, polls) = follow(&mut lengths, takes);
            for _ in 0..3 {
                follow(&mut lengths, takes);
            }
            let (later, more) = follow(&mut lengths, takes);
            assert!(later <= takes + (takes / 10).max(FIRST), "{takes:?}: {first:?}, {later:?}");
            assert!(more <= polls + 2, "{takes:?}: {polls}, {more} polls");
        }
    }

    #[test]
    fn nobody_waits_much_longer_than_without_knowledge() {
        for (before, takes) in [(60_000, 300), (5_000, 7_000), (200, 30_000), (5_000, 1_000), (30_000, 29_000)] {
            let mut lengths = OperationLengths::default();
            let takes = Duration::from_millis(takes);
            let (plain, polls) = follow(&mut OperationLengths::default(), takes);
            for _ in 0..3 {
                follow(&mut lengths, Duration::from_millis(before));
            }
            let (seen, more) = follow(&mut lengths, takes);
            assert!(seen <= plain + plain / 20, "{before} ms before, {takes:?}: {plain:?}, {seen:?}");
            assert!(more <= polls + 5, "{before} ms before, {takes:?}: {polls}, {more} polls");
        }
    }
}

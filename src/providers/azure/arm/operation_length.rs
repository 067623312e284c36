//! Durations of recent operations by kind, and the next poll of one in progress. Pure.
//!
//! In: the ages at which the last operation of a kind was seen in progress and then ended, and the default next pause. Out: a
//! pause that is not longer, and that ends when the operation should end. With growing pauses alone, the end of an operation
//! of five seconds is detected after six and a half.

use std::{collections::HashMap, time::Duration};

/// Divisor of an operation's age that limits the next pause if a length is recorded. Matches pauses that grow by half.
const AGE_DIVISOR: u32 = 2;
/// Divisor of the recorded length that gives the pause around the expected end.
const LENGTH_DIVISOR: u32 = 20;
/// Number of polls between the recorded ages at which the operation was seen in progress and ended.
const POLLS_BEFORE_END: u32 = 3;

/// Ages between which an operation has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OperationLength {
    running: Duration,
    ended: Duration,
}

impl OperationLength {
    /// Returns the next pause. `own` is the default pause, `elapsed` the age of the operation, `first` the shortest pause.
    fn pause(&self, own: Duration, elapsed: Duration, first: Duration) -> Duration {
        let own = own.min((elapsed / AGE_DIVISOR).max(first));
        let fine = (self.ended / LENGTH_DIVISOR).max(self.ended.saturating_sub(self.running) / POLLS_BEFORE_END).max(first);
        if elapsed + own <= self.running || elapsed >= self.ended {
            return own;
        }
        own.min((self.running + fine).saturating_sub(elapsed).max(fine))
    }

    /// Returns the length updated by an operation that was last seen in progress at age `running` and ended at age `ended`.
    fn with(self, running: Duration, ended: Duration) -> Self {
        let is_same = self.running > running && self.running < ended;
        Self { running: if is_same { self.running } else { running }, ended }
    }
}

/// Kind of the resource, and name of the call.
pub(super) type OperationName = (&'static str, &'static str);

/// Length of the latest operation of each name.
#[derive(Debug, Default)]
pub(super) struct OperationLengths(HashMap<OperationName, OperationLength>);

impl OperationLengths {
    /// Returns the pause before the next poll; `own` if no length is recorded. See [`OperationLength::pause`].
    pub(super) fn pause(&self, name: OperationName, own: Duration, elapsed: Duration, first: Duration) -> Duration {
        self.0.get(&name).map_or(own, |length| length.pause(own, elapsed, first))
    }

    /// Records an operation that has ended.
    pub(super) fn record(&mut self, name: OperationName, running: Duration, ended: Duration) {
        let length = OperationLength { running, ended };
        self.0.entry(name).and_modify(|existing| *existing = existing.with(running, ended)).or_insert(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: OperationName = ("LoadBalancer", "create_or_update");
    const FIRST: Duration = Duration::from_millis(200);

    /// Polls an operation of length `takes` to its end. Returns the age at which the end was seen, and the number of polls.
    fn follow(lengths: &mut OperationLengths, takes: Duration) -> (Duration, usize) {
        let (mut elapsed, mut own, mut running, mut polls) = (Duration::ZERO, FIRST, Duration::ZERO, 0);
        loop {
            elapsed += lengths.pause(NAME, own, elapsed, FIRST);
            (own, polls) = (own.mul_f64(1.5).min(Duration::from_secs(10)), polls + 1);
            if elapsed >= takes {
                lengths.record(NAME, running, elapsed);
                return (elapsed, polls);
            }
            running = elapsed;
        }
    }

    #[test]
    fn the_end_is_seen_soon_after_operations_of_equal_length() {
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
    fn a_recorded_length_never_delays_much() {
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

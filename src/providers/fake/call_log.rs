//! Which calls were made of a fake cloud, how often, and how many at once.

use std::collections::{BTreeMap, VecDeque};

use super::calls::CallName;

/// How many calls are remembered one by one; older ones are only counted.
const CALLS_KEPT: usize = 100_000;

/// A call that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    /// Which.
    pub name: CallName,
    /// What about: `namespace/name` of a Service, name or provider id of an instance, target node of a route.
    pub object: String,
}

#[derive(Debug, Default)]
pub(super) struct CallLog {
    pub(super) calls: VecDeque<RecordedCall>,
    pub(super) counts: BTreeMap<CallName, u64>,
    pub(super) in_flight: BTreeMap<CallName, usize>,
    pub(super) in_flight_seen: BTreeMap<CallName, usize>,
    pub(super) all_in_flight: usize,
    pub(super) all_in_flight_seen: usize,
    pub(super) writes: u64,
}

impl CallLog {
    pub(super) fn begin(&mut self, name: CallName, object: &str) {
        if self.calls.len() == CALLS_KEPT {
            self.calls.pop_front();
        }
        self.calls.push_back(RecordedCall { name, object: object.to_owned() });
        *self.counts.entry(name).or_default() += 1;
        let running = self.in_flight.entry(name).or_default();
        *running += 1;
        let seen = self.in_flight_seen.entry(name).or_default();
        *seen = (*seen).max(*running);
        self.all_in_flight += usize::from(!name.is_step());
        self.all_in_flight_seen = self.all_in_flight_seen.max(self.all_in_flight);
    }

    pub(super) fn end(&mut self, name: CallName) {
        self.in_flight.entry(name).and_modify(|running| *running -= 1);
        self.all_in_flight -= usize::from(!name.is_step());
    }
}

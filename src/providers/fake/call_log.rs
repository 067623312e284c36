//! Log of the calls to a fake cloud: order, counts and concurrency.

use std::collections::{BTreeMap, VecDeque};

use super::calls::CallName;

/// Number of calls that are logged individually; older calls are only counted.
const MAX_CALLS: usize = 100_000;

/// Call that a fake cloud received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    pub name: CallName,
    /// Subject: `namespace/name` of a Service, name or provider ID of an instance, or target Node of a route.
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
        if self.calls.len() == MAX_CALLS {
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

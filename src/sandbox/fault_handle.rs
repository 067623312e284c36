//! The handle by which tests set up faults on a running server.

use std::time::Duration;

use serde_json::Value;

use super::{
    api_server::{ApiServer, RequestRecord, locked},
    faults::{Crash, Manner, Outcome, Refused, any},
    kinds,
    partitions::PartitionedWay,
    storage::Storage,
};

/// Handle that sets up faults. Rules apply until they are used up or [`Faults::clear`]ed.
#[derive(Clone)]
pub struct Faults {
    server: ApiServer,
}

impl Faults {
    pub(super) fn new(server: ApiServer) -> Self {
        Self { server }
    }

    /// Refuses the next `count` matching requests with `code`.
    pub fn fail_next(&self, count: usize, code: u16, matches: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static) {
        self.add_rule(Some(count), Outcome::Refuse(Refused { code, retry_after: None }), matches);
    }

    /// Refuses every matching request with `code`.
    pub fn fail_every(&self, code: u16, matches: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static) {
        self.add_rule(None, Outcome::Refuse(Refused { code, retry_after: None }), matches);
    }

    /// Refuses the next `count` matching requests with 429 and a `Retry-After` of `seconds`.
    pub fn throttle_next(
        &self,
        count: usize,
        seconds: u32,
        matches: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static,
    ) {
        self.add_rule(Some(count), Outcome::Refuse(Refused { code: 429, retry_after: Some(seconds) }), matches);
    }

    /// Leaves the next `count` matching requests without a response.
    pub fn hang_next(&self, count: usize, matches: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static) {
        self.add_rule(Some(count), Outcome::Hang, matches);
    }

    /// Leaves every matching request without a response.
    pub fn hang_every(&self, matches: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static) {
        self.add_rule(None, Outcome::Hang, matches);
    }

    /// Serves the next `count` matching requests in this manner.
    pub fn serve_next(
        &self,
        count: usize,
        manner: Manner,
        matches: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static,
    ) {
        self.add_rule(Some(count), Outcome::Serve(manner), matches);
    }

    /// Serves every matching request in this manner.
    pub fn serve_every(&self, manner: Manner, matches: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static) {
        self.add_rule(None, Outcome::Serve(manner), matches);
    }

    fn add_rule(
        &self,
        count: Option<usize>,
        outcome: Outcome,
        matches: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static,
    ) {
        locked(&self.server.shared.faults).add_rule(count, outcome, Box::new(matches));
    }

    /// Holds every matching request for `time` before it is served.
    pub fn delay_every(&self, time: Duration, matches: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static) {
        locked(&self.server.shared.faults).delay(time, Box::new(matches));
    }

    /// Crashes the client at its `nth` write from now, counted from 1: from then on every connection breaks, until
    /// [`Faults::recover`].
    ///
    /// Typed calls on [`ApiServer`] itself continue to work and do not count.
    pub fn crash_after(&self, nth: usize, crash: Crash) {
        self.crash_after_matching(nth, crash, any);
    }

    /// Crashes the client, counting only matching writes.
    pub fn crash_after_matching(
        &self,
        nth: usize,
        crash: Crash,
        matches: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static,
    ) {
        locked(&self.server.shared.faults).crash(nth, crash, Box::new(matches));
    }

    /// Returns `true` if the crash has happened, and was not recovered from.
    pub fn has_crashed(&self) -> bool {
        locked(&self.server.shared.faults).has_crashed()
    }

    /// Ends a crash: connections work again.
    pub fn recover(&self) {
        locked(&self.server.shared.faults).recover();
    }

    /// Removes all rules, and ends a crash.
    pub fn clear(&self) {
        *locked(&self.server.shared.faults) = super::faults::FaultTable::default();
    }

    /// Breaks the connection of every open watch.
    pub fn drop_watches(&self) {
        self.server.shared.dropped.send_modify(|count| *count += 1);
    }

    /// Stops every open watch from sending anything; its connection remains open.
    pub fn stall_watches(&self) {
        self.server.shared.stalled.send_modify(|count| *count += 1);
    }

    /// Forgets the history and moves on: every resourceVersion returned so far is too old. Watches, open or resumed, get an
    /// ERROR event of code 410, pages an HTTP 410.
    pub fn compact(&self) {
        self.server.with_storage(Storage::compact);
    }

    /// Cuts off the client whose `User-Agent` begins with `client`, until [`Faults::heal`].
    pub fn partition(&self, client: &str, way: PartitionedWay) {
        self.server.shared.partitions.set(client, Some(way));
    }

    /// Ends a partition. Delayed messages arrive, unless the client has timed out.
    pub fn heal(&self, client: &str) {
        self.server.shared.partitions.set(client, None);
    }

    /// Returns a backup of everything that is stored.
    pub fn backup(&self) -> Storage {
        self.server.with_storage(|storage| storage.clone())
    }

    /// Restores `backup` with its resourceVersions, as etcd does without `--bump-revision`.
    pub fn restore(&self, backup: &Storage) {
        self.server.replace_state(backup);
    }

    /// Stores `object`, whatever it is, as long as its kind is known and its metadata names it. Returns `true` if it was
    /// stored.
    pub fn insert_malformed(&self, object: Value) -> bool {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let named = object["metadata"]["name"].as_str().is_some_and(|name| !name.is_empty());
        match kinds::by_type(text("apiVersion"), text("kind")).filter(|_| named) {
            Some(kind) => {
                let write = self.server.write_now();
                self.server.with_storage(|storage| storage.insert_unchecked(kind, object, write));
                true
            }
            None => false,
        }
    }
}

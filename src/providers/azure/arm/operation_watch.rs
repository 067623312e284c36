//! Watches the writes whose operations are in progress in one collection: one list for many writes instead of a poll and a
//! read for each.
//!
//! In: writes that ARM has accepted. Out: for each write its state in a list, or the instruction to poll its own operation.
//! `schedule` decides when to list, `evidence` what an entry proves. This file holds the locks and waits, and starts the lists
//! ([`ListForMany`]), whose end is reported to all waiters. Cancelled waiters are removed.

mod evidence;
mod schedule;

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use http::Response;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use self::{
    evidence::{ListVerdict, ListedWrite},
    schedule::{Waiter, WatchMove, WatchSchedule},
};
use super::{PollingPace, Urgency, request::RequestTemplate};
use crate::{
    providers::azure::model::{ApiType, api},
    runtime::watch,
};

/// Kinds whose lists show the same state, etag and content as a read, with the number of waiting writes that justify a page.
///
/// For instances of scale sets, ARM allows one list for 14 polls, and a list saves a poll and a read for each write: hence 7.
const LISTED: [(&ApiType, usize); 5] = [
    (&api::PUBLIC_IPS, 1),
    (&api::LOAD_BALANCERS, 1),
    (&api::INTERFACES, 1),
    (&api::SCALE_SETS, 7),
    (&api::SCALE_SET_VMS, 7),
];
/// Number of collections beyond which idle ones are removed.
const MAX_IDLE: usize = 16;

/// Event for a waiting write.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum WatchEvent {
    /// The write must poll its own operation.
    PollAlone,
    Running,
    /// Success of the operation, with this document as the result.
    Succeeded(Bytes),
    /// Absence of the resource, which is being deleted, in a list.
    Missing,
}

/// Collections of a client in which operations are watched.
#[derive(Default)]
pub(super) struct OperationWatch {
    collections: Mutex<HashMap<String, Arc<WatchedCollection>>>,
}

struct WatchedCollection {
    kind: &'static ApiType,
    path: String,
    state: Mutex<CollectionState>,
    /// Signal to all waiters that a list, or the first operation since the last list, has ended.
    ended: watch::Sender<()>,
}

struct CollectionState {
    schedule: WatchSchedule,
    last: Waiter,
    /// Watched writes by path, in lower case.
    writes: HashMap<String, (Waiter, Urgency)>,
    /// Unread results of lists.
    entries: HashMap<Waiter, Option<Arc<Value>>>,
}

/// Registration of a watched write. Dropping it ends the watch.
pub(super) struct WatchTicket {
    collection: Arc<WatchedCollection>,
    waiter: Waiter,
    path: String,
    write: ListedWrite,
}

/// Announcement of a write that ARM has not accepted yet. Drop it after the response.
pub(super) struct UnacceptedWrite(Arc<WatchedCollection>);

impl Drop for UnacceptedWrite {
    fn drop(&mut self) {
        self.0.state.lock().schedule.announce(false);
    }
}

impl OperationWatch {
    /// Registers the write `template`, which ARM has accepted with `response`.
    ///
    /// Returns `None` if no list shows its result, or if another write of the resource is watched, which would make lists ambiguous.
    pub(super) fn join(
        &self,
        template: &RequestTemplate,
        response: &Response<Bytes>,
        pace: PollingPace,
        urgency: Urgency,
    ) -> Option<WatchTicket> {
        let condition = template.condition.as_ref().map(|(name, value)| (name.as_str(), value.as_str()));
        let write = ListedWrite::of(&template.method, condition, response.body())?;
        let collection = self.collection_of(template, pace)?;
        let path = template.url.path().to_ascii_lowercase();
        let waiter = collection.register(&path, urgency)?;
        Some(WatchTicket { collection, waiter, path, write })
    }

    /// Announces the write `template`, which ARM has not accepted yet. Returns `None` if no list shows its result.
    pub(super) fn announce(&self, template: &RequestTemplate, pace: PollingPace) -> Option<UnacceptedWrite> {
        let collection = self.collection_of(template, pace)?;
        collection.state.lock().schedule.announce(true);
        Some(UnacceptedWrite(collection))
    }

    /// Returns the collection whose list shows the resource that `template` writes.
    fn collection_of(&self, template: &RequestTemplate, pace: PollingPace) -> Option<Arc<WatchedCollection>> {
        let path = template.url.path();
        let (parent, _) = path.rsplit_once('/')?;
        let (_, page_cost) = LISTED.iter().find(|(kind, _)| *kind == template.kind).filter(|_| !path.contains('%'))?;
        Some(self.collection(template.kind, parent, WatchSchedule::new(pace, *page_cost), Instant::now()))
    }

    fn collection(
        &self,
        kind: &'static ApiType,
        path: &str,
        schedule: WatchSchedule,
        now: Instant,
    ) -> Arc<WatchedCollection> {
        let mut collections = self.collections.lock();
        if collections.len() > MAX_IDLE {
            collections.retain(|_, item| Arc::strong_count(item) > 1 || !item.state.lock().schedule.is_idle(now));
        }
        let new = || Arc::new(WatchedCollection::new(kind, path.to_owned(), schedule));
        Arc::clone(collections.entry(path.to_ascii_lowercase()).or_insert_with(new))
    }
}

impl WatchedCollection {
    fn new(kind: &'static ApiType, path: String, schedule: WatchSchedule) -> Self {
        let state = CollectionState { schedule, last: 0, writes: HashMap::new(), entries: HashMap::new() };
        Self { kind, path, state: Mutex::new(state), ended: watch::Sender::default() }
    }

    /// Registers a write of `path`; `None` if the path is watched already.
    fn register(&self, path: &str, urgency: Urgency) -> Option<Waiter> {
        let mut state = self.state.lock();
        if state.writes.contains_key(path) {
            return None;
        }
        state.last += 1;
        let waiter = state.last;
        state.writes.insert(path.to_owned(), (waiter, urgency));
        Some(waiter)
    }
}

impl CollectionState {
    /// Returns the waiters by path, and their highest urgency.
    fn waiters_by_path(&self) -> (HashMap<String, Waiter>, Urgency) {
        let waiting = || self.writes.iter().filter(|(_, (waiter, _))| self.schedule.is_waiting(*waiter));
        let urgency = waiting().map(|(_, (_, urgency))| *urgency).min().unwrap_or(Urgency::Resync);
        (waiting().map(|(path, (waiter, _))| (path.clone(), *waiter)).collect(), urgency)
    }

    fn acknowledge(&mut self, waiter: Waiter) {
        self.schedule.acknowledge(waiter);
        self.entries.remove(&waiter);
    }
}

/// List for all waiters, which continue when it is dropped. Without [`ListForMany::finish`] it has failed.
pub(super) struct ListForMany {
    collection: Arc<WatchedCollection>,
    waiters: HashMap<String, Waiter>,
    found: HashMap<Waiter, Option<Arc<Value>>>,
    pages: usize,
    is_complete: bool,
    pub(super) urgency: Urgency,
}

impl ListForMany {
    fn new(collection: Arc<WatchedCollection>) -> Self {
        let (waiters, urgency) = collection.state.lock().waiters_by_path();
        Self { collection, waiters, found: HashMap::new(), pages: 0, is_complete: false, urgency }
    }

    pub(super) fn kind(&self) -> &'static ApiType {
        self.collection.kind
    }

    /// Returns the path of the collection.
    pub(super) fn path(&self) -> &str {
        &self.collection.path
    }

    pub(super) fn take(&mut self, page: Vec<Value>) {
        self.pages += 1;
        for entry in page {
            let id = entry.get("id").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
            if let Some(waiter) = self.waiters.remove(&id) {
                self.found.insert(waiter, Some(Arc::new(entry)));
            }
        }
    }

    /// Marks the list as complete, and passes its entries to the waiters.
    pub(super) fn finish(mut self) {
        self.is_complete = true;
    }
}

impl Drop for ListForMany {
    fn drop(&mut self) {
        let mut state = self.collection.state.lock();
        state.schedule.listed(self.is_complete.then_some(self.pages), Instant::now());
        if self.is_complete {
            self.found.extend(self.waiters.drain().map(|(_, waiter)| (waiter, None)));
            let CollectionState { schedule, entries, .. } = &mut *state;
            entries.extend(self.found.drain().filter(|(waiter, _)| schedule.is_waiting(*waiter)));
        }
        drop(state);
        self.collection.ended.send_replace(());
    }
}

impl WatchTicket {
    /// Waits for the next event. At `due`, this write would poll its own operation. `start` starts a list without waiting for
    /// it.
    pub(super) async fn wait_for_event(
        &mut self,
        due: Instant,
        deadline: Instant,
        start: impl Fn(ListForMany),
    ) -> WatchEvent {
        self.collection.state.lock().schedule.wait(self.waiter, due, Instant::now());
        let entry = self.entry(deadline, start).await;
        self.collection.state.lock().acknowledge(self.waiter);
        let event = match entry {
            None => WatchEvent::PollAlone,
            Some(entry) => self.event(entry.as_deref()),
        };
        if matches!(event, WatchEvent::Succeeded(_) | WatchEvent::Missing) {
            self.ended();
        }
        event
    }

    /// Returns the document from a list, after the operation's own poll has reported its end. Only a sentinel waits for the list;
    /// other writes get `None`.
    pub(super) async fn listed_result(
        &mut self,
        now: Instant,
        deadline: Instant,
        start: impl Fn(ListForMany),
    ) -> Option<Bytes> {
        self.ended();
        if !self.collection.state.lock().schedule.is_sentinel(self.waiter) {
            return None;
        }
        match self.wait_for_event(now, deadline, start).await {
            WatchEvent::Succeeded(document) => Some(document),
            WatchEvent::PollAlone | WatchEvent::Running | WatchEvent::Missing => None,
        }
    }

    /// Records that the operation has ended, and wakes the other waiters if that may change their next steps.
    fn ended(&self) {
        let is_first = self.collection.state.lock().schedule.ended(self.waiter, Instant::now());
        if is_first {
            self.collection.ended.send_replace(());
        }
    }

    fn event(&mut self, entry: Option<&Value>) -> WatchEvent {
        match self.write.judge(entry) {
            ListVerdict::Succeeded => WatchEvent::Succeeded(entry.map(|entry| entry.to_string().into()).unwrap_or_default()),
            ListVerdict::Running => WatchEvent::Running,
            ListVerdict::Unclear => WatchEvent::PollAlone,
            ListVerdict::Missing => WatchEvent::Missing,
        }
    }

    /// Returns the entry of this write in a list, `Some(None)` if the list lacks it; `None` if it must poll its own operation.
    async fn entry(&self, deadline: Instant, start: impl Fn(ListForMany)) -> Option<Option<Arc<Value>>> {
        loop {
            let mut ended = self.collection.ended.subscribe();
            let next = {
                let mut state = self.collection.state.lock();
                if let Some(entry) = state.entries.remove(&self.waiter) {
                    return Some(entry);
                }
                state.schedule.next(self.waiter, Instant::now())
            };
            let until = match next {
                WatchMove::PollAlone => return None,
                WatchMove::WaitUntil(time) => time.min(deadline),
                WatchMove::WaitForList => deadline,
                WatchMove::List => {
                    start(ListForMany::new(Arc::clone(&self.collection)));
                    deadline
                }
            };
            // After a timeout as well as after the end of a list, the schedule decides again.
            let _ = timeout_at(until, ended.changed()).await;
            if Instant::now() >= deadline {
                return None;
            }
        }
    }
}

impl Drop for WatchTicket {
    fn drop(&mut self) {
        let mut state = self.collection.state.lock();
        state.acknowledge(self.waiter);
        state.schedule.leave(self.waiter);
        state.writes.remove(&self.path);
    }
}

#[cfg(all(test, feature = "sandbox"))]
mod tests;

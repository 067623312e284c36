//! Watches: a request, the events it gets out of the history (pure), and the stream that waits for more.
//!
//! A watch holds a resourceVersion, not a queue: it reads the shared history on from there, and when the history no longer
//! reaches that far it gets an ERROR event with code 410 in a response of HTTP 200, as upstream. Upstream: apiserver
//! `pkg/storage/cacher`.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{
    faults::Manner,
    http::{Representation, ResourceRequest},
    kinds::Kind,
    partitions::Partitions,
    refusal::{Cause, Refusal},
    render,
    selectors::Selector,
    storage::{Change, Storage, key_of},
};
use crate::runtime::store::ObjectKey;
use crate::runtime::watch::Receiver;

/// Duration of a watch without `timeoutSeconds`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Interval of bookmarks, for a watch that allows them.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// Maximum number of changes that are sent at once.
const BATCH: usize = 500;

/// Start of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With an ADDED for each existing object; then with a bookmark that marks their end, if requested.
    Initial {
        /// Whether the bookmark is requested (`sendInitialEvents`).
        bookmark: bool,
    },
    /// After the state of this resourceVersion.
    After(u64),
}

/// A watch, as requested by a client.
#[derive(Debug, Clone)]
pub struct WatchRequest {
    kind: &'static Kind,
    namespace: Option<String>,
    name: Option<String>,
    selector: Selector,
    start: Start,
    bookmarks: bool,
    timeout: Duration,
    representation: Representation,
    /// Whether anything is sent at all.
    silent: bool,
    /// Whether it fails like a watch from an expired resourceVersion.
    expired: bool,
}

impl WatchRequest {
    /// Returns the watch that `request` describes.
    pub fn of(request: &ResourceRequest) -> Result<Self, Refusal> {
        let parameters = &request.parameters;
        let selector = Selector::parse(parameters.text("labelSelector"), parameters.text("fieldSelector"))?;
        let start = match (parameters.flag("sendInitialEvents"), parameters.number("resourceVersion")?) {
            (true, _) if parameters.text("resourceVersionMatch") != "NotOlderThan" => {
                let message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                let cause = Cause::forbidden("resourceVersionMatch", message);
                return Err(Refusal::invalid(request.kind, "", &[cause]));
            }
            (true, _) => Start::Initial { bookmark: true },
            (false, None | Some(0)) => Start::Initial { bookmark: false },
            (false, Some(revision)) => Start::After(revision),
        };
        Ok(Self {
            kind: request.kind,
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            selector,
            start,
            bookmarks: parameters.flag("allowWatchBookmarks"),
            timeout: parameters.seconds("timeoutSeconds")?.filter(|limit| !limit.is_zero()).unwrap_or(DEFAULT_TIMEOUT),
            representation: request.representation,
            silent: false,
            expired: false,
        })
    }

    /// Returns the watch as served in `manner`.
    pub fn in_manner(self, manner: Manner) -> Self {
        let bookmarks = self.bookmarks && manner != Manner::WithoutBookmarks;
        Self { bookmarks, silent: manner == Manner::Half, expired: manner == Manner::Expired, ..self }
    }

    fn wants(&self, object: &Value) -> bool {
        let ObjectKey { namespace, name } = key_of(object);
        self.namespace.as_ref().is_none_or(|selected| *selected == namespace)
            && self.name.as_ref().is_none_or(|selected| *selected == name)
            && self.selector.matches(object)
    }

    /// Returns the event that `change` is for this watch. An object that stops matching is DELETED, one that starts is
    /// ADDED.
    pub fn event(&self, change: &Change) -> Option<(&'static str, Arc<Value>)> {
        if change.kind.plural != self.kind.plural {
            return None;
        }
        let was = change.old.as_ref().is_some_and(|old| self.wants(old));
        let is = !change.deleted && self.wants(&change.new);
        match (was, is) {
            (false, false) => None,
            (false, true) => Some(("ADDED", self.shown(&change.new))),
            (true, true) => Some(("MODIFIED", self.shown(&change.new))),
            (true, false) if change.deleted => Some(("DELETED", self.shown(&change.new))),
            (true, false) => {
                let mut last = change.old.as_deref().cloned().unwrap_or_default();
                last["metadata"]["resourceVersion"] = change.new["metadata"]["resourceVersion"].clone();
                Some(("DELETED", self.shown(&Arc::new(last))))
            }
        }
    }

    fn shown(&self, object: &Arc<Value>) -> Arc<Value> {
        render::object(self.kind, object, self.representation)
    }

    fn bookmark(&self, revision: u64, initial_events_end: bool) -> Value {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata})
    }
}

/// Progress of a watch.
#[derive(Debug)]
pub struct Cursor {
    request: WatchRequest,
    position: Position,
}

#[derive(Debug, Clone, Copy)]
enum Position {
    Beginning,
    After(u64),
    Ended,
}

impl Cursor {
    /// Creates a cursor at the start of `request`.
    pub fn new(request: WatchRequest) -> Self {
        let position = match request.start {
            Start::Initial { .. } => Position::Beginning,
            Start::After(revision) => Position::After(revision),
        };
        Self { request, position }
    }

    /// Returns the lines that are due, and moves on. Empty when there is nothing new.
    pub fn read(&mut self, storage: &Storage) -> Vec<u8> {
        let mut lines = Vec::new();
        match self.position {
            Position::Beginning | Position::After(_) if self.request.expired => {
                self.position = Position::Ended;
                write_event(&mut lines, "ERROR", &Refusal::of_code(410, "refused by an injected fault").body());
            }
            Position::Beginning => self.read_initial(storage, &mut lines),
            Position::After(revision) => {
                if let Err(refusal) = self.read_changes(storage, revision, &mut lines) {
                    self.position = Position::Ended;
                    write_event(&mut lines, "ERROR", &refusal.body());
                }
            }
            Position::Ended => {}
        }
        lines
    }

    fn read_initial(&mut self, storage: &Storage, lines: &mut Vec<u8>) {
        let revision = storage.revision();
        let objects = storage.list(self.request.kind, revision).unwrap_or_default();
        for object in objects.values().filter(|object| self.request.wants(object)) {
            write_event(lines, "ADDED", &self.request.shown(object));
        }
        if self.request.start == (Start::Initial { bookmark: true }) {
            write_event(lines, "BOOKMARK", &self.request.bookmark(revision, true));
        }
        self.position = Position::After(revision);
    }

    fn read_changes(&mut self, storage: &Storage, revision: u64, lines: &mut Vec<u8>) -> Result<(), Refusal> {
        let mut position = storage.revision().max(revision);
        for (count, change) in storage.changes_after(revision)?.enumerate() {
            if count == BATCH {
                position = change.revision - 1;
                break;
            }
            if let Some((event, object)) = self.request.event(change) {
                write_event(lines, event, &object);
            }
        }
        self.position = Position::After(position);
        Ok(())
    }

    /// Returns `true` if more is in the history than was read.
    fn is_behind(&self, storage: &Storage) -> bool {
        matches!(self.position, Position::After(revision) if revision < storage.revision())
    }

    fn bookmark(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        if let Position::After(revision) = self.position {
            write_event(&mut lines, "BOOKMARK", &self.request.bookmark(revision, false));
        }
        lines
    }
}

fn write_event(lines: &mut Vec<u8>, event: &str, object: &Value) {
    lines.extend_from_slice(format!("{{\"type\":\"{event}\",\"object\":").as_bytes());
    lines.extend_from_slice(&render::bytes(object));
    lines.extend_from_slice(b"}\n");
}

/// Inputs of a stream of events.
pub struct Signals {
    /// The resourceVersion of the last write.
    pub revision: Receiver<u64>,
    /// Counts up when open watches are to break.
    pub dropped: Receiver<u64>,
    /// Counts up when open watches are to fall silent.
    pub stalled: Receiver<u64>,
    /// Partitions, which stop events on their way to the client.
    pub partitions: Partitions,
    pub user_agent: String,
}

struct Watching<R> {
    cursor: Cursor,
    read: R,
    signals: Signals,
    deadline: Instant,
    next_bookmark: Instant,
}

/// Returns the events of `request` until it times out or breaks. `with_storage` gives access to the state.
pub fn events<R>(request: WatchRequest, with_storage: R, signals: Signals) -> impl Stream<Item = io::Result<Bytes>>
where
    R: Fn(&mut dyn FnMut(&Storage)) + Send + 'static,
{
    let now = Instant::now();
    let (deadline, next_bookmark) = (now + request.timeout, now + BOOKMARK_PERIOD);
    let watching = Watching { cursor: Cursor::new(request), read: with_storage, signals, deadline, next_bookmark };
    stream::unfold(Some(watching), |watching| async { watching?.next().await })
}

impl<R: Fn(&mut dyn FnMut(&Storage))> Watching<R> {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Option<Self>)> {
        if self.cursor.request.silent {
            std::future::pending::<()>().await;
        }
        loop {
            self.signals.revision.mark_unchanged();
            let (mut lines, mut behind) = (Vec::new(), false);
            (self.read)(&mut |storage| {
                lines = self.cursor.read(storage);
                behind = self.cursor.is_behind(storage);
            });
            let ended = matches!(self.cursor.position, Position::Ended);
            if !lines.is_empty() {
                self.signals.partitions.response_arrives(&self.signals.user_agent).await;
                return Some((Ok(Bytes::from(lines)), (!ended).then_some(self)));
            }
            if behind {
                continue;
            }
            tokio::select! {
                biased;
                _ = self.signals.dropped.changed() => return Some((Err(io::ErrorKind::ConnectionReset.into()), None)),
                _ = self.signals.stalled.changed() => std::future::pending::<()>().await,
                changed = self.signals.revision.changed() => { changed.ok()?; }
                () = sleep_until(self.deadline) => return None,
                () = sleep_until(self.next_bookmark), if self.cursor.request.bookmarks => {
                    self.next_bookmark += BOOKMARK_PERIOD;
                    let bookmark = self.cursor.bookmark();
                    self.signals.partitions.response_arrives(&self.signals.user_agent).await;
                    return Some((Ok(Bytes::from(bookmark)), Some(self)));
                }
            }
        }
    }
}

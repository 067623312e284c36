//! Earlier documents, for outdated lists: each change with the time at which it was made. Pure over that time.
//!
//! Bounded: changes of the last 10 minutes, and not more than 2,000 of them.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::store::Document;

/// Time for which a change is retained.
const RETENTION: Duration = Duration::from_secs(600);
/// Largest number of retained changes.
const MAX_CHANGES: usize = 2_000;

#[derive(Debug, Clone)]
struct Change {
    at: Instant,
    key: String,
    before: Option<Document>,
    written: bool,
}

/// The changes, oldest first.
#[derive(Debug, Default)]
pub struct History {
    changes: VecDeque<Change>,
    now: Option<Instant>,
}

impl History {
    /// Sets the time. Changes before the first time are the initial state, and are not kept.
    pub fn set_time(&mut self, now: Instant) {
        self.now = Some(now);
        while self.changes.front().is_some_and(|change| now.saturating_duration_since(change.at) > RETENTION) {
            self.changes.pop_front();
        }
    }

    /// Records a document before its change. `written`: not only its etag changes.
    pub fn note(&mut self, key: &str, before: Option<Document>, written: bool) {
        let Some(at) = self.now else { return };
        if self.changes.len() >= MAX_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(Change { at, key: key.to_owned(), before, written });
    }

    /// Returns the documents that were written after `time` (`None`: whenever), by key.
    pub fn written_since(&self, time: Option<Instant>) -> BTreeSet<String> {
        self.since(time).filter(|change| change.written).map(|change| change.key.clone()).collect()
    }

    /// Returns the changes to undo, newest first, to return to `time`: keys with the documents that they had.
    pub fn undo(&self, time: Option<Instant>) -> impl Iterator<Item = (&str, Option<&Document>)> {
        self.since(time).map(|change| (change.key.as_str(), change.before.as_ref()))
    }

    fn since(&self, time: Option<Instant>) -> impl Iterator<Item = &Change> {
        self.changes.iter().rev().take_while(move |change| time.is_none_or(|time| change.at > time))
    }
}

//! Order of reads and of updates of documents, by a counter and not by time. Pure.
//!
//! In: starts and ends of reads, and ids of documents with new facts. Out: whether a fact is newer than a read. Facts that
//! are older than all reads in flight are removed.

use std::collections::{BTreeSet, HashMap};

use crate::providers::azure::model::ResourceId;

/// Position in the order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CacheSequence(u64);

impl CacheSequence {
    /// Position after all events.
    pub(super) const LAST: Self = Self(u64::MAX);
}

/// Positions of the reads in flight and of recent updates of documents.
#[derive(Debug, Default)]
pub(super) struct EventOrder {
    last_sequence: u64,
    /// Positions of updates of documents that did not come from a list, kept while an older read is in flight.
    pub(super) updated: HashMap<ResourceId, CacheSequence>,
    reads_in_flight: BTreeSet<CacheSequence>,
}

impl EventOrder {
    /// Returns the next position.
    pub(super) fn next(&mut self) -> CacheSequence {
        self.last_sequence += 1;
        CacheSequence(self.last_sequence)
    }

    /// Records the start of a read, and returns its position.
    pub(super) fn begin_read(&mut self) -> CacheSequence {
        let since = self.next();
        self.reads_in_flight.insert(since);
        since
    }

    /// Records the end of the read that began at `since`.
    pub(super) fn end_read(&mut self, since: CacheSequence) {
        self.reads_in_flight.remove(&since);
        let oldest = self.reads_in_flight.first().copied().unwrap_or(CacheSequence::LAST);
        self.updated.retain(|_, place| *place > oldest);
    }

    /// Returns `true` if the document was updated after `since`.
    pub(super) fn is_newer(&self, id: &ResourceId, since: CacheSequence) -> bool {
        self.updated.get(id).is_some_and(|place| *place > since)
    }

    /// Records an update of the document.
    pub(super) fn mark_updated(&mut self, id: &ResourceId) {
        let now = self.next();
        self.updated.insert(id.clone(), now);
    }
}

//! Which of two things was known first: reads and news of documents in the order of a counter, not of time. Pure.
//!
//! In: reads that begin and end, and ids of which something became known. Out: whether that is newer than a read. What no read under
//! way could be too old for is forgotten.

use std::collections::{BTreeSet, HashMap};

use crate::providers::azure::model::ResourceId;

/// A place in the order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CacheSequence(u64);

impl CacheSequence {
    /// After everything.
    pub(super) const LAST: Self = Self(u64::MAX);
}

/// The order of events about documents.
#[derive(Debug, Default)]
pub(super) struct EventOrder {
    last_sequence: u64,
    /// When something became known of a document otherwise than by a list; kept while an older read is under way.
    pub(super) updated: HashMap<ResourceId, CacheSequence>,
    reads_in_flight: BTreeSet<CacheSequence>,
}

impl EventOrder {
    /// The next place.
    pub(super) fn next(&mut self) -> CacheSequence {
        self.last_sequence += 1;
        CacheSequence(self.last_sequence)
    }

    /// A read is sent now. Answers its place.
    pub(super) fn begin_read(&mut self) -> CacheSequence {
        let since = self.next();
        self.reads_in_flight.insert(since);
        since
    }

    /// The read that began at `since` has ended.
    pub(super) fn end_read(&mut self, since: CacheSequence) {
        self.reads_in_flight.remove(&since);
        let oldest = self.reads_in_flight.first().copied().unwrap_or(CacheSequence::LAST);
        self.updated.retain(|_, place| *place > oldest);
    }

    /// Whether something became known of it after `since`.
    pub(super) fn is_newer(&self, id: &ResourceId, since: CacheSequence) -> bool {
        self.updated.get(id).is_some_and(|place| *place > since)
    }

    /// Something has become known of it.
    pub(super) fn mark_updated(&mut self, id: &ResourceId) {
        let now = self.next();
        self.updated.insert(id.clone(), now);
    }
}

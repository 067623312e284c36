//! Log of recent external changes to the cluster's cloud resources, for status pages. Plain data.
//!
//! In: findings of a provider or a controller. Out: the last few of them as JSON, the latest first. The format is the same
//! for all, so that status pages show them in one table.

use std::collections::VecDeque;

use jiff::Timestamp;

use crate::{
    runtime::text::excerpt,
    status::{DriftNote, DriftOutcome},
};

/// Most findings that are kept, and the longest sentence of one: names of documents are other people's.
const MAX_NOTES: usize = 50;
const LONGEST: usize = 1000;

/// Log of the latest changes.
#[derive(Debug, Clone, Default)]
pub struct DriftLog {
    notes: VecDeque<DriftNote>,
}

impl DriftLog {
    /// Keeps a finding, and forgets the oldest one when there are too many. What is found again as it was replaces itself.
    pub fn note(&mut self, about: &str, found: Timestamp, outcome: DriftOutcome, detail: &str) {
        let detail = excerpt(detail, LONGEST);
        self.notes.retain(|earlier| earlier.about != about || earlier.what != detail);
        self.notes.truncate(MAX_NOTES - 1);
        let found = Timestamp::from_second(found.as_second()).unwrap_or(found);
        self.notes.push_front(DriftNote { about: about.to_owned(), found, outcome, what: detail });
    }

    /// Returns all recorded changes, the latest first.
    pub fn latest(&self) -> Vec<DriftNote> {
        self.notes.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_latest_come_first_and_nothing_grows_without_end() {
        let mut log = DriftLog::default();
        for second in 0..200 {
            log.note(&format!("default/{second}"), at(second), DriftOutcome::Repaired, &"é".repeat(5000));
        }
        let latest = log.latest();
        assert_eq!((latest.len(), latest[0].about.as_str(), latest[49].about.as_str()), (50, "default/199", "default/150"));
        assert_eq!(latest[0].what.chars().count(), 1001);
    }

    #[test]
    fn what_is_found_again_is_one_finding_with_the_later_time() {
        let mut log = DriftLog::default();
        log.note("default/web", at(1), DriftOutcome::Reported, "a probe");
        log.note("default/web", at(2), DriftOutcome::Reported, "a rule");
        log.note("default/web", at(3), DriftOutcome::Reported, "a probe");
        let shown: Vec<_> = log.latest().into_iter().map(|note| (note.found.as_second(), note.what)).collect();
        assert_eq!(shown, [(3, "a probe".to_owned()), (2, "a rule".to_owned())]);
    }
}

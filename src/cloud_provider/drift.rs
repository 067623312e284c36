//! Log of recent external changes to the cluster's cloud resources, for status pages. Plain data.
//!
//! In: findings of a provider or a controller. Out: the latest findings as JSON, the most recent first. All sources have the
//! same format, so that status pages show them in one table.

use std::collections::VecDeque;

use jiff::Timestamp;

use crate::{
    runtime::text::excerpt,
    status::{DriftNote, DriftOutcome},
};

/// Maximum number of findings.
const MAX_NOTES: usize = 50;
/// Maximum length of a finding in characters. Users choose the names of resources, so a finding could be long.
const MAX_LENGTH: usize = 1000;

/// Log of the latest external changes.
#[derive(Debug, Clone, Default)]
pub struct DriftLog {
    notes: VecDeque<DriftNote>,
}

impl DriftLog {
    /// Records a finding, and drops the oldest finding if there are too many. It replaces an equal earlier finding.
    pub fn note(&mut self, about: &str, found: Timestamp, outcome: DriftOutcome, detail: &str) {
        let detail = excerpt(detail, MAX_LENGTH);
        self.notes.retain(|earlier| earlier.about != about || earlier.detail != detail);
        self.notes.truncate(MAX_NOTES - 1);
        let found = Timestamp::from_second(found.as_second()).unwrap_or(found);
        self.notes.push_front(DriftNote { about: about.to_owned(), found, outcome, detail });
    }

    /// Returns the recorded findings, the most recent first.
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
    fn the_log_is_bounded_and_starts_with_the_latest() {
        let mut log = DriftLog::default();
        for second in 0..200 {
            log.note(&format!("default/{second}"), at(second), DriftOutcome::Repaired, &"é".repeat(5000));
        }
        let latest = log.latest();
        assert_eq!((latest.len(), latest[0].about.as_str(), latest[49].about.as_str()), (50, "default/199", "default/150"));
        assert_eq!(latest[0].detail.chars().count(), 1001);
    }

    #[test]
    fn repeated_findings_are_merged_with_the_later_time() {
        let mut log = DriftLog::default();
        log.note("default/web", at(1), DriftOutcome::Reported, "a probe");
        log.note("default/web", at(2), DriftOutcome::Reported, "a rule");
        log.note("default/web", at(3), DriftOutcome::Reported, "a probe");
        let shown: Vec<_> = log.latest().into_iter().map(|note| (note.found.as_second(), note.detail)).collect();
        assert_eq!(shown, [(3, "a probe".to_owned()), (2, "a rule".to_owned())]);
    }
}

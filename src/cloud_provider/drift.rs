//! What somebody else changed of what belongs to the cluster: the latest findings, for status pages. Plain data.
//!
//! In: findings of a provider or a controller. Out: the last few of them as JSON, the latest first. The form is the same for all, so that
//! status pages show them side by side.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde::Serialize;

/// Most findings that are kept, and the longest sentence of one: names of documents are other people's.
const KEPT: usize = 50;
const LONGEST: usize = 1000;

/// What was done about a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DriftOutcome {
    /// It is put right.
    Repaired,
    /// It is left, as the configuration says.
    Reported,
    /// It is left until later: it comes back again and again.
    Delayed,
}

impl DriftOutcome {
    /// For metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Repaired => "repaired",
            Self::Reported => "reported",
            Self::Delayed => "delayed",
        }
    }
}

/// One change of somebody else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DriftNote {
    /// The Service, `namespace/name`, or the Node. Empty: no object's.
    pub about: String,
    /// When it was found, to the second.
    pub found: Timestamp,
    /// What was done about it.
    pub outcome: DriftOutcome,
    /// What changed, and between which moments.
    pub what: String,
}

/// The latest changes.
#[derive(Debug, Clone, Default)]
pub struct DriftLog {
    notes: VecDeque<DriftNote>,
}

impl DriftLog {
    /// Keeps a finding, and forgets the oldest one when there are too many. What is found again as it was replaces itself.
    pub fn note(&mut self, about: &str, found: Timestamp, outcome: DriftOutcome, what: &str) {
        let what = shorten(what);
        self.notes.retain(|known| known.about != about || known.what != what);
        self.notes.truncate(KEPT - 1);
        let found = Timestamp::from_second(found.as_second()).unwrap_or(found);
        self.notes.push_front(DriftNote { about: about.to_owned(), found, outcome, what });
    }

    /// All that is kept, the latest first.
    pub fn latest(&self) -> Vec<DriftNote> {
        self.notes.iter().cloned().collect()
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
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

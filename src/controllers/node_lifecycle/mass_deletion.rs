//! Guard against mass deletion: limits deletions when more instances are missing than the allowance permits. Pure.
//!
//! In: the number of missing instances, since when they are missing, a second source's verdict on one of them, recent
//! contradictions and recent deletions. Out: the reason why that Node may not be deleted now, if any.
//!
//! Many missing instances have one of two causes. Machines were removed, by a scale-in or with a pool: then no human must be
//! needed. Or the cloud's responses are wrong: then no Node may be deleted. A second source, time without contradiction, and
//! pace distinguish them:
//!
//! - a second source that agrees, and [`CONFIRMED_AFTER`] without contradiction; or
//! - no contradiction in [`CONFIRMED_ALONE_AFTER`] from any missing instance, where there is no second source or it is
//!   inconclusive;
//! - and then slowly: within a window no more than [`NodeLifecycleControllerConfig::allowance`], and a quarter of that
//!   within a quarter of the window, so that an error that is detected late costs few Nodes.
//!
//! A second source that has the instance, or a missing instance that is seen again, stops all of these deletions for as
//! long.

use std::{fmt, time::Duration};

use super::config::NodeLifecycleControllerConfig;
use crate::cloud_provider::SecondLook;

/// Time for which one of many instances must be missing before a second source is queried, because lists may be stale.
///
/// It ends before the first Node may be deleted, so that a contradiction about one instance is observed in time.
pub(super) const RECHECK_AFTER: Duration = Duration::from_secs(90);
/// Time for which one of many instances must be missing if a second source agrees.
pub(super) const CONFIRMED_AFTER: Duration = Duration::from_secs(2 * 60);
/// Time for which many instances must be missing before they are confirmed without a second source.
pub(super) const CONFIRMED_ALONE_AFTER: Duration = Duration::from_secs(30 * 60);
/// Number of parts of a window, each with an equal share of the allowance.
const STEPS: u32 = 4;

impl NodeLifecycleControllerConfig {
    /// Returns the number of Nodes, of `all`, that may be deleted within one window.
    pub fn allowance(&self, all: usize) -> usize {
        let by_count = self.max_count.min((all / 2).max(1));
        let by_share = all.saturating_mul(self.max_percent) / 100;
        by_count.max(by_share)
    }

    /// Returns the part of a window in which at most a quarter of the allowance is deleted.
    pub(super) fn quarter_window(&self) -> Duration {
        self.window / STEPS
    }
}

/// Number of instances that are missing at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MissingNodeCount {
    /// Number of Nodes whose instance is missing, or was until lately, and of Nodes deleted lately.
    pub(super) missing: usize,
    /// Number of all Nodes, including those deleted lately.
    pub(super) all: usize,
    /// Number of Nodes that may be deleted within one window.
    pub(super) allowance: usize,
}

impl MissingNodeCount {
    /// Returns `true` if too many are missing. A Node that was delayed for that reason may remain delayed afterwards.
    pub(super) fn exceeds_allowance(&self) -> bool {
        self.missing > self.allowance
    }

    /// Returns how many may be deleted within a quarter of a window.
    fn share(&self) -> usize {
        self.allowance.div_ceil(STEPS as usize)
    }
}

impl fmt::Display for MissingNodeCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { missing, all, allowance } = self;
        write!(f, "the instances of {missing} of {all} nodes are gone, ")?;
        match self.exceeds_allowance() {
            true => write!(f, "more than the {allowance} that may be deleted at once"),
            false => f.write_str("and earlier those of more than may be deleted at once"),
        }
    }
}

/// Evidence about one of many missing instances, and about the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct AbsenceEvidence<'a> {
    /// Time for which its instance has been missing.
    pub(super) missing_for: Duration,
    /// Shortest time for which any of the missing instances has been missing.
    pub(super) all_missing_for: Duration,
    /// Recent verdict of a second source; `None` if it was not queried.
    pub(super) second_look: Option<&'a SecondLook>,
    /// The last contradiction, and how long ago.
    pub(super) contradiction: Option<(Duration, &'a str)>,
    /// Whether there are Nodes whose instance is not missing.
    pub(super) others_exist: bool,
    /// Deletions within the last window.
    pub(super) deleted_in_window: usize,
    /// Deletions within the last quarter of a window.
    pub(super) deleted_in_quarter: usize,
}

/// Reason why a Node is not deleted yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HoldReason {
    /// The time without contradiction is too short.
    TooEarly,
    /// The deletion is rate-limited.
    RateLimited,
    /// The evidence is doubtful, for this reason.
    DoubtfulEvidence(String),
}

/// Returns the reason why one of many Nodes without an instance is not deleted yet, if any.
pub(super) fn hold_reason(missing_count: &MissingNodeCount, evidence: &AbsenceEvidence<'_>) -> Option<HoldReason> {
    if let Some(reason) = check_evidence(missing_count, evidence) {
        return Some(reason);
    }
    let is_within_rate =
        evidence.deleted_in_window < missing_count.allowance && evidence.deleted_in_quarter < missing_count.share();
    (!is_within_rate).then_some(HoldReason::RateLimited)
}

fn check_evidence(missing_count: &MissingNodeCount, evidence: &AbsenceEvidence<'_>) -> Option<HoldReason> {
    let doubtful_evidence = |reason: &str| Some(HoldReason::DoubtfulEvidence(reason.to_owned()));
    if missing_count.allowance == 0 {
        return doubtful_evidence("--node-deletion-max-count and --node-deletion-max-percent allow no deletion");
    }
    if !evidence.others_exist {
        return doubtful_evidence("no node has an existing instance");
    }
    if let Some(SecondLook::Contradicts(reason)) = evidence.second_look {
        return doubtful_evidence(reason);
    }
    let contradicted = |within| evidence.contradiction.filter(|(ago, _)| *ago < within).map(|(_, detail)| detail);
    if evidence.all_missing_for >= CONFIRMED_ALONE_AFTER && contradicted(CONFIRMED_ALONE_AFTER).is_none() {
        return None;
    }
    match (evidence.second_look, contradicted(CONFIRMED_AFTER)) {
        (Some(SecondLook::Silent(reason)), _) => {
            doubtful_evidence(&format!("{reason}, so the instances must be missing for 30 minutes with no contradiction"))
        }
        (_, Some(detail)) => doubtful_evidence(detail),
        (Some(SecondLook::Agrees), None) if evidence.missing_for >= CONFIRMED_AFTER => None,
        _ => Some(HoldReason::TooEarly),
    }
}

#[cfg(test)]
mod tests;

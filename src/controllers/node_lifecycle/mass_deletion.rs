//! What happens to a crowd: more Nodes at once without an instance than may be deleted without asking. Pure.
//!
//! In: how many there are, how long they have been gone, what a second source says of one of them, what contradicted the cloud and
//! what was deleted lately. Out: whether that one may go now, else why not.
//!
//! A crowd is one of two things. Machines were taken away, by a scale-in or with a pool: then nobody must have to help. Or the cloud
//! answers wrongly: then nothing may go. What tells them apart is a second source, time without contradiction, and pace:
//!
//! - a second source that agrees, and [`CONFIRMED_AFTER`] without contradiction; or
//! - no contradiction in [`CONFIRMED_ALONE_AFTER`] from any that is gone, where there is no second source or it cannot tell;
//! - and then slowly: within a window no more than [`NodeLifecycleControllerConfig::allowance`], and a quarter of that
//!   within a quarter of the window, so that an error that comes to light has not cost much.
//!
//! A second source that has the instance, or an instance that was gone and is seen again, stops the whole crowd for as long.

use std::{fmt, time::Duration};

use super::config::NodeLifecycleControllerConfig;
use crate::cloud_provider::SecondLook;

/// How long an instance of a crowd has to be gone before a second source is asked: lists may be behind. Some time before the first Node
/// goes, so that what contradicts about one is known before that.
pub(super) const SECOND_LOOK_AFTER: Duration = Duration::from_secs(90);
/// How long an instance of a crowd has to be gone when a second source agrees.
pub(super) const CONFIRMED_AFTER: Duration = Duration::from_secs(2 * 60);
/// How long a crowd has to be gone before it is believed without a second source.
pub(super) const CONFIRMED_ALONE_AFTER: Duration = Duration::from_secs(30 * 60);
/// Parts of a window that each have their share.
const STEPS: u32 = 4;

impl NodeLifecycleControllerConfig {
    /// How many of `all` Nodes may be deleted within one window. A lone Node may go.
    pub fn allowance(&self, all: usize) -> usize {
        let by_count = self.max_count.min((all / 2).max(1));
        let by_share = all.saturating_mul(self.max_percent) / 100;
        by_count.max(by_share)
    }

    /// The part of a window in which a crowd loses a quarter of the allowance.
    pub(super) fn quarter_window(&self) -> Duration {
        self.window / STEPS
    }
}

/// How many Nodes are gone at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MissingNodeCount {
    /// Nodes whose instance is gone, or was and has been seen again lately, and Nodes deleted lately.
    pub(super) gone: usize,
    /// All Nodes, those deleted lately included.
    pub(super) all: usize,
    /// How many of them may be deleted within one window.
    pub(super) allowance: usize,
}

impl MissingNodeCount {
    /// Whether these are too many; a Node that was held back when they were may be held back still.
    pub(super) fn exceeds_allowance(&self) -> bool {
        self.gone > self.allowance
    }

    /// How many may be deleted within a quarter of a window.
    fn share(&self) -> usize {
        self.allowance.div_ceil(STEPS as usize)
    }
}

impl fmt::Display for MissingNodeCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gone, all, allowance } = self;
        match self.exceeds_allowance() {
            true => write!(
                f,
                "the instances of {gone} of {all} nodes are gone, more than the {allowance} that may be deleted at once"
            ),
            false => {
                write!(f, "the instances of {gone} of {all} nodes are gone, and before of more than may be deleted at once")
            }
        }
    }
}

/// What is known of one Node of a crowd, and of the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct AbsenceEvidence<'a> {
    /// How long its instance has been gone.
    pub(super) gone_for: Duration,
    /// The same for whichever of the crowd it has been shortest.
    pub(super) all_gone_for: Duration,
    /// What a second source said just now; `None`: it was not asked.
    pub(super) second_look: Option<&'a SecondLook>,
    /// The last contradiction, and how long ago.
    pub(super) contradiction: Option<(Duration, &'a str)>,
    /// Whether there are Nodes whose instance is not gone.
    pub(super) others_exist: bool,
    /// Deletions within the last window.
    pub(super) deleted_in_window: usize,
    /// Deletions within the last quarter of a window.
    pub(super) deleted_in_quarter: usize,
}

/// Why a Node of a crowd stays for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HoldReason {
    /// It is too early to tell.
    TooEarly,
    /// It goes when it is its turn.
    RateLimited,
    /// The evidence is doubtful, and why.
    DoubtfulEvidence(String),
}

/// Whether one Node of a crowd stays, and why.
pub(super) fn hold_reason(crowd: &MissingNodeCount, evidence: &AbsenceEvidence<'_>) -> Option<HoldReason> {
    if let Some(doubt) = check_evidence(crowd, evidence) {
        return Some(doubt);
    }
    let has_turn = evidence.deleted_in_window < crowd.allowance && evidence.deleted_in_quarter < crowd.share();
    (!has_turn).then_some(HoldReason::RateLimited)
}

fn check_evidence(crowd: &MissingNodeCount, evidence: &AbsenceEvidence<'_>) -> Option<HoldReason> {
    let doubted = |why: &str| Some(HoldReason::DoubtfulEvidence(why.to_owned()));
    if crowd.allowance == 0 {
        return doubted("--node-deletion-max-count and --node-deletion-max-percent let none go");
    }
    if !evidence.others_exist {
        return doubted("no node is left whose instance is there");
    }
    if let Some(SecondLook::Contradicts(why)) = evidence.second_look {
        return doubted(why);
    }
    let contradicted = |within| evidence.contradiction.filter(|(ago, _)| *ago < within).map(|(_, what)| what);
    if evidence.all_gone_for >= CONFIRMED_ALONE_AFTER && contradicted(CONFIRMED_ALONE_AFTER).is_none() {
        return None;
    }
    match (evidence.second_look, contradicted(CONFIRMED_AFTER)) {
        (Some(SecondLook::Silent(why)), _) => {
            doubted(&format!("{why}, so it has to last for 30 minutes with no contradiction"))
        }
        (_, Some(what)) => doubted(what),
        (Some(SecondLook::Agrees), None) if evidence.gone_for >= CONFIRMED_AFTER => None,
        _ => Some(HoldReason::TooEarly),
    }
}

#[cfg(test)]
mod tests;

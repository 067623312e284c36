//! State machine over observations that decides when a Node is deleted. Pure.
//!
//! In: one Node, the observation of its instance, the number of Nodes, and the time. Out: at most one [`LifecycleAction`].
//!
//! A Node is deleted when the cloud reported `Gone` at least twice with no contradiction in between,
//! [`NodeLifecycleControllerConfig::monitor_period`] apart or more, over at least
//! [`NodeLifecycleControllerConfig::grace_period`], and when that is not likely to be an error of the cloud: if more Nodes
//! than [`NodeLifecycleControllerConfig::allowance`] are either missing now or were deleted within
//! [`NodeLifecycleControllerConfig::window`], that is a [`MissingNodeCount`], whose deletions are slow and need better
//! evidence (`mass_deletion`). That state ends when instances return, Nodes are added or earlier deletions age. A Node
//! that was delayed needs that evidence even then.
//!
//! A Node that has no provider ID and never was ready may have had no instance at all. With
//! [`NodeLifecycleControllerConfig::delete_uninitialized_after`] it counts as missing once all lists have lacked its name
//! for so long.
//!
//! `Unknown` neither starts nor resets the countdown, except for the time without a list; after 5 minutes it is reported.
//! Upstream deletes at the first "not found", without any of this.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use super::config::NodeLifecycleControllerConfig;
use super::mass_deletion::{
    AbsenceEvidence, CONFIRMED_AFTER, CONFIRMED_ALONE_AFTER, HoldReason, MissingNodeCount, RECHECK_AFTER, hold_reason,
};
use crate::cloud_provider::SecondLook;

/// Time for which existence must be unknown before it is reported.
pub(super) const UNKNOWN_REPORT_DELAY: Duration = Duration::from_secs(5 * 60);
/// Interval between repeated reports.
const UNKNOWN_REPORT_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Contradiction by an instance that is seen again.
const SEEN_AGAIN: &str = "an instance exists that the cloud had reported as gone";

/// Observation of a Node and its instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeObservation {
    /// The Node is ready, so no request was sent.
    Ready,
    /// The instance exists and is not shut down.
    Running,
    /// The cloud confirmed that the instance runs, and the Node still has the shutdown taint.
    Restarted,
    /// The instance exists and is shut down.
    ShutDown,
    /// The instance exists; whether it is shut down is unknown, for this reason.
    Exists(String),
    /// The cloud confirmed, in response to a direct request, that the instance does not exist.
    Gone,
    /// [`Self::Gone`] for one of many instances, with the verdict of a second source.
    GoneRechecked(SecondLook),
    /// Existence could not be determined, for this reason.
    Unknown(String),
    /// [`Self::Unknown`] for a Node without a provider ID, whose name a complete list of the cloud lacks.
    Unlisted(String),
}

/// Next step after an observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LifecycleAction {
    Nothing,
    /// Remove the shutdown taint, if the Node has it.
    RemoveShutdownTaint,
    /// Add the shutdown taint, unless the Node has it.
    AddShutdownTaint,
    /// Report that the instance is missing, after the first such observation.
    Report,
    /// Report that existence has been unknown for this long.
    ReportUnknown(Duration),
    Delete,
    /// Delete the Node later, because it is one of many.
    Delay {
        /// Extent of the mass deletion.
        missing_count: MissingNodeCount,
        /// Whether this is the first report for the Node.
        first: bool,
    },
    /// Do not delete the Node, although its instance is confirmed to be missing.
    Refuse {
        /// Extent of the mass deletion.
        missing_count: MissingNodeCount,
        /// Reason for the refusal.
        reason: String,
        /// Whether this is the first refusal for the Node.
        first: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MissingNode {
    missing_since: Instant,
    delayed: bool,
    refused: bool,
}

impl MissingNode {
    /// Returns `true` if the Node was part of a mass deletion: doubtful evidence does not become better because other
    /// instances came back or were deleted.
    fn was_delayed_or_refused(self) -> bool {
        self.delayed || self.refused
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UnknownExistence {
    since: Instant,
    reported: Option<Instant>,
}

/// Nodes, time and settings of a decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrackerInput<'a> {
    /// UIDs of all Nodes.
    pub(super) nodes: &'a BTreeSet<String>,
    pub(super) now: Instant,
    pub(super) config: &'a NodeLifecycleControllerConfig,
}

impl TrackerInput<'_> {
    fn age(self, earlier: Instant) -> Duration {
        self.now.saturating_duration_since(earlier)
    }
}

/// State between observations, by UID of the Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeletionTracker {
    missing: BTreeMap<String, MissingNode>,
    deleted: BTreeMap<String, Instant>,
    unresolved: BTreeMap<String, UnknownExistence>,
    /// Start of the time in which all lists have lacked the Node, for Nodes without a provider ID.
    unlisted: BTreeMap<String, Instant>,
    /// Nodes without a provider ID that were ready at some time.
    once_ready: BTreeSet<String>,
    /// Nodes whose instance was missing and was seen again lately. They count as missing for the limits.
    seen_again: BTreeMap<String, Instant>,
    /// Last contradiction, with its time.
    contradiction: Option<(Instant, String)>,
}

impl DeletionTracker {
    /// Records one observation of the Node with this UID, and returns the next step.
    pub(super) fn observe(&mut self, uid: &str, observation: &NodeObservation, input: TrackerInput<'_>) -> LifecycleAction {
        let is_unlisted = matches!(observation, NodeObservation::Unlisted(_));
        if !is_unlisted {
            self.unlisted.remove(uid);
        }
        if !is_unlisted && !matches!(observation, NodeObservation::Unknown(_)) {
            self.unresolved.remove(uid);
        }
        match observation {
            NodeObservation::Unknown(_) => self.existence_unknown(uid, input),
            NodeObservation::Unlisted(_) => self.instance_unlisted(uid, input),
            NodeObservation::Gone => self.instance_gone(uid, None, input),
            NodeObservation::GoneRechecked(second) => self.instance_gone(uid, Some(second), input),
            NodeObservation::Ready | NodeObservation::Restarted => {
                self.instance_seen(uid, input.now, LifecycleAction::RemoveShutdownTaint)
            }
            NodeObservation::ShutDown => self.instance_seen(uid, input.now, LifecycleAction::AddShutdownTaint),
            NodeObservation::Running | NodeObservation::Exists(_) => {
                self.instance_seen(uid, input.now, LifecycleAction::Nothing)
            }
        }
    }

    fn instance_seen(&mut self, uid: &str, now: Instant, action: LifecycleAction) -> LifecycleAction {
        if self.missing.remove(uid).is_some() {
            self.contradiction = Some((now, SEEN_AGAIN.to_owned()));
            self.seen_again.insert(uid.to_owned(), now);
        }
        action
    }

    fn existence_unknown(&mut self, uid: &str, input: TrackerInput<'_>) -> LifecycleAction {
        let unclear = self.unresolved.entry(uid.to_owned()).or_insert(UnknownExistence { since: input.now, reported: None });
        let lasts = input.age(unclear.since);
        let should_report = unclear.reported.is_none_or(|at| input.age(at) >= UNKNOWN_REPORT_INTERVAL);
        if lasts < UNKNOWN_REPORT_DELAY || !should_report {
            return LifecycleAction::Nothing;
        }
        unclear.reported = Some(input.now);
        LifecycleAction::ReportUnknown(lasts)
    }

    /// Decides about a Node that never was ready and that no list has: it counts as missing after
    /// [`NodeLifecycleControllerConfig::delete_uninitialized_after`].
    fn instance_unlisted(&mut self, uid: &str, input: TrackerInput<'_>) -> LifecycleAction {
        let limit = input.config.delete_uninitialized_after;
        if limit.is_zero() || self.once_ready.contains(uid) {
            return self.existence_unknown(uid, input);
        }
        let since = *self.unlisted.entry(uid.to_owned()).or_insert(input.now);
        match input.age(since) >= limit {
            true => self.instance_gone(uid, None, input),
            false => self.existence_unknown(uid, input),
        }
    }

    /// Records Nodes without a provider ID that are ready: they are not deleted as uninitialized ones.
    pub(super) fn note_ready(&mut self, uids: impl IntoIterator<Item = String>) {
        self.once_ready.extend(uids);
        self.unlisted.retain(|uid, _| !self.once_ready.contains(uid));
    }

    fn instance_gone(&mut self, uid: &str, second: Option<&SecondLook>, input: TrackerInput<'_>) -> LifecycleAction {
        let (now, config) = (input.now, input.config);
        if self.deleted.contains_key(uid) {
            // Finalizers delay the deletion, which is counted already.
            return LifecycleAction::Nothing;
        }
        let Some(missing) = self.missing.get(uid).copied() else {
            self.missing.insert(uid.to_owned(), MissingNode { missing_since: now, delayed: false, refused: false });
            return LifecycleAction::Report;
        };
        if let Some(SecondLook::Contradicts(detail)) = second {
            self.contradiction = Some((now, detail.clone()));
        }
        if input.age(missing.missing_since) < config.monitor_period.max(config.grace_period) {
            return LifecycleAction::Nothing;
        }
        let missing_count = self.count_missing(input);
        let delay_reason = (missing_count.exceeds_allowance() || missing.was_delayed_or_refused())
            .then(|| hold_reason(&missing_count, &self.evidence(missing, second, input)))
            .flatten();
        match delay_reason {
            Some(HoldReason::DoubtfulEvidence(reason)) => {
                self.missing.insert(uid.to_owned(), MissingNode { refused: true, ..missing });
                LifecycleAction::Refuse { missing_count, reason, first: !missing.refused }
            }
            Some(HoldReason::TooEarly | HoldReason::RateLimited) => {
                self.missing.insert(uid.to_owned(), MissingNode { delayed: true, ..missing });
                LifecycleAction::Delay { missing_count, first: !missing.delayed }
            }
            None if matches!(second, Some(SecondLook::Contradicts(_))) => LifecycleAction::Nothing,
            None => {
                self.missing.remove(uid);
                self.deleted.insert(uid.to_owned(), now);
                LifecycleAction::Delete
            }
        }
    }

    /// Returns the number of missing Nodes if it exceeds the allowance.
    pub(super) fn mass_deletion(&self, input: TrackerInput<'_>) -> Option<MissingNodeCount> {
        Some(self.count_missing(input)).filter(MissingNodeCount::exceeds_allowance)
    }

    fn count_missing(&self, input: TrackerInput<'_>) -> MissingNodeCount {
        let TrackerInput { nodes, config, .. } = input;
        let lately = |at: &Instant| input.age(*at) < config.window;
        let deleted: Vec<_> = self.deleted.iter().filter(|(_, at)| lately(at)).map(|(uid, _)| uid).collect();
        let reconfirmed = self.seen_again.iter().filter(|(uid, at)| {
            input.age(**at) < CONFIRMED_AFTER && nodes.contains(*uid) && !self.missing.contains_key(*uid)
        });
        let missing = self.missing.len() + deleted.len() + reconfirmed.count();
        let all = nodes.len() + deleted.iter().filter(|uid| !nodes.contains(**uid)).count();
        MissingNodeCount { missing, all, allowance: config.allowance(all) }
    }

    /// Returns `true` if a second source's verdict on this Node, whose instance the cloud reports as missing, would change
    /// the decision.
    pub(super) fn needs_recheck(&self, uid: &str, input: TrackerInput<'_>) -> bool {
        self.missing.get(uid).is_some_and(|missing| {
            input.age(missing.missing_since) >= RECHECK_AFTER
                && (missing.was_delayed_or_refused() || self.count_missing(input).exceeds_allowance())
        })
    }

    fn evidence<'a>(
        &'a self,
        missing: MissingNode,
        second: Option<&'a SecondLook>,
        input: TrackerInput<'_>,
    ) -> AbsenceEvidence<'a> {
        let deleted_in = |span| self.deleted.values().filter(|at| input.age(**at) < span).count();
        let missing_for = input.age(missing.missing_since);
        let still_listed = self.deleted.keys().filter(|uid| input.nodes.contains(*uid)).count();
        AbsenceEvidence {
            missing_for,
            // The others matter only after this instance has been missing for long.
            all_missing_for: match missing_for >= CONFIRMED_ALONE_AFTER {
                true => self.missing.values().map(|missing| input.age(missing.missing_since)).min().unwrap_or_default(),
                false => missing_for,
            },
            second_look: second,
            contradiction: self.contradiction.as_ref().map(|(at, detail)| (input.age(*at), detail.as_str())),
            others_exist: input.nodes.len() > self.missing.len() + still_listed,
            deleted_in_window: deleted_in(input.config.window),
            deleted_in_quarter: deleted_in(input.config.quarter_window()),
        }
    }

    /// Records that a deletion was not executed: it does not count, and the Node must be confirmed again.
    pub(super) fn not_deleted(&mut self, uid: &str) {
        self.deleted.remove(uid);
    }

    /// Forgets Nodes that do not exist any more, and outdated deletions and contradictions.
    pub(super) fn forget(&mut self, input: TrackerInput<'_>) {
        let nodes = input.nodes;
        self.missing.retain(|uid, _| nodes.contains(uid));
        self.unresolved.retain(|uid, _| nodes.contains(uid));
        self.unlisted.retain(|uid, _| nodes.contains(uid));
        self.once_ready.retain(|uid| nodes.contains(uid));
        self.seen_again.retain(|_, at| input.age(*at) < CONFIRMED_AFTER);
        self.deleted.retain(|_, at| input.age(*at) < input.config.window);
        self.contradiction = self.contradiction.take().filter(|(at, _)| input.age(*at) < CONFIRMED_ALONE_AFTER);
    }
}

/// Returns the reason why a Node is observed again, for status pages; `None` if its state is normal.
pub(super) fn waiting_reason(observation: &NodeObservation, action: &LifecycleAction) -> Option<String> {
    match (observation, action) {
        (_, LifecycleAction::Refuse { missing_count, reason, .. }) => {
            Some(format!("{missing_count}, and the evidence is doubtful: {reason}"))
        }
        (_, LifecycleAction::Delay { missing_count, .. }) => Some(format!("{missing_count}; the deletion is delayed")),
        (NodeObservation::Gone | NodeObservation::GoneRechecked(_), _) => {
            Some("the instance is missing, which is not confirmed yet".to_owned())
        }
        (NodeObservation::Unknown(reason), _) => Some(format!("cannot determine whether the instance exists: {reason}")),
        (NodeObservation::Unlisted(reason), _) => {
            Some(format!("no list of the cloud has an instance of this name: {reason}"))
        }
        (NodeObservation::Exists(reason), _) => {
            Some(format!("cannot determine whether the instance is shut down: {reason}"))
        }
        (NodeObservation::Ready | NodeObservation::Running | NodeObservation::Restarted | NodeObservation::ShutDown, _) => {
            None
        }
    }
}

/// Returns the reason for the removal of the shutdown taint.
pub(super) fn removal_reason(observation: &NodeObservation) -> &'static str {
    match observation {
        NodeObservation::Restarted => "its instance runs",
        _ => "it is ready",
    }
}

#[cfg(test)]
mod tests;

//! When a Node is deleted, and when not: a pure state machine over observations.
//!
//! In: one Node, what was seen of its instance, how many Nodes there are, and the time. Out: at most one [`LifecycleAction`].
//!
//! A Node is deleted when the cloud said `Gone` at least twice with no contradiction in between,
//! [`NodeLifecycleControllerConfig::monitor_period`] apart or more, over at least
//! [`NodeLifecycleControllerConfig::grace_period`], and when that does not look like an error of the cloud: if more Nodes
//! than [`NodeLifecycleControllerConfig::allowance`] are either gone now or were deleted within
//! [`NodeLifecycleControllerConfig::window`], that is a [`MissingNodeCount`], which goes slowly and only on better evidence
//! (`mass_deletion`). That ends by itself: instances come back, Nodes are added, earlier deletions age. A Node that was held back
//! needs that evidence even then.
//!
//! A Node that has no provider id and never was ready may have had no instance at all. With
//! [`NodeLifecycleControllerConfig::delete_uninitialized_after`] it counts as gone once all lists have lacked its name for so long.
//!
//! "Unknown" confirms nothing and forgets nothing but the time without a list; one that lasts is told. Upstream deletes at the first "not found", without any of
//! this.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use super::config::NodeLifecycleControllerConfig;
use super::mass_deletion::{
    AbsenceEvidence, CONFIRMED_AFTER, CONFIRMED_ALONE_AFTER, HoldReason, MissingNodeCount, SECOND_LOOK_AFTER, hold_reason,
};
use crate::cloud_provider::SecondLook;

/// How long the cloud may not be able to tell before somebody is told.
pub(super) const UNKNOWN_REPORT_DELAY: Duration = Duration::from_secs(5 * 60);
/// How often that is told anew.
const UNKNOWN_REPORT_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// What contradicts a crowd when an instance turns up again.
const SEEN_AGAIN: &str = "an instance of which the cloud had said that it is gone is there";

/// What was seen of a Node and its instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeObservation {
    /// The Node is ready, so the cloud was not asked.
    Ready,
    /// The instance is there and not shut down.
    Running,
    /// The instance is known to run, and the Node still has the shutdown taint.
    Restarted,
    /// The instance is there and shut down.
    ShutDown,
    /// The instance is there; whether it is shut down could not be told, and why.
    Exists(String),
    /// The cloud said, freshly, that the instance is not there.
    Gone,
    /// The same of one of many, and what a second source said of it.
    GoneRechecked(SecondLook),
    /// The cloud could not tell, and why.
    Unknown(String),
    /// The same of a Node without a provider id, and a complete list of what the cloud knows lacks its name.
    Unlisted(String),
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LifecycleAction {
    Nothing,
    /// Take the shutdown taint off, if it is there.
    RemoveShutdownTaint,
    /// Put the shutdown taint on, if it is not there.
    AddShutdownTaint,
    /// Say that the instance is missing: this was the first time.
    Report,
    /// Say that nobody can tell whether the instance exists, for so long by now.
    ReportUnknown(Duration),
    Delete,
    /// Delete the Node later: it is one of many; `first` is whether that is news.
    Delay {
        /// How many there are.
        missing_count: MissingNodeCount,
        /// Whether this Node was not told so before.
        first: bool,
    },
    /// Do not delete the Node, though it qualifies; `first` is whether that is news.
    Refuse {
        /// What makes it look like an error.
        missing_count: MissingNodeCount,
        /// What is doubtful about it.
        why: String,
        /// Whether this Node was let through before.
        first: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MissingNode {
    gone_since: Instant,
    delayed: bool,
    refused: bool,
}

impl MissingNode {
    /// Whether it was of a crowd: what was doubtful then does not become likely because others came back or were deleted.
    fn was_held(self) -> bool {
        self.delayed || self.refused
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UnknownExistence {
    since: Instant,
    reported: Option<Instant>,
}

/// What is remembered between observations, by UID of the Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeletionTracker {
    missing: BTreeMap<String, MissingNode>,
    deleted: BTreeMap<String, Instant>,
    unknown: BTreeMap<String, UnknownExistence>,
    /// Nodes without a provider id that no list has, and since when all reads have said so.
    unlisted: BTreeMap<String, Instant>,
    /// Nodes without a provider id that were ready at some time.
    once_ready: BTreeSet<String>,
    /// Nodes whose instance was gone and was seen again lately. They count for a crowd: the cloud has said so much.
    seen_again: BTreeMap<String, Instant>,
    /// What contradicted the cloud last.
    contradiction: Option<(Instant, String)>,
}

impl DeletionTracker {
    /// Takes in one observation of the Node with this UID; `nodes` are the UIDs of all Nodes there are.
    pub(super) fn observe(
        &mut self,
        uid: &str,
        observation: &NodeObservation,
        nodes: &BTreeSet<String>,
        now: Instant,
        config: &NodeLifecycleControllerConfig,
    ) -> LifecycleAction {
        let is_unlisted = matches!(observation, NodeObservation::Unlisted(_));
        if !is_unlisted {
            self.unlisted.remove(uid);
        }
        if !is_unlisted && !matches!(observation, NodeObservation::Unknown(_)) {
            self.unknown.remove(uid);
        }
        match observation {
            NodeObservation::Unknown(_) => self.existence_unknown(uid, now),
            NodeObservation::Unlisted(_) => self.instance_unlisted(uid, nodes, now, config),
            NodeObservation::Gone => self.instance_gone(uid, None, nodes, now, config),
            NodeObservation::GoneRechecked(second) => self.instance_gone(uid, Some(second), nodes, now, config),
            NodeObservation::Ready | NodeObservation::Restarted => {
                self.instance_seen(uid, now, LifecycleAction::RemoveShutdownTaint)
            }
            NodeObservation::ShutDown => self.instance_seen(uid, now, LifecycleAction::AddShutdownTaint),
            NodeObservation::Running | NodeObservation::Exists(_) => self.instance_seen(uid, now, LifecycleAction::Nothing),
        }
    }

    fn instance_seen(&mut self, uid: &str, now: Instant, action: LifecycleAction) -> LifecycleAction {
        if self.missing.remove(uid).is_some() {
            self.contradiction = Some((now, SEEN_AGAIN.to_owned()));
            self.seen_again.insert(uid.to_owned(), now);
        }
        action
    }

    fn existence_unknown(&mut self, uid: &str, now: Instant) -> LifecycleAction {
        let unclear = self.unknown.entry(uid.to_owned()).or_insert(UnknownExistence { since: now, reported: None });
        let lasts = now.saturating_duration_since(unclear.since);
        let is_news = unclear.reported.is_none_or(|at| now.saturating_duration_since(at) >= UNKNOWN_REPORT_INTERVAL);
        if lasts < UNKNOWN_REPORT_DELAY || !is_news {
            return LifecycleAction::Nothing;
        }
        unclear.reported = Some(now);
        LifecycleAction::ReportUnknown(lasts)
    }

    /// A Node that never was ready and that no list has counts as gone after [`NodeLifecycleControllerConfig::delete_uninitialized_after`].
    fn instance_unlisted(
        &mut self,
        uid: &str,
        nodes: &BTreeSet<String>,
        now: Instant,
        config: &NodeLifecycleControllerConfig,
    ) -> LifecycleAction {
        let (limit, is_candidate) = (config.delete_uninitialized_after, !self.once_ready.contains(uid));
        if limit.is_zero() || !is_candidate {
            return self.existence_unknown(uid, now);
        }
        let since = *self.unlisted.entry(uid.to_owned()).or_insert(now);
        match now.saturating_duration_since(since) >= limit {
            true => self.instance_gone(uid, None, nodes, now, config),
            false => self.existence_unknown(uid, now),
        }
    }

    /// Nodes without a provider id that are ready now: they are not deleted as uninitialized ones.
    pub(super) fn note_ready(&mut self, uids: impl IntoIterator<Item = String>) {
        self.once_ready.extend(uids);
        self.unlisted.retain(|uid, _| !self.once_ready.contains(uid));
    }

    fn instance_gone(
        &mut self,
        uid: &str,
        second: Option<&SecondLook>,
        nodes: &BTreeSet<String>,
        now: Instant,
        config: &NodeLifecycleControllerConfig,
    ) -> LifecycleAction {
        if self.deleted.contains_key(uid) {
            // Finalizers hold it; it is counted already.
            return LifecycleAction::Nothing;
        }
        let Some(missing) = self.missing.get(uid).copied() else {
            self.missing.insert(uid.to_owned(), MissingNode { gone_since: now, delayed: false, refused: false });
            return LifecycleAction::Report;
        };
        if let Some(SecondLook::Contradicts(what)) = second {
            self.contradiction = Some((now, what.clone()));
        }
        if now.saturating_duration_since(missing.gone_since) < config.monitor_period.max(config.grace_period) {
            return LifecycleAction::Nothing;
        }
        let crowd = self.count_missing(nodes, now, config);
        let held = (crowd.exceeds_allowance() || missing.was_held())
            .then(|| hold_reason(&crowd, &self.evidence(missing, second, nodes, now, config)))
            .flatten();
        match held {
            Some(HoldReason::DoubtfulEvidence(why)) => {
                self.missing.insert(uid.to_owned(), MissingNode { refused: true, ..missing });
                LifecycleAction::Refuse { missing_count: crowd, why, first: !missing.refused }
            }
            Some(HoldReason::TooEarly | HoldReason::RateLimited) => {
                self.missing.insert(uid.to_owned(), MissingNode { delayed: true, ..missing });
                LifecycleAction::Delay { missing_count: crowd, first: !missing.delayed }
            }
            None if matches!(second, Some(SecondLook::Contradicts(_))) => LifecycleAction::Nothing,
            None => {
                self.missing.remove(uid);
                self.deleted.insert(uid.to_owned(), now);
                LifecycleAction::Delete
            }
        }
    }

    /// The Nodes that are gone, if they are too many.
    pub(super) fn mass_deletion(
        &self,
        nodes: &BTreeSet<String>,
        now: Instant,
        config: &NodeLifecycleControllerConfig,
    ) -> Option<MissingNodeCount> {
        Some(self.count_missing(nodes, now, config)).filter(MissingNodeCount::exceeds_allowance)
    }

    fn count_missing(
        &self,
        nodes: &BTreeSet<String>,
        now: Instant,
        config: &NodeLifecycleControllerConfig,
    ) -> MissingNodeCount {
        let lately = |at: &Instant| now.saturating_duration_since(*at) < config.window;
        let deleted: Vec<_> = self.deleted.iter().filter(|(_, at)| lately(at)).map(|(uid, _)| uid).collect();
        let again = self.seen_again.iter().filter(|(uid, at)| {
            now.saturating_duration_since(**at) < CONFIRMED_AFTER && nodes.contains(*uid) && !self.missing.contains_key(*uid)
        });
        let gone = self.missing.len() + deleted.len() + again.count();
        let all = nodes.len() + deleted.iter().filter(|uid| !nodes.contains(**uid)).count();
        MissingNodeCount { gone, all, allowance: config.allowance(all) }
    }

    /// Whether what a second source says of this Node, of which the cloud says that its instance is gone, would change anything.
    pub(super) fn needs_second_look(
        &self,
        uid: &str,
        nodes: &BTreeSet<String>,
        now: Instant,
        config: &NodeLifecycleControllerConfig,
    ) -> bool {
        self.missing.get(uid).is_some_and(|missing| {
            now.saturating_duration_since(missing.gone_since) >= SECOND_LOOK_AFTER
                && (missing.was_held() || self.count_missing(nodes, now, config).exceeds_allowance())
        })
    }

    fn evidence<'a>(
        &'a self,
        missing: MissingNode,
        second: Option<&'a SecondLook>,
        nodes: &BTreeSet<String>,
        now: Instant,
        config: &NodeLifecycleControllerConfig,
    ) -> AbsenceEvidence<'a> {
        let age = |at: Instant| now.saturating_duration_since(at);
        let deleted_in = |span| self.deleted.values().filter(|at| age(**at) < span).count();
        let gone_for = age(missing.gone_since);
        let still_there = self.deleted.keys().filter(|uid| nodes.contains(*uid)).count();
        AbsenceEvidence {
            gone_for,
            // The others matter only once this one has been gone for long.
            all_gone_for: match gone_for >= CONFIRMED_ALONE_AFTER {
                true => self.missing.values().map(|missing| age(missing.gone_since)).min().unwrap_or_default(),
                false => gone_for,
            },
            second_look: second,
            contradiction: self.contradiction.as_ref().map(|(at, what)| (age(*at), what.as_str())),
            others_exist: nodes.len() > self.missing.len() + still_there,
            deleted_in_window: deleted_in(config.window),
            deleted_in_quarter: deleted_in(config.quarter_window()),
        }
    }

    /// A deletion was not carried out: it does not count, and the Node has to be confirmed again.
    pub(super) fn not_deleted(&mut self, uid: &str) {
        self.deleted.remove(uid);
    }

    /// Forgets Nodes that are no more, and what is long past.
    pub(super) fn forget(&mut self, nodes: &BTreeSet<String>, now: Instant, config: &NodeLifecycleControllerConfig) {
        self.missing.retain(|uid, _| nodes.contains(uid));
        self.unknown.retain(|uid, _| nodes.contains(uid));
        self.unlisted.retain(|uid, _| nodes.contains(uid));
        self.once_ready.retain(|uid| nodes.contains(uid));
        self.seen_again.retain(|_, at| now.saturating_duration_since(*at) < CONFIRMED_AFTER);
        self.deleted.retain(|_, at| now.saturating_duration_since(*at) < config.window);
        self.contradiction =
            self.contradiction.take().filter(|(at, _)| now.saturating_duration_since(*at) < CONFIRMED_ALONE_AFTER);
    }
}

/// Why a Node stays under observation, for status pages; `None` when it is as it should be.
pub(super) fn waiting_reason(observation: &NodeObservation, action: &LifecycleAction) -> Option<String> {
    match (observation, action) {
        (_, LifecycleAction::Refuse { missing_count: crowd, why, .. }) => {
            Some(format!("{crowd}, and the evidence is doubtful: {why}"))
        }
        (_, LifecycleAction::Delay { missing_count: crowd, .. }) => Some(format!("{crowd}: it goes when it is its turn")),
        (NodeObservation::Gone | NodeObservation::GoneRechecked(_), _) => {
            Some("the instance is gone, which is to be confirmed".to_owned())
        }
        (NodeObservation::Unknown(why), _) => Some(format!("whether the instance exists could not be told: {why}")),
        (NodeObservation::Unlisted(why), _) => Some(format!("no list of the cloud has an instance of this name: {why}")),
        (NodeObservation::Exists(why), _) => Some(format!("whether the instance is shut down could not be told: {why}")),
        (NodeObservation::Ready | NodeObservation::Running | NodeObservation::Restarted | NodeObservation::ShutDown, _) => {
            None
        }
    }
}

#[cfg(test)]
mod tests;

//! When a Node is deleted, and when not: a pure state machine over observations.
//!
//! In: one Node, what was seen of its instance, how many Nodes there are, and the time. Out: at most one [`Action`].
//!
//! A Node is deleted when the cloud said `Gone` at least twice with no contradiction in between, [`Config::monitor_period`] apart
//! or more, over at least [`Config::grace_period`], and when that does not look like an error of the cloud: if more Nodes than
//! [`Config::allowance`] are either gone now or were deleted within [`Config::window`], that is a [`Crowd`], which goes slowly and only
//! on better evidence (`crowd`). That ends by itself: instances come back, Nodes are added, earlier deletions age. A Node that was held
//! back needs that evidence even then.
//!
//! "Unknown" confirms nothing and forgets nothing; one that lasts is told. Upstream deletes at the first "not found", without any of
//! this.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use super::crowd::{ASK_FROM, Config, Crowd, Evidence, Hold, LASTING, SETTLED, hold};
use crate::cloud_provider::SecondLook;

/// How long the cloud may not be able to tell before somebody is told.
pub(super) const UNKNOWN_LASTS: Duration = Duration::from_secs(5 * 60);
/// How often that is told anew.
const TELL_AGAIN: Duration = Duration::from_secs(60 * 60);
/// What contradicts a crowd when an instance turns up again.
const SEEN_AGAIN: &str = "an instance of which the cloud had said that it is gone is there";

/// What was seen of a Node and its instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Observation {
    /// The Node is ready, so the cloud was not asked.
    Ready,
    /// The instance is there and runs.
    Running,
    /// The instance is there and shut down.
    ShutDown,
    /// The instance is there; whether it is shut down could not be told, and why.
    Exists(String),
    /// The cloud said, freshly, that the instance is not there.
    Gone,
    /// The same of one of many, and what a second source said of it.
    GoneInCrowd(SecondLook),
    /// The cloud could not tell, and why.
    Unknown(String),
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing now.
    Nothing,
    /// Take the shutdown taint off, if it is there.
    RemoveShutdownTaint,
    /// Put the shutdown taint on, if it is not there.
    AddShutdownTaint,
    /// Say that the instance is missing: this was the first time.
    Report,
    /// Say that nobody can tell whether the instance exists, for so long by now.
    ReportUnknown(Duration),
    /// Delete the Node.
    Delete,
    /// Delete the Node later: it is one of many; `first` is whether that is news.
    Delay {
        /// How many there are.
        crowd: Crowd,
        /// Whether this Node was not told so before.
        first: bool,
    },
    /// Do not delete the Node, though it qualifies; `first` is whether that is news.
    Refuse {
        /// What makes it look like an error.
        crowd: Crowd,
        /// What is doubtful about it.
        why: String,
        /// Whether this Node was let through before.
        first: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Missing {
    since: Instant,
    delayed: bool,
    refused: bool,
}

impl Missing {
    /// Whether it was of a crowd: what was doubtful then does not become likely because others came back or were deleted.
    fn was_held(self) -> bool {
        self.delayed || self.refused
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unclear {
    since: Instant,
    told: Option<Instant>,
}

/// What is remembered between observations, by UID of the Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    missing: BTreeMap<String, Missing>,
    deleted: BTreeMap<String, Instant>,
    unclear: BTreeMap<String, Unclear>,
    /// Nodes whose instance was gone and was seen again lately. They count for a crowd: the cloud has said so much.
    seen_again: BTreeMap<String, Instant>,
    /// What contradicted the cloud last.
    contradiction: Option<(Instant, String)>,
}

impl State {
    /// Takes in one observation of the Node with this UID; `nodes` are the UIDs of all Nodes there are.
    pub(super) fn observe(
        &mut self,
        uid: &str,
        observation: &Observation,
        nodes: &BTreeSet<String>,
        now: Instant,
        config: &Config,
    ) -> Action {
        if !matches!(observation, Observation::Unknown(_)) {
            self.unclear.remove(uid);
        }
        match observation {
            Observation::Unknown(_) => self.unknown(uid, now),
            Observation::Gone => self.gone(uid, None, nodes, now, config),
            Observation::GoneInCrowd(second) => self.gone(uid, Some(second), nodes, now, config),
            Observation::Ready => self.there(uid, now, Action::RemoveShutdownTaint),
            Observation::ShutDown => self.there(uid, now, Action::AddShutdownTaint),
            Observation::Running | Observation::Exists(_) => self.there(uid, now, Action::Nothing),
        }
    }

    fn there(&mut self, uid: &str, now: Instant, action: Action) -> Action {
        if self.missing.remove(uid).is_some() {
            self.contradiction = Some((now, SEEN_AGAIN.to_owned()));
            self.seen_again.insert(uid.to_owned(), now);
        }
        action
    }

    fn unknown(&mut self, uid: &str, now: Instant) -> Action {
        let unclear = self.unclear.entry(uid.to_owned()).or_insert(Unclear { since: now, told: None });
        let lasts = now.saturating_duration_since(unclear.since);
        let is_news = unclear.told.is_none_or(|at| now.saturating_duration_since(at) >= TELL_AGAIN);
        if lasts < UNKNOWN_LASTS || !is_news {
            return Action::Nothing;
        }
        unclear.told = Some(now);
        Action::ReportUnknown(lasts)
    }

    fn gone(
        &mut self,
        uid: &str,
        second: Option<&SecondLook>,
        nodes: &BTreeSet<String>,
        now: Instant,
        config: &Config,
    ) -> Action {
        if self.deleted.contains_key(uid) {
            // Finalizers hold it; it is counted already.
            return Action::Nothing;
        }
        let Some(missing) = self.missing.get(uid).copied() else {
            self.missing.insert(uid.to_owned(), Missing { since: now, delayed: false, refused: false });
            return Action::Report;
        };
        if let Some(SecondLook::Contradicts(what)) = second {
            self.contradiction = Some((now, what.clone()));
        }
        if now.saturating_duration_since(missing.since) < config.monitor_period.max(config.grace_period) {
            return Action::Nothing;
        }
        let crowd = self.count(nodes, now, config);
        let held = (crowd.is_one() || missing.was_held())
            .then(|| hold(&crowd, &self.evidence(missing, second, nodes, now, config)))
            .flatten();
        match held {
            Some(Hold::Doubt(why)) => {
                self.missing.insert(uid.to_owned(), Missing { refused: true, ..missing });
                Action::Refuse { crowd, why, first: !missing.refused }
            }
            Some(Hold::Early | Hold::Turn) => {
                self.missing.insert(uid.to_owned(), Missing { delayed: true, ..missing });
                Action::Delay { crowd, first: !missing.delayed }
            }
            None if matches!(second, Some(SecondLook::Contradicts(_))) => Action::Nothing,
            None => {
                self.missing.remove(uid);
                self.deleted.insert(uid.to_owned(), now);
                Action::Delete
            }
        }
    }

    /// The Nodes that are gone, if they are too many.
    pub(super) fn crowd(&self, nodes: &BTreeSet<String>, now: Instant, config: &Config) -> Option<Crowd> {
        Some(self.count(nodes, now, config)).filter(Crowd::is_one)
    }

    fn count(&self, nodes: &BTreeSet<String>, now: Instant, config: &Config) -> Crowd {
        let lately = |at: &Instant| now.saturating_duration_since(*at) < config.window;
        let deleted: Vec<_> = self.deleted.iter().filter(|(_, at)| lately(at)).map(|(uid, _)| uid).collect();
        let again = self.seen_again.iter().filter(|(uid, at)| {
            now.saturating_duration_since(**at) < SETTLED && nodes.contains(*uid) && !self.missing.contains_key(*uid)
        });
        let gone = self.missing.len() + deleted.len() + again.count();
        let all = nodes.len() + deleted.iter().filter(|uid| !nodes.contains(**uid)).count();
        Crowd { gone, all, allowance: config.allowance(all) }
    }

    /// Whether what a second source says of this Node, of which the cloud says that its instance is gone, would change anything.
    pub(super) fn needs_second_look(&self, uid: &str, nodes: &BTreeSet<String>, now: Instant, config: &Config) -> bool {
        self.missing.get(uid).is_some_and(|missing| {
            now.saturating_duration_since(missing.since) >= ASK_FROM
                && (missing.was_held() || self.count(nodes, now, config).is_one())
        })
    }

    fn evidence<'a>(
        &'a self,
        missing: Missing,
        second: Option<&'a SecondLook>,
        nodes: &BTreeSet<String>,
        now: Instant,
        config: &Config,
    ) -> Evidence<'a> {
        let age = |at: Instant| now.saturating_duration_since(at);
        let deleted_in = |span| self.deleted.values().filter(|at| age(**at) < span).count();
        let gone_for = age(missing.since);
        let still_there = self.deleted.keys().filter(|uid| nodes.contains(*uid)).count();
        Evidence {
            gone_for,
            // The others matter only once this one has been gone for long.
            all_gone_for: match gone_for >= LASTING {
                true => self.missing.values().map(|missing| age(missing.since)).min().unwrap_or_default(),
                false => gone_for,
            },
            second,
            contradiction: self.contradiction.as_ref().map(|(at, what)| (age(*at), what.as_str())),
            others_are_there: nodes.len() > self.missing.len() + still_there,
            deleted_in_window: deleted_in(config.window),
            deleted_in_step: deleted_in(config.step()),
        }
    }

    /// A deletion was not carried out: it does not count, and the Node has to be confirmed again.
    pub(super) fn not_deleted(&mut self, uid: &str) {
        self.deleted.remove(uid);
    }

    /// Forgets Nodes that are no more, and what is long past.
    pub(super) fn forget(&mut self, nodes: &BTreeSet<String>, now: Instant, config: &Config) {
        self.missing.retain(|uid, _| nodes.contains(uid));
        self.unclear.retain(|uid, _| nodes.contains(uid));
        self.seen_again.retain(|_, at| now.saturating_duration_since(*at) < SETTLED);
        self.deleted.retain(|_, at| now.saturating_duration_since(*at) < config.window);
        self.contradiction = self.contradiction.take().filter(|(at, _)| now.saturating_duration_since(*at) < LASTING);
    }
}

/// Why a Node stays under observation, for status pages; `None` when it is as it should be.
pub(super) fn waits_for(observation: &Observation, action: &Action) -> Option<String> {
    match (observation, action) {
        (_, Action::Refuse { crowd, why, .. }) => Some(format!("{crowd}, and the evidence is doubtful: {why}")),
        (_, Action::Delay { crowd, .. }) => Some(format!("{crowd}: it goes when it is its turn")),
        (Observation::Gone | Observation::GoneInCrowd(_), _) => {
            Some("the instance is gone, which is to be confirmed".to_owned())
        }
        (Observation::Unknown(why), _) => Some(format!("whether the instance exists could not be told: {why}")),
        (Observation::Exists(why), _) => Some(format!("whether the instance is shut down could not be told: {why}")),
        (Observation::Ready | Observation::Running | Observation::ShutDown, _) => None,
    }
}

#[cfg(test)]
mod tests;

//! When a Node is deleted, and when not: a pure state machine over observations.
//!
//! In: one Node, what was seen of its instance, how many Nodes there are, and the time. Out: at most one [`Action`].
//!
//! A Node is deleted when the cloud said `Gone` at least twice with no contradiction in between, [`Config::monitor_period`] apart
//! or more, over at least [`Config::grace_period`], and when that does not look like an error of the cloud: if more Nodes than
//! [`Config::allowance`] are either gone now or were deleted within [`Config::window`], none is deleted. That ends by itself:
//! instances come back, Nodes are added, earlier deletions age. And when every missing Node has been gone for [`LASTING`] with no
//! contradiction, while others are not missing, so many Nodes may go in each window as the allowance is: machines that were taken away
//! do not come back, however small the cluster is.
//!
//! The allowance is what may go within one window, so a rule that lets a crowd go slowly needs no other number.
//!
//! "Unknown" confirms nothing and forgets nothing. Upstream deletes at the first "not found", without any of this.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use tokio::time::Instant;

/// How long a crowd has to be gone before it is believed, piece by piece.
const LASTING: Duration = Duration::from_secs(30 * 60);

/// Settings of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// `--node-monitor-period`: how often Nodes that are not ready are looked at.
    pub monitor_period: Duration,
    /// How long an instance has to be gone before its Node is deleted.
    pub grace_period: Duration,
    /// So many deletions are not held back, but for more than half of the Nodes: of ten, ten are all…
    pub max_count: usize,
    /// …nor is this share of all Nodes, in percent. 100: nothing is held back.
    pub max_percent: usize,
    /// How long a deletion counts.
    pub window: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            monitor_period: Duration::from_secs(5),
            grace_period: Duration::from_secs(15),
            max_count: 10,
            max_percent: 20,
            window: Duration::from_secs(300),
        }
    }
}

impl Config {
    /// How many of `all` Nodes may be deleted within one window. A lone Node may go.
    pub fn allowance(&self, all: usize) -> usize {
        let by_count = self.max_count.min((all / 2).max(1));
        let by_share = all.saturating_mul(self.max_percent) / 100;
        by_count.max(by_share)
    }
}

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
    /// The cloud could not tell, and why.
    Unknown(String),
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing now.
    Nothing,
    /// Take the shutdown taint off, if it is there.
    RemoveShutdownTaint,
    /// Put the shutdown taint on, if it is not there.
    AddShutdownTaint,
    /// Say that the instance is missing: this was the first time.
    Report,
    /// Delete the Node.
    Delete,
    /// Do not delete the Node, though it qualifies; `first` is whether that is news.
    Refuse {
        /// What makes it look like an error.
        crowd: Crowd,
        /// Whether this Node was let through before.
        first: bool,
    },
}

/// How many Nodes are gone at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Crowd {
    /// Nodes whose instance is gone, and Nodes deleted lately.
    pub(super) gone: usize,
    /// All Nodes, those deleted lately included.
    pub(super) all: usize,
    /// How many of them may be deleted within one window.
    pub(super) allowance: usize,
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the instances of {} of {} nodes are gone, and {} may be deleted in a row; if that is right, delete the nodes by hand \
             or raise --node-deletion-max-percent or, up to half of the nodes, --node-deletion-max-count",
            self.gone, self.all, self.allowance
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Missing {
    since: Instant,
    refused: bool,
}

/// What is remembered between observations, by UID of the Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    missing: BTreeMap<String, Missing>,
    deleted: BTreeMap<String, Instant>,
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
        match observation {
            Observation::Unknown(_) => Action::Nothing,
            Observation::Gone => self.gone(uid, nodes, now, config),
            Observation::Ready => self.there(uid, Action::RemoveShutdownTaint),
            Observation::ShutDown => self.there(uid, Action::AddShutdownTaint),
            Observation::Running | Observation::Exists(_) => self.there(uid, Action::Nothing),
        }
    }

    fn there(&mut self, uid: &str, action: Action) -> Action {
        self.missing.remove(uid);
        action
    }

    fn gone(&mut self, uid: &str, nodes: &BTreeSet<String>, now: Instant, config: &Config) -> Action {
        if self.deleted.contains_key(uid) {
            // Finalizers hold it; it is counted already.
            return Action::Nothing;
        }
        let Some(missing) = self.missing.get(uid).copied() else {
            self.missing.insert(uid.to_owned(), Missing { since: now, refused: false });
            return Action::Report;
        };
        if now.saturating_duration_since(missing.since) < config.monitor_period.max(config.grace_period) {
            return Action::Nothing;
        }
        let crowd = self.crowd(nodes, now, config).filter(|crowd| !self.may_shrink(crowd, nodes, now));
        match crowd {
            Some(crowd) => {
                self.missing.insert(uid.to_owned(), Missing { refused: true, ..missing });
                Action::Refuse { crowd, first: !missing.refused }
            }
            None => {
                self.missing.remove(uid);
                self.deleted.insert(uid.to_owned(), now);
                Action::Delete
            }
        }
    }

    /// The Nodes that are gone, if they are too many.
    pub(super) fn crowd(&self, nodes: &BTreeSet<String>, now: Instant, config: &Config) -> Option<Crowd> {
        let lately = |at: &Instant| now.saturating_duration_since(*at) < config.window;
        let deleted: Vec<_> = self.deleted.iter().filter(|(_, at)| lately(at)).map(|(uid, _)| uid).collect();
        let gone = self.missing.len() + deleted.len();
        let all = nodes.len() + deleted.iter().filter(|uid| !nodes.contains(**uid)).count();
        let allowance = config.allowance(all);
        (gone > allowance).then_some(Crowd { gone, all, allowance })
    }

    /// Whether a crowd is believed by now, and one more of it may go in this window.
    fn may_shrink(&self, crowd: &Crowd, nodes: &BTreeSet<String>, now: Instant) -> bool {
        let lasts = |missing: &Missing| now.saturating_duration_since(missing.since) >= LASTING;
        let deleted = crowd.gone - self.missing.len();
        let others_are_there = nodes.iter().any(|uid| !self.missing.contains_key(uid) && !self.deleted.contains_key(uid));
        deleted < crowd.allowance && others_are_there && self.missing.values().all(lasts)
    }

    /// A deletion was not carried out: it does not count, and the Node has to be confirmed again.
    pub(super) fn not_deleted(&mut self, uid: &str) {
        self.deleted.remove(uid);
    }

    /// Forgets Nodes that are no more, and deletions that are long past.
    pub(super) fn forget(&mut self, nodes: &BTreeSet<String>, now: Instant, config: &Config) {
        self.missing.retain(|uid, _| nodes.contains(uid));
        self.deleted.retain(|_, at| now.saturating_duration_since(*at) < config.window);
    }
}

/// Why a Node stays under observation, for status pages; `None` when it is as it should be.
pub(super) fn waits_for(observation: &Observation, action: Action) -> Option<String> {
    match (observation, action) {
        (_, Action::Refuse { crowd, .. }) => Some(crowd.to_string()),
        (Observation::Gone, _) => Some("the instance is gone, which is to be confirmed".to_owned()),
        (Observation::Unknown(why), _) => Some(format!("whether the instance exists could not be told: {why}")),
        (Observation::Exists(why), _) => Some(format!("whether the instance is shut down could not be told: {why}")),
        (Observation::Ready | Observation::Running | Observation::ShutDown, _) => None,
    }
}

#[cfg(test)]
mod tests;

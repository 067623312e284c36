//! What was right for each Service, and what somebody else has changed of it since.
//!
//! In: how each call for a Service ended, and what a comparison finds. Out: whether what differs is put right now,
//! with an event, metrics and lines of the status page. Nothing of it outlives the process or its configuration: a difference that is there
//! at the start is a write like any other.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::{
    cloud_provider::drift::DriftLog,
    metrics::Metrics,
    providers::azure::{
        config::DriftPolicy,
        metrics::AzureMetrics,
        model::api,
        planner::load_balancer::{
            drift::{
                findings::DriftedDocument,
                repairs::{RepairDecision, RepairSchedule},
            },
            spec::{ServiceIdentity, ServiceSpec},
        },
    },
    runtime::clock::Clock,
    status::{DriftOutcome, DriftStatus, DriftedService},
};

/// Most Services that the status page lists.
const MAX_LISTED: usize = 100;
/// What is done about a document, and why Services are left as they are: labels of metrics.
const OUTCOMES: [DriftOutcome; 3] = [DriftOutcome::Repaired, DriftOutcome::Reported, DriftOutcome::Delayed];

/// Why a Service is brought to what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EnsureOrigin {
    /// It changed, or the last try failed.
    Change,
    /// Its Nodes changed.
    Hosts,
    /// Nothing changed: it is time to compare.
    Comparison,
}

/// When all was right for a Service.
struct RightState {
    spec: ServiceSpec,
    /// Fingerprint of the Nodes.
    nodes: u64,
    at: Timestamp,
    /// A comparison has begun and not ended: the next try is one, too.
    is_comparing: bool,
}

/// What is left as it is.
struct LeftDrift {
    right: Option<Timestamp>,
    found: Timestamp,
    documents: Vec<DriftedDocument>,
    /// When it may be put right; `None`: never.
    due: Option<Timestamp>,
}

#[derive(Default)]
struct DriftState {
    right: BTreeMap<ServiceIdentity, RightState>,
    left: BTreeMap<ServiceIdentity, LeftDrift>,
    schedule: RepairSchedule,
    /// What was found lately, also what is put right by now.
    log: DriftLog,
}

/// What to do about what a comparison found.
#[derive(Debug, PartialEq)]
pub(super) enum DriftVerdict {
    /// Nothing differs.
    Right,
    /// It is put right; the Service is told this.
    Repair(String),
    /// It is left as it is; the Service is told this.
    Report(String),
    /// It is left as it is for now; the Service is told this, once.
    Delay(Option<String>),
}

/// See the module.
pub(super) struct DriftWatch {
    policy: DriftPolicy,
    metrics: Arc<Metrics>,
    clock: Clock,
    state: Mutex<DriftState>,
}

impl DriftWatch {
    pub(super) fn new(policy: DriftPolicy, metrics: Arc<Metrics>, clock: Clock) -> Self {
        let watch = Self { policy, metrics, clock, state: Mutex::default() };
        if let Some(metrics) = watch.metrics.table::<AzureMetrics>() {
            let kinds = api::ALL.iter().filter(|kind| kind.is_compared);
            for (kind, outcome) in kinds.flat_map(|kind| OUTCOMES.map(|outcome| (kind, outcome))) {
                drop(metrics.rows.drift.with_label_values(&[kind.printed, outcome.as_str()]));
            }
        }
        watch.publish(&watch.state());
        watch
    }

    /// A call for a Service begins. The Nodes for which all was right when it asked for the same; `None`: whatever differs is written.
    pub(super) fn begin(&self, spec: &ServiceSpec, origin: EnsureOrigin) -> Option<u64> {
        let mut state = self.state();
        let known = state.right.get_mut(&spec.identity).filter(|known| known.spec.is_same_request(spec));
        let compared = known.filter(|known| origin != EnsureOrigin::Change || known.is_comparing);
        if let Some(right) = compared {
            right.is_comparing = true;
            return Some(right.nodes);
        }
        state.right.remove(&spec.identity);
        state.left.remove(&spec.identity);
        self.publish(&state);
        None
    }

    /// This was found for a Service that was right.
    pub(super) fn judge(&self, who: &ServiceIdentity, documents: Vec<DriftedDocument>) -> DriftVerdict {
        let (mut state, now) = (self.state(), self.clock.wall());
        let verdict = state.judge(self.policy, who, documents, (self.clock.now(), now), |document, outcome| {
            if let Some(metrics) = self.metrics.table::<AzureMetrics>() {
                metrics.rows.drift.with_label_values(&[document.kind.printed, outcome.as_str()]).inc();
            }
        });
        self.publish(&state);
        verdict
    }

    /// All is as the Service asks, for these Nodes.
    pub(super) fn settled(&self, spec: &ServiceSpec, nodes: u64) {
        let right = RightState { spec: spec.clone(), nodes, at: self.clock.wall(), is_comparing: false };
        let mut state = self.state();
        state.right.insert(spec.identity.clone(), right);
        state.left.remove(&spec.identity);
        self.publish(&state);
    }

    /// The call succeeded, and something stays that should not: what differs later may follow from that.
    pub(super) fn doubt(&self, who: &ServiceIdentity) {
        self.state().right.remove(who);
    }

    /// The Service goes.
    pub(super) fn forget(&self, who: &ServiceIdentity) {
        let mut state = self.state();
        state.right.remove(who);
        state.left.remove(who);
        state.schedule.forget(who);
        self.publish(&state);
    }

    /// What is left as it is, the first hundred Services of it, and what was found lately.
    pub(super) fn status(&self) -> DriftStatus {
        let state = self.state();
        let listed = state.left.iter().take(MAX_LISTED).map(|(who, left)| (who.key.clone(), left.status()));
        DriftStatus {
            policy: self.policy.as_str().to_owned(),
            drifted: state.left.len(),
            services: listed.collect(),
            latest: state.log.latest(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of Services is far below 2⁵³")]
    fn publish(&self, state: &DriftState) {
        let Some(metrics) = self.metrics.table::<AzureMetrics>() else { return };
        let delayed = state.left.values().filter(|left| left.due.is_some()).count();
        for (reason, count) in [(DriftOutcome::Delayed, delayed), (DriftOutcome::Reported, state.left.len() - delayed)] {
            metrics.rows.drifted_services.with_label_values(&[reason.as_str()]).set(count as f64);
        }
    }

    fn state(&self) -> MutexGuard<'_, DriftState> {
        self.state.lock()
    }
}

impl DriftState {
    fn judge(
        &mut self,
        policy: DriftPolicy,
        who: &ServiceIdentity,
        documents: Vec<DriftedDocument>,
        (now, wall): (Instant, Timestamp),
        count: impl Fn(&DriftedDocument, DriftOutcome),
    ) -> DriftVerdict {
        if documents.is_empty() {
            return DriftVerdict::Right;
        }
        let before = self.left.remove(who).filter(|left| left.documents == documents);
        let right = self.right.get_mut(who).map(|right| {
            right.is_comparing = false;
            right.at
        });
        let found = before.as_ref().map_or(wall, |before| before.found);
        let decision = (policy == DriftPolicy::Repair)
            .then(|| self.schedule.decide(who, documents.iter().map(|document| &document.id), now));
        let outcome = match decision {
            Some(RepairDecision::Repair) => DriftOutcome::Repaired,
            Some(RepairDecision::Delay { .. }) => DriftOutcome::Delayed,
            None => DriftOutcome::Reported,
        };
        if before.is_none() || decision == Some(RepairDecision::Repair) {
            documents.iter().for_each(|document| count(document, outcome));
        }
        let after = |until: Instant| wall.checked_add(until.saturating_duration_since(now)).unwrap_or(wall);
        let mut left = LeftDrift { right, found, documents, due: None };
        self.log.note(&who.key, found, outcome, &left.to_string());
        let verdict = match decision {
            Some(RepairDecision::Repair) => {
                self.right.remove(who);
                return DriftVerdict::Repair(format!("{left}; it is put right now"));
            }
            None => DriftVerdict::Report(format!("{left}; it is left as it is (driftPolicy: report)")),
            Some(RepairDecision::Delay { until, is_news }) => {
                let due = *left.due.insert(after(until));
                let told = || {
                    format!("{left}, and does so again and again; the first comparison after {} puts it right", seconds(due))
                };
                DriftVerdict::Delay(is_news.then(told))
            }
        };
        self.left.insert(who.clone(), left);
        verdict
    }
}

impl std::fmt::Display for LeftDrift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("somebody else changed ")?;
        for (place, document) in self.documents.iter().enumerate() {
            write!(f, "{}{document}", if place == 0 { "" } else { ", " })?;
        }
        match self.right {
            Some(right) => write!(f, " between {} and {}", seconds(right), seconds(self.found)),
            None => write!(f, " before {}", seconds(self.found)),
        }
    }
}

impl LeftDrift {
    fn status(&self) -> DriftedService {
        DriftedService {
            last_correct: self.right.map(seconds),
            found: seconds(self.found),
            documents: self.documents.iter().map(ToString::to_string).collect(),
            repair_after: self.due.map(seconds),
        }
    }
}

/// To the second.
fn seconds(moment: Timestamp) -> String {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment).to_string()
}

#[cfg(test)]
mod tests;

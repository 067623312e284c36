//! Facts of the status for the page: waiting keys, failures, and remedies.
//!
//! In: the status page and the results of `/readyz`. Out: sorted lists. Pure.

use std::{cmp::Reverse, collections::BTreeMap};

use super::super::super::health::ProbeResult;
use crate::status::{
    BalancersStatus, DriftOutcome, DriftedService, FailureClass, ManagerStatus, PipelineStage, UnsettledBalancer,
    UnsettledKey,
};

/// Input of the page.
pub(crate) struct OverviewInput<'a> {
    pub(crate) status: &'a ManagerStatus,
    pub(crate) readiness: &'a [ProbeResult],
    /// Whether the caller may know why a check fails.
    pub(crate) show_reasons: bool,
    /// Whether there is `/planz`.
    pub(crate) has_plan: bool,
}

/// A key that a controller has not settled, or a Service that the provider has not.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct WaitingKey<'a> {
    pub(super) key: &'a str,
    /// Progress in the provider.
    pub(super) stage: String,
    /// State of the reconcile, and when it is due.
    pub(super) next_step: String,
    pub(super) failures: u32,
    pub(super) reason: &'a str,
    class: Option<&'a FailureClass>,
    /// Remedy that the provider advises.
    advice: Option<&'a str>,
    is_refused: bool,
}

impl WaitingKey<'_> {
    /// Returns `true` for a Service: their keys are `namespace/name`, and no name of a Node has a slash.
    fn is_service(&self) -> bool {
        self.key.contains('/')
    }

    fn is_failing(&self) -> bool {
        use FailureClass::{CallDeadline, CallFailed, CallInvalid, CallRefused, Failed, Invalid};
        let is_blocked =
            matches!(self.class, Some(Invalid | Failed | CallInvalid | CallRefused | CallFailed | CallDeadline));
        !self.reason.is_empty() && (self.failures > 0 || self.is_refused || is_blocked)
    }
}

/// Failure with a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReportedProblem {
    pub(super) subject: String,
    pub(super) error: String,
    pub(super) remedy: String,
}

impl ReportedProblem {
    fn new(subject: String, error: &str, remedy: &str) -> Self {
        Self { subject, error: error.to_owned(), remedy: remedy.to_owned() }
    }
}

/// Returns a description of the response to an external change.
pub(super) fn response(outcome: DriftOutcome) -> &'static str {
    match outcome {
        DriftOutcome::Repaired => "repaired",
        DriftOutcome::Reported => "not repaired (driftPolicy: report)",
        DriftOutcome::Delayed => "repaired later: the change recurs",
    }
}

/// Returns `true` if controllers of this process run: it leads, or does not report that it does not.
pub(super) fn works(status: &ManagerStatus) -> bool {
    let migrates = status.leader_migration.as_ref().is_some_and(|migration| migration.leading);
    !status.shadow && (status.leading != Some(false) || migrates)
}

/// Returns the waiting Services, and the waiting Nodes and other keys, in the order of their failures.
pub(super) fn waiting(status: &ManagerStatus) -> (Vec<WaitingKey<'_>>, Vec<WaitingKey<'_>>) {
    let balancers = status.load_balancers();
    let mut all: BTreeMap<(&str, &str), WaitingKey<'_>> = BTreeMap::new();
    for controller in &status.controllers {
        for row in &controller.unsettled {
            let owner = if row.key.contains('/') { "" } else { &controller.name };
            all.insert((owner, &row.key), of_queue(row, balancers));
        }
    }
    if let Some(BalancersStatus { unsettled, drift, .. }) = balancers {
        for (key, entry) in &unsettled.services {
            all.entry(("", key)).or_insert_with(|| of_provider(key, entry));
        }
        for (key, entry) in &drift.services {
            all.entry(("", key)).or_insert_with(|| of_drift(key, entry));
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by_key(|waiting| (Reverse(waiting.failures), waiting.key));
    all.into_iter().partition(WaitingKey::is_service)
}

fn of_queue<'a>(row: &'a UnsettledKey, balancers: Option<&'a BalancersStatus>) -> WaitingKey<'a> {
    let entry = balancers.and_then(|balancers| balancers.unsettled.services.get(&row.key));
    let staged = entry.map(|entry| of_provider(&row.key, entry)).unwrap_or_default();
    WaitingKey {
        key: &row.key,
        next_step: next_step(row),
        failures: row.failures,
        reason: row.reason.as_deref().unwrap_or(staged.reason),
        class: row.class.as_ref().or(staged.class),
        ..staged
    }
}

fn of_provider<'a>(key: &'a str, entry: &'a UnsettledBalancer) -> WaitingKey<'a> {
    WaitingKey {
        key,
        stage: entry.stage.to_string(),
        reason: entry.problem.as_deref().unwrap_or_default(),
        class: entry.class.as_ref(),
        advice: entry.advice.as_deref(),
        is_refused: entry.stage == PipelineStage::Refused,
        ..WaitingKey::default()
    }
}

/// Returns the external changes of a Service that are not repaired.
fn of_drift<'a>(key: &'a str, entry: &'a DriftedService) -> WaitingKey<'a> {
    let next_step = entry.repair_after.as_ref().map(|due| format!("repaired after {due}")).unwrap_or_default();
    let reason = entry.documents.first().map(String::as_str).unwrap_or_default();
    WaitingKey { key, stage: "changed externally".to_owned(), next_step, reason, ..WaitingKey::default() }
}

fn next_step(row: &UnsettledKey) -> String {
    match (row.running_for_seconds, row.due_in_seconds) {
        (Some(running), _) => format!("running for {running:.0} s"),
        (None, Some(due)) if due < 0.5 => "due now".to_owned(),
        (None, Some(due)) => format!("due in {due:.0} s"),
        (None, None) => String::new(),
    }
}

/// Returns the Services by stage, as controllers and provider count them.
pub(super) fn stages(status: &ManagerStatus) -> Vec<(String, usize)> {
    let controllers = status.controllers.iter().flat_map(|controller| controller.load_balancers.clone());
    let provider = status.load_balancers().into_iter().flat_map(|balancers| &balancers.waiting);
    controllers.chain(provider.map(|(stage, count)| (format!("provider: {stage}"), *count))).collect()
}

/// Returns all failures, each with a remedy; failures of keys with the same reason are one.
pub(super) fn problems(status: &ManagerStatus, readiness: &[ProbeResult], show_reasons: bool) -> Vec<ReportedProblem> {
    let mut found: Vec<_> = readiness.iter().filter_map(|probe| of_probe(probe, show_reasons)).collect();
    if let Some(details) = status.details() {
        let refused = details.refused_configuration.iter();
        found.extend(refused.map(|error| ReportedProblem::new("configuration was refused".to_owned(), error, CHECK_CONFIG)));
        let inventory = &details.session.inventory;
        let lists = inventory
            .lists
            .iter()
            .filter_map(|list| Some((&list.list, list.last_error.as_ref()?, list.last_error_class.as_ref())));
        let single = inventory.failures.iter().map(|failure| (&failure.read, &failure.error, Some(&failure.class)));
        let of_read = |(read, error, class): (&String, &String, _)| {
            ReportedProblem::new(format!("reading {read}"), error, of_class(class))
        };
        found.extend(lists.chain(single).map(of_read));
    }
    found.extend(of_keys(status));
    found
}

fn of_probe(probe: &ProbeResult, show_reasons: bool) -> Option<ReportedProblem> {
    let error = probe.result.as_ref()?.as_ref().err()?;
    let (error, remedy) = if show_reasons { (error.as_str(), of_check(&probe.name)) } else { ("reason withheld", "") };
    Some(ReportedProblem::new(format!("readiness: {}", probe.name), error, remedy))
}

fn of_keys(status: &ManagerStatus) -> Vec<ReportedProblem> {
    let (services, others) = if works(status) { waiting(status) } else { Default::default() };
    let mut by_reason: BTreeMap<&str, (usize, &WaitingKey<'_>)> = BTreeMap::new();
    for waiting in services.iter().chain(&others).filter(|waiting| waiting.is_failing()) {
        by_reason.entry(waiting.reason).or_insert((0, waiting)).0 += 1;
    }
    let mut counted: Vec<_> = by_reason.into_iter().collect();
    counted.sort_by_key(|(_, (count, _))| Reverse(*count));
    let reported = |(error, (count, first)): (&str, (usize, &WaitingKey<'_>))| {
        let key = first.key;
        let subject = if count == 1 { key.to_owned() } else { format!("{key} and {} more", count - 1) };
        ReportedProblem::new(subject, error, first.advice.unwrap_or_else(|| of_class(first.class)))
    };
    counted.into_iter().map(reported).collect()
}

/// Returns the remedy for a failing check.
fn of_check(name: &str) -> &'static str {
    match name {
        _ if name.starts_with("informer-") => {
            "Check that the API server answers and that the service account may list and watch this kind (rbac.yaml)."
        }
        _ if name.starts_with("leaderElection") => "The election hangs: the liveness probe restarts this replica.",
        "cloud-provider" => CHECK_CONFIG,
        _ => RETRIED,
    }
}

const CHECK_CONFIG: &str = "Run check-config --online with the same configuration; it names what is wrong.";
const RETRIED: &str =
    "The program tries again with growing pauses. If the error lasts, follow its text; the log has the details.";

/// Returns the remedy for a failure of this class.
fn of_class(class: Option<&FailureClass>) -> &'static str {
    use FailureClass as Class;
    match class {
        Some(Class::Invalid | Class::CallInvalid | Class::CallRefused) => {
            "Correct the field, annotation or setting that the error names. Until then nothing else helps."
        }
        Some(Class::Waiting | Class::CallRetryAfter | Class::Throttled | Class::Busy) => {
            "Nothing: the program waits as long as the cloud asks. Compare the request budget below."
        }
        Some(Class::Forbidden) => "Grant the missing right; check-config --online names it.",
        Some(Class::Unauthorized) => "Renew or correct the credentials; check-config --online tries them.",
        Some(Class::QuotaExceeded) => "Raise the quota, or delete what is not needed.",
        Some(Class::NotFound | Class::ParentNotFound) => "Create what is missing, or correct its name in the configuration.",
        Some(Class::CallDeadline | Class::Transient | Class::OutcomeUnknown) => {
            "The program tries again. If it lasts, check the network between this replica and the cloud."
        }
        Some(Class::MalformedAnswer) => "Find the proxy between this replica and the cloud that changes its answers.",
        Some(Class::NotLeader | Class::CallNotLeader) => "Nothing: another replica leads.",
        Some(Class::Failed | Class::CallFailed | Class::Conflict | Class::Other(_)) | None => RETRIED,
    }
}

//! Facts of the status value for the page: waiting keys, failures, and remedies.
//!
//! In: the value of `/statusz` and the results of `/readyz`. Out: sorted lists. Missing fields are not shown. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::super::health::ProbeResult;

/// Input of the page.
pub(crate) struct OverviewInput<'a> {
    pub(crate) status: &'a Value,
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
    pub(super) stage: &'a str,
    /// State of the reconcile, and when it is due.
    pub(super) next_step: String,
    pub(super) failures: u64,
    pub(super) reason: &'a str,
    /// Class of the error, and what the provider advises.
    pub(super) class: &'a str,
    pub(super) advice: &'a str,
}

impl WaitingKey<'_> {
    /// Returns `true` for a Service: their keys are `namespace/name`, and no name of a Node has a slash.
    fn is_service(&self) -> bool {
        self.key.contains('/')
    }

    fn is_failing(&self) -> bool {
        let is_blocked = ["Invalid", "Failed", "invalid", "refused", "failed", "deadline"].contains(&self.class);
        !self.reason.is_empty() && (self.failures > 0 || self.stage == "refused" || is_blocked)
    }
}

/// Failure with a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReportedProblem {
    pub(super) what: String,
    pub(super) error: String,
    pub(super) remedy: String,
}

/// External change to a cloud resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundDrift<'a> {
    pub(super) about: &'a str,
    pub(super) found: &'a str,
    pub(super) what: &'a str,
    pub(super) outcome: &'static str,
}

/// Returns the recent external changes to Services and routes, the latest first.
pub(super) fn drift(status: &Value) -> Vec<FoundDrift<'_>> {
    let of_controllers = items(&status["controllers"]).iter().flat_map(|controller| items(&controller["drift"]));
    let all = items(&balancers(status)["drift"]["latest"]).iter().chain(of_controllers);
    let mut all: Vec<_> = all.map(found_drift).collect();
    all.sort_by(|left, right| right.found.cmp(left.found));
    all
}

fn found_drift(note: &Value) -> FoundDrift<'_> {
    let outcome = match text(&note["outcome"]) {
        "repaired" => "put right",
        "reported" => "left (driftPolicy: report)",
        "delayed" => "put right later: it comes back again and again",
        _ => "",
    };
    FoundDrift { about: text(&note["about"]), found: text(&note["found"]), what: text(&note["what"]), outcome }
}

/// Returns `true` if the process only plans.
pub(super) fn is_shadow(status: &Value) -> bool {
    status["shadow"].as_bool() == Some(true)
}

/// Returns `true` if controllers of this process run: it leads, or does not report that it does not.
pub(super) fn works(status: &Value) -> bool {
    let leads = |value: &Value| value["leading"].as_bool();
    !is_shadow(status) && (leads(status) != Some(false) || leads(&status["leaderMigration"]) == Some(true))
}

/// Returns the waiting Services, and the waiting Nodes and other keys, in the order of their failures.
pub(super) fn waiting(status: &Value) -> (Vec<WaitingKey<'_>>, Vec<WaitingKey<'_>>) {
    let stages = &balancers(status)["unsettled"]["services"];
    let mut all: BTreeMap<(&str, &str), WaitingKey<'_>> = BTreeMap::new();
    for controller in items(&status["controllers"]) {
        let of = text(&controller["name"]);
        for row in items(&controller["unsettled"]) {
            let key = text(&row["key"]);
            let owner = if key.contains('/') { "" } else { of };
            all.insert((owner, key), of_queue(key, row, &stages[key]));
        }
    }
    for (key, entry) in stages.as_object().into_iter().flatten() {
        all.entry(("", key)).or_insert_with(|| of_provider(key, entry));
    }
    for (key, entry) in balancers(status)["drift"]["services"].as_object().into_iter().flatten() {
        all.entry(("", key)).or_insert_with(|| of_drift(key, entry));
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by(|a, b| b.failures.cmp(&a.failures).then_with(|| a.key.cmp(b.key)));
    all.into_iter().partition(WaitingKey::is_service)
}

fn of_queue<'a>(key: &'a str, row: &'a Value, stage: &'a Value) -> WaitingKey<'a> {
    let staged = of_provider(key, stage);
    let reason = row["reason"].as_str().unwrap_or(staged.reason);
    let class = row["class"].as_str().unwrap_or(staged.class);
    let failures = row["failures"].as_u64().unwrap_or_default();
    WaitingKey { next_step: next_step(row), failures, reason, class, ..staged }
}

fn of_provider<'a>(key: &'a str, entry: &'a Value) -> WaitingKey<'a> {
    let (class, advice) = (text(&entry["class"]), text(&entry["advice"]));
    WaitingKey { key, stage: text(&entry["stage"]), reason: text(&entry["problem"]), class, advice, ..WaitingKey::default() }
}

/// Returns the external changes of a Service that are not repaired.
fn of_drift<'a>(key: &'a str, entry: &'a Value) -> WaitingKey<'a> {
    let next_step = entry["repairAfter"].as_str().map(|due| format!("put right after {due}")).unwrap_or_default();
    let reason = text(&entry["documents"][0]);
    WaitingKey { key, stage: "changed by somebody else", next_step, reason, ..WaitingKey::default() }
}

fn next_step(row: &Value) -> String {
    match (row["runningForSeconds"].as_f64(), row["dueInSeconds"].as_f64()) {
        (Some(running), _) => format!("running for {running:.0} s"),
        (None, Some(due)) if due < 0.5 => "due now".to_owned(),
        (None, Some(due)) => format!("due in {due:.0} s"),
        (None, None) => String::new(),
    }
}

/// Returns the Services by stage, as controllers and provider count them.
pub(super) fn stages(status: &Value) -> Vec<(String, String)> {
    let facts = controller_facts(status).filter_map(|(name, value)| {
        let stage = name.strip_prefix("load balancers: ")?;
        Some((stage.to_owned(), value))
    });
    let provider = balancers(status)["waiting"].as_object().into_iter().flatten();
    facts.chain(provider.map(|(stage, count)| (format!("provider: {stage}"), scalar(count)))).collect()
}

/// Returns the number of uninitialized Nodes, if a controller counts them.
pub(super) fn uninitialized_nodes(status: &Value) -> Option<String> {
    controller_facts(status).find(|(name, _)| *name == "nodes that wait for initialisation").map(|(_, count)| count)
}

fn controller_facts(status: &Value) -> impl Iterator<Item = (&str, String)> {
    let facts = items(&status["controllers"]).iter().filter_map(|controller| controller["facts"].as_object());
    facts.flatten().map(|(name, value)| (name.as_str(), scalar(value)))
}

/// Returns all failures, each with a remedy; failures of keys with the same reason are one.
pub(super) fn problems(status: &Value, readiness: &[ProbeResult], show_reasons: bool) -> Vec<ReportedProblem> {
    let mut found: Vec<_> = readiness.iter().filter_map(|probe| of_probe(probe, show_reasons)).collect();
    let details = &status["cloudProvider"]["details"];
    found.extend(problem("configuration was refused", &details["refusedConfiguration"], CHECK_CONFIG));
    let inventory = &details["session"]["inventory"];
    let columns = [("lists", "list", "lastError", "lastErrorClass"), ("failures", "read", "error", "class")];
    for (rows, subject, error, class) in columns {
        let read =
            |row: &Value| problem(&format!("reading {}", text(&row[subject])), &row[error], of_class(text(&row[class])));
        found.extend(items(&inventory[rows]).iter().filter_map(read));
    }
    found.extend(of_keys(status));
    found
}

fn of_probe(probe: &ProbeResult, show_reasons: bool) -> Option<ReportedProblem> {
    let error = probe.result.as_ref()?.as_ref().err()?;
    let (error, remedy) = if show_reasons { (error.as_str(), of_check(&probe.name)) } else { ("reason withheld", "") };
    Some(ReportedProblem { what: format!("readiness: {}", probe.name), error: error.to_owned(), remedy: remedy.to_owned() })
}

fn problem(subject: &str, error: &Value, remedy: &str) -> Option<ReportedProblem> {
    let error = error.as_str()?.to_owned();
    Some(ReportedProblem { what: subject.to_owned(), remedy: remedy.to_owned(), error })
}

fn of_keys(status: &Value) -> Vec<ReportedProblem> {
    let (services, others) = if works(status) { waiting(status) } else { Default::default() };
    let mut by_reason: BTreeMap<&str, (usize, &WaitingKey<'_>)> = BTreeMap::new();
    for waiting in services.iter().chain(&others).filter(|waiting| waiting.is_failing()) {
        by_reason.entry(waiting.reason).or_insert((0, waiting)).0 += 1;
    }
    let mut counted: Vec<_> = by_reason.into_iter().collect();
    counted.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    let reported = |(error, (count, first)): (&str, (usize, &WaitingKey<'_>))| {
        let key = first.key;
        let subject = if count == 1 { key.to_owned() } else { format!("{key} and {} more", count - 1) };
        let remedy = if first.advice.is_empty() { of_class(first.class) } else { first.advice };
        ReportedProblem { what: subject, error: error.to_owned(), remedy: remedy.to_owned() }
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

/// Remedies by class of error: a class of the provider's contract, the reason of a condition, or a class of the cloud's
/// responses.
const REMEDIES: &[(&[&str], &str)] = &[
    (
        &["Invalid", "invalid", "refused"],
        "Correct the field, annotation or setting that the error names. Until then nothing else helps.",
    ),
    (
        &["Waiting", "retry_after", "Throttled", "Busy"],
        "Nothing: the program waits as long as the cloud asks. Compare the request budget below.",
    ),
    (&["Forbidden"], "Grant the missing right; check-config --online names it."),
    (&["Unauthorized"], "Renew or correct the credentials; check-config --online tries them."),
    (&["QuotaExceeded"], "Raise the quota, or delete what is not needed."),
    (&["NotFound", "ParentNotFound"], "Create what is missing, or correct its name in the configuration."),
    (
        &["deadline", "Transient", "OutcomeUnknown"],
        "The program tries again. If it lasts, check the network between this replica and the cloud.",
    ),
    (&["MalformedAnswer"], "Find the proxy between this replica and the cloud that changes its answers."),
    (&["not_leader", "NotLeader"], "Nothing: another replica leads."),
];

fn of_class(class: &str) -> &'static str {
    REMEDIES.iter().find(|(classes, _)| classes.contains(&class)).map_or(RETRIED, |(_, remedy)| remedy)
}

fn balancers(status: &Value) -> &Value {
    &status["cloudProvider"]["details"]["session"]["loadBalancers"]
}

pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Formats a scalar value.
pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Array(_) | Value::Object(_) => "–".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

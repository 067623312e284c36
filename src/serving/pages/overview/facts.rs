//! What the status value says, as the page shows it: who waits, what fails, and what to do about it.
//!
//! In: the value of `/statusz` and the results of `/readyz`. Out: sorted lists. A field that is missing is not shown. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::super::health::ProbeResult;

/// What the page shows.
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
    /// How far the provider is with it.
    pub(super) stage: &'a str,
    /// Whether it runs, and when it is due.
    pub(super) turn: String,
    pub(super) failures: u64,
    pub(super) reason: &'a str,
}

impl WaitingKey<'_> {
    /// Keys of Services are `namespace/name`; no name of a Node has a slash.
    fn is_service(&self) -> bool {
        self.key.contains('/')
    }
}

/// Something that does not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReportedProblem {
    pub(super) what: String,
    pub(super) error: String,
    pub(super) remedy: &'static str,
}

/// One change of somebody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundDrift<'a> {
    pub(super) about: &'a str,
    pub(super) found: &'a str,
    pub(super) what: &'a str,
    pub(super) outcome: &'static str,
}

/// What somebody else changed lately, of Services and of routes, the latest first.
pub(super) fn drift(status: &Value) -> Vec<FoundDrift<'_>> {
    let of_controllers = items(&status["controllers"]).iter().flat_map(|controller| items(&controller["drift"]));
    let all = items(&balancers(status)["drift"]["latest"]).iter().chain(of_controllers);
    let mut all: Vec<_> = all.map(found_drift).collect();
    all.sort_by(|one, other| other.found.cmp(one.found));
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

/// Services that wait, and then Nodes and all else; what fails most comes first.
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
    let reason = if row["reason"].is_string() { text(&row["reason"]) } else { text(&stage["problem"]) };
    let failures = row["failures"].as_u64().unwrap_or_default();
    WaitingKey { key, stage: text(&stage["stage"]), turn: turn(row), failures, reason }
}

fn of_provider<'a>(key: &'a str, entry: &'a Value) -> WaitingKey<'a> {
    WaitingKey { key, stage: text(&entry["stage"]), reason: text(&entry["problem"]), ..WaitingKey::default() }
}

/// What somebody else changed, and is left so.
fn of_drift<'a>(key: &'a str, entry: &'a Value) -> WaitingKey<'a> {
    let turn = entry["repairAfter"].as_str().map(|due| format!("put right after {due}")).unwrap_or_default();
    let reason = text(&entry["documents"][0]);
    WaitingKey { key, stage: "changed by somebody else", turn, reason, ..WaitingKey::default() }
}

fn turn(row: &Value) -> String {
    match (row["runningForSeconds"].as_f64(), row["dueInSeconds"].as_f64()) {
        (Some(running), _) => format!("running for {running:.0} s"),
        (None, Some(due)) if due < 0.5 => "due now".to_owned(),
        (None, Some(due)) => format!("due in {due:.0} s"),
        (None, None) => String::new(),
    }
}

/// Services by stage, as controllers and provider count them.
pub(super) fn stages(status: &Value) -> Vec<(String, String)> {
    let facts = controller_facts(status).filter_map(|(name, value)| {
        let stage = name.strip_prefix("load balancers: ")?;
        Some((stage.to_owned(), value))
    });
    let provider = balancers(status)["waiting"].as_object().into_iter().flatten();
    facts.chain(provider.map(|(stage, count)| (format!("provider: {stage}"), scalar(count)))).collect()
}

/// How many Nodes wait for initialisation, where a controller counts them.
pub(super) fn uninitialized_nodes(status: &Value) -> Option<String> {
    controller_facts(status).find(|(name, _)| *name == "nodes that wait for initialisation").map(|(_, count)| count)
}

fn controller_facts(status: &Value) -> impl Iterator<Item = (&str, String)> {
    let facts = items(&status["controllers"]).iter().filter_map(|controller| controller["facts"].as_object());
    facts.flatten().map(|(name, value)| (name.as_str(), scalar(value)))
}

/// Everything that fails, each with what to do; failures of keys with the same reason are one.
pub(super) fn problems(status: &Value, readiness: &[ProbeResult], show_reasons: bool) -> Vec<ReportedProblem> {
    let mut found: Vec<_> = readiness.iter().filter_map(|probe| of_probe(probe, show_reasons)).collect();
    let details = &status["cloudProvider"]["details"];
    found.extend(problem("configuration was refused", &details["refusedConfiguration"]));
    let inventory = &details["session"]["inventory"];
    for list in items(&inventory["lists"]) {
        found.extend(problem(&format!("reading {}", text(&list["list"])), &list["lastError"]));
    }
    for failure in items(&inventory["failures"]) {
        found.extend(problem(&format!("reading {}", text(&failure["read"])), &failure["error"]));
    }
    found.extend(of_keys(status));
    found
}

fn of_probe(probe: &ProbeResult, show_reasons: bool) -> Option<ReportedProblem> {
    let error = probe.result.as_ref()?.as_ref().err()?;
    let (error, remedy) =
        if show_reasons { (error.as_str(), of_check(&probe.name, error)) } else { ("reason withheld", "") };
    Some(ReportedProblem { what: format!("readiness: {}", probe.name), error: error.to_owned(), remedy })
}

fn problem(what: &str, error: &Value) -> Option<ReportedProblem> {
    let error = error.as_str()?.to_owned();
    Some(ReportedProblem { what: what.to_owned(), remedy: remedy(&error), error })
}

fn of_keys(status: &Value) -> Vec<ReportedProblem> {
    let (services, others) = waiting(status);
    let mut by_reason: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    let failing =
        |waiting: &&WaitingKey<'_>| !waiting.reason.is_empty() && (waiting.failures > 0 || waiting.stage == "refused");
    for waiting in services.iter().chain(&others).filter(failing) {
        by_reason.entry(waiting.reason).or_insert((0, waiting.key)).0 += 1;
    }
    let mut counted: Vec<_> = by_reason.into_iter().collect();
    counted.sort_by(|(_, (a, _)), (_, (b, _))| b.cmp(a));
    let reported = |(error, (count, first)): (&str, (usize, &str))| {
        let what = if count == 1 { first.to_owned() } else { format!("{first} and {} more", count - 1) };
        ReportedProblem { what, error: error.to_owned(), remedy: remedy(error) }
    };
    counted.into_iter().map(reported).collect()
}

/// What to do about a check that fails.
fn of_check(name: &str, error: &str) -> &'static str {
    match name {
        _ if name.starts_with("informer-") => {
            "Check that the API server answers and that the service account may list and watch this kind (rbac.yaml)."
        }
        _ if name.starts_with("leaderElection") => "The election hangs: the liveness probe restarts this replica.",
        "cloud-provider" => "Run check-config --online with the same configuration; it names what is wrong.",
        _ => remedy(error),
    }
}

/// What words of an error stand for. The first row that matches counts.
const REMEDIES: &[(&[&str], &str)] = &[
    (
        &["throttl", "toomanyrequests", " 429"],
        "Nothing: the program waits as long as the cloud asks. Compare the request budget below.",
    ),
    (&["quota", "limitreached"], "Raise the quota, or delete what is not needed."),
    (
        &["forbidden", "authorizationfailed", "not authorized", " 403", " 401"],
        "Grant the missing right; check-config --online names it.",
    ),
    (&["timed out", "timeout", "connect", "dns", "unreachable"], "Check the network between this replica and the cloud."),
    (&["not found", "notfound", " 404"], "Create what is missing, or correct its name."),
];

fn remedy(error: &str) -> &'static str {
    let error = error.to_lowercase();
    let row = REMEDIES.iter().find(|(words, _)| words.iter().any(|word| error.contains(word)));
    row.map_or(
        "It is tried again. The command explain tells what a code means; events and log have the details.",
        |(_, remedy)| remedy,
    )
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

/// A value without parts, as text.
pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Array(_) | Value::Object(_) => "–".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

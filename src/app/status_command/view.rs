//! Findings of `status`. Pure.
//!
//! In: a status page, and objects. Out: rows of bounded length without control characters, JSON, and the exit
//! code.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    cli::StatusSubject,
    runtime::text::{excerpt, one_line},
    status::{ControllerStatus, DriftNote, DriftedService, ManagerStatus, ProviderState, UnsettledKey},
};

/// Maximum length of a cell's text.
const LONGEST: usize = 1000;

/// Lease of the election.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeaseView {
    pub(super) holder: Option<String>,
    pub(super) renewed_seconds_ago: Option<i64>,
    /// Whether the lease has a holder that renewed it in time.
    pub(super) is_held: bool,
}

/// Controller on the status page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ControllerView {
    pub(super) name: String,
    /// State: `running`, or the reason why not.
    pub(super) state: String,
    pub(super) waiting: usize,
}

/// Key of a work queue that waits, runs or fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct WaitingView {
    pub(super) controller: String,
    pub(super) key: String,
    pub(super) state: String,
    pub(super) failures: u32,
    pub(super) reason: String,
}

/// Event about the shown object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct EventView {
    pub(super) at: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) reason: String,
    pub(super) count: i32,
    pub(super) message: String,
}

/// A Service or Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectView {
    pub(super) facts: Vec<(&'static str, String)>,
    /// Whether the manager has no pending work for the object.
    pub(super) is_ready: bool,
    pub(super) events: Vec<EventView>,
}

/// Findings of the command.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct StatusView {
    pub(super) lease: Option<LeaseView>,
    /// Origin of the page.
    pub(super) source: Option<String>,
    pub(super) leading: Option<bool>,
    /// Version of the manager.
    pub(super) version: Option<String>,
    pub(super) controllers: Vec<ControllerView>,
    pub(super) waiting: Vec<WaitingView>,
    /// External changes, the latest first.
    pub(super) drift: Vec<DriftNote>,
    pub(super) problems: Vec<String>,
    pub(super) object: Option<ObjectView>,
    pub(super) unseen: Vec<String>,
}

impl EventView {
    #[expect(clippy::needless_pass_by_value, reason = "callers have no further use for the texts")]
    pub(super) fn new(at: Option<Timestamp>, kind: String, reason: String, count: i32, message: &str) -> Self {
        Self { at: at.map(|at| at.to_string()), kind: clean(&kind), reason: clean(&reason), count, message: clean(message) }
    }
}

impl ObjectView {
    pub(super) fn new(facts: Vec<(&'static str, String)>, is_ready: bool) -> Self {
        let facts = facts.into_iter().map(|(name, value)| (name, clean(&value))).collect();
        Self { facts, is_ready, events: Vec::new() }
    }
}

impl StatusView {
    /// Records that `subject` could not be read.
    pub(super) fn unseen(&mut self, subject: &str, reason: &str) {
        self.unseen.push(clean(&format!("{subject}: {reason}")));
    }

    /// Records that the object does not exist.
    pub(super) fn missing(&mut self, kind: &str, name: &str) {
        self.unseen.push(clean(&format!("{kind} {name} does not exist")));
    }

    /// Adds the content of a status page.
    pub(super) fn add_page(&mut self, source: &str, page: &ManagerStatus) {
        let Some(leading) = page.leading else {
            return self.unseen(source, "the response is not the status page of this program");
        };
        (self.source, self.leading) = (Some(source.to_owned()), Some(leading));
        if !leading {
            self.unseen(source, "this replica does not lead; only the leader knows the pending work");
        }
        self.version = Some(page.version.clone()).filter(|version| !version.is_empty());
        page.controllers.iter().for_each(|controller| self.add_controller(controller));
        let skipped = page.not_running.iter().map(|(name, reason)| (name, format!("not run: {reason}")));
        self.controllers.extend(skipped.map(|(name, state)| ControllerView { name: name.clone(), state, waiting: 0 }));
        self.drift.extend(page.drift().into_iter().cloned());
        let drifted = page.load_balancers().into_iter().flat_map(|balancers| &balancers.drift.services);
        self.waiting.extend(drifted.map(|(key, service)| unrepaired_drift(key, service)));
        let cloud = &page.cloud_provider;
        let state = cloud.state.iter().filter(|state| **state != ProviderState::Initialized).map(ToString::to_string);
        self.problems.extend(state.chain(cloud.problem.clone()).map(|problem| format!("cloud provider: {problem}")));
        let informers = &page.informers;
        for (name, watch) in [
            ("endpointslices", &informers.endpointslices),
            ("namespaces", &informers.namespaces),
            ("nodes", &informers.nodes),
            ("services", &informers.services),
        ] {
            let error = watch.as_ref().and_then(|watch| watch.error.as_ref());
            self.problems.extend(error.map(|error| format!("watch of {name}: {error}")));
        }
    }

    fn add_controller(&mut self, controller: &ControllerStatus) {
        let ControllerStatus { name, problem, unsettled, .. } = controller;
        self.waiting.extend(unsettled.iter().map(|row| waiting(name, row)));
        self.problems.extend(problem.iter().map(|problem| format!("{name}: {problem}")));
        let state = problem.clone().unwrap_or_else(|| "running".to_owned());
        self.controllers.push(ControllerView { name: name.clone(), state, waiting: unsettled.len() });
    }

    /// Removes the rows that are not about `subject`.
    pub(super) fn keep_only(&mut self, subject: &StatusSubject) {
        let key = match subject {
            StatusSubject::Manager => return,
            StatusSubject::Service { namespace, name } => format!("{namespace}/{name}"),
            StatusSubject::Node(name) => name.clone(),
        };
        self.waiting.retain(|row| row.key == key);
        self.drift.retain(|row| row.about == key);
    }

    /// Returns 1 if not everything could be read, 2 if something waits or fails, else 0.
    pub(super) fn code(&self) -> u8 {
        let is_led = self.lease.as_ref().is_none_or(|lease| lease.is_held);
        let is_ready = self.object.as_ref().is_none_or(|object| object.is_ready);
        let is_quiet = self.waiting.is_empty() && self.problems.is_empty();
        match (self.unseen.is_empty(), is_led && is_ready && is_quiet) {
            (false, _) => 1,
            (true, false) => 2,
            (true, true) => 0,
        }
    }

    /// Returns the findings as JSON.
    pub(super) fn json(&self) -> Value {
        let mut value = json!(self);
        value["complete"] = json!(self.unseen.is_empty());
        value
    }
}

fn waiting(controller: &str, row: &UnsettledKey) -> WaitingView {
    let state = match (row.running_for_seconds, row.due_in_seconds) {
        (Some(age), _) => format!("runs for {age:.0} s"),
        (None, Some(delay)) => format!("due in {delay:.0} s"),
        (None, None) => "waits".to_owned(),
    };
    let reason = row.reason.clone().unwrap_or_default();
    WaitingView { controller: controller.to_owned(), key: row.key.clone(), state, failures: row.failures, reason }
}

/// Returns the row of a Service whose external changes are not repaired.
fn unrepaired_drift(key: &str, service: &DriftedService) -> WaitingView {
    let due = service.repair_after.as_ref().map(|due| format!("repaired after {due}"));
    let state = due.unwrap_or_else(|| "not repaired (driftPolicy: report)".to_owned());
    let reason = clean(&format!("changed externally: {}", service.documents.join(", ")));
    WaitingView { controller: "cloud provider".to_owned(), key: key.to_owned(), state, failures: 0, reason }
}

/// Returns a page with all its texts cleaned, because its source is not trusted.
pub(super) fn cleaned(value: Value) -> Value {
    match value {
        Value::String(text) => clean(&text).into(),
        Value::Array(items) => items.into_iter().map(cleaned).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (clean(&key), cleaned(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// Returns `text` without control characters, truncated.
fn clean(text: &str) -> String {
    excerpt(&one_line(text), LONGEST)
}

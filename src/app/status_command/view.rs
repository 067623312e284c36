//! Findings of `status`. Pure.
//!
//! In: the JSON of a status page, and objects. Out: rows of bounded length without control characters, JSON, and the exit
//! code.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{cli::StatusSubject, cloud_provider::diagnostics::truncated};

/// Longest text of a cell.
const LONGEST: usize = 1000;

/// Lease of the election.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeaseView {
    pub(super) holder: Option<String>,
    pub(super) renewed_seconds_ago: Option<i64>,
    /// Whether it has a holder that renewed it in time.
    pub(super) is_held: bool,
}

/// A controller of the page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ControllerView {
    pub(super) name: String,
    /// `running`, or why not.
    pub(super) state: String,
    pub(super) waiting: usize,
}

/// A key that waits, runs or fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct WaitingView {
    pub(super) controller: String,
    pub(super) key: String,
    pub(super) state: String,
    pub(super) failures: u64,
    pub(super) reason: String,
}

/// Event of the shown object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct EventView {
    pub(super) at: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) reason: String,
    pub(super) count: i32,
    pub(super) message: String,
}

/// External change to a cloud resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct DriftView {
    pub(super) about: String,
    pub(super) found: String,
    /// `repaired`, `reported` or `delayed`.
    pub(super) outcome: String,
    pub(super) what: String,
}

/// A Service or Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectView {
    pub(super) facts: Vec<(&'static str, String)>,
    /// Whether the manager has nothing left to do for it.
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
    pub(super) drift: Vec<DriftView>,
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
    /// Notes that something could not be read.
    pub(super) fn unseen(&mut self, subject: &str, reason: &str) {
        self.unseen.push(clean(&format!("{subject}: {reason}")));
    }

    /// Records that the object does not exist.
    pub(super) fn missing(&mut self, kind: &str, name: &str) {
        self.unseen.push(clean(&format!("there is no {kind} {name}")));
    }

    /// Takes what a page says.
    pub(super) fn take_page(&mut self, source: &str, page: &Value) {
        let Some(leading) = page["leading"].as_bool() else {
            return self.unseen(source, "the answer is not the status page of this program");
        };
        (self.source, self.leading) = (Some(source.to_owned()), Some(leading));
        if !leading {
            self.unseen(source, "this replica does not lead; what waits is known to the leader");
        }
        self.version = page["version"].as_str().map(clean);
        // A manager of another version may say what waits in other words; nothing waits only where it says so.
        for (part, is_there) in
            [("controllers", page["controllers"].is_array()), ("cloudProvider", page["cloudProvider"].is_object())]
        {
            if !is_there {
                self.unseen(source, &format!("the page has no {part}: a manager of another version?"));
            }
        }
        for controller in page["controllers"].as_array().into_iter().flatten() {
            self.take_controller(controller);
        }
        for (name, cause) in page["notRunning"].as_object().into_iter().flatten() {
            self.controllers.push(ControllerView {
                name: clean(name),
                state: format!("not run: {}", text(cause)),
                waiting: 0,
            });
        }
        self.take_drift(page);
        let cloud = &page["cloudProvider"];
        if cloud["state"].as_str().is_some_and(|state| state != "initialised") {
            self.problems.push(format!("cloud provider: {}", text(&cloud["state"])));
        }
        if !cloud["problem"].is_null() {
            self.problems.push(format!("cloud provider: {}", text(&cloud["problem"])));
        }
        for (name, watch) in page["informers"].as_object().into_iter().flatten() {
            if !watch["error"].is_null() {
                self.problems.push(format!("watch of {}: {}", clean(name), text(&watch["error"])));
            }
        }
    }

    /// Records recent external changes; those that are not repaired are added to the waiting rows.
    fn take_drift(&mut self, page: &Value) {
        let balancers = &page["cloudProvider"]["details"]["session"]["loadBalancers"]["drift"];
        let controllers = page["controllers"].as_array().into_iter().flatten();
        let routes = controllers.flat_map(|controller| controller["drift"].as_array().into_iter().flatten());
        self.drift.extend(balancers["latest"].as_array().into_iter().flatten().chain(routes).map(drift));
        self.drift.sort_by(|left, right| right.found.cmp(&left.found));
        let leftovers = balancers["services"].as_object().into_iter().flatten();
        self.waiting.extend(leftovers.map(|(key, leftover)| left_drift(key, leftover)));
    }

    fn take_controller(&mut self, controller: &Value) {
        let name = text(&controller["name"]);
        if !controller["unsettled"].is_array() {
            self.unseen(&name, "the page does not say what waits: a manager of another version?");
        }
        let rows = controller["unsettled"].as_array().map(Vec::as_slice).unwrap_or_default();
        self.waiting.extend(rows.iter().map(|row| waiting(&name, row)));
        let state = if controller["problem"].is_null() { "running".to_owned() } else { text(&controller["problem"]) };
        if !controller["problem"].is_null() {
            self.problems.push(format!("{name}: {state}"));
        }
        self.controllers.push(ControllerView { name, state, waiting: rows.len() });
    }

    /// Drops rows about anything else.
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

fn waiting(controller: &str, row: &Value) -> WaitingView {
    let failures = row["failures"].as_u64().unwrap_or_default();
    let state = match (row["runningForSeconds"].as_f64(), row["dueInSeconds"].as_f64()) {
        (Some(age), _) => format!("runs for {age:.0} s"),
        (None, Some(delay)) => format!("due in {delay:.0} s"),
        (None, None) => "waits".to_owned(),
    };
    let reason = if row["reason"].is_null() { String::new() } else { text(&row["reason"]) };
    WaitingView { controller: controller.to_owned(), key: text(&row["key"]), state, failures, reason }
}

fn drift(note: &Value) -> DriftView {
    let [about, found, outcome, detail] = ["about", "found", "outcome", "what"].map(|field| match &note[field] {
        Value::Null => String::new(),
        value => text(value),
    });
    DriftView { about, found, outcome, what: detail }
}

/// Returns the row of a Service whose external changes are not repaired.
fn left_drift(key: &str, leftover: &Value) -> WaitingView {
    let due = leftover["repairAfter"].as_str().map(|due| format!("put right after {due}"));
    let state = clean(&due.unwrap_or_else(|| "left (driftPolicy: report)".to_owned()));
    let documents = leftover["documents"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ");
    let reason = clean(&format!("somebody else changed {documents}"));
    WaitingView { controller: "cloud provider".to_owned(), key: clean(key), state, failures: 0, reason }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => clean(text),
        other => clean(&other.to_string()),
    }
}

/// Returns `text` without control characters, truncated.
fn clean(text: &str) -> String {
    truncated(&text.replace(char::is_control, " "), LONGEST)
}

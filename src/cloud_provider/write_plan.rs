//! Plan of all pending writes, as data. Providers and controllers create it; `/planz`, `plan`, `/reportz` and tests print
//! it. Pure.
//!
//! In: decisions of a provider or a controller. Out: one [`WritePlan`]: the requests in the order in which they are sent,
//! and the facts that make the list incomplete. A plan with entries in [`WritePlan::unread`] is incomplete.

use std::{collections::BTreeSet, fmt};

use serde::Serialize;
use serde_json::Value;

/// Method of deletions, for clouds and the API server.
pub const DELETE: &str = "DELETE";
/// Method of writes to the API server.
pub const PATCH: &str = "PATCH";
/// Method of actions on resources.
pub const POST: &str = "POST";
/// Method of writes of whole documents.
pub const PUT: &str = "PUT";

/// Planned request that changes a resource of the cloud or a Kubernetes object.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PlannedWrite {
    /// Kind of the change, e.g. `load_balancer`. It is a label value of a metric, so it must be one of few constants.
    pub kind: &'static str,
    /// `PUT`, `PATCH`, `POST`, `DELETE`.
    pub method: &'static str,
    /// Path of the resource or object.
    pub target: String,
    /// Reasons, one line each.
    pub reasons: Vec<String>,
    /// Services or Nodes that need the write.
    #[serde(rename = "for")]
    pub subjects: Vec<String>,
    /// Whether the write only removes resources that are no longer desired.
    pub leftover: bool,
    /// Whether the write is sent after the preceding writes, and is planned again from their responses.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub then: bool,
    /// Current document; `None` if it is unknown or does not exist.
    #[serde(skip)]
    pub before: Option<Value>,
    /// Document to send; `None` for deletions, and if the request is built from a later read.
    #[serde(skip)]
    pub after: Option<Value>,
}

impl PlannedWrite {
    /// Creates a patch of a Kubernetes object, or of its status.
    pub fn patch(kind: &'static str, target: String, reason: impl Into<String>, body: Value) -> Self {
        Self { kind, method: PATCH, target, reasons: vec![reason.into()], after: Some(body), ..Self::default() }
    }

    /// Creates a deletion of a Kubernetes object.
    pub fn deletion(kind: &'static str, target: String, reason: impl Into<String>) -> Self {
        Self { method: DELETE, after: None, ..Self::patch(kind, target, reason, Value::Null) }
    }

    /// Returns the write on behalf of this Service or Node.
    #[must_use]
    pub fn on_behalf_of(self, subject: impl Into<String>) -> Self {
        Self { subjects: vec![subject.into()], ..self }
    }

    /// Returns `PUT /subscriptions/…`, or `then: PUT /subscriptions/…`.
    pub fn request(&self) -> String {
        format!("{}{} {}", if self.then { "then: " } else { "" }, self.method, self.target)
    }

    /// Returns ` (for default/web)`, with at most three names; empty without subjects.
    pub fn subject_suffix(&self) -> String {
        const MAX_NAMES: usize = 3;
        let named = self.subjects[..self.subjects.len().min(MAX_NAMES)].join(", ");
        match self.subjects.len().saturating_sub(MAX_NAMES) {
            _ if named.is_empty() => String::new(),
            0 => format!(" (for {named})"),
            more => format!(" (for {named} and {more} more)"),
        }
    }
}

/// Format: `PUT /subscriptions/…: reason; another reason (for default/web)`.
impl fmt::Display for PlannedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}{}", self.request(), self.reasons.join("; "), self.subject_suffix())
    }
}

/// Pending writes, with the limits of the plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WritePlan {
    /// Requests, in the order in which they are sent.
    pub writes: Vec<PlannedWrite>,
    /// Further writes that depend on the responses of the cloud, one line each.
    pub later: BTreeSet<String>,
    /// Services that are not served until a user changes something, with reasons.
    pub refused: BTreeSet<String>,
    /// Resources that are kept although they are no longer desired, with reasons.
    pub retained: BTreeSet<String>,
    /// Failed reads, with reasons. The writes that depend on them are missing.
    pub unread: BTreeSet<String>,
    /// Further facts, one line each, such as how full a load balancer is.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub notes: BTreeSet<String>,
}

impl WritePlan {
    /// Creates a plan without writes because reading `subject` failed.
    pub fn unread(subject: impl Into<String>) -> Self {
        Self { unread: BTreeSet::from([subject.into()]), ..Self::default() }
    }

    /// Appends another plan, whose writes follow those of this plan.
    pub fn extend(&mut self, other: Self) {
        self.writes.extend(other.writes);
        self.later.extend(other.later);
        self.refused.extend(other.refused);
        self.retained.extend(other.retained);
        self.unread.extend(other.unread);
        self.notes.extend(other.notes);
    }

    /// Returns `true` if every read of the plan succeeded.
    pub fn is_complete(&self) -> bool {
        self.unread.is_empty()
    }

    /// Returns `true` if the plan has writes, or expects further writes after responses of the cloud.
    pub fn has_changes(&self) -> bool {
        !self.writes.is_empty() || !self.later.is_empty()
    }
}

/// Returns `true` if `after` equals `before` without some of its entries. Entries of lists are matched by their names, if
/// they have any.
pub fn only_removes(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            after.iter().all(|(key, new)| before.get(key).is_some_and(|old| only_removes(old, new)))
        }
        (Value::Array(before), Value::Array(after)) => after.iter().all(|new| match new["name"].as_str() {
            Some(name) => before.iter().any(|old| old["name"].as_str() == Some(name) && only_removes(old, new)),
            None => before.contains(new),
        }),
        _ => before == after,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn removals_differ_from_additions_and_changes() {
        let before = json!({"rules": [{"name": "a", "port": 1}, {"name": "b", "from": ["x", "y"]}], "tags": {"k": "v"}});
        for (after, expected) in [
            (before.clone(), true),
            (json!({"rules": [{"name": "b", "from": ["y"]}], "tags": {}}), true),
            (json!({"rules": [{"name": "a", "port": 2}]}), false),
            (json!({"rules": [{"name": "c", "port": 1}]}), false),
            (json!({"rules": [{"name": "b", "from": ["x", "z"]}]}), false),
            (json!({"other": 1}), false),
        ] {
            assert_eq!(only_removes(&before, &after), expected, "{after}");
        }
    }

    #[test]
    fn a_write_prints_its_request_reasons_and_subjects() {
        let write = PlannedWrite::patch("node", "/api/v1/nodes/n".to_owned(), "set labels", json!({}));
        assert_eq!(write.to_string(), "PATCH /api/v1/nodes/n: set labels");
        let many = PlannedWrite { subjects: ["a", "b", "c", "d"].map(str::to_owned).into(), ..write };
        assert!(many.to_string().ends_with(" (for a, b, c and 1 more)"), "{many}");
    }

    #[test]
    fn a_plan_with_failed_reads_is_incomplete() {
        let mut plan = WritePlan::default();
        assert!(plan.is_complete() && !plan.has_changes());
        plan.extend(WritePlan::unread("the security group: HTTP 403"));
        assert!(!plan.is_complete() && !plan.has_changes());
        plan.later.insert("addresses".to_owned());
        assert!(plan.has_changes());
    }
}

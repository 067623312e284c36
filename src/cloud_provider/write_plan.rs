//! What would be written now, as data: the words that providers, controllers and the program's `plan` share. Pure.
//!
//! In: what a provider or a controller decided. Out: one [`WritePlan`]: the requests in the order in which they are sent, and beside them
//! whatever keeps the list from being the whole truth. A plan with something in [`WritePlan::unread`] is not complete, and says so.

use std::{collections::BTreeSet, fmt};

use serde::Serialize;
use serde_json::Value;

/// The method of deletions, for clouds and the API server.
pub const DELETE: &str = "DELETE";
/// The method of writes to the API server.
pub const PATCH: &str = "PATCH";
/// The method of actions.
pub const POST: &str = "POST";
/// The method of writes of whole documents.
pub const PUT: &str = "PUT";

/// One request that changes something.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedWrite {
    /// What it changes, in few words that do not vary: a label of the metric.
    pub kind: &'static str,
    /// `PUT`, `PATCH`, `POST`, `DELETE`.
    pub method: &'static str,
    /// Path of the document or object.
    pub target: String,
    /// Why, one line each.
    pub reasons: Vec<String>,
    /// For which Services or Nodes.
    #[serde(rename = "for")]
    pub subjects: Vec<String>,
    /// Whether it only removes what nobody asks for any more.
    pub leftover: bool,
    /// The document as it is, where it is known.
    #[serde(skip)]
    pub before: Option<Value>,
    /// The document as it is sent; `None` for deletions and where the request is built from a later read.
    #[serde(skip)]
    pub after: Option<Value>,
}

impl PlannedWrite {
    /// A patch of a Kubernetes object, or of its status.
    pub fn patch(kind: &'static str, target: String, reason: impl Into<String>, body: Value) -> Self {
        let subjects = Vec::new();
        let reasons = vec![reason.into()];
        Self { kind, method: PATCH, target, reasons, subjects, leftover: false, before: None, after: Some(body) }
    }

    /// A deletion of a Kubernetes object.
    pub fn deletion(kind: &'static str, target: String, reason: impl Into<String>) -> Self {
        Self { method: DELETE, after: None, ..Self::patch(kind, target, reason, Value::Null) }
    }

    /// The same, with whom it is for.
    #[must_use]
    pub fn on_behalf_of(self, subject: impl Into<String>) -> Self {
        Self { subjects: vec![subject.into()], ..self }
    }
}

/// `PUT /subscriptions/…: why; and why (for default/web)`.
impl fmt::Display for PlannedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED: usize = 3;
        write!(f, "{} {}: {}", self.method, self.target, self.reasons.join("; "))?;
        let named = self.subjects[..self.subjects.len().min(NAMED)].join(", ");
        match self.subjects.len().saturating_sub(NAMED) {
            _ if named.is_empty() => Ok(()),
            0 => write!(f, " (for {named})"),
            more => write!(f, " (for {named} and {more} more)"),
        }
    }
}

/// Everything that would be written, and what is known beside it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WritePlan {
    /// Requests, in the order in which they are sent.
    pub writes: Vec<PlannedWrite>,
    /// What follows when the cloud has answered, one line each: the requests above are not the last ones.
    pub later: BTreeSet<String>,
    /// Who gets nothing until a user changes something, and why.
    pub refused: BTreeSet<String>,
    /// What stays although nobody asks for it, and why.
    pub retained: BTreeSet<String>,
    /// What could not be read, so that nobody knows whether something is written for it.
    pub unread: BTreeSet<String>,
}

impl WritePlan {
    /// A plan that could not be made.
    pub fn unread(what: impl Into<String>) -> Self {
        Self { unread: BTreeSet::from([what.into()]), ..Self::default() }
    }

    /// Takes in another plan.
    pub fn extend(&mut self, other: Self) {
        self.writes.extend(other.writes);
        self.later.extend(other.later);
        self.refused.extend(other.refused);
        self.retained.extend(other.retained);
        self.unread.extend(other.unread);
    }

    /// Whether everything was seen that it depends on.
    pub fn is_complete(&self) -> bool {
        self.unread.is_empty()
    }

    /// Whether something is written, now or later.
    pub fn has_changes(&self) -> bool {
        !self.writes.is_empty() || !self.later.is_empty()
    }
}

/// Whether `after` is `before` without some of its entries. Entries of lists are told apart by their names, where they have any.
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
    fn what_only_goes_is_told_from_what_comes_or_changes() {
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
    fn a_write_names_what_it_does_why_and_for_whom() {
        let write = PlannedWrite::patch("node", "/api/v1/nodes/n".to_owned(), "set labels", json!({}));
        assert_eq!(write.to_string(), "PATCH /api/v1/nodes/n: set labels");
        let many = PlannedWrite { subjects: ["a", "b", "c", "d"].map(str::to_owned).into(), ..write };
        assert!(many.to_string().ends_with(" (for a, b, c and 1 more)"), "{many}");
    }

    #[test]
    fn a_plan_that_lacks_something_is_not_complete() {
        let mut plan = WritePlan::default();
        assert!(plan.is_complete() && !plan.has_changes());
        plan.extend(WritePlan::unread("the security group: HTTP 403"));
        assert!(!plan.is_complete() && !plan.has_changes());
        plan.later.insert("addresses".to_owned());
        assert!(plan.has_changes());
    }
}

//! What a list says of one write whose operation is under way. Pure.
//!
//! In: what ARM answered to the write, and the entry of the list that began afterwards, if it has one. Out: whether the write is done,
//! goes on, or has to ask by itself.
//!
//! A list may lack what is there and show what was there before, even from before the version that was replaced. An entry is the write's
//! result only when it has succeeded, is of another version than the one that was replaced, and is what ARM's answer to the write was,
//! apart from single values that ARM adds. That something is gone, a list does not prove: the resource itself is asked for then.

use std::collections::HashMap;

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use crate::providers::azure::{
    arm::operation::{OperationProgress, OperationState, operation_state},
    model::spelling::same_word,
};

/// Lists in a row that lack a write, after which it polls alone.
const MOST_MISSES: u32 = 2;
/// Lists in a row that show it in progress, after which it polls alone.
const MOST_RUNNING: u32 = 8;

/// Next step after a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListVerdict {
    /// The write has succeeded, and the entry is its result.
    Succeeded,
    Running,
    /// The list is inconclusive: the operation must be polled.
    Unclear,
    /// The list lacks what is being deleted.
    Missing,
}

#[derive(Debug, Clone, PartialEq)]
enum ExpectedOutcome {
    /// Document in ARM's response, and the etag of the one before; `None` if there was none.
    ///
    /// As text: many wait at once, and a tree takes fifteen times as much.
    Document {
        answered: Bytes,
        replaced: Option<String>,
    },
    Absence,
}

/// Write that lists may show.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListedWrite {
    expected: ExpectedOutcome,
    misses: u32,
    running: u32,
}

impl ListedWrite {
    /// Returns `None` if no list could prove the result.
    ///
    /// Either the version before is unknown, or ARM's response does not show the write in progress: for load balancers it is
    /// `Succeeded` while the operation continues. `condition`: name and value of the header.
    pub(super) fn of(method: &Method, condition: Option<(&str, &str)>, response: &Bytes) -> Option<Self> {
        let expected = match *method {
            Method::DELETE => ExpectedOutcome::Absence,
            Method::PUT => {
                let replaced = match condition? {
                    ("if-none-match", _) => None,
                    (_, etag) if etag != "*" && !etag.is_empty() => Some(etag.to_owned()),
                    _ => return None,
                };
                let state = OperationProgress::of(response).provisioning_state().map(operation_state);
                if state != Some(OperationState::Running) {
                    return None;
                }
                ExpectedOutcome::Document { answered: response.clone(), replaced }
            }
            _ => return None,
        };
        Some(Self { expected, misses: 0, running: 0 })
    }

    /// Evaluates a list that began after the response to the write.
    pub(super) fn judge(&mut self, entry: Option<&Value>) -> ListVerdict {
        let verdict = self.expected.verdict(entry);
        match verdict {
            ListVerdict::Running => (self.misses, self.running) = (0, self.running + 1),
            ListVerdict::Unclear => self.misses += 1,
            ListVerdict::Succeeded | ListVerdict::Missing => {}
        }
        let has_ended = || entry.is_some_and(|entry| state(entry) == Some(OperationState::Ended));
        match verdict {
            ListVerdict::Running if self.running >= MOST_RUNNING => self.ask(),
            ListVerdict::Unclear if self.misses >= MOST_MISSES || has_ended() => self.ask(),
            ListVerdict::Unclear => ListVerdict::Running,
            other => other,
        }
    }

    fn ask(&mut self) -> ListVerdict {
        (self.misses, self.running) = (0, 0);
        ListVerdict::Unclear
    }
}

impl ExpectedOutcome {
    fn verdict(&self, entry: Option<&Value>) -> ListVerdict {
        match (self, entry) {
            (ExpectedOutcome::Absence, None) => ListVerdict::Missing,
            (ExpectedOutcome::Absence, Some(entry)) if state(entry) == Some(OperationState::Running) => ListVerdict::Running,
            // What is there and not on its way out is an old entry, or one whose deletion has failed.
            (ExpectedOutcome::Absence, Some(_)) => ListVerdict::Unclear,
            (ExpectedOutcome::Document { .. }, None) => ListVerdict::Unclear,
            (ExpectedOutcome::Document { answered: accepted, replaced }, Some(entry)) => {
                let etag = entry.get("etag").and_then(Value::as_str);
                let is_old = replaced.as_deref().is_some_and(|old| etag.is_none_or(|etag| is_same(etag, old)));
                let is_result =
                    || serde_json::from_slice(accepted).is_ok_and(|accepted: Value| is_outcome(entry, &accepted));
                match state(entry) {
                    _ if is_old || !is_result() => ListVerdict::Unclear,
                    Some(OperationState::Succeeded) => ListVerdict::Succeeded,
                    Some(OperationState::Running) => ListVerdict::Running,
                    Some(OperationState::Ended) | None => ListVerdict::Unclear,
                }
            }
        }
    }
}

fn state(document: &Value) -> Option<OperationState> {
    document.get("properties")?.get("provisioningState")?.as_str().map(operation_state)
}

/// Etags of one version may be shown as weak and as strong ones.
fn is_same(a: &str, other: &str) -> bool {
    a.trim_start_matches("W/") == other.trim_start_matches("W/")
}

/// Returns `true` if `shown` is what `accepted` says, versions and states aside.
///
/// Text is compared in any letter case, since ARM does not keep to one. What `accepted` lacks may only be a single value,
/// such as an address: a part more is one that the write has removed.
fn is_outcome(shown: &Value, accepted: &Value) -> bool {
    match (accepted, shown) {
        (Value::Object(accepted), Value::Object(shown)) => {
            let of_both = |name| (shown.get(name).unwrap_or(&Value::Null), accepted.get(name).unwrap_or(&Value::Null));
            accepted.keys().chain(shown.keys()).all(|name| is_field(name, of_both(name)))
        }
        (Value::Array(accepted), Value::Array(shown)) => accepted.len() == shown.len() && are_outcomes(shown, accepted),
        (Value::String(accepted), Value::String(shown)) => same_word(accepted, shown),
        (Value::Null, shown) => is_nothing(shown) || !(shown.is_array() || shown.is_object()),
        (accepted, Value::Null) => is_nothing(accepted),
        _ => accepted == shown,
    }
}

fn is_field(name: &str, (shown, accepted): (&Value, &Value)) -> bool {
    match name {
        "etag" | "provisioningState" => true,
        // ARM adds no tag.
        "tags" => shown == accepted || is_nothing(shown) && is_nothing(accepted),
        _ => is_outcome(shown, accepted),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Compares two arrays of equal length. ARM does not keep an order, so elements with IDs or names are matched by them.
fn are_outcomes(shown: &[Value], accepted: &[Value]) -> bool {
    match (by_key(shown), by_key(accepted)) {
        (Some(shown), Some(accepted)) => {
            accepted.iter().all(|(key, value)| shown.get(key).is_some_and(|shown| is_outcome(shown, value)))
        }
        _ => shown.iter().zip(accepted).all(|(shown, accepted)| is_outcome(shown, accepted)),
    }
}

/// Returns the elements by key; `None` if an element has no key, or two have the same.
fn by_key(values: &[Value]) -> Option<HashMap<String, &Value>> {
    let named = |value: &Value| match value {
        Value::String(text) => Some(text.to_ascii_lowercase()),
        _ => value.get("id").or_else(|| value.get("name")).and_then(Value::as_str).map(str::to_ascii_lowercase),
    };
    let keyed: HashMap<_, _> = values.iter().map(|value| Some((named(value)?, value))).collect::<Option<_>>()?;
    (keyed.len() == values.len()).then_some(keyed)
}

#[cfg(test)]
mod tests;

//! Evidence of a list about a write whose operation is in progress. Pure.
//!
//! In: ARM's response to the write, and the entry in a list that began after it, if any. Out: whether the write has succeeded, is in
//! progress, or must poll its own operation.
//!
//! A list can lack existing resources and show old versions, even older ones than the replaced version. So an entry is the result of the
//! write only if it has succeeded, has another version than the replaced one, and equals the document in ARM's response, apart from
//! single values that ARM adds. A list never proves absence: the resource itself is read then.

use std::collections::HashMap;

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use crate::providers::azure::{
    arm::operation::{OperationProgress, OperationState, operation_state},
    model::spelling::same_word,
};

/// Consecutive inconclusive lists after which a write polls alone.
const MAX_MISSES: u32 = 2;
/// Consecutive lists that show a write in progress, after which it polls alone.
const MAX_RUNNING: u32 = 8;

/// Conclusion from a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListVerdict {
    /// Success of the write, with the entry as its result.
    Succeeded,
    Running,
    /// Inconclusive list: the operation must be polled.
    Unclear,
    /// Absence of the resource, which is being deleted.
    Missing,
}

#[derive(Debug, Clone, PartialEq)]
enum ExpectedOutcome {
    /// Document in ARM's response, and the etag of the replaced version, if any.
    ///
    /// Stored as text: many writes wait at once, and a tree takes fifteen times the memory.
    Document {
        accepted: Bytes,
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
    /// Returns the write that ARM accepted with `response`; `None` if no list could prove its result.
    ///
    /// Either the replaced version is unknown, or ARM's response does not show the write in progress: for load balancers the state
    /// is `Succeeded` while the operation continues. `condition` is the name and value of the header.
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
                ExpectedOutcome::Document { accepted: response.clone(), replaced }
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
            ListVerdict::Running if self.running >= MAX_RUNNING => self.fall_back_to_poll(),
            ListVerdict::Unclear if self.misses >= MAX_MISSES || has_ended() => self.fall_back_to_poll(),
            ListVerdict::Unclear => ListVerdict::Running,
            other => other,
        }
    }

    fn fall_back_to_poll(&mut self) -> ListVerdict {
        (self.misses, self.running) = (0, 0);
        ListVerdict::Unclear
    }
}

impl ExpectedOutcome {
    fn verdict(&self, entry: Option<&Value>) -> ListVerdict {
        match (self, entry) {
            (ExpectedOutcome::Absence, None) => ListVerdict::Missing,
            (ExpectedOutcome::Absence, Some(entry)) if state(entry) == Some(OperationState::Running) => ListVerdict::Running,
            // The entry is outdated, or its deletion has failed.
            (ExpectedOutcome::Absence, Some(_)) => ListVerdict::Unclear,
            (ExpectedOutcome::Document { .. }, None) => ListVerdict::Unclear,
            (ExpectedOutcome::Document { accepted, replaced }, Some(entry)) => {
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

/// Compares etags, ignoring the mark of weak ones: ARM shows the same version with and without it.
fn is_same(etag: &str, other: &str) -> bool {
    etag.trim_start_matches("W/") == other.trim_start_matches("W/")
}

/// Returns `true` if `shown` equals `accepted`, except for etags and states.
///
/// Strings are compared without case, which ARM does not preserve. Values that `accepted` lacks may only be single ones, such as an
/// address: an additional object or array would be one that the write has removed.
fn is_outcome(shown: &Value, accepted: &Value) -> bool {
    match (accepted, shown) {
        (Value::Object(accepted), Value::Object(shown)) => {
            let of_both = |name| (shown.get(name).unwrap_or(&Value::Null), accepted.get(name).unwrap_or(&Value::Null));
            accepted.keys().chain(shown.keys()).all(|name| is_field(name, of_both(name)))
        }
        (Value::Array(accepted), Value::Array(shown)) => accepted.len() == shown.len() && are_outcomes(shown, accepted),
        (Value::String(accepted), Value::String(shown)) => same_word(accepted, shown),
        (Value::Null, shown) => is_empty(shown) || !(shown.is_array() || shown.is_object()),
        (accepted, Value::Null) => is_empty(accepted),
        _ => accepted == shown,
    }
}

fn is_field(name: &str, (shown, accepted): (&Value, &Value)) -> bool {
    match name {
        "etag" | "provisioningState" => true,
        // ARM adds no tags, so an additional one is outdated.
        "tags" => shown == accepted || is_empty(shown) && is_empty(accepted),
        _ => is_outcome(shown, accepted),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Compares two arrays of equal length. ARM does not preserve order, so elements with IDs or names are matched by these.
fn are_outcomes(shown: &[Value], accepted: &[Value]) -> bool {
    match (by_key(shown), by_key(accepted)) {
        (Some(shown), Some(accepted)) => {
            accepted.iter().all(|(key, value)| shown.get(key).is_some_and(|shown| is_outcome(shown, value)))
        }
        _ => shown.iter().zip(accepted).all(|(shown, accepted)| is_outcome(shown, accepted)),
    }
}

/// Returns the elements by key; `None` if an element has no key or keys are not unique.
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

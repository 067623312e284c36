//! What a list says of one write whose operation is under way. Pure.
//!
//! In: what ARM answered to the write, and the entry of the list that began afterwards, if it has one. Out: whether the write is done,
//! goes on, or has to ask by itself.
//!
//! A list may lack what is there and show what was there before, even from before the version that was replaced. An entry is the write's
//! result only when it has succeeded, is of another version than the one that was replaced, and is what ARM's answer to the write was,
//! apart from single values that ARM adds. That something is gone, a list does not prove: the resource itself is asked for then.

use std::{borrow::Cow, collections::HashMap};

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use crate::providers::azure::arm::{
    documents::spelling::same_word,
    operation::{OperationState, operation_state},
};

/// Lists in a row that do not show a write, after which it asks by itself.
const MOST_MISSES: u32 = 2;
/// Lists in a row that show it under way, after which it asks by itself.
const MOST_RUNNING: u32 = 8;

/// What to do after a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListVerdict {
    /// The write has succeeded, and the entry is its result.
    Succeeded,
    Running,
    /// The list does not tell: the operation has to be asked for.
    Unclear,
    /// The list lacks what is being deleted.
    Missing,
}

#[derive(Debug, Clone, PartialEq)]
enum ExpectedOutcome {
    /// The document that ARM answered, and the etag of the one before; none was there if `None`. As text: many wait at once, and a tree
    /// takes fifteen times as much.
    Document {
        answered: Bytes,
        replaced: Option<String>,
    },
    Absence,
}

/// A write that lists may tell of.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListedWrite {
    expected: ExpectedOutcome,
    misses: u32,
    running: u32,
}

impl ListedWrite {
    /// `None`: no list could be believed, because the version before is not known, or ARM's answer does not show the write under way: as
    /// it answers for load balancers, `Succeeded` while the operation goes on. `condition`: name and value of the header.
    pub(super) fn of(method: &Method, condition: Option<(&str, &str)>, answer: &Bytes) -> Option<Self> {
        let expected = match *method {
            Method::DELETE => ExpectedOutcome::Absence,
            Method::PUT => {
                let replaced = match condition? {
                    ("if-none-match", _) => None,
                    (_, etag) if etag != "*" && !etag.is_empty() => Some(etag.to_owned()),
                    _ => return None,
                };
                if answered_state(answer) != Some(OperationState::Running) {
                    return None;
                }
                ExpectedOutcome::Document { answered: answer.clone(), replaced }
            }
            _ => return None,
        };
        Some(Self { expected, misses: 0, running: 0 })
    }

    /// Goes on with a list that began after the write was answered.
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
            (ExpectedOutcome::Document { answered, replaced }, Some(entry)) => {
                let etag = entry.get("etag").and_then(Value::as_str);
                let is_old = replaced.as_deref().is_some_and(|old| etag.is_none_or(|etag| is_same(etag, old)));
                let is_result =
                    || serde_json::from_slice(answered).is_ok_and(|answered: Value| is_outcome(entry, &answered));
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

/// The state in an answer, without a tree of all of it: that of a load balancer has megabytes.
fn answered_state(answer: &[u8]) -> Option<OperationState> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        properties: Option<Properties<'a>>,
    }
    #[derive(Deserialize)]
    struct Properties<'a> {
        #[serde(rename = "provisioningState", borrow)]
        state: Option<Cow<'a, str>>,
    }
    let answer: Answer<'_> = serde_json::from_slice(answer).ok()?;
    answer.properties?.state.as_deref().map(operation_state)
}

fn state(document: &Value) -> Option<OperationState> {
    document.get("properties")?.get("provisioningState")?.as_str().map(operation_state)
}

/// Etags of one version may be shown as weak and as strong ones.
fn is_same(one: &str, other: &str) -> bool {
    one.trim_start_matches("W/") == other.trim_start_matches("W/")
}

/// Whether `shown` is what `answered` says, versions and states aside. Text is compared in any letter case, since ARM does not keep to
/// one. What `answered` lacks may only be a single value, such as an address: a part more is one that the write has removed.
fn is_outcome(shown: &Value, answered: &Value) -> bool {
    match (answered, shown) {
        (Value::Object(answered), Value::Object(shown)) => {
            let of_both = |name| (shown.get(name).unwrap_or(&Value::Null), answered.get(name).unwrap_or(&Value::Null));
            answered.keys().chain(shown.keys()).all(|name| is_field(name, of_both(name)))
        }
        (Value::Array(answered), Value::Array(shown)) => answered.len() == shown.len() && are_outcomes(shown, answered),
        (Value::String(answered), Value::String(shown)) => same_word(answered, shown),
        (Value::Null, shown) => is_nothing(shown) || !(shown.is_array() || shown.is_object()),
        (answered, Value::Null) => is_nothing(answered),
        _ => answered == shown,
    }
}

fn is_field(name: &str, (shown, answered): (&Value, &Value)) -> bool {
    match name {
        "etag" | "provisioningState" => true,
        // ARM adds no tag.
        "tags" => shown == answered || is_nothing(shown) && is_nothing(answered),
        _ => is_outcome(shown, answered),
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

/// Of two arrays of one length. ARM does not keep to an order, so elements that have ids or names are found by them.
fn are_outcomes(shown: &[Value], answered: &[Value]) -> bool {
    match (by_key(shown), by_key(answered)) {
        (Some(shown), Some(answered)) => {
            answered.iter().all(|(key, value)| shown.get(key).is_some_and(|shown| is_outcome(shown, value)))
        }
        _ => shown.iter().zip(answered).all(|(shown, answered)| is_outcome(shown, answered)),
    }
}

/// `None` when an element has no key, or two have the same.
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

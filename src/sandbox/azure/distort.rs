//! Distortion of ARM's responses about documents by faults: incomplete or outdated lists, changed etags.
//!
//! Pure over the state and the time that are passed in. In: the state, a request that a fault hits, and the response ARM
//! would give. Out: the response that the client gets.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    faults::{Effect, EtagMode, Omission},
    handle::State,
    read,
    refusal::Refusal,
    request::{Answer, ArmRequest},
    route::Target,
};

/// Responds to a GET that is hit by `effect`.
pub fn read(
    state: &mut State,
    request: &ArmRequest,
    target: &Target,
    effect: &Effect,
    now: Instant,
) -> Result<Answer, Refusal> {
    match effect {
        Effect::EmptyList if target.is_list() => Ok(Answer::new(200, json!({"value": []}))),
        Effect::PartialList(omission) if target.is_list() => {
            let mut response = read::get(state, request, target)?;
            response.body.iter_mut().for_each(|body| omit(body, omission));
            Ok(response)
        }
        Effect::StaleList(age) if target.is_list() => stale(state, request, target, before(now, *age)),
        Effect::MissJustWritten(age) if target.is_list() => {
            let mut response = read::get(state, request, target)?;
            let missing = state.store.written_since(before(now, *age));
            let is_new = |id: &Value| id.as_str().is_some_and(|id| missing.contains(&id.to_ascii_lowercase()));
            if let Some(documents) = response.body.as_mut().and_then(|body| body["value"].as_array_mut()) {
                documents.retain(|document| !is_new(&document["id"]));
            }
            Ok(response)
        }
        Effect::Etags(EtagMode::Restless) => {
            touch(state, target);
            read::get(state, request, target)
        }
        _ => read::get(state, request, target),
    }
}

/// Returns the time `age` before `now`, if the clock can represent it.
fn before(now: Instant, age: Duration) -> Option<Instant> {
    now.checked_sub(age)
}

/// Responds from the documents as they were.
fn stale(state: &mut State, request: &ArmRequest, target: &Target, at: Option<Instant>) -> Result<Answer, Refusal> {
    let past = state.store.as_of(at);
    let present = std::mem::replace(&mut state.store, past);
    let response = read::get(state, request, target);
    state.store = present;
    response
}

fn omit(body: &mut Value, omission: &Omission) {
    if *omission == Omission::LaterPages {
        body.as_object_mut().map(|fields| fields.remove("nextLink"));
    }
    let Some(documents) = body["value"].as_array_mut() else { return };
    match omission {
        Omission::Last(count) => documents.truncate(documents.len().saturating_sub(*count)),
        Omission::EveryOther => {
            let mut is_retained = false;
            documents.retain(|_| {
                is_retained = !is_retained;
                is_retained
            });
        }
        Omission::Named(name) => {
            documents.retain(|document| !document["name"].as_str().is_some_and(|found| found.eq_ignore_ascii_case(name)));
        }
        Omission::LaterPages => {}
    }
}

/// Gives the requested documents a new etag.
fn touch(state: &mut State, target: &Target) {
    match target {
        Target::Document(id) | Target::Part(_, id, _) | Target::Parts(id, _) => state.store.touch(id.as_str()),
        Target::Collection { scope, kind } => {
            let found = state.store.of_type_below(kind, scope.as_str(), "");
            let keys: Vec<String> = found.map(|(key, _)| key.clone()).collect();
            keys.iter().for_each(|key| state.store.touch(key));
        }
        _ => {}
    }
}

/// Changes how etags are shown in a response.
pub fn etags(response: &mut Answer, mode: EtagMode) {
    match mode {
        EtagMode::Restless => {}
        EtagMode::Absent => {
            response.headers.retain(|(name, _)| *name != "etag");
            response.body.iter_mut().for_each(without_etags);
        }
        EtagMode::Weak => {
            response.headers.iter_mut().filter(|(name, _)| *name == "etag").for_each(|(_, etag)| *etag = weak(etag));
            response.body.iter_mut().for_each(weaken);
        }
    }
}

/// Removes the etags from a document and its parts.
pub fn without_etags(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(without_etags),
        Value::Object(fields) => {
            fields.remove("etag");
            fields.values_mut().for_each(without_etags);
        }
        _ => {}
    }
}

fn weaken(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(weaken),
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| match value.as_str().map(weak) {
            Some(etag) if name == "etag" => *value = json!(etag),
            _ => weaken(value),
        }),
        _ => {}
    }
}

fn weak(etag: &str) -> String {
    if etag.starts_with("W/") { etag.to_owned() } else { format!("W/{etag}") }
}

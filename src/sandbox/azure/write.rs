//! PUT, PATCH and DELETE: preconditions, running operations, defaults, checks, effects on other documents. Pure over the
//! passed time.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    complete, effects,
    handle::State,
    kinds,
    operation::Outcome,
    options::{Busy, Class, Latency},
    private_link::{self, ConnectionStatus},
    read, read_only,
    refusal::Refusal,
    request::{Answer, ArmRequest},
    shape, validate,
    view::{self, Expand},
};
use crate::{providers::azure::model::ResourceId, sandbox::patch::merge};

/// A write that is being processed.
pub struct Write<'a> {
    pub request: &'a ArmRequest,
    pub now: Instant,
    /// Planned end of its operation.
    pub planned: Outcome,
}

/// Ends the operations that are due.
pub fn settle(state: &mut State, now: Instant) {
    for ended in state.operations.take_due(now) {
        state.store.set_time(ended.due);
        if ended.deletes && ended.outcome == Outcome::Succeeded {
            effects::remove(&mut state.store, &ended.document);
            continue;
        }
        let shown = if ended.outcome == Outcome::Succeeded { "Succeeded" } else { "Failed" };
        if ended.outcome == Outcome::Succeeded {
            state.store.set_unfinished(&ended.document, false);
        }
        state.store.change_document(&ended.document, |body| body["properties"]["provisioningState"] = json!(shown));
    }
    state.store.set_time(now);
}

/// Creates or replaces a document.
pub fn put(state: &mut State, write: &Write<'_>, id: &ResourceId) -> Result<Answer, Refusal> {
    read::surroundings(state, id)?;
    let mut body = write.request.document()?;
    let before = state.store.get(id.as_str()).map(|document| Arc::clone(&document.body));
    let sent = read_only::keep(id, before.as_deref(), &mut body);
    state.note_read_only(id, &sent);
    store(state, write, id, body)
}

/// Changes a document by a merge patch.
pub fn patch(state: &mut State, write: &Write<'_>, id: &ResourceId) -> Result<Answer, Refusal> {
    let mut body = (*read::existing(state, id)?.body).clone();
    let mut change = write.request.document()?;
    let sent = read_only::keep(id, None, &mut change);
    state.note_read_only(id, &sent);
    merge::apply(&mut body, &change);
    store(state, write, id, body)
}

/// Creates or replaces a part of a document.
pub fn put_part(
    state: &mut State,
    write: &Write<'_>,
    (id, parent, list): (&ResourceId, &ResourceId, &str),
) -> Result<Answer, Refusal> {
    let mut part = write.request.document()?;
    if list == private_link::CONNECTIONS {
        let status =
            private_link::requested_status(&part).ok_or_else(|| Refusal::invalid("InvalidRequestFormat", "No status."))?;
        return decide(state, write, (id, parent), status);
    }
    part["name"] = json!(id.name());
    let mut body = parent_body(state, id, parent)?;
    let before = shape::part(&body, list, id.name()).cloned();
    let sent = read_only::keep(id, before.as_ref(), &mut part);
    state.note_read_only(id, &sent);
    let created = before.is_none();
    shape::set_part(&mut body, list, part);
    let mut response = store(state, write, parent, body)?;
    let shown = state.store.get(parent.as_str()).map(|document| view::document(&state.store, document, Expand::Nothing));
    response.body = shown.and_then(|shown| shape::part(&shown, list, id.name()).cloned());
    if response.status != 202 {
        response.status = if created { 201 } else { 200 };
    }
    // Upstream: `pkg/azclient/{backendaddresspoolclient,subnetclient}/testdata`.
    let is_long = response.headers.iter().any(|(name, _)| is_poll_header(name));
    if let Some(part) = response.body.as_mut().filter(|_| created && is_long) {
        part["properties"]["provisioningState"] = json!("Updating");
    }
    Ok(response)
}

/// Deletes a part of a document.
pub fn delete_part(
    state: &mut State,
    write: &Write<'_>,
    (id, parent, list): (&ResourceId, &ResourceId, &str),
) -> Result<Answer, Refusal> {
    if list == private_link::CONNECTIONS {
        return delete_connection(state, write, (id, parent));
    }
    let mut body = match parent_body(state, id, parent) {
        Ok(body) if shape::part(&body, list, id.name()).is_some() => body,
        Err(refusal) if refusal.code != "ParentResourceNotFound" => return Err(refusal),
        _ => return Ok(Answer::empty(204)),
    };
    shape::remove_part(&mut body, list, id.name());
    let stored = store(state, write, parent, body)?;
    Ok(without_body(stored))
}

/// Returns the response to a DELETE that was a write of the enclosing document.
fn without_body(stored: Answer) -> Answer {
    let status = if stored.headers.iter().any(|(name, _)| is_poll_header(name)) { 202 } else { 200 };
    Answer { status, body: None, ..stored }
}

/// Sets the status of a connection of a private link service; the operation runs on the service.
fn decide(
    state: &mut State,
    write: &Write<'_>,
    (id, parent): (&ResourceId, &ResourceId),
    status: ConnectionStatus,
) -> Result<Answer, Refusal> {
    let body = parent_body(state, id, parent)?;
    let named = |connection: &Value| connection["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(id.name()));
    if !private_link::connections(&state.store, parent.as_str()).iter().any(named) {
        return Err(Refusal::not_found(id));
    }
    let mut response = store(state, write, parent, body)?;
    if write.planned == Outcome::Succeeded {
        private_link::decide(&mut state.store, parent.as_str(), id.name(), status);
    }
    let connections = private_link::connections(&state.store, parent.as_str());
    response.body = connections.into_iter().find(named);
    Ok(response)
}

/// Deletes the connection of a consumer: its private endpoint remains, disconnected.
fn delete_connection(
    state: &mut State,
    write: &Write<'_>,
    (id, parent): (&ResourceId, &ResourceId),
) -> Result<Answer, Refusal> {
    match decide(state, write, (id, parent), ConnectionStatus::Disconnected) {
        Ok(response) => Ok(without_body(response)),
        Err(refusal) if refusal.status == 404 && refusal.code != "ResourceGroupNotFound" => Ok(Answer::empty(204)),
        Err(refusal) => Err(refusal),
    }
}

fn is_poll_header(name: &str) -> bool {
    matches!(name, "azure-asyncoperation" | "location")
}

fn parent_body(state: &State, id: &ResourceId, parent: &ResourceId) -> Result<Value, Refusal> {
    read::surroundings(state, id)?;
    let parent = state.store.get(parent.as_str()).ok_or_else(|| Refusal::parent_not_found(id, parent))?;
    Ok((*parent.body).clone())
}

/// Stores a document with its effects on others.
pub(super) fn store(state: &mut State, write: &Write<'_>, id: &ResourceId, mut body: Value) -> Result<Answer, Refusal> {
    let old = state.store.get(id.as_str()).cloned();
    preconditions(state, write.request, id)?;
    busy(state, id)?;
    let id = old.as_ref().and_then(|old| ResourceId::parse(&old.id).ok()).unwrap_or_else(|| id.clone());
    shape::complete(&id, &mut body);
    let old_body = old.as_ref().map(|old| &*old.body);
    let options = &state.options;
    validate::references(&state.store, &id, &body)?;
    complete::document(&mut state.store, options, &id, old_body, &mut body)?;
    validate::document(&state.store, &id, old_body, &body)?;
    validate::limits(&state.store, &options.limits, &id, old_body, &body)?;
    let latency = latency(state, Class::Write, &id);
    let manner = kinds::manner_of(&id.resource_type());
    let running = if old.is_some() { manner.changing } else { manner.creating };
    let is_shown = options.operations.in_documents || !options.operations.operation_header;
    let running = running.map(|state| if is_shown && state == "Succeeded" { "Updating" } else { state });
    let long = running.is_some() && !latency.operation.is_zero() || write.planned != Outcome::Succeeded;
    body["properties"]["provisioningState"] = json!(if long { running.unwrap_or("Updating") } else { "Succeeded" });
    effects::insert(&mut state.store, &id, body);
    state.store.set_unfinished(&id.key(), long && old.as_ref().is_none_or(|old| old.unfinished));
    let mut response = Answer::new(if old.is_some() { 200 } else { 201 }, Value::Null);
    if long {
        start(state, write, &id, false, latency, &mut response);
    }
    if let Some(document) = state.store.get(id.as_str()) {
        // Upstream: of the recorded responses to writes, only those of compute have the header.
        let is_of_compute = document.kind.starts_with("microsoft.compute/");
        response.headers.extend(view::etag(document).filter(|_| is_of_compute).map(|etag| ("etag", etag)));
        response.body = Some(view::document(&state.store, document, Expand::Nothing));
    }
    Ok(response)
}

/// Deletes a document of the store.
pub fn delete(state: &mut State, write: &Write<'_>, id: &ResourceId) -> Result<Answer, Refusal> {
    read::surroundings(state, id)
        .or_else(|refusal| if refusal.code == "ParentResourceNotFound" { Ok(()) } else { Err(refusal) })?;
    let Some(old) = state.store.get(id.as_str()).cloned() else { return Ok(Answer::empty(204)) };
    preconditions(state, write.request, id)?;
    busy(state, id)?;
    validate::deletion(&state.store, id, &old.body)?;
    let latency = latency(state, Class::Delete, id);
    let deleting = kinds::manner_of(&id.resource_type()).deleting.filter(|_| !latency.operation.is_zero());
    if deleting.is_none() && write.planned == Outcome::Succeeded {
        effects::remove(&mut state.store, &id.key());
        return Ok(Answer::empty(200));
    }
    state.store.change_document(id.as_str(), |body| body["properties"]["provisioningState"] = json!("Deleting"));
    let mut response = Answer::empty(deleting.unwrap_or(202));
    start(state, write, id, true, latency, &mut response);
    Ok(response)
}

fn latency(state: &State, class: Class, id: &ResourceId) -> Latency {
    state.options.latencies.of(class, &id.resource_type().to_ascii_lowercase())
}

fn preconditions(state: &State, request: &ArmRequest, id: &ResourceId) -> Result<(), Refusal> {
    let current = state.store.get(id.as_str());
    let etag = current.and_then(view::etag).unwrap_or_default();
    if let Some(desired) = &request.if_match {
        let fits =
            current.is_some() && (desired == "*" || desired.split(',').any(|item| view::same_etag(item.trim(), &etag)));
        if !fits {
            return Err(Refusal::precondition_failed(id, desired, &etag));
        }
    }
    match &request.if_none_match {
        Some(desired) if current.is_some() && (desired == "*" || *desired == etag) => {
            Err(Refusal::precondition_failed(id, desired, &etag))
        }
        _ => Ok(()),
    }
}

fn busy(state: &mut State, id: &ResourceId) -> Result<(), Refusal> {
    let key = id.key();
    let Some(running) = state.operations.running(&key) else { return Ok(()) };
    let message = format!(
        "Cannot proceed with operation because resource {id} is used by another operation (id {}) that is still in progress.",
        running.id
    );
    match state.options.busy {
        Busy::Retryable => Err(Refusal::new(429, "RetryableErrorDueToAnotherOperation", message).retry_after(10)),
        Busy::Conflict => Err(Refusal::new(409, "AnotherOperationInProgress", message)),
        Busy::Supersede => {
            state.operations.supersede(&key);
            Ok(())
        }
    }
}

fn start(state: &mut State, write: &Write<'_>, id: &ResourceId, deletes: bool, latency: Latency, response: &mut Answer) {
    let operation = state.operations.start(&id.key(), deletes, write.planned.clone(), write.now + latency.operation);
    let kind = id.resource_type();
    let namespace = kind.split('/').next().unwrap_or_default();
    let version = write.request.parameter("api-version").unwrap_or_default();
    let url = |collection: &str| {
        format!(
            "{}/subscriptions/{}/providers/{namespace}/locations/{}/{collection}/{operation}?api-version={version}",
            write.request.origin,
            id.subscription(),
            state.options.location
        )
    };
    let style = state.options.operations;
    if style.operation_header {
        response.headers.push(("azure-asyncoperation", url("operations")));
        response.headers.push(("azure-asyncnotification", "Enabled".to_owned()));
    }
    if style.location_header || deletes {
        response.headers.push(("location", url("operationResults")));
    }
    if !style.operation_header {
        response.status = 202;
    }
    response.headers.extend(style.retry_after.map(|seconds| ("retry-after", seconds.to_string())));
}

//! GET: documents, parts, lists in pages, operations. Pure.

use serde_json::{Value, json};

use super::{
    handle::{self, State},
    operation::Outcome,
    refusal::Refusal,
    request::{Answer, ArmRequest},
    route::Target,
    shape,
    store::Document,
    view::{self, Expand},
};
use crate::providers::azure::model::ResourceId;

/// Responds to a GET request.
pub fn get(state: &State, request: &ArmRequest, target: &Target) -> Result<Answer, Refusal> {
    match target {
        Target::Subscription(id) => Ok(Answer::new(200, subscription(id))),
        Target::Provider(id, Some(namespace)) => {
            Ok(Answer::new(200, handle::provider(&state.options, id.subscription(), namespace)))
        }
        Target::Provider(id, None) => {
            let all = ["Microsoft.Compute", "Microsoft.Network", "Microsoft.Resources"];
            let shown: Vec<Value> =
                all.iter().map(|space| handle::provider(&state.options, id.subscription(), space)).collect();
            Ok(Answer::new(200, json!({"value": shown})))
        }
        Target::Operation { operation, result, .. } => poll(state, operation, *result),
        Target::Document(id) => document(state, request, id),
        Target::Part(id, parent, list) => part(state, (id, parent, list)),
        Target::Parts(parent, list) => {
            let shown = view::document(&state.store, existing(state, parent)?, Expand::Nothing);
            Ok(Answer::new(200, json!({"value": shape::parts(&shown, list).collect::<Vec<_>>()})))
        }
        Target::Collection { scope, kind } => list(state, request, scope, kind),
        Target::Migration(_) => Err(Refusal::method_not_allowed("GET")),
        Target::Permissions(scope) => {
            group(state, scope)?;
            Ok(Answer::new(200, permissions(state, scope)))
        }
        Target::Usages(subscription) => Ok(Answer::new(200, usages(state, subscription))),
        Target::InstanceView(id) => {
            let document = existing(state, id)?;
            Ok(Answer::new(200, document.body["properties"]["instanceView"].clone()))
        }
    }
}

/// Returns all permissions but those denied at `scope` or above.
fn permissions(state: &State, scope: &ResourceId) -> Value {
    let key = scope.key();
    let here = state.denials.iter().filter(|denial| key.contains(&denial.scope));
    let denied: Vec<&str> = here.map(|denial| denial.action.as_str()).collect();
    json!({"value": [{"actions": ["*"], "notActions": denied, "dataActions": [], "notDataActions": []}]})
}

/// Returns the usage of the types that have a quota, and the quotas.
fn usages(state: &State, subscription: &ResourceId) -> Value {
    let kinds = [
        ("PublicIPAddresses", "microsoft.network/publicipaddresses", state.options.limits.public_ips),
        ("LoadBalancers", "microsoft.network/loadbalancers", 1_000),
    ];
    let count = |kind: &str| state.store.of_type_below(kind, subscription.as_str(), "").count();
    let entry = |(name, kind, limit): (&str, &str, usize)| json!({"name": {"value": name, "localizedValue": name}, "currentValue": count(kind), "limit": limit, "unit": "Count"});
    json!({"value": kinds.map(entry)})
}

fn subscription(id: &ResourceId) -> Value {
    json!({"id": id, "subscriptionId": id.subscription(), "displayName": "simulated", "state": "Enabled"})
}

/// Returns the document of this id, or the 404 that says what is missing.
pub fn existing<'a>(state: &'a State, id: &ResourceId) -> Result<&'a Document, Refusal> {
    if let Some(document) = state.store.get(id.as_str()) {
        return Ok(document);
    }
    surroundings(state, id)?;
    if id.resource_type().is_empty() {
        return Err(Refusal::group_not_found(id.name()));
    }
    let is_instance = id.is_type("Microsoft.Compute/virtualMachineScaleSets/virtualMachines");
    if is_instance && id.name().parse::<u64>().is_err() {
        return Err(Refusal::instance_id());
    }
    let top_level = id.resource_type().split('/').count() == 2;
    Err(if top_level { Refusal::resource_not_found(id) } else { Refusal::not_found(id) })
}

/// Checks that the group and the parent of a document exist.
pub fn surroundings(state: &State, id: &ResourceId) -> Result<(), Refusal> {
    if id.resource_type().is_empty() {
        return Ok(());
    }
    group(state, id)?;
    match id.parent() {
        Some(parent) if !parent.resource_type().is_empty() && !state.store.exists(parent.as_str()) => {
            Err(Refusal::parent_not_found(id, &parent))
        }
        _ => Ok(()),
    }
}

fn group(state: &State, id: &ResourceId) -> Result<(), Refusal> {
    let Some(group) = id.resource_group() else { return Ok(()) };
    if state.store.get(ResourceId::group_of(id.subscription(), group).as_str()).is_none() {
        return Err(Refusal::group_not_found(group));
    }
    Ok(())
}

fn document(state: &State, request: &ArmRequest, id: &ResourceId) -> Result<Answer, Refusal> {
    let document = existing(state, id)?;
    let mut response = Answer::new(200, view::document(&state.store, document, expand(request)));
    response.headers.extend(view::etag(document).map(|etag| ("etag", etag)));
    Ok(response)
}

fn expand(request: &ArmRequest) -> Expand {
    let requested = request.parameter("$expand").is_some_and(|value| value.to_ascii_lowercase().contains("instanceview"));
    if requested || request.parameter("statusOnly") == Some("true") { Expand::InstanceView } else { Expand::Nothing }
}

fn part(state: &State, (id, parent, list): (&ResourceId, &ResourceId, &str)) -> Result<Answer, Refusal> {
    group(state, id)?;
    let document = state.store.get(parent.as_str()).ok_or_else(|| Refusal::parent_not_found(id, parent))?;
    let shown = view::document(&state.store, document, Expand::Nothing);
    let part = shape::part(&shown, list, id.name()).cloned().ok_or_else(|| Refusal::not_found(id))?;
    let mut response = Answer::new(200, part);
    response.headers.extend(view::etag(document).map(|etag| ("etag", etag)));
    Ok(response)
}

fn poll(state: &State, id: &str, result: bool) -> Result<Answer, Refusal> {
    let Some(operation) = state.operations.get(id) else {
        return Err(Refusal::new(404, "OperationNotFound", format!("The operation '{id}' could not be found.")));
    };
    let mut response = match (&operation.outcome, result) {
        (_, false) => Answer::new(200, operation.body()),
        (Outcome::InProgress, true) => Answer::empty(202),
        (Outcome::Succeeded, true) => match state.store.get(&operation.document) {
            Some(document) if !operation.deletes => {
                Answer::new(200, view::document(&state.store, document, Expand::Nothing))
            }
            _ => Answer::empty(204),
        },
        (Outcome::Failed(code, message) | Outcome::Canceled(code, message), true) => {
            return Err(Refusal::invalid(code, message.clone()));
        }
    };
    if operation.outcome == Outcome::InProgress {
        response.headers.extend(state.options.operations.retry_after.map(|seconds| ("retry-after", seconds.to_string())));
    }
    Ok(response)
}

fn list(state: &State, request: &ArmRequest, scope: &ResourceId, kind: &str) -> Result<Answer, Refusal> {
    group(state, scope)?;
    if !scope.resource_type().is_empty() && !state.store.exists(scope.as_str()) {
        return Err(Refusal::parent_not_found(scope, scope));
    }
    let after = request.parameter("$skiptoken").unwrap_or_default();
    let size = state.options.page_size.max(1);
    let scale_set = request.parameter("$filter").and_then(scale_set_filter);
    let mut found = state
        .store
        .of_type_below(kind, scope.as_str(), after)
        .filter(|(_, document)| scale_set.as_deref().is_none_or(|desired| is_in_scale_set(document, desired)));
    let page: Vec<(&String, &Document)> = found.by_ref().take(size).collect();
    let more = found.next().is_some();
    let expand = expand(request);
    let shown: Vec<Value> = page.iter().map(|(_, document)| view::document(&state.store, document, expand)).collect();
    let mut body = json!({"value": shown});
    if let Some((key, _)) = page.last().filter(|_| more) {
        body["nextLink"] = json!(request.next_link(key));
    }
    Ok(Answer::new(200, body))
}

/// Returns the id in `'virtualMachineScaleSet/id' eq '{id}'`.
fn scale_set_filter(filter: &str) -> Option<String> {
    let (field, value) = filter.split_once(" eq ")?;
    let field = field.trim().trim_matches('\'');
    field.eq_ignore_ascii_case("virtualMachineScaleSet/id").then(|| value.trim().trim_matches('\'').to_owned())
}

fn is_in_scale_set(document: &Document, desired: &str) -> bool {
    document.body["properties"]["virtualMachineScaleSet"]["id"].as_str().is_some_and(|id| id.eq_ignore_ascii_case(desired))
}

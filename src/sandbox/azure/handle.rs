//! Handling of a request by ARM: the gates in front (token, api-version, permission, quota), then reads and writes. Pure
//! over the state and the time that are passed in.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    distort,
    faults::{self, Effect},
    kinds, migration,
    operation::{Operations, Outcome},
    options::{AzureOptions, Class},
    read,
    refusal::{Headers, Refusal},
    request::{self, Answer, ArmRequest},
    route::{self, Target},
    store::Store,
    throttle::{Throttle, ThrottledRequest},
    write::{self, Write},
};
use crate::providers::azure::model::ResourceId;

/// Denied actions (`*` matches any text) at or below a scope, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// `microsoft.network/*/write`.
    pub action: String,
    /// An ID, or a part of one; empty for all scopes.
    pub scope: String,
}

/// State of the simulated Azure.
#[derive(Debug, Default)]
pub struct State {
    pub options: AzureOptions,
    pub store: Store,
    pub operations: Operations,
    /// Used parts of the quotas.
    pub throttle: Throttle,
    pub denials: Vec<Denial>,
    /// Tokens that an injected fault has expired.
    pub expired_tokens: BTreeSet<String>,
    /// Read-only fields that clients have sent, and that changed nothing.
    pub read_only_sent: BTreeSet<String>,
}

impl State {
    /// Records which read-only fields a body had.
    pub fn note_read_only(&mut self, id: &ResourceId, paths: &[&str]) {
        self.read_only_sent.extend(paths.iter().map(|path| format!("{} {path}", id.resource_type())));
    }
}

/// Responds to a request, and returns the delay of the response. `token_problem` is the problem of the request's token.
pub fn handle(
    state: &mut State,
    request: &ArmRequest,
    token_problem: Option<&str>,
    effect: Option<&Effect>,
    now: Instant,
) -> (Answer, Duration) {
    write::settle(state, now);
    let target = route::target(&request.path);
    let class = request::class(&request.method, target.as_ref());
    let kind = target.as_ref().map(Target::kind).unwrap_or_default();
    let latency = state.options.latencies.of(class, &kind).respond;
    let response =
        gates(state, request, target.as_ref(), (class, effect), token_problem, now).and_then(|(target, headers)| {
            let mut response = dispatch(state, request, target, effect, now)?;
            response.headers.extend(headers);
            Ok(response)
        });
    let mut response = response.unwrap_or_else(|refusal| Answer::refused(&refusal));
    if let Some(Effect::Etags(mode)) = effect {
        distort::etags(&mut response, *mode);
    }
    (response, latency)
}

fn gates<'a>(
    state: &mut State,
    request: &ArmRequest,
    target: Option<&'a Target>,
    (class, effect): (Class, Option<&Effect>),
    token_problem: Option<&str>,
    now: Instant,
) -> Result<(&'a Target, Headers), Refusal> {
    live_token(state, request, effect)?;
    if let Some(problem) = token_problem {
        return Err(Refusal::unauthenticated(problem));
    }
    if request.body.len() > request::MOST_BYTES {
        return Err(Refusal::too_large());
    }
    let target = target.ok_or_else(|| Refusal::no_such_type(&request.path))?;
    let subscription = target.scope().subscription();
    if !state.options.subscriptions.iter().any(|existing| existing.eq_ignore_ascii_case(subscription)) {
        return Err(Refusal::subscription_not_found(subscription));
    }
    let (kind, resource) = (throttled_kind(target, &request.path), target.scope().key());
    let charged = ThrottledRequest {
        subscription,
        principal: &request.principal,
        kind: &kind,
        resource: &resource,
        list: target.is_list(),
        class,
    };
    let headers = state.throttle.charge(&state.options.quotas, &charged, now)?;
    check_version(request.parameter("api-version"))?;
    permitted(state, target, class, effect)?;
    match (effect, target.scope().resource_group()) {
        (Some(Effect::GroupNotFound), Some(group)) => Err(Refusal::group_not_found(group)),
        _ => Ok((target, headers)),
    }
}

/// Returns the type that a request's quota depends on: for an operation, its provider.
fn throttled_kind(target: &Target, path: &str) -> String {
    match target {
        Target::Operation { .. } => path.split('/').nth(4).unwrap_or_default().to_ascii_lowercase(),
        _ => target.kind(),
    }
}

/// Checks that no fault has made the request's token expire, now or before.
fn live_token(state: &mut State, request: &ArmRequest, effect: Option<&Effect>) -> Result<(), Refusal> {
    let Some(token) = &request.token else { return Ok(()) };
    if effect == Some(&Effect::ExpireToken) {
        state.expired_tokens.insert(token.clone());
    }
    if state.expired_tokens.contains(token) { Err(Refusal::expired_token()) } else { Ok(()) }
}

fn check_version(version: Option<&str>) -> Result<(), Refusal> {
    let Some(version) = version.filter(|version| !version.is_empty()) else {
        let message = "The api-version query parameter (?api-version=) is required for all requests.";
        return Err(Refusal::invalid("MissingApiVersionParameter", message));
    };
    let day = version.strip_suffix("-preview").unwrap_or(version);
    if day.parse::<jiff::civil::Date>().is_ok() && day.len() == 10 {
        return Ok(());
    }
    Err(Refusal::invalid("InvalidApiVersionParameter", format!("The api-version '{version}' is invalid.")))
}

fn permitted(state: &State, target: &Target, class: Class, effect: Option<&Effect>) -> Result<(), Refusal> {
    let verb = match class {
        Class::Write if matches!(target, Target::Migration(_)) => "action",
        Class::Write => "write",
        Class::Delete => "delete",
        _ => "read",
    };
    let kind = match target {
        Target::Provider(..) => "microsoft.resources/subscriptions/providers".to_owned(),
        _ if target.kind().is_empty() => "microsoft.resources/subscriptions".to_owned(),
        _ => target.kind(),
    };
    let (action, scope) = (format!("{kind}/{verb}"), target.scope().key());
    let denied = |denial: &Denial| faults::glob(&denial.action, &action) && scope.contains(&denial.scope);
    if effect == Some(&Effect::Forbidden) || state.denials.iter().any(denied) {
        return Err(Refusal::forbidden(&action, target.scope().as_str()));
    }
    Ok(())
}

fn dispatch(
    state: &mut State,
    request: &ArmRequest,
    target: &Target,
    effect: Option<&Effect>,
    now: Instant,
) -> Result<Answer, Refusal> {
    let method = request.method.as_str();
    if matches!(method, "GET" | "HEAD") {
        return match effect {
            Some(effect) => distort::read(state, request, target, effect, now),
            None => read::get(state, request, target),
        };
    }
    let planned = match effect {
        Some(Effect::FailOperation(code, message)) => Outcome::Failed(code.clone(), message.clone()),
        Some(Effect::HangOperation) => Outcome::InProgress,
        _ => Outcome::Succeeded,
    };
    let write = Write { request, now, planned };
    match (method, target) {
        ("PUT", Target::Document(id)) => write::put(state, &write, id),
        ("PUT", Target::Part(id, parent, list)) => write::put_part(state, &write, (id, parent, list)),
        ("POST", Target::Migration(id)) => migration::migrate(state, &write, id),
        ("PATCH", Target::Document(id)) => write::patch(state, &write, id),
        ("DELETE", Target::Document(id)) => write::delete(state, &write, id),
        ("DELETE", Target::Part(id, parent, list)) => write::delete_part(state, &write, (id, parent, list)),
        _ => Err(Refusal::method_not_allowed(method)),
    }
}

/// Returns the resource provider of the region's zones, as `GET /subscriptions/{s}/providers/{namespace}` shows it.
pub fn provider(options: &AzureOptions, subscription: &str, namespace: &str) -> Value {
    let mapping = json!({"location": options.location_name, "zones": options.zones});
    let mappings = if options.zones.is_empty() { json!([]) } else { json!([mapping]) };
    let kind = |name: &str| {
        json!({"resourceType": name, "locations": [options.location_name], "zoneMappings": mappings,
               "apiVersions": ["2025-04-01"], "capabilities": "SupportsTags, SupportsLocation"})
    };
    let kinds: Vec<Value> = kinds::KINDS
        .iter()
        .filter_map(|existing| existing.name.split_once('/').filter(|(space, _)| space.eq_ignore_ascii_case(namespace)))
        .map(|(_, name)| kind(name))
        .collect();
    json!({"id": format!("/subscriptions/{subscription}/providers/{namespace}"), "namespace": namespace,
           "registrationState": "Registered", "resourceTypes": kinds})
}

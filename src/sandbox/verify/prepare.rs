//! Converts a step of a row to a request. Pure.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, header};
use serde_json::Value;

use super::{
    table::{AssumptionStep, AssumptionTable, RawStep, StepVerb, set_field},
    values::Variables,
};
use crate::providers::azure::{
    arm::Precondition,
    model::{ApiType, Quota, api, spelling},
};

/// A type that rows use and the provider does not.
static PRIVATE_ENDPOINTS: ApiType = ApiType {
    resource_type: "Microsoft.Network/privateEndpoints",
    version: "2025-05-01",
    stack_version: "2019-03-01",
    quota: Quota::Network,
    metric: "PrivateEndpoint",
    limit: "PrivateEndpoint",
    operations: &[],
    printed: "",
    is_compared: false,
    read_only: None,
};

pub(super) fn private_endpoints() -> &'static ApiType {
    &PRIVATE_ENDPOINTS
}

/// Condition of a write, with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepCondition {
    Unconditional,
    Absent,
    Exists,
    Etag(String),
}

impl StepCondition {
    pub fn precondition(&self) -> Precondition<'_> {
        match self {
            Self::Unconditional => Precondition::Unconditional,
            Self::Absent => Precondition::Absent,
            Self::Exists => Precondition::Exists,
            Self::Etag(etag) => Precondition::Version(etag),
        }
    }
}

/// A request for the ARM client.
#[derive(Debug, Clone)]
pub struct PreparedStep {
    pub verb: StepVerb,
    pub kind: &'static ApiType,
    /// Path of the resource or of the list.
    pub path: String,
    pub action: String,
    pub condition: StepCondition,
    pub body: Value,
    pub query: Vec<(String, String)>,
}

/// Returns the request of a step that the client sends.
pub fn prepare(table: &AssumptionTable, step: &AssumptionStep, variables: &Variables) -> Result<PreparedStep, String> {
    let (verb, target) = step.verb()?;
    let path = resolve(table, step.at.as_deref().unwrap_or(target), variables)?;
    let own = table.documents.get(target).filter(|_| verb == StepVerb::Put).map(|document| &document.body);
    let mut body = step.body.as_ref().or(own).cloned().unwrap_or_default();
    step.with.iter().for_each(|(path, value)| set_field(&mut body, path, Some(value.clone())));
    step.without.iter().for_each(|path| set_field(&mut body, path, None));
    let condition = match step.condition.as_deref() {
        None => StepCondition::Unconditional,
        Some("absent") => StepCondition::Absent,
        Some("exists") => StepCondition::Exists,
        Some(etag) => StepCondition::Etag(variables.text(etag)?),
    };
    let query = step.query.iter().map(|(name, value)| Ok((name.clone(), variables.text(value)?)));
    Ok(PreparedStep {
        verb,
        kind: kind_of(&path)?,
        body: variables.expand(&body)?,
        query: query.collect::<Result<_, String>>()?,
        action: step.action.clone().unwrap_or_default(),
        condition,
        path,
    })
}

/// Returns the absolute path that a step names: a document and what is below it, a path in the group, or an absolute one.
pub fn resolve(table: &AssumptionTable, target: &str, variables: &Variables) -> Result<String, String> {
    let (first, rest) = target.split_once('/').unwrap_or((target, ""));
    let named = table.documents.get(first).map(|document| match rest {
        "" => document.at.clone(),
        rest => format!("{}/{rest}", document.at),
    });
    let path = named.unwrap_or_else(|| target.to_owned());
    variables.text(&match &path {
        path if path.starts_with('/') || path.starts_with('{') => path.clone(),
        path if path.starts_with("Microsoft.") => format!("{{group}}/providers/{path}"),
        path => format!("{{net}}/{path}"),
    })
}

/// Returns the type of the resource or list at a path: the longest that the provider knows, since parts are written like the
/// documents that contain them.
pub(super) fn kind_of(path: &str) -> Result<&'static ApiType, String> {
    let Some((_, own)) = path.rsplit_once("/providers/") else { return Ok(&api::RESOURCE_GROUPS) };
    let mut segments = own.split('/');
    let mut name = segments.next().unwrap_or_default().to_owned();
    let mut found = None;
    while let Some(segment) = segments.next() {
        name = format!("{name}/{segment}");
        let mut all = api::ALL.iter().copied().chain([&PRIVATE_ENDPOINTS]);
        found = all.find(|kind| spelling::same_word(kind.resource_type, &name)).or(found);
        segments.next();
    }
    found.ok_or_else(|| format!("{path}: no API version is known for this type"))
}

/// Returns the request of a step that bypasses the client.
pub fn raw_request(raw: &RawStep, base: &str, variables: &Variables) -> Result<Request<Bytes>, String> {
    let mut url =
        reqwest::Url::parse(&format!("{base}{}", variables.text(&raw.path)?)).map_err(|error| error.to_string())?;
    for (name, value) in &raw.query {
        url.query_pairs_mut().append_pair(name, &variables.text(value)?);
    }
    let mut form = reqwest::Url::parse("https://form/").map_err(|error| error.to_string())?;
    for (name, value) in &raw.form {
        form.query_pairs_mut().append_pair(name, &variables.text(value)?);
    }
    let body = form.query().unwrap_or_default().to_owned();
    let has_form = !body.is_empty();
    let built = Request::builder().method(raw.method.as_str()).uri(url.as_str()).body(Bytes::from(body));
    let mut request = built.map_err(|error| error.to_string())?;
    if has_form {
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(header::CONTENT_TYPE, form);
    }
    for (name, value) in &raw.headers {
        let name: HeaderName = name.parse().map_err(|_| format!("{name:?} is not the name of a header"))?;
        let value = variables.text(value)?.parse().map_err(|_| "a header has an invalid value".to_owned())?;
        request.headers_mut().insert(name, value);
    }
    Ok(request)
}

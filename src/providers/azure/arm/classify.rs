//! Classifies a response as an [`ArmError`]: class, message and hints. Pure.
//!
//! In: the request, status, headers and body. A status alone is ambiguous: ARM responds 429 for an exhausted quota and for a
//! resource that another operation has locked, 404 for a deleted machine and for a mistyped subscription, and proxies respond
//! with any status.

use bytes::Bytes;
use http::{Method, Response};
use jiff::Timestamp;

use super::{
    error_body::ErrorBody,
    error_codes::{class_of_code, is_internal},
    retry_after,
};
use crate::providers::azure::model::{ArmError, ArmErrorClass, names_a_parent, spelling};

/// Request as shown in errors: without its query, which may contain signatures.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestLine<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
}

impl RequestLine<'_> {
    pub(super) fn is_write(&self) -> bool {
        !matches!(*self.method, Method::GET | Method::HEAD)
    }

    /// Returns an error for a request without a response.
    pub(super) fn error(&self, class: ArmErrorClass, message: impl Into<String>) -> ArmError {
        ArmError::without_response(class, format!("{} {}", self.method, self.path), message)
    }
}

/// Codes of a 404 about the requested resource itself.
const NOT_FOUND_CODES: &[&str] = &["ResourceNotFound", "NotFound", "InstanceNotFound"];

/// Returns the innermost code that determines the class, with that class.
fn deciding_code(body: &ErrorBody) -> Option<(&str, ArmErrorClass)> {
    let class = |code| class_of_code(code, &body.message).map(|class| (code, class));
    body.codes.iter().rev().find_map(|code| class(code.as_str()))
}

/// Returns the class and the most specific code of an unsuccessful response.
fn classify_response(status: u16, body: Option<&ErrorBody>, writes: bool) -> (ArmErrorClass, String) {
    let outer = body.map_or("", ErrorBody::code);
    let decided = body.and_then(deciding_code);
    let is = |codes: &[&str]| codes.iter().any(|code| spelling::same_word(code, outer));
    let by_status = |class| (class, outer);
    let (class, code) = match (status, decided) {
        (401, _) => by_status(ArmErrorClass::Unauthorized),
        (403, _) if is(&["RequestDisallowedByPolicy"]) => by_status(ArmErrorClass::Invalid),
        (403, _) => by_status(ArmErrorClass::Forbidden),
        (404, _) if is(NOT_FOUND_CODES) => by_status(ArmErrorClass::NotFound),
        (404, _) if body.is_some() => by_status(ArmErrorClass::ParentNotFound),
        (412, _) => by_status(ArmErrorClass::Conflict),
        (400..=499, Some((code, class))) if status != 404 => (class, code),
        (429, None) => by_status(ArmErrorClass::Throttled),
        (408, None) => by_status(ArmErrorClass::Transient),
        (400..=499, None) if body.is_some() => by_status(ArmErrorClass::Invalid),
        (500..=599, Some((code, ArmErrorClass::Busy))) => (ArmErrorClass::Busy, code),
        // A gateway got no response from ARM, which may have received the write.
        (502 | 504, _) if writes && body.is_none() => by_status(ArmErrorClass::OutcomeUnknown),
        (500..=599, _) => by_status(ArmErrorClass::Transient),
        _ => by_status(ArmErrorClass::MalformedAnswer),
    };
    (class, code.to_owned())
}

/// Returns the ID by which Azure's support finds the request, at most 100 characters.
pub(super) fn correlation_id<T>(response: &Response<T>) -> Option<String> {
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let id = header("x-ms-correlation-request-id").or_else(|| header("x-ms-request-id"))?;
    Some(id.chars().take(100).collect())
}

/// Returns the error of an unsuccessful response. `wall` is the current time, for a date in `Retry-After`.
pub(super) fn error_of(request: RequestLine<'_>, response: &Response<Bytes>, wall: Timestamp) -> ArmError {
    let body = ErrorBody::parse(response.body());
    let (mut class, code) = classify_response(response.status().as_u16(), body.as_ref(), request.is_write());
    if class == ArmErrorClass::NotFound && body.as_ref().is_some_and(|body| names_a_parent(request.path, &body.message)) {
        class = ArmErrorClass::ParentNotFound;
    }
    let message = match &body {
        Some(body) => with_advice(&code, &body.message),
        None => non_arm_response(response),
    };
    let wait = retry_after::in_headers(response.headers(), wall);
    ArmError {
        status: Some(response.status().as_u16()),
        retry_after: wait.or_else(|| retry_after::in_message(&message).filter(|_| class == ArmErrorClass::Busy)),
        code,
        correlation_id: correlation_id(response),
        ..request.error(class, message)
    }
}

/// Returns ARM's message, with advice for the operator if the state of the subscription caused the error.
fn with_advice(code: &str, message: &str) -> String {
    let quoted = || message.split('\'').nth(1).filter(|name| name.starts_with("Microsoft."));
    match code {
        "MissingSubscriptionRegistration" => {
            let namespace = quoted().unwrap_or("<namespace>");
            format!("{message} Run `az provider register --namespace {namespace}` once for this subscription.")
        }
        "NoRegisteredProviderFound" => {
            format!("{message} Register the resource provider (`az provider register`), or correct `cloud` and `location`.")
        }
        _ => message.to_owned(),
    }
}

/// Returns the message for a response without an error document of ARM. Omits the content, because a proxy may echo the request
/// with its token.
fn non_arm_response(response: &Response<Bytes>) -> String {
    let content_type = response.headers().get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type: String = content_type.unwrap_or("no content type").chars().take(100).collect();
    format!("the response contains no ARM error document ({content_type}, {} bytes)", response.body().len())
}

/// Returns the error of an operation that failed or was canceled. `body` is its `error`, if any.
pub(super) fn failed_operation(request: RequestLine<'_>, state: &str, body: Option<&ErrorBody>) -> ArmError {
    let outer = body.map_or("", ErrorBody::code);
    let fallback = match state.to_ascii_lowercase().as_str() {
        "canceled" | "cancelled" => ArmErrorClass::Conflict,
        _ if outer.is_empty() || is_internal(outer) => ArmErrorClass::Transient,
        _ => ArmErrorClass::Invalid,
    };
    let (code, class) = body.and_then(deciding_code).unwrap_or((outer, fallback));
    let text = body.map_or("", |body| body.message.as_str());
    let message = if text.is_empty() { format!("the operation ended as {state}") } else { with_advice(code, text) };
    ArmError {
        code: code.to_owned(),
        retry_after: retry_after::in_message(&message).filter(|_| class == ArmErrorClass::Busy),
        ..request.error(class, message)
    }
}

#[cfg(test)]
mod tests;

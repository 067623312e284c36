//! Why a request is refused: a `metav1.Status` with the codes, reasons and details that clients look at.
//! Upstream: apimachinery `pkg/api/errors/errors.go`.

use serde_json::{Value, json};

use super::kinds::Kind;

/// A refusal of the server.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// HTTP status code.
    pub code: u16,
    /// `Status.reason`.
    pub reason: &'static str,
    /// `Status.message`.
    pub message: String,
    /// `Status.details`, or null.
    pub details: Value,
}

/// One invalid field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Path of the field.
    pub field: String,
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: &'static str,
    /// What is wrong with it.
    pub message: String,
}

impl Cause {
    /// The field has a wrong value.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, "FieldValueInvalid", format!("Invalid value: {}", message.into()))
    }
    /// The field is missing.
    pub fn required(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, "FieldValueRequired", format!("Required value: {}", message.into()))
    }
    /// The field may not be so here.
    pub fn forbidden(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, "FieldValueForbidden", format!("Forbidden: {}", message.into()))
    }
    /// The item is there twice.
    pub fn duplicate(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, "FieldValueDuplicate", format!("Duplicate value: {}", message.into()))
    }
    /// The value is not one of the accepted ones.
    pub fn unsupported(field: impl Into<String>, value: &str, accepted: &[&str]) -> Self {
        let message = format!("Unsupported value: {value:?}: supported values: {}", accepted.join(", "));
        Self::new(field, "FieldValueNotSupported", message)
    }
    fn new(field: impl Into<String>, reason: &'static str, message: String) -> Self {
        Self { field: field.into(), reason, message }
    }
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null }
    }
    fn about(self, kind: &Kind, name: &str) -> Self {
        Self { details: json!({"name": name, "group": kind.group, "kind": kind.plural}), ..self }
    }
    /// 404 of an object.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", kind.qualified())).about(kind, name)
    }
    /// 404 of a path.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }
    /// 409 at create.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", kind.qualified())).about(kind, name)
    }
    /// 409 at update or delete.
    pub fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.qualified());
        Self::new(409, "Conflict", message).about(kind, name)
    }
    /// 409 of a stale resourceVersion.
    pub fn modified(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }
    /// 422 with the fields that are wrong.
    pub fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        let list: Vec<_> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let list = if list.len() == 1 { list.concat() } else { format!("[{}]", list.join(", ")) };
        let causes: Vec<_> = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        Self {
            details: json!({"name": name, "group": kind.group, "kind": kind.kind, "causes": causes}),
            ..Self::new(422, "Invalid", format!("{} {name:?} is invalid: {list}", kind.kind))
        }
    }
    /// 422 of a patch that cannot be applied.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }
    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }
    /// 405.
    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }
    /// 415.
    pub fn unsupported_media_type(given: &str) -> Self {
        let accepted = "application/json, application/yaml, the JSON, merge and strategic merge patch types, \
                        application/apply-patch+yaml";
        Self::new(415, "UnsupportedMediaType", format!("content type {given:?} is not supported; accepted: {accepted}"))
    }
    /// 410 of a resourceVersion that the history does not reach any more.
    pub fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }
    /// 410 of a continue token.
    pub fn continue_expired() -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You must start a new \
                       list without the continue parameter.";
        Self::new(410, "Expired", message)
    }
    /// 504 of a resourceVersion that has not been reached.
    pub fn too_large_version(asked: u64, current: u64) -> Self {
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self { details: json!({"causes": [cause], "retryAfterSeconds": 1}), ..Self::new(504, "Timeout", message) }
    }
    /// A refusal by code, for injected faults.
    pub fn of_code(code: u16, message: &str) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "Unknown",
        };
        let refusal = Self::new(code, reason, message);
        if code == 429 { Self { details: json!({"retryAfterSeconds": 1}), ..refusal } } else { refusal }
    }

    /// The `metav1.Status`.
    pub fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_null() {
            body["details"] = self.details.clone();
        }
        body
    }
}

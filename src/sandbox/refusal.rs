//! Refusal of a request: a `metav1.Status` with the codes, reasons and details that clients read. Upstream: apimachinery
//! `pkg/api/errors/errors.go`.

use serde_json::{Value, json};

use super::kinds::Kind;

/// A refusal of the server.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub code: u16,
    /// `Status.reason`.
    pub reason: &'static str,
    /// `Status.message`.
    pub message: String,
    /// Value of `Status.details`, or null.
    pub details: Value,
}

/// Invalid field of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Path of the field.
    pub field: String,
    /// Reason, such as `FieldValueInvalid` or `FieldValueRequired`.
    pub reason: &'static str,
    /// Description of the error.
    pub message: String,
}

impl Cause {
    /// Reports a field with an invalid value.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, "FieldValueInvalid", format!("Invalid value: {}", message.into()))
    }
    /// Reports a missing field.
    pub fn required(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, "FieldValueRequired", format!("Required value: {}", message.into()))
    }
    /// Reports a field that is forbidden here.
    pub fn forbidden(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, "FieldValueForbidden", format!("Forbidden: {}", message.into()))
    }
    /// Reports a duplicate item.
    pub fn duplicate(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, "FieldValueDuplicate", format!("Duplicate value: {}", message.into()))
    }
    /// Reports a value that is not one of the accepted ones.
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
    /// Returns the 404 of an object.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", kind.qualified())).about(kind, name)
    }
    /// Returns the 404 of a path.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }
    /// Returns the 409 at create.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", kind.qualified())).about(kind, name)
    }
    /// Returns the 409 at update or delete.
    pub fn conflict(kind: &Kind, name: &str, reason: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {reason}", kind.qualified());
        Self::new(409, "Conflict", message).about(kind, name)
    }
    /// Returns the 409 of a stale resourceVersion.
    pub fn modified(kind: &Kind, name: &str) -> Self {
        let reason = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, reason)
    }
    /// Returns the 422 with the invalid fields.
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
    /// Returns the 422 of a patch that cannot be applied.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }
    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }
    pub fn unsupported_media_type(content_type: &str) -> Self {
        let accepted = "application/json, application/yaml, the JSON, merge and strategic merge patch types, \
                        application/apply-patch+yaml";
        Self::new(
            415,
            "UnsupportedMediaType",
            format!("content type {content_type:?} is not supported; accepted: {accepted}"),
        )
    }
    /// Returns the 410 of a resourceVersion before the history.
    pub fn expired(requested: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {requested} ({oldest})"))
    }
    /// Returns the 410 of a continue token.
    pub fn continue_expired() -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You must start a new \
                       list without the continue parameter.";
        Self::new(410, "Expired", message)
    }
    /// Returns the 504 of a resourceVersion that has not been reached.
    pub fn too_large_version(requested: u64, current: u64) -> Self {
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        Self { details: json!({"causes": [cause], "retryAfterSeconds": 1}), ..Self::new(504, "Timeout", message) }
    }
    /// Creates a refusal by code, for injected faults.
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

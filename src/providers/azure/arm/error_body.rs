//! ARM's error documents: `{"error": {"code", "message", "details": […], "innererror": {…}}}`. Pure.

use serde_json::Value;

use crate::runtime::text;

/// Maximum length of a message, in bytes; the rest is cut off.
const MAX_MESSAGE: usize = 2000;
/// Maximum number of nested errors that are read.
const MAX_DETAILS: usize = 20;

/// Content of an error document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ErrorBody {
    /// Codes from the outermost to the innermost; the first one may be empty.
    pub(super) codes: Vec<String>,
    /// Message, followed by those of nested errors as `code: message`.
    pub(super) message: String,
}

impl ErrorBody {
    /// Parses the body of a response; `None` if it is not an error document of ARM.
    ///
    /// Only an object under `error` with a code counts: others may come from a proxy.
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let document: Value = serde_json::from_slice(body).ok()?;
        Self::of(document.get("error")?)
    }

    /// Reads the value of an `error` field; `None` without a code.
    pub(super) fn of(error: &Value) -> Option<Self> {
        text(error, "code").filter(|code| !code.is_empty())?;
        let mut found = Self::default();
        found.add(error);
        Some(found)
    }

    /// Returns the outermost code.
    pub(super) fn code(&self) -> &str {
        self.codes.first().map_or("", String::as_str)
    }

    fn add(&mut self, error: &Value) {
        if self.codes.len() > MAX_DETAILS {
            return;
        }
        let code = text(error, "code").unwrap_or_default();
        let is_nested = !self.codes.is_empty();
        self.append_message(is_nested.then_some(code), text(error, "message").unwrap_or_default());
        self.codes.push(code.chars().take(100).collect());
        let details = error.get("details").and_then(Value::as_array);
        details.into_iter().flatten().for_each(|detail| self.add(detail));
        if let Some(inner) = error.get("innererror").filter(|inner| inner.is_object()) {
            self.add(inner);
        }
    }

    fn append_message(&mut self, code: Option<&str>, message: &str) {
        let code = code.filter(|code| !code.is_empty());
        if code.is_none() && message.is_empty() {
            return;
        }
        if !self.message.is_empty() {
            self.message.push_str("; ");
        }
        self.message.extend(code.into_iter().flat_map(|code| [code, ": "]));
        self.message.push_str(message);
        self.message = one_line(&self.message);
    }
}

fn text<'a>(error: &'a Value, field: &str) -> Option<&'a str> {
    error.get(field)?.as_str().map(str::trim)
}

/// Returns `text` on one line, of at most [`MAX_MESSAGE`] bytes.
pub(super) fn one_line(text: &str) -> String {
    text::truncate(&text::one_line(text), MAX_MESSAGE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: &Value) -> Option<ErrorBody> {
        ErrorBody::parse(value.to_string().as_bytes())
    }

    #[test]
    fn nested_errors_are_flattened() {
        let found = parse(&json!({"error": {
            "code": "RetryableError", "message": "A retryable error occured.",
            "details": [{"code": "RetryableErrorDueToAnotherOperation", "message": "Operation X is updating\nresource y."}],
            "innererror": {"code": "", "message": "why"},
        }}))
        .unwrap();
        assert_eq!(found.codes, ["RetryableError", "RetryableErrorDueToAnotherOperation", ""]);
        assert_eq!(
            found.message,
            "A retryable error occured.; RetryableErrorDueToAnotherOperation: Operation X is updating resource y.; why"
        );
    }

    #[test]
    fn only_arms_form_counts() {
        for other in [
            json!({"code": "NotFound", "message": "m"}),
            json!({"error": "NotFound"}),
            json!({"error": {"message": "m"}}),
            json!({"error": {"code": ""}}),
            json!({"error": {"code": 404}}),
            json!([{"error": {"code": "NotFound"}}]),
            json!(null),
        ] {
            assert_eq!(parse(&other), None, "{other}");
        }
        assert_eq!(ErrorBody::parse(b"<html>404</html>"), None);
        assert_eq!(ErrorBody::parse(b""), None);
        assert!(ErrorBody::parse(b"\xef\xbb\xbf{\"error\":{\"code\":\"NotFound\"}}").is_some(), "a byte order mark");
    }

    #[test]
    fn size_and_depth_are_bounded() {
        let long = parse(&json!({"error": {"code": "X", "message": "ä".repeat(100_000)}})).unwrap();
        assert!(long.message.len() <= MAX_MESSAGE + 3 && long.message.ends_with('…'));
        let many: Vec<_> = (0..10_000).map(|n| json!({"code": n.to_string()})).collect();
        assert!(parse(&json!({"error": {"code": "X", "details": many}})).unwrap().codes.len() <= MAX_DETAILS + 1);
        let deep = format!("{{\"error\":{}{}{}}}", "{\"code\":\"X\",\"innererror\":".repeat(5000), "{}", "}".repeat(5000));
        assert_eq!(ErrorBody::parse(deep.as_bytes()), None);
    }
}

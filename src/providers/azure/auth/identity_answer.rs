//! Errors from responses of identity services. Pure.
//!
//! In: status, `Retry-After` and body. Out: an [`AuthError`] with the cause and the field to check.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;

use super::{AuthError, error::safe_line};
use crate::providers::azure::transport::ArmTransportError;

/// Response of an identity service, or the reason why there is none.
pub(super) type IdentityAnswer = Result<http::Response<Bytes>, ArmTransportError>;

/// Description of a token request, for messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct TokenRequestContext<'a> {
    /// Identity that context the token: `application … in tenant …`.
    pub(super) identity: &'a str,
    /// Requested URL without query.
    pub(super) endpoint: &'a str,
    /// Parts of the request that messages must not repeat.
    pub(super) secrets: &'a [&'a str],
    /// Field of the configuration to check, unless the error code names another.
    pub(super) field: &'a str,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IdentityErrorBody {
    error: serde_json::Value,
    error_description: String,
    error_codes: Vec<i64>,
}

/// Returns the error for a request that yielded no token.
pub(super) fn explain(result: &IdentityAnswer, context: TokenRequestContext<'_>) -> AuthError {
    match result {
        Err(error) => AuthError::unreachable(context.endpoint, safe_line(&error.to_string(), context.secrets)),
        Ok(response) => explain_response(response, context),
    }
}

fn explain_response(response: &http::Response<Bytes>, context: TokenRequestContext<'_>) -> AuthError {
    let status = response.status();
    let refusal: IdentityErrorBody = serde_json::from_slice(response.body()).unwrap_or_default();
    let line = safe_line(refusal.text(), context.secrets);
    if status.is_client_error() && !matches!(status.as_u16(), 404 | 408 | 410 | 429) {
        let code = refusal.code();
        let field = field_for(&code).unwrap_or(context.field);
        let message = if line.is_empty() { format!("HTTP {status}") } else { line };
        return AuthError::Refused {
            identity: context.identity.to_owned(),
            code,
            message: format!("{message} (check {field})"),
        };
    }
    let subject =
        if status.is_success() { "a response without a usable token".to_owned() } else { format!("HTTP {status} {line}") };
    AuthError::Unreachable {
        endpoint: context.endpoint.to_owned(),
        message: subject.trim_end().to_owned(),
        retry_after: retry_after(response.headers()),
    }
}

impl IdentityErrorBody {
    /// Returns the message of the error. ARM and Key Vault send an object as `error`, Entra and IMDS a word and a description.
    fn text(&self) -> &str {
        let of_object = self.error.get("message").and_then(serde_json::Value::as_str);
        let description = Some(self.error_description.as_str()).filter(|text| !text.is_empty());
        description.or(of_object).or(self.error.as_str()).unwrap_or_default()
    }

    fn code(&self) -> String {
        let of_object = self.error.get("code").and_then(serde_json::Value::as_str);
        match (self.error_codes.first(), of_object.or(self.error.as_str())) {
            (Some(number), _) => format!("AADSTS{number}"),
            (None, Some(word)) => safe_line(word, &[]),
            (None, None) => String::new(),
        }
    }
}

/// Returns the field of the configuration that an Entra error code points to.
fn field_for(code: &str) -> Option<&'static str> {
    Some(match code {
        "AADSTS7000215" | "AADSTS7000222" => "aadClientSecret",
        "AADSTS700016" => "aadClientId and tenantId",
        "AADSTS90002" | "AADSTS900023" => "tenantId",
        "AADSTS700027" => "aadClientCertPath: is this certificate registered with the application?",
        "AADSTS70021" | "AADSTS700211" | "AADSTS700212" | "AADSTS700213" => {
            "the federated credential of the application: issuer, subject and audience must match the token"
        }
        "AADSTS700024" => "the clock of this machine",
        "AADSTS500011" => "cloud and resourceManagerEndpoint",
        _ => return None,
    })
}

/// Returns `Retry-After` in seconds; these services do not send a date.
fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    let text = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: TokenRequestContext<'_> = TokenRequestContext {
        identity: "application a",
        endpoint: "https://login/token",
        secrets: &["planted"],
        field: "some field",
    };

    fn response(status: u16, body: &str) -> IdentityAnswer {
        let builder = http::Response::builder().status(status).header("retry-after", "7");
        Ok(builder.body(Bytes::copy_from_slice(body.as_bytes())).unwrap())
    }

    #[test]
    fn refusals_have_a_code_and_a_field() {
        let wrong_secret = r#"{"error":"invalid_client","error_description":"AADSTS7000215: Invalid planted.\r\nTrace ID: x","error_codes":[7000215]}"#;
        let rows = [
            (401, wrong_secret, "AADSTS7000215", "AADSTS7000215: Invalid [secret]. (check aadClientSecret)"),
            (
                400,
                r#"{"error":"invalid_request","error_description":"Identity not found"}"#,
                "invalid_request",
                "Identity not found (check some field)",
            ),
            (403, r#"{"error":{"code":"Forbidden","message":"no role"}}"#, "Forbidden", "no role (check some field)"),
            (403, "<html>", "", "HTTP 403 Forbidden (check some field)"),
        ];
        for (status, body, code, message) in rows {
            let expected = AuthError::Refused {
                identity: "application a".to_owned(),
                code: code.to_owned(),
                message: message.to_owned(),
            };
            assert_eq!(explain(&response(status, body), CONTEXT), expected);
        }
    }

    #[test]
    fn other_failures_are_retried() {
        for (status, body) in [(429, "{}"), (500, "<html>planted"), (503, ""), (404, "{}"), (200, "{}"), (302, "")] {
            let error = explain(&response(status, body), CONTEXT);
            assert!(matches!(error, AuthError::Unreachable { .. }), "{status}");
            assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
            assert!(!error.to_string().contains("planted"));
        }
        let unreachable = explain(&Err(ArmTransportError::NotSent("connection refused".to_owned())), CONTEXT);
        assert_eq!(
            unreachable.to_string(),
            "unusable response from https://login/token: cannot connect: connection refused"
        );
    }
}

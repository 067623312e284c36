//! Entra's refusals: code, OAuth error, HTTP status and wording.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::sandbox::azure::topology::uuid;

/// Reason why there is no token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// Value of OAuth's field `error`.
    pub error: &'static str,
    /// Number in the code `AADSTS…`.
    pub code: u32,
    message: String,
}

impl Refusal {
    fn new(status: u16, error: &'static str, code: u32, message: String) -> Self {
        Self { status, error, code, message }
    }

    pub(super) fn tenant(tenant: &str) -> Self {
        let message = format!(
            "Tenant '{tenant}' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud. \
             Check with your subscription administrator, this may happen if there are no active subscriptions for the tenant."
        );
        Self::new(400, "invalid_request", 90_002, message)
    }

    pub(super) fn application(client: &str, tenant: &str) -> Self {
        let message = format!(
            "Application with identifier '{client}' was not found in the directory '{tenant}'. This can happen if the application has \
             not been installed by the administrator of the tenant or consented to by any user in the tenant. You may have sent your \
             authentication request to the wrong tenant."
        );
        Self::new(400, "unauthorized_client", 700_016, message)
    }

    pub(super) fn secret(client: &str) -> Self {
        let message = format!(
            "Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client \
             secret ID, for a secret added to app '{client}'."
        );
        Self::new(401, "invalid_client", 7_000_215, message)
    }

    pub(super) fn no_credential() -> Self {
        let message =
            "The request body must contain the following parameter: 'client_assertion' or 'client_secret'.".to_owned();
        Self::new(401, "invalid_client", 7_000_218, message)
    }

    pub(super) fn missing(parameter: &str) -> Self {
        Self::new(
            400,
            "invalid_request",
            900_144,
            format!("The request body must contain the following parameter: '{parameter}'."),
        )
    }

    pub(super) fn grant_type(found: &str) -> Self {
        Self::new(400, "unsupported_grant_type", 70_003, format!("The app requested an unsupported grant type '{found}'."))
    }

    pub(super) fn method() -> Self {
        Self::new(
            400,
            "invalid_request",
            900_561,
            "The endpoint only accepts POST requests. Received a GET request.".to_owned(),
        )
    }

    pub(super) fn scope(scope: &str) -> Self {
        let message = format!(
            "The provided value for scope {scope} is not valid. Client credential flows must have a scope value with /.default \
             suffixed to the resource identifier (application ID URI)."
        );
        Self::new(400, "invalid_scope", 1_002_012, message)
    }

    pub(super) fn malformed_assertion() -> Self {
        Self::new(401, "invalid_client", 50_027, "JWT token is invalid or malformed.".to_owned())
    }

    pub(super) fn no_federation(subject: &str) -> Self {
        let message = format!(
            "No matching federated identity record found for presented assertion subject '{subject}'. Check your federated identity \
             credential Subject, Audience and Issuer against the presented assertion."
        );
        Self::new(401, "invalid_client", 700_213, message)
    }

    pub(super) fn signature() -> Self {
        let message = "The certificate with identifier used to sign the client assertion is not registered on application. \
                       [Reason - The key was not found.]";
        Self::new(401, "invalid_client", 700_027, message.to_owned())
    }

    pub(super) fn assertion_time() -> Self {
        Self::new(401, "invalid_client", 700_024, "Client assertion is not within its valid time range.".to_owned())
    }

    pub(super) fn assertion_audience() -> Self {
        Self::new(401, "invalid_client", 700_023, "Client assertion audience claim does not match Realm issuer.".to_owned())
    }

    pub(super) fn assertion_issuer() -> Self {
        let message = "Client assertion application identifier doesn't match 'client_id' parameter.";
        Self::new(401, "invalid_client", 700_021, message.to_owned())
    }

    /// Returns the body, with trace and time.
    pub(super) fn body(&self, trace: u64, now: Timestamp) -> Value {
        let time = now.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
        let (trace, correlation) = (uuid(trace, "trace"), uuid(trace, "correlation"));
        let text = &self.message;
        let description =
            format!("AADSTS{}: {text} Trace ID: {trace} Correlation ID: {correlation} Timestamp: {time}", self.code);
        json!({
            "error": self.error, "error_description": description, "error_codes": [self.code], "timestamp": time,
            "trace_id": trace, "correlation_id": correlation,
            "error_uri": format!("https://login.microsoftonline.com/error?code={}", self.code),
        })
    }
}

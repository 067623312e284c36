//! Exchange of a token for Azure for a password of one registry.
//!
//! In: the registry's host, a token, its tenant. Out: a refresh token of the registry, or the registry's error without any token.
//! [`super::challenge`] decides which challenges are accepted.

use azure_core::{credentials::Secret, http::Url};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use serde_json::Value;

use super::challenge::{RegistryChallenge, exchange_url};
use crate::providers::azure::{
    auth::safe_line,
    transport::{ArmTransport, MaxBodySize},
};

const USER_AGENT: &str = "kubernetes-credentialprovider-acr";
/// Maximum length of the response to an exchange.
const MAX_RESPONSE: MaxBodySize = MaxBodySize(10 << 20);

/// Exchanges `token` for a refresh token of the registry `server`, as its challenge requires.
pub(super) async fn refresh_token(
    transport: &dyn ArmTransport,
    server: &str,
    tenant: &str,
    token: &Secret,
) -> Result<Secret, String> {
    let challenge = challenge(transport, server).await?;
    let url = exchange_url(&challenge.realm, server)?;
    let form = form(&challenge.service, tenant, token.secret());
    let request =
        Request::post(&url).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").extension(MAX_RESPONSE);
    let response = send(transport, request, form).await.map_err(|error| safe_line(&error, &[token.secret()]))?;
    if response.status() != StatusCode::OK {
        return Err(format!("{url} responded with HTTP {}{}", response.status(), reason(response.body(), token)));
    }
    token_in(response.body(), "refresh_token").ok_or_else(|| format!("{url} responded without a refresh_token"))
}

async fn challenge(transport: &dyn ArmTransport, server: &str) -> Result<RegistryChallenge, String> {
    let url = format!("https://{server}/v2/");
    let response = send(transport, Request::get(&url), String::new()).await.map_err(|error| safe_line(&error, &[]))?;
    if response.status() != StatusCode::UNAUTHORIZED {
        return Err(format!("{url} responded with HTTP {}; expected a challenge with 401", response.status()));
    }
    let headers = response.headers().get_all(header::WWW_AUTHENTICATE).iter();
    let texts: Option<Vec<&str>> = headers.map(|value| value.to_str().ok()).collect();
    RegistryChallenge::parse(&texts.unwrap_or_default())
}

async fn send(
    transport: &dyn ArmTransport,
    request: http::request::Builder,
    body: String,
) -> Result<Response<Bytes>, String> {
    let request =
        request.header(header::USER_AGENT, USER_AGENT).body(Bytes::from(body)).map_err(|error| error.to_string())?;
    transport.send(request).await.map_err(|error| error.to_string())
}

/// Returns the registry's reason for a refusal, with `: ` before it; empty if there is none.
fn reason(body: &[u8], token: &Secret) -> String {
    let document: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &document["errors"][0];
    let field = |name: &str| error[name].as_str().unwrap_or_default();
    match error.is_object() {
        true => format!(": {}", safe_line(&format!("{}: {}", field("code"), field("message")), &[token.secret()])),
        false => String::new(),
    }
}

/// Returns the form of an exchange. An unknown tenant is omitted.
fn form(service: &str, tenant: &str, token: &str) -> String {
    form_of(&[
        ("grant_type", "access_token_refresh_token"),
        ("service", service),
        ("tenant", tenant),
        ("access_token", token),
        ("refresh_token", token),
    ])
}

/// Returns a body of type `application/x-www-form-urlencoded`, without empty fields.
pub(super) fn form_of(fields: &[(&str, &str)]) -> String {
    let Ok(mut url) = Url::parse("https://form/") else { return String::new() };
    url.query_pairs_mut().extend_pairs(fields.iter().filter(|(_, value)| !value.is_empty()));
    url.query().unwrap_or_default().to_owned()
}

/// Returns the token in a field of a JSON object, unless it is empty.
pub(super) fn token_in(body: &[u8], field: &str) -> Option<Secret> {
    let document: Value = serde_json::from_slice(body).ok()?;
    document[field].as_str().filter(|token| !token.is_empty()).map(|token| Secret::new(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_encoded() {
        assert_eq!(
            form("a b&c", "t", "x+/="),
            "grant_type=access_token_refresh_token&service=a+b%26c&tenant=t&access_token=x%2B%2F%3D&refresh_token=x%2B%2F%3D"
        );
        assert!(!form("s", "", "x").contains("tenant"));
    }
}

//! Entra's token endpoints: grants tokens to principals.
//!
//! In: HTTP requests for `/{tenant}/oauth2/v2.0/token` and `/adfs/oauth2/token`. Out: opaque tokens that the [`Directory`]
//! remembers, or refusals as Entra words them. Pure: time is an argument, and token texts are numbered.

mod assertion;
mod directory;
mod refusal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use azure_core::http::Url;
use bytes::Bytes;
use http::{Method, Request, Response, header};
use jiff::Timestamp;
use serde_json::{Value, json};

pub use directory::{Credential, Directory, Principal, Token, TokenState};
pub use refusal::Refusal;

use assertion::Assertion;

/// Token endpoint of a tenant, or of an ADFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint<'a> {
    pub tenant: &'a str,
    /// Whether it is the endpoint of an ADFS.
    pub adfs: bool,
}

/// Returns the token endpoint a path names, if it names one.
pub fn endpoint(path: &str) -> Option<Endpoint<'_>> {
    match path.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
        ["adfs", "oauth2", "token"] => Some(Endpoint { tenant: "adfs", adfs: true }),
        [tenant, "oauth2", "v2.0", "token"] if tenant != "adfs" => Some(Endpoint { tenant, adfs: false }),
        _ => None,
    }
}

/// Returns the names and values of a query or a form.
pub fn pairs(text: &str) -> BTreeMap<String, String> {
    let url = Url::parse(&format!("https://form/?{text}"));
    url.map(|url| url.query_pairs().into_owned().collect()).unwrap_or_default()
}

/// Responds to a request for a token.
pub fn handle(
    directory: &mut Directory,
    endpoint: Endpoint<'_>,
    request: &Request<Bytes>,
    now: Timestamp,
) -> Response<Bytes> {
    let form = pairs(&String::from_utf8_lossy(request.body()));
    let issued =
        if request.method() == Method::POST { grant(directory, endpoint, &form, now) } else { Err(Refusal::method()) };
    match issued {
        Ok((token, lifetime)) => {
            let body =
                json!({"token_type": "Bearer", "expires_in": lifetime, "ext_expires_in": lifetime, "access_token": token});
            respond(200, &body)
        }
        Err(refusal) => respond(refusal.status, &refusal.body(directory.next_trace(), now)),
    }
}

/// Grants a token by the client credentials flow. Returns the token and its lifetime in seconds.
fn grant(
    directory: &mut Directory,
    endpoint: Endpoint<'_>,
    form: &BTreeMap<String, String>,
    now: Timestamp,
) -> Result<(String, i64), Refusal> {
    let field = |name: &'static str| form.get(name).filter(|text| !text.is_empty()).map(String::as_str);
    let required = |name| field(name).ok_or_else(|| Refusal::missing(name));
    match required("grant_type")? {
        "client_credentials" => {}
        other => return Err(Refusal::grant_type(other)),
    }
    let client = required("client_id")?;
    let audience = audience(endpoint, field("scope"), field("resource"))?;
    let principal = directory.principal(endpoint, client)?.clone();
    match (field("client_secret"), field("client_assertion")) {
        (Some(secret), None) => principal.check_secret(secret)?,
        (None, Some(text)) => {
            if field("client_assertion_type") != Some("urn:ietf:params:oauth:client-assertion-type:jwt-bearer") {
                return Err(Refusal::missing("client_assertion_type"));
            }
            check_assertion(&principal, endpoint, text, now)?;
        }
        _ => return Err(Refusal::no_credential()),
    }
    Ok(directory.issue(&principal, &audience, now))
}

/// Returns the resource a token is for. Entra requires it as `{resource}/.default`; an ADFS accepts it either way.
fn audience(endpoint: Endpoint<'_>, scope: Option<&str>, resource: Option<&str>) -> Result<String, Refusal> {
    match (scope, resource) {
        (Some(scope), _) => match scope.strip_suffix("/.default") {
            Some(resource) if !scope.contains(' ') => Ok(resource.to_owned()),
            _ => Err(Refusal::scope(scope)),
        },
        (None, Some(resource)) if endpoint.adfs => Ok(resource.to_owned()),
        _ => Err(Refusal::missing("scope")),
    }
}

/// Checks a projected service account token that is registered verbatim, or a token signed with a registered certificate.
fn check_assertion(principal: &Principal, endpoint: Endpoint<'_>, text: &str, now: Timestamp) -> Result<(), Refusal> {
    if principal.has_federated_token(text) {
        return Ok(());
    }
    let Some(assertion) = Assertion::parse(text) else { return Err(Refusal::malformed_assertion()) };
    if !principal.has_certificate() {
        return Err(Refusal::no_federation(assertion.claim("sub").unwrap_or_default()));
    }
    assertion.check(&principal.client_id, endpoint, now)?;
    if principal.certificates().any(|certificate| assertion.is_signed_by(certificate)) {
        Ok(())
    } else {
        Err(Refusal::signature())
    }
}

/// Returns a JSON response.
pub(in crate::sandbox::azure) fn respond(status: u16, body: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let json = http::HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

//! The part of a container registry that exchanges tokens of Entra for passwords. Pure.
//!
//! In: HTTP requests for `/v2/` and `/oauth2/exchange`. Out: a challenge; a refresh token that names its principal and its
//! registry; or a refusal as registries word it. Tokens are those of the [`Directory`].

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use jiff::Timestamp;
use serde_json::json;

use super::entra::{Directory, TokenState, pairs, respond};

/// Required audience of tokens.
const AUDIENCE: &str = "https://containerregistry.azure.net";

/// Returns the password that an application gets at a registry.
pub fn password(client_id: &str, host: &str) -> String {
    format!("sandbox-token-refresh-{client_id}-{host}")
}

/// Responds to a request to the registry called `host`.
pub fn handle(directory: &Directory, host: &str, request: &Request<Bytes>, now: Timestamp) -> Response<Bytes> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/v2/") => challenge(host),
        (&Method::POST, "/oauth2/exchange") => match exchange(directory, host, request, now) {
            Ok(password) => respond(200, &json!({"refresh_token": password})),
            Err((status, message)) => refuse(status, message),
        },
        _ => refuse(404, "no such place"),
    }
}

fn refuse(status: u16, message: &str) -> Response<Bytes> {
    respond(status, &json!({"errors": [{"code": "UNAUTHORIZED", "message": message, "detail": null}]}))
}

fn challenge(host: &str) -> Response<Bytes> {
    let mut response = refuse(401, "authentication required");
    let text = format!("Bearer realm=\"https://{host}/oauth2/token\",service=\"{host}\"");
    if let Ok(value) = HeaderValue::try_from(text) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }
    response
}

fn exchange(
    directory: &Directory,
    host: &str,
    request: &Request<Bytes>,
    now: Timestamp,
) -> Result<String, (u16, &'static str)> {
    let form = pairs(&String::from_utf8_lossy(request.body()));
    let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
    if field("grant_type") != "access_token_refresh_token" || field("access_token") != field("refresh_token") {
        return Err((400, "unsupported grant"));
    }
    if field("service") != host {
        return Err((400, "another service"));
    }
    match directory.token(field("access_token"), now) {
        TokenState::Valid(token) if token.audience != AUDIENCE => Err((401, "a token for another audience")),
        TokenState::Valid(token) if token.tenant != field("tenant") => Err((401, "a token of another tenant")),
        TokenState::Valid(token) => Ok(password(&token.client_id, host)),
        TokenState::Expired(_) => Err((401, "the token has expired")),
        TokenState::Unknown => Err((401, "no token of this directory")),
    }
}

//! Request and response of the simulator. Pure.

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use serde_json::Value;

use super::{
    options::Class,
    refusal::{FAILURE_CAUSE, Headers, Refusal},
    route::Target,
};

/// Largest body that ARM accepts. Upstream: documented limit of requests.
pub const MOST_BYTES: usize = 4 * 1024 * 1024;

/// A request for ARM.
#[derive(Debug, Clone)]
pub struct ArmRequest {
    pub method: String,
    /// Scheme and authority by which the client reached the server.
    pub origin: String,
    pub path: String,
    pub query: Vec<(String, String)>,
    /// `If-Match`.
    pub if_match: Option<String>,
    /// `If-None-Match`.
    pub if_none_match: Option<String>,
    /// Bearer token; `None` without any.
    pub token: Option<String>,
    /// Principal whose quotas it uses; the token itself if its principal is unknown.
    pub principal: String,
    pub body: Bytes,
}

fn text(headers: &HeaderMap, name: &header::HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Returns the host that a request is for, lower-case, without port; empty if the request names none.
pub fn host(request: &Request<Bytes>) -> String {
    let authority = request.uri().authority().map(ToString::to_string).or_else(|| text(request.headers(), &header::HOST));
    let authority = authority.unwrap_or_default().to_ascii_lowercase();
    let end = authority.rfind(':').filter(|colon| !authority[*colon..].contains(']'));
    end.map_or_else(|| authority.clone(), |colon| authority[..colon].to_owned())
}

impl ArmRequest {
    /// Parses an HTTP request for ARM.
    pub fn new(request: &Request<Bytes>) -> Self {
        let (uri, headers) = (request.uri(), request.headers());
        let authority = uri.authority().map(ToString::to_string).or_else(|| text(headers, &header::HOST));
        let origin = format!("{}://{}", uri.scheme_str().unwrap_or("https"), authority.unwrap_or_default());
        let query = reqwest::Url::parse(&format!("http://q/?{}", uri.query().unwrap_or_default()))
            .map(|url| url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
            .unwrap_or_default();
        let token = text(headers, &header::AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
        });
        Self {
            method: request.method().as_str().to_owned(),
            origin,
            path: uri.path().to_owned(),
            query,
            if_match: text(headers, &header::IF_MATCH),
            if_none_match: text(headers, &header::IF_NONE_MATCH),
            principal: token.clone().unwrap_or_default(),
            token: token.filter(|token| !token.is_empty()),
            body: request.body().clone(),
        }
    }

    /// Returns a query parameter, by its name in any letter case.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns the body, which must be a JSON object.
    pub fn document(&self) -> Result<Value, Refusal> {
        let refuse = |reason: String| {
            Refusal::invalid(
                "InvalidRequestContent",
                format!("The request content was invalid and could not be deserialized: '{reason}'."),
            )
        };
        let value: Value = serde_json::from_slice(&self.body).map_err(|error| refuse(error.to_string()))?;
        if value.is_object() { Ok(value) } else { Err(refuse("not an object".to_owned())) }
    }

    /// Returns the URL of the page after `last`.
    pub fn next_link(&self, last: &str) -> String {
        let Ok(mut url) = reqwest::Url::parse(&format!("{}{}", self.origin, self.path)) else { return String::new() };
        let retained = self.query.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("$skiptoken"));
        url.query_pairs_mut().extend_pairs(retained).append_pair("$skiptoken", last);
        url.into()
    }
}

/// Returns the class of a request. `target` is the subject of its path.
pub fn class(method: &str, target: Option<&Target>) -> Class {
    match (method, target) {
        ("GET" | "HEAD", Some(Target::Operation { .. })) => Class::Poll,
        ("GET" | "HEAD", _) => Class::Read,
        ("DELETE", _) => Class::Delete,
        _ => Class::Write,
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub status: u16,
    /// Headers in addition to those of every response.
    pub headers: Headers,
    /// Body of the response; `None` if it is empty.
    pub body: Option<Value>,
}

impl Answer {
    /// Creates a response with a body.
    pub fn new(status: u16, body: Value) -> Self {
        Self { status, headers: Headers::new(), body: Some(body) }
    }

    /// Creates a response without a body.
    pub fn empty(status: u16) -> Self {
        Self { status, headers: Headers::new(), body: None }
    }

    /// Creates the response of a refusal.
    pub fn refused(refusal: &Refusal) -> Self {
        let mut response = Self::new(refusal.status, refusal.body());
        if !refusal.is_of_provider && !refusal.headers.iter().any(|(name, _)| *name == FAILURE_CAUSE) {
            response.headers.push((FAILURE_CAUSE, "gateway".to_owned()));
        }
        response.headers.extend(refusal.headers.iter().cloned());
        response.headers.extend(refusal.retry_after.map(|seconds| ("retry-after", seconds.to_string())));
        if refusal.status == 401 {
            let challenge = "Bearer authorization_uri=\"https://login.microsoftonline.com/\", error=\"invalid_token\"";
            response.headers.push(("www-authenticate", challenge.to_owned()));
        }
        response
    }

    /// Returns the HTTP response; `number` distinguishes requests in `x-ms-request-id` and similar headers.
    pub fn response(self, number: u64) -> Response<Bytes> {
        let body = self.body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let id = format!("00000000-0000-4000-a000-{number:012x}");
        let standard = [("x-ms-request-id", id.clone()), ("x-ms-correlation-request-id", id)];
        for (name, value) in self.headers.into_iter().chain(standard) {
            if let Ok(value) = value.parse() {
                response.headers_mut().append(name, value);
            }
        }
        if !response.body().is_empty() {
            let json = header::HeaderValue::from_static("application/json; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
        }
        response
    }
}

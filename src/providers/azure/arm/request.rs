//! HTTP request in the form that ARM requires. Pure.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, header};
use reqwest::Url;

use super::{budget::RequestCharge, classify::RequestLine, operation_length::OperationName};
use crate::providers::azure::{
    model::{ApiType, ArmError, ArmErrorClass, ArmResult},
    transport::MaxBodySize,
};

/// Request without the parts that differ between attempts.
#[derive(Debug, Clone)]
pub(super) struct RequestTemplate {
    pub(super) kind: &'static ApiType,
    /// Name of the call in metrics.
    pub(super) call: &'static str,
    pub(super) method: Method,
    pub(super) url: Url,
    /// Header of the precondition.
    pub(super) condition: Option<(HeaderName, String)>,
    /// Document as JSON; empty for a request without a body.
    pub(super) body: Bytes,
}

/// Tokens of one attempt. Without `Debug`, so that no log contains them.
pub(super) struct RequestTokens {
    pub(super) bearer: String,
    pub(super) auxiliary: Option<String>,
}

impl RequestTokens {
    /// Returns the tokens that are not empty.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        let both = [Some(self.bearer.as_str()), self.auxiliary.as_deref()];
        both.into_iter().flatten().filter(|token| !token.is_empty())
    }
}

impl RequestTemplate {
    pub(super) fn request_line(&self) -> RequestLine<'_> {
        RequestLine { method: &self.method, path: self.url.path() }
    }

    pub(super) fn charge(&self) -> RequestCharge {
        RequestCharge::of(self.kind, &self.method, self.url.path())
    }

    /// Returns the kind of resource and the call, without the resource.
    pub(super) fn operation(&self) -> OperationName {
        (self.kind.metric, self.call)
    }

    /// Returns a read of another URL on behalf of this request.
    pub(super) fn read_at(&self, url: Url) -> Self {
        Self { method: Method::GET, url, condition: None, body: Bytes::new(), ..self.clone() }
    }

    /// Returns the HTTP request. `id` identifies this attempt in ARM's logs.
    pub(super) fn http_request(&self, user_agent: &str, tokens: &RequestTokens, id: &str) -> ArmResult<Request<Bytes>> {
        let mut request = Request::new(self.body.clone());
        *request.method_mut() = self.method.clone();
        request.extensions_mut().insert(MaxBodySize::ARM);
        *request.uri_mut() = self.url.as_str().parse().map_err(|_| self.unsendable("the URL"))?;
        let mut set = |name: HeaderName, value: &str, subject: &str, is_secret: bool| {
            let mut value = HeaderValue::from_str(value).map_err(|_| self.unsendable(subject))?;
            value.set_sensitive(is_secret);
            request.headers_mut().insert(name, value);
            Ok::<_, ArmError>(())
        };
        set(header::USER_AGENT, user_agent, "userAgent", false)?;
        set(header::ACCEPT, "application/json", "Accept", false)?;
        set(header::AUTHORIZATION, &format!("Bearer {}", tokens.bearer), "the token", true)?;
        if let Some(token) = &tokens.auxiliary {
            let name = HeaderName::from_static("x-ms-authorization-auxiliary");
            set(name, &format!("Bearer {token}"), "the auxiliary token", true)?;
        }
        if !self.body.is_empty() {
            set(header::CONTENT_TYPE, "application/json", "Content-Type", false)?;
        }
        if let Some((name, value)) = &self.condition {
            set(name.clone(), value, "the etag", false)?;
        }
        set(HeaderName::from_static("x-ms-client-request-id"), id, "the request id", false)?;
        set(HeaderName::from_static("x-ms-return-client-request-id"), "true", "a header", false)?;
        Ok(request)
    }

    fn unsendable(&self, subject: &str) -> ArmError {
        self.request_line().error(
            ArmErrorClass::Invalid,
            format!("{subject} contains characters that HTTP does not allow; nothing was sent"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::{arm::Precondition, model::api};

    fn template() -> RequestTemplate {
        RequestTemplate {
            kind: &api::LOAD_BALANCERS,
            call: "create_or_update",
            method: Method::PUT,
            url: Url::parse("https://arm.example/subscriptions/s/x?api-version=1").unwrap(),
            condition: Precondition::Version("W/\"1\"").header(),
            body: Bytes::from_static(b"{}"),
        }
    }

    fn tokens() -> RequestTokens {
        RequestTokens { bearer: "hunter2".into(), auxiliary: Some("hunter3".into()) }
    }

    #[test]
    fn a_write_has_all_headers() {
        let request = template().http_request("agent/1 (x)", &tokens(), "id-1").unwrap();
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("-");
        for (name, value) in [
            ("user-agent", "agent/1 (x)"),
            ("accept", "application/json"),
            ("authorization", "Bearer hunter2"),
            ("x-ms-authorization-auxiliary", "Bearer hunter3"),
            ("content-type", "application/json"),
            ("if-match", "W/\"1\""),
            ("x-ms-client-request-id", "id-1"),
            ("x-ms-return-client-request-id", "true"),
        ] {
            assert_eq!(header(name), value, "{name}");
        }
        assert!(!format!("{request:?}").contains("hunter"), "tokens are marked as sensitive");
        assert_eq!(MaxBodySize::of(&request), MaxBodySize::ARM, "a list is longer than a token");
    }

    #[test]
    fn a_read_on_behalf_of_a_write_has_no_condition() {
        let read = template().read_at(Url::parse("https://arm.example/operations/1").unwrap());
        let request = read.http_request("agent", &RequestTokens { bearer: "t".into(), auxiliary: None }, "id").unwrap();
        assert_eq!((request.method(), request.uri().path()), (&Method::GET, "/operations/1"));
        assert!(request.body().is_empty());
        for absent in ["if-match", "content-type", "x-ms-authorization-auxiliary"] {
            assert!(!request.headers().contains_key(absent), "{absent}");
        }
    }

    #[test]
    fn an_invalid_header_is_named_but_not_shown() {
        let error = template()
            .http_request("agent", &RequestTokens { bearer: "hunter2\n".into(), auxiliary: None }, "id")
            .unwrap_err();
        assert!(error.message.starts_with("the token contains") && !error.to_string().contains("hunter2"), "{error}");
        let error = template().http_request("agent\r\nx: y", &tokens(), "id").unwrap_err();
        assert!(error.message.starts_with("userAgent contains"), "{error}");
    }
}

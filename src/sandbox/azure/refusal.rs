//! Why ARM refuses a request: status, code and text as Azure sends them.

use serde_json::{Value, json};

use crate::providers::azure::arm::ResourceId;

/// Names and values of response headers.
pub type Headers = Vec<(&'static str, String)>;

/// Says whether ARM refused (`gateway`) or a provider (`service`).
pub const FAILURE_CAUSE: &str = "x-ms-failure-cause";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// `error.code`.
    pub code: String,
    /// `error.message`.
    pub message: String,
    /// Seconds of `Retry-After`.
    pub retry_after: Option<u64>,
    /// Further headers.
    pub headers: Headers,
}

impl Refusal {
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), message: message.into(), retry_after: None, headers: Headers::new() }
    }

    /// The same with `Retry-After`.
    pub fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// The same, said by a resource provider and not by ARM, with these headers.
    pub fn by_provider(mut self, headers: Headers) -> Self {
        if !self.headers.iter().any(|(name, _)| *name == FAILURE_CAUSE) {
            self.headers.push((FAILURE_CAUSE, "service".to_owned()));
        }
        self.headers.extend(headers);
        self
    }

    /// 400: the document cannot be accepted.
    pub fn invalid(code: &str, message: impl Into<String>) -> Self {
        Self::new(400, code, message)
    }

    /// 404 of a document.
    pub fn resource_not_found(id: &ResourceId) -> Self {
        let kind = id.resource_type();
        let group = id.resource_group().unwrap_or_default();
        let message = format!(
            "The Resource '{kind}/{}' under resource group '{group}' was not found. For more details please go to \
             https://aka.ms/ARMResourceNotFoundFix",
            id.name()
        );
        Self::new(404, "ResourceNotFound", message)
    }

    /// 404 of a part of a document, or of an instance of a scale set.
    pub fn not_found(id: &ResourceId) -> Self {
        Self::new(404, "NotFound", format!("Resource {id} not found."))
    }

    /// 404: the document that this one is a part of is missing.
    pub fn parent_not_found(id: &ResourceId, parent: &ResourceId) -> Self {
        let kind = id.resource_type();
        let kind = kind.split_once('/').map_or(kind.as_str(), |(_, kind)| kind);
        let message = format!(
            "Failed to perform 'request' on resource(s) of type '{kind}', because the parent resource '{parent}' could not be found."
        );
        Self::new(404, "ParentResourceNotFound", message)
    }

    /// 404 of a resource group.
    pub fn group_not_found(group: &str) -> Self {
        Self::new(404, "ResourceGroupNotFound", format!("Resource group '{group}' could not be found."))
    }

    /// 404 of a subscription.
    pub fn subscription_not_found(subscription: &str) -> Self {
        Self::new(404, "SubscriptionNotFound", format!("The subscription '{subscription}' could not be found."))
    }

    /// 404 of a type or path.
    pub fn no_such_type(kind: &str) -> Self {
        Self::new(404, "InvalidResourceType", format!("The resource type '{kind}' could not be found."))
    }

    /// 413.
    pub fn too_large() -> Self {
        Self::new(413, "RequestContentTooLarge", "The request content size exceeds the maximum size of 4 MB.")
    }

    /// 405.
    pub fn method_not_allowed(method: &str) -> Self {
        Self::new(405, "MethodNotAllowed", format!("The HTTP method '{method}' is not supported on this resource."))
    }

    /// 401 without a token, or with one that is not accepted.
    pub fn unauthenticated(why: &str) -> Self {
        Self::new(
            401,
            if why.is_empty() { "AuthenticationFailed" } else { "InvalidAuthenticationToken" },
            match why {
                "" => "Authentication failed. The 'Authorization' header is missing.".to_owned(),
                why => format!("The access token is invalid: {why}"),
            },
        )
    }

    /// 401: the token was good until now.
    pub fn expired_token() -> Self {
        let message = "The access token has expired. Please obtain a new one.";
        Self::new(401, "ExpiredAuthenticationToken", message)
    }

    /// 403: no role assignment allows this.
    pub fn forbidden(action: &str, scope: &str) -> Self {
        let client = "00000000-0000-0000-0000-00000000c11e";
        let message = format!(
            "The client '{client}' with object id '{client}' does not have authorization to perform action '{action}' over scope \
             '{scope}' or the scope is invalid. If access was recently granted, please refresh your credentials."
        );
        Self::new(403, "AuthorizationFailed", message)
    }

    /// 412: somebody else wrote in between.
    pub fn precondition_failed(id: &ResourceId, etag: &str) -> Self {
        let message = format!(
            "The resource {id} has an etag {etag} which doesn't match the etag in the If-Match condition specified by the client."
        );
        Self::new(412, "PreconditionFailed", message)
    }

    /// 400: a document refers to something that does not exist.
    pub fn dangling(from: &str, to: &str) -> Self {
        let message = format!(
            "Resource {to} referenced by resource {from} was not found. Please make sure that the referenced resource exists, and \
             that both resources are in the same region."
        );
        Self::invalid("InvalidResourceReference", message)
    }

    /// Body of the answer.
    pub fn body(&self) -> Value {
        json!({"error": {"code": self.code, "message": self.message, "details": []}})
    }
}

//! Refusals of ARM: status, code and text as Azure sends them.

use serde_json::{Value, json};

use crate::providers::azure::model::ResourceId;

/// Names and values of response headers.
pub type Headers = Vec<(&'static str, String)>;

/// Header that names the origin of a refusal: ARM (`gateway`) or a provider (`service`).
pub const FAILURE_CAUSE: &str = "x-ms-failure-cause";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// `error.code`.
    pub code: String,
    /// `error.message`.
    pub message: String,
    /// Value of `Retry-After` in seconds.
    pub retry_after: Option<u64>,
    pub headers: Headers,
    /// Code and message in `error.details`.
    pub detail: Option<Box<(&'static str, String)>>,
    /// Whether a resource provider responds, so that no header names ARM as the cause.
    pub is_of_provider: bool,
}

impl Refusal {
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.to_owned(),
            message: message.into(),
            retry_after: None,
            headers: Headers::new(),
            detail: None,
            is_of_provider: false,
        }
    }

    /// Adds `Retry-After` to the refusal.
    pub fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// Marks the refusal as that of a resource provider, without a header for it.
    fn in_provider(self) -> Self {
        Self { is_of_provider: true, ..self }
    }

    /// Marks the refusal as that of a resource provider and not of ARM, with these headers.
    pub fn by_provider(mut self, headers: Headers) -> Self {
        if !self.headers.iter().any(|(name, _)| *name == FAILURE_CAUSE) {
            self.headers.push((FAILURE_CAUSE, "service".to_owned()));
        }
        self.headers.extend(headers);
        self
    }

    /// Returns 400: the document cannot be accepted.
    pub fn invalid(code: &str, message: impl Into<String>) -> Self {
        Self::new(400, code, message)
    }

    /// Returns the 404 of a document.
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

    /// Returns the 404 of a part of a document, or of an instance of a scale set.
    pub fn not_found(id: &ResourceId) -> Self {
        Self::new(404, "NotFound", format!("Resource {id} not found.")).in_provider()
    }

    /// Returns the 400 of an instance of a scale set whose ID is not a number.
    pub fn instance_id() -> Self {
        Self::invalid("InvalidParameter", "Virtual Machine Scale Set VM instanceId must be a number.").in_provider()
    }

    /// Returns 404: the document that contains this part is missing.
    pub fn parent_not_found(id: &ResourceId, parent: &ResourceId) -> Self {
        let kind = id.resource_type();
        let kind = kind.split_once('/').map_or(kind.as_str(), |(_, kind)| kind);
        let message = format!(
            "Failed to perform 'request' on resource(s) of type '{kind}', because the parent resource '{parent}' could not be found."
        );
        Self::new(404, "ParentResourceNotFound", message)
    }

    /// Returns the 404 of a resource group.
    pub fn group_not_found(group: &str) -> Self {
        Self::new(404, "ResourceGroupNotFound", format!("Resource group '{group}' could not be found."))
    }

    /// Returns the 404 of a subscription.
    pub fn subscription_not_found(subscription: &str) -> Self {
        Self::new(404, "SubscriptionNotFound", format!("The subscription '{subscription}' could not be found."))
    }

    /// Returns the 404 of a type or path.
    pub fn no_such_type(kind: &str) -> Self {
        Self::new(404, "InvalidResourceType", format!("The resource type '{kind}' could not be found."))
    }

    pub fn too_large() -> Self {
        Self::new(413, "RequestContentTooLarge", "The request content size exceeds the maximum size of 4 MB.")
    }

    pub fn method_not_allowed(method: &str) -> Self {
        Self::new(405, "MethodNotAllowed", format!("The HTTP method '{method}' is not supported on this resource."))
    }

    /// Returns the 401 without a token, or with an invalid one.
    pub fn unauthenticated(reason: &str) -> Self {
        Self::new(
            401,
            if reason.is_empty() { "AuthenticationFailed" } else { "InvalidAuthenticationToken" },
            match reason {
                "" => "Authentication failed. The 'Authorization' header is missing.".to_owned(),
                reason => format!("The access token is invalid: {reason}"),
            },
        )
    }

    /// Returns 401: the token has expired.
    pub fn expired_token() -> Self {
        let message = "The access token has expired. Please obtain a new one.";
        Self::new(401, "ExpiredAuthenticationToken", message)
    }

    /// Returns 403: no role assignment allows this.
    pub fn forbidden(action: &str, scope: &str) -> Self {
        let client = "00000000-0000-0000-0000-00000000c11e";
        let message = format!(
            "The client '{client}' with object id '{client}' does not have authorization to perform action '{action}' over scope \
             '{scope}' or the scope is invalid. If access was recently granted, please refresh your credentials."
        );
        Self::new(403, "AuthorizationFailed", message)
    }

    /// Returns 412: another writer changed the document in between. Upstream: `pkg/azclient/*/testdata`, where compute has
    /// no details.
    pub fn precondition_failed(id: &ResourceId, sent: &str, etag: &str) -> Self {
        let mismatch = format!("Etag provided in if-match header {sent} does not match etag {etag} of resource");
        let refusal = if id.resource_type().starts_with("Microsoft.Compute/") {
            Self::new(412, "PreconditionFailed", format!("{mismatch}."))
        } else {
            let detail = ("PreconditionFailedEtagMismatch", format!("{mismatch} {id} in NRP data store."));
            Self { detail: Some(Box::new(detail)), ..Self::new(412, "PreconditionFailed", "Precondition failed.") }
        };
        refusal.in_provider()
    }

    /// Returns 400: a document refers to something that does not exist.
    pub fn dangling(from: &str, to: &str) -> Self {
        let message = format!(
            "Resource {to} referenced by resource {from} was not found. Please make sure that the referenced resource exists, and \
             that both resources are in the same region."
        );
        Self::invalid("InvalidResourceReference", message)
    }

    /// Returns the body of the response.
    pub fn body(&self) -> Value {
        let details: Vec<Value> = self
            .detail
            .iter()
            .map(|detail| &**detail)
            .map(|(code, message)| json!({"code": code, "message": message}))
            .collect();
        json!({"error": {"code": self.code, "message": self.message, "details": details}})
    }
}

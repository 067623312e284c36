//! What one request counts against.

use super::super::{ApiType, Quota};

/// What a request does, as ARM counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// GET and HEAD, lists and polls too.
    Read,
    /// PUT, PATCH and POST.
    Write,
    /// DELETE.
    Delete,
}

impl Operation {
    /// What a method does.
    pub fn of(method: &http::Method) -> Self {
        match *method {
            http::Method::GET | http::Method::HEAD => Self::Read,
            http::Method::DELETE => Self::Delete,
            _ => Self::Write,
        }
    }
}

/// What one request counts against. Every page of a list, every try and every poll is a request of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// Subscription in the path, lower-cased; empty when there is none.
    pub subscription: String,
    /// Provider's quota.
    pub quota: Quota,
    /// What it does.
    pub operation: Operation,
    /// Key of the resource that compute counts for: the machine or scale set in the path, as a lower-cased id.
    pub resource: Option<String>,
    /// [`ApiType::metric`], which selects the rate limit of the configuration.
    pub client: &'static str,
}

impl Charge {
    /// The charge of a request for `kind` at `path`; `path` is what follows the host, with or without a query.
    pub fn of(kind: &ApiType, method: &http::Method, path: &str) -> Self {
        let path = path.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
        let segments: Vec<&str> = path.trim_start_matches('/').splitn(10, '/').collect();
        let resource = match segments.as_slice() {
            ["subscriptions", _, "resourcegroups", _, "providers", "microsoft.compute", _, name, ..] if !name.is_empty() => {
                Some(format!("/{}", segments[..8].join("/")))
            }
            _ => None,
        };
        let subscription = match segments.as_slice() {
            ["subscriptions", subscription, ..] => (*subscription).to_owned(),
            _ => String::new(),
        };
        let resource = resource.filter(|_| kind.quota == Quota::Compute);
        Self { subscription, quota: kind.quota, operation: Operation::of(method), resource, client: kind.metric }
    }
}

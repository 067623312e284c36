//! Parses HTTP requests: paths, verbs, query parameters and accepted representations. Pure. Upstream: apiserver
//! `pkg/endpoints/request/requestinfo.go`.

use std::{collections::HashMap, fmt, time::Duration};

use axum::extract::Query;
use http::{HeaderMap, Method, Uri, header};

use super::{
    kinds::{self, Kind},
    refusal::Refusal,
};

/// Operation on a resource, in the words of RBAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// Returns the verb as in RBAC rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    /// Returns `true` if it changes anything.
    pub fn is_write(self) -> bool {
        !matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }

    fn of(method: &Method, named: bool, watch: bool) -> Option<Self> {
        match (method.as_str(), named) {
            ("GET", _) if watch => Some(Verb::Watch),
            ("GET", true) => Some(Verb::Get),
            ("GET", false) => Some(Verb::List),
            ("POST", _) => Some(Verb::Create),
            ("PUT", true) => Some(Verb::Update),
            ("PATCH", true) => Some(Verb::Patch),
            ("DELETE", true) => Some(Verb::Delete),
            ("DELETE", false) => Some(Verb::DeleteCollection),
            _ => None,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Representation of objects that the client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Representation {
    /// Full objects, the default.
    #[default]
    Full,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `Table` objects, as kubectl requests them.
    Table,
}

impl Representation {
    /// Returns the first one of the `Accept` header that the server has.
    pub fn of_accept(accept: &str) -> Self {
        let accepted = accept.split(',').find_map(|part| match part {
            _ if part.contains("as=Table") => Some(Representation::Table),
            _ if part.contains("as=PartialObjectMetadata") => Some(Representation::Metadata),
            _ if part.trim().starts_with("application/json") || part.contains("*/*") => Some(Representation::Full),
            _ => None,
        });
        accepted.unwrap_or_default()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters(HashMap<String, String>);

impl Parameters {
    /// Parses the query parameters of a URI.
    pub fn of(uri: &Uri) -> Self {
        Self(Query::try_from_uri(uri).map(|Query(parameters)| parameters).unwrap_or_default())
    }
    /// Returns a parameter; empty if it is missing.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.text(name), "true" | "1" | "True")
    }
    /// Returns a number; `None` if it is missing.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        match self.text(name) {
            "" => Ok(None),
            text => {
                let refused = |_| Refusal::bad_request(format!("{name} is {text:?}; it must be a whole number"));
                text.parse().map(Some).map_err(refused)
            }
        }
    }
    /// Returns a number of seconds.
    pub fn seconds(&self, name: &str) -> Result<Option<Duration>, Refusal> {
        Ok(self.number(name)?.map(Duration::from_secs))
    }
}

/// A request for objects.
#[derive(Debug, Clone)]
pub struct ResourceRequest {
    pub verb: Verb,
    pub kind: &'static Kind,
    /// Namespace; `None` for all of them, or for a kind without.
    pub namespace: Option<String>,
    /// Name of the object; `None` for all.
    pub name: Option<String>,
    /// `status`, `token`, …; empty for the object itself.
    pub subresource: String,
    pub parameters: Parameters,
    pub representation: Representation,
}

/// A review of a token or of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Review {
    Token,
    SubjectAccess,
    SelfSubjectAccess,
}

/// Subject of a request.
#[derive(Debug, Clone)]
pub enum Route {
    Resource(ResourceRequest),
    /// Review of a token or of an access.
    Review(Review),
    /// Discovery, version and health.
    Document(String),
}

/// Parses a request for objects, for a review, or for a document.
pub fn route(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Route, Refusal> {
    let segments: Vec<&str> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
    match segments.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => resource(method, uri, headers, ("", version), rest),
        ["apis", "authentication.k8s.io", "v1", "tokenreviews"] => review(method, Review::Token),
        ["apis", "authorization.k8s.io", "v1", "subjectaccessreviews"] => review(method, Review::SubjectAccess),
        ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"] => review(method, Review::SelfSubjectAccess),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => resource(method, uri, headers, (group, version), rest),
        _ if method == Method::GET => Ok(Route::Document(uri.path().to_owned())),
        _ => Err(Refusal::method_not_allowed()),
    }
}

fn review(method: &Method, review: Review) -> Result<Route, Refusal> {
    if method == Method::POST { Ok(Route::Review(review)) } else { Err(Refusal::method_not_allowed()) }
}

fn resource(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    (group, version): (&str, &str),
    rest: &[&str],
) -> Result<Route, Refusal> {
    let (namespace, plural, rest) = match rest {
        ["namespaces", _, "status"] => (None, "namespaces", &rest[1..]),
        ["namespaces", namespace, plural, rest @ ..] => (Some(*namespace), *plural, rest),
        [plural, rest @ ..] => (None, *plural, rest),
        [] => return Err(Refusal::no_such_path()),
    };
    let kind = kinds::by_plural(group, version, plural).ok_or_else(Refusal::no_such_path)?;
    let (name, subresource) = match rest {
        [] => (None, ""),
        [name] => (Some(*name), ""),
        [name, subresource] => (Some(*name), *subresource),
        _ => return Err(Refusal::no_such_path()),
    };
    check_subresource(kind, subresource)?;
    if (namespace.is_some() && !kind.namespaced) || (namespace.is_none() && kind.namespaced && name.is_some()) {
        return Err(Refusal::no_such_path());
    }
    let parameters = Parameters::of(uri);
    let verb = Verb::of(method, name.is_some(), parameters.flag("watch")).ok_or_else(Refusal::method_not_allowed)?;
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Ok(Route::Resource(ResourceRequest {
        verb,
        kind,
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
        subresource: subresource.to_owned(),
        parameters,
        representation: Representation::of_accept(accept),
    }))
}

fn check_subresource(kind: &Kind, subresource: &str) -> Result<(), Refusal> {
    let accepted = match subresource {
        "" => true,
        "status" => kind.status,
        "token" => kind.plural == kinds::SERVICE_ACCOUNT.plural,
        _ => false,
    };
    if accepted { Ok(()) } else { Err(Refusal::no_such_path()) }
}

//! Whether the caller may read a page: group `system:masters`, always-allowed paths, then the API server's word.
//!
//! In: a user, a verb and a path. Out: a [`Decision`]. The order is that of `DelegatingAuthorizationOptions` in
//! `k8s.io/apiserver/pkg/server/options/authorization.go`; the question is a SubjectAccessReview with non-resource attributes.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, Client};
use tokio::time::Instant;

use super::{ServingError, authentication::User, cache::Cache, config::AuthorizationConfig, delegate::Delegate};
use crate::metrics::Metrics;

/// Members may do everything.
const PRIVILEGED_GROUP: &str = "system:masters";

/// The outcome of authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// Go ahead.
    Allow,
    /// No, and someone said so.
    Deny(String),
    /// Nobody allowed it.
    NoOpinion(String),
}

impl Decision {
    fn label(&self) -> &'static str {
        match self {
            Decision::Allow => "allowed",
            Decision::Deny(_) => "denied",
            Decision::NoOpinion(_) => "no-opinion",
        }
    }
}

/// The part that needs no API server. `None` means it has to be asked.
fn decide_locally(user: &User, path: &str, always_allow: &[String]) -> Option<Decision> {
    let privileged = user.groups.iter().any(|group| group == PRIVILEGED_GROUP);
    (privileged || always_allow.iter().any(|pattern| path_matches(pattern, path))).then_some(Decision::Allow)
}

/// A pattern is a path, or ends in `*` and is a prefix. A leading slash does not matter, as upstream.
fn path_matches(pattern: &str, path: &str) -> bool {
    let pattern = pattern.strip_prefix('/').unwrap_or(pattern);
    let path = path.strip_prefix('/').unwrap_or(path);
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == pattern,
    }
}

/// A `*` may only stand at the end.
pub(super) fn validate_paths(paths: &[String]) -> Result<(), ServingError> {
    match paths.iter().find(|path| path.strip_suffix('*').unwrap_or(path).contains('*')) {
        None => Ok(()),
        Some(path) => Err(ServingError::setting(
            "authorization-always-allow-paths",
            format!(
                "{path:?} has a '*' that is not at the end; accepted: a path such as /healthz, or a prefix such as /debug/*"
            ),
        )),
    }
}

/// The question to the API server.
fn review(user: &User, verb: &str, path: &str) -> SubjectAccessReview {
    let spec = SubjectAccessReviewSpec {
        user: Some(user.name.clone()),
        uid: (!user.uid.is_empty()).then(|| user.uid.clone()),
        groups: Some(user.groups.clone()),
        extra: (!user.extra.is_empty()).then(|| user.extra.clone()),
        non_resource_attributes: Some(NonResourceAttributes { path: Some(path.to_owned()), verb: Some(verb.to_owned()) }),
        ..Default::default()
    };
    SubjectAccessReview { spec, ..Default::default() }
}

/// What the API server's answer means.
fn decision(answer: SubjectAccessReview) -> Decision {
    let status = answer.status.unwrap_or_default();
    let reason = status.reason.unwrap_or_default();
    match (status.allowed, status.denied.unwrap_or(false)) {
        (_, true) => Decision::Deny(reason),
        (true, false) => Decision::Allow,
        (false, false) => Decision::NoOpinion(reason),
    }
}

/// Decides, remembering the API server's answers for a while.
pub(super) struct Authorizer {
    always_allow: Vec<String>,
    api: Option<Api<SubjectAccessReview>>,
    delegate: Delegate,
    cache: Cache<String, Decision>,
    authorized_ttl: Duration,
    unauthorized_ttl: Duration,
    metrics: Arc<Metrics>,
}

impl Authorizer {
    pub(super) fn new(config: &AuthorizationConfig, client: Option<Client>, metrics: &Arc<Metrics>) -> Arc<Self> {
        let (requests, duration) = (&metrics.delegated_authz_request_total, &metrics.delegated_authz_request_duration);
        Arc::new(Self {
            always_allow: config.always_allow_paths.clone(),
            api: client.map(Api::all),
            delegate: Delegate::new(requests.clone(), duration.clone()),
            cache: Cache::new(),
            authorized_ttl: config.authorized_ttl,
            unauthorized_ttl: config.unauthorized_ttl,
            metrics: Arc::clone(metrics),
        })
    }

    /// Decides; an error means that the API server gave no answer.
    pub(super) async fn authorize(&self, user: &User, verb: &str, path: &str) -> Result<Decision, String> {
        let start = Instant::now();
        let result = match decide_locally(user, path, &self.always_allow) {
            Some(decision) => Ok(decision),
            None => self.ask(user, verb, path).await,
        };
        let label = result.as_ref().map_or("error", Decision::label);
        self.metrics.authorization_attempts_total.with_label_values(&[label]).inc();
        self.metrics.authorization_duration.with_label_values(&[label]).observe(start.elapsed().as_secs_f64());
        result
    }

    async fn ask(&self, user: &User, verb: &str, path: &str) -> Result<Decision, String> {
        let Some(api) = &self.api else { return Ok(Decision::NoOpinion(String::new())) };
        let question = review(user, verb, path);
        let key = serde_json::to_string(&question.spec).map_err(|error| error.to_string())?;
        if let Some(known) = self.cache.get(&key, Instant::now()) {
            return Ok(known);
        }
        let answer = self.delegate.create(api, &question).await;
        let decision = decision(answer.map_err(|failure| format!("cannot create a SubjectAccessReview: {failure}"))?);
        let ttl = if decision == Decision::Allow { self.authorized_ttl } else { self.unauthorized_ttl };
        self.cache.insert(key, decision.clone(), Instant::now(), ttl);
        Ok(decision)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authorization::v1::SubjectAccessReviewStatus;

    use super::*;

    #[test]
    fn paths() {
        let rows = [
            ("/healthz", "/healthz", true),
            ("healthz", "/healthz", true),
            ("/healthz", "/healthz/ping", false),
            ("/healthz/*", "/healthz/ping", true),
            ("/healthz/*", "/healthz", false),
            ("/healthz*", "/healthz", true),
            ("*", "/metrics", true),
            ("", "/metrics", false),
        ];
        for (pattern, path, expected) in rows {
            assert_eq!(path_matches(pattern, path), expected, "{pattern} {path}");
        }
        let list = |path: &str| [path.to_owned()];
        for path in ["/a", "/a*", "/a/*", "*"] {
            assert!(validate_paths(&list(path)).is_ok(), "{path}");
        }
        for path in ["/a*b", "*a", "/a**"] {
            assert!(validate_paths(&list(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn local_decisions() {
        let user = |group: &str| User { groups: vec![group.to_owned()], ..Default::default() };
        let always = AuthorizationConfig::default().always_allow_paths;
        let rows = [
            ("system:masters", "/metrics", Some(Decision::Allow)),
            ("system:unauthenticated", "/healthz", Some(Decision::Allow)),
            ("system:unauthenticated", "/readyz/service", None),
            ("system:authenticated", "/metrics", None),
        ];
        for (group, path, expected) in rows {
            assert_eq!(decide_locally(&user(group), path, &always), expected, "{group} {path}");
        }
    }

    #[test]
    fn answers() {
        let rows = [
            (true, None, Decision::Allow),
            (false, None, Decision::NoOpinion("r".to_owned())),
            (false, Some(true), Decision::Deny("r".to_owned())),
            (true, Some(true), Decision::Deny("r".to_owned())),
        ];
        for (allowed, denied, expected) in rows {
            let status = SubjectAccessReviewStatus { allowed, denied, reason: Some("r".to_owned()), evaluation_error: None };
            let answer = SubjectAccessReview { status: Some(status), ..Default::default() };
            assert_eq!(decision(answer), expected);
        }
        assert_eq!(decision(SubjectAccessReview::default()), Decision::NoOpinion(String::new()));
    }
}

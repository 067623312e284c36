//! Authorizes callers to read a page: group `system:masters`, always-allowed paths, then the API server's decision.
//!
//! In: a user, a verb and a path, all bounded before. Out: an [`AuthorizationDecision`]. Reviews for anonymous callers have
//! a separate budget and cache, so that they neither delay nor displace those of others. While too many reviews wait,
//! an expired permission is used for a little longer. The order is that of `DelegatingAuthorizationOptions` in
//! `k8s.io/apiserver/pkg/server/options/authorization.go`; the request is a SubjectAccessReview with non-resource
//! attributes.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, Client};
use tokio::time::Instant;

use super::{
    authentication::RequestUser,
    authorized_networks::AuthorizedNetworks,
    config::DelegatedAuthorizationConfig,
    peer_network::PeerNetwork,
    review_budget::{self, CredentialBudgets, ReviewBudget},
    review_cache::{ByteSize, ReviewCache},
    review_client::{ReviewClient, ReviewError},
};
use crate::{metrics::Metrics, runtime::text::truncate};

/// Group whose members may do everything.
const PRIVILEGED_GROUP: &str = "system:masters";
/// Maximum length of the API server's reason, in bytes.
const REASON_LIMIT: usize = 1024;

/// Outcome of an authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AuthorizationDecision {
    Allow,
    /// Explicit denial, with the reason.
    Deny(String),
    /// Missing permission, with the reason: no authorizer allowed the request.
    NoOpinion(String),
}

impl AuthorizationDecision {
    fn label(&self) -> &'static str {
        match self {
            AuthorizationDecision::Allow => "allowed",
            AuthorizationDecision::Deny(_) => "denied",
            AuthorizationDecision::NoOpinion(_) => "no-opinion",
        }
    }
}

impl ByteSize for AuthorizationDecision {
    fn size(&self) -> usize {
        match self {
            AuthorizationDecision::Allow => 0,
            AuthorizationDecision::Deny(reason) | AuthorizationDecision::NoOpinion(reason) => reason.len(),
        }
    }
}

/// Returns `true` if all callers may read `path`.
fn is_open(path: &str, always_allow: &[String]) -> bool {
    always_allow.iter().any(|pattern| path_matches(pattern, path))
}

/// Decides without the API server, or returns `None` if a review is needed.
fn decide_locally(user: &RequestUser, path: &str, always_allow: &[String]) -> Option<AuthorizationDecision> {
    let privileged = user.groups.iter().any(|group| group == PRIVILEGED_GROUP);
    (privileged || is_open(path, always_allow)).then_some(AuthorizationDecision::Allow)
}

/// Returns `true` if `path` matches a pattern: a path, or a prefix that ends in `*`. A leading slash does not matter, as
/// upstream.
fn path_matches(pattern: &str, path: &str) -> bool {
    let pattern = pattern.strip_prefix('/').unwrap_or(pattern);
    let path = path.strip_prefix('/').unwrap_or(path);
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == pattern,
    }
}

/// Returns the request to the API server.
fn access_review(user: &RequestUser, verb: &str, path: &str) -> SubjectAccessReview {
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

/// Converts the API server's response.
fn decision(review: SubjectAccessReview) -> AuthorizationDecision {
    let status = review.status.unwrap_or_default();
    let reason = truncate(&status.reason.unwrap_or_default(), REASON_LIMIT);
    match (status.allowed, status.denied.unwrap_or(false)) {
        (_, true) => AuthorizationDecision::Deny(reason),
        (true, false) => AuthorizationDecision::Allow,
        (false, false) => AuthorizationDecision::NoOpinion(reason),
    }
}

/// Authorizer of requests, which caches the decisions of the API server.
pub(super) struct RequestAuthorizer {
    always_allow: Vec<String>,
    api: Option<Api<SubjectAccessReview>>,
    reviews: ReviewClient,
    credential_budgets: CredentialBudgets,
    anonymous_budget: ReviewBudget,
    named_decisions: ReviewCache<AuthorizationDecision>,
    anonymous_decisions: ReviewCache<AuthorizationDecision>,
    authorized_ttl: Duration,
    unauthorized_ttl: Duration,
    metrics: Arc<Metrics>,
}

impl RequestAuthorizer {
    pub(super) fn new(
        config: &DelegatedAuthorizationConfig,
        client: Option<Client>,
        familiar: &Arc<AuthorizedNetworks>,
        metrics: &Arc<Metrics>,
    ) -> Arc<Self> {
        let (requests, duration) = (&metrics.delegated_authz_request_total, &metrics.delegated_authz_request_duration);
        Arc::new(Self {
            always_allow: config.always_allow_paths.clone(),
            api: client.map(Api::all),
            reviews: ReviewClient::new(requests.clone(), duration.clone()),
            credential_budgets: CredentialBudgets::new(familiar),
            anonymous_budget: ReviewBudget::new(review_budget::ANONYMOUS_LIMITS),
            named_decisions: ReviewCache::new(),
            anonymous_decisions: ReviewCache::new(),
            authorized_ttl: config.authorized_ttl,
            unauthorized_ttl: config.unauthorized_ttl,
            metrics: Arc::clone(metrics),
        })
    }

    /// Returns `true` if all callers may read `path`, without a review.
    pub(super) fn is_open(&self, path: &str) -> bool {
        is_open(path, &self.always_allow)
    }

    /// Returns the decision about a request from `peer`. An error means that the API server did not respond.
    pub(super) async fn authorize(
        &self,
        user: &RequestUser,
        peer: PeerNetwork,
        verb: &str,
        path: &str,
    ) -> Result<AuthorizationDecision, ReviewError> {
        let start = Instant::now();
        let result = match decide_locally(user, path, &self.always_allow) {
            Some(decision) => Ok(decision),
            None => self.review_access(user, peer, verb, path).await,
        };
        let label = result.as_ref().map_or("error", AuthorizationDecision::label);
        self.metrics.authorization_attempts_total.with_label_values(&[label]).inc();
        self.metrics.authorization_duration.with_label_values(&[label]).observe(start.elapsed().as_secs_f64());
        result
    }

    async fn review_access(
        &self,
        user: &RequestUser,
        peer: PeerNetwork,
        verb: &str,
        path: &str,
    ) -> Result<AuthorizationDecision, ReviewError> {
        let Some(api) = &self.api else { return Ok(AuthorizationDecision::NoOpinion(String::new())) };
        let (budget, cache) = if user.is_anonymous() {
            (&self.anonymous_budget, &self.anonymous_decisions)
        } else {
            (self.credential_budgets.for_network(peer, Instant::now()), &self.named_decisions)
        };
        let question = access_review(user, verb, path);
        // Serialization of strings cannot fail.
        let key = serde_json::to_vec(&question.spec).ok().map(|spec| cache.key(&spec));
        if let Some(cached) = key.and_then(|key| cache.get(&key, Instant::now())) {
            return Ok(cached);
        }
        let decision = match self.reviews.create(api, &question, budget, peer).await {
            Err(ReviewError::TooMany) => {
                let late = key.and_then(|key| cache.get_stale(&key, Instant::now()));
                return late.filter(|decision| *decision == AuthorizationDecision::Allow).ok_or(ReviewError::TooMany);
            }
            result => decision(result?),
        };
        let ttl = if decision == AuthorizationDecision::Allow { self.authorized_ttl } else { self.unauthorized_ttl };
        if let Some(key) = key {
            cache.insert(key, decision.clone(), Instant::now(), ttl);
        }
        Ok(decision)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authorization::v1::SubjectAccessReviewStatus;

    use super::{super::config::validate_paths, *};

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
    fn masters_and_allowed_paths_are_decided_locally() {
        let user = |group: &str| RequestUser { groups: vec![group.to_owned()], ..Default::default() };
        let always = DelegatedAuthorizationConfig::default().always_allow_paths;
        let rows = [
            ("system:masters", "/metrics", Some(AuthorizationDecision::Allow)),
            ("system:unauthenticated", "/healthz", Some(AuthorizationDecision::Allow)),
            ("system:unauthenticated", "/readyz/service", None),
            ("system:authenticated", "/metrics", None),
        ];
        for (group, path, expected) in rows {
            assert_eq!(decide_locally(&user(group), path, &always), expected, "{group} {path}");
        }
    }

    #[test]
    fn reviews_determine_the_decision() {
        let rows = [
            (true, None, AuthorizationDecision::Allow),
            (false, None, AuthorizationDecision::NoOpinion("r".to_owned())),
            (false, Some(true), AuthorizationDecision::Deny("r".to_owned())),
            (true, Some(true), AuthorizationDecision::Deny("r".to_owned())),
        ];
        for (allowed, denied, expected) in rows {
            let status = SubjectAccessReviewStatus { allowed, denied, reason: Some("r".to_owned()), evaluation_error: None };
            let review = SubjectAccessReview { status: Some(status), ..Default::default() };
            assert_eq!(decision(review), expected);
        }
        assert_eq!(decision(SubjectAccessReview::default()), AuthorizationDecision::NoOpinion(String::new()));
    }
}

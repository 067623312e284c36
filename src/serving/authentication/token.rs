//! Users by bearer token, reviewed by the API server.
//!
//! In: a token. Out: the user, or the rejection of the token. Results are cached under a salted hash: the token itself is
//! never stored or logged. Invalid tokens have a separate cache, so that many of them do not displace valid tokens. While
//! too many reviews wait, an expired result of a valid token is used for a little longer.

use std::{sync::Arc, time::Duration};

use axum::http::{HeaderMap, header::AUTHORIZATION};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::{Api, Client};
use tokio::time::Instant;

use super::user::{AuthenticationError, AuthenticationResult, RequestUser};
use crate::{
    metrics::Metrics,
    runtime::text::truncate,
    serving::{
        authorized_networks::AuthorizedNetworks,
        peer_network::PeerNetwork,
        review_budget::CredentialBudgets,
        review_cache::ReviewCache,
        review_client::{ReviewClient, ReviewError},
    },
};

/// Maximum length of a token, in bytes. A ServiceAccount's token has about 1,500, a token with many claims a few thousand.
const TOKEN_LIMIT: usize = 16 * 1024;
/// Maximum length of the API server's error about an invalid token, in bytes.
const ERROR_LIMIT: usize = 256;

/// Returns the token of an `Authorization: Bearer` header.
pub(super) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Converts the API server's response.
fn review_result(status: TokenReviewStatus) -> AuthenticationResult {
    if !status.authenticated.unwrap_or(false) {
        let error = status.error.filter(|error| !error.is_empty());
        return Err(error.map_or_else(|| "invalid bearer token".to_owned(), |error| truncate(&error, ERROR_LIMIT)).into());
    }
    let user = status.user.unwrap_or_default();
    Ok(Some(RequestUser {
        name: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    }))
}

/// Authenticator of tokens, which the API server reviews.
pub(super) struct TokenAuthenticator {
    api: Api<TokenReview>,
    reviews: ReviewClient,
    budgets: CredentialBudgets,
    users: ReviewCache<AuthenticationResult>,
    rejected: ReviewCache<AuthenticationResult>,
    ttl: Duration,
}

impl TokenAuthenticator {
    pub(super) fn new(client: Client, ttl: Duration, familiar: &Arc<AuthorizedNetworks>, metrics: &Arc<Metrics>) -> Self {
        let (requests, duration) = (&metrics.delegated_authn_request_total, &metrics.delegated_authn_request_duration);
        Self {
            api: Api::all(client),
            reviews: ReviewClient::new(requests.clone(), duration.clone()),
            budgets: CredentialBudgets::new(familiar),
            users: ReviewCache::new(),
            rejected: ReviewCache::new(),
            ttl,
        }
    }

    /// Returns the user of a token. A missing response is an error, too, but is not cached.
    pub(super) async fn identify(&self, token: &str, peer: PeerNetwork) -> AuthenticationResult {
        if token.len() > TOKEN_LIMIT {
            return Err(format!("the bearer token is longer than {TOKEN_LIMIT} bytes").into());
        }
        let (good, bad) = (self.users.key(token.as_bytes()), self.rejected.key(token.as_bytes()));
        let cached = self.users.get(&good, Instant::now()).or_else(|| self.rejected.get(&bad, Instant::now()));
        if let Some(cached) = cached {
            return cached;
        }
        let spec = TokenReviewSpec { token: token.to_owned(), ..Default::default() };
        let question = TokenReview { spec, ..Default::default() };
        let budget = self.budgets.for_network(peer, Instant::now());
        let review = match self.reviews.create(&self.api, &question, budget, peer).await {
            Ok(review) => review,
            Err(ReviewError::TooMany) => {
                return self.users.get_stale(&good, Instant::now()).unwrap_or(Err(AuthenticationError::TooMany));
            }
            Err(ReviewError::Failed(failure)) => return Err(format!("cannot create a TokenReview: {failure}").into()),
        };
        let result = review_result(review.status.unwrap_or_default());
        if result.is_err() {
            self.users.forget(&good);
        }
        let (cache, key) = if result.is_ok() { (&self.users, good) } else { (&self.rejected, bad) };
        cache.insert(key, result.clone(), Instant::now(), self.ttl);
        result
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::UserInfo;

    use super::*;

    #[test]
    fn tokens_in_headers() {
        let rows = [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
        ];
        for (value, expected) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            assert_eq!(bearer_token(&headers), expected, "{value}");
        }
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }

    #[test]
    fn review_results_name_the_user_or_a_bounded_error() {
        let user = UserInfo { username: Some("ann".to_owned()), groups: Some(vec!["dev".to_owned()]), ..Default::default() };
        let good = TokenReviewStatus { authenticated: Some(true), user: Some(user), ..Default::default() };
        let found = review_result(good).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.groups.as_slice()), ("ann", ["dev".to_owned()].as_slice()));
        assert!(review_result(TokenReviewStatus::default()).is_err());
        let expired = TokenReviewStatus { error: Some("expired".to_owned()), ..Default::default() };
        assert_eq!(review_result(expired), Err("expired".to_owned().into()));
        let long = TokenReviewStatus { error: Some("e".repeat(100_000)), ..Default::default() };
        assert!(
            matches!(review_result(long), Err(AuthenticationError::Rejected(error)) if error.len() <= ERROR_LIMIT + "…".len())
        );
    }
}

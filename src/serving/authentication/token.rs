//! Users by bearer token, reviewed by the API server.
//!
//! In: a token. Out: the user, or that the token is wrong. Answers are remembered under a salted hash: the token itself is never
//! stored, and never logged.

use std::{sync::Arc, time::Duration};

use axum::http::{HeaderMap, header::AUTHORIZATION};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::{Api, Client};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use tokio::time::Instant;

use super::{Answer, User};
use crate::{
    metrics::Metrics,
    serving::{cache::Cache, delegate::Delegate},
};

/// The token of an `Authorization: Bearer` header.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// What the API server's answer means.
fn answer(status: TokenReviewStatus) -> Answer {
    if !status.authenticated.unwrap_or(false) {
        return Err(status.error.filter(|error| !error.is_empty()).unwrap_or_else(|| "invalid bearer token".to_owned()));
    }
    let user = status.user.unwrap_or_default();
    Ok(Some(User {
        name: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    }))
}

/// Asks the API server about tokens.
pub(super) struct TokenAuthenticator {
    api: Api<TokenReview>,
    delegate: Delegate,
    cache: Cache<Vec<u8>, Answer>,
    ttl: Duration,
    salt: [u8; 32],
}

impl TokenAuthenticator {
    pub(super) fn new(client: Client, ttl: Duration, metrics: &Arc<Metrics>) -> Self {
        let (requests, duration) = (&metrics.delegated_authn_request_total, &metrics.delegated_authn_request_duration);
        let delegate = Delegate::new(requests.clone(), duration.clone());
        Self { api: Api::all(client), delegate, cache: Cache::new(), ttl, salt: rand::random() }
    }

    /// The user of a token. That there was no answer is an error too, but not remembered.
    pub(super) async fn identify(&self, token: &str) -> Answer {
        let key = self.hash(token).ok_or("cannot hash the bearer token")?;
        if let Some(known) = self.cache.get(&key, Instant::now()) {
            return known;
        }
        let spec = TokenReviewSpec { token: token.to_owned(), ..Default::default() };
        let question = TokenReview { spec, ..Default::default() };
        let review = self.delegate.create(&self.api, &question).await;
        let review = review.map_err(|failure| format!("cannot create a TokenReview: {failure}"))?;
        let answer = answer(review.status.unwrap_or_default());
        self.cache.insert(key, answer.clone(), Instant::now(), self.ttl);
        answer
    }

    /// Salted SHA-256 from the TLS library, which saves a dependency of its own.
    fn hash(&self, token: &str) -> Option<Vec<u8>> {
        let mut context = TLS13_AES_128_GCM_SHA256.tls13()?.common.hash_provider.start();
        context.update(&self.salt);
        context.update(token.as_bytes());
        Some(context.finish().as_ref().to_vec())
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
            assert_eq!(bearer(&headers), expected, "{value}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn answers() {
        let user = UserInfo { username: Some("ann".to_owned()), groups: Some(vec!["dev".to_owned()]), ..Default::default() };
        let good = TokenReviewStatus { authenticated: Some(true), user: Some(user), ..Default::default() };
        let found = answer(good).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.groups.as_slice()), ("ann", ["dev".to_owned()].as_slice()));
        assert!(answer(TokenReviewStatus::default()).is_err());
        let expired = TokenReviewStatus { error: Some("expired".to_owned()), ..Default::default() };
        assert_eq!(answer(expired), Err("expired".to_owned()));
    }
}

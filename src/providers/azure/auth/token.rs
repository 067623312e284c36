//! Tokens, and the cache around their fetcher.
//!
//! In: callers that need a token. Out: one token for all of them, which is replaced before it expires, by one fetch at a time. A
//! failed refresh does not affect callers while the old token is valid, and a failing identity service is called at growing
//! intervals. [`super::token_schedule`] makes the decisions.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use azure_core::credentials::Secret;
use futures::future::Either;
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    AuthError,
    token_schedule::{FetchFailures, TokenAction, TokenLifetime, may_invalidate, next_action},
};
use crate::runtime::{clock::Clock, single_flight::SharedTask};

/// Timeout of a fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum accepted lifetime; Entra issues tokens for at most a day. Larger values could overflow an `Instant`.
const MAX_LIFETIME: Duration = Duration::from_secs(7 * 86_400);

const SCHEME: &str = "Bearer ";

/// Bearer token. `Debug` does not show it, because the header is marked as sensitive.
#[derive(Debug, Clone)]
pub struct BearerToken {
    header: HeaderValue,
    lifetime: TokenLifetime,
}

impl BearerToken {
    /// Creates a token that was obtained `now` and is valid for `lifetime`. Returns `None` if it is empty or cannot be sent in a
    /// header.
    pub(super) fn new(secret: &Secret, now: Instant, lifetime: Duration) -> Option<Self> {
        let mut header = HeaderValue::try_from(format!("{SCHEME}{}", secret.secret())).ok()?;
        header.set_sensitive(true);
        let is_valid = !secret.secret().is_empty() && secret.secret().is_ascii();
        is_valid
            .then(|| Self { header, lifetime: TokenLifetime { obtained: now, expires: now + lifetime.min(MAX_LIFETIME) } })
    }

    /// Returns the value of the `authorization` header: `Bearer …`, marked sensitive.
    pub fn authorization(&self) -> HeaderValue {
        self.header.clone()
    }

    /// Returns the token itself, without the word `Bearer`.
    pub fn secret(&self) -> Secret {
        let text = self.header.to_str().unwrap_or_default();
        Secret::new(text.strip_prefix(SCHEME).unwrap_or_default().to_owned())
    }

    /// Returns the time of expiry, on the clock of `tokio::time`.
    pub fn expires(&self) -> Instant {
        self.lifetime.expires
    }
}

/// Expiry of a credential. A field without a known time is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CredentialExpiry {
    /// Expiry of the cached token, on the clock of `tokio::time`.
    pub token: Option<Instant>,
    /// Expiry of the certificate that tokens are requested with, as Unix time.
    pub certificate: Option<i64>,
}

/// Source of tokens for one audience.
#[async_trait]
pub trait TokenSource: Send + Sync {
    /// Returns a token that is currently valid.
    async fn token(&self) -> Result<BearerToken, AuthError>;

    /// Discards the cached token if it equals `rejected`, which got a 401, so that the next call fetches another.
    ///
    /// Does nothing if the token has been replaced, or within a minute of the last time: a service that rejects every token must not
    /// cause a flood of requests to the identity service.
    fn invalidate(&self, rejected: &str);

    /// Returns the expiry of the current credential.
    fn expiry(&self) -> CredentialExpiry {
        CredentialExpiry::default()
    }
}

/// Fetcher of a new token at each call.
#[async_trait]
pub(super) trait TokenFetcher: Send + Sync {
    /// Fetches a token for `scope` (`<audience>/.default`).
    async fn fetch(&self, scope: &str) -> Result<BearerToken, AuthError>;

    /// Returns the Unix time at which the certificate of the credential expires, if it has one.
    fn certificate_expires(&self) -> Option<i64> {
        None
    }
}

type SharedFetch = SharedTask<Result<BearerToken, AuthError>>;

#[derive(Default)]
struct TokenCacheState {
    token: Option<BearerToken>,
    failures: Option<(FetchFailures, AuthError)>,
    fetch_in_flight: Option<SharedFetch>,
    invalidated: Option<Instant>,
}

struct TokenCache {
    fetch: Arc<dyn TokenFetcher>,
    scope: String,
    clock: Clock,
    state: Mutex<TokenCacheState>,
}

/// [`TokenSource`] that caches its token.
#[derive(Clone)]
pub(super) struct CachedTokenSource {
    inner: Arc<TokenCache>,
}

impl CachedTokenSource {
    pub(super) fn new(fetch: Arc<dyn TokenFetcher>, scope: String, clock: Clock) -> Self {
        Self { inner: Arc::new(TokenCache { fetch, scope, clock, state: Mutex::default() }) }
    }
}

#[async_trait]
impl TokenSource for CachedTokenSource {
    async fn token(&self) -> Result<BearerToken, AuthError> {
        match self.inner.cached_or_fetch() {
            Either::Left(result) => result,
            Either::Right(fetch) => fetch.await,
        }
    }

    fn invalidate(&self, rejected: &str) {
        let now = self.inner.clock.now();
        let mut state = self.inner.state.lock();
        let stored = state.token.as_ref().map(BearerToken::secret);
        if stored.is_some_and(|stored| stored.secret() == rejected) && may_invalidate(now, state.invalidated) {
            state.token = None;
            state.invalidated = Some(now);
        }
    }

    fn expiry(&self) -> CredentialExpiry {
        let token = self.inner.state.lock().token.as_ref().map(BearerToken::expires);
        CredentialExpiry { token, certificate: self.inner.fetch.certificate_expires() }
    }
}

impl TokenCache {
    /// Returns the cached token or error, or the fetch to wait for.
    fn cached_or_fetch(self: &Arc<Self>) -> Either<Result<BearerToken, AuthError>, SharedFetch> {
        let mut state = self.state.lock();
        let lifetime = state.token.as_ref().map(|token| token.lifetime);
        let failures = state.failures.as_ref().map(|(failures, _)| *failures);
        let next = next_action(self.clock.now(), lifetime, failures);
        if next == TokenAction::UseAndRefresh {
            drop(self.start_or_join_fetch(&mut state));
        }
        match (next, &state.token, &state.failures) {
            (TokenAction::Use | TokenAction::UseAndRefresh, Some(token), _) => Either::Left(Ok(token.clone())),
            (TokenAction::Refuse, _, Some((_, error))) => Either::Left(Err(error.clone())),
            _ => Either::Right(self.start_or_join_fetch(&mut state)),
        }
    }

    /// Returns the fetch in progress, or a new one.
    fn start_or_join_fetch(self: &Arc<Self>, state: &mut TokenCacheState) -> SharedFetch {
        let fetch = SharedTask::join_or_start(state.fetch_in_flight.as_ref(), || self.start_fetch());
        state.fetch_in_flight = Some(fetch.clone());
        fetch
    }

    /// Starts a fetch. A panic in it counts as a failed fetch.
    fn start_fetch(self: &Arc<Self>) -> SharedFetch {
        let (inner, this) = (Arc::clone(self), Arc::clone(self));
        SharedTask::start(async move { inner.refresh().await }, move |error| {
            let outcome = Err(AuthError::unreachable(&this.scope, format!("the fetch ended early: {error}")));
            this.record_result(&outcome);
            outcome
        })
    }

    async fn refresh(&self) -> Result<BearerToken, AuthError> {
        let limited = tokio::time::timeout(FETCH_TIMEOUT, self.fetch.fetch(&self.scope)).await;
        let outcome = limited.unwrap_or_else(|_| {
            let message = format!("no response within {} s", FETCH_TIMEOUT.as_secs());
            Err(AuthError::unreachable(format!("the identity service (for {})", self.scope), message))
        });
        self.record_result(&outcome);
        outcome
    }

    fn record_result(&self, outcome: &Result<BearerToken, AuthError>) {
        let mut state = self.state.lock();
        state.fetch_in_flight = None;
        match outcome {
            Ok(token) => {
                state.token = Some(token.clone());
                state.failures = None;
            }
            Err(error) => {
                let count = state.failures.as_ref().map_or(0, |(failures, _)| failures.count).saturating_add(1);
                let failures = FetchFailures { count, last: self.clock.now(), retry_after: error.retry_after() };
                state.failures = Some((failures, error.clone()));
                tracing::warn!(%error, scope = self.scope, failures = count, "cannot fetch a token");
            }
        }
    }
}

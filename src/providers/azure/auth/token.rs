//! Tokens and the cache around whatever fetches them.
//!
//! In: callers who need a token now. Out: one token for all of them, replaced ahead of its end by one fetch at a time. A failed
//! refresh is nobody's failure while the old token is good, and a broken identity service is asked ever more rarely.
//! When to do what is decided in [`super::schedule`].

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use azure_core::credentials::Secret;
use futures::{FutureExt, future::BoxFuture, future::Shared};
use http::HeaderValue;
use tokio::{task::JoinHandle, time::Instant};

use super::{
    AuthError,
    schedule::{Failures, Life, Move, may_invalidate, next_move},
};
use crate::runtime::clock::Clock;

/// Longest time one fetch may take.
const FETCH_LIMIT: Duration = Duration::from_secs(60);
/// Longest life that is believed; Entra gives a day at most. More could not even be added to an instant.
const LONGEST_LIFE: Duration = Duration::from_secs(7 * 86_400);

/// A bearer token. `Debug` does not show it.
#[derive(Clone)]
pub struct Token {
    header: HeaderValue,
    life: Life,
}

impl Token {
    /// A token that was obtained now and is good for `lifetime`. `None` when it is empty or cannot be sent in a header.
    pub(super) fn new(secret: &Secret, now: Instant, lifetime: Duration) -> Option<Self> {
        let mut header = HeaderValue::try_from(format!("Bearer {}", secret.secret())).ok()?;
        header.set_sensitive(true);
        let good = !secret.secret().is_empty();
        good.then(|| Self { header, life: Life { obtained: now, expires: now + lifetime.min(LONGEST_LIFE) } })
    }

    /// Value of the `authorization` header: `Bearer …`, marked sensitive.
    pub fn authorization(&self) -> HeaderValue {
        self.header.clone()
    }

    /// When it ends, on the clock of `tokio::time`.
    pub fn expires(&self) -> Instant {
        self.life.expires
    }

    fn is(&self, other: &Self) -> bool {
        self.header == other.header
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("life", &self.life).finish_non_exhaustive()
    }
}

/// Where tokens for one audience come from.
#[async_trait]
pub trait TokenSource: Send + Sync {
    /// A token that is good now.
    async fn token(&self) -> Result<Token, AuthError>;

    /// Gives up a token that was answered with 401, so that the next call fetches another. Does nothing when there is another
    /// already, and at most once a minute: a service that refuses every token does not make us hammer the identity service.
    fn invalidate(&self, rejected: &Token);
}

/// Fetches a token, each time anew.
#[async_trait]
pub(super) trait Fetch: Send + Sync {
    /// A token for `scope` (`<audience>/.default`).
    async fn fetch(&self, scope: &str) -> Result<Token, AuthError>;
}

type Flight = Shared<BoxFuture<'static, Result<Token, AuthError>>>;

#[derive(Default)]
struct State {
    token: Option<Token>,
    failures: Option<(Failures, AuthError)>,
    flight: Option<Flight>,
    invalidated: Option<Instant>,
}

struct Inner {
    fetch: Arc<dyn Fetch>,
    scope: String,
    clock: Clock,
    state: Mutex<State>,
}

/// A [`TokenSource`] that keeps its token.
#[derive(Clone)]
pub(super) struct CachedTokens {
    inner: Arc<Inner>,
}

impl CachedTokens {
    pub(super) fn new(fetch: Arc<dyn Fetch>, scope: String, clock: Clock) -> Self {
        Self { inner: Arc::new(Inner { fetch, scope, clock, state: Mutex::default() }) }
    }
}

#[async_trait]
impl TokenSource for CachedTokens {
    async fn token(&self) -> Result<Token, AuthError> {
        let flight = match self.inner.begin() {
            Begun::Done(outcome) => return outcome,
            Begun::Wait(flight) => flight,
        };
        flight.await
    }

    fn invalidate(&self, rejected: &Token) {
        let now = self.inner.clock.now();
        let mut state = self.inner.state();
        let held = state.token.as_ref().is_some_and(|token| token.is(rejected));
        if held && may_invalidate(now, state.invalidated) {
            state.token = None;
            state.invalidated = Some(now);
        }
    }
}

enum Begun {
    Done(Result<Token, AuthError>),
    Wait(Flight),
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>) -> Begun {
        let mut state = self.state();
        let life = state.token.as_ref().map(|token| token.life);
        let failures = state.failures.as_ref().map(|(failures, _)| *failures);
        let next = next_move(self.clock.now(), life, failures);
        if next == Move::UseAndRefresh {
            drop(self.flight(&mut state));
        }
        match (next, &state.token, &state.failures) {
            (Move::Use | Move::UseAndRefresh, Some(token), _) => Begun::Done(Ok(token.clone())),
            (Move::Refuse, _, Some((_, error))) => Begun::Done(Err(error.clone())),
            _ => Begun::Wait(self.flight(&mut state)),
        }
    }

    /// The fetch that is under way, or a new one. It is a task of its own: callers who give up do not end it.
    fn flight(self: &Arc<Self>, state: &mut State) -> Flight {
        if let Some(flight) = &state.flight {
            return flight.clone();
        }
        let inner = Arc::clone(self);
        let task = tokio::spawn(async move { inner.refresh().await });
        let flight = Arc::clone(self).landed(task).boxed().shared();
        state.flight = Some(flight.clone());
        flight
    }

    /// What the task found. A task that did not reach its end is a failure like any other.
    async fn landed(self: Arc<Self>, task: JoinHandle<Result<Token, AuthError>>) -> Result<Token, AuthError> {
        task.await.unwrap_or_else(|error| {
            let outcome = Err(AuthError::unreachable(&self.scope, format!("the fetch ended early: {error}")));
            self.settle(&outcome);
            outcome
        })
    }

    async fn refresh(&self) -> Result<Token, AuthError> {
        let limited = tokio::time::timeout(FETCH_LIMIT, self.fetch.fetch(&self.scope)).await;
        let outcome = limited.unwrap_or_else(|_| {
            let message = format!("no answer within {} s", FETCH_LIMIT.as_secs());
            Err(AuthError::unreachable(format!("the identity service (for {})", self.scope), message))
        });
        self.settle(&outcome);
        outcome
    }

    fn settle(&self, outcome: &Result<Token, AuthError>) {
        let mut state = self.state();
        state.flight = None;
        match outcome {
            Ok(token) => {
                state.token = Some(token.clone());
                state.failures = None;
            }
            Err(error) => {
                let count = state.failures.as_ref().map_or(0, |(failures, _)| failures.count).saturating_add(1);
                let failures = Failures { count, last: self.clock.now(), retry_after: error.retry_after() };
                state.failures = Some((failures, error.clone()));
                tracing::warn!(%error, scope = self.scope, failures = count, "cannot fetch a token");
            }
        }
    }
}

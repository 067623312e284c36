//! Tests of the cache around a fetcher that can fail, hang and count.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use azure_core::credentials::Secret;
use parking_lot::Mutex;
use tokio::time::{Instant, advance, sleep};

use super::super::{
    AuthError,
    token::{BearerToken, CachedTokenSource, TokenFetcher, TokenSource},
};
use crate::runtime::clock::Clock;

#[derive(Debug, Clone, Copy, PartialEq)]
enum FetchBehavior {
    Good,
    Down,
    Stuck,
    Panic,
}

/// Fetcher of numbered tokens with a lifetime of an hour.
struct CountingFetcher {
    behavior: Mutex<FetchBehavior>,
    fetches: AtomicU64,
}

#[async_trait]
impl TokenFetcher for CountingFetcher {
    async fn fetch(&self, scope: &str) -> Result<BearerToken, AuthError> {
        let number = self.fetches.fetch_add(1, Ordering::SeqCst) + 1;
        let behavior = *self.behavior.lock();
        sleep(Duration::from_secs(if behavior == FetchBehavior::Stuck { 100_000 } else { 2 })).await;
        match behavior {
            FetchBehavior::Down => Err(AuthError::unreachable("https://login", "down")),
            FetchBehavior::Panic => panic!("planted panic"),
            FetchBehavior::Good | FetchBehavior::Stuck => {
                let secret = Secret::new(format!("planted-{number}-{scope}"));
                Ok(BearerToken::new(&secret, Instant::now(), Duration::from_secs(3600)).unwrap())
            }
        }
    }
}

fn fetcher(behavior: FetchBehavior) -> (Arc<CountingFetcher>, CachedTokenSource) {
    let fetcher = Arc::new(CountingFetcher { behavior: Mutex::new(behavior), fetches: AtomicU64::new(0) });
    let tokens = CachedTokenSource::new(Arc::<CountingFetcher>::clone(&fetcher), "scope".to_owned(), Clock::System);
    (fetcher, tokens)
}

impl CountingFetcher {
    fn set_behavior(&self, behavior: FetchBehavior) {
        *self.behavior.lock() = behavior;
    }

    fn fetches(&self) -> u64 {
        self.fetches.load(Ordering::SeqCst)
    }
}

async fn number(tokens: &CachedTokenSource) -> Result<u64, AuthError> {
    let header = tokens.token().await?.authorization();
    let text = header.to_str().unwrap().strip_prefix("Bearer planted-").unwrap().to_owned();
    Ok(text.split('-').next().unwrap().parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_hundred_callers_cause_one_fetch() {
    let (fetcher, tokens) = fetcher(FetchBehavior::Good);
    let found = futures::future::join_all((0..100).map(|_| number(&tokens))).await;
    assert!(found.iter().all(|found| *found == Ok(1)), "{found:?}");
    assert_eq!(fetcher.fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_replaced_before_its_expiry_without_a_wait() {
    let (fetcher, tokens) = fetcher(FetchBehavior::Good);
    tokens.token().await.unwrap();
    advance(Duration::from_secs(3310)).await;
    let before = Instant::now();
    assert_eq!(number(&tokens).await, Ok(1));
    assert_eq!(Instant::now(), before, "the fetch continues in the background");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(number(&tokens).await, Ok(2));
    assert_eq!(fetcher.fetches(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failing_refresh_affects_no_caller_of_a_valid_token() {
    let (fetcher, tokens) = fetcher(FetchBehavior::Good);
    tokens.token().await.unwrap();
    fetcher.set_behavior(FetchBehavior::Down);
    advance(Duration::from_secs(3300)).await;
    for _ in 0..280 {
        assert_eq!(number(&tokens).await, Ok(1));
        sleep(Duration::from_secs(1)).await;
    }
    assert!((4..=12).contains(&fetcher.fetches()), "{} fetches: retried at growing intervals", fetcher.fetches());
    sleep(Duration::from_secs(60)).await;
    assert!(number(&tokens).await.is_err(), "an expired token is not returned");
    fetcher.set_behavior(FetchBehavior::Good);
    sleep(Duration::from_secs(61)).await;
    assert!(number(&tokens).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_rejected_token_is_replaced_once() {
    let (fetcher, tokens) = fetcher(FetchBehavior::Good);
    let first = tokens.token().await.unwrap();
    tokens.invalidate(first.secret().secret());
    assert_eq!(number(&tokens).await, Ok(2));
    tokens.invalidate(first.secret().secret());
    assert_eq!(number(&tokens).await, Ok(2), "the rejected token was replaced already");
    let second = tokens.token().await.unwrap();
    tokens.invalidate(second.secret().secret());
    assert_eq!(number(&tokens).await, Ok(2), "not twice within a minute");
    advance(Duration::from_secs(60)).await;
    tokens.invalidate(second.secret().secret());
    assert_eq!(number(&tokens).await, Ok(3));
    assert_eq!(fetcher.fetches(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_does_not_end_the_fetch() {
    let (fetcher, tokens) = fetcher(FetchBehavior::Good);
    assert!(tokio::time::timeout(Duration::from_secs(1), tokens.token()).await.is_err());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(number(&tokens).await, Ok(1));
    assert_eq!(fetcher.fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_has_a_timeout() {
    let (fetcher, tokens) = fetcher(FetchBehavior::Stuck);
    let before = Instant::now();
    let error = tokens.token().await.unwrap_err();
    assert!(error.to_string().contains("no response within 60 s"), "{error}");
    assert_eq!(Instant::now() - before, Duration::from_secs(60));
    fetcher.set_behavior(FetchBehavior::Good);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(number(&tokens).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_panics_is_a_failure_like_any_other() {
    let (fetcher, tokens) = fetcher(FetchBehavior::Panic);
    assert!(tokens.token().await.unwrap_err().to_string().contains("ended early"));
    fetcher.set_behavior(FetchBehavior::Good);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(number(&tokens).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn tokens_are_not_shown() {
    let (_, tokens) = fetcher(FetchBehavior::Good);
    let token = tokens.token().await.unwrap();
    assert!(!format!("{token:?} {:?}", token.authorization()).contains("planted"));
    for bad in ["", "two\nlines"] {
        assert!(BearerToken::new(&Secret::new(bad), Instant::now(), Duration::from_secs(1)).is_none());
    }
}

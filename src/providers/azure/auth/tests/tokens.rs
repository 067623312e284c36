//! The cache around a source that can fail, hang and count.

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
enum Mood {
    Good,
    Down,
    Stuck,
    Panic,
}

/// Tokens that live for an hour, each with its number.
struct Mint {
    mood: Mutex<Mood>,
    asked: AtomicU64,
}

#[async_trait]
impl TokenFetcher for Mint {
    async fn fetch(&self, scope: &str) -> Result<BearerToken, AuthError> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mood = *self.mood.lock();
        sleep(Duration::from_secs(if mood == Mood::Stuck { 100_000 } else { 2 })).await;
        match mood {
            Mood::Down => Err(AuthError::unreachable("https://login", "down")),
            Mood::Panic => panic!("planted panic"),
            Mood::Good | Mood::Stuck => {
                let secret = Secret::new(format!("planted-{number}-{scope}"));
                Ok(BearerToken::new(&secret, Instant::now(), Duration::from_secs(3600)).unwrap())
            }
        }
    }
}

fn mint(mood: Mood) -> (Arc<Mint>, CachedTokenSource) {
    let mint = Arc::new(Mint { mood: Mutex::new(mood), asked: AtomicU64::new(0) });
    let tokens = CachedTokenSource::new(Arc::<Mint>::clone(&mint), "scope".to_owned(), Clock::System);
    (mint, tokens)
}

impl Mint {
    fn becomes(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

async fn number(tokens: &CachedTokenSource) -> Result<u64, AuthError> {
    let header = tokens.token().await?.authorization();
    let text = header.to_str().unwrap().strip_prefix("Bearer planted-").unwrap().to_owned();
    Ok(text.split('-').next().unwrap().parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_hundred_callers_cause_one_fetch() {
    let (mint, tokens) = mint(Mood::Good);
    let found = futures::future::join_all((0..100).map(|_| number(&tokens))).await;
    assert!(found.iter().all(|found| *found == Ok(1)), "{found:?}");
    assert_eq!(mint.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_replaced_before_its_end_and_nobody_waits() {
    let (mint, tokens) = mint(Mood::Good);
    tokens.token().await.unwrap();
    advance(Duration::from_secs(3310)).await;
    let before = Instant::now();
    assert_eq!(number(&tokens).await, Ok(1));
    assert_eq!(Instant::now(), before, "the fetch goes on in the background");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(number(&tokens).await, Ok(2));
    assert_eq!(mint.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failing_refresh_is_nobodys_failure_while_the_token_lives() {
    let (mint, tokens) = mint(Mood::Good);
    tokens.token().await.unwrap();
    mint.becomes(Mood::Down);
    advance(Duration::from_secs(3300)).await;
    for _ in 0..280 {
        assert_eq!(number(&tokens).await, Ok(1));
        sleep(Duration::from_secs(1)).await;
    }
    assert!((4..=12).contains(&mint.asked()), "{} fetches: tried again, ever more rarely", mint.asked());
    sleep(Duration::from_secs(60)).await;
    assert!(number(&tokens).await.is_err(), "a dead token is not handed out");
    mint.becomes(Mood::Good);
    sleep(Duration::from_secs(61)).await;
    assert!(number(&tokens).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_fetched_anew_once() {
    let (mint, tokens) = mint(Mood::Good);
    let first = tokens.token().await.unwrap();
    tokens.invalidate(first.secret().secret());
    assert_eq!(number(&tokens).await, Ok(2));
    tokens.invalidate(first.secret().secret());
    assert_eq!(number(&tokens).await, Ok(2), "the one that was refused is gone already");
    let second = tokens.token().await.unwrap();
    tokens.invalidate(second.secret().secret());
    assert_eq!(number(&tokens).await, Ok(2), "not twice within a minute");
    advance(Duration::from_secs(60)).await;
    tokens.invalidate(second.secret().secret());
    assert_eq!(number(&tokens).await, Ok(3));
    assert_eq!(mint.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_gives_up_does_not_end_the_fetch() {
    let (mint, tokens) = mint(Mood::Good);
    assert!(tokio::time::timeout(Duration::from_secs(1), tokens.token()).await.is_err());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(number(&tokens).await, Ok(1));
    assert_eq!(mint.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_has_an_end() {
    let (mint, tokens) = mint(Mood::Stuck);
    let before = Instant::now();
    let error = tokens.token().await.unwrap_err();
    assert!(error.to_string().contains("no answer within 60 s"), "{error}");
    assert_eq!(Instant::now() - before, Duration::from_secs(60));
    mint.becomes(Mood::Good);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(number(&tokens).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_panics_is_a_failure_like_any_other() {
    let (mint, tokens) = mint(Mood::Panic);
    assert!(tokens.token().await.unwrap_err().to_string().contains("ended early"));
    mint.becomes(Mood::Good);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(number(&tokens).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn tokens_are_not_shown() {
    let (_, tokens) = mint(Mood::Good);
    let token = tokens.token().await.unwrap();
    assert!(!format!("{token:?} {:?}", token.authorization()).contains("planted"));
    for bad in ["", "two\nlines"] {
        assert!(BearerToken::new(&Secret::new(bad), Instant::now(), Duration::from_secs(1)).is_none());
    }
}

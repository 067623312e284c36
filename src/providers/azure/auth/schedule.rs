//! When to use a token, when to fetch another, when to leave the identity service alone. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// A token is replaced this long before it expires, or after half its life when that is later.
const REFRESH_AHEAD: Duration = Duration::from_secs(300);
/// A token this close to its end may not survive the request it is for.
const MARGIN: Duration = Duration::from_secs(10);
/// Pause after the first failure; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A service that asks for more patience than this is asked again all the same.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);
/// ARM may refuse every token; this is how often that leads to a fresh one.
const BETWEEN_INVALIDATIONS: Duration = Duration::from_secs(60);

/// When a token was fetched and when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) obtained: Instant,
    pub(super) expires: Instant,
}

/// Failures since the last success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failures {
    pub(super) count: u32,
    pub(super) last: Instant,
    pub(super) retry_after: Option<Duration>,
}

/// What a caller who wants a token does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// Takes the token that is there.
    Use,
    /// The same, and starts a fetch that nobody waits for.
    UseAndRefresh,
    /// Waits for a fetch.
    Fetch,
    /// Takes the last error: the service was asked just now.
    Refuse,
}

/// The next move.
pub(super) fn next_move(now: Instant, life: Option<Life>, failures: Option<Failures>) -> Move {
    let paused = failures.is_some_and(|failures| now < failures.last + pause(failures));
    match life {
        Some(life) if now + MARGIN >= life.expires && paused => Move::Refuse,
        Some(life) if now + MARGIN >= life.expires => Move::Fetch,
        Some(life) if now < refresh_at(life) || paused => Move::Use,
        Some(_) => Move::UseAndRefresh,
        None if paused => Move::Refuse,
        None => Move::Fetch,
    }
}

fn refresh_at(life: Life) -> Instant {
    let whole = life.expires.saturating_duration_since(life.obtained);
    life.expires - REFRESH_AHEAD.min(whole / 2)
}

fn pause(failures: Failures) -> Duration {
    let doubled = FIRST_PAUSE * 2_u32.saturating_pow(failures.count.saturating_sub(1).min(16));
    let asked = failures.retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER);
    doubled.min(LONGEST_PAUSE).max(asked)
}

/// Whether a token that ARM refused is given up, given when that was last done.
pub(super) fn may_invalidate(now: Instant, last: Option<Instant>) -> bool {
    last.is_none_or(|last| now >= last + BETWEEN_INVALIDATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn moves() {
        let start = Instant::now() + Duration::from_secs(100_000);
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let hour = Some(Life { obtained: start, expires: at(3600) });
        let short = Some(Life { obtained: start, expires: at(60) });
        let failed = |count, last| Some(Failures { count, last: at(last), retry_after: None });
        let told = Some(Failures { count: 1, last: at(3400), retry_after: Some(Duration::from_secs(50)) });
        let rows = [
            (0, None, None, Move::Fetch),
            (0, hour, None, Move::Use),
            (3299, hour, None, Move::Use),
            (3300, hour, None, Move::UseAndRefresh),
            (3300, hour, failed(1, 3300), Move::Use),
            (3301, hour, failed(1, 3300), Move::UseAndRefresh),
            (3420, hour, told, Move::Use),
            (3450, hour, told, Move::UseAndRefresh),
            (3589, hour, failed(1, 3000), Move::UseAndRefresh),
            (3590, hour, None, Move::Fetch),
            (3590, hour, failed(6, 3580), Move::Refuse),
            (9000, hour, failed(3, 8000), Move::Fetch),
            (29, short, None, Move::Use),
            (30, short, None, Move::UseAndRefresh),
            (50, short, None, Move::Fetch),
            (10, None, failed(5, 0), Move::Refuse),
            (16, None, failed(5, 0), Move::Fetch),
            (59, None, failed(60, 0), Move::Refuse),
            (60, None, failed(60, 0), Move::Fetch),
        ];
        for (index, (now, life, failures, expected)) in rows.into_iter().enumerate() {
            assert_eq!(next_move(at(now), life, failures), expected, "row {index}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn patience_has_an_end() {
        let start = Instant::now();
        let failures = Failures { count: 1, last: start, retry_after: Some(Duration::from_secs(86_400)) };
        assert_eq!(next_move(start + LONGEST_RETRY_AFTER, None, Some(failures)), Move::Fetch);
    }

    #[tokio::test(start_paused = true)]
    async fn invalidations_are_rare() {
        let now = Instant::now() + Duration::from_secs(1000);
        assert!(may_invalidate(now, None));
        assert!(!may_invalidate(now, Some(now - Duration::from_secs(59))));
        assert!(may_invalidate(now, Some(now - Duration::from_secs(60))));
    }
}

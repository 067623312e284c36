//! Decides when to use a token, when to fetch another, and when to spare the identity service. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::runtime::backoff::ExponentialBackoff;

/// A token is replaced this long before it expires, or after half its life when that is later.
const REFRESH_AHEAD: Duration = Duration::from_secs(300);
/// A token this close to its end may not survive the request it is for.
const MARGIN: Duration = Duration::from_secs(10);
/// Delays after failures.
const PAUSE: ExponentialBackoff = ExponentialBackoff::doubling(Duration::from_secs(1), Duration::from_secs(60));
/// Longest delay that a service may request.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);
/// ARM may refuse every token; this is how often that leads to a fresh one.
const BETWEEN_INVALIDATIONS: Duration = Duration::from_secs(60);

/// Times at which a token was fetched and expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenLifetime {
    pub(super) obtained: Instant,
    pub(super) expires: Instant,
}

/// Failures since the last success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FetchFailures {
    pub(super) count: u32,
    pub(super) last: Instant,
    pub(super) retry_after: Option<Duration>,
}

/// Next step of a caller that needs a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenAction {
    /// Takes the token that is there.
    Use,
    /// Use the token, and start a fetch in the background.
    UseAndRefresh,
    /// Waits for a fetch.
    Fetch,
    /// Return the last error: the service was called just now.
    Refuse,
}

pub(super) fn next_action(now: Instant, life: Option<TokenLifetime>, failures: Option<FetchFailures>) -> TokenAction {
    let paused = failures.is_some_and(|failures| now < failures.last + pause(failures));
    match life {
        Some(life) if now + MARGIN >= life.expires && paused => TokenAction::Refuse,
        Some(life) if now + MARGIN >= life.expires => TokenAction::Fetch,
        Some(life) if now < refresh_at(life) || paused => TokenAction::Use,
        Some(_) => TokenAction::UseAndRefresh,
        None if paused => TokenAction::Refuse,
        None => TokenAction::Fetch,
    }
}

fn refresh_at(life: TokenLifetime) -> Instant {
    let whole = life.expires.saturating_duration_since(life.obtained);
    life.expires - REFRESH_AHEAD.min(whole / 2)
}

fn pause(failures: FetchFailures) -> Duration {
    let requested_delay = failures.retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER);
    PAUSE.delay(failures.count).max(requested_delay)
}

/// Returns `true` if a token that ARM refused is given up, given when that was last done.
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
        let hour = Some(TokenLifetime { obtained: start, expires: at(3600) });
        let short = Some(TokenLifetime { obtained: start, expires: at(60) });
        let failed = |count, last| Some(FetchFailures { count, last: at(last), retry_after: None });
        let told = Some(FetchFailures { count: 1, last: at(3400), retry_after: Some(Duration::from_secs(50)) });
        let long = Some(FetchFailures { count: 1, last: start, retry_after: Some(Duration::from_secs(86_400)) });
        let rows = [
            (0, None, None, TokenAction::Fetch),
            (0, hour, None, TokenAction::Use),
            (3299, hour, None, TokenAction::Use),
            (3300, hour, None, TokenAction::UseAndRefresh),
            (3300, hour, failed(1, 3300), TokenAction::Use),
            (3301, hour, failed(1, 3300), TokenAction::UseAndRefresh),
            (3420, hour, told, TokenAction::Use),
            (3450, hour, told, TokenAction::UseAndRefresh),
            (3589, hour, failed(1, 3000), TokenAction::UseAndRefresh),
            (3590, hour, None, TokenAction::Fetch),
            (3590, hour, failed(6, 3580), TokenAction::Refuse),
            (9000, hour, failed(3, 8000), TokenAction::Fetch),
            (29, short, None, TokenAction::Use),
            (30, short, None, TokenAction::UseAndRefresh),
            (50, short, None, TokenAction::Fetch),
            (10, None, failed(5, 0), TokenAction::Refuse),
            (16, None, failed(5, 0), TokenAction::Fetch),
            (59, None, failed(60, 0), TokenAction::Refuse),
            (60, None, failed(60, 0), TokenAction::Fetch),
            (300, None, long, TokenAction::Fetch),
        ];
        for (index, (now, life, failures, expected)) in rows.into_iter().enumerate() {
            assert_eq!(next_action(at(now), life, failures), expected, "row {index}");
        }
    }
}

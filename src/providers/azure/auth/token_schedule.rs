//! Decisions of the token cache: use the token, fetch another, or return the last error. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::runtime::backoff::ExponentialBackoff;

/// Time before expiry at which a token is replaced; half of its lifetime, if that is shorter.
const REFRESH_AHEAD: Duration = Duration::from_secs(300);
/// Remaining lifetime below which a token may expire before the request arrives.
const MARGIN: Duration = Duration::from_secs(10);
/// Delays of the next fetch after failures.
const BACKOFF: ExponentialBackoff = ExponentialBackoff::doubling(Duration::from_secs(1), Duration::from_secs(60));
/// Maximum delay that a service may request.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// Minimum time between two invalidations, because ARM may reject every token.
const INVALIDATION_INTERVAL: Duration = Duration::from_secs(60);

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
    /// Use the cached token.
    Use,
    /// Use the token, and start a fetch in the background.
    UseAndRefresh,
    /// Wait for a fetch.
    Fetch,
    /// Return the last error, because the service was called a moment ago.
    Refuse,
}

/// Returns the next action of a caller. `lifetime` is that of the cached token, if there is one.
pub(super) fn next_action(now: Instant, lifetime: Option<TokenLifetime>, failures: Option<FetchFailures>) -> TokenAction {
    let is_paused = failures.is_some_and(|failures| now < failures.last + pause(failures));
    match lifetime {
        Some(lifetime) if now + MARGIN >= lifetime.expires && is_paused => TokenAction::Refuse,
        Some(lifetime) if now + MARGIN >= lifetime.expires => TokenAction::Fetch,
        Some(lifetime) if now < refresh_at(lifetime) || is_paused => TokenAction::Use,
        Some(_) => TokenAction::UseAndRefresh,
        None if is_paused => TokenAction::Refuse,
        None => TokenAction::Fetch,
    }
}

fn refresh_at(lifetime: TokenLifetime) -> Instant {
    let length = lifetime.expires.saturating_duration_since(lifetime.obtained);
    lifetime.expires - REFRESH_AHEAD.min(length / 2)
}

fn pause(failures: FetchFailures) -> Duration {
    let requested_delay = failures.retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
    BACKOFF.delay(failures.count).max(requested_delay)
}

/// Returns `true` if a rejected token may be discarded. `last` is the time of the last invalidation.
pub(super) fn may_invalidate(now: Instant, last: Option<Instant>) -> bool {
    last.is_none_or(|last| now >= last + INVALIDATION_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn actions_depend_on_lifetime_and_failures() {
        let start = Instant::now() + Duration::from_secs(100_000);
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let hour = Some(TokenLifetime { obtained: start, expires: at(3600) });
        let short = Some(TokenLifetime { obtained: start, expires: at(60) });
        let failed = |count, last| Some(FetchFailures { count, last: at(last), retry_after: None });
        let delayed = Some(FetchFailures { count: 1, last: at(3400), retry_after: Some(Duration::from_secs(50)) });
        let long = Some(FetchFailures { count: 1, last: start, retry_after: Some(Duration::from_secs(86_400)) });
        let rows = [
            (0, None, None, TokenAction::Fetch),
            (0, hour, None, TokenAction::Use),
            (3299, hour, None, TokenAction::Use),
            (3300, hour, None, TokenAction::UseAndRefresh),
            (3300, hour, failed(1, 3300), TokenAction::Use),
            (3301, hour, failed(1, 3300), TokenAction::UseAndRefresh),
            (3420, hour, delayed, TokenAction::Use),
            (3450, hour, delayed, TokenAction::UseAndRefresh),
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

//! How often the API server may be asked, and by how many at once.
//!
//! In: who wants to ask. Out: a [`Share`] and then the wait for a turn, or that there is none: whoever comes when too many wait
//! is told so at once. A turn that is abandoned before it came is given back, so that the wait is never longer than those who
//! really wait make it. Those who show no name have a budget of their own, and so have those who show one, good or not, where nobody
//! may read anything: tokens cost nothing to make up.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{
    familiar::FamiliarNetworks,
    peer_network::{PeerNetwork, Share, ShareLimits, Shares},
};

/// A rate, and how many may wait for it or for an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReviewLimits {
    per_second: f64,
    burst: f64,
    open: ShareLimits,
}

/// For those who show a credential in a familiar network: the rate is that of `DelegatingAuthenticationOptions` (200 per second, 400 at once).
pub(super) const FAMILIAR: ReviewLimits =
    ReviewLimits { per_second: 200.0, burst: 400.0, open: ShareLimits { all: 64, each: 16, newcomers: 0 } };
/// For those who show one elsewhere. Each network has room for its first question, until it is familiar.
pub(super) const STRANGERS: ReviewLimits =
    ReviewLimits { per_second: 50.0, burst: 100.0, open: ShareLimits { all: 16, each: 4, newcomers: 32 } };
/// For those who show none. Health needs no review, and who else may ask without a name asks for few pages.
pub(super) const ANONYMOUS: ReviewLimits =
    ReviewLimits { per_second: 20.0, burst: 40.0, open: ShareLimits { all: 16, each: 8, newcomers: 0 } };

/// One budget.
#[derive(Debug)]
pub(super) struct ReviewBudget {
    bucket: Mutex<TokenBucket>,
    open: Shares,
}

impl ReviewBudget {
    pub(super) fn new(limits: ReviewLimits) -> Self {
        Self { bucket: Mutex::new(TokenBucket::new(limits, Instant::now())), open: Shares::new(limits.open) }
    }

    /// The right to ask, held until the answer is there; `None`: too many are asking.
    pub(super) fn enter(&self, peer: PeerNetwork) -> Option<Share> {
        self.open.take(peer)
    }

    /// Waits for a turn.
    pub(super) async fn turn(&self) {
        let wait = self.with_bucket(|bucket| bucket.take(Instant::now()));
        if wait.is_zero() {
            return;
        }
        let mut abandoned = GiveBack { budget: self, armed: true };
        sleep(wait).await;
        abandoned.armed = false;
    }

    fn with_bucket<R>(&self, act: impl FnOnce(&mut TokenBucket) -> R) -> R {
        act(&mut self.bucket.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The budgets of those who show a credential.
#[derive(Debug)]
pub(super) struct NamedBudgets {
    familiar: ReviewBudget,
    strangers: ReviewBudget,
    networks: Arc<FamiliarNetworks>,
}

impl NamedBudgets {
    pub(super) fn new(networks: &Arc<FamiliarNetworks>) -> Self {
        let (familiar, strangers) = (ReviewBudget::new(FAMILIAR), ReviewBudget::new(STRANGERS));
        Self { familiar, strangers, networks: Arc::clone(networks) }
    }

    /// The one for whoever comes from `peer`.
    pub(super) fn of(&self, peer: PeerNetwork, now: Instant) -> &ReviewBudget {
        if self.networks.contains(peer, now) { &self.familiar } else { &self.strangers }
    }
}

struct GiveBack<'a> {
    budget: &'a ReviewBudget,
    armed: bool,
}

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.budget.with_bucket(|bucket| bucket.tokens += 1.0);
        }
    }
}

/// May be overdrawn: the debt is the wait.
#[derive(Debug)]
struct TokenBucket {
    limits: ReviewLimits,
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    fn new(limits: ReviewLimits, now: Instant) -> Self {
        Self { limits, tokens: limits.burst, at: now }
    }

    fn take(&mut self, now: Instant) -> Duration {
        let earned = now.duration_since(self.at).as_secs_f64() * self.limits.per_second;
        self.tokens = (self.tokens + earned).min(self.limits.burst) - 1.0;
        self.at = now;
        Duration::from_secs_f64((-self.tokens / self.limits.per_second).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn peer(number: u8) -> PeerNetwork {
        PeerNetwork::of([10, 0, 0, number].into(), [10, 0, 0, 1].into())
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(FAMILIAR, now);
        for _ in 0..400 {
            assert_eq!(bucket.take(now), Duration::ZERO);
        }
        assert_eq!(bucket.take(now), Duration::from_millis(5));
        assert_eq!(bucket.take(now), Duration::from_millis(10));
        assert_eq!(bucket.take(now + Duration::from_secs(60)), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_turns_cost_nothing() {
        let budget = ReviewBudget::new(FAMILIAR);
        for _ in 0..400 {
            budget.turn().now_or_never().unwrap();
        }
        for _ in 0..9000 {
            assert!(budget.turn().now_or_never().is_none(), "it has to wait, and gives up");
        }
        let start = Instant::now();
        budget.turn().await;
        assert!(start.elapsed() <= Duration::from_millis(10), "{:?}", start.elapsed());
    }

    #[test]
    fn whoever_comes_when_too_many_ask_is_told_at_once() {
        let budget = ReviewBudget::new(ANONYMOUS);
        let all: Vec<_> = (2..4).flat_map(|number| (0..20).map(move |_| number)).map(|n| budget.enter(peer(n))).collect();
        let entered = all.iter().flatten().count();
        assert_eq!(entered, ANONYMOUS.open.all);
        assert!(budget.enter(peer(5)).is_none());
        drop(all);
        assert!(budget.enter(peer(5)).is_some());
    }

    #[test]
    fn strangers_take_no_reviews_from_familiar_networks_or_newcomers() {
        let networks = Arc::<FamiliarNetworks>::default();
        let (budgets, now) = (NamedBudgets::new(&networks), Instant::now());
        networks.add(peer(2), now);
        let held: Vec<_> =
            (3..7).flat_map(|n| (0..20).map(move |_| n)).filter_map(|n| budgets.of(peer(n), now).enter(peer(n))).collect();
        assert_eq!(held.len(), STRANGERS.open.all);
        assert!(budgets.of(peer(3), now).enter(peer(3)).is_none());
        assert!(budgets.of(peer(7), now).enter(peer(7)).is_some(), "one that was never seen");
        let familiar: Vec<_> = (0..20).filter_map(|_| budgets.of(peer(2), now).enter(peer(2))).collect();
        assert_eq!(familiar.len(), FAMILIAR.open.each);
    }

    #[test]
    fn nobody_waits_longer_than_a_second() {
        for limits in [FAMILIAR, STRANGERS, ANONYMOUS] {
            #[allow(clippy::cast_precision_loss, reason = "few")]
            let longest = limits.open.most() as f64 / limits.per_second;
            assert!(longest <= 1.0, "{limits:?}");
        }
    }
}

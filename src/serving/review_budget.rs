//! Rate and concurrency limits for access reviews.
//!
//! In: the network of a caller. Out: a [`NetworkPermit`] and then the wait for a token, or an immediate refusal if too many
//! callers wait. The token of a cancelled caller is returned, so cancelled callers do not delay others. Anonymous callers
//! have a separate budget, and so have callers with credentials, valid or not, in unauthorized networks. So invented tokens
//! do not affect authorized callers.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::{
    authorized_networks::AuthorizedNetworks,
    peer_network::{NetworkLimits, NetworkPermit, NetworkSemaphore, PeerNetwork},
};
use crate::runtime::token_bucket::TokenBucket;

/// Rate of reviews, and the number of callers that may wait for a token or a response.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReviewLimits {
    per_second: f64,
    burst: f64,
    concurrency: NetworkLimits,
}

/// Limits for callers with credentials in authorized networks.
///
/// The rate is that of `DelegatingAuthenticationOptions`: 200 per second, 400 at once.
pub(super) const AUTHORIZED_LIMITS: ReviewLimits = ReviewLimits {
    per_second: 200.0,
    burst: 400.0,
    concurrency: NetworkLimits { total: 64, per_network: 16, new_networks: 0 },
};
/// Limits for callers with credentials in other networks. Each network may send a first request, which can authorize it.
pub(super) const UNAUTHORIZED_LIMITS: ReviewLimits = ReviewLimits {
    per_second: 50.0,
    burst: 100.0,
    concurrency: NetworkLimits { total: 16, per_network: 4, new_networks: 32 },
};
/// Limits for anonymous callers. Health needs no review, and other anonymous callers request few pages.
pub(super) const ANONYMOUS_LIMITS: ReviewLimits = ReviewLimits {
    per_second: 20.0,
    burst: 40.0,
    concurrency: NetworkLimits { total: 16, per_network: 8, new_networks: 0 },
};

#[derive(Debug)]
pub(super) struct ReviewBudget {
    bucket: Mutex<TokenBucket>,
    semaphore: NetworkSemaphore,
}

impl ReviewBudget {
    pub(super) fn new(limits: ReviewLimits) -> Self {
        Self {
            bucket: Mutex::new(TokenBucket::new(limits.per_second, limits.burst, Instant::now())),
            semaphore: NetworkSemaphore::new(limits.concurrency),
        }
    }

    /// Acquires a permit for a review until its response; `None` if too many are in flight.
    pub(super) fn try_acquire(&self, peer: PeerNetwork) -> Option<NetworkPermit> {
        self.semaphore.try_acquire(peer)
    }

    /// Waits for a token of the rate limit.
    pub(super) async fn wait_for_token(&self) {
        let wait = self.bucket.lock().take(Instant::now());
        if wait.is_zero() {
            return;
        }
        let mut abandoned = TokenRefund { budget: self, armed: true };
        sleep(wait).await;
        abandoned.armed = false;
    }
}

/// Budgets of callers with credentials.
#[derive(Debug)]
pub(super) struct CredentialBudgets {
    authorized: ReviewBudget,
    unauthorized: ReviewBudget,
    networks: Arc<AuthorizedNetworks>,
}

impl CredentialBudgets {
    pub(super) fn new(networks: &Arc<AuthorizedNetworks>) -> Self {
        let (familiar, unfamiliar) = (ReviewBudget::new(AUTHORIZED_LIMITS), ReviewBudget::new(UNAUTHORIZED_LIMITS));
        Self { authorized: familiar, unauthorized: unfamiliar, networks: Arc::clone(networks) }
    }

    /// Returns the budget for callers from `peer`.
    pub(super) fn for_network(&self, peer: PeerNetwork, now: Instant) -> &ReviewBudget {
        if self.networks.contains(peer, now) { &self.authorized } else { &self.unauthorized }
    }
}

struct TokenRefund<'a> {
    budget: &'a ReviewBudget,
    armed: bool,
}

impl Drop for TokenRefund<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.budget.bucket.lock().give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    fn peer(number: u8) -> PeerNetwork {
        PeerNetwork::of([10, 0, 0, number].into(), [10, 0, 0, 1].into())
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_waits_cost_no_tokens() {
        let budget = ReviewBudget::new(AUTHORIZED_LIMITS);
        for _ in 0..400 {
            budget.wait_for_token().now_or_never().unwrap();
        }
        for _ in 0..9000 {
            assert!(budget.wait_for_token().now_or_never().is_none(), "the caller would have to wait, and cancels");
        }
        let start = Instant::now();
        budget.wait_for_token().await;
        assert!(start.elapsed() <= Duration::from_millis(10), "{:?}", start.elapsed());
    }

    #[test]
    fn excess_reviews_are_refused_at_once() {
        let budget = ReviewBudget::new(ANONYMOUS_LIMITS);
        let all: Vec<_> =
            (2..4).flat_map(|number| (0..20).map(move |_| number)).map(|n| budget.try_acquire(peer(n))).collect();
        let entered = all.iter().flatten().count();
        assert_eq!(entered, ANONYMOUS_LIMITS.concurrency.total);
        assert!(budget.try_acquire(peer(5)).is_none());
        drop(all);
        assert!(budget.try_acquire(peer(5)).is_some());
    }

    #[test]
    fn unauthorized_networks_do_not_use_up_other_budgets() {
        let networks = Arc::<AuthorizedNetworks>::default();
        let (budgets, now) = (CredentialBudgets::new(&networks), Instant::now());
        networks.add(peer(2), now);
        let permits: Vec<_> = (3..7)
            .flat_map(|n| (0..20).map(move |_| n))
            .filter_map(|n| budgets.for_network(peer(n), now).try_acquire(peer(n)))
            .collect();
        assert_eq!(permits.len(), UNAUTHORIZED_LIMITS.concurrency.total);
        assert!(budgets.for_network(peer(3), now).try_acquire(peer(3)).is_none());
        assert!(budgets.for_network(peer(7), now).try_acquire(peer(7)).is_some(), "a new network");
        let authorized: Vec<_> = (0..20).filter_map(|_| budgets.for_network(peer(2), now).try_acquire(peer(2))).collect();
        assert_eq!(authorized.len(), AUTHORIZED_LIMITS.concurrency.per_network);
    }

    #[test]
    fn waits_are_at_most_a_second() {
        for limits in [AUTHORIZED_LIMITS, UNAUTHORIZED_LIMITS, ANONYMOUS_LIMITS] {
            #[allow(clippy::cast_precision_loss, reason = "few")]
            let longest = limits.concurrency.max_held() as f64 / limits.per_second;
            assert!(longest <= 1.0, "{limits:?}");
        }
    }
}

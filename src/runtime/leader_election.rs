//! Who may write. [`Leadership`] is a value that every writer holds and asks at the write.
//!
//! In: a `coordination.k8s.io/v1` Lease that all replicas contend for, in client-go's format. Out: [`Leadership`]. `lease` decides
//! (pure), [`LeaderElector`] does.

mod elector;
pub mod lease;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

pub use elector::{EVENTS, ElectionOutcome, ElectorConfig, LeaderElectionHealth, LeaderElector, identity};

use tokio::sync::watch;

use super::clock::Uptime;

/// Whether this process may write, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeadershipState {
    /// Another replica leads, or nobody.
    Standby,
    /// This one leads; no write may start at or after this moment unless the lease is renewed before.
    Leading {
        /// End of the renew deadline that runs.
        until: Uptime,
    },
    /// No election: this one always may.
    Unopposed,
}

/// This process does not lead (any more): drop the work, the leader will do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this replica does not hold the lease")]
pub struct NotLeading;

/// Leadership as seen by writers. Clones see the same election.
#[derive(Debug, Clone)]
pub struct Leadership {
    state: watch::Receiver<LeadershipState>,
    /// Keeps the channel open when there is no elector.
    _unopposed: Option<Arc<watch::Sender<LeadershipState>>>,
    took_over: Arc<AtomicBool>,
}

impl Leadership {
    /// Leadership without election (`--leader-elect=false`).
    pub fn unopposed() -> Self {
        let (sender, state) = watch::channel(LeadershipState::Unopposed);
        Self { state, _unopposed: Some(Arc::new(sender)), took_over: Arc::default() }
    }

    /// Leadership that whoever holds the sender decides: the elector, or a test.
    pub fn channel() -> (watch::Sender<LeadershipState>, Self) {
        let (sender, state) = watch::channel(LeadershipState::Standby);
        (sender, Self { state, _unopposed: None, took_over: Arc::default() })
    }

    /// Whether the lease was another holder's: what that one sent last may be under way to the API server, even if it released the
    /// lease, since what outlasts its grace period is cut off without an answer.
    pub fn took_over(&self) -> bool {
        self.took_over.load(Ordering::Acquire)
    }

    /// Notes that there was a lease before, before anybody is told that this process leads.
    pub fn note_take_over(&self) {
        self.took_over.store(true, Ordering::Release);
    }

    /// Asked before every write.
    pub fn check(&self) -> Result<(), NotLeading> {
        match *self.state.borrow() {
            LeadershipState::Unopposed => Ok(()),
            LeadershipState::Leading { until } if !until.is_over() => Ok(()),
            LeadershipState::Leading { .. } | LeadershipState::Standby => Err(NotLeading),
        }
    }

    /// Whether this process leads now.
    pub fn is_leading(&self) -> bool {
        self.check().is_ok()
    }

    /// Resolves when this process does not lead any more, after it did.
    pub async fn lost(&self) {
        self.acquired().await;
        let mut state = self.state.clone();
        // An elector that is gone renews nothing, so a closed channel is a loss too.
        let _ = state.wait_for(|state| *state == LeadershipState::Standby).await;
    }

    /// Resolves when this process leads.
    pub async fn acquired(&self) {
        let mut state = self.state.clone();
        if state.wait_for(|state| *state != LeadershipState::Standby).await.is_err() {
            std::future::pending().await
        }
    }
}

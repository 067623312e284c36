//! Leader election. Every writer holds a [`Leadership`] and checks it immediately before each write.
//!
//! In: a `coordination.k8s.io/v1` Lease that all replicas contend for, in client-go's format. Out: [`Leadership`]. `lease`
//! decides (pure), [`LeaderElector`] executes.

mod elector;
pub mod lease;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

pub use elector::{EVENTS, ElectionOutcome, LeaderElectionHealth, LeaderElector, identity};
pub use lease::ElectorConfig;

use super::clock::Uptime;
use crate::runtime::watch;

/// Permission of this process to write, and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeadershipState {
    /// Another replica leads, or there is no leader.
    Standby,
    /// Leadership of this replica. No write may start at or after `until`, unless the lease is renewed before.
    Leading {
        /// End of the current renew deadline.
        until: Uptime,
    },
    /// There is no election, so this replica may always write.
    Unopposed,
}

/// Error of a process that does not lead (any more). The caller drops the work, which the leader does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this replica does not hold the lease")]
pub struct NotLeading;

/// Leadership, which every writer checks. Clones share the election.
#[derive(Debug, Clone)]
pub struct Leadership {
    state: watch::Receiver<LeadershipState>,
    /// Sender that keeps the channel open without an elector.
    _unopposed: Option<Arc<watch::Sender<LeadershipState>>>,
    took_over: Arc<AtomicBool>,
}

impl Leadership {
    /// Returns leadership without election (`--leader-elect=false`).
    pub fn unopposed() -> Self {
        let (sender, state) = watch::channel(LeadershipState::Unopposed);
        Self { state, _unopposed: Some(Arc::new(sender)), took_over: Arc::default() }
    }

    /// Returns leadership that the returned sender controls, which the elector or a test holds.
    pub fn channel() -> (watch::Sender<LeadershipState>, Self) {
        let (sender, state) = watch::channel(LeadershipState::Standby);
        (sender, Self { state, _unopposed: None, took_over: Arc::default() })
    }

    /// Returns `true` if another holder had the lease before.
    ///
    /// Its last request may still be in flight to the API server, even if it released the lease, because requests that
    /// exceed its grace period are cancelled without a response.
    pub fn took_over(&self) -> bool {
        self.took_over.load(Ordering::Acquire)
    }

    /// Records that there was a lease before. Must precede the report that this process leads.
    pub fn note_take_over(&self) {
        self.took_over.store(true, Ordering::Release);
    }

    /// Checks the leadership. Called before every write.
    pub fn check(&self) -> Result<(), NotLeading> {
        match *self.state.borrow() {
            LeadershipState::Unopposed => Ok(()),
            LeadershipState::Leading { until } if !until.is_over() => Ok(()),
            LeadershipState::Leading { .. } | LeadershipState::Standby => Err(NotLeading),
        }
    }

    /// Returns `true` if this process leads now.
    pub fn is_leading(&self) -> bool {
        self.check().is_ok()
    }

    /// Resolves when this process loses the leadership.
    pub async fn lost(&self) {
        self.acquired().await;
        let mut state = self.state.clone();
        // Without an elector, the lease is not renewed, so a closed channel is a loss, too.
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

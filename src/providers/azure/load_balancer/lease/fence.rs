//! Check before each write to ARM that the lease is not lost. The lease's task sets the state; clients of ARM check it.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::plan::NAME;
use crate::{cloud_provider::CloudError, providers::azure::arm::WriteCheck, runtime::clock::Clock};

/// Delay before work is retried that the loss of the lease has interrupted.
const RETRY_DELAY: Duration = Duration::from_secs(15);

/// State of the lease, shared by its task, its guards and the clients of ARM.
///
/// From the loss of the lease until all work that began under it has ended, writes are refused.
#[derive(Debug, Clone)]
pub struct LeaseFence {
    state: Arc<Mutex<LeaseState>>,
    clock: Clock,
}

#[derive(Debug, Default)]
enum LeaseState {
    /// No operation needs the lease.
    #[default]
    Free,
    /// Time until which other components must not take the lease; `None` if the API server returned no time.
    Held(Option<Timestamp>),
    Lost,
}

/// Error of an operation whose lease was lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the lease {NAME} was lost; nothing was sent")]
pub struct LeaseLost;

impl From<LeaseLost> for CloudError {
    fn from(lost: LeaseLost) -> Self {
        CloudError::RetryAfter { after: RETRY_DELAY, message: lost.to_string() }
    }
}

impl LeaseFence {
    pub(super) fn new(clock: Clock) -> Self {
        Self { state: Arc::default(), clock }
    }

    /// Checks that the lease was not lost. An expired lease counts as lost even if its task has not noticed yet.
    ///
    /// # Errors
    ///
    /// Fails if the lease was lost.
    pub fn check(&self) -> Result<(), LeaseLost> {
        match &*self.state.lock() {
            LeaseState::Lost => Err(LeaseLost),
            LeaseState::Held(Some(until)) if self.clock.wall() >= *until => Err(LeaseLost),
            LeaseState::Held(_) | LeaseState::Free => Ok(()),
        }
    }

    /// Returns the check that clients of ARM call before each write.
    pub fn write_check(&self) -> WriteCheck {
        let fence = self.clone();
        Arc::new(move || fence.check().map_err(|lost| lost.to_string()))
    }

    pub(super) fn hold(&self, until: Option<Timestamp>) {
        *self.state.lock() = LeaseState::Held(until);
    }

    pub(super) fn lose(&self) {
        *self.state.lock() = LeaseState::Lost;
    }

    pub(super) fn free(&self) {
        *self.state.lock() = LeaseState::Free;
    }
}

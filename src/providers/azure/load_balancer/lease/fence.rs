//! Whether writes may be sent that need the lease. The task of the lease says so, and clients of ARM ask before each write.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::plan::NAME;
use crate::{cloud_provider::CloudError, providers::azure::arm::WriteCheck, runtime::clock::Clock};

/// When to try again what the loss of the lease has ended.
const RETRY_DELAY: Duration = Duration::from_secs(15);

/// State of the lease, shared by its task, its guards and the clients. Refuses writes from the loss of the lease until all work that began
/// under it has ended.
#[derive(Debug, Clone)]
pub struct LeaseFence {
    state: Arc<Mutex<LeaseState>>,
    clock: Clock,
}

#[derive(Debug, Default)]
enum LeaseState {
    /// No work needs it.
    #[default]
    Free,
    /// Others must leave it alone until then; `None` if the API server returned no time.
    Held(Option<Timestamp>),
    Lost,
}

/// The lease was lost while work needed it.
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

    /// Checks that the lease was not lost. A lease that has expired counts as lost, whether or not its task knows.
    ///
    /// # Errors
    ///
    /// Fails if it was lost.
    pub fn check(&self) -> Result<(), LeaseLost> {
        match &*self.state.lock() {
            LeaseState::Lost => Err(LeaseLost),
            LeaseState::Held(Some(until)) if self.clock.wall() >= *until => Err(LeaseLost),
            LeaseState::Held(_) | LeaseState::Free => Ok(()),
        }
    }

    /// Returns the check for clients of ARM.
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

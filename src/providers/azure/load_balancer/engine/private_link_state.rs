//! What is remembered of private link services beside the documents: which are being written, and where Azure said that some are.
//!
//! In: writes that begin and end, groups. Out: the moment when none is being written, since each gives its load balancer another version.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

use crate::providers::azure::arm::ResourceId;

/// How long load balancers wait for private link services that are being written: those give them other versions.
const MAX_SETTLING: Duration = Duration::from_secs(10);

/// What is remembered of private link services beside the documents.
#[derive(Default)]
pub(super) struct PrivateLinkState {
    /// Resource groups that only Azure named.
    discovered: Mutex<BTreeSet<ResourceId>>,
    /// How many are being written.
    in_flight: Mutex<usize>,
    changed: Notify,
}

/// A private link service is being written.
pub(super) struct WriteInFlight<'a>(&'a PrivateLinkState);

impl Drop for WriteInFlight<'_> {
    fn drop(&mut self) {
        *self.0.in_flight.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.changed.notify_waiters();
    }
}

impl PrivateLinkState {
    pub(super) fn begin(&self) -> WriteInFlight<'_> {
        *self.in_flight.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        WriteInFlight(self)
    }

    fn is_idle(&self) -> bool {
        *self.in_flight.lock().unwrap_or_else(PoisonError::into_inner) == 0
    }

    /// Waits until none is being written, for a while.
    pub(super) async fn settled(&self) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.is_idle() {
                    return;
                }
                changed.await;
            }
        };
        // One that hangs holds up nobody: at worst the load balancer is planned again.
        let _ = timeout(MAX_SETTLING, wait).await;
    }

    /// Azure says that private link services of this cluster are in these groups.
    pub(super) fn note_discovered(&self, groups: BTreeSet<ResourceId>) {
        self.discovered.lock().unwrap_or_else(PoisonError::into_inner).extend(groups);
    }

    pub(super) fn discovered(&self) -> BTreeSet<ResourceId> {
        self.discovered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

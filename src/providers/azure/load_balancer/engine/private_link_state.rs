//! What is remembered of private link services beside the documents: which are being written, where Azure said that some are, and which
//! connections were to be cut.
//!
//! In: writes that begin and end, groups, deletions. Out: the moment when none is being written that is in the way of a write of load
//! balancers.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::timeout};

use super::newcomers::wait_until;
use crate::providers::azure::{
    arm::{ResourceId, private_link::PrivateLinkService},
    planner::load_balancer::desired::private_links::PrivateLinkDeletion,
};

/// How long load balancers wait for private link services that are being written at front ends which they change.
const MAX_SETTLING: Duration = Duration::from_secs(10);

/// What is remembered of private link services beside the documents.
#[derive(Default)]
pub(super) struct PrivateLinkState {
    /// Resource groups that only Azure named.
    discovered: Mutex<BTreeSet<ResourceId>>,
    in_flight: Mutex<WritesInFlight>,
    /// Those with connections whose deletion has begun, as they were then.
    going: Mutex<BTreeMap<ResourceId, PrivateLinkDeletion>>,
    changed: Notify,
}

#[derive(Default)]
struct WritesInFlight {
    next: u64,
    /// Ids in lower case of the front ends to which they lead, by number.
    frontends: BTreeMap<u64, Vec<String>>,
}

/// A private link service is being written.
pub(super) struct WriteInFlight<'a> {
    state: &'a PrivateLinkState,
    number: u64,
}

impl Drop for WriteInFlight<'_> {
    fn drop(&mut self) {
        self.state.in_flight().frontends.remove(&self.number);
        self.state.changed.notify_waiters();
    }
}

impl PrivateLinkState {
    pub(super) fn begin(&self, link: &PrivateLinkService) -> WriteInFlight<'_> {
        let mut writes = self.in_flight();
        let number = writes.next;
        writes.next += 1;
        writes.frontends.insert(number, link.frontends().map(str::to_ascii_lowercase).collect());
        WriteInFlight { state: self, number }
    }

    fn in_flight(&self) -> MutexGuard<'_, WritesInFlight> {
        self.in_flight.lock()
    }

    fn is_busy(&self, concerns: impl Fn(&str) -> bool) -> bool {
        self.in_flight().frontends.values().flatten().any(|frontend| concerns(frontend))
    }

    /// Waits until none is being written at a front end that `concerns` holds of, for a while. Whether there was one.
    pub(super) async fn settled(&self, concerns: impl Fn(&str) -> bool) -> bool {
        if !self.is_busy(&concerns) {
            return false;
        }
        // One that hangs holds up nobody: at worst the load balancer is planned again.
        let _ = timeout(MAX_SETTLING, wait_until(&self.changed, || !self.is_busy(&concerns))).await;
        true
    }

    /// Connections go before their private link service, which may stay when Azure refuses: remembers what there was at first.
    pub(super) fn begin_deletion(&self, gone: &PrivateLinkDeletion) {
        if !gone.document.connections().is_empty() {
            self.going().entry(gone.id.clone()).or_insert_with(|| gone.clone());
        }
    }

    /// It is gone. What it was, if connections went with it.
    pub(super) fn end_deletion(&self, id: &ResourceId) -> Option<PrivateLinkDeletion> {
        self.going().remove(id)
    }

    fn going(&self) -> MutexGuard<'_, BTreeMap<ResourceId, PrivateLinkDeletion>> {
        self.going.lock()
    }

    /// Azure says that private link services of this cluster are in these groups.
    pub(super) fn note_discovered(&self, groups: BTreeSet<ResourceId>) {
        self.discovered.lock().extend(groups);
    }

    pub(super) fn discovered(&self) -> BTreeSet<ResourceId> {
        self.discovered.lock().clone()
    }
}

//! What is remembered of private link services beside the documents: which are being written, where Azure said that some are, and which
//! connections were to be cut.
//!
//! In: writes that begin and end, groups, deletions. Out: the moment when none is being written that is in the way of a write of load
//! balancers.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::timeout;

use super::in_flight::{InFlight, Occupation};
use crate::providers::azure::{
    model::{ResourceId, network::PrivateLinkService},
    planner::load_balancer::desired::private_links::PrivateLinkDeletion,
};

/// How long load balancers wait for private link services that are being written at front ends which they change.
const MAX_SETTLING: Duration = Duration::from_secs(10);

/// What is remembered of private link services beside the documents.
#[derive(Default)]
pub(super) struct PrivateLinkState {
    /// Resource groups that only Azure named.
    discovered: Mutex<BTreeSet<ResourceId>>,
    /// Frontends of those that are being written.
    in_flight: InFlight,
    /// Those with connections whose deletion has begun, as they were then.
    going: Mutex<BTreeMap<ResourceId, PrivateLinkDeletion>>,
}

impl PrivateLinkState {
    /// A private link service is being written.
    pub(super) fn begin(&self, link: &PrivateLinkService) -> Occupation<'_> {
        self.in_flight.begin(link.frontends().map(str::to_ascii_lowercase).collect())
    }

    /// Waits for a limited time until no private link service is being written at `frontends`. Returns whether one was.
    pub(super) async fn settled(&self, frontends: &BTreeSet<String>) -> bool {
        if !self.in_flight.has_any(frontends) {
            return false;
        }
        // A write that hangs blocks no other Service: at worst the load balancer is planned again.
        let _ = timeout(MAX_SETTLING, self.in_flight.freed(frontends)).await;
        true
    }

    /// Connections go before their private link service, which may stay when Azure refuses: remembers what there was at first.
    pub(super) fn begin_deletion(&self, gone: &PrivateLinkDeletion) {
        if !gone.document.connections().is_empty() {
            self.going.lock().entry(gone.id.clone()).or_insert_with(|| gone.clone());
        }
    }

    /// It is gone. What it was, if connections went with it.
    pub(super) fn end_deletion(&self, id: &ResourceId) -> Option<PrivateLinkDeletion> {
        self.going.lock().remove(id)
    }

    /// Azure says that private link services of this cluster are in these groups.
    pub(super) fn note_discovered(&self, groups: BTreeSet<ResourceId>) {
        self.discovered.lock().extend(groups);
    }

    pub(super) fn discovered(&self) -> BTreeSet<ResourceId> {
        self.discovered.lock().clone()
    }
}

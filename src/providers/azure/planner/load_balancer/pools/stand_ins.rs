//! Period for which the own Nodes of entries must be ready members before stand-ins leave. Pure.
//!
//! In: a [`NodePlacement`] and the time. Out: the placement, in which stand-ins remain where own Nodes became ready members
//! only a moment ago: the load balancer's health probes need some intervals to find them healthy. The state is lost with the
//! process, which costs one more interval.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::node_placement::NodePlacement;

/// Times since which the own Nodes of entries are ready members next to stand-ins, by name of the entry in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadyEntries {
    since: BTreeMap<String, Instant>,
}

impl ReadyEntries {
    /// Keeps the stand-ins of entries whose own Nodes have not been ready members for as long as `interval`.
    pub fn keep_recent(&mut self, placement: &mut NodePlacement, now: Instant, interval: Duration) {
        let released = placement.released_entries();
        self.since.retain(|entry, _| released.contains(entry));
        for entry in released {
            let since = *self.since.entry(entry.clone()).or_insert(now);
            if now.duration_since(since) < interval {
                placement.keep_stand_ins(&entry);
            }
        }
    }
}

//! How long the own Nodes of entries have been ready members, before the Nodes that stand in for them leave. Pure.
//!
//! In: a [`NodePlacement`] and the time. Out: the same, with stand-ins kept where own Nodes became ready members a moment ago: the load
//! balancer's health probes need some intervals to find them healthy. What is remembered is lost with the process, which costs one more
//! interval.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::node_placement::NodePlacement;

/// Since when the own Nodes of entries are ready members while others stand in, by name of the entry in lower case.
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

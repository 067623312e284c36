//! Keys of the queues that represent all Nodes and all hosts, and the delay during which changes gather.

use std::{fmt, time::Duration};

/// Time during which node changes gather.
pub(super) const COALESCING_DELAY: Duration = Duration::from_secs(1);

/// The key of the queue of node changes: all of them are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeSync;

impl fmt::Display for NodeSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nodes")
    }
}

/// The key of the queue: all hosts are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HostSync;

impl fmt::Display for HostSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hosts")
    }
}

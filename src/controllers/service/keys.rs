//! Keys of the queues for all Nodes and all hosts, and the delay during which changes gather.

use std::time::Duration;

/// Time during which node changes gather.
pub(super) const COALESCING_DELAY: Duration = Duration::from_secs(1);

/// Only key of the queue of node changes.
pub(super) const ALL_NODES: &str = "nodes";

/// Only key of the queue of host changes.
pub(super) const ALL_HOSTS: &str = "hosts";

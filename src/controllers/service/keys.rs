//! Keys of the queues that represent all Nodes and all hosts, and the delay during which changes gather.

use std::time::Duration;

use crate::controllers::SingleKey;

/// Time during which node changes gather.
pub(super) const COALESCING_DELAY: Duration = Duration::from_secs(1);

/// The only key of the queue of node changes.
pub(super) const ALL_NODES: SingleKey = SingleKey("nodes");

/// The only key of the queue of host changes.
pub(super) const ALL_HOSTS: SingleKey = SingleKey("hosts");

//! Settings of the node-lifecycle controller as plain data. In: what the flags said: `cli` builds them. Out: what the controller and
//! its plan read.

use std::time::Duration;

/// Settings of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLifecycleControllerConfig {
    /// `--node-monitor-period`: how often Nodes that are not ready are looked at.
    pub monitor_period: Duration,
    /// `--concurrent-node-lifecycle-syncs`: number of Nodes checked concurrently.
    pub concurrent_syncs: usize,
    /// Time for which an instance must be missing before its Node is deleted.
    pub grace_period: Duration,
    /// So many deletions are not held back, but for more than half of the Nodes: of ten, ten are all…
    pub max_count: usize,
    /// …nor is this share of all Nodes, in percent. 100: nothing is held back.
    pub max_percent: usize,
    /// Time for which a deletion counts.
    pub window: Duration,
    /// Value of `--delete-uninitialized-nodes-after`; zero for never.
    pub delete_uninitialized_after: Duration,
}

impl Default for NodeLifecycleControllerConfig {
    fn default() -> Self {
        Self {
            monitor_period: Duration::from_secs(5),
            concurrent_syncs: 100,
            grace_period: Duration::from_secs(15),
            max_count: 10,
            max_percent: 20,
            window: Duration::from_secs(300),
            delete_uninitialized_after: Duration::ZERO,
        }
    }
}

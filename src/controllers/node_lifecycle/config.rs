//! Settings of the node-lifecycle controller and its plan as plain data, which `cli` builds from flags.

use std::time::Duration;

/// Settings of the node-lifecycle controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLifecycleControllerConfig {
    /// Interval between checks of each Node that is not ready (`--node-monitor-period`).
    pub monitor_period: Duration,
    /// Number of Nodes checked concurrently (`--concurrent-node-lifecycle-syncs`).
    pub concurrent_syncs: usize,
    /// Time for which an instance must be missing before its Node is deleted.
    pub grace_period: Duration,
    /// Number of deletions within one window that are not delayed, at most half of the Nodes (`--node-deletion-max-count`).
    pub max_count: usize,
    /// Share of all Nodes, in percent, whose deletion is not delayed (`--node-deletion-max-percent`). 100 delays none.
    pub max_percent: usize,
    /// Time for which a deletion counts against both limits.
    pub window: Duration,
    /// Time after which an uninitialized Node without an instance is deleted (`--delete-uninitialized-nodes-after`); zero for
    /// never.
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

//! Settings of the node controller as plain data. In: what the flags said: `cli` builds them. Out: what the controller reads.

use std::time::Duration;

use crate::runtime::work_queue::KeyBackoff;

/// Settings of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeControllerConfig {
    /// Number of Nodes initialized concurrently; `None` for no limit.
    pub workers: Option<usize>,
    /// Number of Nodes whose addresses are updated concurrently; `None` for no limit.
    pub status_workers: Option<usize>,
    /// `--node-status-update-frequency`.
    pub status_update_frequency: Duration,
    /// Delays between attempts to initialize a Node.
    pub backoff: KeyBackoff,
    /// Whether a Node keeps its taint until there is a route to its Pods (`--wait-routes` of cloud-node-manager).
    pub waits_for_routes: bool,
    /// Whether the labels for machine type, zone and region are set under their older names as well
    /// (`--enable-deprecated-beta-topology-labels`).
    pub beta_labels: bool,
    /// Whether the labels for machine type, zone and region follow the instance after initialization (`--reconcile-node-labels`).
    pub reconcile_labels: bool,
}

impl Default for NodeControllerConfig {
    fn default() -> Self {
        Self {
            workers: None,
            status_workers: None,
            status_update_frequency: Duration::from_secs(300),
            backoff: KeyBackoff::DEFAULT,
            waits_for_routes: false,
            beta_labels: false,
            reconcile_labels: false,
        }
    }
}

//! Settings of cloud-node-manager as plain data, which `cli` builds from flags.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeManagerSettings {
    /// `--node-status-update-frequency`.
    pub status_update_frequency: Duration,
    /// `--wait-routes`.
    pub wait_routes: bool,
    /// `--enable-deprecated-beta-topology-labels`.
    pub beta_labels: bool,
    /// `--reconcile-node-labels`.
    pub reconcile_labels: bool,
}

impl NodeManagerSettings {
    /// Returns the maximum age of a cached response of the provider: half a period.
    ///
    /// A response that is valid for a whole period could also serve the next update, if that comes slightly early.
    pub fn max_age(&self) -> Duration {
        self.status_update_frequency / 2
    }
}

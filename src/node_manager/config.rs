//! Settings of cloud-node-manager as plain data. In: what the flags said: `cli` builds them. Out: what the node manager reads.

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
    /// Returns the largest age of a response of the provider: half a period.
    ///
    /// A response that is valid for a whole period would also serve the next one, if the next request comes a moment less
    /// than a period after it.
    pub fn max_age(&self) -> Duration {
        self.status_update_frequency / 2
    }
}

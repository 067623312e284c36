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
    /// How old an answer of the provider may be. Half a period: one that stood for a whole one would stand for the next one, too,
    /// whenever that one's question is asked a moment less than a period after the answer came.
    pub fn max_age(&self) -> Duration {
        self.status_update_frequency / 2
    }
}

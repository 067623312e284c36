//! Settings of the node controller as plain data. In: what the flags said: `cli` builds them. Out: what the controller reads.

use std::time::Duration;

use crate::runtime::work_queue::KeyBackoff;

/// Deprecated names of the labels for machine type, zone and region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BetaLabels {
    /// Never written: the default of cloud-node-manager.
    Omitted,
    /// Written when a Node is initialized, as by upstream's library.
    Initial,
    /// Kept equal to the stable names (`--enable-deprecated-beta-topology-labels`).
    Reconciled,
}

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
    /// Deprecated names that labels get as well.
    pub beta_labels: BetaLabels,
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
            beta_labels: BetaLabels::Initial,
            reconcile_labels: false,
        }
    }
}

impl NodeControllerConfig {
    /// Returns `true` if an initialization writes the deprecated names as well.
    pub(super) fn sets_beta_labels(&self) -> bool {
        self.beta_labels != BetaLabels::Omitted
    }

    /// Returns `true` if the deprecated names follow the stable ones after the initialization.
    pub(super) fn reconciles_beta_labels(&self) -> bool {
        self.beta_labels == BetaLabels::Reconciled
    }
}

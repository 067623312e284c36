//! Settings of the node controller as plain data, which `cli` builds from flags.

use std::time::Duration;

use crate::runtime::work_queue::KeyBackoff;

/// Policy for the deprecated names of the labels for machine type, zone and region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BetaLabels {
    /// Never written: the default of cloud-node-manager.
    Omitted,
    /// Written when a Node is initialized, as by upstream's library.
    Initial,
    /// Kept equal to the stable names (`--enable-deprecated-beta-topology-labels`).
    Reconciled,
}

/// Settings of the node controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeControllerConfig {
    /// Number of Nodes initialized concurrently; `None` for no limit.
    pub workers: Option<usize>,
    /// Number of Nodes whose addresses are updated concurrently; `None` for no limit.
    pub status_workers: Option<usize>,
    /// Interval between address updates of each Node (`--node-status-update-frequency`).
    pub status_update_frequency: Duration,
    /// Delays between attempts to initialize a Node.
    pub backoff: KeyBackoff,
    /// Whether a Node keeps its taint until there is a route to its Pods (`--wait-routes` of cloud-node-manager).
    pub waits_for_routes: bool,
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
    /// Returns `true` if an initialization also writes the deprecated label names.
    pub(super) fn sets_beta_labels(&self) -> bool {
        self.beta_labels != BetaLabels::Omitted
    }

    /// Returns `true` if the deprecated label names follow the stable ones after the initialization.
    pub(super) fn reconciles_beta_labels(&self) -> bool {
        self.beta_labels == BetaLabels::Reconciled
    }
}

//! What the last reconcile of routes left.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::drift::KnownRoutes;
use crate::cloud_provider::drift::DriftLog;

/// Result of the last reconcile, for the status page and the next one.
#[derive(Default)]
pub(super) struct LastRouteReconcile {
    pub(super) list_error: Option<String>,
    pub(super) summary: Option<String>,
    /// Routes at its end, the baseline for drift detection.
    pub(super) baseline: Option<KnownRoutes>,
    pub(super) drift: DriftLog,
    /// Pod CIDRs that get no new route, by the UID of the Node, and whether they have one, as far as events report them.
    pub(super) refused: BTreeSet<(String, IpNet, bool)>,
}

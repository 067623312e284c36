//! State that a reconcile of routes leaves for status pages and for the next one.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::drift::KnownRoutes;
use crate::cloud_provider::drift::DriftLog;

/// Result of the last reconcile, for the status page and the next one.
#[derive(Default)]
pub(super) struct LastRouteReconcile {
    pub(super) list_error: Option<String>,
    pub(super) summary: Option<String>,
    /// Routes at the end of the reconcile, the baseline for drift detection.
    pub(super) baseline: Option<KnownRoutes>,
    pub(super) drift: DriftLog,
    /// Pod CIDRs that get no new route and were reported: UID of the Node, CIDR, and whether it has a route.
    pub(super) refused: BTreeSet<(String, IpNet, bool)>,
}

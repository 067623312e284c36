//! What the flags say of routes, and which of it the controller can work with. Pure.

use std::time::Duration;

use ipnet::IpNet;

use crate::runtime::work_queue::KeyBackoff;

/// Shortest time between two full reconciles when no node changes; finds what somebody else did to the routes.
pub const RESYNC_PERIOD: Duration = Duration::from_secs(300);

/// Delay before the first repetition of what failed; doubles up to [`RouteControllerConfig::reconciliation_period`].
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(500);

/// What the flags say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteControllerConfig {
    /// `--cluster-cidr`: routes inside are ours. One, or one per address family.
    pub cluster_cidrs: Vec<IpNet>,
    /// `--route-reconciliation-period`: longest time between two attempts while something fails.
    pub reconciliation_period: Duration,
    /// Feature gate `CloudControllerManagerWatchBasedRoutesReconciliation`: changes of nodes make routes due. Without it only time
    /// does: every [`Self::reconciliation_period`].
    pub watch_based: bool,
    /// Whether the informer shows some Nodes only (`--node-filter-requirements`). What is not shown may be there all the same.
    pub nodes_are_filtered: bool,
}

impl RouteControllerConfig {
    /// Time between two full reconciles when no node changes and nothing fails: [`RESYNC_PERIOD`], or the reconciliation period
    /// if that is longer or nodes are not watched.
    pub fn resync_period(&self) -> Duration {
        if self.watch_based { RESYNC_PERIOD.max(self.reconciliation_period) } else { self.reconciliation_period }
    }

    pub(super) fn backoff(&self) -> KeyBackoff {
        KeyBackoff { base: FIRST_RETRY, max: FIRST_RETRY.max(self.reconciliation_period) }
    }

    pub(super) fn check(&self) -> Result<(), RouteControllerError> {
        match self.cluster_cidrs.as_slice() {
            [] => Err(RouteControllerError::NoClusterCidr),
            [_] | [IpNet::V4(_), IpNet::V6(_)] | [IpNet::V6(_), IpNet::V4(_)] => Ok(()),
            [one, other] => Err(RouteControllerError::SameFamily(*one, *other)),
            more => Err(RouteControllerError::TooManyClusterCidrs(more.len())),
        }
    }
}

/// Why the controller cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteControllerError {
    /// The provider has no routes: go on without this controller.
    #[error("cloud provider {0:?} does not support routes; --configure-cloud-routes=false says that none are wanted")]
    RoutesUnsupported(String),
    /// `--cluster-cidr` is missing: the operator has to set it.
    #[error(
        "--cluster-cidr is empty, but routes are to be configured: give one CIDR, or one per address family, separated by a comma"
    )]
    NoClusterCidr,
    /// `--cluster-cidr` has more than two elements.
    #[error("--cluster-cidr has {0} CIDRs: at most two are accepted, one per address family")]
    TooManyClusterCidrs(usize),
    /// `--cluster-cidr` has two elements of one address family.
    #[error("--cluster-cidr has {0} and {1}, which are of the same address family: one IPv4 and one IPv6 CIDR are accepted")]
    SameFamily(IpNet, IpNet),
}

//! Route flags, and checks of the configurations that the controller supports. Pure.

use std::time::Duration;

use ipnet::IpNet;

use crate::runtime::work_queue::KeyBackoff;

/// Interval between full reconciles if no node changes, which detect external changes to the routes.
pub const RESYNC_PERIOD: Duration = Duration::from_secs(300);

/// Delay before the first retry of a failure; doubles up to [`RouteControllerConfig::reconciliation_period`].
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(500);

/// Values of the flags of the route controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteControllerConfig {
    /// Ranges whose routes this cluster manages (`--cluster-cidr`): one, or one per address family.
    pub cluster_cidrs: Vec<IpNet>,
    /// Longest time between two attempts while something fails (`--route-reconciliation-period`).
    pub reconciliation_period: Duration,
    /// Whether changes of nodes cause reconciles (feature gate `CloudControllerManagerWatchBasedRoutesReconciliation`).
    ///
    /// Without the gate, reconciles run every [`Self::reconciliation_period`].
    pub watch_based: bool,
    /// Whether the informer hides some Nodes (`--node-filter-requirements`). A Node that it lacks may exist nevertheless.
    pub nodes_are_filtered: bool,
    /// Prefixes that limit the sizes of pod CIDRs.
    pub node_masks: NodeMaskSizes,
}

/// Prefixes of Nodes' pod CIDRs that flags determine.
///
/// `None`: another program or the cloud chooses them, and the command line has no `--node-cidr-mask-size-ipv4` or
/// `--node-cidr-mask-size-ipv6`. The prefix that most Ready Nodes have replaces it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeMaskSizes {
    pub ipv4: Option<u8>,
    pub ipv6: Option<u8>,
}

/// Limits on the pod CIDRs that get routes.
#[derive(Debug, Clone, Copy)]
pub(super) struct RouteLimits<'a> {
    pub(super) cluster_cidrs: &'a [IpNet],
    pub(super) node_masks: NodeMaskSizes,
}

/// Reason why a pod CIDR gets no new route: the kubelet that registers a Node may claim any pod CIDR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RefusedCidr {
    #[error("it is outside --cluster-cidr")]
    Outside,
    #[error(
        "it is larger than /{limit}, the largest size that gets a route; if the size is intended, set --{flag}, else register \
         the Node again with a smaller pod CIDR"
    )]
    TooLarge { limit: u8, flag: &'static str },
}

/// Number of bits by which a pod CIDR may be larger than the mask, because it may predate the current mask.
pub(crate) const MASK_TOLERANCE: u8 = 4;

impl RouteLimits<'_> {
    /// Checks whether `cidr` may have a new route. Returns the reason if not.
    pub(super) fn check(&self, cidr: &IpNet) -> Result<(), RefusedCidr> {
        if !self.cluster_cidrs.iter().any(|cluster| cluster.contains(cidr)) {
            return Err(RefusedCidr::Outside);
        }
        let (mask, flag) = match cidr {
            IpNet::V4(_) => (self.node_masks.ipv4, "node-cidr-mask-size-ipv4"),
            IpNet::V6(_) => (self.node_masks.ipv6, "node-cidr-mask-size-ipv6"),
        };
        match mask.map(|mask| mask.saturating_sub(MASK_TOLERANCE)).filter(|limit| cidr.prefix_len() < *limit) {
            Some(limit) => Err(RefusedCidr::TooLarge { limit, flag }),
            None => Ok(()),
        }
    }
}

impl RouteControllerConfig {
    /// Returns the time between two full reconciles when no node changes and nothing fails: [`RESYNC_PERIOD`], or the
    /// reconciliation period if that is longer or nodes are not watched.
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
            [first, second] => Err(RouteControllerError::SameFamily(*first, *second)),
            more => Err(RouteControllerError::TooManyClusterCidrs(more.len())),
        }
    }
}

/// Reason why the controller cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteControllerError {
    /// The provider has no routes: continue without this controller.
    #[error("cloud provider {0:?} does not support routes; set --configure-cloud-routes=false")]
    RoutesUnsupported(String),
    /// `--cluster-cidr` is missing: the operator must set it.
    #[error(
        "--cluster-cidr is empty, but cloud routes are enabled: give one CIDR, or one per address family, separated by a comma"
    )]
    NoClusterCidr,
    /// `--cluster-cidr` has more than two elements.
    #[error("--cluster-cidr has {0} CIDRs: at most two are accepted, one per address family")]
    TooManyClusterCidrs(usize),
    /// `--cluster-cidr` has two elements of one address family.
    #[error("--cluster-cidr has {0} and {1}, which are of the same address family: one IPv4 and one IPv6 CIDR are accepted")]
    SameFamily(IpNet, IpNet),
}

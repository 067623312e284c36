//! Names of each controller. Plain data, from which the command line and the reference page derive.
//!
//! Names and aliases are upstream's (`k8s.io/cloud-provider/names`).

/// Names of one controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerNames {
    /// Name in `--controllers`, health checks and logs.
    pub canonical: &'static str,
    /// Older name, also accepted by `--controllers`.
    pub alias: &'static str,
    /// User agent, and ServiceAccount if `--use-service-account-credentials` is set.
    pub client: &'static str,
    /// Value of the label of `running_managed_controllers`.
    pub metric: &'static str,
    /// Source component of its events.
    pub event_source: &'static str,
}

/// Names of the node-ipam controller. Upstream has no older name; the alias is the name in kube-controller-manager.
pub const NODE_IPAM: ControllerNames = ControllerNames {
    canonical: "node-ipam",
    alias: "node-ipam-controller",
    client: "node-controller",
    metric: "node-ipam",
    event_source: "cidrAllocator",
};

pub const NODE: ControllerNames = ControllerNames {
    canonical: "cloud-node-controller",
    alias: "cloud-node",
    client: "node-controller",
    metric: "cloud-node",
    event_source: "cloud-node-controller",
};

pub const NODE_LIFECYCLE: ControllerNames = ControllerNames {
    canonical: "cloud-node-lifecycle-controller",
    alias: "cloud-node-lifecycle",
    client: "node-controller",
    metric: "cloud-node-lifecycle",
    event_source: "cloud-node-lifecycle-controller",
};

pub const SERVICE: ControllerNames = ControllerNames {
    canonical: "service-lb-controller",
    alias: "service",
    client: "service-controller",
    metric: "service",
    event_source: "service-controller",
};

pub const ROUTE: ControllerNames = ControllerNames {
    canonical: "node-route-controller",
    alias: "route",
    client: "route-controller",
    metric: "route",
    event_source: "route_controller",
};

/// Controllers in the order in which they are built and started.
pub const TABLE: &[ControllerNames] = &[NODE_IPAM, NODE, NODE_LIFECYCLE, SERVICE, ROUTE];

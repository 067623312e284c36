//! Flags that select the controllers, and set their intervals and concurrency.

use std::time::Duration;

use super::declare_flags;

declare_flags! {
    CONTROLLERS: Vec<String> = "controllers" "*"
        "Controllers to run: '*' enables all, 'name' enables one, '-name' disables one. The first mention of a name \
         applies.";
    ENABLE_NODE_CONTROLLER: bool = "enable-node-controller" "true"
        "Run the node controller. Set to false if a cloud-node-manager on each node initializes it.";
    CONCURRENT_NODE_SYNCS: i32 = "concurrent-node-syncs" "64"
        "Nodes that are initialized at a time. Upstream's default is 1.";
    CONCURRENT_NODE_STATUS_UPDATES: i32 = "concurrent-node-status-updates" "0"
        "Nodes whose addresses are refreshed at a time. 0 selects the value of --concurrent-node-syncs.";
    NODE_STATUS_UPDATE_FREQUENCY: Duration = "node-status-update-frequency" "5m"
        "Interval at which the addresses of nodes are compared with the cloud.";
    ENABLE_DEPRECATED_BETA_TOPOLOGY_LABELS: bool = "enable-deprecated-beta-topology-labels" "false"
        "Keep the deprecated names of the labels for machine type, zone and region equal to the stable ones. With false, the manager \
         sets them once, when it initializes a node, as upstream's does; cloud-node-manager does not set them.";
    RECONCILE_NODE_LABELS: bool = "reconcile-node-labels" "false"
        "Keep the labels for machine type, zone and region of initialized nodes equal to their instances, compared every \
         --node-status-update-frequency. Values that you set by hand are then overwritten. With false, the labels are written \
         once, when a node is initialized; edited values are kept, and an event and a metric report differences.";
    NODE_MONITOR_PERIOD: Duration = "node-monitor-period" "5s"
        "Interval at which the node-lifecycle controller reads the instances of nodes that are not ready.";
    CONCURRENT_NODE_LIFECYCLE_SYNCS: i32 = "concurrent-node-lifecycle-syncs" "100"
        "Nodes that the node-lifecycle controller checks at a time. Upstream's default is 1, with which a slow response of the cloud delays \
         all other nodes.";
    NODE_SYNC_PERIOD: Duration = "node-sync-period" "0s" "Former period of node synchronization."
        [ignored("upstream has ignored it for years")] [deprecated("remove it")];
    NODE_DELETION_GRACE_PERIOD: Duration = "node-deletion-grace-period" "30s"
        "Time for which an instance must be missing, counted from the first of two confirmations, before its node is \
         deleted.";
    NODE_DELETION_MAX_COUNT: i32 = "node-deletion-max-count" "10"
        "Number of nodes that may lose their instances within one window. If more do, and more than --node-deletion-max-percent, they are \
         deleted slowly: at most the larger of the two limits in a window, and none while the evidence is inconclusive. At most half of \
         the nodes count here: of ten nodes, five.";
    NODE_DELETION_MAX_PERCENT: i32 = "node-deletion-max-percent" "20"
        "Share of the cluster's nodes, in percent, for the limit described at --node-deletion-max-count. 100 turns the limit off.";
    NODE_DELETION_WINDOW: Duration = "node-deletion-window" "5m" "Length of the window for --node-deletion-max-count.";
    DELETE_UNINITIALIZED_NODES_AFTER: Duration = "delete-uninitialized-nodes-after" "0s"
        "Time, at least 10m, for which the name of a node must be missing from all lists of the cloud before the node is deleted. This \
         concerns nodes that have the uninitialized taint and no provider id, and whose kubelet is silent. The limit described at \
         --node-deletion-max-count applies. 0 turns the deletion off. With a provider that has no such lists, the nodes are kept.";
    ROUTE_RECONCILIATION_PERIOD: Duration = "route-reconciliation-period" "10s"
        "Interval at which routes are compared with the cloud when nothing has changed, unless they are watch-driven.";
    CONCURRENT_SERVICE_SYNCS: i32 = "concurrent-service-syncs" "0"
        "Services that are synchronized at a time. 0 selects as many as the provider supports. Upstream's default is 1. With \
         --cloud-provider=azure, 1 also selects 0, because Azure's build of the Go program accepts no other value.";
    LOAD_BALANCER_CLASS: String = "load-balancer-class" ""
        "Class in spec.loadBalancerClass of Services that get their load balancers here, such as example.com/azure. Empty selects no \
         class, as upstream. Several programs in one cluster need different classes.";
    SERVE_SERVICES_WITHOUT_CLASS: bool = "serve-services-without-class" "true"
        "Manage the load balancers of Services without spec.loadBalancerClass. Only one program of a cluster may do so.";
}

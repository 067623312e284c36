//! Flags that select the controllers and set their pace.

use std::time::Duration;

use super::declare_flags;

declare_flags! {
    CONTROLLERS: Vec<String> = "controllers" "*"
        "Controllers to run: '*' stands for all, 'name' enables one, '-name' disables one; the first mention of a \
         name counts.";
    ENABLE_NODE_CONTROLLER: bool = "enable-node-controller" "true"
        "Whether the node controller runs. Set to false where a cloud-node-manager on each node initializes it.";
    CONCURRENT_NODE_SYNCS: i32 = "concurrent-node-syncs" "64"
        "Nodes that are initialized at a time. Upstream's default is 1.";
    CONCURRENT_NODE_STATUS_UPDATES: i32 = "concurrent-node-status-updates" "0"
        "Nodes whose addresses are refreshed at a time; 0: as many as --concurrent-node-syncs.";
    NODE_STATUS_UPDATE_FREQUENCY: Duration = "node-status-update-frequency" "5m"
        "How often the addresses of nodes are compared with the cloud.";
    ENABLE_DEPRECATED_BETA_TOPOLOGY_LABELS: bool = "enable-deprecated-beta-topology-labels" "false"
        "Keep the deprecated names of the labels for machine type, zone and region equal to the stable ones. false: the manager sets them \
         once, when it initializes a node, as upstream's; cloud-node-manager sets none.";
    RECONCILE_NODE_LABELS: bool = "reconcile-node-labels" "false"
        "Keep the labels for machine type, zone and region of initialized nodes equal to their instances, compared every \
         --node-status-update-frequency. Values that you set by hand are then overwritten. false: the labels are written once, \
         when a node is initialized, edited values are kept, and an event and a metric report differences.";
    NODE_MONITOR_PERIOD: Duration = "node-monitor-period" "5s"
        "How often the node-lifecycle controller asks the cloud about nodes that are not ready.";
    CONCURRENT_NODE_LIFECYCLE_SYNCS: i32 = "concurrent-node-lifecycle-syncs" "100"
        "Nodes that the node-lifecycle controller checks at a time. Upstream's default is 1, so that a slow answer of the cloud delays all \
         other nodes.";
    NODE_SYNC_PERIOD: Duration = "node-sync-period" "0s" "Once the period of node synchronization."
        [ignored("upstream has ignored it for years")] [deprecated("remove it")];
    NODE_DELETION_GRACE_PERIOD: Duration = "node-deletion-grace-period" "30s"
        "How long an instance must be known to be gone, counted from the first of two confirmations, before its \
         node is deleted.";
    NODE_DELETION_MAX_COUNT: i32 = "node-deletion-max-count" "10"
        "When more nodes than this and more than --node-deletion-max-percent lose their instances within one window, their nodes are \
         deleted slowly, no more in a window than the larger of the two, and not at all while the evidence is doubtful. At most half of \
         the nodes count here: of ten nodes, five.";
    NODE_DELETION_MAX_PERCENT: i32 = "node-deletion-max-percent" "20"
        "Share of the cluster's nodes for the limit described at --node-deletion-max-count; 100 turns the limit off.";
    NODE_DELETION_WINDOW: Duration = "node-deletion-window" "5m" "Length of the window for --node-deletion-max-count.";
    DELETE_UNINITIALIZED_NODES_AFTER: Duration = "delete-uninitialized-nodes-after" "0s"
        "Delete a node that has the uninitialized taint and no provider id, whose kubelet is silent, and whose name no list of the cloud \
         has had for this long, at least 10m. The limit described at --node-deletion-max-count applies. 0: never. A provider that has no \
         such lists keeps the nodes.";
    ROUTE_RECONCILIATION_PERIOD: Duration = "route-reconciliation-period" "10s"
        "How often routes are compared with the cloud when nothing has changed, unless they are watch-driven.";
    CONCURRENT_SERVICE_SYNCS: i32 = "concurrent-service-syncs" "0"
        "Services that are synchronized at a time; 0: as many as the provider can take. Upstream's default is 1. With \
         --cloud-provider=azure 1 means 0: Azure's build of the Go program accepts no other value, so that it says nothing.";
    LOAD_BALANCER_CLASS: String = "load-balancer-class" ""
        "Class in spec.loadBalancerClass of Services that get their load balancers here, such as example.com/azure; empty: none, as \
         upstream. Several programs in one cluster need different ones.";
    SERVE_SERVICES_WITHOUT_CLASS: bool = "serve-services-without-class" "true"
        "Whether Services without spec.loadBalancerClass get their load balancers here. Only one program of a cluster may.";
}

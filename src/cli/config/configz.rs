//! Configuration object that `/configz` shows. Pure.
//!
//! Field names are those of the Go types (`k8s.io/cloud-provider/config/v1alpha1`,
//! `k8s.io/controller-manager/config/v1alpha1`), which have no JSON tags and so appear in Go's spelling; the types of
//! `k8s.io/component-base/config/v1alpha1` have tags.

use serde_json::{Value, json};

use crate::cli::{
    arguments::FlagArguments,
    flags::{TypedFlag, cloud, controllers, generic, leader_election, serving::secure, webhooks},
    value::FlagValue,
};
use crate::controllers::leader_migration::LeaderMigration;
use crate::flags::duration;

pub(super) fn configz(arguments: &FlagArguments, migration: Option<&LeaderMigration>) -> Value {
    let time = |flag: &TypedFlag<_>| Value::String(duration::format(arguments.read(flag)));
    json!({
        "kind": "CloudControllerManagerConfiguration",
        "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
        "Generic": generic(arguments, migration),
        "KubeCloudShared": shared(arguments),
        "NodeController": {
            "ConcurrentNodeSyncs": arguments.read(&controllers::CONCURRENT_NODE_SYNCS),
            "ConcurrentNodeStatusUpdates": arguments.read(&controllers::CONCURRENT_NODE_STATUS_UPDATES),
        },
        "NodeLifecycleController": {
            "NodeMonitorPeriod": time(&controllers::NODE_MONITOR_PERIOD),
            "ConcurrentNodeLifecycleSyncs": arguments.read(&controllers::CONCURRENT_NODE_LIFECYCLE_SYNCS),
        },
        "ServiceController": { "ConcurrentServiceSyncs": arguments.read(&controllers::CONCURRENT_SERVICE_SYNCS) },
        "NodeStatusUpdateFrequency": time(&controllers::NODE_STATUS_UPDATE_FREQUENCY),
        "Webhook": { "Webhooks": arguments.read(&webhooks::WEBHOOKS) },
    })
}

fn generic(arguments: &FlagArguments, migration: Option<&LeaderMigration>) -> Value {
    let time = |flag: &TypedFlag<_>| Value::String(duration::format(arguments.read(flag)));
    json!({
        "Port": arguments.read(&secure::SECURE_PORT),
        "Address": arguments.read(&secure::BIND_ADDRESS).print(),
        "MinResyncPeriod": time(&generic::MIN_RESYNC_PERIOD),
        "ClientConnection": {
            "kubeconfig": arguments.read(&generic::KUBECONFIG),
            "acceptContentTypes": "",
            "contentType": arguments.read(&generic::KUBE_API_CONTENT_TYPE),
            "qps": arguments.read(&generic::KUBE_API_QPS),
            "burst": arguments.read(&generic::KUBE_API_BURST),
        },
        "ControllerStartInterval": time(&generic::CONTROLLER_START_INTERVAL),
        "LeaderElection": {
            "leaderElect": arguments.read(&leader_election::LEADER_ELECT),
            "leaseDuration": time(&leader_election::LEASE_DURATION),
            "renewDeadline": time(&leader_election::RENEW_DEADLINE),
            "retryPeriod": time(&leader_election::RETRY_PERIOD),
            "resourceLock": arguments.read(&leader_election::RESOURCE_LOCK),
            "resourceName": arguments.read(&leader_election::RESOURCE_NAME),
            "resourceNamespace": arguments.read(&leader_election::RESOURCE_NAMESPACE),
        },
        "Controllers": arguments.read(&controllers::CONTROLLERS),
        "Debugging": {
            "enableProfiling": arguments.read(&generic::PROFILING),
            "enableContentionProfiling": arguments.read(&generic::CONTENTION_PROFILING),
        },
        "LeaderMigrationEnabled": arguments.read(&leader_election::ENABLE_LEADER_MIGRATION),
        "LeaderMigration": leader_migration(migration),
    })
}

fn leader_migration(migration: Option<&LeaderMigration>) -> Value {
    let Some(migration) = migration else {
        return json!({ "leaderName": "", "resourceLock": "", "controllerLeaders": null });
    };
    let leaders = migration.controllers.iter().map(|entry| json!({ "name": entry.name, "component": entry.component }));
    json!({ "leaderName": migration.lease_name, "resourceLock": "leases", "controllerLeaders": leaders.collect::<Vec<_>>() })
}

fn shared(arguments: &FlagArguments) -> Value {
    let time = |flag: &TypedFlag<_>| Value::String(duration::format(arguments.read(flag)));
    json!({
        "CloudProvider": {
            "Name": arguments.read(&cloud::CLOUD_PROVIDER),
            "CloudConfigFile": arguments.read(&cloud::CLOUD_CONFIG),
        },
        "ExternalCloudVolumePlugin": arguments.read(&cloud::EXTERNAL_CLOUD_VOLUME_PLUGIN),
        "UseServiceAccountCredentials": arguments.read(&generic::USE_SERVICE_ACCOUNT_CREDENTIALS),
        "AllowUntaggedCloud": arguments.read(&cloud::ALLOW_UNTAGGED_CLOUD),
        "RouteReconciliationPeriod": time(&controllers::ROUTE_RECONCILIATION_PERIOD),
        // Kubernetes 1.37 has it in NodeLifecycleController only. Readers of older objects find it here.
        "NodeMonitorPeriod": time(&controllers::NODE_MONITOR_PERIOD),
        "ClusterName": arguments.read(&cloud::CLUSTER_NAME),
        "ClusterCIDR": arguments.read(&cloud::CLUSTER_CIDR).print(),
        "AllocateNodeCIDRs": arguments.read(&cloud::ALLOCATE_NODE_CIDRS),
        "CIDRAllocatorType": arguments.read(&cloud::CIDR_ALLOCATOR_TYPE),
        "ConfigureCloudRoutes": arguments.read(&cloud::CONFIGURE_CLOUD_ROUTES),
        "NodeSyncPeriod": time(&controllers::NODE_SYNC_PERIOD),
    })
}

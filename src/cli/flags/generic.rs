//! Flags about talking to the API server, starting, stopping and debugging.

use std::time::Duration;

use super::declare_flags;
use crate::cli::value::{MapStringBool, VersionRequest};

declare_flags! {
    KUBECONFIG: String = "kubeconfig" ""
        "File with address and credentials of the API server; empty: the pod's service account.";
    MASTER: String = "master" "" "Address of the API server, in place of the one in --kubeconfig.";
    KUBE_API_QPS: f32 = "kube-api-qps" "20"
        "Requests per second to the API server; 0 stands for 5, a negative number for no limit. Unless this or --kube-api-burst is given, \
         there is no limit where the API server has priority and fairness.";
    KUBE_API_BURST: i32 = "kube-api-burst" "30" "Requests that may exceed --kube-api-qps for a moment. With --kube-api-qps=0, 0 stands for 10.";
    KUBE_API_CONTENT_TYPE: String = "kube-api-content-type" "application/vnd.kubernetes.protobuf"
        "Content type of requests to the API server: application/json or application/vnd.kubernetes.protobuf. Requests are JSON in either case.";
    USE_SERVICE_ACCOUNT_CREDENTIALS: bool = "use-service-account-credentials" "false"
        "Whether each controller acts under a service account of its own.";
    MIN_RESYNC_PERIOD: Duration = "min-resync-period" "12h"
        "How often every load balancer is checked against the cloud although nothing changed.";
    CONTROLLER_START_INTERVAL: Duration = "controller-start-interval" "0s" "Pause between the starts of two controllers.";
    SHUTDOWN_GRACE_PERIOD: Duration = "shutdown-grace-period" "10s"
        "After SIGTERM or SIGINT, time for running steps to end before the lease is released.";
    DRY_RUN: bool = "dry-run" "false"
        "Shadow mode, for a manager beside the one that leads: campaigns for no lease, writes nothing to the cluster or the cloud, and \
         reports what it would write (/reportz, cloud_controller_manager_planned_writes).";
    FEATURE_GATES: MapStringBool = "feature-gates" "" "Features to turn on or off; the reference page lists them.";
    PROFILING: bool = "profiling" "true"
        "Whether /debug is served: PUT /debug/flags/v changes the verbosity of a running process.";
    CONTENTION_PROFILING: bool = "contention-profiling" "false" "Whether contended locks are profiled."
        [ignored("profiles of Go's run time do not exist here")];
    VERSION: VersionRequest = "version" "false"
        "Prints the version and ends; raw: with all details; vX.Y.Z: runs and reports that version.";
}

//! Flags about the API server client, start, shutdown and debugging.

use std::time::Duration;

use super::declare_flags;
use crate::cli::value::{MapStringBool, VersionRequest};

declare_flags! {
    KUBECONFIG: String = "kubeconfig" ""
        "File with address and credentials of the API server. Empty selects the pod's service account.";
    MASTER: String = "master" "" "Address of the API server, in place of the one in --kubeconfig.";
    KUBE_API_QPS: f32 = "kube-api-qps" "20"
        "Requests per second to the API server; 0 selects 5, and a negative number turns the limit off. Without this flag and --kube-api-burst, \
         requests are unlimited if the API server has priority and fairness.";
    KUBE_API_BURST: i32 = "kube-api-burst" "30" "Requests that may exceed --kube-api-qps for a moment. With --kube-api-qps=0, 0 selects 10.";
    KUBE_API_CONTENT_TYPE: String = "kube-api-content-type" "application/vnd.kubernetes.protobuf"
        "Content type of requests to the API server: application/json or application/vnd.kubernetes.protobuf. Requests are JSON in either case.";
    USE_SERVICE_ACCOUNT_CREDENTIALS: bool = "use-service-account-credentials" "false"
        "Use a separate service account for each controller.";
    MIN_RESYNC_PERIOD: Duration = "min-resync-period" "12h"
        "Interval at which every load balancer is compared with the cloud even if nothing changed.";
    CONTROLLER_START_INTERVAL: Duration = "controller-start-interval" "0s" "Pause between the starts of two controllers.";
    SHUTDOWN_GRACE_PERIOD: Duration = "shutdown-grace-period" "10s"
        "Time for running steps to end after SIGTERM or SIGINT, before the lease is released.";
    DRY_RUN: bool = "dry-run" "false"
        "Run in shadow mode, next to the manager that leads: acquire no lease, write nothing to the cluster or the cloud, and report what \
         would be written (/reportz, cloud_controller_manager_planned_writes).";
    FEATURE_GATES: MapStringBool = "feature-gates" "" "Features to turn on or off; the reference page lists them.";
    PROFILING: bool = "profiling" "true"
        "Serve /debug, where PUT /debug/flags/v changes the verbosity of a running process.";
    CONTENTION_PROFILING: bool = "contention-profiling" "false" "Profile contended locks."
        [ignored("this program has no profiles of Go's runtime")];
    VERSION: VersionRequest = "version" "false"
        "Print the version and exit. raw prints all details. vX.Y.Z runs the program, which reports that version.";
}

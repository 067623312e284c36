//! Dashboards and alerts for Go keep working: each metric that both programs have has Go's name, type, labels, buckets and stability.
//!
//! Facts from `k8s.io/component-base`, `k8s.io/apiserver`, `k8s.io/cloud-provider` and `pkg/{azclient/metrics,metrics,trace}` of
//! cloud-provider-azure. Metrics made with OpenTelemetry have no stability there; they count as alpha.

use std::collections::BTreeSet;

use cloud_controller_manager::{
    metrics::{CoreMetrics, Metric, MetricKind, MetricTable},
    providers::{azure::model::api, registry},
};

const TIMES_4: &[f64] = &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];
const TIMES_2: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const TIMES_10: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];
const REQUEST: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
const BYTES: &[f64] = &[64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0];
const AUTH: &[f64] =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
const REVIEW: &[f64] = &[0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
const ARM: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 600.0];
const RECONCILE: &[f64] = &[0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 600.0];
const OPERATION: &[f64] =
    &[0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 100.0, 200.0, 300.0, 600.0, 1200.0];

const C: MetricKind = MetricKind::Counter;
const G: MetricKind = MetricKind::Gauge;
const fn h(buckets: &'static [f64]) -> MetricKind {
    MetricKind::Histogram(buckets)
}

const RECONCILED: &str = "name annotations_allowed_service_tags annotations_allowed_ip_ranges \
    annotations_internal_load_balancer annotations_load_balancer_source_ranges annotations_additional_public_ips \
    annotations_pip_name annotations_pip_prefix spec_load_balancer_source_ranges";
const BUILD: &str = "major minor git_version git_commit git_tree_state build_date go_version compiler platform";

/// Name, type with buckets, stability, labels.
const UPSTREAM: &[(&str, MetricKind, &str, &str)] = &[
    ("node_controller_cloud_provider_taint_removal_delay_seconds", h(TIMES_4), "ALPHA", ""),
    ("node_controller_initial_node_sync_delay_seconds", h(TIMES_4), "ALPHA", ""),
    ("cloud_node_lifecycle_controller_monitor_nodes_duration_seconds", h(AUTH), "ALPHA", ""),
    ("cloud_node_lifecycle_controller_cloud_provider_calls_total", C, "ALPHA", "operation result"),
    ("node_ipam_controller_cidrset_cidrs_allocations_total", C, "ALPHA", "clusterCIDR"),
    ("node_ipam_controller_cidrset_cidrs_releases_total", C, "ALPHA", "clusterCIDR"),
    ("node_ipam_controller_cidrset_usage_cidrs", G, "ALPHA", "clusterCIDR"),
    (
        "node_ipam_controller_cidrset_allocation_tries_per_request",
        h(&[1.0, 5.0, 25.0, 125.0, 625.0]),
        "ALPHA",
        "clusterCIDR",
    ),
    ("route_controller_route_sync_total", C, "ALPHA", ""),
    ("service_controller_loadbalancer_sync_total", C, "ALPHA", ""),
    ("service_controller_nodesync_error_total", C, "ALPHA", ""),
    ("service_controller_nodesync_latency_seconds", h(TIMES_2), "ALPHA", ""),
    ("service_controller_update_loadbalancer_host_latency_seconds", h(TIMES_2), "ALPHA", ""),
    ("running_managed_controllers", G, "BETA", "name manager"),
    ("workqueue_depth", G, "BETA", "name"),
    ("workqueue_adds_total", C, "BETA", "name"),
    ("workqueue_queue_duration_seconds", h(TIMES_10), "BETA", "name"),
    ("workqueue_work_duration_seconds", h(TIMES_10), "BETA", "name"),
    ("workqueue_unfinished_work_seconds", G, "BETA", "name"),
    ("workqueue_longest_running_processor_seconds", G, "BETA", "name"),
    ("workqueue_retries_total", C, "BETA", "name"),
    ("rest_client_requests_total", C, "ALPHA", "code method host"),
    ("rest_client_request_duration_seconds", h(REQUEST), "ALPHA", "verb host"),
    ("rest_client_rate_limiter_duration_seconds", h(REQUEST), "ALPHA", "verb host"),
    ("rest_client_request_size_bytes", h(BYTES), "ALPHA", "verb host"),
    ("rest_client_response_size_bytes", h(BYTES), "ALPHA", "verb host"),
    ("rest_client_request_retries_total", C, "ALPHA", "code verb host"),
    ("leader_election_master_status", G, "ALPHA", "name"),
    ("leader_election_slowpath_total", C, "ALPHA", "name"),
    ("authenticated_user_requests", C, "ALPHA", "username"),
    ("authentication_attempts", C, "ALPHA", "result"),
    ("authentication_duration_seconds", h(AUTH), "ALPHA", "result"),
    ("authorization_attempts_total", C, "ALPHA", "result"),
    ("authorization_duration_seconds", h(AUTH), "ALPHA", "result"),
    ("apiserver_delegated_authn_request_total", C, "ALPHA", "code"),
    ("apiserver_delegated_authn_request_duration_seconds", h(REVIEW), "ALPHA", "code"),
    ("apiserver_delegated_authz_request_total", C, "ALPHA", "code"),
    ("apiserver_delegated_authz_request_duration_seconds", h(REVIEW), "ALPHA", "code"),
    ("cloud_provider_webhook_request_total", C, "ALPHA", "code webhook"),
    ("cloud_provider_webhook_request_duration_seconds", h(REVIEW), "ALPHA", "code webhook"),
    ("kubernetes_healthcheck", G, "STABLE", "name type"),
    ("kubernetes_healthchecks_total", C, "STABLE", "name type status"),
    ("kubernetes_feature_enabled", G, "BETA", "name stage"),
    ("kubernetes_build_info", G, "BETA", BUILD),
    ("arm_request_duration_seconds", h(ARM), "ALPHA", "method resource resource_group subscription_id"),
    (
        "arm_request_errors_counter_total",
        C,
        "ALPHA",
        "method resource resource_group subscription_id status_code error_code",
    ),
    ("arm_request_throttle_counter_total", C, "ALPHA", "method resource resource_group subscription_id"),
    ("arm_request_rate_limit_counter_total", C, "ALPHA", "method resource resource_group subscription_id"),
    ("provider_reconcile_duration_seconds", h(RECONCILE), "ALPHA", RECONCILED),
    ("provider_reconcile_errors_counter_total", C, "ALPHA", RECONCILED),
    ("cloudprovider_azure_op_duration_seconds", h(OPERATION), "ALPHA", "request resource_group subscription_id source"),
    ("cloudprovider_azure_op_failure_count", C, "ALPHA", "request resource_group subscription_id source"),
];

/// Prefixes of metrics that Go does not have.
const OWN: [&str; 2] = ["cloud_controller_manager_", "azure_arm_budget_"];

/// Label `resource` of `arm_request_*` by type, from the generated clients of `pkg/azclient`.
const RESOURCES: &[(&str, &str)] = &[
    ("Microsoft.Compute/virtualMachines", "VirtualMachine"),
    ("Microsoft.Compute/virtualMachineScaleSets", "VirtualMachineScaleSet"),
    ("Microsoft.Compute/virtualMachineScaleSets/virtualMachines", "VirtualMachineScaleSetVM"),
    ("Microsoft.Compute/availabilitySets", "AvailabilitySet"),
    ("Microsoft.Network/networkInterfaces", "Interface"),
    ("Microsoft.Network/publicIPAddresses", "PublicIPAddress"),
    ("Microsoft.Network/publicIPPrefixes", "PublicIPPrefix"),
    ("Microsoft.Network/loadBalancers", "LoadBalancer"),
    ("Microsoft.Network/loadBalancers/backendAddressPools", "BackendAddressPool"),
    ("Microsoft.Network/networkSecurityGroups", "SecurityGroup"),
    ("Microsoft.Network/routeTables", "RouteTable"),
    ("Microsoft.Network/virtualNetworks", "VirtualNetwork"),
    ("Microsoft.Network/virtualNetworks/subnets", "Subnet"),
    ("Microsoft.Network/privateLinkServices", "PrivateLinkService"),
];

fn labels(words: &'static str) -> BTreeSet<&'static str> {
    words.split_whitespace().collect()
}

/// Returns the difference between a metric and upstream's, if there is any.
fn difference(ours: &Metric, kind: MetricKind, stability: &str, words: &'static str) -> Option<String> {
    let is_as_stable = ours.help.starts_with(&format!("[{stability}] "));
    let has: BTreeSet<&str> = ours.labels.iter().copied().collect();
    let is_same = ours.kind == kind && is_as_stable && has == labels(words);
    (!is_same).then(|| {
        format!("{}: {:?} {:?} {}; upstream {kind:?} {words} {stability}", ours.name, ours.kind, ours.labels, ours.help)
    })
}

/// Returns the metrics of the program and of the providers that ship.
fn table() -> Vec<Metric> {
    CoreMetrics::TABLE.iter().copied().chain(registry().metrics()).collect()
}

#[test]
fn metric_names_are_unique_and_help_has_a_stability_level() {
    let table = table();
    let names: BTreeSet<_> = table.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), table.len());
    assert!(table.iter().all(|metric| metric.help.starts_with('[')));
}

#[test]
fn metrics_of_upstream_are_the_same_here() {
    let table = table();
    let mut differences = Vec::new();
    for (name, kind, stability, words) in UPSTREAM {
        match table.iter().find(|metric| metric.name == *name) {
            Some(ours) => differences.extend(difference(ours, *kind, stability, words)),
            None => differences.push(format!("{name}: missing")),
        }
    }
    let is_known = |metric: &&Metric| UPSTREAM.iter().any(|(name, ..)| *name == metric.name);
    let is_own = |metric: &&Metric| OWN.iter().any(|prefix| metric.name.starts_with(prefix));
    let strays = table.iter().filter(|metric| !is_known(metric) && !is_own(metric));
    differences.extend(strays.map(|metric| format!("{}: upstream has no such metric", metric.name)));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn kinds_of_resources_have_the_names_of_upstreams_clients() {
    for (resource_type, label) in RESOURCES {
        let ours = api::ALL.iter().find(|kind| kind.resource_type == *resource_type).map(|kind| kind.metric);
        assert_eq!(ours, Some(*label), "{resource_type}");
    }
}

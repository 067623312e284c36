//! Every metric once: name, kind, labels, help. The registry, the handles and the reference page derive from this table.
//!
//! Names, labels and buckets are upstream's where upstream has the metric; help texts carry the stability
//! prefix as client tools expect it. A [`Metrics`] owns its registry, so tests do not share counts.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use prometheus::{CounterVec, Encoder, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry, TextEncoder};

/// Kind of a metric, with the buckets of a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Distribution over these upper bounds.
    Histogram(&'static [f64]),
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

macro_rules! handle {
    (counter) => {
        CounterVec
    };
    (gauge) => {
        GaugeVec
    };
    (histogram) => {
        HistogramVec
    };
}
macro_rules! kind {
    (counter) => {
        MetricKind::Counter
    };
    (gauge) => {
        MetricKind::Gauge
    };
    (histogram $buckets:expr) => {
        MetricKind::Histogram($buckets)
    };
}
macro_rules! make {
    (counter, $metric:expr) => {
        CounterVec::new(Opts::new($metric.name, $metric.help), $metric.labels)
    };
    (gauge, $metric:expr) => {
        GaugeVec::new(Opts::new($metric.name, $metric.help), $metric.labels)
    };
    (histogram, $metric:expr) => {
        HistogramVec::new(HistogramOpts::new($metric.name, $metric.help).buckets(buckets(&$metric)), $metric.labels)
    };
}

macro_rules! metrics {
    ($($field:ident: $kind:ident $(($buckets:expr))? $name:literal [$($label:literal),*] $help:literal;)*) => {
        /// All metrics, in the order of the reference page.
        pub const TABLE: &[Metric] = &[$(Metric {
            name: $name, kind: kind!($kind $($buckets)?), labels: &[$($label),*], help: $help,
        }),*];

        /// A handle per metric, registered in one registry.
        #[allow(rustdoc::broken_intra_doc_links, reason = "help texts begin with a stability level in brackets")]
        pub struct Metrics {
            registry: Registry,
            ended: Mutex<VecDeque<EndedSeries>>,
            $(#[doc = $help] pub $field: handle!($kind),)*
        }

        impl Metrics {
            /// Registers every metric of the table.
            pub fn new() -> Result<Self, prometheus::Error> {
                let registry = Registry::new();
                let mut rows = TABLE.iter();
                $(
                    let $field = {
                        let metric = rows.next().copied().unwrap_or(TABLE[0]);
                        let handle = make!($kind, metric)?;
                        registry.register(Box::new(handle.clone()))?;
                        handle
                    };
                )*
                Ok(Self { registry, ended: Mutex::default(), $($field),* })
            }
        }
    };
}

/// How many of those that are gone keep their series, so that somebody can still read the last values.
const MAX_ENDED_SERIES: usize = 100;

/// Series of something that is gone: the labels of each.
type EndedSeries = (String, Vec<Vec<String>>);

fn buckets(metric: &Metric) -> Vec<f64> {
    match metric.kind {
        MetricKind::Histogram(buckets) => buckets.to_vec(),
        MetricKind::Counter | MetricKind::Gauge => Vec::new(),
    }
}

const POWERS_OF_FOUR: &[f64] = &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];
const POWERS_OF_TWO: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const POWERS_OF_TEN: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];
const REQUEST: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
const PROVIDER_CALL: &[f64] =
    &[0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 100.0, 200.0, 300.0, 600.0, 1200.0];
const ARM_REQUEST: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 600.0];
const AUTH: &[f64] =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
const REVIEW: &[f64] = &[0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
const BYTES: &[f64] =
    &[64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];
const RECONCILE: &[f64] = &[0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 600.0];

metrics! {
    node_taint_removal_delay: histogram(POWERS_OF_FOUR) "node_controller_cloud_provider_taint_removal_delay_seconds" []
        "[ALPHA] Seconds from the creation of a Node until its uninitialized taint was removed.";
    node_initial_sync_delay: histogram(POWERS_OF_FOUR) "node_controller_initial_node_sync_delay_seconds" []
        "[ALPHA] Seconds from the creation of a Node until its first complete synchronisation.";
    route_sync_total: counter "route_controller_route_sync_total" []
        "[ALPHA] Route reconciliations.";
    service_loadbalancer_sync_total: counter "service_controller_loadbalancer_sync_total" []
        "[ALPHA] Calls that change the hosts of a load balancer.";
    service_nodesync_error_total: counter "service_controller_nodesync_error_total" []
        "[ALPHA] Node changes that could not be applied to a load balancer.";
    service_nodesync_latency: histogram(POWERS_OF_TWO) "service_controller_nodesync_latency_seconds" []
        "[ALPHA] Seconds from a node change until all affected load balancers had it.";
    service_update_host_latency: histogram(POWERS_OF_TWO) "service_controller_update_loadbalancer_host_latency_seconds" []
        "[ALPHA] Seconds for changing the hosts of one load balancer.";
    running_managed_controllers: gauge "running_managed_controllers" ["manager", "name"]
        "[BETA] 1 while the named controller runs in this process.";
    workqueue_depth: gauge "workqueue_depth" ["name"]
        "[BETA] Keys that are due and wait for a worker.";
    workqueue_adds_total: counter "workqueue_adds_total" ["name"]
        "[BETA] Keys that became due, each counted once until a worker takes it.";
    workqueue_queue_duration: histogram(POWERS_OF_TEN) "workqueue_queue_duration_seconds" ["name"]
        "[BETA] Seconds a due key waited for a worker.";
    workqueue_work_duration: histogram(POWERS_OF_TEN) "workqueue_work_duration_seconds" ["name"]
        "[BETA] Seconds of one reconcile.";
    workqueue_unfinished_work: gauge "workqueue_unfinished_work_seconds" ["name"]
        "[BETA] Sum of the ages of all running reconciles.";
    workqueue_longest_running: gauge "workqueue_longest_running_processor_seconds" ["name"]
        "[BETA] Age of the oldest running reconcile.";
    workqueue_retries_total: counter "workqueue_retries_total" ["name"]
        "[BETA] Reconciles retried after a failure.";
    informer_objects: gauge "cloud_controller_manager_informer_objects" ["resource"]
        "[ALPHA] Objects held in the informer's store.";
    informer_restarts_total: counter "cloud_controller_manager_informer_errors_total" ["resource", "operation"]
        "[ALPHA] Errors of informers, each followed by another attempt. Operations: list, watch (its start), stream (an error in it), silence (a stream that was closed after no data arrived).";
    informer_malformed_total: counter "cloud_controller_manager_informer_malformed_objects_total" ["resource"]
        "[ALPHA] Objects that could not be decoded and were skipped.";
    reconcile_panics_total: counter "cloud_controller_manager_reconcile_panics_total" ["name"]
        "[ALPHA] Reconciles that panicked; the key is retried with back-off.";
    node_deletions_refused_total: counter "cloud_controller_manager_node_deletions_refused_total" ["reason"]
        "[ALPHA] Node deletions that the guard against wrong and mass deletion refused.";
    events_discarded_total: counter "cloud_controller_manager_events_discarded_total" ["reason"]
        "[ALPHA] Events that were not written: filtered as spam, queue full, or refused by the API server.";
    rest_client_requests_total: counter "rest_client_requests_total" ["code", "method", "host"]
        "[ALPHA] Requests to the API server by status code.";
    rest_client_request_duration: histogram(REQUEST) "rest_client_request_duration_seconds" ["verb", "host"]
        "[ALPHA] Seconds of requests to the API server until the response headers.";
    rest_client_rate_limiter_duration: histogram(REQUEST) "rest_client_rate_limiter_duration_seconds" ["verb", "host"]
        "[ALPHA] Seconds that requests waited for --kube-api-qps.";
    rest_client_request_size: histogram(BYTES) "rest_client_request_size_bytes" ["verb", "host"]
        "[ALPHA] Bytes of the bodies of requests to the API server that have one.";
    rest_client_response_size: histogram(BYTES) "rest_client_response_size_bytes" ["verb", "host"]
        "[ALPHA] Bytes of the bodies of complete responses of the API server, without watches.";
    rest_client_request_retries_total: counter "rest_client_request_retries_total" ["code", "verb", "host"]
        "[ALPHA] Requests to the API server repeated with new credentials after a 401, by the status code of the second response. Callers retry all other failures themselves.";
    leader_election_master_status: gauge "leader_election_master_status" ["name"]
        "[ALPHA] 1 while this process holds the lease.";
    leader_election_slowpath_total: counter "leader_election_slowpath_total" ["name"]
        "[ALPHA] Renewals that needed a read first.";
    authenticated_user_requests: counter "authenticated_user_requests" ["username"]
        "[ALPHA] Requests to the secure port by authenticated user.";
    authentication_attempts: counter "authentication_attempts" ["result"]
        "[ALPHA] Authentication attempts on the secure port.";
    authentication_duration: histogram(AUTH) "authentication_duration_seconds" ["result"]
        "[ALPHA] Seconds of authentication.";
    authorization_attempts_total: counter "authorization_attempts_total" ["result"]
        "[ALPHA] Authorization attempts on the secure port.";
    authorization_duration: histogram(AUTH) "authorization_duration_seconds" ["result"]
        "[ALPHA] Seconds of authorization.";
    delegated_authn_request_total: counter "apiserver_delegated_authn_request_total" ["code"]
        "[ALPHA] TokenReview requests by status code.";
    delegated_authn_request_duration: histogram(REVIEW) "apiserver_delegated_authn_request_duration_seconds" ["code"]
        "[ALPHA] Seconds of TokenReview requests.";
    delegated_authz_request_total: counter "apiserver_delegated_authz_request_total" ["code"]
        "[ALPHA] SubjectAccessReview requests by status code.";
    delegated_authz_request_duration: histogram(REVIEW) "apiserver_delegated_authz_request_duration_seconds" ["code"]
        "[ALPHA] Seconds of SubjectAccessReview requests.";
    serving_connections: gauge "cloud_controller_manager_serving_connections" []
        "[ALPHA] Open connections of the secure port.";
    serving_connections_refused_total: counter "cloud_controller_manager_serving_connections_refused_total" ["reason"]
        "[ALPHA] Connections of the secure port closed at a limit: of the `peer`'s network, of `all` networks, or `replaced` by a newer connection.";
    serving_requests_refused_total: counter "cloud_controller_manager_serving_requests_refused_total" ["reason"]
        "[ALPHA] Requests of the secure port refused early: `malformed`, or too many were waiting for `reviews` or for `answers`.";
    healthcheck: gauge "kubernetes_healthcheck" ["name", "type"]
        "[STABLE] 1 when the named check passes.";
    healthchecks_total: counter "kubernetes_healthchecks_total" ["name", "status", "type"]
        "[STABLE] Results of health checks.";
    build_info: gauge "kubernetes_build_info"
        ["major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform"]
        "[BETA] Always 1; the labels show the version of this program. go_version is empty.";
    feature_enabled: gauge "kubernetes_feature_enabled" ["name", "stage"]
        "[BETA] 1 when the feature gate is on.";
    provider_call_duration: histogram(PROVIDER_CALL) "cloud_controller_manager_provider_call_duration_seconds" ["provider", "call"]
        "[ALPHA] Seconds of calls to the cloud provider.";
    provider_call_errors_total: counter "cloud_controller_manager_provider_call_errors_total" ["provider", "call", "reason"]
        "[ALPHA] Failed calls to the cloud provider, by class of error.";
    arm_request_duration: histogram(ARM_REQUEST) "arm_request_duration_seconds"
        ["method", "resource", "resource_group", "subscription_id"]
        "[ALPHA] Seconds of calls to Azure Resource Manager, with their waits, tries and operations.";
    arm_request_errors: counter "arm_request_errors_counter_total"
        ["method", "resource", "resource_group", "subscription_id", "status_code", "error_code"]
        "[ALPHA] Failed calls to Azure Resource Manager; status and code are empty without a response.";
    arm_request_throttled: counter "arm_request_throttle_counter_total"
        ["method", "resource", "resource_group", "subscription_id"]
        "[ALPHA] Responses of Azure Resource Manager that report an exhausted request quota.";
    arm_request_rate_limited: counter "arm_request_rate_limit_counter_total"
        ["method", "resource", "resource_group", "subscription_id"]
        "[ALPHA] Requests to Azure Resource Manager delayed by the request budget.";
    azure_op_duration: histogram(PROVIDER_CALL) "cloudprovider_azure_op_duration_seconds"
        ["request", "resource_group", "subscription_id", "source"]
        "[ALPHA] Latency of an Azure service operation";
    azure_op_failures: counter "cloudprovider_azure_op_failure_count"
        ["request", "resource_group", "subscription_id", "source"]
        "[ALPHA] Number of failed Azure service operations";
    provider_reconcile_duration: histogram(RECONCILE) "provider_reconcile_duration_seconds"
        ["name", "annotations_allowed_service_tags", "annotations_allowed_ip_ranges", "annotations_internal_load_balancer",
         "annotations_load_balancer_source_ranges", "annotations_additional_public_ips", "annotations_pip_name",
         "annotations_pip_prefix", "spec_load_balancer_source_ranges"]
        "[ALPHA] Seconds of the calls GetLoadBalancer, EnsureLoadBalancer, UpdateLoadBalancer and EnsureLoadBalancerDeleted of the azure provider; `true` or `false` for what the Service uses, empty for GetLoadBalancer.";
    provider_reconcile_errors: counter "provider_reconcile_errors_counter_total"
        ["name", "annotations_allowed_service_tags", "annotations_allowed_ip_ranges", "annotations_internal_load_balancer",
         "annotations_load_balancer_source_ranges", "annotations_additional_public_ips", "annotations_pip_name",
         "annotations_pip_prefix", "spec_load_balancer_source_ranges"]
        "[ALPHA] Failed calls among those in provider_reconcile_duration_seconds.";
    azure_arm_budget_tokens: gauge "azure_arm_budget_tokens" ["subscription_id", "bucket"]
        "[ALPHA] ARM requests that may be sent at once, by quota; 0 while it is paused. Only in this program.";
    azure_arm_budget_wait: histogram(REQUEST) "azure_arm_budget_wait_seconds" ["bucket", "urgency"]
        "[ALPHA] Seconds that ARM requests waited for a quota; bucket none for those that did not. Only in this program.";
    azure_arm_budget_pauses_total: counter "azure_arm_budget_pauses_total" ["subscription_id", "bucket"]
        "[ALPHA] Pauses of a quota after ARM answered 429. Only in this program.";
    azure_arm_budget_paused_seconds: counter "azure_arm_budget_paused_seconds_total" ["subscription_id", "bucket"]
        "[ALPHA] Seconds of pauses of a quota after ARM answered 429. Only in this program.";
}

impl Metrics {
    /// Adds the metrics of the process itself (`process_*`).
    #[cfg(target_os = "linux")]
    pub fn with_process(self) -> Result<Self, prometheus::Error> {
        self.registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        Ok(self)
    }

    /// Something that operations were counted for is gone. Its series, with these labels, go when a hundred others have gone after it:
    /// names come and go without end.
    pub fn operations_ended(&self, subject: &str, series: Vec<Vec<String>>) {
        let mut ended = self.ended();
        ended.retain(|(known, _)| known != subject);
        ended.push_back((subject.to_owned(), series));
        if ended.len() > MAX_ENDED_SERIES {
            let oldest = ended.pop_front();
            drop(ended);
            oldest.into_iter().flat_map(|(_, series)| series).for_each(|labels| self.remove_operation(&labels));
        }
    }

    /// Something that operations are counted for is there, perhaps again.
    pub fn operations_go_on(&self, subject: &str) {
        self.ended().retain(|(known, _)| known != subject);
    }

    fn remove_operation(&self, labels: &[String]) {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        // Those that were never counted are not there.
        let _ = self.azure_op_duration.remove_label_values(&labels);
        let _ = self.azure_op_failures.remove_label_values(&labels);
    }

    fn ended(&self) -> MutexGuard<'_, VecDeque<EndedSeries>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a provider registers its own metrics.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// All metrics as Prometheus text 0.0.4.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_registers_and_renders() {
        let metrics = Metrics::new().unwrap();
        metrics.workqueue_adds_total.with_label_values(&["service"]).inc();
        assert!(metrics.render().unwrap().contains("workqueue_adds_total{name=\"service\"} 1"));
    }

    #[test]
    fn names_are_unique_and_helps_carry_a_stability_level() {
        let mut names: Vec<_> = TABLE.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
        assert!(TABLE.iter().all(|metric| metric.help.starts_with('[')));
    }
}

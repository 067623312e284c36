//! Metrics: declaration of tables, the table of metrics of every binary, and the registry of a process.
//!
//! In: tables ([`declare_metrics!`]); providers have their own. Out: handles, and the rows for the reference page. Names, labels and
//! buckets are upstream's if upstream has the metric. Help texts begin with the stability level, as client tools expect. A [`Metrics`]
//! owns its registry, so tests do not share counts.

mod first_values;
mod memory_limit;

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    ops::Deref,
    sync::Arc,
};

use parking_lot::Mutex;
pub use prometheus::{CounterVec, Error as RegistryError, GaugeVec, HistogramVec, Registry};
use prometheus::{HistogramOpts, Opts, TextEncoder, core::Collector, proto::MetricFamily};

/// Maximum number of series in one part of the text of all metrics. A series of a histogram has 20 lines of 200 bytes.
const SERIES_IN_PART: usize = 32;

/// Kind of a metric, with the buckets of a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MetricKind {
    /// Value that only grows.
    Counter,
    /// Value that increases and decreases.
    Gauge,
    /// Distribution over these upper bounds.
    Histogram(&'static [f64]),
}

/// Row of a table of metrics.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// Table of metrics, as [`declare_metrics!`] creates it, with a field per metric.
pub trait MetricTable: Sized + Send + Sync + 'static {
    /// Rows in the order of the reference page.
    const TABLE: &'static [Metric];
    /// Creates the handles, registered in `registry`.
    fn register(registry: &Registry) -> Result<Self, prometheus::Error>;
}

/// Handle of one row.
pub trait MetricHandle: Collector + Clone + Sized + 'static {
    fn new(metric: &Metric) -> Result<Self, prometheus::Error>;

    /// Creates the metric and registers it.
    fn register(metric: &Metric, registry: &Registry) -> Result<Self, prometheus::Error> {
        let handle = Self::new(metric)?;
        registry.register(Box::new(handle.clone()))?;
        Ok(handle)
    }
}

impl MetricHandle for CounterVec {
    fn new(metric: &Metric) -> Result<Self, prometheus::Error> {
        Self::new(Opts::new(metric.name, metric.help), metric.labels)
    }
}

impl MetricHandle for GaugeVec {
    fn new(metric: &Metric) -> Result<Self, prometheus::Error> {
        Self::new(Opts::new(metric.name, metric.help), metric.labels)
    }
}

impl MetricHandle for HistogramVec {
    fn new(metric: &Metric) -> Result<Self, prometheus::Error> {
        let buckets = match metric.kind {
            MetricKind::Histogram(buckets) => buckets.to_vec(),
            MetricKind::Counter | MetricKind::Gauge => Vec::new(),
        };
        Self::new(HistogramOpts::new(metric.name, metric.help).buckets(buckets), metric.labels)
    }
}

/// Declares a table of metrics: a type with a handle per row. A row is `field: kind "name" ["label", …] "[STABILITY] Help.";`, a kind
/// `counter`, `gauge` or `histogram(BUCKETS)`.
#[macro_export]
macro_rules! declare_metrics {
    (
        $(#[$attribute:meta])* $table:ident {
            $($field:ident: $kind:ident $(($buckets:expr))? $name:literal [$($label:literal),*] $help:literal;)*
        }
    ) => {
        $(#[$attribute])*
        #[allow(rustdoc::broken_intra_doc_links, reason = "help texts begin with a stability level in brackets")]
        pub struct $table {
            $(#[doc = $help] pub $field: $crate::metrics::declare_metrics!(@handle $kind),)*
        }

        impl $crate::metrics::MetricTable for $table {
            const TABLE: &'static [$crate::metrics::Metric] =
                &[$($crate::metrics::declare_metrics!(@row $kind ($($buckets)?) $name [$($label),*] $help)),*];

            fn register(registry: &$crate::metrics::Registry) -> Result<Self, $crate::metrics::RegistryError> {
                Ok(Self { $($field: $crate::metrics::MetricHandle::register(
                    &$crate::metrics::declare_metrics!(@row $kind ($($buckets)?) $name [$($label),*] $help),
                    registry,
                )?,)* })
            }
        }
    };
    (@row $kind:ident ($($buckets:expr)?) $name:literal [$($label:literal),*] $help:literal) => {
        $crate::metrics::Metric {
            name: $name,
            kind: $crate::metrics::declare_metrics!(@kind $kind $($buckets)?),
            labels: &[$($label),*],
            help: $help,
        }
    };
    (@handle counter) => { $crate::metrics::CounterVec };
    (@handle gauge) => { $crate::metrics::GaugeVec };
    (@handle histogram) => { $crate::metrics::HistogramVec };
    (@kind counter) => { $crate::metrics::MetricKind::Counter };
    (@kind gauge) => { $crate::metrics::MetricKind::Gauge };
    (@kind histogram $buckets:expr) => { $crate::metrics::MetricKind::Histogram($buckets) };
}
pub use declare_metrics;

/// Tables of providers by their types; `None` for a table with a name that another metric has.
type ProviderTables = HashMap<TypeId, Option<Arc<dyn Any + Send + Sync>>>;

/// Callback that updates gauges.
type MetricObserver = Box<dyn Fn() + Send + Sync>;

/// Metrics of a process: the program's own, which are its fields, and those of its providers.
pub struct Metrics {
    registry: Registry,
    core: CoreMetrics,
    tables: Mutex<ProviderTables>,
    observers: Mutex<Vec<MetricObserver>>,
}

impl Deref for Metrics {
    type Target = CoreMetrics;

    fn deref(&self) -> &CoreMetrics {
        &self.core
    }
}

const POWERS_OF_FOUR: &[f64] = &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];
const POWERS_OF_TWO: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const POWERS_OF_TEN: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];
const REQUEST: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
const PROVIDER_CALL: &[f64] =
    &[0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 100.0, 200.0, 300.0, 600.0, 1200.0];
const MILLISECONDS_DOUBLED: &[f64] =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
const POWERS_OF_FIVE: &[f64] = &[1.0, 5.0, 25.0, 125.0, 625.0];
const REVIEW: &[f64] = &[0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
const BYTES: &[f64] =
    &[64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

declare_metrics! {
    /// Metrics of every binary, regardless of its providers.
    CoreMetrics {
        node_taint_removal_delay: histogram(POWERS_OF_FOUR) "node_controller_cloud_provider_taint_removal_delay_seconds" []
            "[ALPHA] Seconds from the creation of a Node until its uninitialized taint was removed.";
        node_initial_sync_delay: histogram(POWERS_OF_FOUR) "node_controller_initial_node_sync_delay_seconds" []
            "[ALPHA] Seconds from the creation of a Node until its first complete synchronization.";
        monitor_nodes_duration: histogram(MILLISECONDS_DOUBLED) "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds" []
            "[ALPHA] Seconds from the first check of a Node until no Node is due. Ready Nodes are due only with the shutdown taint.";
        node_lifecycle_provider_calls_total: counter "cloud_node_lifecycle_controller_cloud_provider_calls_total" ["operation", "result"]
            "[ALPHA] Calls of the node-lifecycle controller to the cloud provider, by operation and result.";
        cidrset_allocations_total: counter "node_ipam_controller_cidrset_cidrs_allocations_total" ["clusterCIDR"]
            "[ALPHA] Blocks of the cluster CIDR that were allocated; a pod CIDR of several of the smallest blocks counts as many.";
        cidrset_releases_total: counter "node_ipam_controller_cidrset_cidrs_releases_total" ["clusterCIDR"]
            "[ALPHA] Blocks of the cluster CIDR that were released.";
        cidrset_usage: gauge "node_ipam_controller_cidrset_usage_cidrs" ["clusterCIDR"]
            "[ALPHA] Share of the cluster CIDR that is allocated, from 0 to 1.";
        cidrset_allocation_tries: histogram(POWERS_OF_FIVE) "node_ipam_controller_cidrset_allocation_tries_per_request" ["clusterCIDR"]
            "[ALPHA] Allocated blocks that were skipped to find a free one.";
        route_sync_total: counter "route_controller_route_sync_total" []
            "[ALPHA] Route reconciliations.";
        route_drift_total: counter "cloud_controller_manager_route_drift_total" ["change"]
            "[ALPHA] Routes that another writer deleted, changed or added between two reconciliations, all repaired. Only in this program.";
        service_drift_total: counter "cloud_controller_manager_service_drift_total" ["field"]
            "[ALPHA] Settled Services of which another writer removed the finalizer, or the addresses or the condition in the status; all restored. Only in this program.";
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
            "[ALPHA] Objects in the informer's store.";
        informer_restarts_total: counter "cloud_controller_manager_informer_errors_total" ["resource", "operation"]
            "[ALPHA] Errors of informers, each followed by another attempt. Operations: list, watch (its start), stream (an error in it), silence (a stream that was closed after no data arrived).";
        informer_malformed_total: counter "cloud_controller_manager_informer_malformed_objects_total" ["resource"]
            "[ALPHA] Objects that could not be decoded and were skipped.";
        reconcile_panics_total: counter "cloud_controller_manager_reconcile_panics_total" ["name"]
            "[ALPHA] Reconciles that panicked; the key is retried with backoff.";
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
        authentication_duration: histogram(MILLISECONDS_DOUBLED) "authentication_duration_seconds" ["result"]
            "[ALPHA] Seconds of authentication.";
        authorization_attempts_total: counter "authorization_attempts_total" ["result"]
            "[ALPHA] Authorization attempts on the secure port.";
        authorization_duration: histogram(MILLISECONDS_DOUBLED) "authorization_duration_seconds" ["result"]
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
            "[ALPHA] Open connections of the secure port and of the webhook port.";
        serving_connections_refused_total: counter "cloud_controller_manager_serving_connections_refused_total" ["reason"]
            "[ALPHA] Connections of the secure port closed at a limit: of the `peer`'s network, of `all` networks, or `replaced` by a newer connection.";
        serving_requests_refused_total: counter "cloud_controller_manager_serving_requests_refused_total" ["reason"]
            "[ALPHA] Requests of the secure port refused early: `malformed`, or too many were waiting for `reviews` or for `answers`.";
        serving_certificate_expiration: gauge "cloud_controller_manager_serving_certificate_expiration_timestamp_seconds" []
            "[ALPHA] Unix time at which the first certificate of the secure port expires.";
        services: gauge "cloud_controller_manager_services" ["stage", "reason"]
            "[ALPHA] Services that have or need a load balancer, on the leader. Stages: new, working, settled, blocked. Reasons: those of the condition cloud-controller-manager.io/LoadBalancer, Pending before the first.";
        oldest_unsettled_service: gauge "cloud_controller_manager_oldest_unsettled_service_seconds" []
            "[ALPHA] Seconds for which the longest waiting Service has not been settled, on the leader; 0 if all are. Services with the reason Invalid wait for their user and do not count.";
        uninitialized_nodes: gauge "cloud_controller_manager_uninitialized_nodes" []
            "[ALPHA] Nodes that wait for initialization.";
        nodes_without_provider_id: gauge "cloud_controller_manager_nodes_without_provider_id" []
            "[ALPHA] Nodes that have neither a provider id nor the uninitialized taint, so that no controller initializes them.";
        outdated_node_labels: gauge "cloud_controller_manager_outdated_node_labels" ["label"]
            "[ALPHA] Nodes of which the label for machine type, zone or region differs from the instance, as of the last comparison.";
        healthcheck: gauge "kubernetes_healthcheck" ["name", "type"]
            "[STABLE] 1 when the named check passes.";
        healthchecks_total: counter "kubernetes_healthchecks_total" ["name", "status", "type"]
            "[STABLE] Results of health checks.";
        planned_writes: gauge "cloud_controller_manager_planned_writes" ["kind"]
            "[ALPHA] With --dry-run: requests that this process would send now if it led, by the kind of change. `unread` counts what could not be read, `leftovers` the requests that only remove what no object requires.";
        memory_limit: gauge "cloud_controller_manager_memory_limit_bytes" []
            "[ALPHA] Memory limit of the container, at which the kernel ends the process; 0 without a limit.";
        build_info: gauge "kubernetes_build_info"
            ["major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform"]
            "[BETA] Always 1; the labels show the version of this program. go_version is empty.";
        feature_enabled: gauge "kubernetes_feature_enabled" ["name", "stage"]
            "[BETA] 1 when the feature gate is on.";
        webhook_requests_total: counter "cloud_provider_webhook_request_total" ["code", "webhook"]
            "[ALPHA] Requests of admission webhooks, by status of the response.";
        webhook_request_duration: histogram(REVIEW) "cloud_provider_webhook_request_duration_seconds" ["code", "webhook"]
            "[ALPHA] Seconds from the head of a webhook's request to its response.";
        provider_call_duration: histogram(PROVIDER_CALL) "cloud_controller_manager_provider_call_duration_seconds" ["provider", "call"]
            "[ALPHA] Seconds of calls to the cloud provider.";
        provider_call_errors_total: counter "cloud_controller_manager_provider_call_errors_total" ["provider", "call", "reason"]
            "[ALPHA] Failed calls to the cloud provider, by class of error.";
    }
}

impl Metrics {
    /// Creates a registry with every metric of the program itself.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let core = CoreMetrics::register(&registry)?;
        Ok(Self { core, registry, tables: Mutex::default(), observers: Mutex::default() })
    }

    /// Registers `observe`, which is called before metrics are read. It must not own these metrics.
    pub fn observe_with(&self, observe: impl Fn() + Send + Sync + 'static) {
        self.observers.lock().push(Box::new(observe));
    }

    /// Updates the gauges by calling all registered observers.
    pub fn observe(&self) {
        self.observers.lock().iter().for_each(|observe| observe());
    }

    /// Returns the metrics of a provider, registered at the first call; `None` if another metric has one of their names.
    pub fn table<T: MetricTable>(&self) -> Option<Arc<T>> {
        let mut tables = self.tables.lock();
        let found = tables.entry(TypeId::of::<T>()).or_insert_with(|| {
            let table: Arc<dyn Any + Send + Sync> = Arc::new(T::register(&self.registry).ok()?);
            Some(table)
        });
        found.clone()?.downcast().ok()
    }

    /// Registers the metrics of a provider. Fails if another metric has one of their names.
    pub fn register<T: MetricTable>(&self) -> Result<(), prometheus::Error> {
        let table: Arc<dyn Any + Send + Sync> = Arc::new(T::register(&self.registry)?);
        self.tables.lock().insert(TypeId::of::<T>(), Some(table));
        Ok(())
    }

    /// Adds the metrics of the process itself (`process_*`, on Linux), and sets its memory limit.
    pub fn with_process(self) -> Result<Self, prometheus::Error> {
        #[cfg(target_os = "linux")]
        self.registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        self.memory_limit.with_label_values::<&str>(&[]).set(memory_limit::of_container());
        Ok(self)
    }

    /// Returns the registry of all these metrics.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns all metrics as Prometheus text 0.0.4.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        self.render_in_parts().collect()
    }

    /// Returns the text of [`Metrics::render`] in parts of a bounded number of series.
    ///
    /// Each is created when it is requested, because the whole text is megabytes in a cluster of many Services.
    pub fn render_in_parts(&self) -> impl Iterator<Item = Result<String, prometheus::Error>> + use<> {
        self.registry.gather().into_iter().flat_map(parts)
    }
}

/// Returns the text of a family in parts. Its header is in the first one.
fn parts(mut family: MetricFamily) -> impl Iterator<Item = Result<String, prometheus::Error>> {
    let mut series = family.take_metric().into_iter();
    let mut is_first = true;
    std::iter::from_fn(move || {
        let part: Vec<_> = series.by_ref().take(SERIES_IN_PART).collect();
        if part.is_empty() {
            return None;
        }
        family.set_metric(part);
        let text = TextEncoder::new().encode_to_string(std::slice::from_ref(&family));
        Some(text.map(|text| if std::mem::take(&mut is_first) { text } else { without_header(text) }))
    })
}

/// Returns the text of a part without the lines that describe its family.
fn without_header(mut text: String) -> String {
    let header: usize = text.split_inclusive('\n').take_while(|line| line.starts_with('#')).map(str::len).sum();
    text.drain(..header);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_parts_of_the_text_are_one_document() {
        let metrics = Metrics::new().unwrap();
        let series = SERIES_IN_PART * 10 + 1;
        (0..series).for_each(|key| metrics.workqueue_adds_total.with_label_values(&[&key.to_string()]).inc());
        let parts: Vec<String> = metrics.render_in_parts().map(Result::unwrap).collect();
        let largest = parts.iter().map(String::len).max().unwrap();
        assert!(largest < SERIES_IN_PART * 100, "{largest} bytes");
        assert_eq!(parts.concat(), TextEncoder::new().encode_to_string(&metrics.registry.gather()).unwrap());
    }

    declare_metrics! {
        /// Metrics of a provider, one of which has an existing name.
        #[allow(dead_code, unreachable_pub, reason = "the test counts nothing")]
        ClashingMetrics {
            calls: counter "example_calls_total" [] "[ALPHA] Calls.";
            adds: counter "workqueue_adds_total" [] "[ALPHA] Adds.";
        }
    }

    #[test]
    fn provider_cannot_register_an_existing_name() {
        let metrics = Metrics::new().unwrap();
        assert!(metrics.register::<ClashingMetrics>().is_err());
        assert!(metrics.table::<ClashingMetrics>().is_none());
    }

    #[test]
    fn help_texts_begin_with_a_stability_level() {
        assert!(CoreMetrics::TABLE.iter().all(|metric| metric.help.starts_with('[')));
    }
}

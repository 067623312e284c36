//! The provider's metrics. In: observations. Out: rows that the binary registers (`Registry::with_metrics`), and their
//! handles.
//!
//! Names, labels and buckets are upstream's where upstream has the metric (`pkg/azclient/metrics`, `pkg/metrics`, `pkg/trace`).

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::metrics::{Metric, MetricTable, Registry, RegistryError, declare_metrics};

/// Label for all values that the operator did not choose.
pub(super) const OTHER: &str = "other";

/// Number of ended subjects that keep their series, so that their last values can still be read.
const MAX_ENDED_SERIES: usize = 100;

/// Subject that no longer exists, with the labels of each of its series.
type EndedSeries = (String, Vec<Vec<String>>);

const WAIT: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
const OPERATION: &[f64] =
    &[0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 100.0, 200.0, 300.0, 600.0, 1200.0];
const ARM_REQUEST: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 600.0];
const RECONCILE: &[f64] = &[0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 600.0];

declare_metrics! {
    /// A handle per metric.
    AzureMetricRows {
        arm_request_duration: histogram(ARM_REQUEST) "arm_request_duration_seconds"
            ["method", "resource", "resource_group", "subscription_id"]
            "[ALPHA] Seconds of calls to Azure Resource Manager, with their waits, retries and operations.";
        arm_request_errors: counter "arm_request_errors_counter_total"
            ["method", "resource", "resource_group", "subscription_id", "status_code", "error_code"]
            "[ALPHA] Failed calls to Azure Resource Manager; status and code are empty without a response.";
        arm_request_throttled: counter "arm_request_throttle_counter_total"
            ["method", "resource", "resource_group", "subscription_id"]
            "[ALPHA] Responses of Azure Resource Manager that report an exhausted request quota.";
        arm_request_rate_limited: counter "arm_request_rate_limit_counter_total"
            ["method", "resource", "resource_group", "subscription_id"]
            "[ALPHA] Requests to Azure Resource Manager delayed by the request budget.";
        azure_op_duration: histogram(OPERATION) "cloudprovider_azure_op_duration_seconds"
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
        load_balancer_rules: gauge "cloud_controller_manager_azure_load_balancer_rules" ["load_balancer"]
            "[ALPHA] Load balancing and inbound NAT rules of each load balancer of the cluster. Only in this program.";
        load_balancer_rules_limit: gauge "cloud_controller_manager_azure_load_balancer_rules_limit" ["load_balancer"]
            "[ALPHA] Most rules that Azure allows on each load balancer of the cluster. Only in this program.";
        interface_rules: gauge "cloud_controller_manager_azure_network_interface_rules" ["load_balancer"]
            "[ALPHA] Load balancing rules at the network interface of each Node behind a load balancer and its internal twin, but for pools of single Services. Only in this program.";
        interface_rules_limit: gauge "cloud_controller_manager_azure_network_interface_rules_limit" ["load_balancer"]
            "[ALPHA] Most rules at one network interface: maximumNetworkInterfaceRuleCount, or 300. Only in this program.";
        drift: counter "cloud_controller_manager_azure_drift_total" ["resource", "outcome"]
            "[ALPHA] Externally changed documents of Services, by kind and result: repaired, reported (driftPolicy), or delayed because they change again and again. Only in this program.";
        drifted_services: gauge "cloud_controller_manager_azure_drifted_services" ["reason"]
            "[ALPHA] Services with externally changed documents that are not repaired: reported, or delayed until the next repair. Only in this program.";
        rule_record_failures: counter "cloud_controller_manager_azure_rule_record_failures_total" []
            "[ALPHA] Failed reads and writes of the ConfigMap that records security rules; Services are served without it. Only in this program.";
        unrecorded_services: gauge "cloud_controller_manager_azure_unrecorded_services" []
            "[ALPHA] Services with more additional and former addresses, or rules, than the ConfigMap that records security rules has room for. Only in this program.";
        azure_arm_budget_tokens: gauge "azure_arm_budget_tokens" ["subscription_id", "bucket"]
            "[ALPHA] ARM requests that may be sent at once, by quota; 0 while it is paused. Only in this program.";
        azure_arm_budget_capacity: gauge "azure_arm_budget_capacity" ["subscription_id", "bucket"]
            "[ALPHA] ARM requests that a full quota allows at once, the configured share of it. Only in this program.";
        azure_arm_budget_wait: histogram(WAIT) "azure_arm_budget_wait_seconds" ["bucket", "urgency"]
            "[ALPHA] Seconds that ARM requests waited for a quota; bucket none for those that did not. Only in this program.";
        azure_arm_budget_pauses_total: counter "azure_arm_budget_pauses_total" ["subscription_id", "bucket"]
            "[ALPHA] Pauses of a quota after a 429 response of ARM. Only in this program.";
        azure_arm_budget_paused_seconds: counter "azure_arm_budget_paused_seconds_total" ["subscription_id", "bucket"]
            "[ALPHA] Seconds of pauses of a quota after a 429 response of ARM. Only in this program.";
        configuration_refused: gauge "cloud_controller_manager_azure_configuration_refused" []
            "[ALPHA] 1 while the newest configuration is not in use because it does not work.";
        inventory_age: gauge "cloud_controller_manager_azure_inventory_age_seconds" []
            "[ALPHA] Age of the oldest list of machines in the inventory; absent before the first.";
        token_expiration: gauge "cloud_controller_manager_azure_token_expiration_timestamp_seconds" ["use"]
            "[ALPHA] Unix time at which the token for ARM expires, by what it is for: compute, network, auxiliary. Tokens are renewed ahead of that.";
        client_certificate_expiration: gauge "cloud_controller_manager_azure_client_certificate_expiration_timestamp_seconds" []
            "[ALPHA] Unix time at which the certificate of the application (aadClientCertPath) expires; absent without one.";
    }
}

/// Metric handles, and the ended operations whose series are removed next.
pub struct AzureMetrics {
    pub rows: AzureMetricRows,
    ended: Mutex<VecDeque<EndedSeries>>,
}

impl MetricTable for AzureMetrics {
    const TABLE: &'static [Metric] = AzureMetricRows::TABLE;

    fn register(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self { rows: AzureMetricRows::register(registry)?, ended: Mutex::default() })
    }
}

impl AzureMetrics {
    /// Records that a subject of operations no longer exists. Its series, with these labels, are removed after a hundred
    /// others have ended: the number of names is unbounded.
    pub fn operations_ended(&self, subject: &str, series: Vec<Vec<String>>) {
        let mut ended = self.ended.lock();
        ended.retain(|(existing, _)| existing != subject);
        ended.push_back((subject.to_owned(), series));
        if ended.len() > MAX_ENDED_SERIES {
            let oldest = ended.pop_front();
            drop(ended);
            oldest.into_iter().flat_map(|(_, series)| series).for_each(|labels| self.remove_operation(&labels));
        }
    }

    /// Records that a subject of operations exists, perhaps again.
    pub fn operations_go_on(&self, subject: &str) {
        self.ended.lock().retain(|(existing, _)| existing != subject);
    }

    fn remove_operation(&self, labels: &[String]) {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        // Removing a series that was never counted fails.
        let _ = self.rows.azure_op_duration.remove_label_values(&labels);
        let _ = self.rows.azure_op_failures.remove_label_values(&labels);
    }
}

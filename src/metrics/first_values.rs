//! Series that exist from the start with the value 0.
//!
//! A counter that appears with its first event has no change from 0 to 1, so `increase()` returns nothing and an alert on it does not
//! fire. In: the name of the provider. Out: a series for each set of labels that is known at the start. Queues create theirs when they
//! are built.

use super::{CounterVec, Metrics};

/// Calls that change load balancers, and classes of errors, as `cloud_provider::metered` counts them.
const CHANGING_CALLS: [&str; 4] =
    ["ensure_load_balancer", "compare_load_balancer", "update_load_balancer", "ensure_load_balancer_deleted"];
const ERROR_CLASSES: [&str; 7] =
    ["retry_after", "invalid", "refused", "not_leader", "deadline", "failed", "implemented_elsewhere"];
const INFORMERS: [&str; 2] = ["nodes", "services"];
const INFORMER_OPERATIONS: [&str; 4] = ["list", "watch", "stream", "silence"];
const DELETIONS_REFUSED: [&str; 5] = ["mass_deletion", "ready_again", "initialized", "relabelled", "recreated"];
const EVENTS_DISCARDED: [&str; 4] = ["spam", "queue_full", "refused", "unreachable"];
const CONNECTIONS_REFUSED: [&str; 3] = ["peer", "all", "replaced"];
const REQUESTS_REFUSED: [&str; 3] = ["malformed", "reviews", "answers"];

impl Metrics {
    /// Creates the series. Existing series keep their values.
    pub fn create_first_values(&self, provider: &str) {
        for call in CHANGING_CALLS {
            ERROR_CLASSES.into_iter().for_each(|class| touch(&self.provider_call_errors_total, &[provider, call, class]));
        }
        for resource in INFORMERS {
            INFORMER_OPERATIONS
                .into_iter()
                .for_each(|operation| touch(&self.informer_restarts_total, &[resource, operation]));
            touch(&self.informer_malformed_total, &[resource]);
        }
        DELETIONS_REFUSED.into_iter().for_each(|reason| touch(&self.node_deletions_refused_total, &[reason]));
        EVENTS_DISCARDED.into_iter().for_each(|reason| touch(&self.events_discarded_total, &[reason]));
        CONNECTIONS_REFUSED.into_iter().for_each(|reason| touch(&self.serving_connections_refused_total, &[reason]));
        REQUESTS_REFUSED.into_iter().for_each(|reason| touch(&self.serving_requests_refused_total, &[reason]));
        self.create_series_without_labels();
    }

    fn create_series_without_labels(&self) {
        let counters = [&self.route_sync_total, &self.service_loadbalancer_sync_total, &self.service_nodesync_error_total];
        counters.into_iter().for_each(|counter| touch(counter, &[]));
        let histograms = [
            &self.node_taint_removal_delay,
            &self.node_initial_sync_delay,
            &self.monitor_nodes_duration,
            &self.service_nodesync_latency,
            &self.service_update_host_latency,
        ];
        histograms.into_iter().for_each(|histogram| drop(histogram.with_label_values::<&str>(&[])));
    }
}

fn touch(counter: &CounterVec, labels: &[&str]) {
    drop(counter.with_label_values(labels));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_values_keep_existing_counts() {
        let metrics = Metrics::new().unwrap();
        let refused = metrics.node_deletions_refused_total.with_label_values(&["mass_deletion"]);
        refused.inc();
        metrics.create_first_values("azure");
        assert_eq!(refused.get(), 1.0);
        let text = metrics.render().unwrap();
        for series in [
            "cloud_controller_manager_provider_call_errors_total{call=\"ensure_load_balancer\",provider=\"azure\",reason=\"failed\"} 0",
            "node_controller_initial_node_sync_delay_seconds_count 0",
        ] {
            assert!(text.contains(series), "{series}\n{text}");
        }
    }
}

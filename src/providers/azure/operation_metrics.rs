//! Upstream's metrics of whole operations, such as ensuring a load balancer: one observation each, however it ends.
//!
//! In: the labels of an operation, and the work. Out: the work's result, and `cloudprovider_azure_op_*`. Upstream:
//! `pkg/metrics/azure_metrics.go`, `MetricContext`.

use std::{future::Future, pin::Pin};

use tokio::time::Instant;

use super::{metrics::AzureMetrics, model::api};
use crate::{metrics::Metrics, runtime::clock::Clock};

/// Labels of an operation.
#[derive(Debug, Clone, Copy)]
pub struct OperationLabels<'a> {
    /// `services`, `services_local` or `routes`.
    pub area: &'a str,
    /// Name of the request: `ensure_loadbalancer`, `create_route`, …
    pub request: &'a str,
    /// The cluster's resource group; shown in lower case.
    pub resource_group: &'a str,
    /// Subscription of what is changed.
    pub subscription: &'a str,
    /// `<namespace>/<name>` of the Service, or the name of the Node.
    pub source: &'a str,
}

/// Runs `work` and counts it. A run that is dropped before its end counts as failed.
///
/// Boxed because many operations wait here at once, and each enclosing future would reserve their size twice.
pub async fn observe_operation<T, E>(
    metrics: &Metrics,
    clock: Clock,
    operation: OperationLabels<'_>,
    work: Pin<Box<impl Future<Output = Result<T, E>>>>,
) -> Result<T, E> {
    let running = OperationTimer::begin(metrics, clock, operation);
    let result = work.await;
    running.end(result.is_ok());
    result
}

/// An operation that has begun; for several that are done together. Observed when it ends or is dropped.
pub struct OperationTimer<'a> {
    metrics: &'a Metrics,
    clock: Clock,
    labels: OperationLabels<'a>,
    started: Instant,
    succeeded: bool,
}

impl<'a> OperationTimer<'a> {
    pub fn begin(metrics: &'a Metrics, clock: Clock, operation: OperationLabels<'a>) -> Self {
        Self { metrics, clock, labels: operation, started: clock.now(), succeeded: false }
    }

    pub fn end(mut self, succeeded: bool) {
        self.succeeded = succeeded;
    }
}

impl Drop for OperationTimer<'_> {
    fn drop(&mut self) {
        let Some(metrics) = self.metrics.table::<AzureMetrics>() else { return };
        let OperationLabels { area, request, resource_group, subscription, source } = self.labels;
        let (request, group) = (format!("{area}_{request}"), resource_group.to_lowercase());
        let labels = [request.as_str(), &group, subscription, source];
        let took = self.clock.now() - self.started;
        metrics.rows.azure_op_duration.with_label_values(&labels).observe(took.as_secs_f64());
        if !self.succeeded {
            metrics.rows.azure_op_failures.with_label_values(&labels).inc();
        }
        let subject = format!("{area} {source}");
        if self.succeeded && LAST_REQUESTS.contains(&(area, self.labels.request)) {
            let requests = api::ALL.iter().flat_map(|kind| kind.operations);
            let of =
                |request: &&str| [&format!("{area}_{request}"), &group, subscription, source].map(str::to_owned).to_vec();
            metrics.operations_ended(&subject, requests.map(of).collect());
        } else {
            metrics.operations_go_on(&subject);
        }
    }
}

/// Last request for a source by area, after which the source no longer exists.
const LAST_REQUESTS: [(&str, &str); 2] = [("services", "ensure_loadbalancer_deleted"), ("routes", "delete_route")];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const OPERATION: OperationLabels<'static> = OperationLabels {
        area: "services",
        request: "ensure_loadbalancer",
        resource_group: "RG",
        subscription: "Sub",
        source: "default/web",
    };
    const LABELS: &str =
        r#"{request="services_ensure_loadbalancer",resource_group="rg",source="default/web",subscription_id="Sub""#;

    fn has(metrics: &Metrics, name: &str, rest: &str) -> bool {
        metrics.render().unwrap().contains(&format!("cloudprovider_azure_op_{name}{LABELS}{rest}"))
    }

    #[tokio::test(start_paused = true)]
    async fn series_of_what_is_gone_go() {
        let (metrics, clock) = (Metrics::new().unwrap(), Clock::System);
        let observe = |request, source: String| {
            let metrics = &metrics;
            async move {
                let operation = OperationLabels { request, source: &source, ..OPERATION };
                observe_operation(metrics, clock, operation, Box::pin(async { Ok::<_, ()>(()) })).await
            }
        };
        for number in 0..1_000 {
            let name = format!("default/{number}");
            observe("ensure_loadbalancer", name.clone()).await.unwrap();
            observe("ensure_loadbalancer_deleted", name).await.unwrap();
        }
        observe("ensure_loadbalancer_deleted", "default/again".to_owned()).await.unwrap();
        observe("ensure_loadbalancer", "default/again".to_owned()).await.unwrap();
        let count = |text: &str, start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        let text = metrics.render().unwrap();
        assert_eq!(count(&text, "cloudprovider_azure_op_duration_seconds_count"), 2 * 100);
        for number in 0..1_000 {
            observe("ensure_loadbalancer_deleted", format!("default/{number}")).await.unwrap();
        }
        let text = metrics.render().unwrap();
        assert!(text.contains("default/again") && !text.contains("default/10\""), "what is there keeps its series");
    }

    #[tokio::test(start_paused = true)]
    async fn every_end_is_observed_and_failures_are_counted() {
        let (metrics, clock) = (Metrics::new().unwrap(), Clock::System);
        let slow = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Ok::<_, ()>(7)
        };
        assert_eq!(observe_operation(&metrics, clock, OPERATION, Box::pin(slow)).await, Ok(7));
        assert!(has(&metrics, "duration_seconds_sum", "} 3"));
        assert!(!has(&metrics, "failure_count", ""));
        assert_eq!(observe_operation(&metrics, clock, OPERATION, Box::pin(async { Err::<(), _>("no") })).await, Err("no"));
        let never = observe_operation(&metrics, clock, OPERATION, Box::pin(std::future::pending::<Result<(), ()>>()));
        assert!(tokio::time::timeout(Duration::from_secs(1), never).await.is_err());
        assert!(has(&metrics, "duration_seconds_count", "} 3") && has(&metrics, "failure_count", "} 2"));
        assert!(has(&metrics, "duration_seconds_bucket", r#",le="5"} 3"#), "{}", metrics.render().unwrap());
    }
}

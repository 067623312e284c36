//! Upstream's metrics of the four calls about load balancers: one observation per call, labeled with the features that the
//! Service uses.
//!
//! In: the call, the Service and the work. Out: the work's result, and `provider_reconcile_*`. All labels but the name are
//! yes or no, so users cannot create more than 256 series per call. Upstream: `pkg/trace`.

use std::{future::Future, pin::Pin};

use k8s_openapi::api::core::v1::Service;

use crate::providers::azure::planner::load_balancer::annotations::{
    ADDITIONAL_PUBLIC_IPS, ALLOWED_IP_RANGES, ALLOWED_SERVICE_TAGS, INTERNAL, PIP_NAME, PIP_PREFIX_ID, SOURCE_RANGES,
};
use crate::{metrics::Metrics, providers::azure::metrics::AzureMetrics, runtime::clock::Clock};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadBalancerMethod {
    Get,
    Ensure,
    Update,
    Delete,
}

impl LoadBalancerMethod {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "GetLoadBalancer",
            Self::Ensure => "EnsureLoadBalancer",
            Self::Update => "UpdateLoadBalancer",
            Self::Delete => "EnsureLoadBalancerDeleted",
        }
    }

    /// Returns the labels in the order of the table of metrics. Upstream sets no feature labels for calls that only read.
    fn labels(self, service: &Service) -> [&'static str; 9] {
        let [tags, ranges, internal, source, additional, name, prefix, spec] = match self {
            Self::Get => [""; 8],
            Self::Ensure | Self::Update | Self::Delete => features(service).map(|has| if has { "true" } else { "false" }),
        };
        [self.name(), tags, ranges, internal, source, additional, name, prefix, spec]
    }

    /// Runs `work` and records its duration and result. Work that is dropped before its end counts as failed.
    ///
    /// The future is boxed, because the calls of all Services wait here at once, and each function that passes an unboxed
    /// future on would reserve space for it twice.
    pub(super) async fn observe<T, E>(
        self,
        metrics: &Metrics,
        clock: Clock,
        service: &Service,
        work: Pin<Box<impl Future<Output = Result<T, E>>>>,
    ) -> Result<T, E> {
        let mut running =
            ReconcileTimer { metrics, clock, labels: self.labels(service), started: clock.now(), succeeded: false };
        let result = work.await;
        running.succeeded = result.is_ok();
        result
    }
}

fn features(service: &Service) -> [bool; 8] {
    let has = |key: &str| {
        let value = service.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key));
        value.is_some_and(|value| !value.is_empty())
    };
    let ranges = service.spec.as_ref().and_then(|spec| spec.load_balancer_source_ranges.as_ref());
    [
        has(ALLOWED_SERVICE_TAGS.key),
        has(ALLOWED_IP_RANGES.key),
        has(INTERNAL.key),
        has(SOURCE_RANGES.key),
        has(ADDITIONAL_PUBLIC_IPS.key),
        has(PIP_NAME.key),
        has(PIP_PREFIX_ID.key),
        ranges.is_some_and(|ranges| !ranges.is_empty()),
    ]
}

struct ReconcileTimer<'a> {
    metrics: &'a Metrics,
    clock: Clock,
    labels: [&'static str; 9],
    started: tokio::time::Instant,
    succeeded: bool,
}

impl Drop for ReconcileTimer<'_> {
    fn drop(&mut self) {
        let Some(metrics) = self.metrics.table::<AzureMetrics>() else { return };
        let took = self.clock.now() - self.started;
        metrics.rows.provider_reconcile_duration.with_label_values(&self.labels).observe(took.as_secs_f64());
        if !self.succeeded {
            metrics.rows.provider_reconcile_errors.with_label_values(&self.labels).inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceSpec;

    use super::*;

    fn service(annotations: &[(&str, &str)]) -> Service {
        let mut service = Service::default();
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        service.metadata.annotations = Some(annotations.collect());
        service
    }

    #[test]
    fn labels_say_what_a_service_makes_use_of() {
        let no = "false";
        let plain = service(&[(INTERNAL.key, ""), ("other", "true")]);
        assert_eq!(LoadBalancerMethod::Ensure.labels(&plain), ["EnsureLoadBalancer", no, no, no, no, no, no, no, no]);
        assert_eq!(LoadBalancerMethod::Get.labels(&plain), ["GetLoadBalancer", "", "", "", "", "", "", "", ""]);
        let keys = [ALLOWED_SERVICE_TAGS.key, ALLOWED_IP_RANGES.key, INTERNAL.key, SOURCE_RANGES.key];
        let more = [ADDITIONAL_PUBLIC_IPS.key, PIP_NAME.key, PIP_PREFIX_ID.key];
        for (position, key) in keys.into_iter().chain(more).enumerate() {
            // The value of the annotation does not matter.
            let labels = LoadBalancerMethod::Update.labels(&service(&[(key, "false")]));
            let given: Vec<usize> = (1..9).filter(|index| labels[*index] == "true").collect();
            assert_eq!((labels[0], given), ("UpdateLoadBalancer", vec![position + 1]), "{key}");
        }
        let spec = ServiceSpec { load_balancer_source_ranges: Some(vec!["x".into()]), ..ServiceSpec::default() };
        let labels = LoadBalancerMethod::Delete.labels(&Service { spec: Some(spec), ..Service::default() });
        assert_eq!((labels[0], labels[8]), ("EnsureLoadBalancerDeleted", "true"));
    }

    #[tokio::test(start_paused = true)]
    async fn every_end_is_observed_and_failures_are_counted() {
        let (metrics, clock, service) = (Metrics::new().unwrap(), Clock::System, service(&[]));
        let observe = |work| LoadBalancerMethod::Get.observe(&metrics, clock, &service, Box::pin(work));
        assert_eq!(observe(std::future::ready(Ok::<_, ()>(7))).await, Ok(7));
        assert_eq!(observe(std::future::ready(Err(()))).await, Err(()));
        let never = std::future::pending::<Result<(), ()>>();
        let never = LoadBalancerMethod::Get.observe(&metrics, clock, &service, Box::pin(never));
        assert!(tokio::time::timeout(std::time::Duration::from_secs(1), never).await.is_err());
        let labels = LoadBalancerMethod::Get.labels(&service);
        let rows = &metrics.table::<AzureMetrics>().unwrap().rows;
        assert_eq!(rows.provider_reconcile_duration.with_label_values(&labels).get_sample_count(), 3);
        assert_eq!(rows.provider_reconcile_errors.with_label_values(&labels).get(), 2.0);
    }
}

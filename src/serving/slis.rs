//! Health SLIs of KEP-3466: counts of passed and failed checks, and the last state of each.
//!
//! In: outcomes of checks. Out: `kubernetes_healthcheck` and `kubernetes_healthchecks_total`, which `/metrics/slis` shows
//! alone.

use prometheus::TextEncoder;

use super::health::{HealthEndpoint, ProbeResult};
use crate::metrics::Metrics;

const FAMILIES: [&str; 2] = ["kubernetes_healthcheck", "kubernetes_healthchecks_total"];

pub(super) fn observe(metrics: &Metrics, endpoint: HealthEndpoint, outcomes: &[ProbeResult]) {
    for outcome in outcomes {
        let Some(result) = &outcome.result else { continue };
        let (status, value) = if result.is_ok() { ("success", 1.0) } else { ("error", 0.0) };
        metrics.healthcheck.with_label_values(&[outcome.name.as_str(), endpoint.name()]).set(value);
        metrics.healthchecks_total.with_label_values(&[outcome.name.as_str(), status, endpoint.name()]).inc();
    }
}

/// Renders only the SLI families, as Prometheus text.
pub(super) fn render(metrics: &Metrics) -> Result<String, prometheus::Error> {
    let mut families = metrics.registry().gather();
    families.retain(|family| FAMILIES.contains(&family.name()));
    TextEncoder::new().encode_to_string(&families)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executed_checks_and_slis_are_rendered() {
        let metrics = Metrics::new().unwrap();
        metrics.route_sync_total.with_label_values(&[] as &[&str]).inc();
        let outcome = |name: &str, result| ProbeResult { name: name.to_owned(), result };
        let outcomes = [outcome("a", Some(Ok(()))), outcome("b", Some(Err("broken".to_owned()))), outcome("excluded", None)];
        observe(&metrics, HealthEndpoint::Livez, &outcomes);
        let text = render(&metrics).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "kubernetes_healthcheck{name=\"a\",type=\"livez\"} 1",
                "kubernetes_healthcheck{name=\"b\",type=\"livez\"} 0",
                "kubernetes_healthchecks_total{name=\"a\",status=\"success\",type=\"livez\"} 1",
                "kubernetes_healthchecks_total{name=\"b\",status=\"error\",type=\"livez\"} 1",
            ]
        );
    }
}

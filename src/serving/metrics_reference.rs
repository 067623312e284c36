//! The metrics page of the documentation, derived from the tables of metrics.
//!
//! In: the rows of [`CoreMetrics`] and those of providers. Out: `docs/reference/metrics.md`, which `tests/reference_docs.rs`
//! compares with the file.

use std::fmt::Write;

use crate::metrics::{CoreMetrics, Metric, MetricKind, MetricTable};

/// Returns the text of `docs/reference/metrics.md` for a binary whose providers have registered these metrics.
pub fn metrics_reference(registered: &[Metric]) -> String {
    let rows = || CoreMetrics::TABLE.iter().chain(registered);
    let mut page = String::from(
        "# Metrics\n\n\
         <!-- Generated from the table in src/metrics.rs; do not edit. `make docs` writes it again. -->\n\n\
         `/metrics` on the secure port (`--secure-port`) serves Prometheus text, including the metrics of the process\n\
         (`process_*`). `/metrics/slis` serves only the two `kubernetes_healthcheck*` families. Names, labels and buckets are the\n\
         same as in the Go cloud-controller-manager where it has the metric; new metrics begin with\n\
         `cloud_controller_manager_` or `azure_arm_budget_`.\n\n\
         | Metric | Kind | Stability | Labels | Meaning |\n|---|---|---|---|---|\n",
    );
    for metric in rows() {
        page.push_str(&row(metric));
    }
    page.push_str("\n## Buckets of the histograms\n\n| Metric | Upper bounds |\n|---|---|\n");
    for metric in rows() {
        if let MetricKind::Histogram(buckets) = metric.kind {
            let bounds: Vec<_> = buckets.iter().map(f64::to_string).collect();
            let _ = writeln!(page, "| `{}` | {} |", metric.name, bounds.join(", "));
        }
    }
    page
}

fn row(metric: &Metric) -> String {
    let kind = match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram(_) => "histogram",
    };
    let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    let (stability, meaning) = metric.help.split_once("] ").unwrap_or(("", metric.help));
    let stability = stability.trim_start_matches('[').to_lowercase();
    format!("| `{}` | {kind} | {stability} | {} | {meaning} |\n", metric.name, labels.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_row() {
        let page = metrics_reference(&[]);
        for metric in CoreMetrics::TABLE {
            assert!(page.contains(&format!("| `{}` |", metric.name)), "{}", metric.name);
        }
    }
}

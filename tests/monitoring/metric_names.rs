//! Names of metrics, and their labels.

use std::collections::{BTreeMap, BTreeSet};

use cloud_controller_manager::{
    metrics::{CoreMetrics, MetricKind, MetricTable, Metrics},
    providers::registry,
};

/// Labels that Prometheus adds.
pub(crate) const OF_PROMETHEUS: [&str; 4] = ["cluster", "instance", "job", "namespace"];

/// Returns names of series with their labels. Names of histograms have their suffixes.
pub(crate) fn metrics() -> BTreeMap<String, BTreeSet<String>> {
    let mut labels_by_name = BTreeMap::new();
    let mut add = |name: String, labels: &[&str]| {
        let labels = labels.iter().chain(&OF_PROMETHEUS).map(|label| (*label).to_owned()).collect();
        labels_by_name.insert(name, labels);
    };
    for metric in CoreMetrics::TABLE.iter().copied().chain(registry().metrics()) {
        if matches!(metric.kind, MetricKind::Histogram(_)) {
            add(format!("{}_bucket", metric.name), &[metric.labels, &["le"]].concat());
            ["count", "sum"].iter().for_each(|ending| add(format!("{}_{ending}", metric.name), metric.labels));
        } else {
            add(metric.name.to_owned(), metric.labels);
        }
    }
    let process = Metrics::new().unwrap().with_process().unwrap();
    let families = process.registry().gather();
    families
        .iter()
        .filter(|family| family.name().starts_with("process_"))
        .for_each(|family| add(family.name().to_owned(), &[]));
    labels_by_name
}

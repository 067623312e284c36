//! The labels that place Services where entries of the configuration select by labels.
//!
//! In: a Service, and what it was when it was last served. Out: its spec with these labels. The current labels count when this process serves
//! the Service for the first time and when its annotations or its spec have changed: an edit of labels alone moves no Service, as upstream.
//! With `moveServicesOnLabelChange` they always count. A plan has the current labels, as a process that begins now.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use k8s_openapi::api::core::v1::Service;
use parking_lot::Mutex;

use crate::providers::azure::planner::load_balancer::{
    labels::LabelMap,
    spec::{ServiceIdentity, ServiceSpec},
};

/// Labels that placed a Service when it was last served.
struct LabelRecord {
    /// Digest of its annotations and its spec.
    digest: u64,
    labels: LabelMap,
    namespace_labels: Option<LabelMap>,
}

/// Labels of the Services that this process has served.
#[derive(Default)]
pub(super) struct PlacementLabels {
    records: Mutex<BTreeMap<ServiceIdentity, LabelRecord>>,
}

impl PlacementLabels {
    /// Gives `spec` the labels by which `service` was placed, if only labels have changed since.
    pub(super) fn apply(&self, service: &Service, spec: &mut ServiceSpec) {
        if let Some(record) = self.records.lock().get(&spec.identity).filter(|record| record.digest == digest(service)) {
            spec.labels.clone_from(&record.labels);
            spec.namespace_labels.clone_from(&record.namespace_labels);
        }
    }

    /// Records that `service` is where the labels of `spec` place it.
    pub(super) fn record(&self, service: &Service, spec: &ServiceSpec) {
        let (labels, namespace_labels) = (spec.labels.clone(), spec.namespace_labels.clone());
        let record = LabelRecord { digest: digest(service), labels, namespace_labels };
        self.records.lock().insert(spec.identity.clone(), record);
    }

    pub(super) fn forget(&self, identity: &ServiceIdentity) {
        self.records.lock().remove(identity);
    }
}

/// Returns a digest of the parts of a Service whose change lets labels count.
fn digest(service: &Service) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_vec(&(&service.metadata.annotations, &service.spec)).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::providers::azure::planner::load_balancer::desired::samples;

    fn labels(value: &str) -> LabelMap {
        [("tier".to_owned(), value.to_owned())].into()
    }

    fn spec(value: &str) -> ServiceSpec {
        ServiceSpec { labels: labels(value), namespace_labels: Some(labels(value)), ..samples::service("web") }
    }

    fn object(label: &str, annotation: &str, port: i32) -> Service {
        let service = json!({
            "metadata": {"name": "web", "labels": {"tier": label}, "annotations": {"example.com/touched": annotation}},
            "spec": {"ports": [{"port": port}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "20.0.0.1"}]}},
        });
        serde_json::from_value(service).unwrap()
    }

    #[test]
    fn labels_count_when_the_service_changes_or_is_new() {
        let served = object("iron", "", 80);
        let without_status = Service { status: None, ..served.clone() };
        for (case, service, is_recorded, expected) in [
            ("another label", object("gold", "", 80), true, "iron"),
            ("another status", without_status, true, "iron"),
            ("a foreign annotation", object("gold", "now", 80), true, "gold"),
            ("another port", object("gold", "", 81), true, "gold"),
            ("a start", object("gold", "", 80), false, "gold"),
        ] {
            let memory = PlacementLabels::default();
            if is_recorded {
                memory.record(&served, &spec("iron"));
            }
            let mut placed = spec("gold");
            memory.apply(&service, &mut placed);
            assert_eq!(placed, spec(expected), "{case}");
            memory.forget(&placed.identity);
            let mut placed = spec("gold");
            memory.apply(&served, &mut placed);
            assert_eq!(placed.labels, labels("gold"), "{case}: a Service that was deleted");
        }
    }
}

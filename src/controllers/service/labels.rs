//! Labels that select the load balancer of a Service. Pure.
//!
//! In: the keys that the provider reads ([`LabelsRead`]), a Service, its Namespace. Out: [`SelectedLabels`], which are
//! compared with those that were last applied. Other labels may change at any time and cause no work.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{Namespace, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::cloud_provider::LabelsRead;

/// Labels that the provider reads, of a Service and of its Namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectedLabels {
    service: BTreeMap<String, String>,
    namespace: BTreeMap<String, String>,
}

impl SelectedLabels {
    /// Returns the labels of `service` in `namespace`. A Namespace that is not cached has none.
    pub fn of(read: &LabelsRead, service: &Service, namespace: Option<&Namespace>) -> Self {
        Self {
            service: selected(&read.service, &service.metadata),
            namespace: namespace.map(|namespace| selected(&read.namespace, &namespace.metadata)).unwrap_or_default(),
        }
    }
}

/// Returns `true` if two versions of an object differ in a label that the provider reads.
pub fn differ(keys: &BTreeSet<String>, old: &ObjectMeta, new: &ObjectMeta) -> bool {
    !keys.is_empty() && selected(keys, old) != selected(keys, new)
}

fn selected(keys: &BTreeSet<String>, metadata: &ObjectMeta) -> BTreeMap<String, String> {
    let labels = metadata.labels.iter().flatten().filter(|(key, _)| keys.contains(*key));
    labels.map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(labels: &[(&str, &str)]) -> ObjectMeta {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }
    }

    #[test]
    fn only_labels_that_are_read_count() {
        let keys: BTreeSet<String> = ["tier".to_owned()].into();
        let old = metadata(&[("tier", "gold"), ("build", "1")]);
        for (new, differs) in [
            (metadata(&[("tier", "gold"), ("build", "2")]), false),
            (metadata(&[("tier", "silver"), ("build", "1")]), true),
            (metadata(&[("build", "1")]), true),
        ] {
            assert_eq!(differ(&keys, &old, &new), differs, "{new:?}");
            assert!(!differ(&BTreeSet::new(), &old, &new), "the provider reads none");
        }
        let read = LabelsRead { service: keys.clone(), namespace: keys };
        let service = Service { metadata: old.clone(), ..Service::default() };
        let namespace = Namespace { metadata: old, ..Namespace::default() };
        let both = SelectedLabels::of(&read, &service, Some(&namespace));
        assert_ne!(both, SelectedLabels::of(&read, &service, None));
        assert_eq!(SelectedLabels::of(&LabelsRead::default(), &service, Some(&namespace)), SelectedLabels::default());
    }
}

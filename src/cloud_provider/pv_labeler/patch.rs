//! What becomes of a volume. Pure.
//!
//! In: a request, later the labels. Out: the volume that is to be labelled, if it is one; the operations of a JSON patch.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, VolumeNodeAffinity,
};
use serde_json::{Value, json};

use crate::cloud_provider::AdmissionRequest;

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
/// Who has this was made by a provisioner, which has labelled it where it knows how.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Stands between the zones of a volume that is in several.
const BETWEEN_ZONES: &str = "__";

/// The volume, unless it is labelled by others or no volume is created.
pub(super) fn volume_to_label(request: &AdmissionRequest) -> Option<PersistentVolume> {
    let of = &request.resource;
    let is_volume =
        of.group.is_empty() && of.version == "v1" && of.kind == "persistentvolumes" && request.sub_resource.is_empty();
    if !is_volume || request.operation != "CREATE" {
        return None;
    }
    let volume: PersistentVolume = request.object.read()?;
    let has = |map: Option<&BTreeMap<String, String>>, key: &str| map.is_some_and(|map| map.contains_key(key));
    let (labels, annotations) = (volume.metadata.labels.as_ref(), volume.metadata.annotations.as_ref());
    let is_labelled = has(annotations, PROVISIONED_BY) && has(labels, ZONE) && has(labels, REGION);
    (!is_labelled).then_some(volume)
}

/// The operations that give the volume these labels and keep its pods where it is. None when it has them.
pub(super) fn patch(volume: &PersistentVolume, labels: &BTreeMap<String, String>) -> Vec<Value> {
    let mut operations = Vec::new();
    let before = volume.metadata.labels.clone().unwrap_or_default();
    let mut after = before.clone();
    after.extend(labels.clone());
    if after != before {
        operations.push(json!({"op": "add", "path": "/metadata/labels", "value": after}));
    }
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.clone());
    if let Some(affinity) = with_requirements(affinity, labels) {
        operations.push(json!({"op": "add", "path": "/spec/nodeAffinity", "value": affinity}));
    }
    operations
}

/// The affinity with a requirement for each label in every term; `None`: it stays, as some term speaks of such a label already.
fn with_requirements(affinity: Option<VolumeNodeAffinity>, labels: &BTreeMap<String, String>) -> Option<VolumeNodeAffinity> {
    let mut terms =
        affinity.and_then(|affinity| affinity.required).map(|required| required.node_selector_terms).unwrap_or_default();
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    let expressions = |term: &NodeSelectorTerm| term.match_expressions.clone().unwrap_or_default();
    let speaks = terms.iter().flat_map(expressions).any(|expression| labels.contains_key(&expression.key));
    if labels.is_empty() || speaks {
        return None;
    }
    for term in &mut terms {
        term.match_expressions.get_or_insert_default().extend(labels.iter().map(requirement));
    }
    Some(VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: terms }) })
}

fn requirement((key, value): (&String, &String)) -> NodeSelectorRequirement {
    let values: BTreeSet<&str> =
        if key == ZONE { value.split(BETWEEN_ZONES).collect() } else { BTreeSet::from([value.as_str()]) };
    let values = values.into_iter().map(str::to_owned).collect();
    NodeSelectorRequirement { key: key.clone(), operator: "In".to_owned(), values: Some(values) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::admission::AdmissionType;

    fn request(object: Value) -> AdmissionRequest {
        let resource =
            AdmissionType { version: "v1".to_owned(), kind: "persistentvolumes".to_owned(), ..AdmissionType::default() };
        AdmissionRequest { operation: "CREATE".to_owned(), resource, object: object.into(), ..AdmissionRequest::default() }
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn volume(document: Value) -> PersistentVolume {
        serde_json::from_value(document).unwrap()
    }

    /// The volume after the patch.
    fn patched(volume: &PersistentVolume, labels: &BTreeMap<String, String>) -> PersistentVolume {
        let mut document = serde_json::to_value(volume).unwrap();
        for operation in patch(volume, labels) {
            let (path, value) = (operation["path"].as_str().unwrap(), operation["value"].clone());
            let (parent, name) = path.rsplit_once('/').unwrap();
            document.pointer_mut(parent).unwrap()[name] = value;
        }
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn only_new_volumes_that_nobody_has_labelled_are_labelled() {
        let plain = json!({"metadata": {"name": "a"}, "spec": {}});
        let both = json!({ZONE: "z", REGION: "r"});
        assert!(volume_to_label(&request(plain.clone())).is_some());
        for (metadata, is_labelled) in [
            (json!({"labels": both}), true),
            (json!({"annotations": {PROVISIONED_BY: "x"}}), true),
            (json!({"annotations": {PROVISIONED_BY: "x"}, "labels": {ZONE: "z"}}), true),
            (json!({"annotations": {PROVISIONED_BY: "x"}, "labels": both}), false),
        ] {
            let asked = request(json!({"metadata": metadata, "spec": {}}));
            assert_eq!(volume_to_label(&asked).is_some(), is_labelled, "{metadata}");
        }
        let good = || request(plain.clone());
        for other in [
            AdmissionRequest { operation: "UPDATE".to_owned(), ..good() },
            AdmissionRequest { sub_resource: "status".to_owned(), ..good() },
            AdmissionRequest { object: json!(5).into(), ..good() },
            AdmissionRequest { resource: AdmissionType { kind: "pods".to_owned(), ..good().resource }, ..good() },
            AdmissionRequest { resource: AdmissionType { version: "v2".to_owned(), ..good().resource }, ..good() },
        ] {
            assert_eq!(volume_to_label(&other), None, "{other:?}");
        }
    }

    #[test]
    fn labels_are_merged_and_required_of_nodes_in_every_term() {
        let found = labels(&[(ZONE, "eastus-2__eastus-1"), (REGION, "eastus")]);
        let before = volume(json!({"metadata": {"labels": {"a": "b", REGION: "wrong"}}, "spec": {}}));
        let after = patched(&before, &found);
        let expected = labels(&[("a", "b"), (ZONE, "eastus-2__eastus-1"), (REGION, "eastus")]);
        assert_eq!(after.metadata.labels, Some(expected));
        let required = [
            json!({"key": REGION, "operator": "In", "values": ["eastus"]}),
            json!({"key": ZONE, "operator": "In", "values": ["eastus-1", "eastus-2"]}),
        ];
        let terms = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": required}]}});
        assert_eq!(serde_json::to_value(after.spec.unwrap().node_affinity).unwrap(), terms);

        let disk = json!({"key": "disk", "operator": "In", "values": ["ssd"]});
        let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [disk]}, {}]}});
        let after = patched(&volume(json!({"metadata": {}, "spec": {"nodeAffinity": affinity}})), &found);
        let terms = after.spec.unwrap().node_affinity.unwrap().required.unwrap().node_selector_terms;
        assert_eq!(terms.iter().map(|term| term.match_expressions.as_ref().unwrap().len()).collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn an_affinity_that_speaks_of_a_label_stays() {
        let own = json!({"key": ZONE, "operator": "In", "values": ["eastus-3"]});
        let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [own]}]}});
        let before = volume(json!({"metadata": {}, "spec": {"nodeAffinity": affinity}}));
        let after = patched(&before, &labels(&[(ZONE, "eastus-1"), (REGION, "eastus")]));
        assert_eq!(after.spec, before.spec);
        assert_eq!(after.metadata.labels.unwrap().len(), 2);
    }

    #[test]
    fn it_is_idempotent_and_without_labels_nothing_changes() {
        let before = volume(json!({"metadata": {}, "spec": {}}));
        assert_eq!(patch(&before, &BTreeMap::new()), Vec::<Value>::new());
        let found = labels(&[(ZONE, "eastus-1"), (REGION, "eastus")]);
        let after = patched(&before, &found);
        assert_eq!(patch(&after, &found), Vec::<Value>::new());
    }
}

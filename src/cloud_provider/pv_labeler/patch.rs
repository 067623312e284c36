//! Patch of a volume. Pure.
//!
//! In: an admission request, and then the labels. Out: the volume to label, if there is one, the labels that a provisioner
//! set, and the operations of a JSON patch.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, VolumeNodeAffinity,
};
use serde_json::{Value, json};

use crate::cloud_provider::AdmissionRequest;

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
/// Names of both labels before Kubernetes 1.17.
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// Annotation of volumes that a provisioner created. Most provisioners also label them.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Separator of the zones of a volume in several zones.
const ZONE_SEPARATOR: &str = "__";

/// Returns the volume that the request creates; `None` for other requests.
pub(super) fn volume_to_label(request: &AdmissionRequest) -> Option<PersistentVolume> {
    let resource = &request.resource;
    let is_volume = resource.group.is_empty()
        && resource.version == "v1"
        && resource.kind == "persistentvolumes"
        && request.sub_resource.is_empty();
    if is_volume && request.operation == "CREATE" { request.object.read() } else { None }
}

/// Returns the zone and region that the provisioner of the volume set. Labels of other volumes are not trusted, so it
/// returns `None`.
pub(super) fn labels_of_provisioner(volume: &PersistentVolume) -> Option<BTreeMap<String, String>> {
    let (labels, annotations) = (volume.metadata.labels.as_ref()?, volume.metadata.annotations.as_ref()?);
    let both = |keys: [&str; 2]| {
        let pairs = keys.map(|key| Some((key.to_owned(), labels.get(key)?.clone())));
        pairs.into_iter().collect::<Option<BTreeMap<_, _>>>()
    };
    let found = both([ZONE, REGION]).or_else(|| both([BETA_ZONE, BETA_REGION]));
    found.filter(|_| annotations.contains_key(PROVISIONED_BY))
}

/// Returns the operations that label the volume and restrict its Pods to its location; empty if nothing changes.
///
/// # Errors
///
/// The name of a zone is empty.
pub(super) fn patch(volume: &PersistentVolume, labels: &BTreeMap<String, String>) -> Result<Vec<Value>, String> {
    let mut operations = Vec::new();
    let requirements = labels.iter().map(requirement).collect::<Result<Vec<_>, _>>()?;
    let before = volume.metadata.labels.clone().unwrap_or_default();
    let mut after = before.clone();
    after.extend(labels.clone());
    if after != before {
        operations.push(json!({"op": "add", "path": "/metadata/labels", "value": after}));
    }
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.clone());
    if let Some(affinity) = with_requirements(affinity, &requirements) {
        operations.push(json!({"op": "add", "path": "/spec/nodeAffinity", "value": affinity}));
    }
    Ok(operations)
}

/// Returns the affinity with these requirements in every term, or `None` if a term already contains one of the keys.
fn with_requirements(
    affinity: Option<VolumeNodeAffinity>,
    requirements: &[NodeSelectorRequirement],
) -> Option<VolumeNodeAffinity> {
    let mut terms =
        affinity.and_then(|affinity| affinity.required).map(|required| required.node_selector_terms).unwrap_or_default();
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    let expressions = |term: &NodeSelectorTerm| term.match_expressions.clone().unwrap_or_default();
    let is_required =
        |expression: &NodeSelectorRequirement| requirements.iter().any(|requirement| requirement.key == expression.key);
    if requirements.is_empty() || terms.iter().flat_map(expressions).any(|expression| is_required(&expression)) {
        return None;
    }
    for term in &mut terms {
        term.match_expressions.get_or_insert_default().extend_from_slice(requirements);
    }
    Some(VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: terms }) })
}

fn requirement((key, value): (&String, &String)) -> Result<NodeSelectorRequirement, String> {
    let is_zone = [ZONE, BETA_ZONE].contains(&key.as_str());
    let values: BTreeSet<&str> =
        if is_zone { value.split(ZONE_SEPARATOR).map(str::trim).collect() } else { BTreeSet::from([value.as_str()]) };
    if is_zone && values.contains("") {
        return Err(format!("its label {key} contains a zone with an empty name"));
    }
    let values = values.into_iter().map(str::to_owned).collect();
    Ok(NodeSelectorRequirement { key: key.clone(), operator: "In".to_owned(), values: Some(values) })
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

    /// Returns the patched volume.
    fn patched(volume: &PersistentVolume, labels: &BTreeMap<String, String>) -> PersistentVolume {
        let mut document = serde_json::to_value(volume).unwrap();
        for operation in patch(volume, labels).unwrap() {
            let (path, value) = (operation["path"].as_str().unwrap(), operation["value"].clone());
            let (parent, name) = path.rsplit_once('/').unwrap();
            document.pointer_mut(parent).unwrap()[name] = value;
        }
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn only_new_volumes_are_labeled() {
        let valid = || request(json!({"metadata": {"name": "a"}, "spec": {}}));
        assert!(volume_to_label(&valid()).is_some());
        for other in [
            AdmissionRequest { operation: "UPDATE".to_owned(), ..valid() },
            AdmissionRequest { sub_resource: "status".to_owned(), ..valid() },
            AdmissionRequest { object: json!(5).into(), ..valid() },
            AdmissionRequest { resource: AdmissionType { kind: "pods".to_owned(), ..valid().resource }, ..valid() },
            AdmissionRequest { resource: AdmissionType { version: "v2".to_owned(), ..valid().resource }, ..valid() },
        ] {
            assert_eq!(volume_to_label(&other), None, "{other:?}");
        }
    }

    #[test]
    fn a_provisioner_is_trusted_if_it_names_zone_and_region() {
        let (new, old) = ([(ZONE, "z"), (REGION, "r")], [(BETA_ZONE, "y"), (BETA_REGION, "q")]);
        let both = [&new[..], &old].concat();
        for (pairs, is_provisioned, expected) in [
            (&new[..], true, Some(&new[..])),
            (&old, true, Some(&old)),
            (&both, true, Some(&new)),
            (&[(ZONE, "z"), (BETA_ZONE, "y"), (BETA_REGION, "q")], true, Some(&old)),
            (&[(ZONE, "z"), (BETA_REGION, "q")], true, None),
            (&[], true, None),
            (&both, false, None),
        ] {
            let annotations = if is_provisioned { json!({PROVISIONED_BY: "kubernetes.io/azure-disk"}) } else { json!({}) };
            let metadata = json!({"labels": labels(pairs), "annotations": annotations});
            let found = labels_of_provisioner(&volume(json!({"metadata": metadata, "spec": {}})));
            assert_eq!(found, expected.map(labels), "{pairs:?} {is_provisioned}");
        }
    }

    /// Returns a term of a required affinity with these keys and values.
    fn term(expressions: &[(&str, &[&str])]) -> Value {
        let expressions = expressions.iter().map(|(key, values)| json!({"key": key, "operator": "In", "values": values}));
        json!({"matchExpressions": expressions.collect::<Vec<_>>()})
    }

    /// Upstream: `Test_PVLAdmission`. Labels and affinity of a volume, labels of the cloud, and the patched labels and
    /// affinity.
    #[test]
    fn patched_volumes_match_upstream() {
        let zones = ["1", "2", "3"];
        type Expressions<'a> = &'a [(&'a str, &'a [&'a str])];
        type Pairs<'a> = &'a [(&'a str, &'a str)];
        type Row<'a> = (Pairs<'a>, Expressions<'a>, Pairs<'a>, Pairs<'a>, Expressions<'a>);
        let zonal: Pairs<'_> = &[("a", "1"), ("b", "2"), (ZONE, "3__1__2")];
        let required: Expressions<'_> = &[("a", &["1"]), ("b", &["2"]), (ZONE, &zones)];
        let table: &[Row<'_>] = &[
            (&[], &[], &[], &[], &[]),
            (&[], &[], zonal, zonal, required),
            (
                &[],
                &[],
                &[("a", "1"), ("b", "2"), (BETA_ZONE, "1__2__3")],
                &[("a", "1"), ("b", "2"), (BETA_ZONE, "1__2__3")],
                &[("a", &["1"]), ("b", &["2"]), (BETA_ZONE, &zones)],
            ),
            (
                &[(ZONE, "existingDomain"), (REGION, "existingRegion")],
                &[],
                &[(ZONE, "domain1"), (REGION, "region1")],
                &[(ZONE, "domain1"), (REGION, "region1")],
                &[(REGION, &["region1"]), (ZONE, &["domain1"])],
            ),
            (&[("a", "not1")], &[], zonal, zonal, required),
            (
                &[("c", "3")],
                &[("c", &["3"])],
                &[("a", "1"), ("b", "2"), ("c", "3")],
                &[("a", "1"), ("b", "2"), ("c", "3")],
                &[("c", &["3"])],
            ),
            (
                &[("a", "1"), ("b", "2"), ("c", "3")],
                &[("a", &["1"]), ("b", &["2"]), ("c", &["3"])],
                &[("d", "1"), ("e", "2"), ("f", "3")],
                &[("a", "1"), ("b", "2"), ("c", "3"), ("d", "1"), ("e", "2"), ("f", "3")],
                &[("a", &["1"]), ("b", &["2"]), ("c", &["3"]), ("d", &["1"]), ("e", &["2"]), ("f", &["3"])],
            ),
        ];
        for (before, required, found, after, expected) in table {
            let affinity = |required: Expressions<'_>| {
                let terms = json!({"required": {"nodeSelectorTerms": [term(required)]}});
                if required.is_empty() { Value::Null } else { terms }
            };
            let document = json!({"metadata": {"labels": labels(before)}, "spec": {"nodeAffinity": affinity(required)}});
            let patched = patched(&volume(document), &labels(found));
            assert_eq!(patched.metadata.labels.unwrap_or_default(), labels(after), "{found:?}");
            let patched_affinity = patched.spec.unwrap().node_affinity;
            assert_eq!(serde_json::to_value(patched_affinity).unwrap(), affinity(expected), "{found:?}");
        }
    }

    #[test]
    fn a_zone_with_an_empty_name_is_refused() {
        let volume = volume(json!({"metadata": {}, "spec": {}}));
        for (key, value) in [(ZONE, ""), (ZONE, "1__"), (BETA_ZONE, "1__ __2")] {
            let reason = patch(&volume, &labels(&[(key, value)])).unwrap_err();
            assert_eq!(reason, format!("its label {key} contains a zone with an empty name"), "{value}");
        }
        assert!(patch(&volume, &labels(&[(REGION, "")])).is_ok());
    }

    #[test]
    fn labels_are_required_of_nodes_in_every_term() {
        let found = labels(&[(ZONE, "eastus-2__eastus-1"), (REGION, "eastus")]);
        let disk = json!({"key": "disk", "operator": "In", "values": ["ssd"]});
        let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [disk]}, {}]}});
        let after = patched(&volume(json!({"metadata": {}, "spec": {"nodeAffinity": affinity}})), &found);
        let terms = after.spec.unwrap().node_affinity.unwrap().required.unwrap().node_selector_terms;
        assert_eq!(terms.iter().map(|term| term.match_expressions.as_ref().unwrap().len()).collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn an_affinity_with_a_label_of_the_location_is_kept() {
        let own = json!({"key": ZONE, "operator": "In", "values": ["eastus-3"]});
        let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [own]}]}});
        let before = volume(json!({"metadata": {}, "spec": {"nodeAffinity": affinity}}));
        let after = patched(&before, &labels(&[(ZONE, "eastus-1"), (REGION, "eastus")]));
        assert_eq!(after.spec, before.spec);
        assert_eq!(after.metadata.labels.unwrap().len(), 2);
    }

    #[test]
    fn the_patch_is_idempotent_and_empty_without_labels() {
        let before = volume(json!({"metadata": {}, "spec": {}}));
        assert_eq!(patch(&before, &BTreeMap::new()), Ok(Vec::new()));
        let found = labels(&[(ZONE, "eastus-1"), (REGION, "eastus")]);
        let after = patched(&before, &found);
        assert_eq!(patch(&after, &found), Ok(Vec::new()));
    }
}

//! Rendered objects: their files, and checks that Kubernetes has all their fields.

use std::{
    fs,
    path::{Path, PathBuf},
};

use cloud_controller_manager::runtime::yaml;
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
        ValidatingWebhookConfiguration,
    },
    apps::v1::{DaemonSet, Deployment},
    core::v1::{ConfigMap, Pod, PodSpec, Secret, Service, ServiceAccount},
    policy::v1::PodDisruptionBudget,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Kinds of Prometheus Operator, which are not part of Kubernetes.
const FOREIGN: [&str; 3] = ["ServiceMonitor", "PodMonitor", "PrometheusRule"];

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chart").join(name)
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns names (without the extension) and texts of the YAML files in a folder of this test.
pub(crate) fn files(name: &str) -> Vec<(String, String)> {
    let paths = fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")).collect();
    paths.sort();
    paths.iter().map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), read(path))).collect()
}

/// Returns the rendered objects of a case.
pub(crate) fn rendered(case: &str) -> Vec<Value> {
    parse(&read(&folder("rendered").join(format!("{case}.yaml"))))
}

/// Returns every case with a stored result, and its objects.
pub(crate) fn cases() -> Vec<(String, Vec<Value>)> {
    files("rendered").into_iter().map(|(case, text)| (case, parse(&text))).collect()
}

/// Returns `true` if the selector matches the labels.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    selector.as_object().unwrap().iter().all(|(key, value)| &labels[key] == value)
}

pub(crate) fn parse(text: &str) -> Vec<Value> {
    yaml::documents::<Value>(text).unwrap().into_iter().filter(|object| !object.is_null()).collect()
}

/// Returns the only object of this kind and name.
pub(crate) fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    let first = found.next().unwrap_or_else(|| panic!("no {kind} {name}"));
    assert!(found.next().is_none(), "{kind} {name} twice");
    first
}

/// Returns the pod of a Deployment or DaemonSet.
pub(crate) fn pod(object: &Value) -> PodSpec {
    serde_json::from_value(object["spec"]["template"]["spec"].clone()).unwrap()
}

/// Converts an object to its type and back. Unknown fields are lost.
pub(crate) fn round_trip<K: DeserializeOwned + Serialize>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<K>(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}")))
        .unwrap()
}

/// Returns the object without the fields that Kubernetes does not have.
pub(crate) fn without_unknown_fields(case: &str, object: &Value) -> Value {
    match (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()) {
        ("v1", "ServiceAccount") => round_trip::<ServiceAccount>(object),
        ("v1", "ConfigMap") => round_trip::<ConfigMap>(object),
        ("v1", "Secret") => round_trip::<Secret>(object),
        ("v1", "Service") => round_trip::<Service>(object),
        ("v1", "Pod") => round_trip::<Pod>(object),
        ("apps/v1", "Deployment") => round_trip::<Deployment>(object),
        ("apps/v1", "DaemonSet") => round_trip::<DaemonSet>(object),
        ("policy/v1", "PodDisruptionBudget") => round_trip::<PodDisruptionBudget>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => round_trip::<ClusterRole>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => round_trip::<ClusterRoleBinding>(object),
        ("rbac.authorization.k8s.io/v1", "Role") => round_trip::<Role>(object),
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => round_trip::<RoleBinding>(object),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy") => round_trip::<ValidatingAdmissionPolicy>(object),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding") => {
            round_trip::<ValidatingAdmissionPolicyBinding>(object)
        }
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration") => {
            round_trip::<ValidatingWebhookConfiguration>(object)
        }
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration") => {
            round_trip::<MutatingWebhookConfiguration>(object)
        }
        ("monitoring.coreos.com/v1", kind) if FOREIGN.contains(&kind) => object.clone(),
        other => panic!("{case}: {other:?} is not known to this test"),
    }
}

/// Panics if the object has an unknown field, no name, or another namespace than ours.
pub(crate) fn check(case: &str, object: &Value) {
    let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap_or_default());
    assert!(!name.is_empty(), "{case}: a {kind} without a name");
    assert_eq!(
        without_nulls(without_unknown_fields(case, object)),
        without_nulls(object.clone()),
        "{case}: {kind} {name} has fields that Kubernetes does not know"
    );
    let is_cluster_wide = ["Cluster", "Validating", "Mutating"].iter().any(|word| kind.starts_with(word));
    let namespace = if is_cluster_wide { Value::Null } else { "kube-system".into() };
    assert_eq!(object["metadata"]["namespace"], namespace, "{case}: {kind} {name}");
}

/// Removes nulls and empty maps, which Kubernetes treats as missing.
fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        let entries = std::mem::take(fields);
        let cleaned = entries.into_iter().map(|(key, value)| (key, without_nulls(value)));
        fields.extend(cleaned.filter(|(_, value)| !value.is_null() && value != &serde_json::json!({})));
    } else if let Value::Array(items) = &mut value {
        items.iter_mut().for_each(|item| *item = without_nulls(item.take()));
    }
    value
}

#[test]
fn kubernetes_knows_every_field_of_every_case() {
    let cases = cases();
    assert!(cases.len() >= 8, "{} cases", cases.len());
    for (case, objects) in cases {
        objects.iter().for_each(|object| check(&case, object));
        let mut names: Vec<_> = objects.iter().map(|object| format!("{} {}", object["kind"], object["metadata"])).collect();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "{case}: an object twice");
    }
}

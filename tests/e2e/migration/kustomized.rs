//! Renders a kustomization of the guides as kustomize does, for any version of kubectl and of the API server.
//!
//! Input: a kustomization next to `manifests/`. Output: the renamed accounts, rights and Deployment, which every API server serves.
//! `tests/manifests` compares the components with their bases.

use std::{fs, path::Path};

use cloud_controller_manager::runtime::yaml;
use serde_json::{Value, json};

use crate::shipped;

const RESOURCES: &str = "../manifests";

fn documents(path: &str) -> Vec<Value> {
    yaml::documents(&fs::read_to_string(path).expect(path)).expect("objects")
}

/// Returns a List for `kubectl apply`.
pub(super) fn rendered(kustomization: &Path) -> Value {
    let kustomization: Value =
        yaml::parse(&fs::read_to_string(kustomization).expect("a kustomization")).expect("a kustomization");
    assert_eq!(kustomization["resources"], json!([RESOURCES]));
    let components = kustomization["components"].as_array().expect("components").iter();
    let components: Vec<&str> = components
        .map(|path| path.as_str().and_then(|path| path.strip_prefix("../manifests/")).expect("a component"))
        .collect();
    let last = components.last().expect("a component");
    let component = documents(&format!("manifests/{last}/kustomization.yaml")).remove(0);
    let suffix = component["nameSuffix"].as_str().expect("a suffix");
    let mut items: Vec<Value> =
        documents("manifests/rbac.yaml").into_iter().filter(|object| !is_deleted(object, &component)).collect();
    if component["patches"].as_array().expect("patches").iter().any(|patch| patch["target"]["kind"] == "ClusterRole") {
        let rules = documents(&format!("manifests/{last}/read-only.yaml")).remove(0)[0]["value"].clone();
        items.iter_mut().filter(|object| object["kind"] == "ClusterRole").for_each(|role| role["rules"] = rules.clone());
    }
    items.iter_mut().for_each(|object| rename(object, suffix));
    items.push(deployment(&components, suffix, &component["labels"][0]["pairs"]));
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn is_deleted(object: &Value, component: &Value) -> bool {
    let patches = component["patches"].as_array().expect("patches").iter().filter_map(|patch| patch["patch"].as_str());
    let mut patches = patches.map(|patch| yaml::parse::<Value>(patch).expect("a patch"));
    patches.any(|patch| {
        patch["$patch"] == "delete"
            && patch["kind"] == object["kind"]
            && patch["metadata"]["name"] == object["metadata"]["name"]
    })
}

fn append(name: &mut Value, suffix: &str) {
    *name = json!(format!("{}{suffix}", name.as_str().expect("a name")));
}

/// Renames an object and its references to renamed objects. A Role of Kubernetes keeps its name.
fn rename(object: &mut Value, suffix: &str) {
    append(&mut object["metadata"]["name"], suffix);
    let is_own = |name: &Value| name.as_str().is_some_and(|name| name.contains("cloud-controller-manager"));
    if is_own(&object["roleRef"]["name"]) {
        append(&mut object["roleRef"]["name"], suffix);
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        append(&mut subject["name"], suffix);
    }
}

fn deployment(components: &[&str], suffix: &str, labels: &Value) -> Value {
    let mut object = shipped::deployment(components);
    append(&mut object["metadata"]["name"], suffix);
    append(&mut object["spec"]["template"]["spec"]["serviceAccountName"], suffix);
    for at in ["/metadata/labels", "/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        let pairs = object.pointer_mut(at).and_then(Value::as_object_mut).expect("labels");
        pairs.extend(labels.as_object().expect("labels").clone());
    }
    object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("your-image:your-tag");
    object
}

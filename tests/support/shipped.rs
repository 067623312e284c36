//! The shipped Deployment with the patches of components, as kustomize builds it.

use std::{fs, path::Path};

use cloud_controller_manager::runtime::yaml;
use serde_json::Value;

const FOLDER: &str = "manifests";

/// Returns `manifests/deployment.yaml` with the patches in each of `components`, in their order. Patches are lists of `test`, `replace` and
/// `add` at the end of a list.
pub(crate) fn deployment(components: &[&str]) -> Value {
    let folder = Path::new(FOLDER);
    let mut object = yaml::documents::<Value>(&read(&folder.join("deployment.yaml"))).unwrap().remove(0);
    for component in components {
        let folder = folder.join(component);
        let kustomization: Value = yaml::parse(&read(&folder.join("kustomization.yaml"))).unwrap();
        for patch in kustomization["patches"].as_array().unwrap() {
            if patch["target"]["kind"] == "Deployment" {
                let text = patch["path"].as_str().map(|file| read(&folder.join(file)));
                change(&mut object, &text.unwrap_or_else(|| patch["patch"].as_str().unwrap().to_owned()));
            }
        }
    }
    object
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn change(object: &mut Value, patch: &str) {
    for change in yaml::parse::<Vec<Value>>(patch).unwrap() {
        let (path, value) = (change["path"].as_str().unwrap(), change["value"].clone());
        match change["op"].as_str().unwrap() {
            "test" => assert_eq!(object.pointer(path), Some(&value), "{path}"),
            "replace" => *object.pointer_mut(path).unwrap() = value,
            "add" => object.pointer_mut(path.strip_suffix("/-").unwrap()).unwrap().as_array_mut().unwrap().push(value),
            other => panic!("this test does not support {other}"),
        }
    }
}

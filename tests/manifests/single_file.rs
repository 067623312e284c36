//! Files for `kubectl apply -f`: one file per cloud, written by `make manifest`, without the static pod.
//!
//! `KUBECTL` names kubectl; `.ci/kubectl` prints it and `make test` sets it.

use std::{path::PathBuf, process::Command};

use super::*;
use crate::guides::blocks::files_with_extension;

const IMAGE: &str = "registry.example.com:5000/team/ccm:v0.1.0";

/// Writes the files for an image, and returns them or the error.
fn written(image: &str) -> Result<Vec<(PathBuf, Vec<Value>)>, String> {
    assert!(
        std::env::var_os("KUBECTL").is_some(),
        "KUBECTL is not set: run `make test`, or set it to what .ci/kubectl prints"
    );
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(".ci/manifest").arg(image).arg(folder.path()).output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8(output.stderr).unwrap());
    }
    let paths = String::from_utf8(output.stdout).unwrap();
    let read = |path: PathBuf| (path.clone(), yaml::documents(&fs::read_to_string(path).unwrap()).unwrap());
    Ok(paths.lines().map(PathBuf::from).map(read).collect())
}

#[test]
fn the_file_of_a_cloud_installs_its_kustomization() {
    let files = written(IMAGE).unwrap();
    let clouds: Vec<_> = files.iter().map(|(path, _)| path.file_stem().unwrap().to_str().unwrap()).collect();
    assert_eq!(clouds, ["azure", "fake"]);
    for (path, objects) in &files {
        let cloud = path.file_stem().unwrap().to_str().unwrap();
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let mut expected = shipped::deployment(&[cloud]);
        expected["spec"]["template"]["spec"]["containers"][0]["image"] = IMAGE.into();
        assert_eq!(deployment, &expected, "{cloud}");
        let text = fs::read_to_string("docs/guides/installing.md").unwrap();
        assert!(text.contains("make manifest IMAGE="), "the guide names the file");
        let kinds: BTreeSet<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        for kind in ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "PodDisruptionBudget"] {
            assert!(kinds.contains(kind), "{cloud} lacks a {kind}");
        }
    }
}

#[test]
fn an_invalid_image_name_is_refused() {
    for image in ["", "a b", "x|y", "a&b", "-x"] {
        assert!(written(image).unwrap_err().contains("is not the name of an image"), "{image}");
    }
}

#[test]
fn applying_the_folder_creates_no_pod() {
    let manifests = ["yaml", "yml", "json"].map(|ending| files_with_extension(Path::new(FOLDER), ending)).concat();
    // Helm templates are not YAML.
    for path in manifests.into_iter().filter(|path| !path.starts_with("manifests/chart/templates")) {
        let objects: Vec<Value> = yaml::documents(&fs::read_to_string(&path).unwrap()).unwrap();
        assert!(objects.iter().all(|object| object["kind"] != "Pod"), "{}", path.display());
    }
    assert_eq!(documents(STATIC_POD)[0]["kind"], "Pod");
}

//! A release of Go's chart is upgraded to `manifests/chart` and rolled back, by Helm itself on a real API server, which rejects changes of
//! immutable fields. A generated chart replaces Go's: it has the same kinds, names, selectors and roleRefs (`tests/chart/go.json`).

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use kube::{
    Api, Client,
    api::DynamicObject,
    core::{GroupVersionKind, discovery::ApiResource},
};
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;

const CASE: &str = "go-defaults";
/// ConfigMap with a script for Windows, which our chart does not have.
const SCRIPTS: &str = "cloud-provider-azure-scripts";

fn go_rows() -> Vec<Value> {
    let cases: BTreeMap<String, Vec<Value>> =
        serde_json::from_str(&fs::read_to_string("tests/chart/go.json").expect("go.json")).expect("rows");
    cases[CASE].clone()
}

/// Builds the smallest object with the fields of a row.
fn stand_in(row: &Value) -> Value {
    let mut object = json!({"apiVersion": row["apiVersion"], "kind": row["kind"], "metadata": {"name": row["name"]}});
    if let Some(namespace) = row.get("namespace") {
        object["metadata"]["namespace"] = namespace.clone();
    }
    if let Some(role) = row.get("roleRef") {
        object["roleRef"] = role.clone();
    }
    if let Some(selector) = row.get("selector") {
        let pod = json!({"containers": [{"name": "go", "image": "go", "command": ["go"]}]});
        let template = json!({"metadata": {"labels": selector["matchLabels"]}, "spec": pod});
        object["spec"] = json!({"selector": selector, "template": template});
    }
    object
}

/// Writes a chart with the objects of Go's, and ours without the fields that an old API server rejects.
fn charts(folder: &Path) -> [PathBuf; 2] {
    let [go, own] = ["go", "own"].map(|name| folder.join("charts").join(name));
    fs::create_dir_all(go.join("templates")).expect("a folder");
    fs::write(go.join("Chart.yaml"), "apiVersion: v2\nname: cloud-provider-azure\nversion: 1.36.0\n").expect("a chart");
    let objects: Vec<String> = go_rows().iter().map(|row| stand_in(row).to_string()).collect();
    fs::write(go.join("templates/all.yaml"), objects.join("\n---\n")).expect("templates");
    let copied = Command::new("cp").args(["-r", "manifests/chart"]).arg(&own).status().expect("cp");
    assert!(copied.success());
    for (file, too_new) in [("Chart.yaml", "kubeVersion:"), ("templates/cloud-node-manager-windows.yaml", "hostProcess:")] {
        let text = fs::read_to_string(own.join(file)).expect("a file of the chart");
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with(too_new)).collect();
        fs::write(own.join(file), lines.join("\n")).expect("a file of the chart");
    }
    [go, own]
}

/// Runs a Helm action, and returns Helm's error or an empty text.
async fn helm(plane: &ControlPlane, action: &str, chart: &Path, values: &str) -> String {
    let python =
        env::var("HELM_PYTHON").expect("HELM_PYTHON is not set: run `make test`, or set it to what .ci/helm prints");
    drop(plane.admin().await);
    let input = json!({
        "kubeconfig": plane.folder().join("admin.kubeconfig"), "action": action, "chart": chart, "values": values,
    });
    let run = move || {
        let mut command = Command::new(&python);
        command.arg("tests/e2e/helm.py").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{python}: {error}"));
        process.stdin.take().expect("stdin").write_all(input.to_string().as_bytes()).expect("stdin accepts the input");
        let output = process.wait_with_output().expect("output");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    tokio::task::spawn_blocking(run).await.expect("Helm runs")
}

fn api(admin: &Client, row: &Value) -> Api<DynamicObject> {
    let version = row["apiVersion"].as_str().expect("a version");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, row["kind"].as_str().expect("a kind")));
    match row["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(admin.clone(), namespace, &resource),
        None => Api::all_with(admin.clone(), &resource),
    }
}

/// Returns the UIDs of Go's objects that exist, by kind and name.
async fn uids(admin: &Client) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for row in go_rows() {
        let object = api(admin, &row).get_opt(row["name"].as_str().expect("a name")).await.expect("a response");
        let uid = object.and_then(|object| object.metadata.uid);
        found.extend(uid.map(|uid| (format!("{} {}", row["kind"], row["name"]), uid)));
    }
    found
}

async fn image(admin: &Client, kind: &str, name: &str) -> Value {
    let row = json!({"apiVersion": "apps/v1", "kind": kind, "namespace": "kube-system"});
    let object = api(admin, &row).get(name).await.expect("the workload");
    object.data["spec"]["template"]["spec"]["containers"].clone()
}

/// Runs on a cluster of its own, because the other scenarios use the same objects.
pub(crate) async fn from_go_and_back(_: &ControlPlane) {
    let plane = ControlPlane::real_and_empty().await;
    let admin = plane.admin().await;
    let [go, own] = charts(plane.folder());
    let values = fs::read_to_string(format!("tests/chart/values/{CASE}.yaml")).expect("values");
    assert_eq!(helm(&plane, "install", &go, "{}").await, "");
    let before = uids(&admin).await;
    assert_eq!(before.len(), go_rows().len());

    assert_eq!(helm(&plane, "upgrade", &own, &values).await, "");
    let mut expected = before.clone();
    expected.retain(|name, _| !name.contains(SCRIPTS));
    assert_eq!(uids(&admin).await, expected, "adopted in place, not created again");
    let program = json!(["$env:CONTAINER_SANDBOX_MOUNT_POINT/cloud-node-manager.exe"]);
    for (kind, name, command) in [
        ("Deployment", "cloud-controller-manager", Value::Null),
        ("DaemonSet", "cloud-node-manager", Value::Null),
        ("DaemonSet", "cloud-node-manager-windows", program),
    ] {
        let containers = image(&admin, kind, name).await;
        let [container] = containers.as_array().expect("containers").as_slice() else { panic!("{containers}") };
        assert_eq!(container["image"], "registry.example.com/cloud-controller-manager:v0.1.0");
        assert_eq!(container["command"], command, "{kind} has fields of Go");
    }

    assert_eq!(helm(&plane, "rollback", &go, "{}").await, "");
    let after = uids(&admin).await;
    assert!(expected.iter().all(|(name, uid)| after.get(name) == Some(uid)), "the same objects");
    assert_eq!(after.len(), before.len(), "the script for Windows is back");
    assert_eq!(image(&admin, "Deployment", "cloud-controller-manager").await[0]["image"], "go");
}

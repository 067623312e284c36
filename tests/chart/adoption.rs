//! `helm upgrade` from Go's chart: the same objects, without changes of immutable fields.
//!
//! `go.json` has a row with kind, name, selector and roleRef for each object that the chart cloud-provider-azure 1.36.0 of kubernetes-sigs
//! renders with the same values. Selectors and roleRefs are immutable.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::chart::objects::{find, folder, read, rendered, selects};

/// ConfigMap with a script that edits the kubeconfig on Windows. Our program does not need it.
const SCRIPTS: &str = "cloud-provider-azure-scripts";

fn of_go() -> BTreeMap<String, Vec<Value>> {
    serde_json::from_str(&read(&folder("go.json"))).unwrap()
}

#[test]
fn objects_of_gos_chart_are_adopted_in_place() {
    let cases = of_go();
    assert_eq!(cases.len(), 6);
    for (case, rows) in cases {
        let objects = rendered(&case);
        for row in rows.iter().filter(|row| row["name"] != SCRIPTS) {
            let (kind, name) = (row["kind"].as_str().unwrap(), row["name"].as_str().unwrap());
            let object = find(&objects, kind, name);
            assert_eq!(object["apiVersion"], row["apiVersion"], "{case}: {kind} {name}");
            assert_eq!(object["metadata"]["namespace"], row["namespace"], "{case}: {kind} {name}");
            assert_eq!(object["spec"]["selector"], row["selector"], "{case}: {kind} {name}");
            assert_eq!(object["roleRef"], row["roleRef"], "{case}: {kind} {name}");
        }
        let workloads = |rows: &[Value]| {
            let is_one = |row: &&Value| row["kind"] == "Deployment" || row["kind"] == "DaemonSet";
            rows.iter().filter(is_one).map(|row| row["kind"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(workloads(&objects), workloads(&rows), "{case}: other workloads than in Go's chart");
    }
}

#[test]
fn pods_have_the_labels_that_select_them() {
    for case in of_go().keys().map(String::as_str).chain(["additions", "kustomize"]) {
        for object in rendered(case).iter().filter(|object| !object["spec"]["template"].is_null()) {
            let labels = &object["spec"]["template"]["metadata"]["labels"];
            assert!(selects(&object["spec"]["selector"]["matchLabels"], labels), "{case}: {labels}");
        }
    }
}

//! `meta.k8s.io/v1` Tables, which `kubectl get` prints. Pure. Upstream: `pkg/printers/internalversion/printers.go`; ages are printed
//! as timestamps are: the client cannot recompute them, so the column holds the time of creation.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{kinds::Kind, validation::items};

/// A column: its title, whether it only shows with `-o wide`, and what is in it.
type Column = (&'static str, bool, fn(&Value) -> String);

const NAME: Column = ("Name", false, |object| text(&object["metadata"]["name"]));
const CREATED: Column = ("Created", false, |object| text(&object["metadata"]["creationTimestamp"]));

const NODE: &[Column] = &[
    NAME,
    ("Status", false, node_status),
    ("Taints", false, |node| joined(&node["spec"]["taints"], |taint| text(&taint["key"]))),
    ("Provider-ID", false, |node| text(&node["spec"]["providerID"])),
    CREATED,
    ("Internal-IP", true, |node| address(node, "InternalIP")),
    ("External-IP", true, |node| address(node, "ExternalIP")),
    ("Pod-CIDRs", true, |node| joined(&node["spec"]["podCIDRs"], text)),
    ("Zone", true, |node| text(&node["metadata"]["labels"]["topology.kubernetes.io/zone"])),
    ("Instance-Type", true, |node| text(&node["metadata"]["labels"]["node.kubernetes.io/instance-type"])),
];

const SERVICE: &[Column] = &[
    NAME,
    ("Type", false, |service| text(&service["spec"]["type"])),
    ("Cluster-IP", false, |service| text(&service["spec"]["clusterIP"])),
    ("External-IP", false, external_ip),
    ("Port(s)", false, |service| joined(&service["spec"]["ports"], port)),
    CREATED,
    ("Finalizers", true, |service| joined(&service["metadata"]["finalizers"], text)),
];

const EVENT: &[Column] = &[
    ("Last Seen", false, last_seen),
    ("Type", false, |event| text(&event["type"])),
    ("Reason", false, |event| text(&event["reason"])),
    ("Object", false, involved),
    ("Message", false, |event| text(&event["message"])),
    ("Source", true, |event| text(&event["source"]["component"])),
    ("Count", true, |event| text(&event["count"])),
];

const LEASE: &[Column] = &[
    NAME,
    ("Holder", false, |lease| text(&lease["spec"]["holderIdentity"])),
    ("Renewed", true, |lease| text(&lease["spec"]["renewTime"])),
    CREATED,
];

const POD: &[Column] = &[
    NAME,
    ("Status", false, |pod| text(&pod["status"]["phase"])),
    ("Node", true, |pod| text(&pod["spec"]["nodeName"])),
    CREATED,
];

const OTHERS: &[Column] = &[NAME, CREATED];

fn columns(kind: &Kind) -> &'static [Column] {
    match kind.plural {
        "nodes" => NODE,
        "services" => SERVICE,
        "events" => EVENT,
        "leases" => LEASE,
        "pods" => POD,
        _ => OTHERS,
    }
}

/// Returns the table of `objects`.
pub fn table(kind: &Kind, objects: &[Arc<Value>], metadata: &Value) -> Value {
    let columns = columns(kind);
    let definitions: Vec<_> = columns
        .iter()
        .map(|(title, wide, _)| {
            let format = if *title == "Name" { "name" } else { "" };
            json!({"name": title, "type": "string", "format": format, "description": title, "priority": i32::from(*wide)})
        })
        .collect();
    let rows: Vec<_> = objects
        .iter()
        .map(|object| {
            let cells: Vec<_> = columns.iter().map(|(_, _, cell)| or_none(cell(object))).collect();
            let metadata = json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
            });
            json!({"cells": cells, "object": metadata})
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": definitions, "rows": rows,
    })
}

fn or_none(cell: String) -> String {
    if cell.is_empty() { "<none>".to_owned() } else { cell }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn joined(list: &Value, show: fn(&Value) -> String) -> String {
    items(list).iter().map(show).collect::<Vec<_>>().join(",")
}

fn node_status(node: &Value) -> String {
    let ready = items(&node["status"]["conditions"]).iter().find(|condition| condition["type"] == "Ready");
    let ready = match ready.map(|condition| text(&condition["status"])).as_deref() {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        _ => "Unknown",
    };
    let cordoned = if node["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    format!("{ready}{cordoned}")
}

fn address(node: &Value, kind: &str) -> String {
    let addresses = items(&node["status"]["addresses"]).iter().filter(|address| address["type"] == kind);
    addresses.map(|address| text(&address["address"])).collect::<Vec<_>>().join(",")
}

fn external_ip(service: &Value) -> String {
    let ingress = items(&service["status"]["loadBalancer"]["ingress"]);
    let shown =
        ingress.iter().map(|entry| if entry["ip"].is_null() { text(&entry["hostname"]) } else { text(&entry["ip"]) });
    match shown.collect::<Vec<_>>().join(",") {
        none if none.is_empty() && service["spec"]["type"] == "LoadBalancer" => "<pending>".to_owned(),
        shown => shown,
    }
}

fn port(port: &Value) -> String {
    let node_port = port["nodePort"].as_u64().map(|number| format!(":{number}")).unwrap_or_default();
    format!("{}{node_port}/{}", port["port"], text(&port["protocol"]))
}

fn last_seen(event: &Value) -> String {
    let times = [&event["series"]["lastObservedTime"], &event["lastTimestamp"], &event["eventTime"]];
    times.into_iter().map(text).find(|time| !time.is_empty()).unwrap_or_default()
}

fn involved(event: &Value) -> String {
    let about = &event["involvedObject"];
    format!("{}/{}", text(&about["kind"]).to_lowercase(), text(&about["name"]))
}

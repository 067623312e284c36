//! The whole command against prepared responses of an API server.

use std::{collections::BTreeMap, convert::Infallible};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, ServiceExt};

use super::*;
use crate::{runtime::client::client_over_service, status::ProviderState};

const NOW: &str = "2026-01-01T00:01:00Z";
const PODS: &str = "/api/v1/namespaces/kube-system/pods";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager";
const PAGE: &str = "/api/v1/namespaces/kube-system/pods/https:ccm-1:10258/proxy/statusz";
const WEB: &str = "/api/v1/namespaces/default/services/web";
const NODE: &str = "/api/v1/nodes/a";
const EVENTS: &str = "/api/v1/namespaces/default/events";

type Responses = BTreeMap<&'static str, (u16, Value)>;

/// Returns the responses of a cluster in which nothing waits.
fn responses() -> Responses {
    let lease = json!({"metadata": {"name": "cloud-controller-manager"}, "spec":
        {"holderIdentity": "ccm-1_x", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:55.000000Z"}});
    let pod = json!({"metadata": {"name": "ccm-1"}, "spec": {"containers": [{"name": "cloud-controller-manager"}]}});
    let web = json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer"}, "status":
        {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    let node = json!({"metadata": {"name": "a"}, "spec": {"providerID": "azure:///a"}});
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {}, "type": "Warning", "reason": "SyncFailed",
        "message": "no\u{1b}[31m quota", "count": 3, "lastTimestamp": "2026-01-01T00:00:00Z"});
    let list = |kind: &str, items: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": items});
    let page = json!({"version": crate::cli::VERSION, "leading": true, "cloudProvider": {"name": "azure", "state": ProviderState::Initialized, "problem": null},
        "informers": {"nodes": {"synced": true, "objects": 1, "error": null}, "namespaces": null},
        "controllers": [{"name": "service-lb-controller", "problem": null, "unsettled": []}], "notRunning": {"route": "off"}});
    [
        (LEASE, lease),
        (PODS, list("PodList", json!([pod]))),
        (PAGE, page),
        (WEB, web),
        (NODE, node),
        (EVENTS, list("EventList", json!([event]))),
    ]
    .into_iter()
    .map(|(path, value)| (path, (200, value)))
    .collect()
}

fn refused(code: u16, message: &str) -> (u16, Value) {
    let reason = if code == 403 { "Forbidden" } else { "NotFound" };
    (code, json!({"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}))
}

fn client(responses: Responses) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, value) = responses.get(request.uri().path()).cloned().unwrap_or_else(|| refused(404, "not found"));
        let response = Response::builder().status(code).header("content-type", "application/json");
        let response = response.body(Body::from(value.to_string().into_bytes())).unwrap();
        async move { Ok::<_, Infallible>(response) }
    });
    client_over_service(service.map_err(BoxError::from), None)
}

fn options(subject: StatusSubject) -> StatusOptions {
    let lease = ("kube-system".to_owned(), "cloud-controller-manager".to_owned());
    StatusOptions { kube_api: Default::default(), lease, port: 10258, subject, url: None, json: false }
}

fn web() -> StatusSubject {
    StatusSubject::Service { namespace: "default".to_owned(), name: "web".to_owned() }
}

fn at<'a>(responses: &'a mut Responses, path: &str) -> &'a mut Value {
    &mut responses.get_mut(path).unwrap().1
}

async fn status_of(responses: Responses, subject: StatusSubject) -> (u8, String, Value) {
    let view = gather(Ok(client(responses)), &options(subject), NOW.parse().unwrap()).await;
    (view.code(), print::text(&view), view.json())
}

/// Name of the case, change of the responses, subject, expected exit code, and parts of the expected text.
type StatusCase = (&'static str, fn(&mut Responses), StatusSubject, u8, &'static [&'static str]);

fn row(responses: &mut Responses, key: &str) {
    let row = json!({"key": key, "runningForSeconds": null, "dueInSeconds": 30.2, "failures": 4, "reason": "no quota"});
    at(responses, PAGE)["controllers"][0]["unsettled"] = json!([row]);
}

/// Adds external changes to a document of `default/odd`, which is repaired or not yet, and to a route of the Node `a`.
fn drift(responses: &mut Responses, is_delayed: bool) {
    let page = at(responses, PAGE);
    let note = |about: &str, second: u8, outcome: &str, detail: &str| json!({"about": about, "found": format!("2026-01-01T00:00:0{second}Z"), "outcome": outcome, "what": detail});
    let outcome = if is_delayed { "delayed" } else { "repaired" };
    let mut found =
        json!({"latest": [note("default/odd", 1, outcome, "another writer changed\u{1b}[31m a probe")], "services": {}});
    if is_delayed {
        found["services"]["default/odd"] =
            json!({"documents": ["kubernetes (change probe p)"], "repairAfter": "2026-01-01T00:10:00Z"});
    }
    page["cloudProvider"]["details"]["session"]["loadBalancers"]["drift"] = found;
    page["controllers"][0]["drift"] = json!([note("a", 2, "repaired", "another writer deleted route r")]);
}

#[tokio::test]
async fn external_changes_are_shown_latest_first() {
    let odd = StatusSubject::Service { namespace: "default".to_owned(), name: "odd".to_owned() };
    for (is_delayed, subject, code, lines) in [
        (
            false,
            StatusSubject::Manager,
            0,
            &["repaired  another writer deleted route r", "repaired  another writer changed [31m a probe"][..],
        ),
        (false, StatusSubject::Node("a".to_owned()), 0, &["repaired  another writer deleted route r"]),
        (
            true,
            StatusSubject::Manager,
            2,
            &[
                "repaired after 2026-01-01T00:10:00Z",
                "kubernetes (change probe p)",
                "another writer deleted",
                "delayed   another writer changed",
            ],
        ),
        (true, odd, 1, &["INCOMPLETE", "repaired after 2026-01-01T00:10:00Z", "delayed  another writer changed"]),
        (true, web(), 0, &["External changes: none"]),
    ] {
        let mut all = responses();
        drift(&mut all, is_delayed);
        let (found, text, json) = status_of(all, subject.clone()).await;
        assert_eq!(found, code, "{subject:?}: {text}");
        let mut rest = text.as_str();
        for line in lines {
            let position = rest.find(line).unwrap_or_else(|| panic!("{subject:?}: {line:?} is not next in {text}"));
            rest = &rest[position + line.len()..];
        }
        assert!(!text.contains('\u{1b}') && json["drift"].is_array(), "{json}");
    }
}

#[tokio::test]
async fn findings_determine_exit_code_and_text() {
    let manager = || StatusSubject::Manager;
    let node = || StatusSubject::Node("a".to_owned());
    let cases: Vec<StatusCase> = vec![
        ("quiet", |_| {}, manager(), 0, &["Leader: ccm-1_x (renewed 5 s ago)", "pod kube-system/ccm-1", "Waiting: none"]),
        ("waiting", |all| row(all, "default/db"), manager(), 2, &["default/db", "due in 30 s", "4", "no quota"]),
        ("another waits", |all| row(all, "default/db"), web(), 0, &["addresses: 192.0.2.1", "Waiting: none", "SyncFailed"]),
        ("it waits", |all| row(all, "default/web"), web(), 2, &["default/web", "no quota", "no [31m quota"]),
        (
            "its condition says no",
            |all| {
                at(all, WEB)["status"]["conditions"] = json!([{"type": "cloud-controller-manager.io/LoadBalancer",
                    "status": "False", "reason": "Failed", "message": "look", "lastTransitionTime": NOW}]);
            },
            web(),
            2,
            &["load balancer: Failed: look"],
        ),
        ("node", |_| {}, node(), 0, &["provider id: azure:///a"]),
        ("node without id", |all| at(all, NODE)["spec"] = json!({}), node(), 2, &["provider id: none"]),
        ("no events", |all| *all.get_mut(EVENTS).unwrap() = refused(403, "no right"), web(), 1, &["INCOMPLETE", "no right"]),
        ("no Service", |all| drop(all.remove(WEB)), web(), 1, &["INCOMPLETE", "Service default/web does not exist\n"]),
        (
            "no lease",
            |all| drop(all.remove(LEASE)),
            manager(),
            1,
            &["lease kube-system/cloud-controller-manager: ", "no leader"],
        ),
        ("expired", |all| at(all, LEASE)["spec"]["leaseDurationSeconds"] = json!(4), manager(), 2, &["EXPIRED"]),
        (
            "another program holds it",
            |all| at(all, LEASE)["spec"]["holderIdentity"] = json!("elsewhere_1"),
            manager(),
            1,
            &["no pod in kube-system is \"elsewhere_1\""],
        ),
        (
            "the pod gets no credentials",
            |all| {
                *all.get_mut(PAGE).unwrap() =
                    refused(403, "forbidden: User \"system:anonymous\" cannot get path \"/statusz\"")
            },
            manager(),
            1,
            &[
                "passes no credentials",
                "kubectl -n kube-system port-forward pod/ccm-1 10258",
                "--url https://localhost:10258",
            ],
        ),
        (
            "no right to the proxy",
            |all| *all.get_mut(PAGE).unwrap() = refused(403, "User \"me\" cannot get resource \"pods/proxy\""),
            manager(),
            1,
            &["the right to get pods/proxy is missing"],
        ),
        (
            "a standby responds",
            |all| at(all, PAGE)["leading"] = json!(false),
            manager(),
            1,
            &["this replica does not lead", "does not lead"],
        ),
        ("another program responds", |all| *at(all, PAGE) = json!({}), manager(), 1, &["not the status page"]),
        (
            "another version",
            |all| at(all, PAGE)["version"] = json!("v0.0.1"),
            manager(),
            0,
            &["which leads; it is version v0.0.1, this command "],
        ),
        (
            "a version without pending work of controllers",
            |all| drop(at(all, PAGE).as_object_mut().unwrap().remove("controllers")),
            manager(),
            1,
            &["INCOMPLETE", "of another version: missing field `controllers`"],
        ),
        (
            "a version with another format of pending work",
            |all| at(all, PAGE)["controllers"] = json!([{"name": "service-lb-controller", "waiting": ["a/b"]}]),
            manager(),
            1,
            &["INCOMPLETE", "of another version: missing field `unsettled`"],
        ),
        (
            "the cloud is not reached",
            |all| at(all, PAGE)["cloudProvider"]["problem"] = json!("HTTP 403"),
            manager(),
            2,
            &["Problem: cloud provider: HTTP 403"],
        ),
    ];
    for (name, change, subject, code, expected) in cases {
        let mut all = responses();
        change(&mut all);
        let (found, text, json) = status_of(all, subject).await;
        assert_eq!(found, code, "{name}: {text}");
        assert_eq!(json["complete"], code != 1, "{name}: {json}");
        for words in expected {
            assert!(text.contains(words), "{name}: {words:?} is not in {text}");
        }
        assert!(!text.contains('\u{1b}'), "{name}");
    }
}

#[tokio::test]
async fn long_lists_and_texts_are_truncated() {
    let mut all = responses();
    let long = "x".repeat(5000);
    let rows: Vec<Value> = (0..300).map(|number| json!({"key": format!("n/{number}"), "reason": long})).collect();
    at(&mut all, PAGE)["controllers"][0]["unsettled"] = json!(rows);
    let (code, text, json) = status_of(all, StatusSubject::Manager).await;
    assert_eq!((code, json["waiting"].as_array().unwrap().len()), (2, 300));
    assert!(text.contains("and 100 more; -o json has all") && text.lines().all(|line| line.len() < 1200));
}

#[tokio::test]
async fn status_without_a_cluster_is_incomplete() {
    let view = gather(Err("no route".to_owned()), &options(StatusSubject::Manager), NOW.parse().unwrap()).await;
    assert_eq!(view.code(), 1);
    assert!(print::text(&view).contains("the cluster: no route"));
}

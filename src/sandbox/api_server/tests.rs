use std::time::Duration;

use futures::{AsyncBufReadExt, StreamExt};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event, Node, Service, ServiceAccount},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};

use super::*;
use crate::{
    metrics::Metrics,
    runtime::{
        informer::Informer,
        leader_election::Leadership,
        patch::{ApiError, ObjectWriter, PatchKind, PatchTarget},
        shutdown::Shutdown,
        store::InformerStore,
    },
    sandbox::{
        faults::{any, on},
        objects::{NodeExt, ObjectExt, load_balancer_service, node, uninitialized_node},
    },
};

fn server() -> ApiServer {
    ApiServer::new(Clock::manual(jiff::Timestamp::UNIX_EPOCH))
}

fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    match result.unwrap_err() {
        kube::Error::Api(status) => status.code,
        other => panic!("not an answer of the API: {other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_client_creates_reads_patches_and_deletes() {
    let server = server();
    let api: Api<Service> = Api::default_namespaced(server.client_as("test/1"));
    let created = api.create(&PostParams::default(), &load_balancer_service("default", "web")).await.unwrap();
    assert_eq!(created.spec.unwrap().ports.unwrap()[0].node_port, Some(30000));
    let params = PatchParams::default();
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}, "spec": {"type": "NodePort"}});
    let patched = api.patch_status("web", &params, &Patch::Merge(status)).await.unwrap();
    assert_eq!(patched.spec.unwrap().type_.as_deref(), Some("LoadBalancer"), "the status subresource keeps the spec");
    let stale = json!({"metadata": {"resourceVersion": "1", "finalizers": ["a/b"]}});
    assert_eq!(code(api.patch("web", &params, &Patch::Merge(stale)).await), 409);
    let finalizer = json!([{"op": "add", "path": "/metadata/finalizers", "value": ["a/b"]}]);
    let finalizer: json_patch::Patch = serde_json::from_value(finalizer).unwrap();
    let bytes = serde_json::to_vec(&finalizer).unwrap();
    let request = Request::patch("/api/v1/namespaces/default/services/web")
        .header("content-type", "application/json-patch+json")
        .body(Bytes::from(bytes))
        .unwrap();
    assert_eq!(server.respond(request).await.unwrap().status(), 200);
    let deleted = api.delete("web", &DeleteParams::default()).await.unwrap();
    assert!(deleted.left().unwrap().metadata.deletion_timestamp.is_some());
    server.update_with::<Service>("default", "web", |service| service.metadata.finalizers = None);
    assert!(server.get::<Service>("default", "web").is_none());
    let requests: Vec<_> = server
        .requests()
        .iter()
        .map(|request| format!("{} {} {}", request.verb, request.subresource, request.code))
        .collect();
    assert_eq!(requests, ["create  201", "patch status 200", "patch  409", "patch  200", "delete  200"]);
    assert_eq!(server.requests()[0].user_agent, "test/1");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_taken_by_one_of_two() {
    let server = server();
    let api: Api<Lease> = Api::namespaced(server.client(), "kube-system");
    let lease: Lease = serde_json::from_value(json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})).unwrap();
    let mut seen = api.create(&PostParams::default(), &lease).await.unwrap();
    assert_eq!(code(api.create(&PostParams::default(), &lease).await), 409);
    seen.spec.as_mut().unwrap().holder_identity = Some("b".into());
    api.replace("l", &PostParams::default(), &seen).await.unwrap();
    assert_eq!(code(api.replace("l", &PostParams::default(), &seen).await), 409);
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_moment() {
    let server = server();
    (0..5).for_each(|number| drop(server.create(&node(&format!("n{number}")))));
    let api: Api<Node> = Api::all(server.client());
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    server.delete::<Node>("", "n3");
    let token = first.metadata.continue_.clone().unwrap();
    let second = api.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
    let names: Vec<_> = second.items.iter().map(|node| node.metadata.name.clone().unwrap()).collect();
    assert_eq!(names, ["n2", "n3"], "a page shows the moment of the first one");
    assert_eq!(second.metadata.resource_version, first.metadata.resource_version);
    server.faults().compact();
    assert_eq!(code(api.list(&ListParams::default().limit(2).continue_token(&token)).await), 410);
    assert_eq!(code(api.list(&ListParams::default().continue_token("zz")).await), 400);
}

async fn lines(server: &ApiServer, uri: &str) -> Vec<Value> {
    let request = Request::get(uri).body(Bytes::new()).unwrap();
    let response = server.respond(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let stream = response.into_body().into_data_stream().map(|chunk| chunk.map_err(io::Error::other));
    let reader = futures::TryStreamExt::into_async_read(stream.boxed());
    reader.lines().filter_map(async |line| serde_json::from_str(&line.ok()?).ok()).collect().await
}

fn summary(events: &[Value]) -> Vec<String> {
    let name = |event: &Value| event["object"]["metadata"]["name"].as_str().unwrap_or("-").to_owned();
    events.iter().map(|event| format!("{} {}", event["type"].as_str().unwrap_or_default(), name(event))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_filters_and_ends() {
    let server = server();
    let first = server.create(&node("a").label("pool", "x")).metadata.resource_version.unwrap();
    server.create(&node("b").label("pool", "y"));
    server.update_with::<Node>("", "a", |node| node.metadata.labels = None);
    server.update_with::<Node>("", "b", |node| *node = node.clone().label("pool", "x"));
    server.delete::<Node>("", "b");
    let from = |rest: &str| format!("/api/v1/nodes?watch=true&timeoutSeconds=5&resourceVersion={first}{rest}");
    let all = lines(&server, &from("")).await;
    assert_eq!(summary(&all), ["ADDED b", "MODIFIED a", "MODIFIED b", "DELETED b"]);
    let selected = lines(&server, &from("&labelSelector=pool%3Dx")).await;
    assert_eq!(summary(&selected), ["DELETED a", "ADDED b", "DELETED b"]);
    assert_eq!(selected[0]["object"]["metadata"]["labels"]["pool"], "x", "as it was when it still matched");
    assert_eq!(selected[0]["object"]["metadata"]["resourceVersion"], all[1]["object"]["metadata"]["resourceVersion"]);
    let named = lines(&server, &from("&fieldSelector=metadata.name%3Da")).await;
    assert_eq!(summary(&named), ["MODIFIED a"]);
    assert_eq!(summary(&lines(&server, "/api/v1/nodes?watch=1&timeoutSeconds=5").await), ["ADDED a"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_forgotten_version_gets_an_error_event() {
    let server = server();
    let old = server.create(&node("a")).metadata.resource_version.unwrap();
    server.faults().compact();
    let events = lines(&server, &format!("/api/v1/nodes?watch=true&timeoutSeconds=5&resourceVersion={old}")).await;
    assert_eq!(summary(&events), ["ERROR -"]);
    assert_eq!((&events[0]["object"]["code"], &events[0]["object"]["reason"]), (&json!(410), &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn streaming_lists_and_bookmarks() {
    let server = server();
    server.create(&node("a"));
    let uri = "/api/v1/nodes?watch=true&timeoutSeconds=90&allowWatchBookmarks=true&sendInitialEvents=true\
               &resourceVersionMatch=NotOlderThan";
    let events = lines(&server, uri).await;
    assert_eq!(summary(&events), ["ADDED a", "BOOKMARK -", "BOOKMARK -"]);
    assert_eq!(events[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(events[2]["object"]["metadata"]["annotations"], Value::Null);
    let request = Request::get("/api/v1/nodes?watch=true&sendInitialEvents=true").body(Bytes::new()).unwrap();
    assert_eq!(server.respond(request).await.unwrap().status(), 422);
}

#[tokio::test(start_paused = true)]
async fn metadata_and_tables_on_request() {
    let server = server();
    server.create(&node("a"));
    let api: Api<Node> = Api::all(server.client());
    assert_eq!(api.list_metadata(&ListParams::default()).await.unwrap().items[0].metadata.name.as_deref(), Some("a"));
    let mut watch = api.watch_metadata(&WatchParams::default(), "0").await.unwrap().boxed();
    let Some(Ok(WatchEvent::Added(partial))) = watch.next().await else { panic!("no event") };
    assert_eq!(partial.metadata.name.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn service_accounts_get_tokens_that_reviews_know() {
    let server = server();
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "sa", "namespace": "kube-system"}})).unwrap();
    server.create(&account);
    let api: Api<ServiceAccount> = Api::namespaced(server.client(), "kube-system");
    let request = TokenRequest {
        spec: Some(TokenRequestSpec { expiration_seconds: Some(600), ..TokenRequestSpec::default() }),
        ..TokenRequest::default()
    };
    let issued = api.create_token_request("sa", &PostParams::default(), &request).await.unwrap();
    let review = json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": issued.status.unwrap().token}});
    let request =
        Request::post("/apis/authentication.k8s.io/v1/tokenreviews").body(Bytes::from(review.to_string())).unwrap();
    let answer = server.respond(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["status"]["user"]["username"], "system:serviceaccount:kube-system:sa");
    assert_eq!(code(api.create_token_request("none", &PostParams::default(), &TokenRequest::default()).await), 404);
}

#[tokio::test(start_paused = true)]
async fn the_api_wants_namespaces_to_exist() {
    let server = server();
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "c"}})).unwrap();
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "nowhere");
    assert_eq!(code(api.create(&PostParams::default(), &map).await), 404);
    let applied = Api::<ConfigMap>::default_namespaced(server.client())
        .patch(
            "c",
            &PatchParams::apply("test"),
            &Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})),
        )
        .await;
    assert!(applied.is_ok(), "apply creates: {applied:?}");
    let event: Event = serde_json::from_value(json!({
        "metadata": {"name": "e", "namespace": "default"}, "involvedObject": {"kind": "Service", "namespace": "other"},
    }))
    .unwrap();
    let events: Api<Event> = Api::default_namespaced(server.client());
    assert_eq!(code(events.create(&PostParams::default(), &event).await), 422);
}

#[tokio::test(start_paused = true)]
async fn refusals_delays_and_the_wait_for_a_request() {
    let server = server();
    server.create(&node("a"));
    let api: Api<Node> = Api::all(server.client());
    server.faults().fail_next(1, 403, on(Verb::Get, "nodes"));
    server.faults().delay_every(Duration::from_secs(7), any);
    let before = tokio::time::Instant::now();
    assert_eq!(code(api.get("a").await), 403);
    assert!(api.get("a").await.is_ok());
    assert_eq!(before.elapsed(), Duration::from_secs(14));
    server.faults().clear();
    server.clear_requests();
    let get = async { api.get("a").await.unwrap() };
    let waited = server.wait_until(|server| server.requests().iter().any(|request| request.code == 200));
    tokio::join!(get, waited);
}

#[tokio::test(start_paused = true)]
async fn a_crash_loses_the_response_or_the_write() {
    for (crash, expected) in [(Crash::BeforeEffect, None), (Crash::AfterEffect, Some(true))] {
        let server = server();
        server.create(&node("a"));
        server.create(&node("b"));
        let api: Api<Node> = Api::all(server.client());
        server.faults().crash_after(2, crash);
        let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
        assert!(api.patch("a", &PatchParams::default(), &cordon).await.is_ok());
        assert!(matches!(api.patch("b", &PatchParams::default(), &cordon).await, Err(kube::Error::Service(_))));
        assert!(matches!(api.get("a").await, Err(kube::Error::Service(_))), "a crashed client hears nothing more");
        assert_eq!(server.get::<Node>("", "b").unwrap().spec.unwrap().unschedulable, expected);
        server.faults().recover();
        assert!(api.get("a").await.is_ok());
    }
}

fn informed(server: &ApiServer, shutdown: &Shutdown) -> (InformerStore<Node>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new().unwrap());
    let informer = Informer::<Node>::new(|_| ());
    let store = informer.store();
    informer.start(server.client(), shutdown, Arc::clone(&metrics));
    (store, metrics)
}

async fn names_become(store: &InformerStore<Node>, names: &[&str]) {
    let limit = tokio::time::Instant::now() + Duration::from_secs(600);
    while store.keys().iter().map(|key| key.name.as_str()).collect::<Vec<_>>() != names {
        assert!(tokio::time::Instant::now() < limit, "the store has {:?}, not {names:?}", store.keys());
        tokio::time::advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_survives_what_happens_to_watches() {
    let (server, shutdown) = (server(), Shutdown::new());
    server.create(&node("a"));
    let (store, metrics) = informed(&server, &shutdown);
    store.synced().await;
    server.create(&node("b"));
    names_become(&store, &["a", "b"]).await;

    server.faults().drop_watches();
    server.create(&node("c"));
    names_become(&store, &["a", "b", "c"]).await;

    server.delete::<Node>("", "a");
    server.faults().compact();
    names_become(&store, &["b", "c"]).await;

    assert!(server.faults().insert_malformed(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "bad"}, "spec": {"taints": "none"},
    })));
    server.create(&node("d"));
    names_become(&store, &["b", "c", "d"]).await;
    assert_eq!(metrics.informer_malformed_total.with_label_values(&["nodes"]).get(), 1.0);

    server.faults().fail_next(2, 500, on(Verb::List, "nodes"));
    server.faults().compact();
    server.create(&node("e"));
    names_become(&store, &["b", "c", "d", "e"]).await;
    shutdown.begin();
    assert!(shutdown.drain(Duration::from_secs(1)).await);
}

#[tokio::test(start_paused = true)]
async fn the_writer_patches_with_each_kind_of_patch() {
    let server = server();
    let created = server.create(&uninitialized_node("a"));
    let writer = ObjectWriter::new(server.client(), Leadership::unopposed());
    let api: Api<Node> = Api::all(server.client());
    let key = ObjectKey::cluster("a");
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"$patch": "replace"}]}});
    let node = writer.patch(&api, &key, PatchTarget::Status, PatchKind::Strategic, addresses).await.unwrap();
    assert_eq!(node.status.unwrap().addresses.unwrap().len(), 1);
    let version = created.metadata.resource_version.unwrap();
    let taints = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": null}});
    let stale = writer.patch(&api, &key, PatchTarget::Object, PatchKind::Merge, taints).await;
    assert_eq!(stale.map(|_| ()), Err(ApiError::Conflict("a".into())));
    let deleted = writer.delete(&api, &key, "another").await;
    assert_eq!(deleted, Err(ApiError::Conflict("a".into())));
    assert_eq!(writer.delete(&api, &key, &created.metadata.uid.unwrap()).await, Ok(()));
    assert_eq!(writer.get(&api, &key).await.map(|_| ()), Err(ApiError::NotFound("a".into())));
}

#[tokio::test(start_paused = true)]
async fn typed_calls_keep_status_and_unknown_fields() {
    let server = server();
    let created = server.create(&node("a").address("InternalIP", "10.0.0.1").pod_cidrs(&["10.1.0.0/24"]));
    assert_eq!(created.status.unwrap().addresses.unwrap().len(), 2);
    server.faults().insert_malformed(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b"}, "spec": {"fromTheFuture": 1}}),
    );
    server.update_with::<Node>("", "b", |node| *node = node.clone().cordoned().ready("False"));
    let request = Request::get("/api/v1/nodes/b").body(Bytes::new()).unwrap();
    let body = server.respond(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let value: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(value["spec"], json!({"fromTheFuture": 1, "unschedulable": true}));
    assert_eq!(value["status"]["conditions"][0]["status"], "False");
    let service = server.create(&load_balancer_service("shop", "web"));
    assert!(service.metadata.uid.is_some());
    assert_eq!(server.list::<Service>().len(), 1);
}

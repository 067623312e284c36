use std::time::Duration;

use futures::{AsyncBufReadExt, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::*;
use crate::{
    metrics::Metrics,
    runtime::{informer::Informer, shutdown::Shutdown},
    sandbox::objects::{ObjectExt, node},
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
async fn a_watch_resumes_filters_and_expires() {
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
    let streamed = "/api/v1/nodes?watch=true&timeoutSeconds=90&allowWatchBookmarks=true&sendInitialEvents=true\
                    &resourceVersionMatch=NotOlderThan";
    assert_eq!(summary(&lines(&server, streamed).await), ["ADDED a", "BOOKMARK -", "BOOKMARK -"]);
    server.faults().compact();
    let expired = lines(&server, &from("")).await;
    assert_eq!((&expired[0]["type"], &expired[0]["object"]["code"], expired.len()), (&json!("ERROR"), &json!(410), 1));
}

#[tokio::test(start_paused = true)]
async fn an_apply_creates_in_a_namespace_that_exists() {
    let server = server();
    for (namespace, exists) in [("default", true), ("nowhere", false)] {
        let api: Api<ConfigMap> = Api::namespaced(server.client(), namespace);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
        let applied = api.patch("c", &PatchParams::apply("test"), &Patch::Apply(map)).await;
        assert_eq!(applied.is_ok(), exists, "{namespace}: {applied:?}");
    }
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

#[tokio::test(start_paused = true)]
async fn an_informer_passes_over_a_malformed_object() {
    let (server, shutdown, metrics) = (server(), Shutdown::new(), Arc::new(Metrics::new().unwrap()));
    let informer = Informer::<Node>::new(|_| ());
    let store = informer.store();
    informer.start(server.client(), &shutdown, Arc::clone(&metrics));
    store.synced().await;
    assert!(server.faults().insert_malformed(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "bad"}, "spec": {"taints": "none"},
    })));
    server.create(&node("good"));
    let arrived = async {
        while store.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), arrived).await.unwrap();
    assert_eq!(store.keys(), [ObjectKey::cluster("good")]);
    assert_eq!(metrics.informer_malformed_total.with_label_values(&["nodes"]).get(), 1.0);
    shutdown.begin();
    assert!(shutdown.drain(Duration::from_secs(1)).await);
}

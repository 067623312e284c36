#![cfg(feature = "sandbox")]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{super::store::WatchStatus, *};
use crate::sandbox::{api_server::ApiServer, faults::on, http::Verb};

fn nodes(version: &str, items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": version}, "items": items})
}

type ResponseBody = UnsyncBoxBody<Bytes, std::io::Error>;

fn response_with(code: u16, body: ResponseBody) -> Response<ResponseBody> {
    Response::builder().status(code).body(body).unwrap()
}

fn text(text: &str) -> ResponseBody {
    Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(|never| match never {}).boxed_unsync()
}

/// Body of a watch that is accepted and sends nothing.
fn silence() -> ResponseBody {
    StreamBody::new(futures::stream::pending()).boxed_unsync()
}

/// Returns a server with these Nodes.
fn server(names: &[&str]) -> ApiServer {
    let server = ApiServer::new(Clock::System);
    for name in names {
        let node = json!({"metadata": {"name": name, "labels": {"tier": "gold"}}});
        server.create::<Node>(&serde_json::from_value(node).unwrap());
    }
    server
}

fn count(server: &ApiServer, verb: Verb) -> usize {
    server.requests().iter().filter(|request| request.verb == verb).count()
}

fn metrics() -> Arc<Metrics> {
    Arc::new(Metrics::new().unwrap())
}

async fn until(condition_name: &str, condition: impl Fn() -> bool) {
    for _ in 0..600 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{condition_name}: not within a minute");
}

#[tokio::test(start_paused = true)]
async fn an_accepted_watch_clears_the_error_without_a_change() {
    let server = server(&["n"]);
    server.faults().fail_next(2, 503, on(Verb::Watch, "nodes"));
    let informer = Informer::<Node>::new(|_| {});
    let (store, shutdown) = (informer.store(), Shutdown::new());
    informer.start(server.client(), &shutdown, metrics());
    until("the refusal is reported", || store.status().error.is_some()).await;
    until("the third watch", || count(&server, Verb::Watch) == 3).await;
    until("the error is cleared", || store.status() == WatchStatus { synced: true, ..WatchStatus::default() }).await;
    assert_eq!(count(&server, Verb::List), 1, "a failed watch does not cause another list");
    shutdown.begin();
}

#[tokio::test(start_paused = true)]
async fn a_relist_adds_newly_read_fields_of_unchanged_versions() {
    let server = server(&["n"]);
    let interest = Arc::new(AtomicUsize::new(0));
    let interested = Arc::clone(&interest);
    let informer = Informer::<Node>::new(move |node: &mut Node| {
        if interested.load(SeqCst) == 0 {
            node.metadata.labels = None;
        }
    });
    let (store, shutdown) = (informer.store(), Shutdown::new());
    informer.start(server.client(), &shutdown, metrics());
    store.synced().await;
    let labels = || store.get(&ObjectKey::cluster("n")).unwrap().metadata.labels.clone().unwrap_or_default().len();
    assert_eq!((labels(), count(&server, Verb::List)), (0, 1));
    interest.store(1, SeqCst);
    store.wait_for_relist(store.request_relist()).await;
    assert_eq!((labels(), count(&server, Verb::List)), (1, 2));
    store.wait_for_relist(store.request_relist()).await;
    assert_eq!((labels(), count(&server, Verb::List)), (1, 3));
    shutdown.begin();
}

#[tokio::test(start_paused = true)]
async fn a_panicking_handler_stops_no_other_handler() {
    let server = server(&["bad", "good"]);
    let mut informer = Informer::<Node>::new(|_| {});
    let (sender, mut received) = mpsc::unbounded_channel();
    informer.subscribe(|change| assert_ne!(change.object().metadata.name.as_deref(), Some("bad")));
    informer.subscribe(move |change| sender.send(change.object().metadata.name.clone().unwrap()).unwrap());
    let (store, shutdown) = (informer.store(), Shutdown::new());
    informer.start(server.client(), &shutdown, metrics());
    store.synced().await;
    let mut names = [received.recv().await.unwrap(), received.recv().await.unwrap()];
    names.sort();
    assert_eq!(names, ["bad", "good"]);
    shutdown.begin();
}

#[tokio::test(start_paused = true)]
async fn consecutive_expired_versions_cause_growing_delays() {
    let (mut series, mut now) = (RelistBackoff::default(), Instant::now());
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let pause = series.next_pause(now);
        pauses.push(pause.as_millis());
        now += pause;
        series.reset_if_steady(now);
    }
    assert_eq!(pauses, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000]);
    assert_eq!(series.next_pause(now + BACKOFF_RESET_GAP), RELIST_PAUSE.first, "a failure much later starts another series");
    assert_eq!(series.next_pause(now + BACKOFF_RESET_GAP), RELIST_PAUSE.first * 2);
    series.reset_if_steady(now + BACKOFF_RESET_GAP + RELIST_PAUSE.first * 2 + STEADY_WATCH);
    assert_eq!(series.next_pause(now + BACKOFF_RESET_GAP), RELIST_PAUSE.first, "a change proves that the watch works");
}

fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().unwrap_or_default().contains("watch=true")
}

#[tokio::test(start_paused = true)]
async fn rejected_lists_are_retried_with_backoff() {
    let server = server(&[]);
    server.faults().fail_next(10, 503, on(Verb::List, "nodes"));
    let informer = Informer::<Node>::new(|_| {});
    let (store, shutdown, started) = (informer.store(), Shutdown::new(), Instant::now());
    informer.start(server.client(), &shutdown, metrics());
    store.synced().await;
    let seconds = started.elapsed().as_secs();
    assert!((60..=180).contains(&seconds), "ten refusals took {seconds} s");
    shutdown.begin();
}

/// Each page has one object and takes 20 s. The first two lists fail after three pages; later lists have five pages.
#[tokio::test(start_paused = true)]
async fn new_pages_are_progress_and_repeated_pages_are_not() {
    let lists = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let page = query.split('&').find_map(|pair| pair.strip_prefix("continue=")?.parse().ok()).unwrap_or(0_usize);
        let list = if page == 0 { lists.fetch_add(1, SeqCst) } else { lists.load(SeqCst) - 1 };
        let mut items = nodes("7", &[json!({"metadata": {"name": format!("n{page}"), "resourceVersion": "1"}})]);
        items["metadata"]["continue"] = if page == 4 { json!("") } else { json!((page + 1).to_string()) };
        let response = match page {
            _ if is_watch(&request) => response_with(200, silence()),
            3 if list < 2 => response_with(503, text("down")),
            _ => response_with(200, text(&items.to_string())),
        };
        async move {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok::<_, std::io::Error>(response)
        }
    });
    let informer = Informer::<Node>::new(|_| {});
    let (store, shutdown, started) = (informer.store(), Shutdown::new(), Instant::now());
    informer.start(kube::Client::new(service, "default"), &shutdown, metrics());
    let mut progress = Vec::new();
    while !store.status().synced {
        progress.extend(store.status().progressed.map(|at| at.duration_since(started).as_secs()));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    progress.dedup();
    // Two lists fail after three pages each. The third list has five pages, the last of which completes it.
    assert_eq!(progress.len(), 4, "{progress:?}");
    assert_eq!(progress[..3], [20, 40, 60]);
    assert!(progress[3] >= 240, "repeated pages are not progress: {progress:?}");
    until("a watch is accepted", || store.status().progressed.is_none()).await;
    shutdown.begin();
}

/// Without pings, watches are short and often repeated. That is not an error if the server ends them as requested.
#[tokio::test(start_paused = true)]
async fn a_quiet_watch_without_pings_causes_no_error() {
    let (watches, (sender, mut queries)) = (Arc::new(AtomicUsize::new(0)), mpsc::unbounded_channel());
    let watched = Arc::clone(&watches);
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let limit = query.split('&').find_map(|pair| pair.strip_prefix("timeoutSeconds=")?.parse().ok());
        let body = if is_watch(&request) {
            watched.fetch_add(1, SeqCst);
            sender.send(query.to_owned()).unwrap();
            let end = futures::stream::once(tokio::time::sleep(Duration::from_secs(limit.unwrap())));
            StreamBody::new(end.filter_map(|()| async { None })).boxed_unsync()
        } else {
            text(&nodes("7", &[]).to_string())
        };
        std::future::ready(Ok::<_, std::io::Error>(response_with(200, body)))
    });
    let informer = Informer::<Node>::new(|_| {});
    let (store, shutdown, metrics) = (informer.store(), Shutdown::new(), metrics());
    informer.start(kube::Client::new(service, "default"), &shutdown, Arc::clone(&metrics));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(store.status(), WatchStatus { synced: true, ..WatchStatus::default() });
    assert!((17..=18).contains(&watches.load(SeqCst)), "{} watches", watches.load(SeqCst));
    assert_eq!(metrics.informer_restarts_total.with_label_values(&["nodes", "silence"]).get(), 0.0);
    let query = queries.recv().await.unwrap();
    assert!(query.contains("timeoutSeconds=35") && query.contains("allowWatchBookmarks=true"), "{query}");
    shutdown.begin();
}

/// A server that begins its second list at version 120, whatever it sent before. Counts its lists.
fn restored(before: &'static [&str], after: &'static [&str], watched: (u16, Value)) -> (kube::Client, Arc<AtomicUsize>) {
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    let listed = |version: &str, names: &[&str]| {
        let item = |name: &&str| json!({"metadata": {"name": name, "labels": {"list": version}, "resourceVersion": "110"}});
        nodes(version, &names.iter().map(item).collect::<Vec<_>>()).to_string()
    };
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, body) = &watched;
        let line = Frame::data(Bytes::from(format!("{body}\n")));
        let response = match (is_watch(&request), counted.load(SeqCst)) {
            (true, 1) if *code == 200 => {
                let line = futures::stream::once(std::future::ready(Ok::<_, std::io::Error>(line)));
                response_with(200, StreamBody::new(line.chain(futures::stream::pending())).boxed_unsync())
            }
            (true, 1) => response_with(*code, text(&body.to_string())),
            (true, _) => response_with(200, silence()),
            (false, 0) => response_with(200, text(&listed("500", before))),
            (false, _) => response_with(200, text(&listed("120", after))),
        };
        counted.fetch_add(usize::from(!is_watch(&request)), SeqCst);
        std::future::ready(Ok::<_, std::io::Error>(response))
    });
    (kube::Client::new(service, "default"), lists)
}

fn event(kind: &str, version: &str) -> (u16, Value) {
    let object =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "lost", "resourceVersion": version}, "spec": {}});
    (200, json!({"type": kind, "object": object}))
}

fn refusal(code: u16, cause: &str) -> (u16, Value) {
    let details = json!({"causes": [{"reason": cause, "message": "Too large resource version"}], "retryAfterSeconds": 1});
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Timeout",
        "message": "Timeout: Too large resource version: 500, current: 120", "details": details, "code": code});
    (code, status)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_went_back_is_listed_again() {
    let (_, too_large) = refusal(504, "ResourceVersionTooLarge");
    for (watched, lists) in [
        (event("BOOKMARK", "119"), 2),
        (event("MODIFIED", "119"), 2),
        (event("DELETED", "119"), 2),
        (refusal(504, "ResourceVersionTooLarge"), 2),
        ((200, json!({"type": "ERROR", "object": too_large})), 2),
        (event("BOOKMARK", "500"), 1),
        (event("MODIFIED", "501"), 1),
        (refusal(504, "Other"), 1),
    ] {
        let about = format!("{watched:?}");
        let (client, listed) = restored(&["lost"], &["new"], watched);
        let informer = Informer::<Node>::new(|_| {});
        let (store, shutdown) = (informer.store(), Shutdown::new());
        informer.start(client, &shutdown, metrics());
        store.synced().await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let name = if lists == 2 { "new" } else { "lost" };
        assert_eq!((listed.load(SeqCst), store.keys()), (lists, vec![ObjectKey::cluster(name)]), "{about}");
        assert!(store.proves_absence(), "{about}");
        shutdown.begin();
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_used_again_is_a_change() {
    let (client, _) = restored(&["n", "gone"], &["n"], refusal(410, "Expired"));
    let mut informer = Informer::<Node>::new(|_| {});
    let (changes, mut changed) = mpsc::unbounded_channel();
    informer.subscribe(move |change| changes.send(change.clone()).unwrap());
    let (store, shutdown) = (informer.store(), Shutdown::new());
    informer.start(client, &shutdown, metrics());
    store.synced().await;
    until("another list", || store.len() == 1).await;
    let kinds: Vec<_> = std::iter::from_fn(|| changed.try_recv().ok())
        .map(|change| match change {
            ObjectChange::Added(_) => "added",
            ObjectChange::Updated { .. } => "updated",
            ObjectChange::Deleted(_) => "deleted",
        })
        .collect();
    assert_eq!(kinds, ["added", "added", "deleted", "updated"]);
    assert_eq!(store.get(&ObjectKey::cluster("n")).unwrap().metadata.labels.as_ref().unwrap()["list"], "120");
    shutdown.begin();
}

#[tokio::test(start_paused = true)]
async fn absence_is_not_proven_before_a_requested_list_has_ended() {
    let server = server(&["n"]);
    let informer = Informer::<Node>::new(|_| {});
    let (store, shutdown) = (informer.store(), Shutdown::new());
    informer.start(server.client(), &shutdown, metrics());
    store.synced().await;
    assert!(store.proves_absence());
    server.faults().fail_next(2, 503, on(Verb::List, "nodes"));
    store.request_relist();
    server.clear_requests();
    assert!(!store.proves_absence());
    until("two lists fail", || count(&server, Verb::List) == 2).await;
    assert!(!store.proves_absence());
    until("a list ends", || store.proves_absence()).await;
    assert_eq!(count(&server, Verb::List), 3);
    shutdown.begin();
}

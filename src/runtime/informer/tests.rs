use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{super::store::WatchStatus, *};

fn nodes(version: &str, items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": version}, "items": items})
}

type Answer = UnsyncBoxBody<Bytes, std::io::Error>;

fn answer(code: u16, body: Answer) -> Response<Answer> {
    Response::builder().status(code).body(body).unwrap()
}

fn text(text: &str) -> Answer {
    Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(|never| match never {}).boxed_unsync()
}

/// A watch that is accepted and stays silent.
fn silence() -> Answer {
    StreamBody::new(futures::stream::pending()).boxed_unsync()
}

struct Server {
    lists: Arc<AtomicUsize>,
    watches: Arc<AtomicUsize>,
    client: kube::Client,
}

/// Lists `items`; refuses the first `refused` watches, then keeps silent.
fn server(items: Vec<Value>, refused: usize) -> Server {
    let (lists, watches) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (listed, watched) = (Arc::clone(&lists), Arc::clone(&watches));
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
        let response = if !is_watch {
            listed.fetch_add(1, SeqCst);
            answer(200, text(&nodes("7", &items).to_string()))
        } else if watched.fetch_add(1, SeqCst) < refused {
            answer(503, text("down"))
        } else {
            answer(200, silence())
        };
        async move { Ok::<_, std::io::Error>(response) }
    });
    Server { lists, watches, client: kube::Client::new(service, "default") }
}

fn metrics() -> Arc<Metrics> {
    Arc::new(Metrics::new().unwrap())
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..600 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what}: not within a minute");
}

#[tokio::test(start_paused = true)]
async fn an_error_is_over_as_soon_as_a_watch_is_accepted_though_nothing_changes() {
    let server = server(vec![json!({"metadata": {"name": "n", "resourceVersion": "1"}})], 2);
    let informer = Informer::<Node>::new(|_| {});
    let (store, shutdown) = (informer.store(), Shutdown::new());
    informer.start(server.client.clone(), &shutdown, metrics());
    until("the refusal is told", || store.status().error.is_some()).await;
    until("the third watch", || server.watches.load(SeqCst) == 3).await;
    until("the error is gone", || store.status() == WatchStatus { synced: true, ..WatchStatus::default() }).await;
    assert_eq!(server.lists.load(SeqCst), 1, "a watch that fails is no reason to list again");
    shutdown.begin();
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_ends_neither_the_informer_nor_other_handlers() {
    let items = ["bad", "good"].map(|name| json!({"metadata": {"name": name, "resourceVersion": "1"}}));
    let server = server(items.to_vec(), 0);
    let mut informer = Informer::<Node>::new(|_| {});
    let (told, mut heard) = mpsc::unbounded_channel();
    informer.subscribe(|change| assert_ne!(change.object().metadata.name.as_deref(), Some("bad")));
    informer.subscribe(move |change| told.send(change.object().metadata.name.clone().unwrap()).unwrap());
    let (store, shutdown) = (informer.store(), Shutdown::new());
    informer.start(server.client, &shutdown, metrics());
    store.synced().await;
    let mut names = [heard.recv().await.unwrap(), heard.recv().await.unwrap()];
    names.sort();
    assert_eq!(names, ["bad", "good"]);
    shutdown.begin();
}

#[test]
fn managed_fields_are_dropped_before_an_object_is_built_and_a_bad_object_keeps_its_name() {
    let node = json!({"metadata": {"name": "n", "managedFields": [{"manager": "kubelet"}]}});
    let checked: Checked<Node> = serde_json::from_value(node).unwrap();
    assert_eq!(checked.object.unwrap().metadata.managed_fields, None);
    let bad: Checked<Node> = serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": 7})).unwrap();
    assert_eq!((bad.meta().name.as_deref(), bad.object.is_err()), (Some("n"), true));
}

#[tokio::test(start_paused = true)]
async fn a_series_of_expired_versions_is_answered_with_growing_pauses() {
    let (mut series, mut now) = (Series::default(), Instant::now());
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let pause = series.next(now);
        pauses.push(pause.as_secs());
        now += pause;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    assert_eq!(series.next(now + SERIES_GAP + LONGEST_RELIST_PAUSE).as_secs(), 1, "much later it is another series");
}

use std::{convert::Infallible, sync::Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::client::Body;
use serde_json::Value;

use super::*;
use crate::runtime::events::{EventRecorder, EventType};

/// Answers each request with the next of `answers` (then 200) and keeps what was sent. 0: the connection breaks.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<Vec<u16>>>,
    requests: Arc<Mutex<Vec<(Method, String, Value)>>>,
}

impl Server {
    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        kube::Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, std::io::Error> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let body: Value = serde_json::from_slice(&request.into_body().collect().await.unwrap().to_bytes()).unwrap();
        self.requests.lock().unwrap().push((method, path, body));
        let code = self.answers.lock().unwrap().pop().unwrap_or(200);
        if code == 0 {
            return Err(std::io::Error::other("broken"));
        }
        let failure = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
            "message": "refused", "reason": "Refused" });
        let stored = json!({ "kind": "Event", "apiVersion": "v1", "metadata": {}, "involvedObject": {} });
        let body = if code == 200 { stored } else { failure };
        let mut response = Response::new(Body::from(body.to_string().into_bytes()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        Ok(response)
    }

    fn sent(&self) -> Vec<(Method, i64)> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|(method, _, body)| (method.clone(), body["count"].as_i64().unwrap())).collect()
    }
}

struct Running {
    recorder: EventRecorder,
    metrics: Arc<Metrics>,
    stop: Shutdown,
}

fn start(server: &Server) -> Running {
    let (recorder, events) = EventRecorder::channel("tester");
    let (metrics, stop) = (Arc::new(Metrics::new().unwrap()), Shutdown::new());
    let clock = Clock::manual(Timestamp::from_second(1_700_000_000).unwrap());
    start_sink(events, server.client(), clock, Arc::clone(&metrics), &stop);
    Running { recorder, metrics, stop }
}

impl Running {
    fn record(&self, message: &str) {
        let about =
            ObjectReference { name: Some("web".into()), namespace: Some("shop".into()), ..ObjectReference::default() };
        let event = RecordedEvent { about, type_: EventType::Warning, reason: "Tested", message: message.into() };
        self.recorder.record(event);
    }
    fn discarded(&self, why: &str) -> f64 {
        self.metrics.events_discarded_total.with_label_values(&[why]).get()
    }
}

#[tokio::test(start_paused = true)]
async fn repeats_are_patched_and_a_vanished_event_is_created_again() {
    let server = Server::default();
    let sink = start(&server);
    *server.answers.lock().unwrap() = vec![200, 404, 200];
    sink.record("hello");
    sink.record("hello");
    sink.stop.begin();
    assert!(sink.stop.drain(Duration::from_secs(2)).await);
    assert_eq!(server.sent(), [(Method::POST, 1), (Method::PATCH, 2), (Method::POST, 2)]);
    let requests = server.requests.lock().unwrap();
    assert_eq!(requests[0].1, "/api/v1/namespaces/shop/events");
    assert!(requests[1].1.starts_with("/api/v1/namespaces/shop/events/web."));
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_is_tried_twelve_times_and_a_refusal_once() {
    let server = Server::default();
    *server.answers.lock().unwrap() = vec![0; 12];
    let sink = start(&server);
    sink.record("lost");
    sleep(Duration::from_secs(111)).await;
    assert_eq!((server.sent().len(), sink.discarded("unreachable")), (12, 1.0));
    *server.answers.lock().unwrap() = vec![403];
    sink.record("forbidden");
    sleep(Duration::from_secs(1)).await;
    assert_eq!((server.sent().len(), sink.discarded("refused")), (13, 1.0));
    sink.record("forbidden");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.sent().last(), Some(&(Method::POST, 1)), "an event that was never written is new again");
}

#[tokio::test(start_paused = true)]
async fn spam_is_counted_and_not_sent() {
    let server = Server::default();
    let sink = start(&server);
    for _ in 0..30 {
        sink.record("hello");
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!((server.sent().len(), sink.discarded("spam")), (25, 5.0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_silent_server() {
    let (recorder, events) = EventRecorder::channel("tester");
    let silent = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let (metrics, stop) = (Arc::new(Metrics::new().unwrap()), Shutdown::new());
    let sink = Running { recorder, metrics: Arc::clone(&metrics), stop };
    sink.record("hello");
    start_sink(events, kube::Client::new(silent, "default"), Clock::System, metrics, &sink.stop);
    sleep(Duration::from_secs(5)).await;
    sink.stop.begin();
    assert!(sink.stop.drain(Duration::from_millis(1500)).await);
}

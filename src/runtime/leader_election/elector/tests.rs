use std::{
    convert::Infallible,
    sync::{Mutex, atomic::AtomicU64, atomic::Ordering::SeqCst},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use jiff::Timestamp;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;

/// An API server that knows one Lease.
#[derive(Clone)]
struct Server {
    lease: watch::Sender<Option<Value>>,
    version: Arc<AtomicU64>,
    /// Requests in order, as "METHOD".
    log: Arc<Mutex<Vec<&'static str>>>,
    /// What to do instead of answering.
    fault: watch::Sender<Fault>,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Hang,
    RefuseWrites,
    ForbidWatch,
}

impl Server {
    fn new() -> Self {
        let (lease, version) = (watch::Sender::new(None), Arc::default());
        Self { lease, version, log: Arc::default(), fault: watch::Sender::new(Fault::None) }
    }

    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.handle(request).await) }
        });
        kube::Client::new(service, "default")
    }

    async fn handle(&self, request: Request<Body>) -> Response<Answer> {
        let watching = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let (method, fault) = (request.method().clone(), *self.fault.borrow());
        let body = request.into_body().collect().await.unwrap().to_bytes();
        if !watching {
            self.log.lock().unwrap().push(if method == Method::GET { "GET" } else { "WRITE" });
        }
        match fault {
            Fault::Hang if !watching => std::future::pending().await,
            Fault::RefuseWrites if method != Method::GET => return status(StatusCode::INTERNAL_SERVER_ERROR),
            Fault::ForbidWatch if watching => return status(StatusCode::FORBIDDEN),
            _ => {}
        }
        match method {
            Method::GET if watching => self.watch(),
            Method::GET => match self.lease.borrow().clone() {
                Some(lease) => answer(StatusCode::OK, &lease),
                None => status(StatusCode::NOT_FOUND),
            },
            Method::POST | Method::PUT => self.write(serde_json::from_slice(&body).unwrap()),
            _ => status(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    fn write(&self, mut lease: Value) -> Response<Answer> {
        let current = self.lease.borrow().as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        if current.unwrap_or_default() != lease["metadata"]["resourceVersion"] {
            return status(StatusCode::CONFLICT);
        }
        lease["metadata"]["resourceVersion"] = json!(self.version.fetch_add(1, SeqCst).to_string());
        lease["metadata"]["uid"] = json!("lease-uid");
        self.lease.send_replace(Some(lease.clone()));
        answer(StatusCode::OK, &lease)
    }

    fn watch(&self) -> Response<Answer> {
        let mut lease = self.lease.subscribe();
        lease.mark_changed();
        let lines = futures::stream::unfold(lease, |mut lease| async move {
            loop {
                lease.changed().await.ok()?;
                let current = lease.borrow_and_update().clone();
                if let Some(object) = current {
                    let line = format!("{}\n", json!({ "type": "MODIFIED", "object": object }));
                    return Some((Ok::<_, Infallible>(Frame::data(Bytes::from(line))), lease));
                }
            }
        });
        Response::new(StreamBody::new(lines).boxed_unsync())
    }

    fn holder(&self) -> Option<String> {
        self.lease.borrow().as_ref().map(|lease| lease["spec"]["holderIdentity"].as_str().unwrap().to_owned())
    }

    fn edit(&self, change: impl FnOnce(&mut Value)) {
        let version = self.version.fetch_add(1, SeqCst).to_string();
        self.lease.send_modify(|lease| {
            let lease = lease.as_mut().unwrap();
            lease["metadata"]["resourceVersion"] = json!(version);
            change(lease);
        });
    }
}

type Answer = UnsyncBoxBody<Bytes, Infallible>;

fn answer(code: StatusCode, body: &Value) -> Response<Answer> {
    let mut response = Response::new(Full::from(body.to_string()).boxed_unsync());
    *response.status_mut() = code;
    response
}

fn status(code: StatusCode) -> Response<Answer> {
    let body = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code.as_u16(),
        "message": "refused", "reason": code.canonical_reason().unwrap_or_default().replace(" ", "") });
    answer(code, &body)
}

struct Replica {
    leadership: Leadership,
    health: LeaderElectionHealth,
    events: mpsc::Receiver<(&'static str, RecordedEvent)>,
    metrics: Arc<Metrics>,
    stop: Shutdown,
    task: tokio::task::JoinHandle<ElectionOutcome>,
}

fn start(server: &Server, identity: &str) -> Replica {
    let (events, received) = EventRecorder::channel("cloud-controller-manager");
    let metrics = Arc::new(Metrics::new().unwrap());
    let config = config(identity);
    let clock = Clock::manual(Timestamp::from_second(1_700_000_000).unwrap());
    let (elector, leadership) = LeaderElector::new(server.client(), config, clock, events, Arc::clone(&metrics));
    let (health, stop) = (elector.health(), Shutdown::new());
    let task = tokio::spawn(elector.run(stop.clone()));
    Replica { leadership, health, events: received, metrics, stop, task }
}

fn config(identity: &str) -> ElectorConfig {
    ElectorConfig {
        namespace: "kube-system".into(),
        name: "ccm".into(),
        identity: identity.into(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

impl Replica {
    fn message(&mut self) -> String {
        let (component, event) = self.events.try_recv().unwrap();
        assert_eq!(
            (component, event.reason, event.type_),
            ("cloud-controller-manager", "LeaderElection", EventType::Normal)
        );
        assert_eq!(event.about.kind.as_deref(), Some("Lease"));
        assert_eq!(event.about.uid.as_deref(), Some("lease-uid"));
        event.message
    }
    fn master(&self) -> f64 {
        self.metrics.leader_election_master_status.with_label_values(&["ccm"]).get()
    }
    fn slow(&self) -> f64 {
        self.metrics.leader_election_slowpath_total.with_label_values(&["ccm"]).get()
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_creates_the_lease_and_renews_without_reading() {
    let server = Server::new();
    let mut replica = start(&server, "a");
    replica.leadership.acquired().await;
    assert_eq!(replica.master(), 1.0);
    assert_eq!(replica.message(), "a became leader");
    sleep(Duration::from_secs(60)).await;
    assert!(replica.leadership.is_leading());
    assert_eq!(server.log.lock().unwrap().iter().filter(|method| **method == "GET").count(), 1);
    assert!(server.log.lock().unwrap().len() > 25);
    assert_eq!(replica.slow(), 0.0);
    replica.health.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_hands_over_within_a_second() {
    let server = Server::new();
    let mut first = start(&server, "a");
    first.leadership.acquired().await;
    let mut second = start(&server, "b");
    sleep(Duration::from_secs(30)).await;
    assert!(first.leadership.is_leading() && !second.leadership.is_leading());

    let before = Instant::now();
    first.stop.begin();
    second.leadership.acquired().await;
    assert!(before.elapsed() < Duration::from_secs(1), "took {:?}", before.elapsed());
    assert_eq!(first.task.await.unwrap(), ElectionOutcome::Released);
    assert!(!first.leadership.is_leading());
    let events = (first.events.recv().await.unwrap().1.message, first.events.recv().await.unwrap().1.message);
    assert_eq!(events, ("a became leader".to_owned(), "a stopped leading".to_owned()));
    assert_eq!(second.message(), "b became leader");
    assert_eq!(server.lease.borrow().as_ref().unwrap()["spec"]["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn without_watch_permission_polling_hands_over() {
    let server = Server::new();
    server.fault.send_replace(Fault::ForbidWatch);
    let first = start(&server, "a");
    first.leadership.acquired().await;
    let second = start(&server, "b");
    sleep(Duration::from_secs(30)).await;
    let before = Instant::now();
    first.stop.begin();
    second.leadership.acquired().await;
    assert!(before.elapsed() < Duration::from_millis(4500), "took {:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_gets_no_answer_stops_writing_before_its_deadline_passes() {
    let server = Server::new();
    let mut replica = start(&server, "a");
    replica.leadership.acquired().await;
    let acquired = Instant::now();
    server.fault.send_replace(Fault::Hang);
    assert_eq!((&mut replica.task).await.unwrap(), ElectionOutcome::Lost);
    assert_eq!(acquired.elapsed().as_secs(), 10);
    assert!(!replica.leadership.is_leading());
    assert_eq!(replica.master(), 0.0);
    assert_eq!((replica.message(), replica.message()), ("a became leader".into(), "a stopped leading".into()));
}

#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_deadline_is_survived() {
    let server = Server::new();
    let replica = start(&server, "a");
    replica.leadership.acquired().await;
    server.fault.send_replace(Fault::RefuseWrites);
    sleep(Duration::from_secs(7)).await;
    assert!(replica.leadership.is_leading());
    server.fault.send_replace(Fault::None);
    sleep(Duration::from_secs(60)).await;
    assert!(replica.leadership.is_leading());
    assert!(replica.slow() >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_crashed_leader_is_followed_after_its_lease_and_not_before() {
    let server = Server::new();
    let first = start(&server, "a");
    first.leadership.acquired().await;
    let second = start(&server, "b");
    sleep(Duration::from_secs(9)).await;
    first.task.abort();
    let died = Instant::now();
    second.leadership.acquired().await;
    let silent = died.elapsed().as_secs_f64();
    // The standby counts the 15 s from when it saw the last renewal: at most 2 s before the death, at most a poll of 4.4 s after.
    assert!((13.0..19.5).contains(&silent), "took over after {silent} s");
    assert_eq!(server.holder().as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_sees_another_holder_stops_at_once() {
    let server = Server::new();
    let replica = start(&server, "a");
    replica.leadership.acquired().await;
    sleep(Duration::from_secs(5)).await;
    let edited = Instant::now();
    server.edit(|lease| lease["spec"]["holderIdentity"] = json!("usurper"));
    assert_eq!(replica.task.await.unwrap(), ElectionOutcome::Lost);
    assert!(edited.elapsed() < Duration::from_secs(1));
    assert_eq!(server.holder().as_deref(), Some("usurper"));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_change_of_metadata_costs_one_slow_renewal() {
    let server = Server::new();
    let replica = start(&server, "a");
    replica.leadership.acquired().await;
    server.edit(|lease| lease["metadata"]["labels"] = json!({ "team": "x" }));
    sleep(Duration::from_secs(20)).await;
    assert!(replica.leadership.is_leading());
    assert_eq!(replica.slow(), 1.0);
    assert_eq!(server.lease.borrow().as_ref().unwrap()["metadata"]["labels"]["team"], "x");
}

#[tokio::test(start_paused = true)]
async fn a_standby_stops_without_touching_the_lease() {
    let server = Server::new();
    let first = start(&server, "a");
    first.leadership.acquired().await;
    let mut second = start(&server, "b");
    sleep(Duration::from_secs(5)).await;
    second.stop.begin();
    assert_eq!((&mut second.task).await.unwrap(), ElectionOutcome::Stopped);
    assert_eq!(server.holder().as_deref(), Some("a"));
    assert!(second.events.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn releasing_survives_a_conflict() {
    let server = Server::new();
    let replica = start(&server, "a");
    replica.leadership.acquired().await;
    server.edit(|lease| lease["metadata"]["labels"] = json!({ "team": "x" }));
    replica.stop.begin();
    assert_eq!(replica.task.await.unwrap(), ElectionOutcome::Released);
    assert_eq!(server.holder().as_deref(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn health_fails_when_the_elector_hangs() {
    let server = Server::new();
    let replica = start(&server, "a");
    replica.leadership.acquired().await;
    replica.task.abort();
    sleep(Duration::from_secs(30)).await;
    replica.health.check().unwrap();
    sleep(Duration::from_secs(6)).await;
    assert!(replica.health.check().is_err());
    assert!(!replica.leadership.is_leading());
}

#[test]
fn impossible_times_are_refused() {
    config("a").validate().unwrap();
    let with = |lease: u64, renew: u64, retry: u64| {
        let (lease_duration, renew_deadline) = (Duration::from_secs(lease), Duration::from_secs(renew));
        let config =
            ElectorConfig { lease_duration, renew_deadline, retry_period: Duration::from_secs(retry), ..config("a") };
        config.validate().unwrap_err()
    };
    assert!(with(15, 15, 2).contains("--leader-elect-lease-duration"));
    assert!(with(15, 2, 2).contains("--leader-elect-renew-deadline"));
    assert!(with(15, 10, 0).contains("--leader-elect-retry-period"));
}

#[test]
fn identities_are_unique_and_start_with_the_hostname() {
    let hostname = gethostname::gethostname().to_string_lossy().into_owned();
    assert!(identity().starts_with(&format!("{hostname}_")));
    assert_ne!(identity(), identity());
}

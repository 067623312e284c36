#![cfg(feature = "sandbox")]

use jiff::Timestamp;
use tokio::sync::mpsc;

use super::*;
use crate::runtime::events::{EventType, RecordedEvent};
use crate::sandbox::{api_server::ApiServer, faults::on, http::Verb};

fn server() -> ApiServer {
    ApiServer::new(clock())
}

fn clock() -> Clock {
    Clock::manual(Timestamp::from_second(1_700_000_000).unwrap())
}

fn lease(server: &ApiServer) -> Lease {
    server.get("kube-system", "ccm").unwrap()
}

fn holder(server: &ApiServer) -> Option<String> {
    lease(server).spec.unwrap().holder_identity
}

fn edit(server: &ApiServer, change: impl FnOnce(&mut Lease)) {
    server.update_with("kube-system", "ccm", change);
}

fn label(lease: &mut Lease) {
    lease.metadata.labels = Some([("team".to_owned(), "x".to_owned())].into());
}

struct Replica {
    server: ApiServer,
    leadership: Leadership,
    health: LeaderElectionHealth,
    events: mpsc::Receiver<(&'static str, RecordedEvent)>,
    metrics: Arc<Metrics>,
    stop: Shutdown,
    task: tokio::task::JoinHandle<ElectionOutcome>,
}

fn start(server: &ApiServer, identity: &str) -> Replica {
    let (events, received) = EventRecorder::channel("cloud-controller-manager");
    let metrics = Arc::new(Metrics::new().unwrap());
    let (elector, leadership) = LeaderElector::new(server.client(), config(identity), clock(), events, Arc::clone(&metrics));
    let (health, stop) = (elector.health(), Shutdown::new());
    let task = tokio::spawn(elector.run(stop.clone()));
    Replica { server: server.clone(), leadership, health, events: received, metrics, stop, task }
}

/// A server, and the replica that leads.
async fn leader() -> (ApiServer, Replica) {
    let server = server();
    let replica = start(&server, "a");
    replica.leadership.acquired().await;
    (server, replica)
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
        assert_eq!(event.about.uid, lease(&self.server).metadata.uid);
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
    let (server, mut replica) = leader().await;
    assert_eq!(replica.master(), 1.0);
    assert_eq!(replica.message(), "a became leader");
    sleep(Duration::from_secs(60)).await;
    assert!(replica.leadership.is_leading());
    let requests = server.requests();
    assert_eq!(requests.iter().filter(|request| request.verb == Verb::Get).count(), 1);
    assert!(requests.iter().filter(|request| request.verb.is_write()).count() > 25);
    assert_eq!(replica.slow(), 0.0);
    replica.health.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_hands_over_within_a_second() {
    let (server, mut first) = leader().await;
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
    assert_eq!(lease(&server).spec.unwrap().lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn without_watch_permission_polling_hands_over() {
    let server = server();
    server.faults().fail_every(403, on(Verb::Watch, "leases"));
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
async fn a_leader_without_responses_stops_before_its_deadline() {
    let (server, mut replica) = leader().await;
    let acquired = Instant::now();
    server.faults().hang_every(|request| request.verb != Verb::Watch);
    assert_eq!((&mut replica.task).await.unwrap(), ElectionOutcome::Lost);
    assert_eq!(acquired.elapsed().as_secs(), 10);
    assert!(!replica.leadership.is_leading());
    assert_eq!(replica.master(), 0.0);
    assert_eq!((replica.message(), replica.message()), ("a became leader".into(), "a stopped leading".into()));
}

#[tokio::test(start_paused = true)]
async fn leadership_survives_an_outage_within_the_deadline() {
    let (server, replica) = leader().await;
    server.faults().fail_every(500, |request| request.verb.is_write());
    sleep(Duration::from_secs(7)).await;
    assert!(replica.leadership.is_leading());
    server.faults().clear();
    sleep(Duration::from_secs(60)).await;
    assert!(replica.leadership.is_leading());
    assert!(replica.slow() >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_crashed_leader_is_followed_after_its_lease_and_not_before() {
    let (server, first) = leader().await;
    let second = start(&server, "b");
    sleep(Duration::from_secs(9)).await;
    first.task.abort();
    let died = Instant::now();
    second.leadership.acquired().await;
    let silent = died.elapsed().as_secs_f64();
    // The standby counts 15 s from its observation of the last renewal: at most 2 s before the crash, or one poll of 4.4 s
    // after it.
    assert!((13.0..19.5).contains(&silent), "took over after {silent} s");
    assert_eq!(holder(&server).as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_sees_another_holder_stops_at_once() {
    let (server, replica) = leader().await;
    sleep(Duration::from_secs(5)).await;
    let edited = Instant::now();
    edit(&server, |lease| lease.spec.as_mut().unwrap().holder_identity = Some("usurper".into()));
    assert_eq!(replica.task.await.unwrap(), ElectionOutcome::Lost);
    assert!(edited.elapsed() < Duration::from_secs(1));
    assert_eq!(holder(&server).as_deref(), Some("usurper"));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_change_of_metadata_costs_one_slow_renewal() {
    let (server, replica) = leader().await;
    edit(&server, label);
    sleep(Duration::from_secs(20)).await;
    assert!(replica.leadership.is_leading());
    assert_eq!(replica.slow(), 1.0);
    assert_eq!(lease(&server).metadata.labels.unwrap()["team"], "x");
}

#[tokio::test(start_paused = true)]
async fn a_standby_stops_without_touching_the_lease() {
    let (server, _first) = leader().await;
    let mut second = start(&server, "b");
    sleep(Duration::from_secs(5)).await;
    second.stop.begin();
    assert_eq!((&mut second.task).await.unwrap(), ElectionOutcome::Stopped);
    assert_eq!(holder(&server).as_deref(), Some("a"));
    assert!(second.events.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn releasing_survives_a_conflict() {
    let (server, replica) = leader().await;
    edit(&server, label);
    replica.stop.begin();
    assert_eq!(replica.task.await.unwrap(), ElectionOutcome::Released);
    assert_eq!(holder(&server).as_deref(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn health_fails_when_the_elector_hangs() {
    let (_, replica) = leader().await;
    replica.task.abort();
    sleep(Duration::from_secs(30)).await;
    replica.health.check().unwrap();
    sleep(Duration::from_secs(6)).await;
    assert!(replica.health.check().is_err());
    assert!(!replica.leadership.is_leading());
}

#[test]
fn identities_are_unique_and_start_with_the_hostname() {
    assert!(identity().starts_with(&format!("{}_", host_name())));
    assert_ne!(identity(), identity());
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_sees_the_lease_go_back_ends_without_event() {
    let (server, _first) = leader().await;
    let backup = server.faults().backup();
    let mut second = start(&server, "b");
    sleep(Duration::from_secs(30)).await;
    server.faults().restore(&backup);
    assert_eq!((&mut second.task).await.unwrap(), ElectionOutcome::Lost);
    assert!(second.events.try_recv().is_err(), "it never led");
}

//! The whole manager with a faulty API server, on a paused clock: it detects a fault within 45 s and continues, or releases the Lease.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends where what it needs is missing")]

mod alerts;
mod clocks;
mod fleet;
mod partitions;
mod restores;
use crate::scraped;
use crate::seeds;
mod sweep;

use std::{sync::Arc, time::Duration};

use cloud_controller_manager::{
    app::manager::{self, ClientSource, ManagerOutcome, ManagerStartError},
    cloud_provider::CloudError,
    metrics::Metrics,
    providers::fake::{CallName, FakeCloud, FakeConfig},
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{
        api_server::{ApiServer, RequestRecord},
        faults::{Manner, on},
        http::Verb,
        objects::load_balancer_service,
    },
};
use fleet::NamedClients;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Service};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

/// Time limit for the detection of a fault.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(45);

fn clients(server: &ApiServer) -> Arc<dyn ClientSource> {
    Arc::new(NamedClients { server: server.clone(), replica: "replica".to_owned() })
}

/// Manager that takes part in the leader election.
struct Replica {
    stop: Shutdown,
    ended: JoinHandle<Result<ManagerOutcome, ManagerStartError>>,
    metrics: Arc<Metrics>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

fn clock() -> Clock {
    Clock::manual("2026-01-01T00:00:00Z".parse().unwrap())
}

fn start(server: &ApiServer) -> Replica {
    start_on(server, FakeCloud::new(FakeConfig::any_node()))
}

fn start_on(server: &ApiServer, cloud: FakeCloud) -> Replica {
    start_with(clients(server), cloud, Arc::new(Metrics::new().unwrap()), &[])
}

fn start_with(clients: Arc<dyn ClientSource>, cloud: FakeCloud, metrics: Arc<Metrics>, more: &[&str]) -> Replica {
    let flags = [&["--configure-cloud-routes=false"], more].concat();
    let parts = crate::manager_deps(&flags, clients, cloud, &metrics, clock());
    let stop = Shutdown::new();
    let until = stop.clone();
    let ended = tokio::spawn(async move { manager::run(parts, &until).await });
    Replica { stop, ended, metrics }
}

fn create_service(server: &ApiServer, name: &str) {
    server.create(&load_balancer_service("default", name));
}

fn is_served(server: &ApiServer, name: &str) -> bool {
    let ingress = server.get::<Service>("default", name).and_then(|service| service.status?.load_balancer?.ingress);
    ingress.is_some_and(|ingress| !ingress.is_empty())
}

/// Creates a Service, waits until it is served, and returns the elapsed time.
async fn serve(server: &ApiServer, name: &str) -> Duration {
    let started = Instant::now();
    create_service(server, name);
    let served = server.wait_until(|server| is_served(server, name));
    tokio::time::timeout(Duration::from_secs(3600), served).await.unwrap_or_else(|_| panic!("{name}: not within an hour"));
    started.elapsed()
}

fn holder(server: &ApiServer) -> Option<String> {
    let lease = server.get::<Lease>("kube-system", "cloud-controller-manager")?;
    lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

fn count(server: &ApiServer, matches: impl Fn(&RequestRecord) -> bool) -> usize {
    server.requests().iter().filter(|request| matches(request)).count()
}

/// Starts an API server and a manager, and waits until a first Service is served.
async fn settled() -> (ApiServer, Replica) {
    let server = ApiServer::new(clock());
    let replica = start(&server);
    serve(&server, "first").await;
    (server, replica)
}

#[tokio::test(start_paused = true)]
async fn a_hung_first_list_is_detected() {
    for resource in ["services", "nodes"] {
        let server = ApiServer::new(clock());
        server.faults().hang_next(1, on(Verb::List, resource));
        let replica = start(&server);
        let took = serve(&server, "web").await;
        assert!(took <= DETECTION_TIMEOUT, "{resource}: {took:?}");
        let errors = replica.metrics.informer_restarts_total.with_label_values(&[resource, "list"]);
        assert_eq!(errors.get(), 1.0, "{resource}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_or_trickling_list_is_aborted() {
    for (manner, limit) in
        [(Manner::Half, DETECTION_TIMEOUT), (Manner::Trickle(Duration::from_secs(1)), Duration::from_secs(95))]
    {
        let server = ApiServer::new(clock());
        server.faults().serve_next(1, manner, on(Verb::List, "services"));
        let _replica = start(&server);
        let took = serve(&server, "web").await;
        assert!(took <= limit, "{manner:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_start_of_a_watch_is_detected() {
    let server = ApiServer::new(clock());
    // The first watch, and the watch after the list of a new leader.
    server.faults().hang_next(2, on(Verb::Watch, "services"));
    let _replica = start(&server);
    server.wait_until(|server| count(server, on(Verb::Watch, "services")) > 0).await;
    let took = serve(&server, "web").await;
    assert!(took <= DETECTION_TIMEOUT, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_stalls_is_detected() {
    let (server, _replica) = settled().await;
    server.faults().stall_watches();
    let took = serve(&server, "second").await;
    assert!(took <= DETECTION_TIMEOUT, "{took:?}");
    // The next watch is silent from its start.
    server.faults().serve_next(1, Manner::Half, on(Verb::Watch, "services"));
    server.faults().drop_watches();
    let took = serve(&server, "third").await;
    assert!(took <= DETECTION_TIMEOUT, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn repeated_expired_versions_cause_few_lists() {
    for refused in [true, false] {
        let (server, _replica) = settled().await;
        server.clear_requests();
        if refused {
            server.faults().fail_next(8, 410, on(Verb::Watch, "services"));
        } else {
            server.faults().serve_next(8, Manner::Expired, on(Verb::Watch, "services"));
        }
        let started = Instant::now();
        server.faults().drop_watches();
        let watched = |server: &ApiServer| count(server, |it| on(Verb::Watch, "services")(it) && it.code == 200);
        let enough = if refused { 1 } else { 9 };
        server.wait_until(|server| watched(server) == enough).await;
        let (lists, took) = (count(&server, on(Verb::List, "services")), started.elapsed());
        assert!((8..=9).contains(&lists), "{lists} lists");
        assert!(took >= Duration::from_secs(60), "eight failures in a row must cause growing delays: {took:?}");
        assert!(serve(&server, "second").await <= DETECTION_TIMEOUT);
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_the_server_is_respected() {
    let server = ApiServer::new(clock());
    server.faults().throttle_next(1, 20, on(Verb::List, "services"));
    let _replica = start(&server);
    let took = serve(&server, "web").await;
    assert!((20..=25).contains(&took.as_secs()), "{took:?}");
    assert_eq!(count(&server, on(Verb::List, "services")), 2);
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_is_not_taken_for_a_hung_one() {
    let server = ApiServer::new(clock());
    server.faults().delay_every(Duration::from_secs(20), |request| request.resource != "leases");
    let replica = start(&server);
    serve(&server, "web").await;
    for resource in ["nodes", "services"] {
        assert_eq!(count(&server, on(Verb::List, resource)), 1, "{resource}");
    }
    assert!(!replica.ended.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_server_without_bookmarks_and_history_is_relisted() {
    let server = ApiServer::new(clock());
    server.faults().serve_every(Manner::WithoutBookmarks, |request| request.verb == Verb::Watch);
    let _replica = start(&server);
    serve(&server, "first").await;
    sleep(Duration::from_secs(600)).await;
    server.faults().compact();
    let took = serve(&server, "second").await;
    assert!(took <= DETECTION_TIMEOUT, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_a_first_list_releases_the_lease() {
    let server = ApiServer::new(clock());
    server.faults().hang_every(on(Verb::List, "services"));
    let mut first = start(&server);
    server.wait_until(|server| holder(server).is_some()).await;
    let (leader, elected) = (holder(&server), Instant::now());
    let ended = (&mut first.ended).await.unwrap().unwrap();
    assert_eq!((ended, holder(&server)), (ManagerOutcome::InformersStale, None));
    assert!((120..=160).contains(&elected.elapsed().as_secs()), "{:?}", elected.elapsed());

    server.faults().clear();
    let _second = start(&server);
    serve(&server, "web").await;
    assert!(holder(&server).is_some() && holder(&server) != leader);
}

#[tokio::test(start_paused = true)]
async fn a_leader_with_a_stale_store_releases_the_lease() {
    let (server, mut replica) = settled().await;
    server.faults().hang_every(on(Verb::List, "services"));
    server.faults().compact();
    let cut = Instant::now();
    let ended = (&mut replica.ended).await.unwrap().unwrap();
    assert_eq!((ended, holder(&server)), (ManagerOutcome::InformersStale, None));
    assert!((300..=345).contains(&cut.elapsed().as_secs()), "{:?}", cut.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_standby_without_lists_does_not_affect_the_leader() {
    let (server, leader) = settled().await;
    server.faults().hang_every(on(Verb::List, "services"));
    let standby = start(&server);
    sleep(Duration::from_secs(1800)).await;
    assert!(!standby.ended.is_finished() && !leader.ended.is_finished());
    assert!(serve(&server, "second").await <= DETECTION_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_is_down_does_not_cost_the_lease() {
    let (server, cloud) = (ApiServer::new(clock()), FakeCloud::new(FakeConfig::any_node()));
    let down = CloudError::Failed("the cloud is down".to_owned());
    cloud.fail_next(CallName::Initialize, &down, 40);
    let replica = start_on(&server, cloud.clone());
    server.wait_until(|server| holder(server).is_some()).await;
    let leader = holder(&server);
    sleep(Duration::from_secs(1800)).await;
    assert!(cloud.call_count(CallName::Initialize) > 10, "the initialization must be retried");
    assert!(!replica.ended.is_finished());
    assert_eq!(holder(&server), leader);
    cloud.fail_next(CallName::EnsureLoadBalancer, &down, 3);
    serve(&server, "web").await;
    assert_eq!(holder(&server), leader);
}

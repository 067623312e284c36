//! Faults of replicas, their Lease, the API server and a provider fire the intended alerts and no others: promtool evaluates the shipped
//! alerts with the metrics of replicas, read every minute of simulated time. `tests/azure_services/alerts.rs` covers faults of Azure.

use std::{fs, net::TcpListener, path::Path, sync::Arc, time::Duration};

use cloud_controller_manager::{
    app::manager::ClientSource,
    cloud_provider::CloudError,
    metrics::Metrics,
    providers::fake::{CallBehavior, CallName, FakeCloud, FakeConfig},
    runtime::leader_election::Leadership,
    sandbox::{api_server::ApiServer, http::Verb, objects::uninitialized_node},
};
use k8s_openapi::api::core::v1::{Node, Service};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tokio::time::sleep;

use crate::api_server_faults::{
    Replica, clients, clock,
    scraped::{ScrapedSeries, set},
    serve, start, start_on, start_with,
};

const MINUTE: Duration = Duration::from_secs(60);
const NAMES: [&str; 3] = ["a:10258", "b:10258", "c:10258"];

fn nothing_scraped() -> ScrapedSeries {
    ScrapedSeries::since(clock().wall())
}

/// Reads the metrics of the running replicas every minute for `minutes`.
async fn read(scraped: &mut ScrapedSeries, replicas: &[&Replica], minutes: usize) {
    for _ in 0..minutes {
        sleep(MINUTE).await;
        let running = NAMES.into_iter().zip(replicas).filter(|(_, replica)| !replica.ended.is_finished());
        let texts = running.map(|(name, replica)| {
            replica.metrics.observe();
            (name, replica.metrics.render().unwrap())
        });
        scraped.scrape(&texts.collect::<Vec<_>>());
    }
}

fn any_node() -> FakeCloud {
    FakeCloud::new(FakeConfig::any_node())
}

/// Starts a replica with further flags.
fn start_with_flags(server: &ApiServer, cloud: FakeCloud, flags: &[&str]) -> Replica {
    start_with(clients(server), cloud, Arc::new(Metrics::new().unwrap()), flags)
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_written_fires() {
    let server = ApiServer::new(clock());
    let (first, second) = (start(&server), start(&server));
    serve(&server, "web").await;
    let mut scraped = nothing_scraped();
    read(&mut scraped, &[&first, &second], 5).await;
    assert_eq!(scraped.firing(), set(&[]));
    server.faults().fail_every(500, |request| request.resource == "leases");
    read(&mut scraped, &[&first, &second], 1).await;
    // The kubelet restarts the replica that has lost the Lease.
    let (standby, restarted) = (if first.ended.is_finished() { &second } else { &first }, start(&server));
    read(&mut scraped, &[standby, &restarted], 5).await;
    assert_eq!(scraped.firing(), set(&["NoLeader"]));
}

#[tokio::test(start_paused = true)]
async fn a_handover_does_not_fire() {
    let server = ApiServer::new(clock());
    let first = start(&server);
    serve(&server, "web").await;
    let (second, mut scraped) = (start(&server), nothing_scraped());
    read(&mut scraped, &[&first, &second], 5).await;
    first.stop.begin();
    read(&mut scraped, &[&first, &second], 5).await;
    assert!(first.ended.is_finished() && !second.ended.is_finished());
    assert_eq!(scraped.firing(), set(&[]));
}

#[tokio::test(start_paused = true)]
async fn two_leases_for_one_cluster_fire() {
    let server = ApiServer::new(clock());
    let (first, mut scraped) = (start(&server), nothing_scraped());
    let stray = start_with_flags(&server, any_node(), &["--leader-elect-resource-namespace=default"]);
    serve(&server, "web").await;
    read(&mut scraped, &[&first, &stray], 5).await;
    assert_eq!(scraped.firing(), set(&["TwoLeaders"]));
}

/// Returns a free port.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Sends a readiness probe like the kubelet. The clock of all tasks runs meanwhile, because sockets do not wait for simulated time.
async fn probe(port: u16) -> u16 {
    let client = reqwest::Client::builder().danger_accept_invalid_certs(true).no_proxy().build().unwrap();
    tokio::time::resume();
    let response = client.get(format!("https://127.0.0.1:{port}/readyz")).send().await.unwrap();
    tokio::time::pause();
    response.status().as_u16()
}

/// Reads the metrics of a replica and probes it every minute. Returns the status codes.
async fn read_probed(scraped: &mut ScrapedSeries, replica: &Replica, port: u16, minutes: usize) -> Vec<u16> {
    let mut codes = Vec::new();
    for _ in 0..minutes {
        codes.push(probe(port).await);
        read(scraped, &[replica], 1).await;
    }
    codes
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_not_ready_fires() {
    let (server, port) = (ApiServer::new(clock()), free_port());
    let flag = format!("--secure-port={port}");
    let flags = ["--bind-address=127.0.0.1", &flag];
    let (healthy, mut scraped) = (start_with_flags(&server, any_node(), &flags), nothing_scraped());
    serve(&server, "web").await;
    assert_eq!(read_probed(&mut scraped, &healthy, port, 10).await, [200; 10]);
    assert_eq!(scraped.firing(), set(&[]));
    healthy.stop.begin();
    let cloud = any_node();
    cloud.fail_next(CallName::Initialize, &CloudError::Failed("the cloud is down".to_owned()), 1_000);
    let port = free_port();
    let flag = format!("--secure-port={port}");
    let (replica, mut scraped) = (start_with_flags(&server, cloud, &["--bind-address=127.0.0.1", &flag]), nothing_scraped());
    sleep(MINUTE).await;
    assert_eq!(read_probed(&mut scraped, &replica, port, 10).await, [500; 10]);
    assert_eq!(scraped.firing(), set(&["NotReady"]));
}

#[tokio::test(start_paused = true)]
async fn a_stuck_reconcile_fires() {
    let (server, cloud) = (ApiServer::new(clock()), any_node());
    let (replica, mut scraped) = (start_on(&server, cloud.clone()), nothing_scraped());
    serve(&server, "web").await;
    // Each call ends shortly before its deadline.
    cloud.set_latency(CallName::GetLoadBalancer, 2 * MINUTE - Duration::from_secs(1));
    let hangs = CallBehavior { hang: true, ..CallBehavior::default() };
    cloud.configure(|config| drop(config.calls.insert(CallName::EnsureLoadBalancerDeleted, hangs)));
    server.delete::<Service>("default", "web");
    read(&mut scraped, &[&replica], 15).await;
    assert_eq!(scraped.firing(), set(&[]), "the alert fires after a quarter of an hour");
    read(&mut scraped, &[&replica], 15).await;
    assert!(scraped.firing().contains("ReconcileStuck"), "{:?}", scraped.firing());
}

#[tokio::test(start_paused = true)]
async fn a_panic_fires_and_an_error_does_not() {
    let (server, cloud) = (ApiServer::new(clock()), any_node());
    let (replica, mut scraped) = (start_on(&server, cloud.clone()), nothing_scraped());
    read(&mut scraped, &[&replica], 2).await;
    cloud.fail_next(CallName::EnsureLoadBalancer, &CloudError::Failed("no".to_owned()), 1);
    serve(&server, "fails-once").await;
    read(&mut scraped, &[&replica], 3).await;
    assert_eq!(scraped.firing(), set(&[]));
    let panics = CallBehavior { panic: true, times: Some(1), ..CallBehavior::default() };
    cloud.configure(|config| drop(config.calls.insert(CallName::EnsureLoadBalancer, panics)));
    serve(&server, "panics-once").await;
    read(&mut scraped, &[&replica], 3).await;
    assert_eq!(scraped.firing(), set(&["Panics"]));
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_watch_fires() {
    let server = ApiServer::new(clock());
    let (mut leader, standby) = (start(&server), start(&server));
    serve(&server, "web").await;
    let mut scraped = nothing_scraped();
    // A restart of the API server: each watch breaks, and the next requests fail a few times.
    server.faults().fail_next(6, 500, |request| request.resource != "leases");
    server.faults().drop_watches();
    read(&mut scraped, &[&leader, &standby], 20).await;
    assert_eq!(scraped.firing(), set(&[]));
    let reads = |verb| matches!(verb, Verb::List | Verb::Watch);
    server.faults().fail_every(403, move |request| request.resource == "nodes" && reads(request.verb));
    server.faults().drop_watches();
    for _ in 0..20 {
        read(&mut scraped, &[&leader, &standby], 1).await;
        // The kubelet restarts a leader that has released the Lease.
        if leader.ended.is_finished() {
            leader = start(&server);
        }
    }
    let firing = scraped.firing();
    assert!(firing.contains("WatchErrors"), "{firing:?}");
}

/// Writes a certificate that ends on this day of January 2026, with its key.
fn write_certificate(folder: &Path, last_day: u8) {
    let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::new(["localhost".to_owned()]).unwrap());
    (params.not_before, params.not_after) = (date_time_ymd(2025, 12, 1), date_time_ymd(2026, 1, last_day));
    fs::write(folder.join("tls.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_certificate_close_to_its_expiry_fires() {
    let (server, folder, port) = (ApiServer::new(clock()), tempfile::tempdir().unwrap(), free_port());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let files = [format!("--tls-cert-file={}", file("tls.crt")), format!("--tls-private-key-file={}", file("tls.key"))];
    let port = format!("--secure-port={port}");
    write_certificate(folder.path(), 20);
    let flags = ["--bind-address=127.0.0.1", &port, &files[0], &files[1]];
    let (replica, mut scraped) = (start_with_flags(&server, any_node(), &flags), nothing_scraped());
    read(&mut scraped, &[&replica], 15).await;
    assert_eq!(scraped.firing(), set(&[]));
    // The certificate was not renewed in time.
    write_certificate(folder.path(), 5);
    read(&mut scraped, &[&replica], 20).await;
    assert_eq!(scraped.firing(), set(&["CertificateExpires"]));
}

/// Clients with a limit of one request per second.
struct Limited(ApiServer, Arc<Metrics>);

impl ClientSource for Limited {
    fn component(&self, component: &str) -> Result<kube::Client, kube::Error> {
        Ok(self.0.limited_client_as(component, 1.0, 1, &self.1))
    }
    fn controller(&self, account: &str, _: &Leadership) -> Result<kube::Client, kube::Error> {
        self.component(account)
    }
    fn watches(&self) -> Result<kube::Client, kube::Error> {
        Ok(self.0.client_as("shared-informers"))
    }
    fn election(&self) -> Result<kube::Client, kube::Error> {
        Ok(self.0.client_as("leader-election"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_limit_that_is_too_low_fires() {
    let (server, metrics) = (ApiServer::new(clock()), Arc::new(Metrics::new().unwrap()));
    let clients = Arc::new(Limited(server.clone(), Arc::clone(&metrics)));
    let (replica, mut scraped) = (start_with(clients, any_node(), metrics, &[]), nothing_scraped());
    // One Node per minute stays below the limit.
    for index in 0..15 {
        server.create::<Node>(&uninitialized_node(&format!("slow-{index}")));
        read(&mut scraped, &[&replica], 1).await;
    }
    assert_eq!(scraped.firing(), set(&[]));
    for index in 0..1_500 {
        server.create::<Node>(&uninitialized_node(&format!("fast-{index}")));
    }
    read(&mut scraped, &[&replica], 25).await;
    let firing = scraped.firing();
    assert!(firing.contains("ApiThrottled"), "{firing:?}");
}

#[tokio::test(start_paused = true)]
async fn memory_near_the_limit_fires() {
    let server = ApiServer::new(clock());
    let metrics = Arc::new(Metrics::new().unwrap().with_process().unwrap());
    let used = metrics.registry().gather().into_iter().find(|family| family.name() == "process_resident_memory_bytes");
    let used = used.unwrap().get_metric()[0].get_gauge().get_value();
    let (replica, mut scraped) = (start_with(clients(&server), any_node(), Arc::clone(&metrics), &[]), nothing_scraped());
    serve(&server, "web").await;
    metrics.memory_limit.with_label_values::<&str>(&[]).set(used * 4.0);
    read(&mut scraped, &[&replica], 20).await;
    assert_eq!(scraped.firing(), set(&[]));
    metrics.memory_limit.with_label_values::<&str>(&[]).set(used);
    read(&mut scraped, &[&replica], 20).await;
    assert_eq!(scraped.firing(), set(&["MemoryNearLimit"]));
}

#[tokio::test(start_paused = true)]
async fn shadow_with_planned_writes_fires() {
    let server = ApiServer::new(clock());
    let (shadow, mut scraped) = (start_with_flags(&server, any_node(), &["--dry-run"]), nothing_scraped());
    read(&mut scraped, &[&shadow], 20).await;
    assert_eq!(scraped.firing(), set(&[]), "a shadow manager needs no Lease");
    server.create::<Node>(&uninitialized_node("node-1"));
    read(&mut scraped, &[&shadow], 40).await;
    assert_eq!(scraped.firing(), set(&["NodesUninitialized", "ShadowPlansWrites"]));
}

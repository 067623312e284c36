//! A cluster in which nothing happens: memory at rest, what one more Service costs, and how long `/metrics` is.

use cloud_controller_manager::sandbox::objects::{ObjectExt, ServiceExt, load_balancer_service};
use k8s_openapi::api::core::v1::Service;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use serde_json::json;
use tokio::time::Instant;

use super::{
    Bounds, MIB, PORTS_PER_ADDRESS, TICK,
    contention::PREFIX,
    place::{Manager, Place},
    responding,
};

/// Internal Services of one load balancer.
const SERVICES: u32 = 590;
const MORE: u32 = 10;
/// Services of several load balancers, whose metrics are read.
const MANY: u32 = 2_000;
/// Rules of a load balancer where there are several, which is what Azure allows at a network interface.
const RULES: u32 = 300;
/// Resident memory with [`SERVICES`].
const MEMORY_MIB: f64 = 44.0;
/// Seconds of processor time for one more.
const CPU: f64 = 0.06;
/// The compressed response of `/metrics` with [`MANY`].
const METRICS_MIB: f64 = 1.0;

pub(super) async fn all() {
    let cluster = place().await;
    (0..SERVICES).for_each(|index| create(&cluster, index, None));
    let manager = settled(&cluster).await;
    println!("{SERVICES} Services, created: {:.1} MiB, {:.1} of its own", resident(&manager), anonymous(&manager));
    manager.program.terminate();
    let manager = settled(&cluster).await;
    let memory = resident(&manager);
    println!("{SERVICES} Services at rest: {memory:.1} MiB, {:.1} of its own", anonymous(&manager));
    let before = manager.program.cpu();
    for index in SERVICES..SERVICES + MORE {
        create(&cluster, index, None);
        cluster.until_ready(&manager).await;
    }
    cluster.settled("more", Instant::now(), &manager, before, "", Bounds::default()).await;
    let cpu = (manager.program.cpu() - before) / f64::from(MORE);
    println!("one more Service: {cpu:.3} s of CPU");
    drop(manager);
    let metrics = metrics().await;
    assert!(memory <= MEMORY_MIB && cpu <= CPU && metrics <= METRICS_MIB, "{memory:.1} MiB, {cpu:.3} s, {metrics:.2} MiB");
}

/// Returns the length of the response of `/metrics` in MiB.
async fn metrics() -> f64 {
    let cluster = place().await;
    let entry = |index| json!({"name": format!("lb{index}"), "primaryVMSet": format!("set{index}")});
    cluster.configure("multipleStandardLoadBalancerConfigurations", (0..=MANY / RULES).map(entry).collect());
    (0..MANY).for_each(|index| create(&cluster, index, Some(index / PORTS_PER_ADDRESS)));
    let manager = settled(&cluster).await;
    let client = reqwest::ClientBuilder::new().danger_accept_invalid_certs(true).gzip(false).build().expect("a client");
    let request = client.get(manager.url("/metrics")).header(ACCEPT_ENCODING, "gzip");
    let response = request.send().await.expect("a response of /metrics");
    assert!(response.status().is_success(), "/metrics: {}", response.status());
    let is_compressed = response.headers().contains_key(CONTENT_ENCODING);
    let length = response.bytes().await.expect("the metrics").len();
    let length = f64::from(u32::try_from(length).unwrap_or(u32::MAX)) / MIB;
    println!("/metrics of {MANY} Services: {length:.2} MiB, compressed: {is_compressed}");
    length
}

async fn place() -> Place {
    let cluster = Place::new(responding()).await;
    cluster.configure("loadBalancerBackendPoolConfigurationType", "nodeIP".into());
    cluster
}

/// Starts the program, and waits until it has served all Services and sends nothing more.
async fn settled(cluster: &Place) -> Manager {
    let manager = cluster.start();
    cluster.until(&manager, TICK * 20, || cluster.is_served()).await;
    cluster.settled("all", Instant::now(), &manager, 0.0, "", Bounds::default()).await;
    manager
}

/// Creates an internal Service, with an address of its own or at one of the first addresses of the subnet.
fn create(cluster: &Place, index: u32, address: Option<u32>) {
    let service = load_balancer_service("default", &format!("service-{index}"));
    let service = service.annotation(&format!("{PREFIX}azure-load-balancer-internal"), "true");
    let service = match address {
        Some(address) => {
            let port = i32::try_from(1_000 + index % PORTS_PER_ADDRESS).expect("a port");
            let address = format!("10.224.200.{}", 1 + address);
            service.annotation(&format!("{PREFIX}azure-load-balancer-ipv4"), &address).ports(&[("http", port)])
        }
        None => service,
    };
    cluster.server.create::<Service>(&service);
}

fn resident(manager: &Manager) -> f64 {
    manager.program.mib("VmRSS:")
}

fn anonymous(manager: &Manager) -> f64 {
    manager.program.mib("RssAnon:")
}

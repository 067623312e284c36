//! An idle cluster: memory at rest, and the cost of one more Service.

use cloud_controller_manager::sandbox::objects::{ObjectExt, load_balancer_service};
use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;

use super::{
    Bounds, TICK,
    cluster::{Cluster, Manager},
    contention::PREFIX,
    responding,
};

/// Internal Services of one load balancer.
const SERVICES: u32 = 590;
const MORE: u32 = 10;
/// Limit of resident memory with [`SERVICES`], in MiB.
const MEMORY_MIB: f64 = 70.0;
/// Limit of processor time for one more Service, in seconds.
const CPU: f64 = 0.2;

pub(super) async fn all() {
    let cluster = node_ip_cluster().await;
    (0..SERVICES).for_each(|index| create(&cluster, index));
    let manager = settled(&cluster).await;
    println!("{SERVICES} Services, created: {:.1} MiB, {:.1} of its own", resident(&manager), anonymous(&manager));
    manager.program.terminate();
    let manager = settled(&cluster).await;
    let memory = resident(&manager);
    println!("{SERVICES} Services at rest: {memory:.1} MiB, {:.1} of its own", anonymous(&manager));
    let before = manager.program.cpu();
    for index in SERVICES..SERVICES + MORE {
        create(&cluster, index);
        cluster.until_ready(&manager).await;
    }
    cluster.settled("more", Instant::now(), &manager, before, "", Bounds::default()).await;
    let cpu = (manager.program.cpu() - before) / f64::from(MORE);
    println!("one more Service: {cpu:.3} s of CPU");
    assert!(memory <= MEMORY_MIB && cpu <= CPU, "{memory:.1} MiB, {cpu:.3} s");
}

async fn node_ip_cluster() -> Cluster {
    let cluster = Cluster::new(responding()).await;
    cluster.configure("loadBalancerBackendPoolConfigurationType", "nodeIP".into());
    cluster
}

/// Starts the program, and waits until it has served all Services and sends nothing more.
async fn settled(cluster: &Cluster) -> Manager {
    let manager = cluster.start();
    cluster.until(&manager, TICK * 20, || cluster.is_served()).await;
    cluster.settled("all", Instant::now(), &manager, 0.0, "", Bounds::default()).await;
    manager
}

/// Creates an internal Service.
fn create(cluster: &Cluster, index: u32) {
    let service = load_balancer_service("default", &format!("service-{index}"));
    let service = service.annotation(&format!("{PREFIX}azure-load-balancer-internal"), "true");
    cluster.server.create::<Service>(&service);
}

fn resident(manager: &Manager) -> f64 {
    manager.program.mib("VmRSS:")
}

fn anonymous(manager: &Manager) -> f64 {
    manager.program.mib("RssAnon:")
}

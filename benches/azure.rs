//! The azure provider at scale, in the whole manager, on a simulated Azure with pages of 100: requests to ARM are counted and asserted,
//! times reported. Cluster, cloud and manager share this process, so its memory says nothing.
//!
//! Go's program reads the network interface of each node: 5,053 requests for 5,000 nodes.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a benchmark ends where what it needs is missing")]

#[path = "support/manager.rs"]
mod manager;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloud_controller_manager::{
    cloud_provider::registry::ProviderConfig,
    providers::azure::AzureCloud,
    runtime::clock::Clock,
    sandbox::{
        api_server::ApiServer,
        azure::{
            AzureOptions,
            topology::{PoolKind, Topology},
            world::World,
        },
        in_process::InProcess,
    },
};
use k8s_openapi::api::core::v1::Node;
use manager::Manager;
use tokio::time::Instant;

const POOLS: u32 = 5;
/// Nodes of a pool. The build of the tests measures counts alone, which hold with fewer.
const EACH: u32 = if cfg!(debug_assertions) { 200 } else { 1_000 };
/// Pages of the list of a pool with one more.
const PAGES: usize = EACH as usize / 100 + 1;
const LIMIT: Duration = Duration::from_secs(300);

fn main() {
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    // A machine of a flexible scale set cannot be asked for by host name: one more is found in the list of its set.
    for (kind, for_one) in [(PoolKind::Uniform, 5), (PoolKind::Flexible, PAGES + 2), (PoolKind::AvailabilitySet, 5)] {
        runtime.block_on(nodes(kind, for_one));
    }
}

/// All uninitialised nodes at once, then one more.
async fn nodes(kind: PoolKind, for_one: usize) {
    let world =
        World::new(Topology::new().pools(kind, POOLS, EACH), AzureOptions::default(), Clock::System).expect("a world");
    let server = ApiServer::new(Clock::System);
    for node in world.uninitialized_nodes() {
        server.create::<Node>(&node);
    }
    let started = Instant::now();
    let manager = start(&server, &world);
    until_initialised(&server).await;
    let (wall, all) = (started.elapsed().as_secs_f64(), arm_requests(&world));

    world.azure().clear_requests();
    let pool = world.topology().pools.first().map(|pool| pool.name.clone()).expect("a pool");
    let joined = world.scale_out(&pool, 1).expect("the pool").pop().expect("a node");
    server.create::<Node>(&world.uninitialized_node(&joined).expect("the machine"));
    until_initialised(&server).await;
    let one = arm_requests(&world);
    println!("{kind:?}: {} nodes: {wall:.2} s, {all} requests to ARM; one more: {one}", POOLS * EACH);
    assert!(all <= (POOLS * EACH) as usize / 100 * 6, "{kind:?}: {all} requests for all");
    assert!(one <= for_one, "{kind:?}: {one} requests for one more");

    manager.stop().await;
}

async fn until_initialised(server: &ApiServer) {
    let tainted = |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_none());
    let done = server.wait_until(|server| !server.list::<Node>().iter().any(tainted));
    tokio::time::timeout(LIMIT, done).await.expect("all nodes are initialised");
}

/// Requests to ARM; none of them may write.
fn arm_requests(world: &World) -> usize {
    let requests = world.azure().requests();
    let arm = || requests.iter().filter(|request| request.path.starts_with("/subscriptions/"));
    assert_eq!(arm().filter(|request| request.method != "GET").count(), 0, "a write to ARM");
    arm().count()
}

fn start(server: &ApiServer, world: &World) -> Manager {
    let file = std::env::temp_dir().join(format!("azure-bench-{}.json", std::process::id()));
    std::fs::write(&file, world.config().to_string()).expect("azure.json");
    let config =
        ProviderConfig { cloud_config: Some(file.clone()), cluster_name: "kubernetes".into(), ..ProviderConfig::default() };
    let provider = AzureCloud::new(&config, BTreeMap::new(), world.azure().transport()).expect("a provider");
    std::fs::remove_file(file).expect("azure.json");
    let flags = ["--cloud-provider=azure", "--configure-cloud-routes=false"];
    Manager::start(Arc::new(InProcess(server.clone())), Arc::new(provider), &flags)
}

//! What 5,000 nodes on Azure cost in requests: the session with its credentials, ARM client, budget and inventory, over the simulated
//! Azure in the same process, on a paused clock. Settings are the defaults.
#![expect(clippy::unwrap_used, reason = "a test ends where what it needs is missing")]

mod growth;

use std::{sync::Arc, time::Duration};

use cloud_controller_manager::{
    cloud_provider::{AddressType, InstancesV2},
    providers::azure::session::Session,
    runtime::clock::Clock,
    sandbox::azure::{
        AzureOptions, Class, RequestRecord,
        topology::{PoolKind, Topology},
        world::World,
    },
};
use k8s_openapi::api::core::v1::Node;

use crate::golden::replica;

const MINUTE: Duration = Duration::from_secs(60);
const POOLS: u32 = 5;
const EACH: u32 = 1000;
/// Pages of 100 machines.
const PAGES: usize = (POOLS * EACH) as usize / 100;

struct Cluster {
    world: World,
    session: Session,
}

impl Cluster {
    async fn of_pools(kind: PoolKind, pools: u32) -> Self {
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        let topology = Topology::new().pools(kind, pools, EACH);
        let world = World::new(topology, AzureOptions::default(), clock).unwrap();
        let (session, _) = replica::session(world.azure(), clock, &world.config(), Vec::new()).await;
        Self { world, session }
    }

    /// Asks for all at once; all have an address.
    async fn initialize(&self, nodes: &[Arc<Node>]) {
        for told in self.session.instances.instance_metadata_batch(nodes).await {
            let addresses = told.unwrap().unwrap().node_addresses;
            assert!(addresses.iter().any(|address| address.type_ == AddressType::InternalIP));
        }
    }

    /// One more machine, and its Node with an address.
    async fn add_node(&self) {
        let pool = self.world.topology().pools[0].name.clone();
        let name = self.world.scale_out(&pool, 1).unwrap().remove(0);
        self.initialize(&[Arc::new(self.world.uninitialized_node(&name).unwrap())]).await;
    }

    /// Asks for all nodes again and again.
    async fn ask_each(&self, pause: Duration, times: usize) {
        let nodes = arcs(self.world.nodes());
        for _ in 0..times {
            tokio::time::advance(pause).await;
            self.session.inventory.warm().await.unwrap();
            self.initialize(&nodes).await;
        }
    }

    /// ARM's requests since last asked; nothing was written or refused.
    fn requests(&self) -> Vec<RequestRecord> {
        let mut requests = self.world.azure().requests();
        self.world.azure().clear_requests();
        requests.retain(|request| request.path.starts_with("/subscriptions/"));
        assert!(requests.iter().all(|request| request.class == Class::Read && request.status == 200), "{requests:?}");
        requests
    }
}

fn arcs(nodes: Vec<Node>) -> Vec<Arc<Node>> {
    nodes.into_iter().map(Arc::new).collect()
}

/// 5,000 nodes, then one more, then asking for all of them each minute. `lists` and `for_one`: requests at most.
async fn costs(kind: PoolKind, lists: usize, for_one: usize, minutes: usize) {
    let cluster = Cluster::of_pools(kind, POOLS).await;
    let warm = cluster.session.inventory.warm().await;
    assert!(warm.is_ok(), "{warm:?}");
    cluster.initialize(&arcs(cluster.world.uninitialized_nodes())).await;
    let first = cluster.requests().len();
    assert!(first <= lists, "{kind:?}: {first} requests for all");

    tokio::time::advance(MINUTE).await;
    cluster.add_node().await;
    let one = cluster.requests().len();
    assert!(one <= for_one, "{kind:?}: {one} requests for one more");

    cluster.ask_each(MINUTE, minutes).await;
    let requests = cluster.requests();
    assert!(requests.iter().all(|request| request.list), "{kind:?}: a node was asked for by itself");
    // A list is due when it is older than ten minutes, which is seen in the eleventh.
    assert!(requests.len() <= minutes / 11 * (lists + 3), "{kind:?}: {} requests in {minutes} minutes", requests.len());
    assert!(!requests.is_empty(), "the lists are read again");
    assert_eq!(cluster.session.inventory.health(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn five_thousand_instances_of_uniform_scale_sets() {
    // Scale sets, machines outside of them, instances, their interfaces.
    costs(PoolKind::Uniform, 2 + PAGES + PAGES, 5, 60).await;
}

#[tokio::test(start_paused = true)]
async fn five_thousand_machines_of_flexible_scale_sets() {
    // The group's list of machines outside scale sets shows these as well.
    // ARM cannot be asked for a host name: one more machine is found in the list of the scale set whose prefix fits.
    costs(PoolKind::Flexible, 1 + PAGES + PAGES + PAGES, PAGES / POOLS as usize + 3, 20).await;
}

#[tokio::test(start_paused = true)]
async fn five_thousand_machines_of_availability_sets() {
    costs(PoolKind::AvailabilitySet, 1 + PAGES + PAGES, 5, 20).await;
}

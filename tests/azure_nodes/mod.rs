//! Requests for 5,000 Nodes on Azure: the session with its credentials, ARM client, budget and inventory, on the simulated Azure in the same
//! process, with a paused clock and default settings.
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
    cloud: World,
    session: Session,
}

impl Cluster {
    async fn of_pools(kind: PoolKind, pools: u32) -> Self {
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        let topology = Topology::new().pools(kind, pools, EACH);
        let cloud = World::new(topology, AzureOptions::default(), clock).unwrap();
        let (session, _) = replica::session(cloud.azure(), clock, &cloud.config(), Vec::new()).await;
        Self { cloud, session }
    }

    /// Requests the metadata of all Nodes at once, and asserts that all have an address.
    async fn initialize(&self, nodes: &[Arc<Node>]) {
        for metadata in self.session.instances.instance_metadata_batch(nodes).await {
            let addresses = metadata.unwrap().unwrap().node_addresses;
            assert!(addresses.iter().any(|address| address.type_ == AddressType::InternalIP));
        }
    }

    /// Adds a machine, and initializes its Node.
    async fn add_node(&self) {
        let pool = self.cloud.topology().pools[0].name.clone();
        let name = self.cloud.scale_out(&pool, 1).unwrap().remove(0);
        self.initialize(&[Arc::new(self.cloud.uninitialized_node(&name).unwrap())]).await;
    }

    /// Requests the metadata of all Nodes `times` times, each after a pause.
    async fn query_each(&self, pause: Duration, times: usize) {
        let nodes = arcs(self.cloud.nodes());
        for _ in 0..times {
            tokio::time::advance(pause).await;
            self.session.inventory.warm().await.unwrap();
            self.initialize(&nodes).await;
        }
    }

    /// Returns the requests to ARM since the last call, and asserts that they are successful reads.
    fn requests(&self) -> Vec<RequestRecord> {
        let mut requests = self.cloud.azure().requests();
        self.cloud.azure().clear_requests();
        requests.retain(|request| request.path.starts_with("/subscriptions/"));
        assert!(requests.iter().all(|request| request.class == Class::Read && request.status == 200), "{requests:?}");
        requests
    }
}

fn arcs(nodes: Vec<Node>) -> Vec<Arc<Node>> {
    nodes.into_iter().map(Arc::new).collect()
}

/// Initializes 5,000 Nodes, then one more, then queries all of them each minute. `lists` and `for_one`: limits of requests.
async fn costs(kind: PoolKind, lists: usize, for_one: usize, minutes: usize) {
    let cluster = Cluster::of_pools(kind, POOLS).await;
    let warm = cluster.session.inventory.warm().await;
    assert!(warm.is_ok(), "{warm:?}");
    cluster.initialize(&arcs(cluster.cloud.uninitialized_nodes())).await;
    let first = cluster.requests().len();
    assert!(first <= lists, "{kind:?}: {first} requests for all");

    tokio::time::advance(MINUTE).await;
    cluster.add_node().await;
    let requests_for_one = cluster.requests().len();
    assert!(requests_for_one <= for_one, "{kind:?}: {requests_for_one} requests for one more");

    cluster.query_each(MINUTE, minutes).await;
    let requests = cluster.requests();
    assert!(requests.iter().all(|request| request.list), "{kind:?}: a single Node was requested");
    // A list is read again when it is older than ten minutes, so in the eleventh minute.
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
    // ARM has no lookup by host name: a new machine is found in the list of the scale set whose prefix matches.
    costs(PoolKind::Flexible, 1 + PAGES + PAGES + PAGES, PAGES / POOLS as usize + 3, 20).await;
}

#[tokio::test(start_paused = true)]
async fn five_thousand_machines_of_availability_sets() {
    costs(PoolKind::AvailabilitySet, 1 + PAGES + PAGES, 5, 20).await;
}

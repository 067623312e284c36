//! Replicas with a name, which starts their `User-Agent`, and their own wall clock.

use std::sync::Arc;

use cloud_controller_manager::{
    app::manager::{self, ClientSource},
    metrics::Metrics,
    providers::fake::{FakeCloud, FakeConfig, InstanceSpec},
    runtime::{
        clock::{Clock, WallJump},
        leader_election::Leadership,
        shutdown::Shutdown,
    },
    sandbox::{api_server::ApiServer, http::Verb, objects::node, partitions::PartitionedWay},
};
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::task::JoinHandle;

use crate::api_server_faults::is_served;

/// Names of Nodes with a machine.
pub(crate) const NODES: [&str; 3] = ["n0", "n1", "n2"];

pub(crate) struct NamedClients {
    pub(crate) server: ApiServer,
    pub(crate) replica: String,
}

impl ClientSource for NamedClients {
    fn component(&self, component: &str) -> Result<kube::Client, kube::Error> {
        Ok(self.server.client_with_deadlines_as(&format!("{}/{component}", self.replica)))
    }
    fn controller(&self, account: &str, _: &Leadership) -> Result<kube::Client, kube::Error> {
        self.component(account)
    }
    fn watches(&self) -> Result<kube::Client, kube::Error> {
        Ok(self.server.client_as(&format!("{}/shared-informers", self.replica)))
    }
}

pub(crate) struct FleetReplica {
    pub(crate) name: String,
    pub(crate) clock: &'static WallJump,
    stop: Shutdown,
    ended: JoinHandle<()>,
}

/// API server with Nodes, cloud with their machines, and replicas.
pub(crate) struct Fleet {
    pub(crate) server: ApiServer,
    pub(crate) cloud: FakeCloud,
    pub(crate) replicas: Vec<FleetReplica>,
    flags: &'static [&'static str],
    started: usize,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.replicas.iter().for_each(|replica| replica.stop.begin());
    }
}

impl Fleet {
    /// Starts `size` replicas.
    pub(crate) fn new(size: usize, flags: &'static [&'static str]) -> Self {
        let (server, cloud) = (ApiServer::new(crate::api_server_faults::clock()), FakeCloud::new(FakeConfig::default()));
        for name in NODES {
            cloud.add_instance(name, InstanceSpec::default());
            server.create::<Node>(&node(name));
        }
        let mut fleet = Self { server, cloud, replicas: Vec::new(), flags, started: 0 };
        for _ in 0..size {
            let replica = fleet.start();
            fleet.replicas.push(replica);
        }
        fleet
    }

    fn start(&mut self) -> FleetReplica {
        self.started += 1;
        let name = format!("replica-{}", self.started);
        let flags = [&["--configure-cloud-routes=false"], self.flags].concat();
        let (clock, jump) = Clock::adjustable("2026-01-01T00:00:00Z".parse().unwrap());
        let clients = Arc::new(NamedClients { server: self.server.clone(), replica: name.clone() });
        let metrics = Arc::new(Metrics::new().unwrap());
        let parts = crate::manager_deps(&flags, clients, self.cloud.replica(), &metrics, clock);
        let stop = Shutdown::new();
        let (until, faults, client) = (stop.clone(), self.server.faults(), prefix(&name));
        let ended = tokio::spawn(async move {
            drop(manager::run(parts, &until).await);
            // The process has ended, so none of its requests may reach the server.
            faults.partition(&client, PartitionedWay::ToServer);
        });
        FleetReplica { name, clock: jump, stop, ended }
    }

    /// Restarts the replicas that have ended, as the kubelet does.
    pub(crate) fn restart(&mut self) {
        for index in 0..self.replicas.len() {
            if self.replicas[index].ended.is_finished() {
                self.replicas[index] = self.start();
            }
        }
    }

    /// Partitions a running replica, or heals its partition.
    pub(crate) fn partition(&self, index: usize, way: Option<PartitionedWay>) {
        let replica = &self.replicas[index];
        let client = prefix(&replica.name);
        match way {
            _ if replica.ended.is_finished() => {}
            Some(way) => self.server.faults().partition(&client, way),
            None => self.server.faults().heal(&client),
        }
    }

    pub(crate) fn heal_all(&self) {
        (0..self.replicas.len()).for_each(|index| self.partition(index, None));
    }

    /// Returns the names of the Services in the API server.
    pub(crate) fn services(&self) -> Vec<String> {
        self.server.list::<Service>().into_iter().filter_map(|service| service.metadata.name).collect()
    }

    /// Returns `true` if every Service is served and its load balancer exists.
    pub(crate) fn serves_all(&self) -> bool {
        let has_one = |name: &String| self.cloud.load_balancer_of(&format!("default/{name}")).is_some();
        self.services().iter().all(|name| is_served(&self.server, name) && has_one(name))
    }

    /// Panics if a Node with a machine is missing or was deleted by a replica, or if a replica wrote without the Lease. The log of requests
    /// is in the order of their effects.
    pub(crate) fn check_writes(&self) {
        let mut leader = None;
        for request in self.server.requests().into_iter().filter(|request| (200..300).contains(&request.code)) {
            let replica = request.user_agent.split('/').next().unwrap_or_default().to_owned();
            assert!((request.verb, request.resource.as_str()) != (Verb::Delete, "nodes"), "a Node was deleted: {request:?}");
            match request.resource.as_str() {
                "leases" if matches!(request.verb, Verb::Create | Verb::Update) => leader = Some(replica),
                "nodes" | "services" if request.verb.is_write() => {
                    let is_allowed = leader.as_ref().is_none_or(|leader| *leader == replica);
                    assert!(is_allowed, "{request:?} while {leader:?} leads");
                }
                _ => {}
            }
        }
        for name in NODES {
            assert!(self.server.get::<Node>("", name).is_some(), "{name} is missing");
        }
    }
}

fn prefix(replica: &str) -> String {
    format!("{replica}/")
}

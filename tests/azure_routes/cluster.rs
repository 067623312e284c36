//! A cluster on Azure, and its manager.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cloud_controller_manager::{
    cloud_provider::Route,
    metrics::Metrics,
    providers::azure::session::Session,
    runtime::clock::Clock,
    sandbox::{
        api_server::ApiServer,
        azure::{AzureOptions, Class, Fault, Latencies, Latency, RequestRecord, topology::Topology, world::World},
    },
};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::golden::replica::{self, Replica, manager_deps};

const TABLE_TYPE: &str = "Microsoft.Network/routeTables";
const POD_CIDRS: &str = "--cluster-cidr=100.64.0.0/10,fd00:64::/32";

/// A cluster and its cloud.
pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) cloud: World,
    pub(crate) config: Value,
    clock: Clock,
}

impl Cluster {
    pub(crate) fn new(topology: Topology) -> Self {
        Self::with_options(topology, AzureOptions::default())
    }

    pub(crate) fn with_options(topology: Topology, options: AzureOptions) -> Self {
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        let cloud = World::new(topology, options, clock).unwrap();
        let config = cloud.config();
        Self { server: ApiServer::new(clock), cloud, config, clock }
    }

    /// Registers the Nodes of all machines that have none yet.
    pub(crate) fn join(&self) {
        for node in self.cloud.uninitialized_nodes() {
            if self.server.get::<Node>("", &node.name_any()).is_none() {
                self.server.create::<Node>(&node);
            }
        }
    }

    /// Starts a manager with all controllers that Azure supports.
    pub(crate) fn start(&self) -> Replica {
        self.start_with(&["--leader-elect=false"])
    }

    pub(crate) fn start_with(&self, flags: &[&str]) -> Replica {
        let flags = [&[POD_CIDRS], flags].concat();
        Replica::start(manager_deps(&self.server, self.cloud.azure(), self.clock, &self.config, &flags))
    }

    /// Registers all Nodes, starts a manager, and asserts that the routes are written.
    pub(crate) async fn converge(&self) -> Replica {
        self.join();
        let replica = self.start();
        pass(60).await;
        self.assert_converged("at first");
        self.requests();
        replica
    }

    /// Returns the provider's session, without controllers.
    pub(crate) async fn session(&self) -> Session {
        self.counted_session().await.0
    }

    /// Returns the provider's session and its metrics.
    pub(crate) async fn counted_session(&self) -> (Session, Arc<Metrics>) {
        replica::session(self.cloud.azure(), self.clock, &self.config, self.cloud.nodes()).await
    }

    /// Returns the route that each machine needs, for its first pod CIDR.
    pub(crate) fn required_routes(&self) -> Vec<Route> {
        let route = |node: &Node| Route {
            target_node: node.name_any(),
            destination_cidr: cidrs(node).remove(0),
            ..Route::default()
        };
        self.cloud.nodes().iter().map(route).collect()
    }

    /// Adds a fault of the writes of the table.
    pub(crate) fn add_fault_of_writes(&self, fault: Fault) {
        self.cloud.azure().add_fault(fault.method("PUT").path(&format!("*/{TABLE_TYPE}/*")));
    }

    pub(crate) fn table_id(&self) -> String {
        let topology = self.cloud.topology();
        topology.group_id().resource(TABLE_TYPE, &[&topology.route_table]).to_string()
    }

    pub(crate) fn table(&self) -> Value {
        self.cloud.azure().document(&self.table_id()).unwrap_or_default()
    }

    /// Returns the next hops of all routes, by prefix.
    pub(crate) fn routes(&self) -> BTreeMap<String, String> {
        let text = |route: &Value, field: &str| route["properties"][field].as_str().unwrap().to_owned();
        let routes = self.table()["properties"]["routes"].as_array().cloned().unwrap_or_default();
        routes.iter().map(|route| (text(route, "addressPrefix"), text(route, "nextHopIpAddress"))).collect()
    }

    /// Returns the expected routes: each pod CIDR leads to the machine's address of its family.
    pub(crate) fn expected_routes(&self) -> BTreeMap<String, String> {
        let nodes = self.server.list::<Node>();
        let routes = nodes.iter().flat_map(|node| {
            let machine = self.cloud.machine(&node.name_any()).unwrap();
            let addresses: Vec<_> = machine.ip_configurations.iter().map(|found| found.address).collect();
            cidrs(node).into_iter().map(move |cidr| {
                let hop = addresses.iter().find(|address| address.is_ipv6() == cidr.contains(':')).unwrap();
                (cidr, hop.to_string())
            })
        });
        routes.collect()
    }

    /// Returns the names of Nodes whose condition `NetworkUnavailable` has this status.
    pub(crate) fn unavailable(&self, status: &str) -> BTreeSet<String> {
        let is_so = |node: &Node| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            conditions.iter().any(|condition| condition.type_ == "NetworkUnavailable" && condition.status == status)
        };
        self.server.list::<Node>().iter().filter(|node| is_so(node)).map(ResourceExt::name_any).collect()
    }

    /// Asserts that each Node has its routes and the condition, and that there are no other routes.
    pub(crate) fn assert_converged(&self, when: &str) {
        assert_eq!(self.routes(), self.expected_routes(), "{when}");
        assert_eq!(self.unavailable("False").len(), self.server.list::<Node>().len(), "{when}");
    }

    /// Asserts that each Node whose condition says that it has its routes has them.
    pub(crate) fn assert_truthful(&self) {
        let (routes, truthful) = (self.routes(), self.unavailable("False"));
        for node in self.server.list::<Node>().into_iter().filter(|node| truthful.contains(&node.name_any())) {
            assert!(cidrs(&node).iter().all(|cidr| routes.contains_key(cidr)), "{} has no route", node.name_any());
        }
    }

    /// Returns the numbers of writes and reads of the route table since the last call.
    pub(crate) fn requests(&self) -> (usize, usize) {
        let requests = self.cloud.azure().requests();
        self.cloud.azure().clear_requests();
        let about: Vec<&RequestRecord> =
            requests.iter().filter(|request| request.resource_type.eq_ignore_ascii_case(TABLE_TYPE)).collect();
        let writes = requests.iter().filter(|request| matches!(request.class, Class::Write | Class::Delete)).count();
        assert_eq!(writes, about.iter().filter(|request| request.class == Class::Write).count(), "writes elsewhere");
        (writes, about.iter().filter(|request| request.class == Class::Read).count())
    }

    /// Returns the messages about external changes to routes.
    pub(crate) fn drifted(&self) -> Vec<String> {
        let events = self.server.list::<Event>().into_iter();
        let events = events.filter(|event| event.reason.as_deref() == Some("RouteDrifted"));
        events.filter_map(|event| event.message).collect()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let events = self.server.list::<Event>().into_iter().filter(|event| event.type_.as_deref() == Some("Warning"));
        events.filter_map(|event| event.message).collect()
    }
}

pub(crate) fn cidrs(node: &Node) -> Vec<String> {
    node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default()
}

/// Returns a route as ARM stores it.
pub(crate) fn route(name: &str, cidr: &str, hop: &str) -> Value {
    json!({
        "name": name,
        "properties": {"addressPrefix": cidr, "nextHopType": "VirtualAppliance", "nextHopIpAddress": hop, "hasBgpOverride": false},
    })
}

/// Returns options in which a write of the table takes ten seconds.
pub(crate) fn slow() -> AzureOptions {
    let latency = Latency { respond: Duration::from_millis(200), operation: Duration::from_secs(10) };
    AzureOptions { latencies: Latencies::default().with(Class::Write, TABLE_TYPE, latency), ..AzureOptions::default() }
}

/// Waits for this time on the paused clock.
pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

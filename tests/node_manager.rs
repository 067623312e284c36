//! cloud-node-manager in process: on the in-memory API server, the simulated Azure with a metadata service for each machine, and the
//! fake cloud. Mostly on a paused clock.
#![expect(clippy::unwrap_used, reason = "a test panics if its setup fails")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloud_controller_manager::{
    cloud_provider::{AddressType, CloudProvider, CloudResult, NodeAddress, ProviderContext, registry::ProviderConfig},
    controllers::{Controller, ControllerContext, Informers, node},
    metrics::Metrics,
    node::{prune_node, taints, well_known::*},
    node_manager::{NodeManager, NodeManagerDeps, NodeManagerSettings},
    providers::{
        azure::{
            AzureCloud,
            metadata::{LocalMachineCloud, MetadataService},
            transport::ArmTransport,
        },
        fake::{FakeCloud, FakeConfig, InstanceSpec},
    },
    runtime::{
        clock::Clock, events::EventRecorder, informer::Informer, leader_election::Leadership, patch::ObjectWriter,
        shutdown::Shutdown,
    },
    sandbox::{
        api_server::ApiServer,
        azure::{
            Azure, AzureOptions, Effect, Fault,
            topology::{Pool, PoolKind, Topology},
            world::World,
        },
        http::Verb,
        objects::{NodeExt, events_about},
    },
};
use k8s_openapi::api::core::v1::{Event, Node};

#[path = "node_manager/false_metadata.rs"]
mod false_metadata;
#[path = "node_manager/ownership.rs"]
mod ownership;

const PERIOD: Duration = Duration::from_secs(300);
const SETTINGS: NodeManagerSettings =
    NodeManagerSettings { status_update_frequency: PERIOD, wait_routes: false, beta_labels: false, reconcile_labels: false };
const IMDS: &str = "http://169.254.169.254";

fn clock() -> Clock {
    Clock::manual("2026-01-01T00:00:00Z".parse().unwrap())
}

/// Cluster on machines of the simulated Azure.
struct Cluster {
    simulation: World,
    server: ApiServer,
    stop: Shutdown,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

impl Cluster {
    fn new(topology: Topology) -> Self {
        let simulation = World::new(topology, AzureOptions::default(), clock()).unwrap();
        Self::on(&simulation)
    }

    /// Creates another cluster on the same machines.
    fn on(simulation: &World) -> Self {
        Self { simulation: simulation.clone(), server: ApiServer::new(clock()), stop: Shutdown::new() }
    }

    fn names(&self) -> Vec<String> {
        self.simulation.machines().iter().map(|machine| machine.computer_name()).collect()
    }

    fn register(&self, change: impl Fn(Node) -> Node) {
        for node in self.simulation.uninitialized_nodes() {
            self.server.create(&change(node));
        }
    }

    /// Starts a node manager with the metadata service of its machine.
    fn manage(&self, name: &str, settings: NodeManagerSettings) -> Azure {
        let metadata = self.simulation.machine_metadata(name, Vec::new()).unwrap();
        let service = MetadataService::new(IMDS, metadata.transport());
        self.manage_with(name, settings, Arc::new(LocalMachineCloud::new(service, settings.max_age())));
        metadata
    }

    fn manage_with(&self, name: &str, settings: NodeManagerSettings, provider: Arc<dyn CloudProvider>) {
        let parts = NodeManagerDeps {
            node_name: name.to_owned(),
            client: self.server.client_as(name),
            watches: self.server.client_as(name),
            provider,
            metrics: Arc::new(Metrics::new().unwrap()),
            clock: clock(),
            settings,
        };
        let manager = NodeManager::start(parts, &self.stop).unwrap();
        let stop = self.stop.clone();
        tokio::spawn(async move { manager.run(&stop).await });
    }

    /// Starts the node controller, which reads ARM.
    async fn manage_centrally(&self) {
        let metrics = Arc::new(Metrics::new().unwrap());
        let mut informers = Informers::new(Informer::new(prune_node), Informer::new(|_| ()));
        let (events, _) = EventRecorder::channel("node-controller");
        let context = ControllerContext {
            cluster_name: "kubernetes".into(),
            writer: ObjectWriter::new(self.server.client_as("central"), Leadership::unopposed()),
            events: events.clone(),
            clock: clock(),
            metrics: Arc::clone(&metrics),
        };
        let cloud = arm(&self.simulation, AzureCloud::new);
        let provider = ProviderContext {
            client: self.server.client(),
            leadership: Leadership::unopposed(),
            route_leadership: Leadership::unopposed(),
            shutdown: self.stop.clone(),
            clock: clock(),
            metrics: Arc::clone(&metrics),
            nodes: informers.nodes.store(),
            services: informers.services.store(),
            namespaces: Default::default(),
            endpoint_slices: Default::default(),
            events,
        };
        cloud.initialize(provider).await.unwrap();
        let controller = node::NodeController::new(
            &context,
            &mut informers,
            Arc::new(cloud),
            node::NodeControllerConfig::default(),
            None,
        )
        .unwrap();
        let nodes = informers.nodes.store();
        informers.nodes.start(self.server.client_as("central"), &self.stop, metrics);
        nodes.synced().await;
        tokio::spawn(controller.run(self.stop.clone()));
    }

    fn node(&self, name: &str) -> Node {
        self.server.get("", name).unwrap()
    }

    /// Moves the machine to another address. Returns how long it takes until its Node has it.
    async fn move_address(&self, name: &str, address: &str) -> Duration {
        self.simulation.move_address(name, address.parse().unwrap()).unwrap();
        let moved = tokio::time::Instant::now();
        let has = |server: &ApiServer| {
            let node: Node = server.get("", name).unwrap();
            node.status.unwrap().addresses.unwrap().iter().any(|found| found.address == address)
        };
        self.until(address, has).await;
        moved.elapsed()
    }

    async fn until(&self, description: &str, condition: impl Fn(&ApiServer) -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(3600), self.server.wait_until(condition)).await;
        assert!(waited.is_ok(), "not within an hour: {description}");
    }

    async fn until_initialized(&self) {
        let all = |server: &ApiServer| server.list::<Node>().iter().all(|node| !taints::is_uninitialized(node));
        self.until("all nodes are initialized", all).await;
    }

    fn node_writes(&self) -> Vec<(String, String)> {
        let writes =
            self.server.requests().into_iter().filter(|request| {
                request.resource == "nodes" && !matches!(request.verb, Verb::Get | Verb::List | Verb::Watch)
            });
        writes.map(|request| (request.user_agent, request.name)).collect()
    }

    fn events(&self, name: &str) -> Vec<(String, String)> {
        events_about(&self.server.list::<Event>(), name)
    }
}

type New = fn(&ProviderConfig, BTreeMap<String, String>, Arc<dyn ArmTransport>) -> CloudResult<AzureCloud>;

fn for_one_node(
    config: &ProviderConfig,
    environment: BTreeMap<String, String>,
    transport: Arc<dyn ArmTransport>,
) -> CloudResult<AzureCloud> {
    AzureCloud::for_one_node(config, environment, transport, SETTINGS.max_age())
}

fn arm(simulation: &World, new: New) -> AzureCloud {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("azure.json");
    std::fs::write(&file, simulation.config().to_string()).unwrap();
    let config = ProviderConfig { cloud_config: Some(file), ..ProviderConfig::default() };
    new(&config, BTreeMap::new(), simulation.azure().transport()).unwrap()
}

/// Returns fifty machines, some of every kind.
fn fifty() -> Topology {
    Topology::new()
        .pool(Pool::new(PoolKind::Uniform, "zonal", 10).zones(&["1", "2", "3"]).public_ips())
        .pool(Pool::new(PoolKind::Uniform, "plain", 10).fault_domains(3))
        .pool(Pool::new(PoolKind::Flexible, "flex", 10).fault_domains(2).public_ips())
        .pool(Pool::new(PoolKind::Uniform, "win", 5).windows().zones(&["1"]))
        .pool(Pool::new(PoolKind::AvailabilitySet, "avset", 8))
        .pool(Pool::new(PoolKind::Standalone, "lone", 7).public_ips())
}

/// Removes the deprecated labels of `node` and counts them.
fn take_deprecated_labels(node: &mut Node) -> usize {
    let labels = node.metadata.labels.get_or_insert_default();
    [LABEL_ZONE_BETA, LABEL_REGION_BETA, LABEL_INSTANCE_TYPE_BETA].iter().filter_map(|key| labels.remove(*key)).count()
}

/// Returns the Node without the fields that each API server sets itself.
fn comparable(mut node: Node) -> Node {
    node.metadata.uid = None;
    node.metadata.resource_version = None;
    node.metadata.creation_timestamp = None;
    node.metadata.managed_fields = None;
    node
}

/// Checks that both modes write the same Nodes, each on its own cluster with the same machines.
async fn both_modes_agree(topology: Topology, change: fn(Node) -> Node) {
    let local = Cluster::new(topology);
    local.register(change);
    let begun = tokio::time::Instant::now();
    let services: Vec<Azure> = local.names().iter().map(|name| local.manage(name, SETTINGS)).collect();
    local.until_initialized().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "it took {:?}", begun.elapsed());
    assert!(local.simulation.azure().requests().is_empty(), "requests to ARM");
    assert!(services.iter().all(|service| service.requests().len() == 2), "two documents each");
    for (writer, node) in local.node_writes() {
        assert_eq!(writer, node, "a node manager writes its own Node and no other");
    }
    assert_eq!(local.node_writes().len(), 2 * local.names().len(), "addresses, then the rest");

    let central = Cluster::on(&local.simulation);
    central.register(change);
    central.manage_centrally().await;
    central.until_initialized().await;
    for name in local.names() {
        // Go's central mode sets the deprecated labels. Its cloud-node-manager sets them only with a flag.
        let (mut own, mut described) = (local.node(&name), central.node(&name));
        assert_eq!((take_deprecated_labels(&mut own), take_deprecated_labels(&mut described)), (0, 3), "{name}");
        assert_eq!(comparable(own), comparable(described), "{name}");
        let events = |cluster: &Cluster| cluster.events(&name).into_iter().map(|(reason, _)| reason).collect::<Vec<_>>();
        local.until("the event is written", |server| !events_about(&server.list::<Event>(), &name).is_empty()).await;
        assert_eq!(events(&local), ["Synced"], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn fifty_nodes_initialize_themselves_like_the_central_mode() {
    both_modes_agree(fifty(), |node| node).await;
}

#[tokio::test(start_paused = true)]
async fn dual_stack_nodes_initialize_like_the_central_mode() {
    // The kubelet is configured with both families. Otherwise the central mode reports one, as upstream does.
    let with_both_addresses = |mut node: Node| {
        let slot: u32 = node.spec.as_ref().unwrap().pod_cidr.as_ref().unwrap().split('.').nth(2).unwrap().parse().unwrap();
        let addresses = format!("fd00:10::{:x},10.224.0.{}", slot + 4, slot + 4);
        node.metadata.annotations.get_or_insert_default().insert(ANNOTATION_PROVIDED_NODE_IP.into(), addresses);
        node
    };
    let topology = Topology::new()
        .dual_stack()
        .pool(Pool::new(PoolKind::Uniform, "pool1", 3).zones(&["1", "2", "3"]).public_ips())
        .pool(Pool::new(PoolKind::Flexible, "flex", 2));
    both_modes_agree(topology, with_both_addresses).await;
}

fn single_node_cluster() -> Cluster {
    let cluster = Cluster::new(Topology::new().pool(Pool::new(PoolKind::Uniform, "pool1", 1).zones(&["1"])));
    cluster.register(|node| node);
    cluster
}

const NODE: &str = "pool1000000";

/// While the metadata service is down, slow or returns something else, the taint remains and an event gives the reason. The Node
/// recovers without help.
#[tokio::test(start_paused = true)]
async fn metadata_outage_is_reported_until_the_service_recovers() {
    for (fault, reason) in [
        (Fault::new(Effect::NoConnection), "no connection"),
        (Fault::new(Effect::Hang), "no response within 10 s"),
        (Fault::new(Effect::Delay(Duration::from_secs(60))), "no response within 10 s"),
        (Fault::new(Effect::Garbage), "not the requested document"),
        (Fault::new(Effect::Truncated), "not the requested document"),
        (Fault::refuse(400, "BadRequest"), "HTTP 400"),
        (Fault::refuse(410, "Gone"), "HTTP 410"),
        (Fault::refuse(500, "InternalServerError"), "HTTP 500"),
        (Fault::refuse(429, "TooManyRequests"), "HTTP 429"),
    ] {
        let cluster = single_node_cluster();
        let metadata = cluster.manage(NODE, SETTINGS);
        metadata.add_fault(fault);
        let says = |server: &ApiServer| {
            let events = events_about(&server.list::<Event>(), NODE);
            events.iter().any(|(name, message)| name == "InstanceMetadataFailed" && message.contains(reason))
        };
        cluster.until(reason, says).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(taints::is_uninitialized(&cluster.node(NODE)), "{reason}");
        assert!(cluster.node_writes().is_empty(), "{reason}");
        let requests = metadata.requests().len();
        assert!(requests < 400, "{reason}: {requests} requests in ten minutes");

        metadata.faults().clear();
        let cleared = tokio::time::Instant::now();
        cluster.until_initialized().await;
        assert!(cleared.elapsed() < Duration::from_secs(90), "{reason}: {:?}", cleared.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_address_arrives_within_the_period() {
    let cluster = single_node_cluster();
    let metadata = cluster.manage(NODE, SETTINGS);
    cluster.until_initialized().await;
    for address in ["10.224.7.7", "10.224.8.8"] {
        tokio::time::sleep(PERIOD).await;
        let moved = cluster.move_address(NODE, address).await;
        assert!(moved <= PERIOD, "{moved:?}");
    }
    let before = (metadata.requests().len(), cluster.node_writes().len());
    tokio::time::sleep(PERIOD * 12).await;
    assert!(metadata.requests().len() - before.0 <= 26, "two documents a period");
    assert_eq!(cluster.node_writes().len(), before.1, "nothing changed, nothing is written");
}

/// This also holds if cached documents are valid for the whole period and responses are slow.
#[tokio::test(start_paused = true)]
async fn a_changed_address_arrives_within_a_short_period() {
    let period = Duration::from_secs(30);
    let cluster = single_node_cluster();
    let metadata = cluster.manage(NODE, NodeManagerSettings { status_update_frequency: period, ..SETTINGS });
    metadata.add_fault(Fault::new(Effect::Delay(Duration::from_millis(200))));
    cluster.until_initialized().await;
    for round in 1..=4 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let address = format!("10.224.7.{round}");
        let moved = cluster.move_address(NODE, &address).await;
        assert!(moved <= period + Duration::from_secs(1), "{moved:?}");
    }
}

/// The node manager sends few reads, all about its own Node.
#[tokio::test(start_paused = true)]
async fn without_metadata_service_few_reads_of_arm_suffice() {
    for (name, most) in [("zonal000003", 6), ("flex000002", 8), ("avset-1", 4), ("lone-2", 5)] {
        let cluster = Cluster::new(fifty());
        cluster.register(|node| node);
        cluster.simulation.azure().clear_requests();
        cluster.manage_with(name, SETTINGS, Arc::new(arm(&cluster.simulation, for_one_node)));
        let is_done = |server: &ApiServer| !taints::is_uninitialized(&server.get("", name).unwrap());
        cluster.until(name, is_done).await;
        let reads = cluster.simulation.azure().requests();
        let reads: Vec<_> = reads.iter().filter(|request| request.path.starts_with("/subscriptions/")).collect();
        assert!(reads.len() <= most, "{name}: {reads:#?}");
        assert!(reads.iter().all(|read| read.method == "GET"));

        tokio::time::sleep(PERIOD * 3 / 2).await;
        cluster.simulation.azure().clear_requests();
        let moved = cluster.move_address(name, "10.224.77.7").await;
        assert!(moved <= PERIOD, "{name}: {moved:?}");
        let reads = cluster.simulation.azure().requests().len();
        assert!(reads <= 4, "{name}: {reads} reads");
    }
}

/// A misconfiguration: both modes manage the same Nodes.
#[tokio::test(start_paused = true)]
async fn both_modes_at_once_do_not_fight() {
    let cluster = Cluster::new(fifty());
    cluster.manage_centrally().await;
    cluster.names().iter().for_each(|name| drop(cluster.manage(name, SETTINGS)));
    cluster.register(|node| node);
    cluster.until_initialized().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let initial = cluster.node_writes().len();
    // The second writer may have decided before it saw the first write. Then the server rejects it by the resource version.
    assert!(initial <= 4 * cluster.names().len(), "{initial} writes for 50 nodes");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(cluster.node_writes().len(), initial, "an hour later: {:?}", cluster.node_writes().split_off(initial));
}

/// The metadata service reports both families, ARM one. Neither mode removes addresses that the other has written.
#[tokio::test(start_paused = true)]
async fn both_modes_at_once_do_not_fight_over_families() {
    let cluster = Cluster::new(Topology::new().dual_stack().pool(Pool::new(PoolKind::Uniform, "pool1", 3).public_ips()));
    cluster.manage_centrally().await;
    cluster.register(|node| node);
    cluster.until_initialized().await;
    cluster.names().iter().for_each(|name| drop(cluster.manage(name, SETTINGS)));
    tokio::time::sleep(PERIOD * 2).await;
    let settled = cluster.node_writes().len();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(cluster.node_writes().len(), settled);
    let addresses = cluster.node(NODE).status.unwrap().addresses.unwrap();
    assert_eq!(addresses.len(), 5, "{addresses:?}");
}

#[tokio::test(start_paused = true)]
async fn with_wait_routes_the_taint_remains_until_there_is_a_route() {
    let cluster = single_node_cluster();
    cluster.manage(NODE, NodeManagerSettings { wait_routes: true, ..SETTINGS });
    let network = |server: &ApiServer| {
        let node: Node = server.get("", NODE).unwrap();
        let conditions = node.status.unwrap().conditions.unwrap_or_default();
        conditions.into_iter().find(|found| found.type_ == CONDITION_NETWORK_UNAVAILABLE)
    };
    cluster.until("the condition", |server| network(server).is_some()).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let node = cluster.node(NODE);
    assert!(taints::is_uninitialized(&node));
    assert!(
        cloud_controller_manager::node::provider_id(&node).is_some(),
        "the route controller needs the id to find the machine"
    );
    let condition = network(&cluster.server).unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_deref()), ("True", Some("NodeInitialization")));
    assert_eq!(cluster.node_writes().len(), 3, "addresses, labels and id, the condition");
    let reasons: Vec<_> = cluster.events(NODE).into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(reasons, ["WaitingForRoutes"]);

    cluster.server.update_with("", NODE, |node: &mut Node| {
        *node = node.clone().condition(CONDITION_NETWORK_UNAVAILABLE, "False", "RouteCreated");
    });
    let routed = tokio::time::Instant::now();
    cluster.until_initialized().await;
    assert!(routed.elapsed() < Duration::from_secs(1));
    assert_eq!(network(&cluster.server).unwrap().status, "False", "the condition of the route controller is kept");
}

#[tokio::test(start_paused = true)]
async fn another_provider_can_offer_its_own_source() {
    let cluster = single_node_cluster();
    let cloud = FakeCloud::new(FakeConfig::default());
    let addresses = vec![NodeAddress { type_: AddressType::InternalIP, address: "10.9.9.9".into() }];
    cloud.add_instance(NODE, InstanceSpec { addresses, ..InstanceSpec::default() });
    cluster.manage_with(NODE, SETTINGS, Arc::new(cloud));
    cluster.until_initialized().await;
    assert_eq!(cloud_controller_manager::node::provider_id(&cluster.node(NODE)), Some(format!("fake://{NODE}").as_str()));
}

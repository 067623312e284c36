//! The node and node-lifecycle controllers over the in-process API server and the fake cloud, on a paused clock.
#![expect(clippy::unwrap_used, reason = "a test ends where what it needs is missing")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloud_controller_manager::{
    cloud_provider::{AddressType, CloudError, CloudProvider, NodeAddress},
    controllers::{Controller, ControllerContext, Informers, node, node_lifecycle},
    metrics::Metrics,
    node::{prune_node, prune_node_and_labels, taints, unread_fields, unread_fields_and_labels, well_known::*},
    providers::fake::{CallName, FakeCloud, FakeConfig, InstancePresence, InstanceSpec, PowerState},
    runtime::{
        clock::Clock,
        events::{EventRecorder, RecordedEvent},
        informer::Informer,
        leader_election::{Leadership, LeadershipState},
        patch::ObjectWriter,
        shutdown::Shutdown,
    },
    sandbox::{
        aks_node::aks_node,
        api_server::{ApiServer, RequestRecord},
        http::Verb,
        objects::{self, NodeExt, uninitialized_node as tainted},
    },
};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use tokio::sync::mpsc;

#[path = "controllers_node/convergence.rs"]
mod convergence;
#[path = "controllers_node/labels.rs"]
mod labels;
#[path = "controllers_node/plans.rs"]
mod plans;

/// A cluster, a cloud and both controllers.
struct World {
    server: ApiServer,
    cloud: FakeCloud,
    metrics: Arc<Metrics>,
    events: mpsc::Receiver<(&'static str, RecordedEvent)>,
    node: Arc<node::NodeController>,
    lifecycle: Arc<node_lifecycle::NodeLifecycleController>,
    shutdown: Shutdown,
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

fn server() -> ApiServer {
    ApiServer::new(Clock::manual("2024-01-01T00:00:00Z".parse().unwrap()))
}

fn limits() -> node_lifecycle::NodeLifecycleControllerConfig {
    node_lifecycle::NodeLifecycleControllerConfig {
        max_count: 3,
        ..node_lifecycle::NodeLifecycleControllerConfig::default()
    }
}

impl World {
    /// Starts both controllers on `server`.
    async fn start(server: ApiServer, cloud: FakeCloud) -> Self {
        Self::start_as(server, cloud, Leadership::unopposed()).await
    }

    async fn start_as(server: ApiServer, cloud: FakeCloud, leadership: Leadership) -> Self {
        Self::start_with(server, cloud, leadership, node::NodeControllerConfig::default()).await
    }

    async fn start_with(
        server: ApiServer,
        cloud: FakeCloud,
        leadership: Leadership,
        config: node::NodeControllerConfig,
    ) -> Self {
        Self::start_with_both(server, cloud, leadership, config, limits()).await
    }

    async fn start_with_both(
        server: ApiServer,
        cloud: FakeCloud,
        leadership: Leadership,
        config: node::NodeControllerConfig,
        limits: node_lifecycle::NodeLifecycleControllerConfig,
    ) -> Self {
        let clock = Clock::manual("2024-01-01T00:00:00Z".parse().unwrap());
        let metrics = Arc::new(Metrics::new().unwrap());
        let shutdown = Shutdown::new();
        let mut informers = Informers::new(Informer::new(prune_node), Informer::new(|_| ()));
        let (recorder, events) = EventRecorder::channel("node-controller");
        let context = ControllerContext {
            cluster_name: "kubernetes".into(),
            writer: ObjectWriter::new(server.client_as("controllers"), leadership),
            events: recorder,
            clock,
            metrics: Arc::clone(&metrics),
        };
        let provider = Arc::new(cloud.clone());
        let node = node::NodeController::new(&context, &mut informers, provider.clone(), config, None).unwrap();
        let lifecycle = node_lifecycle::NodeLifecycleController::new(&context, &mut informers, provider, limits).unwrap();
        let nodes = informers.nodes.store();
        informers.nodes.start(server.client(), &shutdown, Arc::clone(&metrics));
        nodes.synced().await;
        tokio::spawn(Arc::clone(&node).run(shutdown.clone()));
        tokio::spawn(Arc::clone(&lifecycle).run(shutdown.clone()));
        Self { server, cloud, metrics, events, node, lifecycle, shutdown }
    }

    fn node(&self, name: &str) -> Option<Node> {
        self.server.get("", name)
    }

    /// Waits until `condition` holds for the node, for at most an hour of the paused clock.
    async fn until(&self, name: &str, what: &str, condition: impl Fn(Option<Node>) -> bool) {
        let reached = self.server.wait_until(|server| condition(server.get("", name)));
        let waited = tokio::time::timeout(Duration::from_secs(3600), reached).await;
        assert!(waited.is_ok(), "{name} never {what}: {:?}", self.node(name));
    }

    async fn until_initialized(&self, name: &str) {
        self.until(name, "initialised", |node| node.is_some_and(|node| !taints::is_uninitialized(&node))).await;
    }

    async fn until_deleted(&self, name: &str) {
        self.until(name, "deleted", |node| node.is_none()).await;
    }

    /// Reasons of the events so far.
    fn reasons(&mut self) -> Vec<&'static str> {
        std::iter::from_fn(|| self.events.try_recv().ok()).map(|(_, event)| event.reason).collect()
    }

    fn writes(&self) -> Vec<(Verb, String)> {
        let requests = self.server.requests();
        requests.into_iter().filter(is_node_write).map(|request| (request.verb, request.subresource)).collect()
    }
}

fn is_node_write(request: &RequestRecord) -> bool {
    request.resource == "nodes" && !matches!(request.verb, Verb::Get | Verb::List | Verb::Watch)
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn plain(name: &str, ready: &str) -> Node {
    objects::node(name).ready(ready)
}

fn ready(node: &mut Node, status: &str) {
    *node = node.clone().ready(status);
}

fn instance() -> InstanceSpec {
    let address = |type_, address: &str| NodeAddress { type_, address: address.into() };
    InstanceSpec {
        addresses: vec![address(AddressType::InternalIP, "10.0.0.1"), address(AddressType::ExternalIP, "132.143.154.163")],
        ..InstanceSpec::default()
    }
}

fn cloud(names: &[&str]) -> FakeCloud {
    let cloud = FakeCloud::new(FakeConfig::default());
    names.iter().for_each(|name| cloud.add_instance(*name, instance()));
    cloud
}

fn addresses(node: &Node) -> Vec<String> {
    let all = node.status.as_ref().and_then(|status| status.addresses.clone()).unwrap_or_default();
    all.iter().map(|address| format!("{} {}", address.type_, address.address)).collect()
}

fn provider_id(node: &Node) -> Option<&str> {
    cloud_controller_manager::node::provider_id(node)
}

#[tokio::test(start_paused = true)]
async fn a_new_node_is_initialised_in_two_writes() {
    let mut world = World::start(server(), cloud(&["n"])).await;
    world.server.create(&tainted("n"));
    world.until_initialized("n").await;
    pass(1000).await;

    let node = world.node("n").unwrap();
    assert_eq!(provider_id(&node), Some("fake://n"));
    assert_eq!(addresses(&node), ["InternalIP 10.0.0.1", "ExternalIP 132.143.154.163", "Hostname n"]);
    let labels = node.metadata.labels.unwrap();
    for (key, value) in [(LABEL_ZONE, "fake-zone-1"), (LABEL_REGION, "fake-region"), (LABEL_INSTANCE_TYPE, "fake.standard")]
    {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(world.writes(), [(Verb::Patch, "status".to_owned()), (Verb::Patch, String::new())]);
    assert_eq!(world.reasons(), ["Synced"]);
    assert_eq!(world.metrics.node_taint_removal_delay.with_label_values::<&str>(&[]).get_sample_count(), 1);
}

/// Upstream: `Test_syncNode`, the rows for `Instances`.
#[tokio::test(start_paused = true)]
async fn a_cloud_with_the_older_interfaces_does_as_well() {
    let cloud = cloud(&["n"]);
    cloud.configure(|config| config.instances_v2 = false);
    let world = World::start(server(), cloud).await;
    world.server.create(&tainted("n"));
    world.server.create(&plain("gone", "Unknown"));
    world.until_initialized("n").await;
    world.until_deleted("gone").await;
    let node = world.node("n").unwrap();
    assert_eq!(provider_id(&node), Some("fake://n"));
    assert_eq!(addresses(&node).len(), 3);
    assert_eq!(node.metadata.labels.unwrap()[LABEL_ZONE], "fake-zone-1");
}

struct NoCloud;

impl CloudProvider for NoCloud {
    fn provider_name(&self) -> &str {
        "none"
    }
}

#[tokio::test(start_paused = true)]
async fn a_cloud_without_instances_is_refused() {
    let mut informers = Informers::new(Informer::new(prune_node), Informer::new(|_| ()));
    let context = ControllerContext {
        cluster_name: "kubernetes".into(),
        writer: ObjectWriter::new(server().client(), Leadership::unopposed()),
        events: EventRecorder::channel("node-controller").0,
        clock: Clock::System,
        metrics: Arc::new(Metrics::new().unwrap()),
    };
    let config = node::NodeControllerConfig::default();
    let error = node::NodeController::new(&context, &mut informers, Arc::new(NoCloud), config, None).err().unwrap();
    assert!(error.to_string().contains("--controllers=*,-cloud-node-controller"), "{error}");
    let lifecycle = node_lifecycle::NodeLifecycleController::new(&context, &mut informers, Arc::new(NoCloud), limits());
    assert!(lifecycle.err().unwrap().to_string().contains("cloud-node-lifecycle-controller"));
}

/// Only a replica that leads writes; what it could not write is not forgotten.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_without_leading() {
    let (election, leadership) = Leadership::channel();
    let world = World::start_as(server(), cloud(&["n", "off"]), leadership).await;
    world.cloud.set_power("off", PowerState::Stopped);
    for node in [tainted("n"), plain("off", "False"), plain("gone", "False")] {
        world.server.create(&node);
    }
    pass(500).await;
    assert_eq!(world.writes(), []);
    election.send_replace(LeadershipState::Unopposed);
    world.until_initialized("n").await;
    world.until("off", "tainted", |node| taints::has_shutdown(&node.unwrap())).await;
    world.until_deleted("gone").await;
}

#[tokio::test(start_paused = true)]
async fn many_nodes_cost_two_writes_each_and_few_cloud_calls() {
    let server = server();
    let names: Vec<_> = (0..200).map(|n| format!("n{n}")).collect();
    let cloud = cloud(&names.iter().map(String::as_str).collect::<Vec<_>>());
    names.iter().for_each(|name| drop(server.create(&tainted(name))));
    let world = World::start(server, cloud).await;
    for name in &names {
        world.until_initialized(name).await;
    }
    pass(10).await;
    assert_eq!(world.writes().len(), 400);
    let batches = world.cloud.call_count(CallName::InstanceMetadataBatch);
    assert!(batches <= 10, "{batches} batches for 200 nodes");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_decided_anew_on_what_others_wrote() {
    for subresource in ["status", ""] {
        let world = World::start(server(), cloud(&["n"])).await;
        world.server.faults().fail_next(1, 409, move |request| is_node_write(request) && request.subresource == subresource);
        world.cloud.set_latency(CallName::InstanceMetadataBatch, Duration::from_secs(5));
        world.server.create(&tainted("n"));
        pass(2).await;
        world.server.update_with::<Node>("", "n", |node| {
            node.metadata.labels = Some(BTreeMap::from([("written".to_owned(), "by-others".to_owned())]));
        });
        world.until_initialized("n").await;
        let node = world.node("n").unwrap();
        assert_eq!(node.metadata.labels.unwrap()["written"], "by-others");
        assert_eq!(world.cloud.call_count(CallName::InstanceMetadataBatch), 1, "the cloud is not asked again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_lags_costs_no_further_writes() {
    let world = World::start(server(), cloud(&["n"])).await;
    world.cloud.set_latency(CallName::InstanceMetadataBatch, Duration::from_secs(5));
    world.server.create(&tainted("n"));
    pass(2).await;
    world.server.faults().delay_every(Duration::from_secs(60), |request| request.verb == Verb::Watch);
    world.server.faults().drop_watches();
    world.server.update_with("", "n", |node| ready(node, "Unknown"));
    world.until_initialized("n").await;
    pass(30).await;
    let codes: Vec<_> = world.server.requests().iter().filter(|request| is_node_write(request)).map(|r| r.code).collect();
    assert_eq!(codes, [409, 200, 200], "one decision on what was known before the update, then one on the live node");
    assert_eq!(world.cloud.call_count(CallName::InstanceMetadataBatch), 1);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_change_while_they_wait_for_their_turn_are_no_conflicts() {
    /// Nodes that are written at once.
    const TURNS: usize = 128;
    let server = server();
    let names: Vec<_> = (0..TURNS + 70).map(|n| format!("n{n}")).collect();
    let cloud = cloud(&names.iter().map(String::as_str).collect::<Vec<_>>());
    names.iter().for_each(|name| drop(server.create(&tainted(name))));
    server.faults().delay_every(Duration::from_secs(20), is_node_write);
    let world = World::start(server, cloud).await;
    pass(10).await;
    names.iter().for_each(|name| drop(world.server.update_with("", name, |node| ready(node, "Unknown"))));
    for name in &names {
        world.until_initialized(name).await;
    }
    let conflicts = world.server.requests().iter().filter(|request| is_node_write(request) && request.code == 409).count();
    assert!(conflicts <= TURNS, "{conflicts} conflicts");
}

#[tokio::test(start_paused = true)]
async fn what_others_initialised_in_between_is_left_alone() {
    let world = World::start(server(), cloud(&["n"])).await;
    world.cloud.set_latency(CallName::InstanceMetadataBatch, Duration::from_secs(5));
    world.server.create(&tainted("n"));
    pass(2).await;
    world.server.update_with::<Node>("", "n", |node| node.spec.as_mut().unwrap().taints = None);
    pass(100).await;
    assert_eq!(provider_id(&world.node("n").unwrap()), None);
}

#[tokio::test(start_paused = true)]
async fn a_node_of_nobody_keeps_its_taint() {
    let cloud = cloud(&[]);
    cloud.add_instance("n", InstanceSpec { managed: false, ..instance() });
    let mut world = World::start(server(), cloud).await;
    world.server.create(&tainted("n"));
    pass(100).await;
    assert!(taints::is_uninitialized(&world.node("n").unwrap()));
    assert_eq!(world.writes(), []);
    assert_eq!(world.reasons(), ["NoCloudInstance"]);

    world.cloud.change_instance("n", |spec| spec.managed = true);
    world.until_initialized("n").await;
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_cloud_keeps_the_taint_until_it_passes() {
    let mut world = World::start(server(), cloud(&["n", "other"])).await;
    world.cloud.change_instance("n", |spec| spec.existence = InstancePresence::Unknown);
    world.server.create(&tainted("n"));
    world.server.create(&tainted("other"));
    world.until_initialized("other").await;
    pass(100).await;
    assert!(taints::is_uninitialized(&world.node("n").unwrap()));
    assert_eq!(provider_id(&world.node("n").unwrap()), None);
    assert!(world.reasons().contains(&"InstanceMetadataFailed"));
    world.cloud.change_instance("n", |spec| spec.existence = InstancePresence::Exists);
    world.until_initialized("n").await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_provided_ip_keeps_the_taint_and_writes_nothing() {
    for ip in ["invalid-ip", "10.0.0.2"] {
        let mut world = World::start(server(), cloud(&["n"])).await;
        let mut node = tainted("n");
        node.metadata.annotations = Some(BTreeMap::from([(ANNOTATION_PROVIDED_NODE_IP.to_owned(), ip.to_owned())]));
        world.server.create(&node);
        pass(100).await;
        assert!(taints::is_uninitialized(&world.node("n").unwrap()));
        assert_eq!(world.writes(), []);
        assert!(world.reasons().contains(&"NodeInitializationFailed"));
    }
}

#[tokio::test(start_paused = true)]
async fn addresses_follow_and_edited_labels_stay() {
    let world = World::start(server(), cloud(&["n"])).await;
    world.server.create(&tainted("n"));
    world.until_initialized("n").await;
    world.cloud.change_instance("n", |spec| spec.addresses[0].address = "10.0.0.9".into());
    world.until("n", "updated", |node| addresses(&node.unwrap())[0] == "InternalIP 10.0.0.9").await;
    world.server.update_with::<Node>("", "n", |node| {
        let labels = node.metadata.labels.as_mut().unwrap();
        labels.insert(LABEL_ZONE.into(), "edited".into());
        labels.insert(LABEL_ZONE_BETA.into(), "older".into());
    });
    world.server.clear_requests();
    pass(3000).await;
    assert_eq!(world.writes(), [], "nothing changes: nothing is written");
    assert_eq!(world.node("n").unwrap().metadata.labels.unwrap()[LABEL_ZONE], "edited");
}

#[tokio::test(start_paused = true)]
async fn shutdown_taint_stays_until_instance_runs_or_node_is_ready() {
    for is_restarted in [true, false] {
        let mut world = World::start(server(), cloud(&["n"])).await;
        world.server.create(&plain("n", if is_restarted { "Unknown" } else { "False" }));
        world.cloud.set_power("n", PowerState::Stopped);
        world.until("n", "tainted", |node| taints::has_shutdown(&node.unwrap())).await;
        pass(100).await;
        if is_restarted {
            world.cloud.set_power("n", PowerState::Running);
        } else {
            world.server.update_with("", "n", |node| ready(node, "True"));
        }
        world.until("n", "untainted", |node| !taints::has_shutdown(&node.unwrap())).await;
        pass(1).await;
        assert_eq!(world.reasons(), ["ShutdownTaintAdded", "ShutdownTaintRemoved"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_ready_node_is_neither_tainted_nor_deleted() {
    let world = World::start(server(), cloud(&["off"])).await;
    world.cloud.set_power("off", PowerState::Stopped);
    world.server.create(&plain("off", "True"));
    world.server.create(&plain("gone", "True"));
    pass(1000).await;
    assert!(!taints::has_shutdown(&world.node("off").unwrap()));
    assert!(world.node("gone").is_some());
    assert_eq!(world.cloud.call_count(CallName::InstanceExists), 0);
}

/// Upstream: `--concurrent-node-lifecycle-syncs` and `monitor_nodes_duration_seconds`.
#[tokio::test(start_paused = true)]
async fn no_more_nodes_than_configured_are_checked_at_a_time() {
    let names: Vec<_> = (0..6).map(|n| format!("n{n}")).collect();
    for (concurrent_syncs, seconds) in [(1, 6.0), (3, 2.0), (100, 1.0)] {
        let (server, cloud) = (server(), cloud(&names.iter().map(String::as_str).collect::<Vec<_>>()));
        cloud.set_latency(CallName::InstanceExists, Duration::from_secs(1));
        names.iter().for_each(|name| drop(server.create(&plain(name, "Unknown"))));
        let monitor_period = Duration::from_secs(60);
        let limits = node_lifecycle::NodeLifecycleControllerConfig { concurrent_syncs, monitor_period, ..limits() };
        let config = node::NodeControllerConfig::default();
        let world = World::start_with_both(server, cloud, Leadership::unopposed(), config, limits).await;
        pass(30).await;
        let passes = world.metrics.monitor_nodes_duration.with_label_values::<&str>(&[]);
        let found = (passes.get_sample_count(), passes.get_sample_sum().round());
        assert_eq!(found, (1, seconds), "{concurrent_syncs} at a time");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gone_instance_is_deleted_after_confirmation_and_grace() {
    for status in ["False", "Unknown"] {
        let mut world = World::start(server(), cloud(&["exists"])).await;
        world.server.create(&plain("exists", status));
        world.server.create(&plain("n", status));
        pass(14).await;
        assert!(world.node("n").is_some(), "within the grace period");
        assert!(world.cloud.objects_of(CallName::InstanceExists).iter().filter(|name| *name == "n").count() >= 2);
        world.until_deleted("n").await;
        pass(100).await;
        assert!(world.node("exists").is_some());
        assert_eq!(world.reasons(), ["InstanceMissing", "DeletingNode"]);
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_never_deletes() {
    let world = World::start(server(), cloud(&["n"])).await;
    world.server.create(&plain("n", "Unknown"));
    world.cloud.change_instance("n", |spec| spec.existence = InstancePresence::Unknown);
    pass(10_000).await;
    assert!(world.node("n").is_some());
    let waiting = world.lifecycle.status().unsettled;
    assert!(waiting[0].reason.as_ref().unwrap().contains("could not be told"), "{waiting:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_made_anew_is_not_deleted_for_the_old_one() {
    let mut world = World::start(server(), cloud(&[])).await;
    world.server.create(&plain("n", "False"));
    world.server.faults().delay_every(Duration::from_secs(30), |request| request.verb == Verb::Delete);
    while world.events.recv().await.unwrap().1.reason != "DeletingNode" {}
    pass(1).await;
    let old = world.node("n").unwrap().metadata.uid;
    world.cloud.add_instance("n", instance());
    assert!(world.server.delete::<Node>("", "n"));
    world.server.create(&plain("n", "False"));
    pass(1000).await;
    let new = world.node("n").unwrap().metadata.uid;
    assert_ne!(new, old);
    assert_eq!(world.metrics.node_deletions_refused_total.with_label_values(&["recreated"]).get(), 1.0);
}

#[tokio::test(start_paused = true)]
async fn mass_deletion_is_refused_until_fewer_are_gone() {
    let names: Vec<_> = (0..10).map(|n| format!("n{n}")).collect();
    let mut world = World::start(server(), cloud(&names.iter().map(String::as_str).collect::<Vec<_>>())).await;
    names.iter().for_each(|name| drop(world.server.create(&plain(name, "False"))));
    names[..5].iter().for_each(|name| world.cloud.remove_instance(name));
    pass(1500).await;
    assert_eq!(world.server.list::<Node>().len(), 10);
    assert_eq!(world.metrics.node_deletions_refused_total.with_label_values(&["mass_deletion"]).get(), 5.0);
    assert!(world.reasons().contains(&"NodeDeletionRefused"));
    assert!(world.lifecycle.status().facts["node deletions held back"].contains("5 of 10"));

    names[3..5].iter().for_each(|name| world.cloud.change_instance(name, |spec| spec.existence = InstancePresence::Exists));
    for name in &names[..3] {
        world.until_deleted(name).await;
    }
    pass(1000).await;
    assert_eq!(world.server.list::<Node>().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_holds_up_nobody_else() {
    let world = World::start(server(), cloud(&["hangs"])).await;
    let behaviour = serde_json::from_value(json!({"hang": true, "objects": ["hangs"]})).unwrap();
    world.cloud.configure(|config| drop(config.calls.insert(CallName::InstanceExists, behaviour)));
    world.server.create(&plain("hangs", "Unknown"));
    world.server.create(&plain("n", "Unknown"));
    world.until_deleted("n").await;
    assert!(world.node("hangs").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_named() {
    let world = World::start(server(), cloud(&["n"])).await;
    world.cloud.set_power("n", PowerState::Stopped);
    world.server.faults().fail_every(403, is_node_write);
    world.server.create(&plain("n", "False"));
    world.server.wait_until(|server| server.requests().iter().any(is_node_write)).await;
    pass(1).await;
    assert!(world.lifecycle.status().problem.unwrap().contains("ClusterRole"));
    world.server.faults().clear();
    world.until("n", "tainted", |node| taints::has_shutdown(&node.unwrap())).await;
    pass(1).await;
    assert_eq!(world.lifecycle.status().problem, None);
}

/// What goes before a Node is decoded is nothing that is kept otherwise.
#[tokio::test(start_paused = true)]
async fn a_node_of_aks_is_kept_as_if_it_had_been_decoded_whole() {
    let (server, stop) = (ApiServer::new(Clock::System), Shutdown::new());
    server.restore::<Node>(&aks_node(7));
    let metrics = Arc::new(Metrics::new().unwrap());
    let kept = async |informer: Informer<Node>| {
        let store = informer.store();
        informer.start(server.client(), &stop, Arc::clone(&metrics));
        store.synced().await;
        Arc::unwrap_or_clone(store.list().pop().unwrap())
    };
    let mut whole = kept(Informer::new(|_| ())).await;
    assert!(whole.status.as_ref().unwrap().images.is_some() && whole.metadata.managed_fields.is_none());
    prune_node(&mut whole);
    assert_eq!(kept(Informer::new(prune_node).without(unread_fields())).await, whole);
    assert_eq!(whole.metadata.labels.as_ref().unwrap().len(), 40);
    let reads = |key: &str| key == "agentpool";
    let early = Informer::new(move |node| prune_node_and_labels(node, reads)).without(unread_fields_and_labels(reads));
    prune_node_and_labels(&mut whole, reads);
    assert_eq!(kept(early).await, whole);
}

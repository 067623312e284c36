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

/// API server, cloud and both controllers.
struct Cluster {
    server: ApiServer,
    cloud: FakeCloud,
    metrics: Arc<Metrics>,
    events: mpsc::Receiver<(&'static str, RecordedEvent)>,
    node: Arc<node::NodeController>,
    lifecycle: Arc<node_lifecycle::NodeLifecycleController>,
    shutdown: Shutdown,
}

impl Drop for Cluster {
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

impl Cluster {
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
    async fn until(&self, name: &str, change: &str, condition: impl Fn(Option<Node>) -> bool) {
        let met = self.server.wait_until(|server| condition(server.get("", name)));
        let waited = tokio::time::timeout(Duration::from_secs(3600), met).await;
        assert!(waited.is_ok(), "{name} never {change}: {:?}", self.node(name));
    }

    async fn until_initialized(&self, name: &str) {
        self.until(name, "initialized", |node| node.is_some_and(|node| !taints::is_uninitialized(&node))).await;
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
async fn a_new_node_is_initialized_in_two_writes() {
    let mut cluster = Cluster::start(server(), cloud(&["n"])).await;
    cluster.server.create(&tainted("n"));
    cluster.until_initialized("n").await;
    pass(1000).await;

    let node = cluster.node("n").unwrap();
    assert_eq!(provider_id(&node), Some("fake://n"));
    assert_eq!(addresses(&node), ["InternalIP 10.0.0.1", "ExternalIP 132.143.154.163", "Hostname n"]);
    let labels = node.metadata.labels.unwrap();
    for (key, value) in [(LABEL_ZONE, "fake-zone-1"), (LABEL_REGION, "fake-region"), (LABEL_INSTANCE_TYPE, "fake.standard")]
    {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(cluster.writes(), [(Verb::Patch, "status".to_owned()), (Verb::Patch, String::new())]);
    assert_eq!(cluster.reasons(), ["Synced"]);
    assert_eq!(cluster.metrics.node_taint_removal_delay.with_label_values::<&str>(&[]).get_sample_count(), 1);
}

/// Upstream: `Test_syncNode`, the rows for `Instances`.
#[tokio::test(start_paused = true)]
async fn a_cloud_with_the_older_interfaces_is_supported() {
    let cloud = cloud(&["n"]);
    cloud.configure(|config| config.instances_v2 = false);
    let cluster = Cluster::start(server(), cloud).await;
    cluster.server.create(&tainted("n"));
    cluster.server.create(&plain("gone", "Unknown"));
    cluster.until_initialized("n").await;
    cluster.until_deleted("gone").await;
    let node = cluster.node("n").unwrap();
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

/// Only a leader writes. A new leader catches up on pending changes.
#[tokio::test(start_paused = true)]
async fn a_standby_writes_no_node() {
    let (election, leadership) = Leadership::channel();
    let cluster = Cluster::start_as(server(), cloud(&["n", "off"]), leadership).await;
    cluster.cloud.set_power("off", PowerState::Stopped);
    for node in [tainted("n"), plain("off", "False"), plain("gone", "False")] {
        cluster.server.create(&node);
    }
    pass(500).await;
    assert_eq!(cluster.writes(), []);
    election.send_replace(LeadershipState::Unopposed);
    cluster.until_initialized("n").await;
    cluster.until("off", "tainted", |node| taints::has_shutdown(&node.unwrap())).await;
    cluster.until_deleted("gone").await;
}

#[tokio::test(start_paused = true)]
async fn many_nodes_cost_two_writes_each_and_few_cloud_calls() {
    let server = server();
    let names: Vec<_> = (0..200).map(|n| format!("n{n}")).collect();
    let cloud = cloud(&names.iter().map(String::as_str).collect::<Vec<_>>());
    names.iter().for_each(|name| drop(server.create(&tainted(name))));
    let cluster = Cluster::start(server, cloud).await;
    for name in &names {
        cluster.until_initialized(name).await;
    }
    pass(10).await;
    assert_eq!(cluster.writes().len(), 400);
    let batches = cluster.cloud.call_count(CallName::InstanceMetadataBatch);
    assert!(batches <= 10, "{batches} batches for 200 nodes");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_resolved_with_the_changes_of_others() {
    for subresource in ["status", ""] {
        let cluster = Cluster::start(server(), cloud(&["n"])).await;
        cluster
            .server
            .faults()
            .fail_next(1, 409, move |request| is_node_write(request) && request.subresource == subresource);
        cluster.cloud.set_latency(CallName::InstanceMetadataBatch, Duration::from_secs(5));
        cluster.server.create(&tainted("n"));
        pass(2).await;
        cluster.server.update_with::<Node>("", "n", |node| {
            node.metadata.labels = Some(BTreeMap::from([("written".to_owned(), "by-others".to_owned())]));
        });
        cluster.until_initialized("n").await;
        let node = cluster.node("n").unwrap();
        assert_eq!(node.metadata.labels.unwrap()["written"], "by-others");
        assert_eq!(cluster.cloud.call_count(CallName::InstanceMetadataBatch), 1, "no second request to the cloud");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_lags_costs_no_further_writes() {
    let cluster = Cluster::start(server(), cloud(&["n"])).await;
    cluster.cloud.set_latency(CallName::InstanceMetadataBatch, Duration::from_secs(5));
    cluster.server.create(&tainted("n"));
    pass(2).await;
    cluster.server.faults().delay_every(Duration::from_secs(60), |request| request.verb == Verb::Watch);
    cluster.server.faults().drop_watches();
    cluster.server.update_with("", "n", |node| ready(node, "Unknown"));
    cluster.until_initialized("n").await;
    pass(30).await;
    let codes: Vec<_> = cluster.server.requests().iter().filter(|request| is_node_write(request)).map(|r| r.code).collect();
    assert_eq!(codes, [409, 200, 200], "one decision on the cached Node, then one on the live Node");
    assert_eq!(cluster.cloud.call_count(CallName::InstanceMetadataBatch), 1);
}

#[tokio::test(start_paused = true)]
async fn changes_of_queued_nodes_cause_no_conflicts() {
    /// Maximum number of Nodes that are written in parallel.
    const MAX_CONCURRENT_WRITES: usize = 128;
    let server = server();
    let names: Vec<_> = (0..MAX_CONCURRENT_WRITES + 70).map(|n| format!("n{n}")).collect();
    let cloud = cloud(&names.iter().map(String::as_str).collect::<Vec<_>>());
    names.iter().for_each(|name| drop(server.create(&tainted(name))));
    server.faults().delay_every(Duration::from_secs(20), is_node_write);
    let cluster = Cluster::start(server, cloud).await;
    pass(10).await;
    names.iter().for_each(|name| drop(cluster.server.update_with("", name, |node| ready(node, "Unknown"))));
    for name in &names {
        cluster.until_initialized(name).await;
    }
    let conflicts = cluster.server.requests().iter().filter(|request| is_node_write(request) && request.code == 409).count();
    assert!(conflicts <= MAX_CONCURRENT_WRITES, "{conflicts} conflicts");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_another_writer_initialized_is_not_changed() {
    let cluster = Cluster::start(server(), cloud(&["n"])).await;
    cluster.cloud.set_latency(CallName::InstanceMetadataBatch, Duration::from_secs(5));
    cluster.server.create(&tainted("n"));
    pass(2).await;
    cluster.server.update_with::<Node>("", "n", |node| node.spec.as_mut().unwrap().taints = None);
    pass(100).await;
    assert_eq!(provider_id(&cluster.node("n").unwrap()), None);
}

#[tokio::test(start_paused = true)]
async fn a_node_of_an_unmanaged_instance_keeps_its_taint() {
    let cloud = cloud(&[]);
    cloud.add_instance("n", InstanceSpec { managed: false, ..instance() });
    let mut cluster = Cluster::start(server(), cloud).await;
    cluster.server.create(&tainted("n"));
    pass(100).await;
    assert!(taints::is_uninitialized(&cluster.node("n").unwrap()));
    assert_eq!(cluster.writes(), []);
    assert_eq!(cluster.reasons(), ["NoCloudInstance"]);

    cluster.cloud.change_instance("n", |spec| spec.managed = true);
    cluster.until_initialized("n").await;
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_cloud_keeps_the_taint_until_it_passes() {
    let mut cluster = Cluster::start(server(), cloud(&["n", "other"])).await;
    cluster.cloud.change_instance("n", |spec| spec.existence = InstancePresence::Unknown);
    cluster.server.create(&tainted("n"));
    cluster.server.create(&tainted("other"));
    cluster.until_initialized("other").await;
    pass(100).await;
    assert!(taints::is_uninitialized(&cluster.node("n").unwrap()));
    assert_eq!(provider_id(&cluster.node("n").unwrap()), None);
    assert!(cluster.reasons().contains(&"InstanceMetadataFailed"));
    cluster.cloud.change_instance("n", |spec| spec.existence = InstancePresence::Exists);
    cluster.until_initialized("n").await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_provided_ip_keeps_the_taint_and_writes_nothing() {
    for ip in ["invalid-ip", "10.0.0.2"] {
        let mut cluster = Cluster::start(server(), cloud(&["n"])).await;
        let mut node = tainted("n");
        node.metadata.annotations = Some(BTreeMap::from([(ANNOTATION_PROVIDED_NODE_IP.to_owned(), ip.to_owned())]));
        cluster.server.create(&node);
        pass(100).await;
        assert!(taints::is_uninitialized(&cluster.node("n").unwrap()));
        assert_eq!(cluster.writes(), []);
        assert!(cluster.reasons().contains(&"NodeInitializationFailed"));
    }
}

#[tokio::test(start_paused = true)]
async fn addresses_are_updated_and_edited_labels_are_kept() {
    let cluster = Cluster::start(server(), cloud(&["n"])).await;
    cluster.server.create(&tainted("n"));
    cluster.until_initialized("n").await;
    cluster.cloud.change_instance("n", |spec| spec.addresses[0].address = "10.0.0.9".into());
    cluster.until("n", "updated", |node| addresses(&node.unwrap())[0] == "InternalIP 10.0.0.9").await;
    cluster.server.update_with::<Node>("", "n", |node| {
        let labels = node.metadata.labels.as_mut().unwrap();
        labels.insert(LABEL_ZONE.into(), "edited".into());
        labels.insert(LABEL_ZONE_BETA.into(), "older".into());
    });
    cluster.server.clear_requests();
    pass(3000).await;
    assert_eq!(cluster.writes(), [], "writes without a change");
    assert_eq!(cluster.node("n").unwrap().metadata.labels.unwrap()[LABEL_ZONE], "edited");
}

#[tokio::test(start_paused = true)]
async fn shutdown_taint_is_kept_until_instance_runs_or_node_is_ready() {
    for is_restarted in [true, false] {
        let mut cluster = Cluster::start(server(), cloud(&["n"])).await;
        cluster.server.create(&plain("n", if is_restarted { "Unknown" } else { "False" }));
        cluster.cloud.set_power("n", PowerState::Stopped);
        cluster.until("n", "tainted", |node| taints::has_shutdown(&node.unwrap())).await;
        pass(100).await;
        if is_restarted {
            cluster.cloud.set_power("n", PowerState::Running);
        } else {
            cluster.server.update_with("", "n", |node| ready(node, "True"));
        }
        cluster.until("n", "untainted", |node| !taints::has_shutdown(&node.unwrap())).await;
        pass(1).await;
        assert_eq!(cluster.reasons(), ["ShutdownTaintAdded", "ShutdownTaintRemoved"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_ready_node_is_neither_tainted_nor_deleted() {
    let cluster = Cluster::start(server(), cloud(&["off"])).await;
    cluster.cloud.set_power("off", PowerState::Stopped);
    cluster.server.create(&plain("off", "True"));
    cluster.server.create(&plain("gone", "True"));
    pass(1000).await;
    assert!(!taints::has_shutdown(&cluster.node("off").unwrap()));
    assert!(cluster.node("gone").is_some());
    assert_eq!(cluster.cloud.call_count(CallName::InstanceExists), 0);
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
        let cluster = Cluster::start_with_both(server, cloud, Leadership::unopposed(), config, limits).await;
        pass(30).await;
        let passes = cluster.metrics.monitor_nodes_duration.with_label_values::<&str>(&[]);
        let found = (passes.get_sample_count(), passes.get_sample_sum().round());
        assert_eq!(found, (1, seconds), "{concurrent_syncs} at a time");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_instance_is_deleted_after_confirmation_and_grace() {
    for status in ["False", "Unknown"] {
        let mut cluster = Cluster::start(server(), cloud(&["exists"])).await;
        cluster.server.create(&plain("exists", status));
        cluster.server.create(&plain("n", status));
        pass(14).await;
        assert!(cluster.node("n").is_some(), "within the grace period");
        assert!(cluster.cloud.objects_of(CallName::InstanceExists).iter().filter(|name| *name == "n").count() >= 2);
        cluster.until_deleted("n").await;
        pass(100).await;
        assert!(cluster.node("exists").is_some());
        assert_eq!(cluster.reasons(), ["InstanceMissing", "DeletingNode"]);
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_existence_deletes_no_node() {
    let cluster = Cluster::start(server(), cloud(&["n"])).await;
    cluster.server.create(&plain("n", "Unknown"));
    cluster.cloud.change_instance("n", |spec| spec.existence = InstancePresence::Unknown);
    pass(10_000).await;
    assert!(cluster.node("n").is_some());
    let waiting = cluster.lifecycle.status().unsettled;
    assert!(waiting[0].reason.as_ref().unwrap().contains("cannot determine whether"), "{waiting:?}");
}

#[tokio::test(start_paused = true)]
async fn a_recreated_node_is_not_deleted_for_the_old_one() {
    let mut cluster = Cluster::start(server(), cloud(&[])).await;
    cluster.server.create(&plain("n", "False"));
    cluster.server.faults().delay_every(Duration::from_secs(30), |request| request.verb == Verb::Delete);
    while cluster.events.recv().await.unwrap().1.reason != "DeletingNode" {}
    pass(1).await;
    let old = cluster.node("n").unwrap().metadata.uid;
    cluster.cloud.add_instance("n", instance());
    assert!(cluster.server.delete::<Node>("", "n"));
    cluster.server.create(&plain("n", "False"));
    pass(1000).await;
    let new = cluster.node("n").unwrap().metadata.uid;
    assert_ne!(new, old);
    assert_eq!(cluster.metrics.node_deletions_refused_total.with_label_values(&["recreated"]).get(), 1.0);
}

#[tokio::test(start_paused = true)]
async fn mass_deletion_is_refused_until_fewer_instances_are_missing() {
    let names: Vec<_> = (0..10).map(|n| format!("n{n}")).collect();
    let mut cluster = Cluster::start(server(), cloud(&names.iter().map(String::as_str).collect::<Vec<_>>())).await;
    names.iter().for_each(|name| drop(cluster.server.create(&plain(name, "False"))));
    names[..5].iter().for_each(|name| cluster.cloud.remove_instance(name));
    pass(1500).await;
    assert_eq!(cluster.server.list::<Node>().len(), 10);
    assert_eq!(cluster.metrics.node_deletions_refused_total.with_label_values(&["mass_deletion"]).get(), 5.0);
    assert!(cluster.reasons().contains(&"NodeDeletionRefused"));
    assert!(cluster.lifecycle.status().facts["node deletions held back"].contains("5 of 10"));

    names[3..5]
        .iter()
        .for_each(|name| cluster.cloud.change_instance(name, |spec| spec.existence = InstancePresence::Exists));
    for name in &names[..3] {
        cluster.until_deleted(name).await;
    }
    pass(1000).await;
    assert_eq!(cluster.server.list::<Node>().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_call_does_not_delay_other_nodes() {
    let cluster = Cluster::start(server(), cloud(&["hangs"])).await;
    let behavior = serde_json::from_value(json!({"hang": true, "objects": ["hangs"]})).unwrap();
    cluster.cloud.configure(|config| drop(config.calls.insert(CallName::InstanceExists, behavior)));
    cluster.server.create(&plain("hangs", "Unknown"));
    cluster.server.create(&plain("n", "Unknown"));
    cluster.until_deleted("n").await;
    assert!(cluster.node("hangs").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_named() {
    let cluster = Cluster::start(server(), cloud(&["n"])).await;
    cluster.cloud.set_power("n", PowerState::Stopped);
    cluster.server.faults().fail_every(403, is_node_write);
    cluster.server.create(&plain("n", "False"));
    cluster.server.wait_until(|server| server.requests().iter().any(is_node_write)).await;
    pass(1).await;
    assert!(cluster.lifecycle.status().problem.unwrap().contains("ClusterRole"));
    cluster.server.faults().clear();
    cluster.until("n", "tainted", |node| taints::has_shutdown(&node.unwrap())).await;
    pass(1).await;
    assert_eq!(cluster.lifecycle.status().problem, None);
}

/// Fields that are dropped before a Node is decoded are the same as those that are pruned after decoding.
#[tokio::test(start_paused = true)]
async fn early_pruning_of_an_aks_node_equals_late_pruning() {
    let (server, stop) = (ApiServer::new(Clock::System), Shutdown::new());
    server.restore::<Node>(&aks_node(7));
    let metrics = Arc::new(Metrics::new().unwrap());
    let stored = async |informer: Informer<Node>| {
        let store = informer.store();
        informer.start(server.client(), &stop, Arc::clone(&metrics));
        store.synced().await;
        Arc::unwrap_or_clone(store.list().pop().unwrap())
    };
    let mut decoded = stored(Informer::new(|_| ())).await;
    assert!(decoded.status.as_ref().unwrap().images.is_some() && decoded.metadata.managed_fields.is_none());
    prune_node(&mut decoded);
    assert_eq!(stored(Informer::new(prune_node).without(unread_fields())).await, decoded);
    assert_eq!(decoded.metadata.labels.as_ref().unwrap().len(), 40);
    let reads = |key: &str| key == "agentpool";
    let early = Informer::new(move |node| prune_node_and_labels(node, reads)).without(unread_fields_and_labels(reads));
    prune_node_and_labels(&mut decoded, reads);
    assert_eq!(stored(early).await, decoded);
}

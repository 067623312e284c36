//! `--node-filter-requirements`: the whole manager over the in-memory API server and the fake cloud manages the Nodes that
//! the selector selects, and leaves all others unchanged. Paused clock.
#![expect(clippy::unwrap_used, reason = "a test panics if its setup fails")]

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cloud_controller_manager::{
    app::manager::{self, ManagerDeps, ManagerOutcome},
    metrics::Metrics,
    node::taints,
    providers::fake::{CallBehavior, CallName, FakeCloud, FakeConfig},
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{
        api_server::ApiServer,
        objects::{NodeExt, ObjectExt, uninitialized_node},
    },
    sandbox_demo::in_process::InProcess,
};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

struct Cluster {
    server: ApiServer,
    cloud: FakeCloud,
    stop: Shutdown,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

impl Cluster {
    fn new() -> Self {
        let server = ApiServer::new(Clock::manual("2026-01-01T00:00:00Z".parse().unwrap()));
        Self { server, cloud: FakeCloud::new(FakeConfig::any_node()), stop: Shutdown::new() }
    }

    fn parts(&self, flags: &[&str]) -> ManagerDeps {
        let flags = [&["--leader-elect=false"], flags].concat();
        let clients = Arc::new(InProcess(self.server.clone()));
        crate::manager_deps(&flags, clients, self.cloud.clone(), &Arc::new(Metrics::new().unwrap()), Clock::System)
    }

    async fn start(&self, flags: &[&str]) {
        let parts = self.parts(flags);
        let until = self.stop.clone();
        tokio::spawn(async move { manager::run(parts, &until).await });
        pass(30).await;
    }

    fn join(&self, name: &str, labels: &[&str], cidr: &str) {
        let node = uninitialized_node(name).pod_cidrs(&[cidr]);
        self.server.create(&labels.iter().fold(node, |node, label| node.label(label, "")));
    }

    /// Labels the Node, so that the filter of most tests no longer selects it.
    fn hide(&self, name: &str) {
        self.server.update_with("", name, |node: &mut Node| *node = node.clone().label("on-prem", ""));
    }

    /// Sets `Ready` to `Unknown`, as if the kubelet had stopped reporting.
    fn silence(&self, name: &str) {
        self.server.update_with("", name, |node: &mut Node| *node = node.clone().ready("Unknown"));
    }

    fn node(&self, name: &str) -> Option<Node> {
        self.server.get("", name)
    }

    fn is_initialized(&self, name: &str) -> bool {
        !taints::is_uninitialized(&self.node(name).unwrap())
    }

    fn routed(&self) -> BTreeSet<String> {
        self.cloud.routes().into_iter().map(|route| route.target_node).collect()
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const ROUTES: &str = "--cluster-cidr=10.244.0.0/16";

#[tokio::test(start_paused = true)]
async fn unselected_nodes_are_ignored_and_keep_their_routes() {
    let cluster = Cluster::new();
    cluster.join("ours", &[], "10.244.1.0/24");
    cluster.join("theirs", &["on-prem"], "10.244.2.0/24");
    cluster.join("moves", &[], "10.244.3.0/24");
    cluster.start(&["--node-filter-requirements=!on-prem", ROUTES]).await;
    assert!(cluster.is_initialized("ours") && cluster.is_initialized("moves"));
    assert!(!cluster.is_initialized("theirs"), "a Node of another program");
    assert_eq!(cluster.routed(), names(&["ours", "moves"]));

    // A Node that is no longer selected does not count as deleted.
    cluster.hide("moves");
    pass(30).await;
    assert_eq!(cluster.routed(), names(&["ours", "moves"]));
    cluster.cloud.configure(|config| *config = FakeConfig::default());
    cluster.silence("moves");
    pass(3_600).await;
    assert!(cluster.node("moves").is_some(), "the machine of an unselected Node is not checked");

    // A deleted Node loses its routes.
    cluster.server.delete::<Node>("", "moves");
    cluster.server.delete::<Node>("", "ours");
    pass(400).await;
    assert_eq!(cluster.routed(), names(&[]));
}

#[tokio::test(start_paused = true)]
async fn node_hidden_during_its_existence_check_is_kept() {
    for seconds in (4..100).step_by(8) {
        let cluster = Cluster::new();
        cluster.join("moves", &[], "10.244.3.0/24");
        cluster.start(&["--node-filter-requirements=!on-prem"]).await;
        let slow = CallBehavior { latency: Duration::from_secs(16), ..CallBehavior::default() };
        cluster.cloud.configure(|config| {
            *config = FakeConfig { calls: [(CallName::InstanceExists, slow)].into(), ..FakeConfig::default() };
        });
        cluster.silence("moves");
        pass(seconds).await;
        if cluster.node("moves").is_none() {
            assert!(seconds > 40, "deleted after {seconds} seconds");
            continue;
        }
        cluster.hide("moves");
        pass(300).await;
        assert!(cluster.node("moves").is_some(), "hidden after {seconds} seconds");
    }
}

#[tokio::test(start_paused = true)]
async fn hidden_node_keeps_only_routes_to_its_current_cidr() {
    let cluster = Cluster::new();
    cluster.join("moves", &[], "10.244.3.0/24");
    cluster.start(&["--node-filter-requirements=!on-prem", ROUTES]).await;
    assert_eq!(cluster.routed(), names(&["moves"]));
    cluster.server.delete::<Node>("", "moves");
    cluster.join("moves", &["on-prem"], "10.244.7.0/24");
    pass(400).await;
    assert_eq!(cluster.routed(), names(&[]), "the CIDR is free for another Node");
}

#[tokio::test(start_paused = true)]
async fn without_a_filter_all_nodes_are_ours() {
    let cluster = Cluster::new();
    cluster.join("ours", &[], "10.244.1.0/24");
    cluster.join("theirs", &["on-prem"], "10.244.2.0/24");
    cluster.start(&["--node-filter-requirements=", ROUTES]).await;
    assert!(cluster.is_initialized("ours") && cluster.is_initialized("theirs"));
    assert_eq!(cluster.routed(), names(&["ours", "theirs"]));
}

#[tokio::test(start_paused = true)]
async fn services_are_watched_only_for_their_controller() {
    for (controllers, expected) in [("cloud-node", false), ("*,-service", false), ("service", true), ("*", true)] {
        let cluster = Cluster::new();
        cluster.join("ours", &[], "10.244.1.0/24");
        cluster.server.clear_requests();
        cluster.start(&[&format!("--controllers={controllers}"), ROUTES]).await;
        let watched = cluster.server.requests().iter().any(|request| request.resource == "services");
        assert_eq!(watched, expected, "{controllers}");
        assert_eq!(cluster.is_initialized("ours"), controllers != "service", "{controllers}");
    }
}

#[tokio::test(start_paused = true)]
async fn fake_cloud_refuses_to_lead_a_cluster_of_another_cloud() {
    let cluster = Cluster::new();
    cluster.join("worker-1", &[], "10.244.0.0/24");
    let azure = json!({"metadata": {"name": "worker-2"}, "spec": {"providerID": "azure:///subscriptions/s"}});
    cluster.server.create::<Node>(&serde_json::from_value(azure).unwrap());
    let ended = manager::run(cluster.parts(&["--configure-cloud-routes=false"]), &cluster.stop).await;
    assert_eq!(ended.unwrap(), ManagerOutcome::ClusterRefused);
    assert!(!cluster.is_initialized("worker-1"), "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn the_fake_cloud_ends_when_a_node_of_another_cloud_joins() {
    let cluster = Cluster::new();
    let (parts, stop) = (cluster.parts(&["--configure-cloud-routes=false"]), cluster.stop.clone());
    let manager = tokio::spawn(async move { manager::run(parts, &stop).await });
    pass(30).await;
    assert!(!manager.is_finished(), "an empty cluster may become its own");
    let azure = json!({"metadata": {"name": "worker-2"}, "spec": {"providerID": "azure:///subscriptions/s"}});
    cluster.server.create::<Node>(&serde_json::from_value(azure).unwrap());
    let ended = tokio::time::timeout(Duration::from_secs(60), manager).await.unwrap().unwrap();
    assert_eq!(ended.unwrap(), ManagerOutcome::ClusterRefused);
}

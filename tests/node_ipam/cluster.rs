//! A cluster whose manager allocates pod CIDRs, and replicas that can be killed.

use std::{
    collections::BTreeMap,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cloud_controller_manager::{
    app::manager,
    metrics::Metrics,
    node::taints,
    providers::fake::{FakeCloud, FakeConfig},
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{api_server::ApiServer, objects::uninitialized_node},
};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Event, Node};

use super::mortal::{Life, MortalClients};

/// Running manager.
pub(crate) struct Replica {
    pub(crate) life: Life,
    stop: Shutdown,
}

impl Replica {
    /// Stops the manager and drops its further requests. Requests that have reached the server are still executed.
    pub(crate) fn kill(&self) {
        self.life.end();
        self.stop.begin();
    }

    /// Stops the manager as SIGTERM does.
    pub(crate) fn stop(&self) {
        self.stop.begin();
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Taint {
    Uninitialized,
    None,
}

pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) cloud: FakeCloud,
    /// Replicas so far; their user agents begin with `replica-0/` and so on.
    replicas: AtomicUsize,
    stop: Shutdown,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let server = ApiServer::new(Clock::manual("2026-01-01T00:00:00Z".parse().unwrap()));
        let cloud = FakeCloud::new(FakeConfig::any_node());
        Self { server, cloud, replicas: AtomicUsize::new(0), stop: Shutdown::new() }
    }

    /// Starts a manager that allocates, without leader election.
    pub(crate) fn start(&self, flags: &[&str]) -> Replica {
        self.run(&[&["--allocate-node-cidrs=true", "--leader-elect=false"], flags].concat(), Life::default())
    }

    pub(crate) fn start_without(&self, flags: &[&str]) {
        self.run(&[&["--leader-elect=false"], flags].concat(), Life::default());
    }

    /// Starts a manager that allocates while it leads.
    pub(crate) fn start_candidate(&self, flags: &[&str]) -> Replica {
        self.start_candidate_for(flags, Life::default())
    }

    /// Starts a manager that allocates while it leads, until `life` ends.
    pub(crate) fn start_candidate_for(&self, flags: &[&str], life: Life) -> Replica {
        self.run(&[&["--allocate-node-cidrs=true"], flags].concat(), life)
    }

    fn run(&self, flags: &[&str], life: Life) -> Replica {
        let name = format!("replica-{}", self.replicas.fetch_add(1, Ordering::SeqCst));
        let clients = MortalClients::new(&self.server, &name, &life, None);
        let metrics = Arc::new(Metrics::new().unwrap());
        let parts = crate::manager_deps(flags, Arc::new(clients), self.cloud.replica(), &metrics, Clock::System);
        let stop = self.stop.child();
        let until = stop.clone();
        tokio::spawn(async move { manager::run(parts, &until).await });
        Replica { life, stop }
    }

    pub(crate) fn join(&self, name: &str, taint: Taint) {
        let mut node = uninitialized_node(name);
        if matches!(taint, Taint::None) {
            node.spec.get_or_insert_default().taints = None;
        }
        self.server.create(&node);
    }

    pub(crate) fn label(&self, name: &str, label: &str) {
        self.server.update_with::<Node>("", name, |node| {
            node.metadata.labels.get_or_insert_default().insert(label.into(), String::new());
        });
    }

    pub(crate) fn nodes(&self) -> BTreeMap<String, Vec<String>> {
        let nodes: Vec<Node> = self.server.list();
        let cidrs = |node: Node| (node.metadata.name.unwrap(), node.spec.unwrap_or_default().pod_cidrs.unwrap_or_default());
        nodes.into_iter().map(cidrs).collect()
    }

    pub(crate) fn cidrs(&self) -> Vec<Vec<String>> {
        self.nodes().into_values().collect()
    }

    pub(crate) fn cidrs_of(&self, name: &str) -> Vec<String> {
        self.nodes().remove(name).unwrap_or_default()
    }

    pub(crate) fn cidr(&self, name: &str) -> Option<String> {
        self.cidrs_of(name).into_iter().next()
    }

    /// Returns the CIDRs of all Nodes, sorted.
    pub(crate) fn allocated(&self) -> Vec<String> {
        let mut all = self.cidrs().concat();
        all.sort_unstable();
        all
    }

    pub(crate) fn is_initialized(&self, name: &str) -> bool {
        self.server.get::<Node>("", name).is_some_and(|node| !taints::is_uninitialized(&node))
    }

    pub(crate) fn all_initialized(&self) -> bool {
        self.server.list::<Node>().iter().all(|node| !taints::is_uninitialized(node))
    }

    /// Returns the reasons of the events about a Node.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let events: Vec<Event> = self.server.list();
        let about = events.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
        about.filter_map(|event| event.reason).collect()
    }

    /// Checks that no two Nodes share an address.
    pub(crate) fn assert_disjoint(&self) {
        let all: Vec<IpNet> = self.allocated().iter().map(|cidr| cidr.parse().unwrap()).collect();
        for (index, block) in all.iter().enumerate() {
            for other in &all[index + 1..] {
                assert!(!block.contains(other) && !other.contains(block), "{block} and {other}: {:?}", self.nodes());
            }
        }
    }

    pub(crate) async fn until_all_have_cidrs(&self, families: usize) {
        self.until(|cluster| cluster.cidrs().iter().all(|cidrs| cidrs.len() == families), "given all CIDRs").await;
        self.assert_disjoint();
    }

    /// Waits for at most half an hour of the paused clock.
    pub(crate) async fn until(&self, condition: impl Fn(&Self) -> bool, outcome: &str) {
        let deadline = Duration::from_secs(1_800);
        let condition_met = async {
            while !condition(self) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let waited = tokio::time::timeout(deadline, condition_met).await;
        assert!(waited.is_ok(), "never {outcome}: {:?}", self.nodes());
        ready(()).await;
    }
}

pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

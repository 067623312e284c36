//! `--enable-leader-migration`: whole managers with leases of their own share a second one, under which a controller moves from one to
//! the other. In-memory API server and fake cloud, paused clock.
#![expect(clippy::unwrap_used, reason = "a test panics if its setup fails")]

#[path = "leader_migration/crashes.rs"]
mod crashes;
use crate::mortal;
use crate::seeds;

use std::{sync::Arc, time::Duration};

use cloud_controller_manager::{
    app::manager::{self, ClientSource, ManagerOutcome, ManagerStartError},
    metrics::Metrics,
    node::taints,
    providers::fake::{FakeCloud, FakeConfig},
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{
        api_server::ApiServer,
        objects::{ObjectExt, load_balancer_service, uninitialized_node},
    },
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Service},
};
use mortal::{Life, MortalClients, Witness};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{task::JoinHandle, time::Instant};

const SECOND: &str = "migration";

struct Cluster {
    server: ApiServer,
    cloud: FakeCloud,
    file: tempfile::NamedTempFile,
    /// Writes to Services that left a manager while it did not hold the second lease.
    unfenced: Arc<Mutex<Vec<String>>>,
    stop: Shutdown,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

struct Manager {
    life: Life,
    clients: Arc<MortalClients>,
    metrics: Arc<Metrics>,
    stop: Shutdown,
    task: JoinHandle<Result<ManagerOutcome, ManagerStartError>>,
}

impl Cluster {
    /// Creates a cluster without managers. `leaders` lists the controllers that move.
    fn new(leaders: &str) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let head = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n";
        std::fs::write(file.path(), format!("{head}leaderName: {SECOND}\ncontrollerLeaders: {leaders}\n")).unwrap();
        let server = ApiServer::new(Clock::manual("2026-01-01T00:00:00Z".parse().unwrap()));
        let cloud = FakeCloud::new(FakeConfig::any_node());
        Self { server, cloud, file, unfenced: Arc::default(), stop: Shutdown::new() }
    }

    /// Starts a manager with the main lease `lease`, which is also the prefix of its user agents.
    fn start(&self, lease: &str) -> Manager {
        self.start_for(lease, Life::default())
    }

    /// Starts a manager that sends requests until `life` ends.
    fn start_for(&self, lease: &str, life: Life) -> Manager {
        let file = format!("--leader-migration-config={}", self.file.path().display());
        let own = format!("--leader-elect-resource-name={lease}");
        let flags = ["--configure-cloud-routes=false", "--enable-leader-migration", &file, &own];
        let metrics = Arc::new(Metrics::new().unwrap());
        let clients = Arc::new(MortalClients::new(&self.server, lease, &life, Some(self.witness(lease))));
        let source = Arc::clone(&clients) as Arc<dyn ClientSource>;
        let parts = crate::manager_deps(&flags, source, self.cloud.replica(), &metrics, Clock::System);
        let stop = self.stop.child();
        let until = stop.clone();
        Manager { life, clients, metrics, stop, task: tokio::spawn(async move { manager::run(parts, &until).await }) }
    }

    /// Returns a witness that records each write to a Service by a manager that does not hold the second lease. Both leases of a
    /// manager name the same process.
    fn witness(&self, own: &str) -> Witness {
        let (server, own, unfenced) = (self.server.clone(), own.to_owned(), Arc::clone(&self.unfenced));
        Arc::new(move |request| {
            let path = request.uri().path();
            if request.method() == http::Method::GET || !path.contains("/services") {
                return;
            }
            let holder = |lease| server.get::<Lease>("kube-system", lease).and_then(|lease| lease.spec?.holder_identity);
            let (second_holder, own_holder) = (holder(SECOND), holder(&own));
            if second_holder != own_holder {
                unfenced.lock().push(format!("{own} writes {path} as {own_holder:?} under the lease of {second_holder:?}"));
            }
        })
    }

    fn assert_fenced(&self) {
        assert_eq!(*self.unfenced.lock(), [""; 0]);
    }

    fn holder(&self, lease: &str) -> Option<String> {
        self.server.get::<Lease>("kube-system", lease)?.spec?.holder_identity.filter(|holder| !holder.is_empty())
    }

    /// Makes another program the holder of a lease, even if the lease is held.
    fn take(&self, lease: &str) {
        let set_holder = |lease: &mut Lease| {
            lease.spec.get_or_insert_default().holder_identity = Some("kube-controller-manager".to_owned());
        };
        self.server.update_with("kube-system", lease, set_holder);
    }

    fn join(&self, name: &str) {
        self.server.create(&uninitialized_node(name));
    }

    fn is_initialized(&self, name: &str) -> bool {
        !taints::is_uninitialized(&self.server.get::<Node>("", name).unwrap())
    }

    fn request_service(&self, name: &str) {
        self.server.create::<Service>(&load_balancer_service("default", name).annotation("a", "b"));
    }

    fn is_served(&self, name: &str) -> bool {
        self.cloud.load_balancer_of(&format!("default/{name}")).is_some()
    }
}

impl Manager {
    /// Returns `true` if the manager holds `lease`. The metric of a process that has ended keeps its last value.
    fn holds(&self, lease: &str) -> bool {
        !self.task.is_finished() && self.metrics.leader_election_master_status.with_label_values(&[lease]).get() == 1.0
    }

    /// Returns `true` if the controller with this account may write.
    fn may_write(&self, account: &str) -> bool {
        self.clients.leadership_of(account).unwrap().is_leading()
    }
}

/// Waits until `holds`, at most five minutes. Returns the waiting time, to a tenth of a second.
async fn until(description: &str, holds: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(300), "not within 5 minutes: {description}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    start.elapsed()
}

/// Migration in which the service controller runs in the program that holds the second lease.
const SERVICES: &str = "[{name: service-lb-controller, component: '*'}]";

#[tokio::test(start_paused = true)]
async fn second_lease_of_another_program_stops_only_its_controllers() {
    let cluster = Cluster::new(SERVICES);
    let lease = json!({"metadata": {"name": SECOND, "namespace": "kube-system"}, "spec": {
        "holderIdentity": "kube-controller-manager", "leaseDurationSeconds": 3600, "leaseTransitions": 0,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z"}});
    cluster.server.create::<Lease>(&serde_json::from_value(lease).unwrap());
    let manager = cluster.start("own");
    cluster.join("node");
    cluster.request_service("web");
    until("the Node is initialized", || cluster.is_initialized("node")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!cluster.is_served("web") && manager.holds("own") && !manager.holds(SECOND));
    assert_eq!(["node-controller", "service-controller"].map(|account| manager.may_write(account)), [true, false]);
    cluster.server.update_with("kube-system", SECOND, |lease: &mut Lease| {
        lease.spec.get_or_insert_default().holder_identity = Some(String::new());
    });
    until("the Service is served", || cluster.is_served("web")).await;
    assert!(manager.may_write("service-controller"));
}

#[tokio::test(start_paused = true)]
async fn standby_of_the_main_lease_never_acquires_the_second() {
    let cluster = Cluster::new(SERVICES);
    let first = cluster.start("shared");
    until("the first holds both", || first.holds("shared") && first.holds(SECOND)).await;
    let second = cluster.start("shared");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let holder = cluster.holder(SECOND);
    assert_eq!(holder, cluster.holder("shared"), "both leases name one process");
    cluster.server.delete::<Lease>("kube-system", SECOND);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!second.holds(SECOND) && cluster.holder(SECOND).is_none_or(|now| Some(now) == holder));
}

#[tokio::test(start_paused = true)]
async fn losing_either_lease_ends_the_process() {
    for lease in ["own", SECOND] {
        let cluster = Cluster::new(SERVICES);
        let manager = cluster.start("own");
        until("it holds both", || manager.holds("own") && manager.holds(SECOND)).await;
        cluster.take(lease);
        assert_eq!(manager.task.await.unwrap().unwrap(), ManagerOutcome::LeaseLost, "{lease}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_of_another_program_never_runs() {
    let cluster = Cluster::new("[{name: service, component: kube-controller-manager}]");
    let manager = cluster.start("own");
    cluster.join("node");
    cluster.request_service("web");
    until("the Node is initialized", || cluster.is_initialized("node")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!cluster.is_served("web") && manager.holds("own"));
    assert_eq!(cluster.holder(SECOND), None, "nothing runs under the second lease");
}

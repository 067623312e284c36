//! `--enable-leader-migration`: whole managers with leases of their own share a second one, under which a controller moves from one to
//! the other. In-memory API server and fake cloud, paused clock.
#![expect(clippy::unwrap_used, reason = "a test ends where what it needs is missing")]

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
    /// The controllers of `leaders` move.
    fn new(leaders: &str) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let head = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n";
        std::fs::write(file.path(), format!("{head}leaderName: {SECOND}\ncontrollerLeaders: {leaders}\n")).unwrap();
        let server = ApiServer::new(Clock::manual("2026-01-01T00:00:00Z".parse().unwrap()));
        let cloud = FakeCloud::new(FakeConfig::any_node());
        Self { server, cloud, file, unfenced: Arc::default(), stop: Shutdown::new() }
    }

    /// A manager whose own lease is called `lease`, as its user agents are.
    fn start(&self, lease: &str) -> Manager {
        self.start_for(lease, Life::default())
    }

    /// The same, as long as it lives.
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

    /// Sees to it that Services are written by who holds the second lease: both leases of a manager name the same process.
    fn witness(&self, own: &str) -> Witness {
        let (server, own, unfenced) = (self.server.clone(), own.to_owned(), Arc::clone(&self.unfenced));
        Arc::new(move |request| {
            let path = request.uri().path();
            if request.method() == http::Method::GET || !path.contains("/services") {
                return;
            }
            let holder = |lease| server.get::<Lease>("kube-system", lease).and_then(|lease| lease.spec?.holder_identity);
            let (holds, is) = (holder(SECOND), holder(&own));
            if holds != is {
                unfenced.lock().push(format!("{own} writes {path} as {is:?} under the lease of {holds:?}"));
            }
        })
    }

    fn assert_fenced(&self) {
        assert_eq!(*self.unfenced.lock(), [""; 0]);
    }

    fn holder(&self, lease: &str) -> Option<String> {
        self.server.get::<Lease>("kube-system", lease)?.spec?.holder_identity.filter(|holder| !holder.is_empty())
    }

    /// Somebody else takes a lease, whatever it says.
    fn take(&self, lease: &str) {
        let taken = |lease: &mut Lease| {
            lease.spec.get_or_insert_default().holder_identity = Some("kube-controller-manager".to_owned());
        };
        self.server.update_with("kube-system", lease, taken);
    }

    fn join(&self, name: &str) {
        self.server.create(&uninitialized_node(name));
    }

    fn is_initialised(&self, name: &str) -> bool {
        !taints::is_uninitialized(&self.server.get::<Node>("", name).unwrap())
    }

    fn ask(&self, name: &str) {
        self.server.create::<Service>(&load_balancer_service("default", name).annotation("a", "b"));
    }

    fn is_served(&self, name: &str) -> bool {
        self.cloud.load_balancer_of(&format!("default/{name}")).is_some()
    }
}

impl Manager {
    /// The metric of a process that has ended says what it said last.
    fn holds(&self, lease: &str) -> bool {
        !self.task.is_finished() && self.metrics.leader_election_master_status.with_label_values(&[lease]).get() == 1.0
    }

    /// Whether a controller may write, by the account of its client.
    fn may_write(&self, account: &str) -> bool {
        self.clients.leadership_of(account).unwrap().is_leading()
    }
}

/// How long it takes until `holds`, to a tenth of a second; fails after five minutes.
async fn until(what: &str, holds: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(300), "not within 5 minutes: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    start.elapsed()
}

/// The service controller runs under the second lease, in whatever program holds it.
const SERVICES: &str = "[{name: service-lb-controller, component: '*'}]";

#[tokio::test(start_paused = true)]
async fn while_another_program_holds_the_second_lease_only_the_rest_runs() {
    let cluster = Cluster::new(SERVICES);
    let lease = json!({"metadata": {"name": SECOND, "namespace": "kube-system"}, "spec": {
        "holderIdentity": "kube-controller-manager", "leaseDurationSeconds": 3600, "leaseTransitions": 0,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z"}});
    cluster.server.create::<Lease>(&serde_json::from_value(lease).unwrap());
    let manager = cluster.start("own");
    cluster.join("node");
    cluster.ask("web");
    until("the Node is initialised", || cluster.is_initialised("node")).await;
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
async fn a_standby_of_the_main_lease_does_not_campaign_for_the_second() {
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
    cluster.ask("web");
    until("the Node is initialised", || cluster.is_initialised("node")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!cluster.is_served("web") && manager.holds("own"));
    assert_eq!(cluster.holder(SECOND), None, "nothing runs under the second lease");
}

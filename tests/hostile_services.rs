//! Services with as many annotations as the API server accepts do not affect other Services.
//!
//! The built binary runs with leader election on a simulated Azure. Regression test: the comparison of each unknown key with every known one
//! once kept both of its threads busy until the lease was lost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use cloud_controller_manager::{
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{
        api_server::ApiServer,
        azure::{
            AzureOptions,
            topology::{PoolKind, Topology},
            world::{Serving, Start, World, start_world},
        },
        objects,
    },
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Node, Service},
};
use tokio::time::Instant;

use crate::served_azure::{Ended, PROGRAM};

/// Bytes of annotations that the API server accepts on one object.
const ANNOTATIONS: usize = 255 * 1024;
const HOSTILE: usize = 30;
/// Timeout of the whole test, on a busy machine and with a debug build.
const LIMIT: Duration = Duration::from_secs(120);
/// Time between two renewals after which the process would end.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

struct ServedCluster {
    server: ApiServer,
    /// Serves Azure until it is dropped.
    _cloud: World,
    folder: tempfile::TempDir,
    stop: Shutdown,
}

impl ServedCluster {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (server, stop) = (ApiServer::new(Clock::System), Shutdown::new());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        ApiServer::write_kubeconfig(&folder.path().join("kubeconfig"), &url, None).unwrap();
        let (serving, until) = (server.clone(), stop.clone());
        stop.spawn(async move { serving.serve(listener, until).await });
        let serving = Serving { port: 0, ca_file: Some(folder.path().join("ca.pem")), shutdown: stop.clone() };
        let start = Start { azure: AzureOptions::default(), serving: Some(serving), ..Start::default() };
        let cloud = start_world(Topology::new().pools(PoolKind::Uniform, 1, 2), start).await.unwrap();
        fs::write(folder.path().join("azure.json"), cloud.config().to_string()).unwrap();
        cloud.nodes().iter().for_each(|node| drop(server.create::<Node>(node)));
        Self { server, _cloud: cloud, folder, stop }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self) -> Ended {
        let child = Command::new(PROGRAM)
            .env("SSL_CERT_FILE", self.file("ca.pem"))
            .arg(format!("--kubeconfig={}", self.file("kubeconfig").display()))
            .arg(format!("--cloud-config={}", self.file("azure.json").display()))
            .args([
                "--cloud-provider=azure",
                "--bind-address=127.0.0.1",
                "--secure-port=0",
                "--configure-cloud-routes=false",
            ])
            .args(["--leader-elect=true", "--kube-api-qps=200", "--kube-api-burst=400"])
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.file("log")).unwrap())
            .spawn()
            .unwrap();
        Ended(child)
    }

    /// Returns the time of the last renewal in the Lease.
    fn renewal(&self) -> Option<String> {
        let lease: Lease = self.server.get("kube-system", "cloud-controller-manager")?;
        lease.spec?.renew_time.map(|time| time.0.to_string())
    }

    fn log(&self) -> String {
        let text = fs::read_to_string(self.file("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(10).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn is_ready(&self, name: &str) -> bool {
        let service: Option<Service> = self.server.get("default", name);
        let ingress = service.and_then(|service| service.status?.load_balancer?.ingress);
        ingress.is_some_and(|ingress| !ingress.is_empty())
    }
}

/// Returns a Service whose annotations have keys with a typing error, each as long as the API server accepts.
fn hostile(number: usize) -> Service {
    let key = |index: usize| format!("service.beta.kubernetes.io/azure-load-balancer-intrenal-{index:034}");
    let count = ANNOTATIONS / key(0).len();
    let annotations: BTreeMap<String, String> = (0..count).map(|index| (key(index), String::new())).collect();
    let mut service = objects::load_balancer_service("default", &format!("hostile-{number}"));
    service.metadata.annotations.get_or_insert_default().extend(annotations);
    service
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_annotations_block_neither_lease_nor_services() {
    let cluster = ServedCluster::new().await;
    let mut manager = cluster.start();
    let started = Instant::now();
    while cluster.renewal().is_none() {
        assert!(started.elapsed() < LIMIT, "no leader:\n{}", cluster.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    (0..HOSTILE).for_each(|number| drop(cluster.server.create::<Service>(&hostile(number))));
    let honest: Vec<String> = (0..5).map(|number| format!("honest-{number}")).collect();
    for name in &honest {
        cluster.server.create::<Service>(&objects::load_balancer_service("default", name));
    }

    let (begun, mut renewal, mut renewed, mut longest) = (Instant::now(), None, Instant::now(), Duration::ZERO);
    let mut ready = None;
    // Longer than a process runs that cannot renew its lease.
    while ready.is_none() || begun.elapsed() < Duration::from_secs(15) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(manager.0.try_wait().unwrap(), None, "the process has ended:\n{}", cluster.log());
        let now = cluster.renewal();
        longest = longest.max(renewed.elapsed());
        if now != renewal {
            (renewal, renewed) = (now, Instant::now());
        }
        assert!(longest <= LONGEST_PAUSE, "the lease was not renewed for {longest:?}:\n{}", cluster.log());
        ready = ready.or_else(|| honest.iter().all(|name| cluster.is_ready(name)).then(|| begun.elapsed()));
        assert!(begun.elapsed() < LIMIT, "the others are not ready:\n{}", cluster.log());
    }
    let is_about_unknown_key = |event: &&Event| event.reason.as_deref() == Some("UnknownAnnotation");
    let events = cluster.server.list::<Event>();
    let about = |event: &&Event| event.involved_object.name.as_deref() == Some("hostile-0");
    assert!(events.iter().filter(is_about_unknown_key).filter(about).count() <= 12);
    assert!(events.iter().all(|event| event.message.as_deref().unwrap_or_default().len() <= 1024));
    cluster.stop.begin();
}

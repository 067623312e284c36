//! Services with as many annotations as the API server takes do no harm to anybody else.
//!
//! The built binary runs with leader election on a simulated Azure. Before, comparing each unknown key with every known one kept both of
//! its threads busy for so long that the lease was lost.
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

/// What the API server takes on one object.
const ANNOTATIONS: usize = 255 * 1024;
const HOSTILE: usize = 30;
/// For everything together, on a busy machine and with a debug build.
const LIMIT: Duration = Duration::from_secs(120);
/// Between two renewals: what ends the process.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

struct Place {
    server: ApiServer,
    /// Its Azure is there as long as this is.
    _world: World,
    folder: tempfile::TempDir,
    stop: Shutdown,
}

impl Place {
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
        let world = start_world(Topology::new().pools(PoolKind::Uniform, 1, 2), start).await.unwrap();
        fs::write(folder.path().join("azure.json"), world.config().to_string()).unwrap();
        world.nodes().iter().for_each(|node| drop(server.create::<Node>(node)));
        Self { server, _world: world, folder, stop }
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

    /// When the lease was renewed last, as it says.
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

/// Keys that look like a slip of the pen, each as long as the API server takes one.
fn hostile(number: usize) -> Service {
    let key = |index: usize| format!("service.beta.kubernetes.io/azure-load-balancer-intrenal-{index:034}");
    let count = ANNOTATIONS / key(0).len();
    let annotations: BTreeMap<String, String> = (0..count).map(|index| (key(index), String::new())).collect();
    let mut service = objects::load_balancer_service("default", &format!("hostile-{number}"));
    service.metadata.annotations.get_or_insert_default().extend(annotations);
    service
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_is_renewed_and_others_are_served_beside_the_largest_annotations() {
    let place = Place::new().await;
    let mut manager = place.start();
    let started = Instant::now();
    while place.renewal().is_none() {
        assert!(started.elapsed() < LIMIT, "no leader:\n{}", place.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    (0..HOSTILE).for_each(|number| drop(place.server.create::<Service>(&hostile(number))));
    let honest: Vec<String> = (0..5).map(|number| format!("honest-{number}")).collect();
    for name in &honest {
        place.server.create::<Service>(&objects::load_balancer_service("default", name));
    }

    let (begun, mut renewal, mut renewed, mut longest) = (Instant::now(), None, Instant::now(), Duration::ZERO);
    let mut ready = None;
    // Beyond what ends a process that cannot renew.
    while ready.is_none() || begun.elapsed() < Duration::from_secs(15) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(manager.0.try_wait().unwrap(), None, "the process has ended:\n{}", place.log());
        let now = place.renewal();
        longest = longest.max(renewed.elapsed());
        if now != renewal {
            (renewal, renewed) = (now, Instant::now());
        }
        assert!(longest <= LONGEST_PAUSE, "the lease was not renewed for {longest:?}:\n{}", place.log());
        ready = ready.or_else(|| honest.iter().all(|name| place.is_ready(name)).then(|| begun.elapsed()));
        assert!(begun.elapsed() < LIMIT, "the others are not ready:\n{}", place.log());
    }
    let unknown = |event: &&Event| event.reason.as_deref() == Some("UnknownAnnotation");
    let events = place.server.list::<Event>();
    let about = |event: &&Event| event.involved_object.name.as_deref() == Some("hostile-0");
    assert!(events.iter().filter(unknown).filter(about).count() <= 12);
    assert!(events.iter().all(|event| event.message.as_deref().unwrap_or_default().len() <= 1024));
    place.stop.begin();
}

//! The cluster of the scenarios and the built binary in it: how both start, and the resources that the binary has used.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use cloud_controller_manager::{
    controllers::service::conditions,
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{
        api_server::{ApiServer, RequestRecord as ApiRequest},
        azure::{
            AzureOptions, Class, Latencies, RequestRecord,
            topology::{PoolKind, Topology},
            world::{Serving, Start, World, start_world},
        },
        http::Verb,
    },
};
use k8s_openapi::api::core::v1::{Node, Service};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Bounds, LIMIT, MIB, Row, TICK,
    program::{Program, free_port, log_tail},
};

/// Time without requests after which a scenario has ended.
const QUIET: Duration = Duration::from_secs(4);

/// Cluster in the simulated Azure, served to other processes.
pub(super) struct Cluster {
    pub(super) server: ApiServer,
    pub(super) simulation: World,
    folder: tempfile::TempDir,
    stop: Shutdown,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

impl Cluster {
    pub(super) async fn new(latencies: Latencies) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (server, stop) = (ApiServer::new(Clock::System), Shutdown::new());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        ApiServer::write_kubeconfig(&folder.path().join("kubeconfig"), &url, None).expect("kubeconfig");
        let (serving, until) = (server.clone(), stop.clone());
        stop.spawn(async move { serving.serve(listener, until).await });

        let ca_file = folder.path().join("ca.pem");
        let serving = Serving { port: 0, ca_file: Some(ca_file), shutdown: stop.clone() };
        let options = AzureOptions { latencies, ..AzureOptions::default() };
        let start = Start { azure: options, serving: Some(serving), ..Start::default() };
        let topology = Topology::new().pools(PoolKind::Uniform, 1, 10);
        let simulation = start_world(topology, start).await.expect("the simulated cloud");
        let mut config = simulation.config();
        // Limit above the number of rules that scenarios create.
        config["maximumNetworkInterfaceRuleCount"] = 1_500.into();
        fs::write(folder.path().join("azure.json"), config.to_string()).expect("azure.json");
        simulation.nodes().iter().for_each(|node| drop(server.create::<Node>(node)));
        Self { server, simulation, folder, stop }
    }

    /// Sets a field of `azure.json`.
    pub(super) fn configure(&self, field: &str, value: Value) {
        let text = fs::read_to_string(self.file("azure.json")).expect("azure.json");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        config[field] = value;
        fs::write(self.file("azure.json"), config.to_string()).expect("azure.json");
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn start(&self) -> Manager {
        let port = free_port();
        let flags = ["--cloud-provider=azure", "--leader-elect=true", "--authorization-always-allow-paths=/livez,/metrics"];
        let variables = [("SSL_CERT_FILE", self.file("ca.pem"))];
        let program = Program::start(self.folder.path(), "azure.json", port, &flags, &variables);
        let client = reqwest::ClientBuilder::new().danger_accept_invalid_certs(true).build().expect("a client");
        Manager { program, own: std::cell::Cell::new(0.0), client, livez: format!("https://127.0.0.1:{port}/livez") }
    }

    /// Returns the last lines of the log.
    pub(super) fn log(&self) -> String {
        log_tail(self.folder.path())
    }

    pub(super) async fn until_ready(&self, manager: &Manager) {
        self.until(manager, TICK, || self.is_served()).await;
    }

    /// Returns `true` if each Service has an address.
    pub(super) fn is_served(&self) -> bool {
        self.server.list::<Service>().iter().all(has_address)
    }

    /// Waits until each Service is served or refused. Checks seldom, because it takes long to list large Services.
    pub(super) async fn until_decided(&self, manager: &Manager) {
        let is_decided = |service: &Service| has_address(service) || is_refused(service);
        self.until(manager, Duration::from_secs(2), || self.server.list::<Service>().iter().all(is_decided)).await;
    }

    /// Waits until the program has listed the Services.
    pub(super) async fn until_listed(&self, manager: &Manager) {
        let is_watch = |request: &ApiRequest| request.verb == Verb::Watch && request.resource == "services";
        self.until(manager, TICK, || self.server.requests().iter().any(is_watch)).await;
    }

    /// Waits until `holds`, which is checked once in `interval`.
    pub(super) async fn until(&self, manager: &Manager, interval: Duration, holds: impl Fn() -> bool) {
        let (deadline, mut ticks) = (Instant::now() + LIMIT, tokio::time::interval(TICK));
        let mut checked = Instant::now();
        loop {
            if checked.elapsed() >= interval {
                if holds() {
                    return;
                }
                checked = Instant::now();
            }
            assert!(Instant::now() < deadline, "not ready:\n{}", self.log());
            manager.sample_memory();
            ticks.tick().await;
        }
    }

    /// Waits until no requests to ARM arrive, and returns the measurements. `cpu` is the processor time that the program had used before, in seconds.
    pub(super) async fn settled(
        &self,
        name: &str,
        started: Instant,
        manager: &Manager,
        cpu: f64,
        go: &'static str,
        bounds: Bounds,
    ) -> Row {
        let azure = self.simulation.azure();
        let mut last = Instant::now();
        let (mut before, mut ticks) = (azure.count(is_arm), tokio::time::interval(TICK));
        while last.elapsed() < QUIET {
            ticks.tick().await;
            manager.sample_memory();
            let now = azure.count(is_arm);
            if now != before {
                (before, last) = (now, Instant::now());
            }
        }
        let count = |class: &[Class]| azure.count(|request| class.contains(&request.class));
        let received: usize = azure.requests().iter().filter(|request| is_arm(request)).map(|request| request.bytes).sum();
        Row {
            name: name.to_owned(),
            wall: last.duration_since(started).as_secs_f64(),
            reads: count(&[Class::Read]),
            polls: count(&[Class::Poll]),
            writes: count(&[Class::Write, Class::Delete]),
            received: f64::from(u32::try_from(received).unwrap_or(u32::MAX)) / MIB,
            cpu: manager.program.cpu() - cpu,
            memory: manager.program.mib("VmHWM:"),
            own: manager.own.get(),
            requests_by_kind: requests_by_kind(&azure.requests()),
            go,
            bounds,
        }
    }
}

/// Returns the counts of reads and polls by kind of resource.
fn requests_by_kind(requests: &[RequestRecord]) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for request in requests.iter().filter(|request| matches!(request.class, Class::Read | Class::Poll)) {
        let kind = match request.class {
            Class::Poll => "poll".to_owned(),
            _ => format!("{}{}", if request.list { "list " } else { "" }, request.resource_type.replace("microsoft.", "")),
        };
        *counts.entry(kind).or_default() += 1;
    }
    counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}

fn is_arm(request: &RequestRecord) -> bool {
    request.class != Class::Other
}

/// Returns the addresses in the status of a Service.
pub(super) fn addresses(service: &Service) -> Vec<String> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    ingress.filter_map(|ingress| ingress.ip.clone()).collect()
}

fn has_address(service: &Service) -> bool {
    !addresses(service).is_empty()
}

/// Returns `true` if the condition says that a user must act.
fn is_refused(service: &Service) -> bool {
    conditions::current(service).is_some_and(|condition| condition.reason == "Invalid")
}

/// Running program and its measured memory.
pub(super) struct Manager {
    pub(super) program: Program,
    /// Highest sample of the program's own memory, in MiB.
    own: std::cell::Cell<f64>,
    client: reqwest::Client,
    livez: String,
}

impl Manager {
    /// Samples the program's own memory.
    pub(super) fn sample_memory(&self) {
        self.own.set(self.own.get().max(self.program.mib("RssAnon:")));
    }

    /// Sends a probe to `/livez`, and returns how long the response takes.
    pub(super) async fn livez(&self) -> Duration {
        let started = Instant::now();
        let response = self.client.get(&self.livez).send().await.expect("a response of /livez");
        assert!(response.status().is_success(), "/livez: {}", response.status());
        started.elapsed()
    }
}

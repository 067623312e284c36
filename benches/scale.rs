//! Scale: the manager against many objects. Counts are asserted, times and memory reported.
//!
//! The API server lives in a child process (this program with `serve`), so that the memory reported is the manager's own. The
//! child answers two commands on its standard input: `counts` (requests by verb and resource, as JSON) and `clear`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use cloud_controller_manager::{
    app::manager::{self, ClientSource, ManagerDeps},
    cli,
    cloud_provider::CloudProvider,
    metrics::Metrics,
    providers::fake::{CallName, FakeCloud, FakeConfig, GeneratedInstances, InstanceSpec},
    runtime::{clock::Clock, leader_election::Leadership, shutdown::Shutdown},
    sandbox::{api_server::ApiServer, objects},
};
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::time::Instant;

const NODES: u32 = 5_000;
const SERVICES: u32 = 1_000;
/// Peak for the Nodes.
const MEMORY_MIB: u64 = 60;
const LATENCY: Duration = Duration::from_millis(50);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    match arguments.first().map(String::as_str) {
        Some("serve") => runtime.block_on(serve(&arguments[1], arguments[2].parse().expect("a number"))),
        // `cargo test --benches` runs every bench once and briefly; this one has its own `make bench`.
        Some("--test") => {}
        _ => {
            runtime.block_on(nodes());
            runtime.block_on(services());
        }
    }
}

/// 5,000 uninitialised nodes at once.
async fn nodes() {
    let mut server = Server::start("nodes", NODES);
    let cloud = FakeCloud::new(FakeConfig { generated_instances: vec![instances(NODES)], ..FakeConfig::default() });
    let started = Instant::now();
    let manager = Manager::start(&server, &cloud, &["--controllers=cloud-node-controller,cloud-node-lifecycle-controller"]);
    let done =
        until(Duration::from_secs(300), async || server.counts().get("patch nodes").copied().unwrap_or(0) >= NODES).await;
    let wall = started.elapsed();
    let counts = settled(&mut server).await;
    let count = |what: &str| counts.get(what).copied().unwrap_or(0);
    let writes = count("patch nodes") + count("patch nodes/status") + count("update nodes");
    let lists = count("list nodes");
    println!(
        "{NODES} uninitialised nodes: {:.2} s, {writes} node writes, {lists} list pages, peak RSS {} MiB",
        wall.as_secs_f64(),
        peak_mib()
    );
    assert!(done, "not all nodes were initialised: {counts:?}");
    assert!(writes <= 2 * NODES, "{writes} writes for {NODES} nodes");
    assert_eq!(lists, NODES.div_ceil(500), "one list, in pages of 500: {counts:?}");
    assert!(peak_mib() <= MEMORY_MIB, "peak RSS {} MiB, at most {MEMORY_MIB}", peak_mib());
    manager.stop().await;
}

/// 1,000 Services at once on a cloud that takes 50 ms, then one more node.
async fn services() {
    let mut server = Server::start("services", SERVICES);
    let cloud = FakeCloud::new(FakeConfig { generated_instances: vec![instances(1)], ..FakeConfig::default() });
    cloud.set_latency(CallName::EnsureLoadBalancer, LATENCY);
    let started = Instant::now();
    let manager = Manager::start(&server, &cloud, &["--controllers=service-lb-controller"]);
    let done = until(Duration::from_secs(120), async || {
        cloud.load_balancers().len() == SERVICES as usize
            && server.counts().get("patch services/status").copied().unwrap_or(0) >= 2 * SERVICES
    })
    .await;
    let wall = started.elapsed();
    let in_flight = cloud.max_in_flight_seen_of(CallName::EnsureLoadBalancer);
    println!(
        "{SERVICES} services, {LATENCY:?} per call: {:.2} s ({:.0} latencies; one at a time would be {SERVICES}), {in_flight} in flight, peak RSS {} MiB",
        wall.as_secs_f64(),
        wall.as_secs_f64() / LATENCY.as_secs_f64(),
        peak_mib()
    );
    assert!(done, "{} load balancers", cloud.load_balancers().len());
    assert!(in_flight >= 100, "{in_flight} in flight");
    settled(&mut server).await;

    server.clear();
    cloud.clear_calls();
    server.command("node");
    let done =
        until(Duration::from_secs(60), async || cloud.call_count(CallName::UpdateLoadBalancer) >= u64::from(SERVICES)).await;
    let counts = settled(&mut server).await;
    let updates = cloud.call_count(CallName::UpdateLoadBalancer);
    let writes: u32 = counts
        .iter()
        .filter(|(what, _)| what.contains("services") || what.contains("nodes"))
        .map(|(what, n)| if what.starts_with("patch") || what.starts_with("update") { *n } else { 0 })
        .sum();
    println!("one node added: {updates} provider calls for {SERVICES} services, {writes} writes of nodes or services");
    assert!(done && updates == u64::from(SERVICES), "{updates} calls for {SERVICES} services");
    assert_eq!(cloud.call_count(CallName::EnsureLoadBalancer), 0);
    assert_eq!(writes, 0, "{counts:?}");
    manager.stop().await;
}

fn instances(count: u32) -> GeneratedInstances {
    GeneratedInstances {
        name_prefix: "node-".into(),
        count,
        zones: vec!["zone-1".into(), "zone-2".into(), "zone-3".into()],
        address_range: "10.64.0.0/10".parse().expect("a CIDR"),
        template: InstanceSpec::default(),
    }
}

/// Asks until it holds; a child process has nothing to await.
async fn until(limit: Duration, mut holds: impl AsyncFnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    while Instant::now() < deadline {
        ticks.tick().await;
        if holds().await {
            return true;
        }
    }
    false
}

/// Counts once they no longer change.
async fn settled(server: &mut Server) -> BTreeMap<String, u32> {
    let mut before = BTreeMap::new();
    until(Duration::from_secs(30), async || {
        let now = writes(&server.counts());
        std::mem::replace(&mut before, now.clone()) == now
    })
    .await;
    server.counts()
}

fn writes(counts: &BTreeMap<String, u32>) -> BTreeMap<String, u32> {
    counts.iter().filter(|(what, _)| !what.contains("leases")).map(|(what, n)| (what.clone(), *n)).collect()
}

/// Peak resident memory of this process.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// The API server in a child process.
struct Server {
    child: Child,
    url: String,
    answers: std::cell::RefCell<BufReader<std::process::ChildStdout>>,
    commands: std::cell::RefCell<std::process::ChildStdin>,
}

impl Server {
    fn start(what: &str, count: u32) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let mut child = command
            .args(["serve", what, &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let mut answers = BufReader::new(child.stdout.take().expect("stdout"));
        let commands = child.stdin.take().expect("stdin");
        let mut url = String::new();
        answers.read_line(&mut url).expect("the url");
        Self { child, url: url.trim().to_owned(), answers: answers.into(), commands: commands.into() }
    }

    fn command(&self, command: &str) -> String {
        writeln!(self.commands.borrow_mut(), "{command}").expect("a command");
        let mut answer = String::new();
        self.answers.borrow_mut().read_line(&mut answer).expect("an answer");
        answer
    }

    /// Requests by verb and resource since the start or the last clearing.
    fn counts(&self) -> BTreeMap<String, u32> {
        serde_json::from_str(&self.command("counts")).expect("counts")
    }

    fn clear(&self) {
        self.command("clear");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child: an API server with `count` nodes or services.
async fn serve(what: &str, count: u32) {
    let server = ApiServer::new(Clock::System);
    for index in 0..count {
        if what == "nodes" {
            server.create::<Node>(&objects::uninitialized_node(&format!("node-{index}")));
        } else {
            server.create::<Service>(&objects::load_balancer_service("default", &format!("service-{index}")));
        }
    }
    if what == "services" {
        server.create::<Node>(&objects::node("node-0"));
    }
    server.clear_requests();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("http://{}", listener.local_addr().expect("an address"));
    let commands = server.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            match line.unwrap_or_default().as_str() {
                "counts" => println!("{}", counts(&commands)),
                "node" => {
                    commands.create::<Node>(&objects::node("node-1"));
                    println!();
                }
                _ => {
                    commands.clear_requests();
                    println!();
                }
            }
        }
    });
    server.serve(listener, Shutdown::new()).await.expect("the server serves");
}

fn counts(server: &ApiServer) -> String {
    let mut counts = BTreeMap::<String, u32>::new();
    for request in server.requests() {
        let part = if request.subresource.is_empty() { String::new() } else { format!("/{}", request.subresource) };
        *counts.entry(format!("{} {}{part}", request.verb, request.resource)).or_default() += 1;
    }
    serde_json::to_string(&counts).expect("JSON")
}

/// A manager in this process.
struct Manager {
    stop: Shutdown,
    task: tokio::task::JoinHandle<Result<manager::ManagerOutcome, manager::ManagerStartError>>,
}

struct Plain(String);

impl ClientSource for Plain {
    fn component(&self, _: &str) -> Result<kube::Client, kube::Error> {
        kube::Client::try_from(kube::Config::new(self.0.parse().expect("a url")))
    }
    fn controller(&self, account: &str, _: &Leadership) -> Result<kube::Client, kube::Error> {
        self.component(account)
    }
    fn watches(&self) -> Result<kube::Client, kube::Error> {
        self.component("")
    }
}

impl Manager {
    fn start(server: &Server, cloud: &FakeCloud, flags: &[&str]) -> Self {
        let fixed = ["cloud-controller-manager", "--cloud-provider=fake", "--secure-port=0", "--leader-elect=false"];
        let arguments = fixed.iter().chain(flags).map(std::ffi::OsString::from);
        let cli::CliCommand::Run(config) = cli::parse(arguments, &["fake"], &[]).expect("flags") else {
            unreachable!("no help asked for")
        };
        let parts = ManagerDeps {
            config: *config,
            clients: Arc::new(Plain(server.url.clone())),
            provider: Arc::new(cloud.clone()) as Arc<dyn CloudProvider>,
            metrics: Arc::new(Metrics::new().expect("metrics")),
            clock: Clock::System,
            set_verbosity: Arc::new(|_| ()),
        };
        let stop = Shutdown::new();
        let stopping = stop.clone();
        Self { stop, task: tokio::spawn(async move { manager::run(parts, &stopping).await }) }
    }

    async fn stop(self) {
        self.stop.begin();
        let ended = self.task.await.expect("the manager").expect("a start");
        assert_eq!(ended, manager::ManagerOutcome::Stopped);
    }
}

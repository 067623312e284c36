//! What Services of type LoadBalancer cost on Azure: the built binary, with the flags of the shipped manifests, against an API server and
//! a simulated Resource Manager in this process, ten nodes in a uniform scale set, pages of 100. Counts, bytes, processor time and
//! memory are the binary's own and asserted; times are reported beside those of Go's program.
//!
//! `-- 200` makes so many Services at once and nothing else, `-- delete 1500` deletes so many at once, `-- hostile 500` makes so many that carry
//! all the annotations that the API server takes, beside 200 EndpointSlices of 1,000 Nodes that do not exist.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a benchmark ends where what it needs is missing")]

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use cloud_controller_manager::{
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{
        api_server::ApiServer,
        azure::{
            AzureOptions, Class, Latencies, Latency, RequestRecord,
            topology::{PoolKind, Topology},
            world::{Serving, Start, World, start_world},
        },
        objects::{self, ObjectExt, ServiceExt},
    },
};
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use serde_json::{Value, json};
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(300);
/// Nothing that is going on pauses for so long.
const QUIET: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_millis(50);
const MIB: f64 = 1024.0 * 1024.0;
/// Writes that put ten instances and their scale set into the pool, once in the life of a cluster.
const MEMBERSHIP: usize = 11;
/// Reads and polls for 200 Services: pages of lists, which follow the operations of public IPs and instances, and a few of the documents
/// that all Services share.
const ASKED: usize = 60;
/// The same for 50 Services.
const ASKED_FIFTY: usize = 40;
/// The same for 10 Services.
const ASKED_TEN: usize = 25;
/// For 200 Services.
const RECEIVED_MIB: f64 = 3.8;
/// Seconds for 200 Services.
const CPU: f64 = 1.0;
/// Peak for 200 Services, of the binary of the image; and of one with the sandbox in it, whose file has 8 MiB of pages more.
const SHIPPED_MEMORY_MIB: f64 = 35.0;
const MEMORY_MIB: f64 = 40.0;
/// The same without pages of files.
const OWN_MIB: f64 = 18.0;
/// How much more 400 Services may receive than 50. The goal is 10, which `tests/azure_services/growth.rs` asserts on a paused clock. Here the
/// number of lists and of Services in a batch differs from run to run.
const GROWTH_RECEIVED: f64 = 12.0;
/// How much more CPU time they may take.
const GROWTH_CPU: f64 = 10.0;
/// Services that share an address in the deletion of many.
const PORTS_PER_ADDRESS: u32 = 100;
/// The limit of the shipped manifests.
const LIMIT_MIB: f64 = 512.0;
/// Of the hostile Services: 255 KiB each.
const ANNOTATIONS: usize = 2_900;
const SLICES: u32 = 200;
/// How often one of the slices changes.
const ROUNDS: u32 = 100;
/// For 500 hostile Services.
const HOSTILE_MEMORY_MIB: f64 = 64.0;
/// How long `/livez` may take; kubelet waits 15 s.
const LIVEZ: Duration = Duration::from_secs(1);
/// Names another binary than the built one.
const SHIPPED: &str = "CCM_BINARY";
/// Of `/proc/*/stat` on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

fn main() {
    // `cargo test --benches` runs every bench once and briefly; this one has its own `make bench`.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let rows = runtime.block_on(async {
        let count = std::env::args().find_map(|argument| argument.parse().ok());
        let is_asked = |name: &str| std::env::args().any(|argument| argument == name);
        match count {
            Some(count) if is_asked("delete") => vec![deleted(count).await],
            Some(count) if is_asked("hostile") => vec![hostile(count).await],
            Some(count) => vec![some(count).await],
            None => all().await,
        }
    });
    println!("| scenario | wall | reads | polls | writes | received | CPU | peak RSS | Go |");
    println!("|---|---|---|---|---|---|---|---|---|");
    rows.iter().for_each(|row| println!("{}", row.text()));
    println!("\nreads (lists: pages) and polls by type:");
    rows.iter().for_each(|row| println!("{}: {}", row.name, row.asked));
    let growth = if rows.len() > 1 { growth(&rows) } else { Vec::new() };
    let broken: Vec<String> = rows.iter().flat_map(Row::broken).chain(growth).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// So many Services at once and nothing else, for profilers: `cargo bench … -- 200`.
async fn some(count: u32) -> Row {
    created(&format!("{count} Services at once"), count, responding(), "", Bounds::default()).await.0
}

/// All scenarios, one after the other.
async fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for (count, asked, go) in [
        (10, Some(ASKED_TEN), "9.2 s, 137 reads, 41 writes, 1.7 MiB, 0.6 s, 89 MiB"),
        (50, Some(ASKED_FIFTY), "37 s, 618 reads, 161 writes, 28 MiB, 3.9 s, 135 MiB"),
        (400, None, "not measured"),
    ] {
        let name = format!("{count} Services at once, writes are answered after 200 ms");
        rows.push(created(&name, count, responding(), go, Bounds { asked, ..Bounds::default() }).await.0);
    }
    let name = "10 Services at once, writes are operations of 200 ms";
    let bounds = Bounds { asked: Some(ASKED_TEN), wall: Some(5.0), ..Bounds::default() };
    let go = "166 s, 139 reads, 81 polls, 41 writes, 1.7 MiB, 2 s, 90 MiB";
    rows.push(created(name, 10, operating(), go, bounds).await.0);
    rows.extend(two_hundred().await);
    rows.push(two_hundred_more().await);
    rows
}

/// 200 Services at once where there is one: all that a Service costs by itself, without filling the pool.
async fn two_hundred_more() -> Row {
    let place = Place::new(responding()).await;
    let create = |name: &str| drop(place.server.create::<Service>(&objects::load_balancer_service("default", name)));
    create("first");
    let (manager, name) = (place.start(), "200 Services at once after a first one");
    place.until_ready(&manager).await;
    place.settled("the first", Instant::now(), &manager, 0.0, "", Bounds::default()).await;

    place.world.azure().clear_requests();
    let (started, before) = (Instant::now(), manager.cpu());
    (0..200).for_each(|index| create(&format!("service-{index}")));
    place.until_ready(&manager).await;
    let wall = started.elapsed();
    let bounds =
        Bounds { asked: Some(ASKED), writes: Some(210), received: Some(RECEIVED_MIB), cpu: Some(CPU), ..Bounds::default() };
    let row = place.settled(name, started, &manager, before, "not measured", bounds).await;
    Row { wall: wall.as_secs_f64(), ..row }
}

/// 200 Services at once, then what happens to a cluster that has them.
async fn two_hundred() -> Vec<Row> {
    let writes = 210 + MEMBERSHIP;
    let bounds = Bounds {
        asked: Some(ASKED),
        writes: Some(writes),
        received: Some(RECEIVED_MIB),
        cpu: Some(CPU),
        memory: Some(if std::env::var_os(SHIPPED).is_some() { SHIPPED_MEMORY_MIB } else { MEMORY_MIB }),
        own: Some(OWN_MIB),
        ..Bounds::default()
    };
    let go = "183 s, 2618 reads, 611 writes, 410 MiB, 45 s, 346 MiB";
    let (first, place, manager) =
        created("200 Services at once, writes are answered after 200 ms", 200, responding(), go, bounds).await;
    manager.terminate();

    place.world.azure().clear_requests();
    let started = Instant::now();
    let manager = place.start();
    let bounds = Bounds { reads: Some(15), writes: Some(0), ..Bounds::default() };
    let go = "73 s, 808 reads, 0 writes, 363 MiB, 38 s, 201 MiB";
    let restart = place.settled("restart with 200 Services", started, &manager, 0.0, go, bounds).await;

    place.world.azure().clear_requests();
    let (started, before) = (Instant::now(), manager.cpu());
    let pool = place.world.topology().pools.first().map(|pool| pool.name.clone()).expect("a pool");
    let name = place.world.scale_out(&pool, 1).expect("the pool").pop().expect("a node");
    place.server.create::<Node>(&place.world.uninitialized_node(&name).expect("the machine"));
    let bounds = Bounds { reads: Some(10), writes: Some(2), cpu: Some(1.0), ..Bounds::default() };
    let go = "1013 reads, 2 writes, 487 MiB, 44 s";
    let added = place.settled("one node added, 200 Services", started, &manager, before, go, bounds).await;

    place.world.azure().clear_requests();
    let (started, before) = (Instant::now(), manager.cpu());
    place.server.delete::<Node>("", &name);
    place.world.scale_in(&pool, 1).expect("the pool");
    let bounds = Bounds { reads: Some(10), writes: Some(2), cpu: Some(1.0), ..Bounds::default() };
    let go = "1005 reads, 1 write, 484 MiB, 35 s";
    let removed = place.settled("one node removed, 200 Services", started, &manager, before, go, bounds).await;
    manager.terminate();
    vec![first, restart, added, removed]
}

/// Services that wait when the program starts, until all have an address.
async fn created(name: &str, count: u32, latencies: Latencies, go: &'static str, bounds: Bounds) -> (Row, Place, Manager) {
    let place = Place::new(latencies).await;
    for index in 0..count {
        place.server.create::<Service>(&objects::load_balancer_service("default", &format!("service-{index}")));
    }
    let started = Instant::now();
    let manager = place.start();
    place.until_ready(&manager).await;
    let wall = started.elapsed();
    let row = Row { wall: wall.as_secs_f64(), ..place.settled(name, started, &manager, 0.0, go, bounds).await };
    (Row { count: Some(count), ..row }, place, manager)
}

/// Services of one load balancer that are all deleted at once, while `/livez` is probed. They share private addresses, because a load balancer
/// has room for 1,500 rules and only 600 frontends.
async fn deleted(count: u32) -> Row {
    let place = Place::new(responding()).await;
    for index in 0..count {
        let service = objects::load_balancer_service("default", &format!("service-{index}"));
        let service = service.annotation("service.beta.kubernetes.io/azure-load-balancer-internal", "true");
        let address = format!("10.224.200.{}", 1 + index / PORTS_PER_ADDRESS);
        let service = service.annotation("service.beta.kubernetes.io/azure-load-balancer-ipv4", &address);
        let port = i32::try_from(1_000 + index % PORTS_PER_ADDRESS).expect("a port");
        place.server.create::<Service>(&service.ports(&[("http", port)]));
    }
    let manager = place.start();
    place.until_ready(&manager).await;
    place.settled("made", Instant::now(), &manager, 0.0, "", Bounds::default()).await;
    place.world.azure().clear_requests();
    let (started, before) = (Instant::now(), manager.cpu());
    let names = place.server.list::<Service>().into_iter().filter_map(|service| service.metadata.name);
    for name in names {
        place.server.delete::<Service>("default", &name);
    }
    let (mut slowest, deadline) = (Duration::ZERO, Instant::now() + LIMIT);
    while !place.server.list::<Service>().is_empty() {
        assert!(Instant::now() < deadline, "not gone:\n{}", tail(&place.file("log")));
        manager.look();
        slowest = slowest.max(manager.livez().await);
        tokio::time::sleep(TICK).await;
    }
    println!("/livez took {slowest:?} at most while {count} Services were deleted");
    let bounds = Bounds { memory: Some(LIMIT_MIB), ..Bounds::default() };
    let row =
        place.settled(&format!("{count} Services deleted at once"), started, &manager, before, "not measured", bounds).await;
    assert!(slowest < LIVEZ, "/livez took {slowest:?}");
    row
}

/// Services with annotations that nobody reads, as many as the API server takes, and EndpointSlices that name Nodes that do not exist. One of
/// the slices changes all the time.
async fn hostile(count: u32) -> Row {
    let mut place = Place::new(responding()).await;
    // To list what the server has takes long here.
    place.tick = Duration::from_secs(1);
    place.configure("loadBalancerBackendPoolConfigurationType", "nodeIP".into());
    // One load balancer takes 300 rules where there may be several.
    let entries = json!([{"name": "kubernetes", "primaryVMSet": "none"}, {"name": "lb2", "primaryVMSet": "nobody"}]);
    place.configure("multipleStandardLoadBalancerConfigurations", entries);
    let annotations: Vec<_> = (0..ANNOTATIONS).map(|index| (format!("example.com/key-{index}"), "x".repeat(70))).collect();
    for index in 0..count {
        let name = format!("service-{index}");
        let service = objects::load_balancer_service("default", &name);
        // Public IPs and pools would be more writes than Azure takes in five minutes.
        let mut service = service.annotation("service.beta.kubernetes.io/azure-load-balancer-internal", "true");
        if index < SLICES {
            service = service.external_traffic_policy("Local");
        }
        service.metadata.annotations.get_or_insert_default().extend(annotations.iter().cloned());
        place.server.create::<Service>(&service);
        if index < SLICES {
            place.server.create(&slice_of_strangers(&name, 0));
        }
    }
    let (started, manager) = (Instant::now(), place.start());
    place.until_ready(&manager).await;
    let wall = started.elapsed();
    let before = manager.cpu();
    for round in 1..=ROUNDS {
        let changed = slice_of_strangers("service-0", round);
        place
            .server
            .update_with("default", "service-0", |slice: &mut EndpointSlice| slice.endpoints.clone_from(&changed.endpoints));
        tokio::time::sleep(TICK).await;
    }
    println!("{ROUNDS} changes of one EndpointSlice took {:.2} s of CPU", manager.cpu() - before);
    let bounds = Bounds { memory: Some(HOSTILE_MEMORY_MIB), ..Bounds::default() };
    let name = format!("{count} Services with 255 KiB of annotations, 200 EndpointSlices of strangers");
    Row { wall: wall.as_secs_f64(), ..place.settled(&name, started, &manager, 0.0, "not measured", bounds).await }
}

/// A slice with 1,000 endpoints on Nodes that do not exist.
fn slice_of_strangers(service: &str, round: u32) -> EndpointSlice {
    let endpoint = |index: u32| json!({"addresses": ["10.244.0.9"], "nodeName": format!("stranger-{round}-of-{service}-number-{index}")});
    let endpoints: Vec<_> = (0..1_000).map(endpoint).collect();
    serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "endpoints": endpoints, "ports": [],
    }))
    .expect("an EndpointSlice")
}

/// Every write is answered after 200 ms, and its operation ends 200 ms later.
fn responding() -> Latencies {
    let time = Duration::from_millis(200);
    Latencies::writes(Latency { respond: time, operation: time })
}

/// Every write starts an operation of 200 ms.
fn operating() -> Latencies {
    Latencies::writes(Latency { respond: Duration::ZERO, operation: Duration::from_millis(200) })
}

/// What must hold of a scenario at most: requests, MiB, seconds of processor time, MiB of memory, seconds.
#[derive(Default, Clone, Copy)]
struct Bounds {
    reads: Option<usize>,
    /// Reads and polls together.
    asked: Option<usize>,
    writes: Option<usize>,
    received: Option<f64>,
    cpu: Option<f64>,
    memory: Option<f64>,
    /// Without pages of files.
    own: Option<f64>,
    wall: Option<f64>,
}

/// What a scenario took.
struct Row {
    name: String,
    /// Services made in it.
    count: Option<u32>,
    wall: f64,
    reads: usize,
    polls: usize,
    writes: usize,
    received: f64,
    cpu: f64,
    memory: f64,
    /// The most that was seen without pages of files.
    own: f64,
    /// Reads and polls by what they asked for.
    asked: String,
    go: &'static str,
    bounds: Bounds,
}

impl Row {
    fn text(&self) -> String {
        format!(
            "| {} | {:.1} s | {} | {} | {} | {:.2} MiB | {:.2} s | {:.1} MiB, {:.1} of its own | {} |",
            self.name,
            self.wall,
            self.reads,
            self.polls,
            self.writes,
            self.received,
            self.cpu,
            self.memory,
            self.own,
            self.go
        )
    }

    fn broken(&self) -> Vec<String> {
        let whole = |number: Option<usize>| number.and_then(|number| u32::try_from(number).ok()).map(f64::from);
        let is = |number: usize| whole(Some(number)).unwrap_or(f64::MAX);
        let checks = [
            ("reads", is(self.reads), whole(self.bounds.reads)),
            ("reads and polls", is(self.reads + self.polls), whole(self.bounds.asked)),
            ("writes", is(self.writes), whole(self.bounds.writes)),
            ("MiB received", self.received, self.bounds.received),
            ("s of CPU", self.cpu, self.bounds.cpu),
            ("MiB resident", self.memory, self.bounds.memory),
            ("MiB of its own", self.own, self.bounds.own),
            ("s", self.wall, self.bounds.wall),
        ];
        let over = |(what, is, most): (&str, f64, Option<f64>)| {
            let most = most.filter(|most| is > *most)?;
            Some(format!("{}: {is:.2} {what}, at most {most}", self.name))
        };
        checks.into_iter().filter_map(over).collect()
    }
}

/// From 50 to 400 Services there are eight times the documents, and a few more writes of the load balancer, since the budget lets
/// public IPs come one by one after the first hundred. With the square it would be 64-fold.
fn growth(rows: &[Row]) -> Vec<String> {
    let of = |count: u32| rows.iter().find(|row| row.count == Some(count));
    let (Some(few), Some(many)) = (of(50), of(400)) else { return vec!["50 or 400 Services were not measured".to_owned()] };
    let bytes = many.received / few.received;
    let cpu = many.cpu / few.cpu;
    println!("from 50 to 400 Services: {bytes:.1} times the bytes, {cpu:.1} times the CPU");
    let wrong =
        [("bytes", bytes, GROWTH_RECEIVED), ("CPU", cpu, GROWTH_CPU)].into_iter().filter(|(_, times, most)| times > most);
    wrong
        .map(|(what, times, most)| format!("{what} grow {times:.1} times from 50 to 400 Services, at most {most}"))
        .collect()
}

/// A cluster in Azure, served to other processes.
struct Place {
    server: ApiServer,
    world: World,
    folder: tempfile::TempDir,
    /// How often the server is looked at.
    tick: Duration,
    stop: Shutdown,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

impl Place {
    async fn new(latencies: Latencies) -> Self {
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
        let world = start_world(topology, start).await.expect("the simulated cloud");
        let mut config = world.config();
        // More than fit at a network interface.
        config["maximumNetworkInterfaceRuleCount"] = 1_500.into();
        fs::write(folder.path().join("azure.json"), config.to_string()).expect("azure.json");
        world.nodes().iter().for_each(|node| drop(server.create::<Node>(node)));
        Self { server, world, folder, tick: TICK, stop }
    }

    /// Sets a field of `azure.json`.
    fn configure(&self, field: &str, value: Value) {
        let text = fs::read_to_string(self.file("azure.json")).expect("azure.json");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        config[field] = value;
        fs::write(self.file("azure.json"), config.to_string()).expect("azure.json");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The built binary, or the one that `CCM_BINARY` names, with the flags of `manifests/deployment.yaml`.
    fn start(&self) -> Manager {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        let log = fs::File::create(self.file("log")).expect("a log");
        let binary = std::env::var(SHIPPED).unwrap_or_else(|_| env!("CARGO_BIN_EXE_cloud-controller-manager").to_owned());
        let child = Command::new(binary)
            .env("SSL_CERT_FILE", self.file("ca.pem"))
            // As in the image.
            .env("MALLOC_ARENA_MAX", "1")
            .arg(format!("--kubeconfig={}", self.file("kubeconfig").display()))
            .arg(format!("--cloud-config={}", self.file("azure.json").display()))
            .arg(format!("--secure-port={port}"))
            .args(["--cloud-provider=azure", "--bind-address=127.0.0.1", "--configure-cloud-routes=false", "--v=2"])
            .arg("--leader-elect=true")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program starts");
        let client = reqwest::ClientBuilder::new().danger_accept_invalid_certs(true).build().expect("a client");
        Manager { child, own: std::cell::Cell::new(0.0), client, livez: format!("https://127.0.0.1:{port}/livez") }
    }

    async fn until_ready(&self, manager: &Manager) {
        let deadline = Instant::now() + LIMIT;
        let mut ticks = tokio::time::interval(self.tick);
        while !self.server.list::<Service>().iter().all(has_address) {
            assert!(Instant::now() < deadline, "not ready:\n{}", tail(&self.file("log")));
            manager.look();
            ticks.tick().await;
        }
    }

    /// Waits until ARM is left alone; answers what was asked of it. `cpu`: what the program had used before.
    async fn settled(
        &self,
        name: &str,
        started: Instant,
        manager: &Manager,
        cpu: f64,
        go: &'static str,
        bounds: Bounds,
    ) -> Row {
        let azure = self.world.azure();
        let mut last = Instant::now();
        let (mut before, mut ticks) = (azure.count(is_arm), tokio::time::interval(TICK));
        while last.elapsed() < QUIET {
            ticks.tick().await;
            manager.look();
            let now = azure.count(is_arm);
            if now != before {
                (before, last) = (now, Instant::now());
            }
        }
        let count = |class: &[Class]| azure.count(|request| class.contains(&request.class));
        let received: usize = azure.requests().iter().filter(|request| is_arm(request)).map(|request| request.bytes).sum();
        Row {
            name: name.to_owned(),
            count: None,
            wall: last.duration_since(started).as_secs_f64(),
            reads: count(&[Class::Read]),
            polls: count(&[Class::Poll]),
            writes: count(&[Class::Write, Class::Delete]),
            received: f64::from(u32::try_from(received).unwrap_or(u32::MAX)) / MIB,
            cpu: manager.cpu() - cpu,
            memory: manager.mib("VmHWM:"),
            own: manager.own.get(),
            asked: asked(&azure.requests()),
            go,
            bounds,
        }
    }
}

/// How often was asked for what.
fn asked(requests: &[RequestRecord]) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for request in requests.iter().filter(|request| matches!(request.class, Class::Read | Class::Poll)) {
        let what = match request.class {
            Class::Poll => "poll".to_owned(),
            _ => format!("{}{}", if request.list { "list " } else { "" }, request.resource_type.replace("microsoft.", "")),
        };
        *counts.entry(what).or_default() += 1;
    }
    counts.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

fn is_arm(request: &RequestRecord) -> bool {
    request.class != Class::Other
}

fn has_address(service: &Service) -> bool {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty())
}

/// The end of a log.
fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// The program.
struct Manager {
    child: Child,
    /// The most memory of its own that was seen, in MiB.
    own: std::cell::Cell<f64>,
    client: reqwest::Client,
    livez: String,
}

impl Manager {
    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap_or_default()
    }

    /// Seconds of processor time so far.
    fn cpu(&self) -> f64 {
        let stat = self.proc("stat");
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
    }

    /// Looks at how much memory is the program's own at present.
    fn look(&self) {
        self.own.set(self.own.get().max(self.mib("RssAnon:")));
    }

    /// How long `/livez` takes.
    async fn livez(&self) -> Duration {
        let started = Instant::now();
        let response = self.client.get(&self.livez).send().await.expect("a response of /livez");
        assert!(response.status().is_success(), "/livez: {}", response.status());
        started.elapsed()
    }

    /// A field of `/proc/*/status`.
    fn mib(&self, field: &str) -> f64 {
        let status = self.proc("status");
        let line = status.lines().find(|line| line.starts_with(field)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(f64::MAX) / 1024.0
    }

    /// Sends SIGTERM and waits for the end.
    fn terminate(mut self) {
        let status = Command::new("kill").arg(self.child.id().to_string()).status().expect("kill runs");
        assert!(status.success(), "kill failed");
        let status = self.child.wait().expect("the program ends");
        assert!(status.success(), "the program ended with {status}");
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // It has ended already unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

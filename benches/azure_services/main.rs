//! What Services of type LoadBalancer cost on Azure: the built binary, with the flags of the shipped manifests, against an API server and
//! a simulated Resource Manager in this process, ten nodes in a uniform scale set, pages of 100. Counts, bytes, processor time and
//! memory are the binary's own and asserted; times are reported next to those of Go's program.
//!
//! `-- 200` only creates that many Services at once, `-- delete 1500` only deletes that many at once. `-- hostile` only creates Services that
//! are as large as the API server accepts, in three shapes, next to 200 EndpointSlices of 1,000 Nodes that do not exist. `-- contention` only
//! runs Services that compete for the quota of writes, `-- hang` only writes that never end. `-- rest` only measures an idle cluster.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a benchmark panics if its setup fails")]

mod cluster;
mod contention;
mod hang;
#[path = "../support/program.rs"]
mod program;
mod rest;

use std::time::Duration;

use cloud_controller_manager::sandbox::{
    azure::{Latencies, Latency},
    objects::{self, ObjectExt, ServiceExt},
};
use cluster::{Cluster, Manager};
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use program::{COUNTS_ONLY, is_shipped};
use serde_json::json;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(300);
const TICK: Duration = Duration::from_millis(50);
const MIB: f64 = 1024.0 * 1024.0;
/// Writes that put ten instances and their scale set into the pool, once in the life of a cluster.
const MEMBERSHIP: usize = 11;
/// Services of a cluster that changes.
const SERVICES: u32 = if COUNTS_ONLY { 50 } else { 200 };
/// Limit of writes for [`SERVICES`].
const WRITES: usize = SERVICES as usize + 10;
/// Limit of reads and polls for [`SERVICES`]: pages of lists, which follow the operations of public IPs and instances, and a few reads of the
/// documents that all Services share.
const READS_AND_POLLS: usize = if COUNTS_ONLY { READS_AND_POLLS_OF_50 } else { 60 };
/// Limit of reads and polls for 50 Services.
const READS_AND_POLLS_OF_50: usize = 40;
/// Limit of reads and polls for 10 Services.
const READS_AND_POLLS_OF_10: usize = 25;
/// Limit of MiB received for [`SERVICES`].
const RECEIVED_MIB: f64 = if COUNTS_ONLY { 1.4 } else { 3.8 };
/// Limit of processor time for 200 Services, in seconds.
const CPU: f64 = 1.0;
/// Limit of processor time for 400 Services, which is below quadratic growth. `tests/azure_services/growth.rs` asserts that bytes grow linearly.
const CPU_TWICE: f64 = 2.5;
/// Limit of peak memory for 200 Services, in MiB.
const MEMORY_MIB: f64 = 35.0;
/// Limit of peak memory without pages of files, in MiB.
const OWN_MIB: f64 = 18.0;
/// Services that share an address in the deletion of many.
const PORTS_PER_ADDRESS: u32 = 100;
/// Memory limit of the shipped manifests, in MiB.
const LIMIT_MIB: f64 = 512.0;
/// Annotations of a hostile Service: 255 KiB.
const ANNOTATIONS: usize = 2_900;
const SLICES: u32 = 200;
/// Number of changes to one of the slices.
const ROUNDS: u32 = 100;
/// Limit of peak memory for hostile Services of each shape, in MiB.
const HOSTILE_MEMORY_MIB: f64 = 96.0;
/// Memory that a hostile Service may use in addition to that of an ordinary one, in KiB. Few hostile Services share the page of a list and the
/// writes in flight.
const HOSTILE_GROWTH_KIB: f64 = 1_024.0;
/// Limit for a response of `/livez`; the kubelet waits 15 s.
const LIVEZ: Duration = Duration::from_secs(1);

fn main() {
    // `cargo test --benches` runs each benchmark once, but `make bench` runs this one.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let rows = runtime.block_on(async {
        let count = std::env::args().find_map(|argument| argument.parse().ok());
        let has_argument = |name: &str| std::env::args().any(|argument| argument == name);
        match count {
            Some(count) if has_argument("delete") => vec![deleted(count).await],
            Some(count) => vec![create_only(count).await],
            None if has_argument("hostile") => all_hostile(0.0).await,
            None if has_argument("contention") => {
                Box::pin(contention::all()).await;
                Vec::new()
            }
            None if has_argument("hang") => {
                hang::all().await;
                Vec::new()
            }
            None if has_argument("rest") => {
                Box::pin(rest::all()).await;
                Vec::new()
            }
            None => all().await,
        }
    });
    println!("| scenario | wall | reads | polls | writes | received | CPU | peak RSS | Go |");
    println!("|---|---|---|---|---|---|---|---|---|");
    rows.iter().for_each(|row| println!("{}", row.text()));
    println!("\nreads (lists: pages) and polls by type:");
    rows.iter().for_each(|row| println!("{}: {}", row.name, row.requests_by_kind));
    let broken: Vec<String> = rows.iter().flat_map(Row::broken).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Only creates `count` Services at once, for profilers: `cargo bench … -- 200`.
async fn create_only(count: u32) -> Row {
    created(&format!("{count} Services at once"), count, responding(), "", Bounds::default()).await.0
}

/// Runs all scenarios, one after the other.
async fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    let sizes = [
        (10, Some(READS_AND_POLLS_OF_10), None, "9.2 s, 137 reads, 41 writes, 1.7 MiB, 0.6 s, 89 MiB"),
        (50, Some(READS_AND_POLLS_OF_50), None, "37 s, 618 reads, 161 writes, 28 MiB, 3.9 s, 135 MiB"),
        (400, None, Some(CPU_TWICE), "not measured"),
    ];
    for (count, reads_and_polls, cpu, go) in sizes.into_iter().filter(|(count, ..)| !COUNTS_ONLY || *count < SERVICES) {
        let name = format!("{count} Services at once, writes get a response after 200 ms");
        rows.push(created(&name, count, responding(), go, Bounds { reads_and_polls, cpu, ..Bounds::default() }).await.0);
    }
    let name = "10 Services at once, writes are operations of 200 ms";
    let bounds = Bounds { reads_and_polls: Some(READS_AND_POLLS_OF_10), wall: Some(5.0), ..Bounds::default() };
    let go = "166 s, 139 reads, 81 polls, 41 writes, 1.7 MiB, 2 s, 90 MiB";
    rows.push(created(name, 10, operating(), go, bounds).await.0);
    rows.extend(changed().await);
    rows.push(create_after_first().await);
    // Rows with as many Services as the largest hostile scenario of `make bench-counts`.
    let ordinary = rows.iter().map(|row| row.own).fold(0.0, f64::max);
    rows.extend(all_hostile(ordinary).await);
    Box::pin(contention::all()).await;
    // The tests assert these scenarios on a paused clock.
    if is_shipped() {
        Box::pin(hang::all()).await;
        Box::pin(rest::all()).await;
    }
    rows
}

/// Creates Services at once in a cluster that has one: the cost of a Service without the writes that fill the pool.
async fn create_after_first() -> Row {
    let cluster = Cluster::new(responding()).await;
    let create = |name: &str| drop(cluster.server.create::<Service>(&objects::load_balancer_service("default", name)));
    create("first");
    let (manager, name) = (cluster.start(), format!("{SERVICES} Services at once after a first one"));
    cluster.until_ready(&manager).await;
    cluster.settled("the first", Instant::now(), &manager, 0.0, "", Bounds::default()).await;

    cluster.simulation.azure().clear_requests();
    let (started, before) = (Instant::now(), manager.program.cpu());
    (0..SERVICES).for_each(|index| create(&format!("service-{index}")));
    cluster.until_ready(&manager).await;
    let wall = started.elapsed();
    let bounds = Bounds {
        reads_and_polls: Some(READS_AND_POLLS),
        writes: Some(WRITES),
        received: Some(RECEIVED_MIB),
        cpu: Some(CPU),
        ..Bounds::default()
    };
    let row = cluster.settled(&name, started, &manager, before, "not measured", bounds).await;
    Row { wall: wall.as_secs_f64(), ..row }
}

/// Creates Services at once, then restarts the program, and adds and removes a Node.
async fn changed() -> Vec<Row> {
    let bounds = Bounds {
        reads_and_polls: Some(READS_AND_POLLS),
        writes: Some(WRITES + MEMBERSHIP),
        received: Some(RECEIVED_MIB),
        cpu: Some(CPU),
        memory: Some(MEMORY_MIB),
        own: Some(OWN_MIB),
        ..Bounds::default()
    };
    let go = "183 s, 2618 reads, 611 writes, 410 MiB, 45 s, 346 MiB";
    let name = format!("{SERVICES} Services at once, writes get a response after 200 ms");
    let (first, cluster, manager) = created(&name, SERVICES, responding(), go, bounds).await;
    manager.program.terminate();

    cluster.simulation.azure().clear_requests();
    let started = Instant::now();
    let manager = cluster.start();
    let bounds = Bounds { reads: Some(15), writes: Some(0), ..Bounds::default() };
    let go = "73 s, 808 reads, 0 writes, 363 MiB, 38 s, 201 MiB";
    let restart = cluster.settled("restart with these Services", started, &manager, 0.0, go, bounds).await;

    cluster.simulation.azure().clear_requests();
    let (started, before) = (Instant::now(), manager.program.cpu());
    let pool = cluster.simulation.topology().pools.first().map(|pool| pool.name.clone()).expect("a pool");
    let name = cluster.simulation.scale_out(&pool, 1).expect("the pool").pop().expect("a node");
    cluster.server.create::<Node>(&cluster.simulation.uninitialized_node(&name).expect("the machine"));
    let bounds = Bounds { reads: Some(10), writes: Some(2), cpu: Some(1.0), ..Bounds::default() };
    let go = "1013 reads, 2 writes, 487 MiB, 44 s";
    let added = cluster.settled("one node added", started, &manager, before, go, bounds).await;

    cluster.simulation.azure().clear_requests();
    let (started, before) = (Instant::now(), manager.program.cpu());
    cluster.server.delete::<Node>("", &name);
    cluster.simulation.scale_in(&pool, 1).expect("the pool");
    let bounds = Bounds { reads: Some(10), writes: Some(2), cpu: Some(1.0), ..Bounds::default() };
    let go = "1005 reads, 1 write, 484 MiB, 35 s";
    let removed = cluster.settled("one node removed", started, &manager, before, go, bounds).await;
    manager.program.terminate();
    vec![first, restart, added, removed]
}

/// Starts the program in a cluster with new Services, and waits until all have an address.
async fn created(name: &str, count: u32, latencies: Latencies, go: &'static str, bounds: Bounds) -> (Row, Cluster, Manager) {
    let cluster = Cluster::new(latencies).await;
    for index in 0..count {
        cluster.server.create::<Service>(&objects::load_balancer_service("default", &format!("service-{index}")));
    }
    let started = Instant::now();
    let manager = cluster.start();
    cluster.until_ready(&manager).await;
    let wall = started.elapsed();
    let row = cluster.settled(name, started, &manager, 0.0, go, bounds).await;
    (Row { wall: wall.as_secs_f64(), ..row }, cluster, manager)
}

/// Deletes all Services of one load balancer at once, and probes `/livez` meanwhile. The Services share private addresses, because a load
/// balancer can have 1,500 rules but only 600 frontends.
async fn deleted(count: u32) -> Row {
    let cluster = Cluster::new(responding()).await;
    for index in 0..count {
        let service = objects::load_balancer_service("default", &format!("service-{index}"));
        let service = service.annotation("service.beta.kubernetes.io/azure-load-balancer-internal", "true");
        let address = format!("10.224.200.{}", 1 + index / PORTS_PER_ADDRESS);
        let service = service.annotation("service.beta.kubernetes.io/azure-load-balancer-ipv4", &address);
        let port = i32::try_from(1_000 + index % PORTS_PER_ADDRESS).expect("a port");
        cluster.server.create::<Service>(&service.ports(&[("http", port)]));
    }
    let manager = cluster.start();
    cluster.until_ready(&manager).await;
    cluster.settled("created", Instant::now(), &manager, 0.0, "", Bounds::default()).await;
    cluster.simulation.azure().clear_requests();
    let (started, before) = (Instant::now(), manager.program.cpu());
    let names = cluster.server.list::<Service>().into_iter().filter_map(|service| service.metadata.name);
    for name in names {
        cluster.server.delete::<Service>("default", &name);
    }
    let (mut slowest, deadline) = (Duration::ZERO, Instant::now() + LIMIT);
    while !cluster.server.list::<Service>().is_empty() {
        assert!(Instant::now() < deadline, "not deleted:\n{}", cluster.log());
        manager.sample_memory();
        slowest = slowest.max(manager.livez().await);
        tokio::time::sleep(TICK).await;
    }
    println!("/livez took {slowest:?} at most while {count} Services were deleted");
    let bounds = Bounds { memory: Some(LIMIT_MIB), ..Bounds::default() };
    let row = cluster
        .settled(&format!("{count} Services deleted at once"), started, &manager, before, "not measured", bounds)
        .await;
    assert!(slowest < LIVEZ, "/livez took {slowest:?}");
    row
}

/// Runs all shapes of hostile Services, each with a restart. For the build of the tests, a tenth of the Services suffices, because only growth is
/// asserted.
async fn all_hostile(ordinary: f64) -> Vec<Row> {
    let mut rows = Vec::new();
    for (shape, count) in [(Shape::Ranges, 150), (Shape::ReadAnnotation, 300), (Shape::UnreadAnnotations, 500)] {
        let count = if COUNTS_ONLY { count / 10 } else { count };
        let scenarios = hostile(shape, count).await;
        for row in &scenarios {
            let growth = (row.own - ordinary).max(0.0) / f64::from(count) * 1024.0;
            println!("{}: {growth:.0} KiB a Service more than ordinary ones", row.name);
            assert!(!COUNTS_ONLY || growth <= HOSTILE_GROWTH_KIB, "{}: {growth:.0} KiB a Service", row.name);
        }
        rows.extend(scenarios);
    }
    rows
}

/// Excessive part of a hostile Service, about as large as the API server accepts.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// 60,000 source ranges.
    Ranges,
    /// 190 KiB of an annotation that is read.
    ReadAnnotation,
    /// 255 KiB of annotations without a reader.
    UnreadAnnotations,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Shape::Ranges => "60,000 source ranges",
            Shape::ReadAnnotation => "190 KiB of azure-allowed-ip-ranges",
            Shape::UnreadAnnotations => "255 KiB of annotations without a reader",
        }
    }

    fn fill(self, service: &mut Service) {
        let ranges = |count: u32| {
            (0..count).map(|index| format!("{}.{}.{}.0/24", 11 + (index >> 16), (index >> 8) & 255, index & 255))
        };
        let annotations = service.metadata.annotations.get_or_insert_default();
        match self {
            Shape::Ranges => {
                service.spec.get_or_insert_default().load_balancer_source_ranges = Some(ranges(60_000).collect());
            }
            Shape::ReadAnnotation => {
                let key = "service.beta.kubernetes.io/azure-allowed-ip-ranges".to_owned();
                let mut text = ranges(16_000).collect::<Vec<_>>().join(",");
                text.truncate(190 * 1024);
                annotations.insert(key, text);
            }
            Shape::UnreadAnnotations => {
                annotations.extend((0..ANNOTATIONS).map(|index| (format!("example.com/key-{index}"), "x".repeat(70))));
            }
        }
    }
}

/// Creates Services of this shape, and restarts the program with them. If Services of the shape can be served, EndpointSlices name Nodes that do
/// not exist, and one of the slices changes repeatedly.
async fn hostile(shape: Shape, count: u32) -> Vec<Row> {
    let cluster = Cluster::new(responding()).await;
    cluster.configure("loadBalancerBackendPoolConfigurationType", "nodeIP".into());
    // With several load balancers, each may have 300 rules.
    let entries = json!([{"name": "kubernetes", "primaryVMSet": "none"}, {"name": "lb2", "primaryVMSet": "nobody"}]);
    cluster.configure("multipleStandardLoadBalancerConfigurations", entries);
    let has_slices = matches!(shape, Shape::UnreadAnnotations);
    for index in 0..count {
        let name = format!("service-{index}");
        let service = objects::load_balancer_service("default", &name);
        // Public IPs and pools would need more writes than Azure accepts in five minutes.
        let mut service = service.annotation("service.beta.kubernetes.io/azure-load-balancer-internal", "true");
        if has_slices && index < SLICES {
            service = service.external_traffic_policy("Local");
            cluster.server.create(&slice_of_missing_nodes(&name, 0));
        }
        shape.fill(&mut service);
        cluster.server.create::<Service>(&service);
    }
    let (started, manager) = (Instant::now(), cluster.start());
    cluster.until_decided(&manager).await;
    let wall = started.elapsed();
    if has_slices {
        change_slice(&cluster, &manager).await;
    }
    let bounds = Bounds { memory: Some(HOSTILE_MEMORY_MIB), ..Bounds::default() };
    let name = format!("{count} Services with {}", shape.name());
    let first = cluster.settled(&name, started, &manager, 0.0, "not measured", bounds).await;
    manager.program.terminate();

    cluster.simulation.azure().clear_requests();
    cluster.server.clear_requests();
    let (started, manager) = (Instant::now(), cluster.start());
    cluster.until_listed(&manager).await;
    let name = format!("restart with {name}");
    let restart = cluster.settled(&name, started, &manager, 0.0, "not measured", bounds).await;
    manager.program.terminate();
    vec![Row { wall: wall.as_secs_f64(), ..first }, restart]
}

async fn change_slice(cluster: &Cluster, manager: &Manager) {
    let before = manager.program.cpu();
    for round in 1..=ROUNDS {
        let changed = slice_of_missing_nodes("service-0", round);
        cluster
            .server
            .update_with("default", "service-0", |slice: &mut EndpointSlice| slice.endpoints.clone_from(&changed.endpoints));
        tokio::time::sleep(TICK).await;
    }
    println!("{ROUNDS} changes of one EndpointSlice took {:.2} s of CPU", manager.program.cpu() - before);
}

/// Returns an EndpointSlice with 1,000 endpoints on Nodes that do not exist.
fn slice_of_missing_nodes(service: &str, round: u32) -> EndpointSlice {
    let endpoint = |index: u32| json!({"addresses": ["10.244.0.9"], "nodeName": format!("missing-{round}-of-{service}-number-{index}")});
    let endpoints: Vec<_> = (0..1_000).map(endpoint).collect();
    serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "endpoints": endpoints, "ports": [],
    }))
    .expect("an EndpointSlice")
}

/// Returns latencies with which each write gets a response after 200 ms, and its operation ends 200 ms later.
fn responding() -> Latencies {
    let time = Duration::from_millis(200);
    Latencies::writes(Latency { respond: time, operation: time })
}

/// Returns latencies with which each write starts an operation of 200 ms.
fn operating() -> Latencies {
    Latencies::writes(Latency { respond: Duration::ZERO, operation: Duration::from_millis(200) })
}

/// Upper bounds of a scenario: requests and MiB received. For the binary of the image also seconds of processor time, MiB of memory, and seconds.
#[derive(Default, Clone, Copy)]
struct Bounds {
    reads: Option<usize>,
    reads_and_polls: Option<usize>,
    writes: Option<usize>,
    received: Option<f64>,
    cpu: Option<f64>,
    memory: Option<f64>,
    /// Memory without pages of files.
    own: Option<f64>,
    wall: Option<f64>,
}

impl Bounds {
    /// Returns the bounds that hold for any build.
    fn of_counts(self) -> Self {
        Self { cpu: None, memory: None, own: None, wall: None, ..self }
    }
}

/// Measurements of a scenario.
struct Row {
    name: String,
    wall: f64,
    reads: usize,
    polls: usize,
    writes: usize,
    received: f64,
    cpu: f64,
    memory: f64,
    /// Peak memory without pages of files.
    own: f64,
    /// Reads and polls by kind of resource.
    requests_by_kind: String,
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
        let bounds = if is_shipped() { self.bounds } else { self.bounds.of_counts() };
        let whole = |number: Option<usize>| number.and_then(|number| u32::try_from(number).ok()).map(f64::from);
        let value = |number: usize| whole(Some(number)).unwrap_or(f64::MAX);
        let checks = [
            ("reads", value(self.reads), whole(bounds.reads)),
            ("reads and polls", value(self.reads + self.polls), whole(bounds.reads_and_polls)),
            ("writes", value(self.writes), whole(bounds.writes)),
            ("MiB received", self.received, bounds.received),
            ("s of CPU", self.cpu, bounds.cpu),
            ("MiB resident", self.memory, bounds.memory),
            ("MiB of its own", self.own, bounds.own),
            ("s", self.wall, bounds.wall),
        ];
        let over = |(unit, measured, limit): (&str, f64, Option<f64>)| {
            let limit = limit.filter(|limit| measured > *limit)?;
            Some(format!("{}: {measured:.2} {unit}, at most {limit}", self.name))
        };
        checks.into_iter().filter_map(over).collect()
    }
}

//! What Services of type LoadBalancer cost on Azure: the built binary, with the flags of the shipped manifests, against an API server and
//! a simulated Resource Manager in this process, ten nodes in a uniform scale set, pages of 100. Counts, bytes, processor time and
//! memory are the binary's own and asserted; times are reported beside those of Go's program.
//!
//! `-- 200` makes so many Services at once and nothing else, `-- delete 1500` deletes so many at once. `-- hostile` makes only those that are
//! as large as the API server takes, in three shapes, next to 200 EndpointSlices of 1,000 Nodes that do not exist. `-- contention` plays only
//! Services that compete for the quota of writes. `-- hang` plays only writes that never end, `-- rest` measures only a cluster in which
//! nothing happens.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a benchmark ends where what it needs is missing")]

mod contention;
mod hang;
mod place;
#[path = "../support/program.rs"]
mod program;
mod rest;

use std::time::Duration;

use cloud_controller_manager::sandbox::{
    azure::{Latencies, Latency},
    objects::{self, ObjectExt, ServiceExt},
};
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use place::{Manager, Place};
use program::{COUNTS_ONLY, is_shipped};
use serde_json::json;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(300);
const TICK: Duration = Duration::from_millis(50);
const MIB: f64 = 1024.0 * 1024.0;
/// Writes that put ten instances and their scale set into the pool, once in the life of a cluster.
const MEMBERSHIP: usize = 11;
/// Services of a cluster to which something happens.
const SERVICES: u32 = if COUNTS_ONLY { 50 } else { 200 };
/// Writes for them.
const WRITES: usize = SERVICES as usize + 10;
/// Reads and polls for them: pages of lists, which follow the operations of public IPs and instances, and a few of the documents
/// that all Services share.
const ASKED: usize = if COUNTS_ONLY { ASKED_FIFTY } else { 60 };
/// The same for 50 Services.
const ASKED_FIFTY: usize = 40;
/// The same for 10 Services.
const ASKED_TEN: usize = 25;
/// For [`SERVICES`].
const RECEIVED_MIB: f64 = if COUNTS_ONLY { 1.4 } else { 3.8 };
/// Seconds for 200 Services.
const CPU: f64 = 1.0;
/// The same for 400: not the square of it. That bytes are in proportion, too, is asserted by `tests/azure_services/growth.rs`.
const CPU_TWICE: f64 = 2.5;
/// Peak for 200 Services.
const MEMORY_MIB: f64 = 35.0;
/// The same without pages of files.
const OWN_MIB: f64 = 18.0;
/// Services that share an address in the deletion of many.
const PORTS_PER_ADDRESS: u32 = 100;
/// The limit of the shipped manifests.
const LIMIT_MIB: f64 = 512.0;
/// Annotations of a hostile Service: 255 KiB.
const ANNOTATIONS: usize = 2_900;
const SLICES: u32 = 200;
/// How often one of the slices changes.
const ROUNDS: u32 = 100;
/// Peak for hostile Services of each shape.
const HOSTILE_MEMORY_MIB: f64 = 96.0;
/// Memory that a hostile Service may take more than an ordinary one. Few of them share the page of a list and the writes in flight.
const HOSTILE_GROWTH_KIB: f64 = 1_024.0;
/// How long `/livez` may take; kubelet waits 15 s.
const LIVEZ: Duration = Duration::from_secs(1);

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
            Some(count) => vec![some(count).await],
            None if is_asked("hostile") => all_hostile(0.0).await,
            None if is_asked("contention") => {
                Box::pin(contention::all()).await;
                Vec::new()
            }
            None if is_asked("hang") => {
                hang::all().await;
                Vec::new()
            }
            None if is_asked("rest") => {
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
    rows.iter().for_each(|row| println!("{}: {}", row.name, row.asked));
    let broken: Vec<String> = rows.iter().flat_map(Row::broken).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// So many Services at once and nothing else, for profilers: `cargo bench … -- 200`.
async fn some(count: u32) -> Row {
    created(&format!("{count} Services at once"), count, responding(), "", Bounds::default()).await.0
}

/// All scenarios, one after the other.
async fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    let sizes = [
        (10, Some(ASKED_TEN), None, "9.2 s, 137 reads, 41 writes, 1.7 MiB, 0.6 s, 89 MiB"),
        (50, Some(ASKED_FIFTY), None, "37 s, 618 reads, 161 writes, 28 MiB, 3.9 s, 135 MiB"),
        (400, None, Some(CPU_TWICE), "not measured"),
    ];
    for (count, asked, cpu, go) in sizes.into_iter().filter(|(count, ..)| !COUNTS_ONLY || *count < SERVICES) {
        let name = format!("{count} Services at once, writes are answered after 200 ms");
        rows.push(created(&name, count, responding(), go, Bounds { asked, cpu, ..Bounds::default() }).await.0);
    }
    let name = "10 Services at once, writes are operations of 200 ms";
    let bounds = Bounds { asked: Some(ASKED_TEN), wall: Some(5.0), ..Bounds::default() };
    let go = "166 s, 139 reads, 81 polls, 41 writes, 1.7 MiB, 2 s, 90 MiB";
    rows.push(created(name, 10, operating(), go, bounds).await.0);
    rows.extend(changed().await);
    rows.push(more().await);
    // Of as many Services as the largest tenth has.
    let ordinary = rows.iter().map(|row| row.own).fold(0.0, f64::max);
    rows.extend(all_hostile(ordinary).await);
    Box::pin(contention::all()).await;
    // The same is asserted on a paused clock.
    if is_shipped() {
        Box::pin(hang::all()).await;
        Box::pin(rest::all()).await;
    }
    rows
}

/// Services at once where there is one: all that a Service costs by itself, without filling the pool.
async fn more() -> Row {
    let place = Place::new(responding()).await;
    let create = |name: &str| drop(place.server.create::<Service>(&objects::load_balancer_service("default", name)));
    create("first");
    let (manager, name) = (place.start(), format!("{SERVICES} Services at once after a first one"));
    place.until_ready(&manager).await;
    place.settled("the first", Instant::now(), &manager, 0.0, "", Bounds::default()).await;

    place.world.azure().clear_requests();
    let (started, before) = (Instant::now(), manager.program.cpu());
    (0..SERVICES).for_each(|index| create(&format!("service-{index}")));
    place.until_ready(&manager).await;
    let wall = started.elapsed();
    let bounds = Bounds {
        asked: Some(ASKED),
        writes: Some(WRITES),
        received: Some(RECEIVED_MIB),
        cpu: Some(CPU),
        ..Bounds::default()
    };
    let row = place.settled(&name, started, &manager, before, "not measured", bounds).await;
    Row { wall: wall.as_secs_f64(), ..row }
}

/// Services at once, then what happens to a cluster that has them.
async fn changed() -> Vec<Row> {
    let bounds = Bounds {
        asked: Some(ASKED),
        writes: Some(WRITES + MEMBERSHIP),
        received: Some(RECEIVED_MIB),
        cpu: Some(CPU),
        memory: Some(MEMORY_MIB),
        own: Some(OWN_MIB),
        ..Bounds::default()
    };
    let go = "183 s, 2618 reads, 611 writes, 410 MiB, 45 s, 346 MiB";
    let name = format!("{SERVICES} Services at once, writes are answered after 200 ms");
    let (first, place, manager) = created(&name, SERVICES, responding(), go, bounds).await;
    manager.program.terminate();

    place.world.azure().clear_requests();
    let started = Instant::now();
    let manager = place.start();
    let bounds = Bounds { reads: Some(15), writes: Some(0), ..Bounds::default() };
    let go = "73 s, 808 reads, 0 writes, 363 MiB, 38 s, 201 MiB";
    let restart = place.settled("restart with these Services", started, &manager, 0.0, go, bounds).await;

    place.world.azure().clear_requests();
    let (started, before) = (Instant::now(), manager.program.cpu());
    let pool = place.world.topology().pools.first().map(|pool| pool.name.clone()).expect("a pool");
    let name = place.world.scale_out(&pool, 1).expect("the pool").pop().expect("a node");
    place.server.create::<Node>(&place.world.uninitialized_node(&name).expect("the machine"));
    let bounds = Bounds { reads: Some(10), writes: Some(2), cpu: Some(1.0), ..Bounds::default() };
    let go = "1013 reads, 2 writes, 487 MiB, 44 s";
    let added = place.settled("one node added", started, &manager, before, go, bounds).await;

    place.world.azure().clear_requests();
    let (started, before) = (Instant::now(), manager.program.cpu());
    place.server.delete::<Node>("", &name);
    place.world.scale_in(&pool, 1).expect("the pool");
    let bounds = Bounds { reads: Some(10), writes: Some(2), cpu: Some(1.0), ..Bounds::default() };
    let go = "1005 reads, 1 write, 484 MiB, 35 s";
    let removed = place.settled("one node removed", started, &manager, before, go, bounds).await;
    manager.program.terminate();
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
    let row = place.settled(name, started, &manager, 0.0, go, bounds).await;
    (Row { wall: wall.as_secs_f64(), ..row }, place, manager)
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
    let (started, before) = (Instant::now(), manager.program.cpu());
    let names = place.server.list::<Service>().into_iter().filter_map(|service| service.metadata.name);
    for name in names {
        place.server.delete::<Service>("default", &name);
    }
    let (mut slowest, deadline) = (Duration::ZERO, Instant::now() + LIMIT);
    while !place.server.list::<Service>().is_empty() {
        assert!(Instant::now() < deadline, "not gone:\n{}", place.log());
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

/// Plays all shapes of hostile Services, each with a restart. Of the build of the tests only growth is asserted, and a tenth is enough.
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

/// What a hostile Service has more than one needs, about as much as the API server takes.
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

/// Creates Services of this shape, and restarts the program with them. Next to those that can be served, EndpointSlices name Nodes that do not
/// exist, and one of the slices changes all the time.
async fn hostile(shape: Shape, count: u32) -> Vec<Row> {
    let place = Place::new(responding()).await;
    place.configure("loadBalancerBackendPoolConfigurationType", "nodeIP".into());
    // One load balancer takes 300 rules where there may be several.
    let entries = json!([{"name": "kubernetes", "primaryVMSet": "none"}, {"name": "lb2", "primaryVMSet": "nobody"}]);
    place.configure("multipleStandardLoadBalancerConfigurations", entries);
    let has_slices = matches!(shape, Shape::UnreadAnnotations);
    for index in 0..count {
        let name = format!("service-{index}");
        let service = objects::load_balancer_service("default", &name);
        // Public IPs and pools would be more writes than Azure takes in five minutes.
        let mut service = service.annotation("service.beta.kubernetes.io/azure-load-balancer-internal", "true");
        if has_slices && index < SLICES {
            service = service.external_traffic_policy("Local");
            place.server.create(&slice_of_strangers(&name, 0));
        }
        shape.fill(&mut service);
        place.server.create::<Service>(&service);
    }
    let (started, manager) = (Instant::now(), place.start());
    place.until_decided(&manager).await;
    let wall = started.elapsed();
    if has_slices {
        change_slice(&place, &manager).await;
    }
    let bounds = Bounds { memory: Some(HOSTILE_MEMORY_MIB), ..Bounds::default() };
    let name = format!("{count} Services with {}", shape.name());
    let first = place.settled(&name, started, &manager, 0.0, "not measured", bounds).await;
    manager.program.terminate();

    place.world.azure().clear_requests();
    place.server.clear_requests();
    let (started, manager) = (Instant::now(), place.start());
    place.until_listed(&manager).await;
    let name = format!("restart with {name}");
    let restart = place.settled(&name, started, &manager, 0.0, "not measured", bounds).await;
    manager.program.terminate();
    vec![Row { wall: wall.as_secs_f64(), ..first }, restart]
}

async fn change_slice(place: &Place, manager: &Manager) {
    let before = manager.program.cpu();
    for round in 1..=ROUNDS {
        let changed = slice_of_strangers("service-0", round);
        place
            .server
            .update_with("default", "service-0", |slice: &mut EndpointSlice| slice.endpoints.clone_from(&changed.endpoints));
        tokio::time::sleep(TICK).await;
    }
    println!("{ROUNDS} changes of one EndpointSlice took {:.2} s of CPU", manager.program.cpu() - before);
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

/// What must hold of a scenario at most: requests and MiB received; of the binary of the image also seconds of processor time, MiB of memory,
/// and seconds.
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

impl Bounds {
    /// Returns the bounds that hold for any build.
    fn of_counts(self) -> Self {
        Self { cpu: None, memory: None, own: None, wall: None, ..self }
    }
}

/// What a scenario took.
struct Row {
    name: String,
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
        let bounds = if is_shipped() { self.bounds } else { self.bounds.of_counts() };
        let whole = |number: Option<usize>| number.and_then(|number| u32::try_from(number).ok()).map(f64::from);
        let is = |number: usize| whole(Some(number)).unwrap_or(f64::MAX);
        let checks = [
            ("reads", is(self.reads), whole(bounds.reads)),
            ("reads and polls", is(self.reads + self.polls), whole(bounds.asked)),
            ("writes", is(self.writes), whole(bounds.writes)),
            ("MiB received", self.received, bounds.received),
            ("s of CPU", self.cpu, bounds.cpu),
            ("MiB resident", self.memory, bounds.memory),
            ("MiB of its own", self.own, bounds.own),
            ("s", self.wall, bounds.wall),
        ];
        let over = |(what, is, most): (&str, f64, Option<f64>)| {
            let most = most.filter(|most| is > *most)?;
            Some(format!("{}: {is:.2} {what}, at most {most}", self.name))
        };
        checks.into_iter().filter_map(over).collect()
    }
}

//! The manager is killed at random moments while ARM fails at random. In the end the cloud is what one undisturbed manager makes of
//! the same objects, and what belongs to others is as it was.
//!
//! In: a seed, which decides what users do, when the process dies and which requests fail. Out: a panic that names the seed.

use std::{collections::BTreeMap, env, time::Duration};

use cloud_controller_manager::sandbox::azure::{
    AzureOptions, Class, Effect, Fault, Latencies, Latency, RequestRecord,
    topology::{PoolKind, Topology},
};
use k8s_openapi::api::core::v1::Service;
use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use serde_json::{Value, json};
use tokio::time::{Instant, interval, timeout};

use crate::{
    azure::Azure,
    control_plane::ControlPlane,
    documents::{State, differences, unordered, without_idle_pools},
    objects::{Objects, condition_reason},
    services,
    support::{Manager, eventually},
};

/// Kills of each history in CI; together more than a hundred.
const KILLS: usize = 28;
/// Names `make soak` sets: for how many seconds histories go on to be played.
const SOAK: &str = "CCM_SOAK_SECONDS";
/// Plays these seeds alone, as in `3,4`.
const SEEDS: &str = "CCM_KILLS";
/// Histories that CI plays.
const IN_CI: u64 = 5;
/// Histories that run at the same time afterwards.
const AT_ONCE: u64 = 4;
/// Resident memory that no life of the manager may pass, in MiB; the tests' build is larger than the released one.
const MEMORY_MIB: u64 = 128;
/// The longest a manager lives that sends nothing.
const LIFE: Duration = Duration::from_secs(4);
/// Nothing that goes on without faults pauses for so long.
const QUIET: Duration = Duration::from_secs(3);
/// Everything that a history comes to is done by then, faults being over.
const END: Duration = Duration::from_secs(180);

/// For managers that elect a leader and live as long as it takes: with the defaults a busy machine costs nobody the lease.
const PATIENT: &[&str] = &["--configure-cloud-routes=false"];
const ALONE: &[&str] = &["--leader-elect=false", "--configure-cloud-routes=false"];
const ELECTED: &[&str] = &[
    "--configure-cloud-routes=false",
    "--leader-elect-lease-duration=2s",
    "--leader-elect-renew-deadline=1500ms",
    "--leader-elect-retry-period=200ms",
];

/// What a user does.
#[derive(Debug, Clone)]
enum Act {
    Create(Box<Service>),
    SetPort(String, i32),
    SetInternal(String, bool),
    Delete(String),
}

/// Ports are unique and chosen here, so that no two Services collide and no port depends on what was free at the time.
fn service(kind: usize, name: &str, port: i32) -> Service {
    let mut service = match kind % 4 {
        0 => services::external(name),
        1 => services::internal(name),
        2 => services::dual_stack(name),
        _ => services::local(name),
    };
    if let Some(spec) = &mut service.spec {
        spec.ports = serde_json::from_value(ports(port)).ok();
        let has_health_check = spec.external_traffic_policy.as_deref() == Some("Local");
        spec.health_check_node_port = has_health_check.then_some(32_000 + port % 1000);
    }
    service
}

fn ports(port: i32) -> Value {
    json!([{"name": "http", "port": port, "protocol": "TCP", "nodePort": 30_000 + port % 1000}])
}

/// What the users of the history `seed` do, in order.
fn acts(seed: u64) -> Vec<Act> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut alive: BTreeMap<String, usize> = BTreeMap::new();
    let mut acts = Vec::new();
    for number in 0..24 {
        let port = 1000 + number;
        let names: Vec<_> = alive.keys().cloned().collect();
        let act = match names.choose(&mut random) {
            Some(name) if alive.len() > 6 || random.random_bool(0.15) => {
                alive.remove(name);
                Act::Delete(name.clone())
            }
            Some(name) if random.random_bool(0.25) => Act::SetPort(name.clone(), port),
            Some(name) if random.random_bool(0.2) => Act::SetInternal(name.clone(), random.random_bool(0.5)),
            _ => {
                let (name, kind) = (format!("s{number}"), random.random_range(0..4));
                alive.insert(name.clone(), kind);
                Act::Create(Box::new(service(kind, &name, port)))
            }
        };
        acts.push(act);
    }
    acts
}

/// A cluster, its cloud, and what is in it that belongs to others.
struct Stage {
    plane: ControlPlane,
    objects: Objects,
    azure: Azure,
}

impl Stage {
    async fn new(seed: u64, name: &str) -> Self {
        let plane = ControlPlane::sandbox().await;
        let objects = Objects::new(&plane.admin().await);
        let topology = Topology::new().dual_stack().pools(PoolKind::Uniform, 1, 2);
        let azure = Azure::with_options(&plane, name, topology, options(seed)).await;
        for node in azure.world.nodes() {
            objects.register(&node).await;
        }
        let stage = Self { plane, objects, azure };
        stage
            .others()
            .into_iter()
            .for_each(|document| stage.azure.world.azure().put_document(document).expect("a document"));
        stage
    }

    /// A load balancer under the cluster's name with an outbound rule of somebody else's, and the public IP it uses.
    fn others(&self) -> Vec<Value> {
        let group = self.azure.world.topology().group_id();
        let of = |kind: &str, name: &str| group.resource(&format!("Microsoft.Network/{kind}"), &[name]).to_string();
        let (address, balancer) = (of("publicIPAddresses", "egress"), of("loadBalancers", "kubernetes"));
        let location = self.azure.world.topology().location;
        let sku = json!({"name": "Standard", "tier": "Regional"});
        let (front, pool) =
            (format!("{balancer}/frontendIPConfigurations/egress"), format!("{balancer}/backendAddressPools/egress"));
        vec![
            json!({
                "id": address, "name": "egress", "type": "Microsoft.Network/publicIPAddresses", "location": location, "sku": sku,
                "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4", "ipAddress": "52.9.9.9"},
            }),
            json!({
                "id": balancer, "name": "kubernetes", "type": "Microsoft.Network/loadBalancers", "location": location, "sku": sku,
                "properties": {
                    "frontendIPConfigurations": [{"id": front, "name": "egress", "properties": {"publicIPAddress": {"id": address}}}],
                    "backendAddressPools": [{"id": pool, "name": "egress", "properties": {}}],
                    "outboundRules": [{
                        "id": format!("{balancer}/outboundRules/egress"), "name": "egress",
                        "properties": {
                            "protocol": "All", "frontendIPConfigurations": [{"id": front}], "backendAddressPool": {"id": pool},
                        },
                    }],
                },
            }),
        ]
    }

    async fn act(&self, act: &Act) {
        match act {
            Act::Create(service) => self.objects.create(service).await,
            Act::SetPort(name, port) => {
                self.objects.patch_service(name, json!({"spec": {"ports": ports(*port)}})).await;
            }
            Act::SetInternal(name, internal) => {
                let value = json!({"service.beta.kubernetes.io/azure-load-balancer-internal": internal.to_string()});
                self.objects.patch_service(name, json!({"metadata": {"annotations": value}})).await;
            }
            Act::Delete(name) => self.objects.delete_service(name).await,
        }
    }

    async fn manager(&self, name: &str, flags: &[&str]) -> Manager {
        self.azure.manager_with_only(&self.plane, name, flags).await
    }

    fn asked(&self) -> usize {
        self.azure.world.azure().count(|request| request.class != Class::Other)
    }

    /// Returns when ARM has not been written to for [`QUIET`].
    async fn quiet(&self) {
        let writes = || self.azure.world.azure().count(|request| matches!(request.class, Class::Write | Class::Delete));
        let (mut before, mut now) = (None, writes());
        while before != Some(now) {
            tokio::time::sleep(QUIET).await;
            (before, now) = (Some(now), writes());
        }
    }

    /// What is in the cloud. Parts of Services are called after these, since their UIDs differ from cluster to cluster.
    async fn state(&self) -> State {
        let mut text = json!(unordered(self.azure.world.azure().dump())).to_string();
        for service in self.objects.services.list(&Default::default()).await.expect("services") {
            let (uid, name) = (service.metadata.uid.unwrap_or_default(), service.metadata.name.unwrap_or_default());
            // As many characters as names of load balancers have (upstream: `DefaultLoadBalancerName`).
            let uid: String = uid.replace('-', "").chars().take(31).collect();
            text = text.replace(&format!("a{uid}"), &format!("of-{name}"));
        }
        let mut state: State = serde_json::from_str(&text).expect("JSON");
        state.iter_mut().filter(|(id, _)| id.contains(COMPUTE)).for_each(|(_, document)| forget_last_operation(document));
        state.values_mut().for_each(sort);
        without_idle_pools(state)
    }

    /// Whether every Service is served or gone.
    async fn is_settled(&self) -> bool {
        let all = self.objects.services.list(&Default::default()).await.expect("services");
        all.iter().filter(|service| is_balanced(service)).all(|service| {
            service.metadata.deletion_timestamp.is_none() && condition_reason(service).as_deref() == Some("Ready")
        })
    }
}

fn is_balanced(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
}

/// Writes are operations of a tenth of a second.
fn options(seed: u64) -> AzureOptions {
    let takes = Latency { respond: Duration::from_millis(10), operation: Duration::from_millis(100) };
    let latencies = Latencies::default().with(Class::Write, "*", takes).with(Class::Delete, "*", takes);
    AzureOptions { latencies, seed, ..AzureOptions::default() }
}

/// Machines and scale sets, whose `provisioningState` is not compared: it says how anybody's last operation ended, such as an extension, an
/// upgrade or the write of a killed process. A manager that starts cannot tell, and a write on suspicion would run failed extensions of
/// healthy members again; so it leaves alone what is in its pools, as Go does. Pools and the lists of pools are compared. Documents of the
/// network that have failed are written again, and compared whole.
const COMPUTE: &str = "/providers/microsoft.compute/";

fn forget_last_operation(document: &mut Value) {
    document["properties"].as_object_mut().map(|properties| properties.remove("provisioningState"));
}

/// Lists whose order says nothing.
fn sort(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.iter_mut().for_each(sort);
            items.sort_by_key(Value::to_string);
        }
        Value::Object(fields) => fields.values_mut().for_each(sort),
        _ => {}
    }
}

/// Every sixth request or so fails, each in one of these ways.
fn storm(azure: &Azure) {
    let refuse = |status, code: &str, after| Effect::Refuse(status, code.to_owned(), after);
    let effects = [
        refuse(429, "TooManyRequests", Some(1)),
        refuse(409, "AnotherOperationInProgress", None),
        refuse(500, "InternalServerError", None),
        refuse(503, "ServiceUnavailable", None),
        refuse(404, "ResourceGroupNotFound", None),
        refuse(403, "AuthorizationFailed", None),
        Effect::EmptyList,
        Effect::DropBefore,
        Effect::DropAfter,
        Effect::Garbage,
        Effect::Truncated,
        Effect::Delay(Duration::from_millis(300)),
        Effect::FailOperation("InternalServerError".to_owned(), "An error occurred.".to_owned()),
    ];
    for effect in effects {
        azure.world.azure().add_fault(Fault::new(effect).path("/subscriptions/*").with_probability(0.013));
    }
}

/// What one manager makes of all that users did before it started, without a fault.
async fn undisturbed(seed: u64) -> State {
    let stage = Stage::new(seed, "calm").await;
    for act in acts(seed) {
        stage.act(&act).await;
    }
    let _manager = stage.manager("calm", ALONE).await;
    eventually("the undisturbed manager has settled", END, async || stage.is_settled().await).await;
    stage.quiet().await;
    stage.state().await
}

/// One life: the process dies after a random number of requests to ARM, or of old age.
async fn live(stage: &Stage, number: usize, random: &mut SmallRng, flags: &[&str]) -> u64 {
    let manager = stage.manager(&format!("life{number}"), flags).await;
    let last = stage.asked() + random.random_range(1..40);
    let mut ticks = interval(Duration::from_millis(5));
    let has_asked = async {
        while stage.asked() < last {
            ticks.tick().await;
        }
    };
    let _ = timeout(LIFE, has_asked).await;
    let memory = manager.resident_mib();
    manager.kill();
    memory
}

#[allow(clippy::print_stdout, reason = "figures of a sweep")]
async fn disturbed(seed: u64, kills: usize, flags: &[&str], expected: &State) {
    let stage = Stage::new(seed, "storm").await;
    storm(&stage.azure);
    let mut random = SmallRng::seed_from_u64(seed ^ 0x5eed);
    let (acts, mut done, mut most, mut kills_at) = (acts(seed), 0, 0, Vec::new());
    for number in 0..kills {
        let until = acts.len() * (number + 1) / kills;
        for act in &acts[done..until] {
            stage.act(act).await;
        }
        done = until;
        most = most.max(live(&stage, number, &mut random, flags).await);
        kills_at.push(Instant::now());
    }
    let failed = stage.azure.world.azure().count(|request| request.status == 0 || request.status >= 400);
    stage.azure.world.azure().faults().clear();
    let manager = stage.manager("last", if flags == ELECTED { PATIENT } else { flags }).await;
    let started = Instant::now();
    while started.elapsed() < END && !(stage.is_settled().await && differences(expected, &stage.state().await).is_empty()) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let took = started.elapsed().as_secs();
    let told = || format!("seed {seed}, {kills} kills, {failed} failed requests\n{}", tail(&manager.log_text()));
    let left = differences(expected, &stage.state().await);
    assert!(left.is_empty(), "{}\n{}\n{}", told(), left.join("\n"), requests_about(&stage, &left, &kills_at));
    assert!(stage.is_settled().await, "{}", told());
    assert!(most <= MEMORY_MIB, "{most} MiB resident; {}", told());
    println!("seed {seed}: {kills} kills, {failed} failed requests, {took} s to the end, at most {most} MiB resident");
}

/// Requests about documents that `differences` tells, lists of their type, and the kills.
fn requests_about(stage: &Stage, differences: &[String], kills: &[Instant]) -> String {
    let told = differences.join("\n").to_lowercase();
    let requests = stage.azure.world.azure().requests();
    let Some(first) = requests.first().map(|request| request.at) else { return String::new() };
    let is_about = |path: &str| path.rsplit('/').next().is_some_and(|name| told.contains(&name.to_lowercase()));
    let about = requests.iter().filter(|request| is_about(&request.path));
    let line = |it: &RequestRecord| (it.at, format!("{} {} ({})", it.method, it.path, it.status));
    let mut lines: Vec<_> = about.map(line).chain(kills.iter().map(|at| (*at, "killed".to_owned()))).collect();
    lines.sort();
    lines.iter().map(|(at, line)| format!("{:8.3} {line}\n", (*at - first).as_secs_f64())).collect()
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

async fn history(seed: u64) {
    let flags = if seed.is_multiple_of(AT_ONCE) { ELECTED } else { ALONE };
    let expected = timeout(2 * END, undisturbed(seed)).await.unwrap_or_else(|_| panic!("seed {seed}: never settled"));
    disturbed(seed, KILLS, flags, &expected).await;
}

/// More than a hundred kills; under [`SOAK`] histories with ever new seeds until the time is up.
pub(crate) async fn killed_at_random(_: &mut ControlPlane) {
    if let Ok(text) = env::var(SEEDS) {
        let seeds = text.split(',').map(|seed| history(seed.parse().expect("CCM_KILLS is a list of seeds")));
        futures::future::join_all(seeds).await;
        return;
    }
    let seconds = env::var(SOAK).ok().map_or(0, |text| text.parse().expect("CCM_SOAK_SECONDS is a number of seconds"));
    let deadline = Instant::now() + Duration::from_secs(seconds);
    futures::future::join_all((0..IN_CI).map(history)).await;
    let mut first = IN_CI;
    while Instant::now() < deadline {
        futures::future::join_all((first..first + AT_ONCE).map(history)).await;
        first += AT_ONCE;
    }
}

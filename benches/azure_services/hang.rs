//! Requests that never end or are refused: another Service is done within 10 s. The letters are those of
//! `tests/azure_services/hang.rs`, which runs more of them on a paused clock.

use std::time::Duration;

use cloud_controller_manager::{
    providers::azure::model::ResourceId,
    sandbox::{
        azure::{Effect, Fault, RequestRecord, faults},
        objects::{ObjectExt, ServiceExt, load_balancer_service},
    },
};
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::time::{Instant, sleep};

use super::{
    TICK,
    cluster::{Cluster, Manager, addresses},
    contention::{PREFIX, annotate, is_ready},
    responding,
};

/// Time from the first request that hangs or is refused until the other Service changes.
const LEAD: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
const MACHINES: &str = "*/virtualMachines/*";
const SECURITY_GROUPS: &str = "Microsoft.Network/networkSecurityGroups";
const RANGE: &str = "203.0.113.0/24";

/// Scenario in which a request hangs or is refused, with the change that it must not delay.
struct HangScenario {
    letter: &'static str,
    effect: Effect,
    /// Method and path of the requests that hang or are refused.
    request: (&'static str, &'static str),
    /// Whether the program is stopped before the cause and started after it.
    restarts: bool,
    /// Causes the request.
    cause: fn(&Cluster),
    /// Changes another Service.
    change: fn(&Cluster),
    is_done: fn(&Cluster) -> bool,
}

/// Runs all scenarios at the same time, each in a cluster of its own.
pub(super) async fn all() {
    // The programs are killed, because a wait for the end of one would block the thread that measures the others.
    drop(futures::future::join_all(all_scenarios().into_iter().map(run_scenario)).await);
}

fn all_scenarios() -> Vec<HangScenario> {
    let hangs = Effect::HangOperation;
    let refused = |code: &str| Effect::Refuse(409, code.to_owned(), None);
    let scenario = |letter, effect, request, cause| HangScenario {
        letter,
        effect,
        request,
        restarts: false,
        cause,
        change: |cluster| create(cluster, &external("other")),
        is_done: |cluster| service(cluster, "other").as_ref().is_some_and(is_ready),
    };
    let internal_hangs =
        |letter| scenario(letter, hangs.clone(), ("PUT", "*/loadBalancers/kubernetes-internal"), create_internal);
    // More Services than the tag of the public IP can list. A new process reads all of them.
    let shared = scenario("f", Effect::Delay(Duration::ZERO), ("GET", "*/publicIPAddresses"), |cluster| {
        (8001..8020).for_each(|port| share(cluster, &format!("sharer-{port}"), port));
    });
    let link_refused = scenario("g", refused("ViolationOfPolicy"), ("PUT", "*/privateLinkServices/*"), create_linked);
    let address_locked = scenario("h", refused("ScopeLocked"), ("DELETE", "*/publicIPAddresses/*"), |cluster| {
        make_internal(cluster, "left");
    });
    let security_hangs = scenario("i", hangs.clone(), ("PUT", "*/networkSecurityGroups/*"), |cluster| {
        create(cluster, &external("stuck"));
    });
    vec![
        scenario("a", hangs.clone(), ("PUT", MACHINES), join_machine),
        scenario("b", refused("OperationNotAllowed"), ("PUT", MACHINES), join_machine),
        scenario("c", hangs.clone(), ("PUT", "*/publicIPAddresses/*"), |cluster| {
            (1..5).for_each(|number| create(cluster, &external(&format!("early-{number}"))));
        }),
        internal_hangs("d"),
        HangScenario {
            change: |cluster| change(cluster, "first", |it| *it = it.clone().source_ranges(&[RANGE])),
            is_done: |cluster| format!("{:?}", cluster.simulation.azure().documents_of(SECURITY_GROUPS)).contains(RANGE),
            ..internal_hangs("d-rules")
        },
        scenario("e", Effect::Hang, ("GET", "*/resourceGroups/elsewhere/*"), name_other_group),
        HangScenario { restarts: true, change: |cluster| share(cluster, "other", 9000), ..shared },
        HangScenario {
            change: |cluster| create(cluster, &private_link("other")),
            is_done: |cluster| service(cluster, "other").is_some_and(|it| !addresses(&it).is_empty()),
            ..link_refused
        },
        HangScenario {
            change: |cluster| make_internal(cluster, "first"),
            is_done: |cluster| {
                let first = service(cluster, "first").expect("the Service");
                addresses(&first).iter().any(|address| address.starts_with("10."))
            },
            ..address_locked
        },
        HangScenario {
            change: |cluster| create(cluster, &with(external("other"), "azure-disable-load-balancer-nsg-rule")),
            ..security_hangs
        },
    ]
}

async fn run_scenario(scenario: HangScenario) -> Manager {
    let cluster = Cluster::new(responding()).await;
    ["first", "left", "stays"].into_iter().for_each(|name| create(&cluster, &external(name)));
    create(&cluster, &internal("inside"));
    let mut manager = cluster.start();
    cluster.until_ready(&manager).await;
    let azure = cluster.simulation.azure();
    azure.clear_requests();
    let (method, path) = scenario.request;
    let is_hang = !matches!(scenario.effect, Effect::Refuse(..));
    let fault = Fault::new(scenario.effect).method(method).path(path);
    azure.add_fault(if is_hang { fault.times(1) } else { fault });
    if scenario.restarts {
        manager.program.terminate();
        (scenario.cause)(&cluster);
        manager = cluster.start();
    } else {
        (scenario.cause)(&cluster);
    }
    let is_expected =
        |it: &RequestRecord| it.method == method && faults::glob(&path.to_ascii_lowercase(), &it.path.to_ascii_lowercase());
    cluster.until(&manager, TICK, || azure.count(is_expected) > 0).await;
    sleep(LEAD).await;
    assert!(!(scenario.is_done)(&cluster), "{}: it was not requested yet", scenario.letter);
    let changed = Instant::now();
    (scenario.change)(&cluster);
    cluster.until(&manager, TICK, || (scenario.is_done)(&cluster)).await;
    let wait = changed.elapsed();
    println!("{}: another Service was done after {wait:.1?}", scenario.letter);
    assert!(wait <= LONGEST_WAIT, "{}: {wait:?}", scenario.letter);
    manager
}

fn service(cluster: &Cluster, name: &str) -> Option<Service> {
    cluster.server.get::<Service>("default", name)
}

fn create(cluster: &Cluster, service: &Service) {
    cluster.server.create::<Service>(service);
}

fn change(cluster: &Cluster, name: &str, change: impl Fn(&mut Service)) {
    cluster.server.update_with("default", name, change);
}

fn external(name: &str) -> Service {
    load_balancer_service("default", name)
}

/// Sets an annotation of Azure's.
fn with(service: Service, key: &str) -> Service {
    service.annotation(&format!("{PREFIX}{key}"), "true")
}

fn internal(name: &str) -> Service {
    with(external(name), "azure-load-balancer-internal")
}

fn private_link(name: &str) -> Service {
    with(internal(name), "azure-pls-create")
}

fn create_internal(cluster: &Cluster) {
    create(cluster, &internal("stuck"));
}

fn create_linked(cluster: &Cluster) {
    create(cluster, &private_link("stuck"));
}

/// Creates a Service at the address of the first.
fn share(cluster: &Cluster, name: &str, port: i32) {
    let address = addresses(&service(cluster, "first").expect("the Service")).remove(0);
    let sharer = external(name).ports(&[("http", port)]);
    create(cluster, &sharer.annotation(&format!("{PREFIX}azure-load-balancer-ipv4"), &address));
}

fn make_internal(cluster: &Cluster, name: &str) {
    change(cluster, name, |service| annotate(service, "azure-load-balancer-internal", Some("true")));
}

fn name_other_group(cluster: &Cluster) {
    let topology = cluster.simulation.topology();
    let group = ResourceId::group_of(&topology.subscription, "elsewhere");
    cluster.simulation.azure().put_document(topology.group_document(&group)).expect("a resource group");
    create(cluster, &external("stuck").annotation(&format!("{PREFIX}azure-load-balancer-resource-group"), "elsewhere"));
}

fn join_machine(cluster: &Cluster) {
    let topology = cluster.simulation.topology();
    for name in cluster.simulation.scale_out(&topology.pools[0].name, 1).expect("one more machine") {
        let machine = cluster.simulation.machine(&name).expect("the machine");
        cluster.server.create::<Node>(&topology.node(&machine));
    }
}

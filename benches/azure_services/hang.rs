//! Writes that never end, and machines that Azure refuses: another Service is ready within 10 s.
//!
//! `tests/azure_services/hang.rs` plays more of them on a paused clock.

use std::time::Duration;

use cloud_controller_manager::sandbox::{
    azure::{Effect, Fault},
    objects::{ObjectExt, load_balancer_service},
};
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::time::{Instant, sleep};

use super::{
    TICK,
    contention::is_ready,
    place::{Manager, Place},
    responding,
};

/// Time from the first request that hangs or is refused until the other Service is created.
const LEAD: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
const INTERNAL: &str = "service.beta.kubernetes.io/azure-load-balancer-internal";
const NO_RULES: &str = "service.beta.kubernetes.io/azure-disable-load-balancer-nsg-rule";

/// A trouble, and the Service that it must not delay.
struct Trouble {
    name: &'static str,
    effect: Effect,
    /// Path of the writes that it is about.
    path: &'static str,
    /// Leads to the write.
    cause: fn(&Place),
    other: fn(Service) -> Service,
}

/// Plays all scenarios at the same time, each in a cluster of its own.
pub(super) async fn all() {
    let same: fn(Service) -> Service = |service| service;
    let refused = Effect::Refuse(409, "OperationNotAllowed".to_owned(), None);
    let troubles = [
        ("a machine hangs", Effect::HangOperation, "*/virtualMachines/*", join_machine as fn(&Place), same),
        ("a machine is refused", refused, "*/virtualMachines/*", join_machine, same),
        (
            "the internal load balancer hangs",
            Effect::HangOperation,
            "*/loadBalancers/kubernetes-internal",
            create_internal,
            same,
        ),
        ("the security group hangs", Effect::HangOperation, "*/networkSecurityGroups/*", create_external, |service| {
            service.annotation(NO_RULES, "true")
        }),
    ];
    let troubles = troubles.map(|(name, effect, path, cause, other)| Trouble { name, effect, path, cause, other });
    futures::future::join_all(troubles.into_iter().map(play)).await;
}

async fn play(trouble: Trouble) {
    let cluster = Place::new(responding()).await;
    create(&cluster, &load_balancer_service("default", "first"));
    create(&cluster, &load_balancer_service("default", "inside").annotation(INTERNAL, "true"));
    let manager = cluster.start();
    cluster.until_ready(&manager).await;
    let azure = cluster.world.azure();
    azure.clear_requests();
    azure.add_fault(Fault::new(trouble.effect).method("PUT").path(trouble.path).times(1));
    (trouble.cause)(&cluster);
    let kind = trouble.path.trim_start_matches("*/").split('/').next().unwrap_or_default().to_ascii_lowercase();
    let is_sent = || azure.count(|it| it.method == "PUT" && it.path.to_ascii_lowercase().contains(&format!("/{kind}/"))) > 0;
    cluster.until(&manager, TICK, is_sent).await;
    sleep(LEAD).await;
    let created = Instant::now();
    create(&cluster, &(trouble.other)(load_balancer_service("default", "other")));
    until_other(&cluster, &manager).await;
    let wait = created.elapsed();
    println!("{}: another Service was ready after {wait:.1?}", trouble.name);
    assert!(wait <= LONGEST_WAIT, "{}: {wait:?}", trouble.name);
    manager.program.terminate();
}

async fn until_other(cluster: &Place, manager: &Manager) {
    let is_served = || cluster.server.get::<Service>("default", "other").as_ref().is_some_and(is_ready);
    cluster.until(manager, TICK, is_served).await;
}

fn create(cluster: &Place, service: &Service) {
    cluster.server.create::<Service>(service);
}

fn create_internal(cluster: &Place) {
    create(cluster, &load_balancer_service("default", "stuck").annotation(INTERNAL, "true"));
}

fn create_external(cluster: &Place) {
    create(cluster, &load_balancer_service("default", "stuck"));
}

fn join_machine(cluster: &Place) {
    let topology = cluster.world.topology();
    for name in cluster.world.scale_out(&topology.pools[0].name, 1).expect("one more machine") {
        let machine = cluster.world.machine(&name).expect("the machine");
        cluster.server.create::<Node>(&topology.node(&machine));
    }
}

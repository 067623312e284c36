//! Many missing machines at once, among hundreds and thousands: a scale-in deletes their Nodes within minutes, false responses of ARM delete
//! none, also both at once. The whole manager runs on the simulated Azure and the in-memory API server, with a paused clock.
#![expect(clippy::unwrap_used, reason = "a test ends where what it needs is missing")]

use std::time::Duration;

use cloud_controller_manager::{
    node::well_known::TAINT_SHUTDOWN,
    runtime::clock::Clock,
    sandbox::{
        api_server::ApiServer,
        azure::{
            AzureOptions, Effect, Fault, Omission,
            topology::{Pool, PoolKind, Topology},
            world::World,
        },
        objects::NodeExt,
    },
};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::ResourceExt;

use crate::golden::replica::{Replica, manager_deps};

struct Cluster {
    server: ApiServer,
    cloud: World,
    _replica: Replica,
}

impl Cluster {
    /// Starts a manager of a cluster in which all Nodes are initialized and ready.
    async fn start(topology: Topology) -> Self {
        Self::start_with(topology, &[]).await
    }

    async fn start_with(topology: Topology, more: &[&str]) -> Self {
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        let cloud = World::new(topology, AzureOptions::default(), clock).unwrap();
        let server = ApiServer::new(clock);
        for node in cloud.nodes() {
            server.create::<Node>(&node.ready("True"));
        }
        let flags = [
            &[
                "--leader-elect=false",
                "--configure-cloud-routes=false",
                "--controllers=cloud-node-controller,cloud-node-lifecycle-controller",
            ],
            more,
        ];
        let replica = Replica::start(manager_deps(&server, cloud.azure(), clock, &cloud.config(), &flags.concat()));
        pass(30).await;
        Self { server, cloud, _replica: replica }
    }

    fn count(&self) -> usize {
        self.server.list::<Node>().len()
    }

    /// Makes the kubelets of these Nodes stop reporting.
    fn silence(&self, names: &[String]) {
        let silent = |node: &mut Node| *node = node.clone().ready("Unknown");
        names.iter().for_each(|name| drop(self.server.update_with("", name, silent)));
    }

    fn names(&self, count: usize) -> Vec<String> {
        self.server.list::<Node>().iter().take(count).map(ResourceExt::name_any).collect()
    }

    fn of_pool(&self, pool: &str) -> Vec<String> {
        let machines = self.cloud.machines().into_iter();
        machines.filter(|machine| machine.pool.name == pool).map(|machine| machine.computer_name()).collect()
    }

    fn reasons(&self) -> Vec<String> {
        self.server.list::<Event>().into_iter().filter_map(|event| event.reason).collect()
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn hundred(kind: PoolKind) -> Topology {
    Topology::new().pool(Pool::new(kind, "pool0", 60)).pool(Pool::new(kind, "pool1", 40))
}

#[tokio::test(start_paused = true)]
async fn thirty_of_a_hundred_nodes_are_deleted_within_ten_minutes() {
    for kind in [PoolKind::Uniform, PoolKind::Flexible, PoolKind::AvailabilitySet] {
        let cluster = Cluster::start(hundred(kind)).await;
        let deleted = cluster.cloud.scale_in("pool0", 30).unwrap();
        cluster.silence(&deleted);
        pass(110).await;
        assert_eq!(cluster.count(), 100, "{kind:?}: not before it is confirmed");
        pass(60).await;
        assert_eq!(cluster.count(), 95, "{kind:?}: slowly");
        pass(430).await;
        assert_eq!(cluster.count(), 70, "{kind:?}");
        let remaining = cluster.names(100);
        assert!(deleted.iter().all(|name| !remaining.contains(name)), "{kind:?}");
        let reasons = cluster.reasons();
        assert!(reasons.iter().any(|reason| reason == "NodeDeletionDelayed"), "{kind:?}");
        assert!(!reasons.iter().any(|reason| reason == "NodeDeletionRefused"), "{kind:?}: no manual check is needed");
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_of_a_deleted_pool_are_deleted() {
    let cluster = Cluster::start(hundred(PoolKind::Uniform)).await;
    cluster.silence(&cluster.cloud.delete_pool("pool1").unwrap());
    pass(900).await;
    assert_eq!(cluster.count(), 60);
}

const EXISTENCE_UNKNOWN: Option<&str> = Some("InstanceExistenceUnknown");
const REFUSED: Option<&str> = Some("NodeDeletionRefused");

/// All machines exist and their kubelets are cut off. Each case has the false responses and the event that reports them.
#[tokio::test(start_paused = true)]
async fn false_responses_of_arm_delete_no_node() {
    let (machines, instances) = ("*/virtualMachineScaleSets/pool0/virtualMachines/*", "*/pool0/virtualMachines");
    let denied = || Fault::refuse(404, "ResourceNotFound").path(machines);
    let partial = |omission| Fault::new(Effect::PartialList(omission)).path(instances);
    let lies: Vec<(&str, Vec<Fault>, Option<&str>)> = vec![
        ("empty lists", vec![Fault::new(Effect::EmptyList)], None),
        ("404 for everything", vec![Fault::refuse(404, "ResourceNotFound")], EXISTENCE_UNKNOWN),
        ("404 with another code for everything", vec![Fault::refuse(404, "VMScaleSetVMNotFound")], EXISTENCE_UNKNOWN),
        ("missing group", vec![Fault::new(Effect::GroupNotFound)], EXISTENCE_UNKNOWN),
        ("missing parents", vec![Fault::refuse(404, "ParentResourceNotFound").path("*/pool0/*")], EXISTENCE_UNKNOWN),
        ("forbidden", vec![Fault::new(Effect::Forbidden)], EXISTENCE_UNKNOWN),
        ("proxy pages", vec![Fault::new(Effect::ProxyPage(404))], EXISTENCE_UNKNOWN),
        ("404 for machines that are listed", vec![denied()], None),
        ("404 for machines, empty lists", vec![denied(), Fault::new(Effect::EmptyList)], EXISTENCE_UNKNOWN),
        ("404 for machines, lists that lack half", vec![denied(), partial(Omission::EveryOther)], REFUSED),
        ("404 for machines, lists cut short", vec![denied(), partial(Omission::Last(30))], REFUSED),
        (
            "404 for machines, forbidden lists",
            vec![denied(), Fault::new(Effect::Forbidden).path(instances)],
            EXISTENCE_UNKNOWN,
        ),
    ];
    for (lie, faults, event_reason) in lies {
        let cluster = Cluster::start(hundred(PoolKind::Uniform)).await;
        cluster.silence(&cluster.of_pool("pool0"));
        faults.into_iter().for_each(|fault| cluster.cloud.azure().add_fault(fault));
        pass(420).await;
        assert_eq!(cluster.count(), 100, "{lie}");
        let reasons = cluster.reasons();
        assert!(
            event_reason.is_none_or(|event_reason| reasons.iter().any(|reason| reason == event_reason)),
            "{lie}: {reasons:?}"
        );
    }
}

/// Machines outside of scale sets are read one by one. ARM denies them but lists them, repeatedly for some minutes.
#[tokio::test(start_paused = true)]
async fn nodes_of_machines_that_arm_denies_but_lists_are_kept() {
    for minutes in [1, 6] {
        let cluster = Cluster::start(hundred(PoolKind::AvailabilitySet)).await;
        cluster.silence(&cluster.names(40));
        for _ in 0..3 {
            let lie = Fault::refuse(404, "ResourceNotFound").path("*/Microsoft.Compute/virtualMachines/*");
            cluster.cloud.azure().add_fault(lie);
            pass(60 * minutes).await;
            cluster.cloud.azure().faults().clear();
            pass(60).await;
        }
        assert_eq!(cluster.count(), 100, "404 for {minutes} minutes");
    }
}

/// Five scale sets with as many machines as one can have.
fn five_thousand() -> Topology {
    (0..5)
        .fold(Topology::new(), |topology, index| topology.pool(Pool::new(PoolKind::Uniform, &format!("pool{index}"), 1000)))
}

/// Duration of the false responses. Without them, the Nodes of deleted machines are deleted sooner than this.
const LIE: Duration = Duration::from_secs(90);

/// Deletes a hundred machines of one scale set. Kubelets of a hundred others are cut off, and ARM denies these for a while. Returns the
/// time until the Nodes of the deleted machines are deleted.
async fn delete_hundred_machines(faults: Vec<Fault>) -> Duration {
    let cluster = Cluster::start(five_thousand()).await;
    let start = tokio::time::Instant::now();
    let deleted = cluster.cloud.scale_in("pool0", 100).unwrap();
    let existing: Vec<String> = cluster.of_pool("pool1").into_iter().take(100).collect();
    cluster.silence(&deleted);
    cluster.silence(&existing);
    let has_node = |name: &String| cluster.server.get::<Node>("", name).is_some();
    let mut is_lying = !faults.is_empty();
    faults.into_iter().for_each(|fault| cluster.cloud.azure().add_fault(fault));
    while is_lying || deleted.iter().any(has_node) {
        pass(1).await;
        if is_lying && start.elapsed() >= LIE {
            cluster.cloud.azure().faults().clear();
            is_lying = false;
        }
        assert!(start.elapsed() < Duration::from_secs(600), "{} of 5000 remain", cluster.count());
    }
    assert!(existing.iter().all(has_node), "machines that exist");
    assert_eq!(cluster.count(), 4900);
    start.elapsed()
}

fn of_pool1_denied() -> Fault {
    Fault::refuse(404, "ResourceNotFound").path("*/virtualMachineScaleSets/pool1/virtualMachines/*")
}

#[tokio::test(start_paused = true)]
async fn nodes_of_100_of_5000_removed_machines_are_deleted() {
    let took = delete_hundred_machines(vec![]).await;
    assert!(took < LIE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn only_the_100_removed_nodes_are_deleted_despite_false_404s() {
    delete_hundred_machines(vec![of_pool1_denied()]).await;
}

#[tokio::test(start_paused = true)]
async fn only_the_100_removed_nodes_are_deleted_despite_empty_lists() {
    let took = delete_hundred_machines(vec![of_pool1_denied(), Fault::new(Effect::EmptyList)]).await;
    assert!(took > LIE, "{took:?}: empty lists prove nothing");
}

/// A Node without a provider id whose machine ended before it was initialized.
fn ghost(cluster: &Cluster, name: &str, ready: &str) -> String {
    let mut node = cluster.cloud.uninitialized_nodes().remove(0).ready(ready);
    node.metadata.name = Some(name.to_owned());
    cluster.server.create::<Node>(&node);
    name.to_owned()
}

#[tokio::test(start_paused = true)]
async fn uninitialized_nodes_without_a_machine_are_deleted_on_request() {
    for (flags, is_kept) in [(&[][..], true), (&["--delete-uninitialized-nodes-after=1h"], false)] {
        let cluster = Cluster::start_with(hundred(PoolKind::Uniform), flags).await;
        let name = ghost(&cluster, "ghost-1", "Unknown");
        let reports = ghost(&cluster, "reports-1", "False");
        pass(50 * 60).await;
        assert!(cluster.server.get::<Node>("", &name).is_some());
        pass(20 * 60).await;
        assert_eq!(cluster.server.get::<Node>("", &name).is_some(), is_kept, "{flags:?} {:?}", cluster.reasons());
        assert!(cluster.server.get::<Node>("", &reports).is_some(), "its kubelet reports");
        assert_eq!(cluster.count(), 101 + usize::from(is_kept));
    }
}

#[tokio::test(start_paused = true)]
async fn uninitialized_nodes_are_kept_while_the_cloud_cannot_be_read() {
    let cluster = Cluster::start_with(hundred(PoolKind::Uniform), &["--delete-uninitialized-nodes-after=1h"]).await;
    cluster.cloud.azure().add_fault(Fault::new(Effect::Forbidden));
    let name = ghost(&cluster, "ghost-1", "Unknown");
    pass(5 * 60 * 60).await;
    assert!(cluster.server.get::<Node>("", &name).is_some());
}

#[tokio::test(start_paused = true)]
async fn shutdown_taint_of_another_clouds_node_is_kept() {
    let cluster = Cluster::start(hundred(PoolKind::Uniform)).await;
    for (name, status) in [("ready", "True"), ("silent", "Unknown")] {
        let id = format!("metal3://rack1/{name}");
        let mut node =
            cluster.cloud.nodes().remove(0).ready(status).provider_id(&id).taint(TAINT_SHUTDOWN, "", "NoSchedule");
        node.metadata.name = Some(name.to_owned());
        cluster.server.create::<Node>(&node);
    }
    pass(600).await;
    for name in ["ready", "silent"] {
        let spec = cluster.server.get::<Node>("", name).unwrap().spec.unwrap();
        assert_eq!(spec.taints.map(|taints| taints.len()), Some(1), "{name}");
    }
    assert!(!cluster.reasons().contains(&"ShutdownTaintRemoved".to_owned()));
}

//! The process is killed before and after each request to ARM that a change of a Service needs, and restarted. The cloud is then the same
//! as without the crash.

use std::{collections::BTreeSet, time::Duration};

use cloud_controller_manager::sandbox::{
    azure::{AzureOptions, ConnectionStatus, Crash, Latencies, Latency},
    objects::ServiceExt,
};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

use crate::azure_services::{
    cluster::{Cluster, Manager, TIMEOUT, addresses, is_ready, run_paused, two_nodes},
    documents::{State, differences, exact, unordered},
    services::{dual_stack, external, internal, local, pinned, set_port, with},
    several,
};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    External,
    Internal,
    DualStack,
    /// With endpoints on some nodes, for some sources.
    Local,
    /// Next to another Service on a public IP that a user created.
    Shared,
    /// With a private link service, which has connections when it is deleted.
    PrivateLink,
    /// Without floating IP: security rules lead to machines.
    Machines,
    /// On its own load balancer at first. The update moves it to another one, and its Nodes follow.
    Several,
    /// With a private link service that the update recreates, because the address changes.
    MovedLink,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Act {
    Create,
    Update,
    Delete,
}

pub(crate) const ACTS: [Act; 3] = [Act::Create, Act::Update, Act::Delete];
/// Names of Services with their addresses.
type Statuses = Vec<(Option<String>, Vec<String>)>;
/// Documents and statuses.
type Outcome = (State, Statuses);

/// Field that selects the kind of backend pool members.
const POOLS: &str = "loadBalancerBackendPoolConfigurationType";
/// Annotation that disables floating IP.
const FLOATING_IP: &str = "azure-disable-load-balancer-floating-ip";
/// Address of the public IP that a user created.
pub(crate) const SHARED: &str = "52.1.2.3";
/// Longer than all work of a change takes.
const LONG: Duration = Duration::from_secs(60);

fn service(kind: Kind) -> Service {
    match kind {
        Kind::External => external("web"),
        Kind::Internal => internal("web"),
        Kind::DualStack | Kind::Several => dual_stack("web"),
        Kind::Local => local("web"),
        Kind::Shared => pinned("web", SHARED, 8080),
        Kind::PrivateLink | Kind::MovedLink => with(internal("web"), "azure-pls-create", "true"),
        Kind::Machines => with(external("web").node_port(30_080), FLOATING_IP, "true"),
    }
}

pub(crate) fn act(cluster: &Cluster, kind: Kind, act: Act) {
    match act {
        Act::Create => drop(cluster.create(&service(kind))),
        Act::Update => cluster.change("web", |service| {
            set_port(service, 9090);
            if kind == Kind::Several {
                *service = with(service.clone(), "azure-load-balancer-configurations", "kubernetes");
            }
            if kind == Kind::PrivateLink {
                *service = with(service.clone(), "azure-pls-fqdns", "web.example.com");
            }
            if kind == Kind::MovedLink {
                *service = with(service.clone(), "azure-load-balancer-ipv4", "10.224.0.99");
            }
            if kind == Kind::Machines {
                *service = with(service.clone().node_port(30_081), FLOATING_IP, "false");
            }
        }),
        Act::Delete => cluster.delete("web"),
    }
}

/// Creates a cluster in which every write is an operation with one or two polls.
fn cluster(kind: Kind) -> Cluster {
    let takes = Latency { respond: Duration::ZERO, operation: Duration::from_millis(300) };
    let options = AzureOptions { latencies: Latencies::writes(takes), ..AzureOptions::default() };
    if kind == Kind::Several {
        let cluster = several::cluster(2, options);
        cluster.create(&external("base"));
        return cluster;
    }
    let cluster = Cluster::new(two_nodes(), options);
    if kind == Kind::Shared {
        cluster.put_public_ip("theirs", SHARED);
        cluster.create(&pinned("base", SHARED, 80));
    }
    cluster
}

/// Connects private endpoints of another subscription to each private link service.
fn connect(cluster: &Cluster) {
    for link in cluster.azure().documents_of("Microsoft.Network/privateLinkServices") {
        for name in ["one", "two", "three"] {
            let endpoint =
                format!("/subscriptions/them/resourceGroups/rg/providers/Microsoft.Network/privateEndpoints/{name}");
            let service = link["id"].as_str().unwrap();
            cluster.azure().connect_private_endpoint(&endpoint, service, ConnectionStatus::Approved).unwrap();
        }
    }
}

/// Prepares a cluster in which the acts before `last` have happened.
async fn prepared(kind: Kind, last: Act) -> (Cluster, Manager) {
    let cluster = cluster(kind);
    let manager = cluster.start();
    tokio::time::sleep(LONG).await;
    for earlier in ACTS.into_iter().take_while(|earlier| *earlier != last) {
        act(&cluster, kind, earlier);
        tokio::time::sleep(LONG).await;
    }
    if last != Act::Create {
        connect(&cluster);
    }
    (cluster, manager)
}

/// Returns the cloud and the addresses in the statuses of Services.
fn result(cluster: &Cluster) -> Outcome {
    let status = |service: &Service| (service.metadata.name.clone(), addresses(service));
    (unordered(cluster), cluster.services().iter().map(status).collect())
}

/// Returns the outcome without a crash.
fn undisturbed(kind: Kind, last: Act) -> Outcome {
    run_paused(async {
        let (cluster, manager) = prepared(kind, last).await;
        let before = exact(&cluster);
        act(&cluster, kind, last);
        cluster.quiet_for(2 * LONG).await;
        assert!(cluster.services().iter().all(is_ready));
        assert_ne!(before, exact(&cluster), "{kind:?}: {last:?} writes");
        manager.stop().await;
        result(&cluster)
    })
}

/// Crashes at the `nth` request. Returns whether that request was sent, the outcome after a restart, and the writes before the crash.
fn crashed(kind: Kind, last: Act, nth: usize, when: Crash) -> (bool, Outcome, Vec<String>) {
    run_paused(async {
        let (cluster, manager) = prepared(kind, last).await;
        cluster.azure().clear_requests();
        manager.wire.cut_at(nth, when);
        act(&cluster, kind, last);
        tokio::time::sleep(LONG).await;
        let has_crashed = manager.wire.is_cut();
        let writes = cluster.writes();
        manager.kill();
        let manager = cluster.start();
        let is_done = |cluster: &Cluster| match last {
            Act::Delete => cluster.service("web").is_none(),
            _ => cluster.services().iter().all(is_ready),
        };
        cluster.until(&format!("{kind:?}: {last:?}, crash {when:?} request {nth}"), TIMEOUT, is_done).await;
        cluster.quiet_for(2 * LONG).await;
        manager.stop().await;
        (has_crashed, result(&cluster), writes)
    })
}

/// A change of configuration that gives load balancers other names.
#[derive(Debug, Clone, Copy)]
enum Renaming {
    /// Another name; pool members are interfaces.
    Interfaces,
    /// Another name; pool members are addresses.
    Addresses,
    /// The list of several load balancers is removed, and one load balancer remains.
    Entries,
}

impl Renaming {
    fn before(self, cluster: Cluster) -> Cluster {
        let closed = json!({"name": "kubernetes", "primaryVMSet": "none", "allowServicePlacement": false});
        match self {
            Self::Interfaces => cluster.configured("loadBalancerName", "old").configured(POOLS, "nodeIPConfiguration"),
            Self::Addresses => cluster.configured("loadBalancerName", "old").configured(POOLS, "nodeIP"),
            Self::Entries => {
                several::configured(cluster, json!([closed, {"name": "old", "primaryVMSet": "aks-pool1-vmss"}]))
            }
        }
    }

    fn after(self, cluster: Cluster) -> Cluster {
        match self {
            Self::Interfaces | Self::Addresses => cluster.configured("loadBalancerName", "new"),
            Self::Entries => several::configured(cluster, json!([])),
        }
    }
}

/// Prepares a Service on a public IP of a user, a dual-stack one and an internal one, on load balancers called `old`.
async fn named_old(renaming: Renaming) -> Cluster {
    let cluster = renaming.before(cluster(Kind::Shared));
    let manager = cluster.serve(&[dual_stack("web"), internal("inside")]).await;
    cluster.quiet_for(LONG).await;
    manager.stop().await;
    cluster.azure().clear_requests();
    renaming.after(cluster)
}

/// Renames the load balancers at a restart, and crashes at the `nth` request from then on; 0 means no crash.
/// Returns whether that request was sent, the outcome after another restart, and the writes before the crash.
fn renamed(renaming: Renaming, nth: usize, when: Crash) -> (bool, Outcome, Vec<String>) {
    run_paused(async {
        let cluster = named_old(renaming).await;
        let served: Vec<_> = cluster.services().iter().map(addresses).collect();
        let manager = cluster.start();
        if nth > 0 {
            manager.wire.cut_at(nth, when);
        }
        tokio::time::sleep(2 * LONG).await;
        let has_crashed = manager.wire.is_cut();
        let writes = cluster.writes();
        manager.kill();
        let manager = cluster.start();
        cluster.quiet_for(5 * LONG).await;
        assert!(cluster.services().iter().all(is_ready), "{renaming:?}: crash {when:?} request {nth}, after {writes:?}");
        let current: Vec<_> = cluster.services().iter().map(addresses).collect();
        assert_eq!(served, current, "{renaming:?}: crash {when:?} request {nth}, after {writes:?}");
        manager.stop().await;
        (has_crashed, result(&cluster), writes)
    })
}

fn sweep_of_names(renaming: Renaming) {
    let (_, expected, all) = renamed(renaming, 0, Crash::Before);
    assert!(!expected.0.keys().any(|id| id.contains("/loadbalancers/old")), "{all:?}");
    let mut crashes = 0;
    for when in [Crash::Before, Crash::After] {
        for nth in 1.. {
            let (has_crashed, found, writes) = renamed(renaming, nth, when);
            let context = format!("{renaming:?}: crash {when:?} request {nth}, after {writes:?}");
            assert_eq!(differences(&expected.0, &found.0), Vec::<String>::new(), "{context}");
            assert_eq!(expected.1, found.1, "{context}");
            if !has_crashed {
                break;
            }
            crashes += 1;
        }
    }
    assert!(crashes > 2 * all.len(), "reads and writes");
    println!("{renaming:?}: {crashes} crashes, {} writes without one", all.len());
}

fn sweep(kind: Kind) {
    let mut crashes = 0;
    for last in ACTS {
        let expected = undisturbed(kind, last);
        for when in [Crash::Before, Crash::After] {
            let mut points = BTreeSet::new();
            for nth in 1.. {
                let (has_crashed, found, writes) = crashed(kind, last, nth, when);
                let context = format!("{kind:?}: {last:?}, crash {when:?} request {nth}, after {writes:?}");
                assert_eq!(differences(&expected.0, &found.0), Vec::<String>::new(), "{context}");
                assert_eq!(expected.1, found.1, "{context}");
                if !has_crashed {
                    break;
                }
                points.insert(nth);
            }
            assert!(!points.is_empty(), "{kind:?}: {last:?} takes requests");
            crashes += points.len();
        }
    }
    println!("{kind:?}: {crashes} crashes");
}

#[test]
fn an_external_service_survives_crashes() {
    sweep(Kind::External);
}

#[test]
fn an_internal_service_survives_crashes() {
    sweep(Kind::Internal);
}

#[test]
fn a_dual_stack_service_survives_crashes() {
    sweep(Kind::DualStack);
}

#[test]
fn a_local_service_with_source_ranges_survives_crashes() {
    sweep(Kind::Local);
}

#[test]
fn a_service_on_a_shared_public_ip_survives_crashes() {
    sweep(Kind::Shared);
}

#[test]
fn a_service_without_floating_ip_survives_crashes() {
    sweep(Kind::Machines);
}

#[test]
fn a_move_to_another_load_balancer_survives_crashes() {
    sweep(Kind::Several);
}

#[test]
fn a_private_link_service_survives_crashes() {
    sweep(Kind::PrivateLink);
}

#[test]
fn a_recreated_private_link_service_survives_crashes() {
    sweep(Kind::MovedLink);
}

#[test]
fn a_new_load_balancer_name_with_interfaces_survives_crashes() {
    sweep_of_names(Renaming::Interfaces);
}

#[test]
fn a_new_load_balancer_name_with_addresses_survives_crashes() {
    sweep_of_names(Renaming::Addresses);
}

#[test]
fn a_return_to_one_load_balancer_survives_crashes() {
    sweep_of_names(Renaming::Entries);
}

//! The process is killed before and after each request to ARM that a change of a Service takes, and started again: what is in the cloud
//! then is what there would be without the crash.

use std::{collections::BTreeSet, time::Duration};

use cloud_controller_manager::sandbox::{
    azure::{AzureOptions, ConnectionStatus, Crash, Latencies, Latency},
    objects::ServiceExt,
};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

use crate::azure_services::{
    cluster::{Cluster, Life, PATIENCE, addresses, alone, is_ready, two_nodes},
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
    /// Beside another Service on a public IP that somebody else made.
    Shared,
    /// With a private link service, to which others have connected before it goes.
    PrivateLink,
    /// Without floating IP: security rules lead to machines.
    Machines,
    /// It comes with a load balancer of its own, moves to that of others, and its Nodes with it.
    Several,
    /// The same, with another address at the change, so that it is made anew.
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

/// What members of back-end pools are.
const POOLS: &str = "loadBalancerBackendPoolConfigurationType";
/// Whether it is switched off.
const FLOATING_IP: &str = "azure-disable-load-balancer-floating-ip";
/// The address of the public IP that somebody else made.
pub(crate) const SHARED: &str = "52.1.2.3";
/// All that a change takes is over by then.
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

/// Every write is an operation with a poll or two.
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

/// Somebody else's private endpoints reach the Service through its private link service.
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

/// Everything before `last` has happened.
async fn prepared(kind: Kind, last: Act) -> (Cluster, Life) {
    let cluster = cluster(kind);
    let life = cluster.start();
    tokio::time::sleep(LONG).await;
    for earlier in ACTS.into_iter().take_while(|earlier| *earlier != last) {
        act(&cluster, kind, earlier);
        tokio::time::sleep(LONG).await;
    }
    if last != Act::Create {
        connect(&cluster);
    }
    (cluster, life)
}

/// What is in the cloud and in the status of Services.
fn result(cluster: &Cluster) -> Outcome {
    let status = |service: &Service| (service.metadata.name.clone(), addresses(service));
    (unordered(cluster), cluster.services().iter().map(status).collect())
}

/// What it comes to without a crash.
fn undisturbed(kind: Kind, last: Act) -> Outcome {
    alone(async {
        let (cluster, life) = prepared(kind, last).await;
        let before = exact(&cluster);
        act(&cluster, kind, last);
        cluster.quiet_for(2 * LONG).await;
        assert!(cluster.services().iter().all(is_ready));
        assert_ne!(before, exact(&cluster), "{kind:?}: {last:?} writes");
        life.stop().await;
        result(&cluster)
    })
}

/// Crashes at the `nth` request. Answers whether there were so many, and what there is after a restart.
fn crashed(kind: Kind, last: Act, nth: usize, when: Crash) -> (bool, Outcome, Vec<String>) {
    alone(async {
        let (cluster, life) = prepared(kind, last).await;
        cluster.azure().clear_requests();
        life.wire.cut_at(nth, when);
        act(&cluster, kind, last);
        tokio::time::sleep(LONG).await;
        let has_crashed = life.wire.is_cut();
        let made = cluster.writes();
        life.kill();
        let life = cluster.start();
        let done = |cluster: &Cluster| match last {
            Act::Delete => cluster.service("web").is_none(),
            _ => cluster.services().iter().all(is_ready),
        };
        cluster.until(&format!("{kind:?}: {last:?}, crash {when:?} request {nth}"), PATIENCE, done).await;
        cluster.quiet_for(2 * LONG).await;
        life.stop().await;
        (has_crashed, result(&cluster), made)
    })
}

/// How load balancers come to be called otherwise.
#[derive(Debug, Clone, Copy)]
enum Renaming {
    /// By their name, with members that are interfaces.
    Interfaces,
    /// By their name, with members that are addresses.
    Addresses,
    /// The list of several goes, and there is one again.
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

/// A Service on a public IP that somebody else made, a dual-stack one and an internal one, on load balancers called `old`.
async fn named_old(renaming: Renaming) -> Cluster {
    let cluster = renaming.before(cluster(Kind::Shared));
    let life = cluster.serve(&[dual_stack("web"), internal("inside")]).await;
    cluster.quiet_for(LONG).await;
    life.stop().await;
    cluster.azure().clear_requests();
    renaming.after(cluster)
}

/// The load balancers get another name at a restart, and the process crashes at the `nth` request from then on; with 0 it does not.
/// Answers whether there were so many, what there is after another restart, and the writes before the crash.
fn renamed(renaming: Renaming, nth: usize, when: Crash) -> (bool, Outcome, Vec<String>) {
    alone(async {
        let cluster = named_old(renaming).await;
        let served: Vec<_> = cluster.services().iter().map(addresses).collect();
        let life = cluster.start();
        if nth > 0 {
            life.wire.cut_at(nth, when);
        }
        tokio::time::sleep(2 * LONG).await;
        let has_crashed = life.wire.is_cut();
        let made = cluster.writes();
        life.kill();
        let life = cluster.start();
        cluster.quiet_for(5 * LONG).await;
        assert!(cluster.services().iter().all(is_ready), "{renaming:?}: crash {when:?} request {nth}, after {made:?}");
        let kept: Vec<_> = cluster.services().iter().map(addresses).collect();
        assert_eq!(served, kept, "{renaming:?}: crash {when:?} request {nth}, after {made:?}");
        life.stop().await;
        (has_crashed, result(&cluster), made)
    })
}

fn sweep_of_names(renaming: Renaming) {
    let (_, expected, all) = renamed(renaming, 0, Crash::Before);
    assert!(!expected.0.keys().any(|id| id.contains("/loadbalancers/old")), "{all:?}");
    let mut crashes = 0;
    for when in [Crash::Before, Crash::After] {
        for nth in 1.. {
            let (has_crashed, found, made) = renamed(renaming, nth, when);
            let told = format!("{renaming:?}: crash {when:?} request {nth}, after {made:?}");
            assert_eq!(differences(&expected.0, &found.0), Vec::<String>::new(), "{told}");
            assert_eq!(expected.1, found.1, "{told}");
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
                let (has_crashed, found, made) = crashed(kind, last, nth, when);
                let told = format!("{kind:?}: {last:?}, crash {when:?} request {nth}, after {made:?}");
                assert_eq!(differences(&expected.0, &found.0), Vec::<String>::new(), "{told}");
                assert_eq!(expected.1, found.1, "{told}");
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
fn a_service_that_moves_to_another_load_balancer_survives_crashes() {
    sweep(Kind::Several);
}

#[test]
fn a_private_link_service_survives_crashes() {
    sweep(Kind::PrivateLink);
}

#[test]
fn a_private_link_service_that_is_made_anew_survives_crashes() {
    sweep(Kind::MovedLink);
}

#[test]
fn another_name_of_the_load_balancer_survives_crashes_with_members_by_interface() {
    sweep_of_names(Renaming::Interfaces);
}

#[test]
fn another_name_of_the_load_balancer_survives_crashes_with_members_by_address() {
    sweep_of_names(Renaming::Addresses);
}

#[test]
fn going_back_from_several_load_balancers_to_one_survives_crashes() {
    sweep_of_names(Renaming::Entries);
}

//! What changes of Services cost: writes of each kind of document, of a cluster of ten machines.

use std::collections::BTreeMap;

use cloud_controller_manager::sandbox::azure::{AzureOptions, Class};
use k8s_openapi::api::core::v1::Service;

use crate::azure_services::{
    cluster::{Cluster, alone, is_ready, ten_nodes},
    services::{annotate, dual_stack, external, internal, with},
    several::{self, CONFIGURATIONS, INTERNAL},
};

/// Method and kind of document, with the least and the greatest number of writes.
type Bound = (&'static str, usize, usize);

const PUT_PUBLIC_IPS: &str = "PUT publicipaddresses";
const DELETE_PUBLIC_IPS: &str = "DELETE publicipaddresses";
const PUT_BALANCERS: &str = "PUT loadbalancers";
const DELETE_BALANCERS: &str = "DELETE loadbalancers";
const PUT_GROUPS: &str = "PUT networksecuritygroups";
const INSTANCES: &str = "PUT virtualmachines";
const MODELS: &str = "PUT virtualmachinescalesets";

fn cluster() -> Cluster {
    Cluster::new(ten_nodes().dual_stack(), AzureOptions::default())
}

fn count_writes(cluster: &Cluster) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let requests = cluster.azure().requests();
    for request in requests.iter().filter(|request| matches!(request.class, Class::Write | Class::Delete)) {
        let kind = request.resource_type.rsplit('/').next().unwrap_or_default();
        *counts.entry(format!("{} {kind}", request.method)).or_default() += 1;
    }
    counts
}

/// Asserts what `act` makes a manager write that serves these Services, and that nothing else is written.
async fn assert_writes(what: &str, cluster: Cluster, served: &[Service], act: fn(&Cluster), bounds: &[Bound]) {
    let (cluster, _life) = cluster.serving(served).await;
    cluster.azure().clear_requests();
    act(&cluster);
    cluster.settle().await;
    assert!(cluster.services().iter().all(is_ready), "{what}: {:?}", cluster.writes());
    let counts = count_writes(&cluster);
    let is_met = |(write, least, most): &Bound| (*least..=*most).contains(&counts.get(*write).copied().unwrap_or_default());
    let is_listed = |written: &String| bounds.iter().any(|(write, ..)| *written == *write);
    assert!(bounds.iter().all(is_met) && counts.keys().all(is_listed), "{what}: {counts:?} instead of {bounds:?}");
}

/// What is there before, what happens then, and what it costs.
type Row = (&'static str, fn() -> Cluster, Vec<Service>, fn(&Cluster), Vec<Bound>);

const MEMBERS: [Bound; 2] = [(INSTANCES, 10, 10), (MODELS, 1, 1)];
const ONE_OF_EACH: [Bound; 3] = [(PUT_PUBLIC_IPS, 1, 1), (PUT_BALANCERS, 1, 1), (PUT_GROUPS, 1, 1)];
const TWO_BALANCERS: [Bound; 2] = [(PUT_PUBLIC_IPS, 1, 1), (PUT_BALANCERS, 2, 2)];

/// Services on the first of two load balancers; those that are called `s` and a number move to the second one.
fn moving() -> Row {
    let on = |service: Service, entry: &str| with(service, CONFIGURATIONS, entry);
    let moving = (0..10).map(|index| on(external(&format!("s{index}")), "kubernetes"));
    let served = moving.chain([on(external("stays"), "kubernetes"), on(external("there"), "lb2")]).collect();
    let act: fn(&Cluster) = |cluster| {
        let to_second = |service: &mut Service| annotate(service, CONFIGURATIONS, Some("lb2"));
        (0..10).for_each(|index| cluster.change(&format!("s{index}"), to_second));
    };
    let cluster: fn() -> Cluster = || several::cluster(2, AzureOptions::default());
    ("ten move between load balancers", cluster, served, act, vec![(PUT_BALANCERS, 2, 2)])
}

#[test]
fn changes_of_services_cost_few_writes() {
    let create: fn(&Cluster) = |cluster| drop(cluster.create(&external("web")));
    let open: fn(&Cluster) = |cluster| cluster.change("web", |service| annotate(service, INTERNAL, None));
    let beside = || vec![internal("web"), internal("inside"), external("first")];
    let linked = with(with(internal("web"), "azure-pls-create", "true"), "azure-disable-load-balancer-floating-ip", "true");
    let links = [("DELETE privatelinkservices", 1, 1), ("PUT privatelinkservices", 1, 1), (PUT_GROUPS, 1, 2)];
    let two_public_ips = [(PUT_PUBLIC_IPS, 2, 2), (PUT_BALANCERS, 1, 1), (PUT_GROUPS, 1, 1)];
    let gone = [(DELETE_PUBLIC_IPS, 1, 1), (DELETE_BALANCERS, 1, 1), (PUT_GROUPS, 1, 1)];
    let moved = [(DELETE_BALANCERS, 1, 1), (INSTANCES, 10, 20), (MODELS, 1, 2)];
    let all = |bounds: [&[Bound]; 2]| bounds.concat();
    let rows: [Row; 8] = [
        ("the first one", cluster, vec![], create, all([&ONE_OF_EACH, &MEMBERS])),
        ("one more", cluster, vec![external("first")], create, ONE_OF_EACH.to_vec()),
        (
            "a dual-stack one",
            cluster,
            vec![],
            |cluster| drop(cluster.create(&dual_stack("web"))),
            all([&two_public_ips, &MEMBERS]),
        ),
        ("the last one goes", cluster, vec![external("web")], |cluster| cluster.delete("web"), all([&gone, &MEMBERS])),
        ("an internal one becomes external", cluster, beside(), open, all([&TWO_BALANCERS, &[(PUT_GROUPS, 1, 1)]])),
        // Its load balancer is deleted and another one created.
        ("a single one becomes external", cluster, vec![internal("web")], open, all([&ONE_OF_EACH, &moved])),
        (
            "its private link service moves with it",
            cluster,
            vec![linked, internal("inside"), external("first")],
            open,
            all([&TWO_BALANCERS, &links]),
        ),
        moving(),
    ];
    for (what, cluster, served, act, bounds) in rows {
        alone(async { assert_writes(what, cluster(), &served, act, &bounds).await });
    }
}

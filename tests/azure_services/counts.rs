//! Costs of changes of Services: writes of each kind of document, in a cluster of ten machines.

use std::collections::BTreeMap;

use cloud_controller_manager::sandbox::azure::{AzureOptions, Class};
use k8s_openapi::api::core::v1::Service;

use crate::azure_services::{
    cluster::{Cluster, is_ready, run_paused, ten_nodes},
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

/// Asserts the writes of a manager that serves these Services after `act`, and that it sends no others.
async fn assert_writes(name: &str, cluster: Cluster, served: &[Service], act: fn(&Cluster), bounds: &[Bound]) {
    let (cluster, _manager) = cluster.serving(served).await;
    cluster.azure().clear_requests();
    act(&cluster);
    cluster.settle().await;
    assert!(cluster.services().iter().all(is_ready), "{name}: {:?}", cluster.writes());
    let counts = count_writes(&cluster);
    let is_met = |(write, least, most): &Bound| (*least..=*most).contains(&counts.get(*write).copied().unwrap_or_default());
    let is_listed = |written: &String| bounds.iter().any(|(write, ..)| *written == *write);
    assert!(bounds.iter().all(is_met) && counts.keys().all(is_listed), "{name}: {counts:?} instead of {bounds:?}");
}

/// Name, cluster, Services that are served before, act, and the bounds of the writes.
type Row = (&'static str, fn() -> Cluster, Vec<Service>, fn(&Cluster), Vec<Bound>);

const MEMBERS: [Bound; 2] = [(INSTANCES, 10, 10), (MODELS, 1, 1)];
const ONE_OF_EACH: [Bound; 3] = [(PUT_PUBLIC_IPS, 1, 1), (PUT_BALANCERS, 1, 1), (PUT_GROUPS, 1, 1)];
const TWO_BALANCERS: [Bound; 2] = [(PUT_PUBLIC_IPS, 1, 1), (PUT_BALANCERS, 2, 2)];

/// Returns a row in which ten Services, `s0` to `s9`, move from the first load balancer to the second.
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
    let three_services = || vec![internal("web"), internal("inside"), external("first")];
    let with_private_link =
        with(with(internal("web"), "azure-pls-create", "true"), "azure-disable-load-balancer-floating-ip", "true");
    let private_links = [("DELETE privatelinkservices", 1, 1), ("PUT privatelinkservices", 1, 1), (PUT_GROUPS, 1, 2)];
    let two_public_ips = [(PUT_PUBLIC_IPS, 2, 2), (PUT_BALANCERS, 1, 1), (PUT_GROUPS, 1, 1)];
    let deleted = [(DELETE_PUBLIC_IPS, 1, 1), (DELETE_BALANCERS, 1, 1), (PUT_GROUPS, 1, 1)];
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
        (
            "the last one is deleted",
            cluster,
            vec![external("web")],
            |cluster| cluster.delete("web"),
            all([&deleted, &MEMBERS]),
        ),
        ("an internal one becomes external", cluster, three_services(), open, all([&TWO_BALANCERS, &[(PUT_GROUPS, 1, 1)]])),
        // Its load balancer is deleted and another one created.
        ("a single one becomes external", cluster, vec![internal("web")], open, all([&ONE_OF_EACH, &moved])),
        (
            "its private link service moves with it",
            cluster,
            vec![with_private_link, internal("inside"), external("first")],
            open,
            all([&TWO_BALANCERS, &private_links]),
        ),
        moving(),
    ];
    for (name, cluster, served, act, bounds) in rows {
        run_paused(async { assert_writes(name, cluster(), &served, act, &bounds).await });
    }
}

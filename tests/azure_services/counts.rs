//! What changes of Services cost: writes of each kind of document, of a cluster of ten machines.

use std::collections::BTreeMap;

use cloud_controller_manager::sandbox::azure::{AzureOptions, Class};
use k8s_openapi::api::core::v1::Service;

use crate::azure_services::{
    cluster::{Cluster, is_ready, ten_nodes},
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

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("s{index}")).collect()
}

fn externals(count: usize) -> Vec<Service> {
    names(count).iter().map(|name| external(name)).collect()
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
async fn assert_writes(cluster: Cluster, served: &[Service], act: fn(&Cluster), bounds: &[Bound]) {
    let (cluster, life) = cluster.serving(served).await;
    cluster.azure().clear_requests();
    act(&cluster);
    cluster.settle().await;
    assert!(cluster.services().iter().all(is_ready), "{:?}", cluster.writes());
    let counts = count_writes(&cluster);
    println!("{counts:?}");
    let is_met = |(write, least, most): &Bound| (*least..=*most).contains(&counts.get(*write).copied().unwrap_or_default());
    let is_listed = |written: &String| bounds.iter().any(|(write, ..)| *written == *write);
    assert!(bounds.iter().all(is_met) && counts.keys().all(is_listed), "{counts:?} instead of {bounds:?}");
    life.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_service_costs_three_writes_and_the_members() {
    let act: fn(&Cluster) = |cluster| drop(cluster.create(&external("web")));
    let bounds = [(PUT_PUBLIC_IPS, 1, 1), (PUT_BALANCERS, 1, 1), (PUT_GROUPS, 1, 1), (INSTANCES, 10, 10), (MODELS, 1, 1)];
    assert_writes(cluster(), &[], act, &bounds).await;
}

#[tokio::test(start_paused = true)]
async fn one_more_service_costs_three_writes() {
    let act: fn(&Cluster) = |cluster| drop(cluster.create(&external("web")));
    let bounds = [(PUT_PUBLIC_IPS, 1, 1), (PUT_BALANCERS, 1, 1), (PUT_GROUPS, 1, 1)];
    assert_writes(cluster(), &[external("first")], act, &bounds).await;
}

#[tokio::test(start_paused = true)]
async fn ten_services_at_once_share_writes() {
    let act: fn(&Cluster) = |cluster| externals(10).iter().for_each(|service| drop(cluster.create(service)));
    let bounds = [(PUT_PUBLIC_IPS, 10, 10), (PUT_BALANCERS, 1, 2), (PUT_GROUPS, 1, 2), (INSTANCES, 10, 10), (MODELS, 1, 1)];
    assert_writes(cluster(), &[], act, &bounds).await;
}

#[tokio::test(start_paused = true)]
async fn two_hundred_services_at_once_share_writes() {
    let act: fn(&Cluster) = |cluster| externals(200).iter().for_each(|service| drop(cluster.create(service)));
    let bounds =
        [(PUT_PUBLIC_IPS, 200, 200), (PUT_BALANCERS, 1, 2), (PUT_GROUPS, 1, 2), (INSTANCES, 10, 10), (MODELS, 1, 1)];
    assert_writes(cluster(), &[], act, &bounds).await;
}

#[tokio::test(start_paused = true)]
async fn a_dual_stack_service_costs_one_more_public_ip() {
    let act: fn(&Cluster) = |cluster| drop(cluster.create(&dual_stack("web")));
    let bounds = [(PUT_PUBLIC_IPS, 2, 2), (PUT_BALANCERS, 1, 1), (PUT_GROUPS, 1, 1), (INSTANCES, 10, 10), (MODELS, 1, 1)];
    assert_writes(cluster(), &[], act, &bounds).await;
}

#[tokio::test(start_paused = true)]
async fn ten_services_that_are_deleted_share_writes() {
    let act: fn(&Cluster) = |cluster| names(10).iter().for_each(|name| cluster.delete(name));
    let served: Vec<Service> = externals(10).into_iter().chain([external("stays")]).collect();
    assert_writes(cluster(), &served, act, &[(DELETE_PUBLIC_IPS, 10, 10), (PUT_BALANCERS, 1, 2), (PUT_GROUPS, 1, 2)]).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_service_costs_three_writes_and_the_members() {
    let act: fn(&Cluster) = |cluster| cluster.delete("web");
    let bounds =
        [(DELETE_PUBLIC_IPS, 1, 1), (DELETE_BALANCERS, 1, 1), (PUT_GROUPS, 1, 1), (INSTANCES, 10, 10), (MODELS, 1, 1)];
    assert_writes(cluster(), &[external("web")], act, &bounds).await;
}

#[tokio::test(start_paused = true)]
async fn an_internal_service_that_becomes_external_costs_four_writes() {
    let act: fn(&Cluster) = |cluster| cluster.change("web", |service| annotate(service, INTERNAL, None));
    let served = [internal("web"), internal("inside"), external("first")];
    assert_writes(cluster(), &served, act, &[(PUT_PUBLIC_IPS, 1, 1), (PUT_BALANCERS, 2, 2), (PUT_GROUPS, 1, 1)]).await;
}

/// Its load balancer is deleted and another one created.
#[tokio::test(start_paused = true)]
async fn a_single_service_that_becomes_external_moves_the_members() {
    let act: fn(&Cluster) = |cluster| cluster.change("web", |service| annotate(service, INTERNAL, None));
    let documents = [(PUT_PUBLIC_IPS, 1, 1), (PUT_BALANCERS, 1, 1), (DELETE_BALANCERS, 1, 1), (PUT_GROUPS, 1, 1)];
    let bounds: Vec<Bound> = documents.into_iter().chain([(INSTANCES, 10, 20), (MODELS, 1, 2)]).collect();
    assert_writes(cluster(), &[internal("web")], act, &bounds).await;
}

#[tokio::test(start_paused = true)]
async fn services_that_move_between_load_balancers_cost_two_writes() {
    let on = |service: Service, entry: &str| with(service, CONFIGURATIONS, entry);
    let moving = externals(10).into_iter().map(|service| on(service, "kubernetes"));
    let served: Vec<Service> = moving.chain([on(external("stays"), "kubernetes"), on(external("there"), "lb2")]).collect();
    let act: fn(&Cluster) = |cluster| {
        names(10).iter().for_each(|name| cluster.change(name, |service| annotate(service, CONFIGURATIONS, Some("lb2"))));
    };
    assert_writes(several::cluster(2, AzureOptions::default()), &served, act, &[(PUT_BALANCERS, 2, 2)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_private_link_service_that_moves_is_deleted_and_written() {
    let service = with(with(internal("web"), "azure-pls-create", "true"), "azure-disable-load-balancer-floating-ip", "true");
    let act: fn(&Cluster) = |cluster| cluster.change("web", |service| annotate(service, INTERNAL, None));
    let links = [("DELETE privatelinkservices", 1, 1), ("PUT privatelinkservices", 1, 1)];
    let bounds: Vec<Bound> =
        links.into_iter().chain([(PUT_PUBLIC_IPS, 1, 1), (PUT_BALANCERS, 2, 2), (PUT_GROUPS, 1, 2)]).collect();
    assert_writes(cluster(), &[service, internal("inside"), external("first")], act, &bounds).await;
}

//! Azure does not allow a load balancer to lose its last frontend, unless the load balancer is deleted.

use std::time::Duration;

use cloud_controller_manager::sandbox::azure::AzureOptions;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, PATIENCE, alone, is_ready},
    services::{annotate, external, internal, set_port, with},
    several::{self, CONFIGURATIONS, configured, entry, parts, places},
};

/// Longer than any backoff, and short enough for one that fails to be seen to.
const WHILE: Duration = Duration::from_secs(1200);

fn by_address() -> Cluster {
    Cluster::with_two_nodes().configured("loadBalancerBackendPoolConfigurationType", "nodeIP")
}

/// Azure refused nothing.
fn refused_nothing(cluster: &Cluster) {
    let refused: Vec<_> = cluster.azure().requests().into_iter().filter(|request| request.status == 400).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// Adds a pool of another program.
fn add_pool(cluster: &Cluster, balancer: &str) {
    change_pools(cluster, balancer, |pools, id| {
        pools.push(json!({"id": format!("{id}/backendAddressPools/theirs"), "name": "theirs", "properties": {}}));
    });
}

fn change_pools(cluster: &Cluster, balancer: &str, change: impl FnOnce(&mut Vec<Value>, &str)) {
    let all = cluster.balancers();
    let id = all.iter().find(|one| one["name"] == balancer).and_then(|one| one["id"].as_str()).unwrap().to_owned();
    cluster.azure().change_document(&id, |document| {
        change(document["properties"]["backendAddressPools"].as_array_mut().unwrap(), &id);
    });
}

/// Serves `web` on a load balancer with a pool of another program, and configures another name for the next life.
async fn with_foreign_pool() -> Cluster {
    let (cluster, life) = by_address().configured("loadBalancerName", "my-lb").serving(&[external("web")]).await;
    life.stop().await;
    add_pool(&cluster, "my-lb");
    cluster.azure().clear_requests();
    cluster.configured("loadBalancerName", "other-lb")
}

#[tokio::test(start_paused = true)]
async fn a_preconfigured_load_balancer_keeps_the_last_frontend_and_its_service_is_released() {
    let cluster = by_address().configured("preConfiguredBackendPoolLoadBalancerTypes", "external");
    let life = cluster.serve_and_settle(&[external("web")]).await;
    cluster.remove("web").await;
    cluster.settle().await;
    assert_eq!(parts(&cluster)["kubernetes"].len(), 1, "the frontend without a rule: {:?}", parts(&cluster));
    assert_eq!(cluster.public_ips().len(), 1);
    cluster.assert_warned("web", "it is the last one of its load balancer");
    cluster.add(&external("next")).await;
    cluster.settle().await;
    cluster.remove("next").await;
    cluster.settle().await;
    assert_eq!((parts(&cluster)["kubernetes"].len(), cluster.public_ips().len()), (1, 1), "no second one is kept");
    refused_nothing(&cluster);
    life.stop().await;
    cluster.plans_nothing("with a frontend that is kept").await;
}

#[tokio::test(start_paused = true)]
async fn a_former_load_balancer_with_a_foreign_pool_keeps_its_last_service() {
    let cluster = with_foreign_pool().await;
    let before = parts(&cluster);
    let _life = cluster.start();
    cluster.until_warned("web", "the last frontend of load balancer my-lb").await;
    tokio::time::sleep(WHILE).await;
    assert_eq!((parts(&cluster), cluster.writes()), (before, Vec::new()));
    change_pools(&cluster, "my-lb", |pools, _| pools.retain(|pool| pool["name"] != "theirs"));
    tokio::time::sleep(WHILE).await;
    cluster.change("web", |service| set_port(service, 81));
    cluster.until("it moves", PATIENCE, |cluster| places(cluster, "web") == ["other-lb"]).await;
    cluster.until_ready(PATIENCE).await;
    assert!(!parts(&cluster).contains_key("my-lb"));
    refused_nothing(&cluster);
}

#[tokio::test(start_paused = true)]
async fn a_former_load_balancer_with_a_foreign_pool_releases_a_deleted_service() {
    let cluster = with_foreign_pool().await;
    cluster.delete("web");
    let _life = cluster.start();
    cluster.until_gone(PATIENCE).await;
    cluster.settle().await;
    assert_eq!((parts(&cluster)["my-lb"].len(), cluster.public_ips().len()), (1, 1));
    refused_nothing(&cluster);
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_is_renamed_keeps_its_last_service_beside_a_foreign_pool() {
    let services = ["a", "b"].map(|name| with(external(name), CONFIGURATIONS, "lb2"));
    let (cluster, life) = several::cluster(2, AzureOptions::default()).serving(&services).await;
    life.stop().await;
    add_pool(&cluster, "lb2");
    ["a", "b"].iter().for_each(|name| cluster.change(name, |service| annotate(service, CONFIGURATIONS, None)));
    let renamed = configured(cluster, json!([entry("kubernetes", 1), entry("lb4", 2)]));
    renamed.azure().clear_requests();
    let _life = renamed.start();
    tokio::time::sleep(WHILE).await;
    let held: Vec<_> = ["a", "b"].into_iter().filter(|name| places(&renamed, name) == ["lb2"]).collect();
    assert_eq!(held.len(), 1, "the other one moves: {:?}", parts(&renamed));
    renamed.assert_warned(held[0], "the last frontend of load balancer lb2");
    refused_nothing(&renamed);
}

/// Two Services, alone on their load balancers, change places in one batch.
async fn swap(a: Service, b: Service, kind: &str) {
    let (cluster, life) = several::cluster(2, AzureOptions::default())
        .serving(&[with(a, CONFIGURATIONS, "kubernetes"), with(b, CONFIGURATIONS, "lb2")])
        .await;
    let found = |cluster: &Cluster| ["a", "b"].map(|name| cluster.addresses(name));
    let before = found(&cluster);
    for (name, place) in [("a", "lb2"), ("b", "kubernetes")] {
        cluster.change(name, |service| annotate(service, CONFIGURATIONS, Some(place)));
    }
    cluster.settle().await;
    let expected = (vec![format!("lb2{kind}")], vec![format!("kubernetes{kind}")]);
    assert_eq!((places(&cluster, "a"), places(&cluster, "b")), expected);
    assert!(cluster.services().iter().all(is_ready));
    assert_eq!(found(&cluster), before);
    refused_nothing(&cluster);
    life.stop().await;
    cluster.plans_nothing("after the swap").await;
}

#[test]
fn services_that_are_alone_on_their_load_balancers_change_places() {
    alone(swap(external("a"), external("b"), ""));
    alone(swap(internal("a"), internal("b"), "-internal"));
}

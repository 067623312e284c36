//! Azure does not allow a load balancer to lose its last frontend, unless the load balancer is deleted.

use std::time::Duration;

use cloud_controller_manager::sandbox::azure::AzureOptions;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, TIMEOUT, is_ready, run_paused},
    services::{annotate, external, internal, set_port, with},
    several::{self, CONFIGURATIONS, configured, entry, load_balancers_of, parts},
};

/// Longer than any backoff.
const WHILE: Duration = Duration::from_secs(1200);

fn by_address() -> Cluster {
    Cluster::with_two_nodes().configured("loadBalancerBackendPoolConfigurationType", "nodeIP")
}

/// Asserts that Azure refused nothing.
fn assert_nothing_refused(cluster: &Cluster) {
    let refused: Vec<_> = cluster.azure().requests().into_iter().filter(|request| request.status == 400).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// Adds a pool of another program to a load balancer.
fn add_pool(cluster: &Cluster, balancer: &str) {
    change_pools(cluster, balancer, |pools, id| {
        pools.push(json!({"id": format!("{id}/backendAddressPools/theirs"), "name": "theirs", "properties": {}}));
    });
}

fn change_pools(cluster: &Cluster, balancer: &str, change: impl FnOnce(&mut Vec<Value>, &str)) {
    let all = cluster.balancers();
    let id = all.iter().find(|it| it["name"] == balancer).and_then(|it| it["id"].as_str()).unwrap().to_owned();
    cluster.azure().change_document(&id, |document| {
        change(document["properties"]["backendAddressPools"].as_array_mut().unwrap(), &id);
    });
}

/// Serves `web` on a load balancer with a pool of another program, and configures another name for the next manager.
async fn with_foreign_pool() -> Cluster {
    let (cluster, manager) = by_address().configured("loadBalancerName", "my-lb").serving(&[external("web")]).await;
    manager.stop().await;
    add_pool(&cluster, "my-lb");
    cluster.azure().clear_requests();
    cluster.configured("loadBalancerName", "other-lb")
}

#[tokio::test(start_paused = true)]
async fn a_preconfigured_load_balancer_keeps_its_last_frontend() {
    let cluster = by_address().configured("preConfiguredBackendPoolLoadBalancerTypes", "external");
    let manager = cluster.serve_and_settle(&[external("web")]).await;
    cluster.remove("web").await;
    cluster.settle().await;
    assert_eq!(parts(&cluster)["kubernetes"].len(), 1, "the frontend without a rule: {:?}", parts(&cluster));
    assert_eq!(cluster.public_ips().len(), 1);
    cluster.assert_warned("web", "it is the last one of its load balancer");
    cluster.add(&external("next")).await;
    cluster.settle().await;
    cluster.remove("next").await;
    cluster.settle().await;
    assert_eq!((parts(&cluster)["kubernetes"].len(), cluster.public_ips().len()), (1, 1), "no second frontend is kept");
    assert_nothing_refused(&cluster);
    manager.stop().await;
    cluster.assert_plans_nothing("with a frontend that is kept").await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_pool_keeps_the_last_service_of_a_former_balancer() {
    let cluster = with_foreign_pool().await;
    let before = parts(&cluster);
    let _manager = cluster.start();
    cluster.until_warned("web", "the last frontend of load balancer my-lb").await;
    tokio::time::sleep(WHILE).await;
    assert_eq!((parts(&cluster), cluster.writes()), (before, Vec::new()));
    change_pools(&cluster, "my-lb", |pools, _| pools.retain(|pool| pool["name"] != "theirs"));
    tokio::time::sleep(WHILE).await;
    cluster.change("web", |service| set_port(service, 81));
    cluster.until("it moves", TIMEOUT, |cluster| load_balancers_of(cluster, "web") == ["other-lb"]).await;
    cluster.until_ready(TIMEOUT).await;
    assert!(!parts(&cluster).contains_key("my-lb"));
    assert_nothing_refused(&cluster);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_pool_does_not_block_deletion_of_the_last_service() {
    let cluster = with_foreign_pool().await;
    cluster.delete("web");
    let _manager = cluster.start();
    cluster.until_all_deleted(TIMEOUT).await;
    cluster.settle().await;
    assert_eq!((parts(&cluster)["my-lb"].len(), cluster.public_ips().len()), (1, 1));
    assert_nothing_refused(&cluster);
}

#[tokio::test(start_paused = true)]
async fn a_renamed_entry_with_a_foreign_pool_keeps_its_last_service() {
    let services = ["a", "b"].map(|name| with(external(name), CONFIGURATIONS, "lb2"));
    let (cluster, manager) = several::cluster(2, AzureOptions::default()).serving(&services).await;
    manager.stop().await;
    add_pool(&cluster, "lb2");
    ["a", "b"].iter().for_each(|name| cluster.change(name, |service| annotate(service, CONFIGURATIONS, None)));
    let renamed = configured(cluster, json!([entry("kubernetes", 1), entry("lb4", 2)]));
    renamed.azure().clear_requests();
    let _manager = renamed.start();
    tokio::time::sleep(WHILE).await;
    let remaining: Vec<_> = ["a", "b"].into_iter().filter(|name| load_balancers_of(&renamed, name) == ["lb2"]).collect();
    assert_eq!(remaining.len(), 1, "the other Service moves: {:?}", parts(&renamed));
    renamed.assert_warned(remaining[0], "the last frontend of load balancer lb2");
    assert_nothing_refused(&renamed);
}

/// Swaps the load balancers of two Services, each the only one on its load balancer, in one batch.
async fn swap(a: Service, b: Service, kind: &str) {
    let (cluster, manager) = several::cluster(2, AzureOptions::default())
        .serving(&[with(a, CONFIGURATIONS, "kubernetes"), with(b, CONFIGURATIONS, "lb2")])
        .await;
    let found = |cluster: &Cluster| ["a", "b"].map(|name| cluster.addresses(name));
    let before = found(&cluster);
    for (name, entry_name) in [("a", "lb2"), ("b", "kubernetes")] {
        cluster.change(name, |service| annotate(service, CONFIGURATIONS, Some(entry_name)));
    }
    cluster.settle().await;
    let expected = (vec![format!("lb2{kind}")], vec![format!("kubernetes{kind}")]);
    assert_eq!((load_balancers_of(&cluster, "a"), load_balancers_of(&cluster, "b")), expected);
    assert!(cluster.services().iter().all(is_ready));
    assert_eq!(found(&cluster), before);
    assert_nothing_refused(&cluster);
    manager.stop().await;
    cluster.assert_plans_nothing("after the swap").await;
}

#[test]
fn two_load_balancers_can_swap_their_only_services() {
    run_paused(swap(external("a"), external("b"), ""));
    run_paused(swap(internal("a"), internal("b"), "-internal"));
}

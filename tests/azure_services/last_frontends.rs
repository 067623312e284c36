//! Azure does not allow a load balancer to lose its last frontend, unless the load balancer is deleted.

use std::time::Duration;

use cloud_controller_manager::sandbox::azure::AzureOptions;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, PATIENCE, addresses, alone, is_ready, two_nodes},
    services::{annotate, external, internal, set_port, with},
    several::{self, CONFIGURATIONS, configured, entry, parts, places, plans_nothing},
};

const BALANCERS: &str = "Microsoft.Network/loadBalancers";
/// Longer than any backoff, and short enough for one that fails to be seen to.
const WHILE: Duration = Duration::from_secs(1200);

fn by_address() -> Cluster {
    Cluster::new(two_nodes(), AzureOptions::default()).configured("loadBalancerBackendPoolConfigurationType", "nodeIP")
}

/// Azure refused nothing.
fn refused_nothing(cluster: &Cluster) {
    let refused: Vec<_> = cluster.azure().requests().into_iter().filter(|request| request.status == 400).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

fn public_ips(cluster: &Cluster) -> usize {
    cluster.azure().documents_of("Microsoft.Network/publicIPAddresses").len()
}

fn warned(cluster: &Cluster, service: &str, words: &str) -> bool {
    cluster.warnings(service).iter().any(|(_, message)| message.contains(words))
}

async fn served(cluster: &Cluster, service: &Service) {
    cluster.create(service);
    cluster.until_ready(PATIENCE).await;
    cluster.settle().await;
}

/// Adds a pool of another program.
fn add_pool(cluster: &Cluster, balancer: &str) {
    change_pools(cluster, balancer, |pools, id| {
        pools.push(json!({"id": format!("{id}/backendAddressPools/theirs"), "name": "theirs", "properties": {}}));
    });
}

fn change_pools(cluster: &Cluster, balancer: &str, change: impl FnOnce(&mut Vec<Value>, &str)) {
    let all = cluster.azure().documents_of(BALANCERS);
    let id = all.iter().find(|one| one["name"] == balancer).and_then(|one| one["id"].as_str()).unwrap().to_owned();
    cluster.azure().change_document(&id, |document| {
        change(document["properties"]["backendAddressPools"].as_array_mut().unwrap(), &id);
    });
}

#[test]
fn a_preconfigured_load_balancer_keeps_the_last_frontend_and_its_service_is_released() {
    alone(async {
        let cluster = by_address().configured("preConfiguredBackendPoolLoadBalancerTypes", "external");
        let life = cluster.start();
        served(&cluster, &external("web")).await;
        cluster.delete("web");
        cluster.until("the Service is released", PATIENCE, |cluster| cluster.service("web").is_none()).await;
        cluster.settle().await;
        assert_eq!(parts(&cluster)["kubernetes"].len(), 1, "the frontend without a rule: {:?}", parts(&cluster));
        assert_eq!(public_ips(&cluster), 1);
        assert!(warned(&cluster, "web", "it is the last one of its load balancer"), "{:?}", cluster.warnings("web"));
        served(&cluster, &external("next")).await;
        cluster.delete("next");
        cluster.until_gone(PATIENCE).await;
        cluster.settle().await;
        assert_eq!((parts(&cluster)["kubernetes"].len(), public_ips(&cluster)), (1, 1), "no second one is kept");
        refused_nothing(&cluster);
        life.stop().await;
        plans_nothing(&cluster, "with a frontend that is kept").await;
    });
}

#[test]
fn a_former_load_balancer_with_a_foreign_pool_keeps_its_last_service() {
    alone(async {
        let cluster = by_address().configured("loadBalancerName", "my-lb");
        let life = cluster.start();
        served(&cluster, &external("web")).await;
        life.stop().await;
        add_pool(&cluster, "my-lb");
        let cluster = cluster.configured("loadBalancerName", "other-lb");
        cluster.azure().clear_requests();
        let before = parts(&cluster);
        let life = cluster.start();
        cluster
            .until("it is told", PATIENCE, |cluster| warned(cluster, "web", "the last frontend of load balancer my-lb"))
            .await;
        tokio::time::sleep(WHILE).await;
        assert_eq!((parts(&cluster), cluster.writes()), (before, Vec::new()));
        change_pools(&cluster, "my-lb", |pools, _| pools.retain(|pool| pool["name"] != "theirs"));
        tokio::time::sleep(WHILE).await;
        cluster.change("web", |service| set_port(service, 81));
        cluster.until("it moves", PATIENCE, |cluster| places(cluster, "web") == ["other-lb"]).await;
        cluster.until_ready(PATIENCE).await;
        assert!(!parts(&cluster).contains_key("my-lb"));
        refused_nothing(&cluster);
        life.stop().await;
    });
}

#[test]
fn a_former_load_balancer_with_a_foreign_pool_releases_a_deleted_service() {
    alone(async {
        let cluster = by_address().configured("loadBalancerName", "my-lb");
        let life = cluster.start();
        served(&cluster, &external("web")).await;
        life.stop().await;
        add_pool(&cluster, "my-lb");
        let cluster = cluster.configured("loadBalancerName", "other-lb");
        cluster.azure().clear_requests();
        cluster.delete("web");
        let life = cluster.start();
        cluster.until_gone(PATIENCE).await;
        cluster.settle().await;
        assert_eq!((parts(&cluster)["my-lb"].len(), public_ips(&cluster)), (1, 1));
        refused_nothing(&cluster);
        life.stop().await;
    });
}

#[test]
fn an_entry_that_is_renamed_keeps_its_last_service_beside_a_foreign_pool() {
    alone(async {
        let cluster = several::cluster(2, AzureOptions::default());
        let life = cluster.start();
        served(&cluster, &with(external("a"), CONFIGURATIONS, "lb2")).await;
        served(&cluster, &with(external("b"), CONFIGURATIONS, "lb2")).await;
        life.stop().await;
        add_pool(&cluster, "lb2");
        ["a", "b"].iter().for_each(|name| cluster.change(name, |service| annotate(service, CONFIGURATIONS, None)));
        let renamed = configured(cluster, json!([entry("kubernetes", 1), entry("lb4", 2)]));
        renamed.azure().clear_requests();
        let life = renamed.start();
        tokio::time::sleep(WHILE).await;
        let held: Vec<_> = ["a", "b"].into_iter().filter(|name| places(&renamed, name) == ["lb2"]).collect();
        assert_eq!(held.len(), 1, "the other one moves: {:?}", parts(&renamed));
        assert!(warned(&renamed, held[0], "the last frontend of load balancer lb2"), "{:?}", renamed.warnings(held[0]));
        refused_nothing(&renamed);
        life.stop().await;
    });
}

/// Two Services, alone on their load balancers, change places in one batch.
async fn swap(a: Service, b: Service, kind: &str) {
    let cluster = several::cluster(2, AzureOptions::default());
    cluster.create(&with(a, CONFIGURATIONS, "kubernetes"));
    cluster.create(&with(b, CONFIGURATIONS, "lb2"));
    let life = cluster.start();
    cluster.until_ready(PATIENCE).await;
    cluster.settle().await;
    let found = |cluster: &Cluster| ["a", "b"].map(|name| addresses(&cluster.service(name).unwrap()));
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
    plans_nothing(&cluster, "after the swap").await;
}

#[test]
fn services_that_are_alone_on_their_load_balancers_change_places() {
    alone(swap(external("a"), external("b"), ""));
    alone(swap(internal("a"), internal("b"), "-internal"));
}

//! Private link services whose owner does not use the shared frontend anymore: they change only if an annotation requests it.

use std::time::Duration;

use cloud_controller_manager::sandbox::objects::ServiceExt;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, is_ready},
    services::{annotate, internal, with},
};

const CREATE: &str = "azure-pls-create";
const FQDNS: &str = "azure-pls-fqdns";
const ADDRESS: &str = "10.224.1.10";
/// An owner's options, all of them different from the defaults.
const OPTIONS: [(&str, &str); 8] = [
    (CREATE, "true"),
    ("azure-pls-visibility", "*"),
    ("azure-pls-auto-approval", "sub"),
    ("azure-pls-proxy-protocol", "true"),
    (FQDNS, "a.example.com"),
    ("azure-pls-ip-configuration-subnet", "pls"),
    ("azure-pls-ip-configuration-ip-address-count", "2"),
    ("azure-pls-ip-configuration-ip-address", "10.225.0.7"),
];

fn shared(name: &str, port: i32) -> Service {
    let mut service = internal(name).ports(&[("http", port)]);
    service.spec.get_or_insert_default().load_balancer_ip = Some(ADDRESS.to_owned());
    service
}

fn owner() -> Service {
    OPTIONS.iter().fold(shared("a", 80), |service, (key, value)| with(service, key, value))
}

fn vnet(cluster: &Cluster) -> Value {
    cluster.azure().documents_of("Microsoft.Network/virtualNetworks").remove(0)
}

/// Prepares a second subnet, `pls`, and Services `a`, which owns the private link service, and `b`, which shares it.
async fn shared_cluster() -> Cluster {
    let cluster = Cluster::with_two_nodes();
    let id = vnet(&cluster)["id"].as_str().unwrap().to_owned();
    cluster.azure().change_document(&id, |network| {
        let properties = json!({"addressPrefix": "10.225.0.0/24", "privateLinkServiceNetworkPolicies": "Enabled"});
        let subnet = json!({"id": format!("{id}/subnets/pls"), "name": "pls", "properties": properties});
        network["properties"]["subnets"].as_array_mut().unwrap().push(subnet);
    });
    let manager = cluster.start();
    cluster.add(&owner()).await;
    cluster.add(&with(shared("b", 443), CREATE, "true")).await;
    cluster.settle().await;
    manager.stop().await;
    cluster
}

fn link(cluster: &Cluster) -> Value {
    let mut links = cluster.azure().documents_of("Microsoft.Network/privateLinkServices");
    assert_eq!(links.len(), 1);
    let mut link = links.remove(0);
    remove_etags(&mut link);
    link
}

fn remove_etags(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("etag");
            fields.values_mut().for_each(remove_etags);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_etags),
        _ => {}
    }
}

fn policies(cluster: &Cluster) -> Vec<Value> {
    let network = vnet(cluster);
    let subnets = network["properties"]["subnets"].as_array().unwrap().iter();
    subnets.map(|subnet| subnet["properties"]["privateLinkServiceNetworkPolicies"].clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_start_does_not_change_an_orphan() {
    let cluster = shared_cluster().await;
    let (before, subnets) = (link(&cluster), policies(&cluster));
    assert_eq!(before["tags"]["k8s-azure-owner-service"], "default/a");
    let manager = cluster.start();
    cluster.remove("a").await;
    cluster.settle().await;
    manager.stop().await;
    cluster.azure().clear_requests();
    let _manager = cluster.start();
    cluster.settle().await;
    assert_eq!(cluster.writes(), Vec::<String>::new());
    assert_eq!((link(&cluster), policies(&cluster)), (before.clone(), subnets));
    cluster.change("b", |service| annotate(service, FQDNS, Some("b.example.com")));
    cluster.settle().await;
    let mut expected = before;
    expected["properties"]["fqdns"] = json!(["b.example.com"]);
    assert_eq!(link(&cluster), expected, "only what the annotation requests");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_was_another_type_for_a_while_returns() {
    let cluster = shared_cluster().await;
    let before = link(&cluster);
    let set_type = |kind: &str| {
        let kind = Some(kind.to_owned());
        cluster.change("a", |service| service.spec.as_mut().unwrap().type_ = kind);
    };
    let _manager = cluster.start();
    set_type("ClusterIP");
    cluster.settle().await;
    assert_eq!(link(&cluster), before);
    set_type("LoadBalancer");
    let is_served = |cluster: &Cluster| cluster.service("a").as_ref().is_some_and(is_ready);
    cluster.until("the owner is served again", Duration::from_secs(120), is_served).await;
    assert_eq!(link(&cluster), before);
    assert!(cluster.service("b").as_ref().is_some_and(is_ready));
}

//! Front ends that change hands, names of load balancers and SKUs that change at a restart: nobody who is served loses anything.

use std::time::Duration;

use cloud_controller_manager::sandbox::azure::AzureOptions;
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, addresses, alone, two_nodes},
    services::{annotate, external, internal, pinned},
};

const MINUTE: Duration = Duration::from_secs(60);
const BALANCERS: &str = "Microsoft.Network/loadBalancers";

/// Names of the load balancers, and how many members the pools of each have.
fn balancers(cluster: &Cluster) -> Vec<(String, usize)> {
    let count = |pool: &Value| pool["properties"]["backendIPConfigurations"].as_array().map_or(0, Vec::len);
    let members =
        |document: &Value| document["properties"]["backendAddressPools"].as_array().unwrap().iter().map(count).sum();
    let documents = cluster.azure().documents_of(BALANCERS);
    documents.iter().map(|document| (document["name"].as_str().unwrap().to_owned(), members(document))).collect()
}

fn address(cluster: &Cluster, name: &str) -> Vec<String> {
    cluster.service(name).map(|service| addresses(&service)).unwrap_or_default()
}

/// Someone makes a public IP like the first one, by another name.
fn make_public_ip(cluster: &Cluster, name: &str) {
    let mut document = cluster.azure().documents_of("Microsoft.Network/publicIPAddresses").remove(0);
    let id = document["id"].as_str().unwrap().rsplit_once('/').unwrap().0.to_owned();
    document["id"] = json!(format!("{id}/{name}"));
    document["name"] = json!(name);
    document["tags"] = Value::Null;
    for field in ["ipAddress", "ipConfiguration", "resourceGuid"] {
        document["properties"].as_object_mut().unwrap().remove(field);
    }
    document["properties"]["ipAddress"] = json!("20.0.9.9");
    cluster.azure().put_document(document).unwrap();
}

#[test]
fn who_leaves_a_shared_public_ip_takes_nothing_from_the_others() {
    alone(async {
        let cluster = Cluster::new(two_nodes(), AzureOptions::default());
        cluster.create(&external("owner"));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        let shared = address(&cluster, "owner").remove(0);
        cluster.create(&pinned("guest", &shared, 8080));
        cluster.until_ready(5 * MINUTE).await;
        make_public_ip(&cluster, "other");
        cluster.settle().await;
        cluster.azure().clear_requests();
        cluster.change("owner", |owner| annotate(owner, "azure-pip-name", Some("other")));
        let moved = |cluster: &Cluster| address(cluster, "owner") == ["20.0.9.9"];
        cluster.until("the owner has the other one", 5 * MINUTE, moved).await;
        cluster.settle().await;
        let writes = cluster.writes();
        let of_balancer = writes.iter().filter(|write| write.contains("/loadBalancers/kubernetes"));
        assert_eq!(of_balancer.count(), 1, "{writes:?}");
        assert_eq!(address(&cluster, "guest"), [shared]);
        life.stop().await;
        cluster.azure().clear_requests();
        let life = cluster.start();
        cluster.settle().await;
        assert_eq!(cluster.writes(), Vec::<String>::new(), "a restart finds all as it has to be");
        life.stop().await;
    });
}

#[test]
fn another_name_of_the_load_balancer_moves_everybody_and_all_machines() {
    alone(async {
        let cluster = Cluster::new(two_nodes(), AzureOptions::default()).configured("loadBalancerName", "old");
        ["one", "two", "three"].iter().for_each(|name| drop(cluster.create(&external(name))));
        cluster.create(&internal("inside"));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        life.stop().await;
        let before = balancers(&cluster);
        let served = ["one", "two", "three", "inside"].map(|name| address(&cluster, name));
        // It is refused from now on, and keeps what it has.
        cluster.change("three", |three| annotate(three, "azure-load-balancer-tcp-idle-timeout", Some("never")));
        let cluster = cluster.configured("loadBalancerName", "new");
        let life = cluster.start();
        cluster.settle().await;
        let renamed = before.iter().map(|(name, members)| (name.replace("old", "new"), *members));
        assert_eq!(balancers(&cluster), renamed.collect::<Vec<_>>());
        assert_eq!(["one", "two", "three", "inside"].map(|name| address(&cluster, name)), served);
        life.stop().await;
    });
}

#[test]
fn basic_load_balancers_and_public_ips_become_standard_ones_with_their_addresses() {
    alone(async {
        let cluster = Cluster::new(two_nodes(), AzureOptions::default()).configured("loadBalancerSku", "basic");
        ["one", "two"].iter().for_each(|name| drop(cluster.create(&external(name))));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        life.stop().await;
        let served = ["one", "two"].map(|name| address(&cluster, name));
        let cluster = cluster.configured("loadBalancerSku", "standard");
        let life = cluster.start();
        cluster.settle().await;
        let skus =
            |kind| cluster.azure().documents_of(kind).iter().map(|one| one["sku"]["name"].clone()).collect::<Vec<_>>();
        assert_eq!(skus(BALANCERS), ["Standard"]);
        assert_eq!(skus("Microsoft.Network/publicIPAddresses"), ["Standard", "Standard"]);
        assert_eq!(["one", "two"].map(|name| address(&cluster, name)), served);
        assert_eq!(balancers(&cluster), [("kubernetes".to_owned(), 2)]);
        life.stop().await;
    });
}

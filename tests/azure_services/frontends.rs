//! Frontends that change owners, and names of load balancers that change at a restart: served Services keep their addresses.

use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, MINUTE},
    services::{annotate, external, internal, pinned},
};

/// Returns the names of the load balancers with the number of members in the pools of each.
fn balancers(cluster: &Cluster) -> Vec<(String, usize)> {
    let count = |pool: &Value| pool["properties"]["backendIPConfigurations"].as_array().map_or(0, Vec::len);
    let members =
        |document: &Value| document["properties"]["backendAddressPools"].as_array().unwrap().iter().map(count).sum();
    let documents = cluster.balancers();
    documents.iter().map(|document| (document["name"].as_str().unwrap().to_owned(), members(document))).collect()
}

/// Creates a public IP like the first one under another name.
fn make_public_ip(cluster: &Cluster, name: &str) {
    let mut document = cluster.public_ips().remove(0);
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

#[tokio::test(start_paused = true)]
async fn an_owner_that_leaves_a_shared_public_ip_keeps_the_guest() {
    let (cluster, manager) = Cluster::with_two_nodes().serving(&[external("owner")]).await;
    let shared = cluster.addresses("owner").remove(0);
    cluster.add(&pinned("guest", &shared, 8080)).await;
    make_public_ip(&cluster, "other");
    cluster.settle().await;
    cluster.azure().clear_requests();
    cluster.change("owner", |owner| annotate(owner, "azure-pip-name", Some("other")));
    let moved = |cluster: &Cluster| cluster.addresses("owner") == ["20.0.9.9"];
    cluster.until("the owner has the other one", 5 * MINUTE, moved).await;
    cluster.settle().await;
    let writes = cluster.writes();
    let of_balancer = writes.iter().filter(|write| write.contains("/loadBalancers/kubernetes"));
    assert_eq!(of_balancer.count(), 1, "{writes:?}");
    assert_eq!(cluster.addresses("guest"), [shared]);
    manager.stop().await;
    cluster.assert_plans_nothing("a restart writes nothing").await;
}

#[tokio::test(start_paused = true)]
async fn a_new_load_balancer_name_moves_all_services_and_machines() {
    let cluster = Cluster::with_two_nodes().configured("loadBalancerName", "old");
    ["one", "two", "three"].iter().for_each(|name| drop(cluster.create(&external(name))));
    let manager = cluster.serve_and_settle(&[internal("inside")]).await;
    manager.stop().await;
    let before = balancers(&cluster);
    let served = ["one", "two", "three", "inside"].map(|name| cluster.addresses(name));
    // The Service is refused from now on, and keeps its resources.
    cluster.change("three", |three| annotate(three, "azure-load-balancer-tcp-idle-timeout", Some("never")));
    let cluster = cluster.configured("loadBalancerName", "new");
    let _manager = cluster.start();
    cluster.settle().await;
    let renamed = before.iter().map(|(name, members)| (name.replace("old", "new"), *members));
    assert_eq!(balancers(&cluster), renamed.collect::<Vec<_>>());
    assert_eq!(["one", "two", "three", "inside"].map(|name| cluster.addresses(name)), served);
}

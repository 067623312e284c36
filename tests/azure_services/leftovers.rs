//! Leftover, foreign and broken resources: they may remain, but they must not block other Services.

use cloud_controller_manager::sandbox::{azure::Fault, objects::ServiceExt};
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, MINUTE, is_ready},
    services::{annotate, external, internal, pinned, set_port, with},
    wire::Objection,
};

const BALANCERS: &str = "Microsoft.Network/loadBalancers";

/// Returns the only document of a type.
fn only(cluster: &Cluster, kind: &str) -> Value {
    let mut documents = cluster.azure().documents_of(kind);
    assert_eq!(documents.len(), 1, "{documents:?}");
    documents.remove(0)
}

/// Adds a foreign rule to the frontend of the only Service.
fn add_rule(cluster: &Cluster) {
    let balancer = only(cluster, BALANCERS);
    let mut rule = balancer["properties"]["loadBalancingRules"][0].clone();
    rule["name"] = json!("theirs");
    rule["id"] = json!(format!("{}/loadBalancingRules/theirs", balancer["id"].as_str().unwrap()));
    (rule["properties"]["frontendPort"], rule["properties"]["backendPort"]) = (json!(9999), json!(9999));
    rule["properties"]["probe"] = Value::Null;
    let changed = cluster.azure().change_document(balancer["id"].as_str().unwrap(), |document| {
        document["properties"]["loadBalancingRules"].as_array_mut().unwrap().push(rule);
    });
    assert!(changed);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_rule_keeps_the_frontend_but_not_the_service() {
    let (cluster, _manager) = Cluster::with_two_nodes().serving(&[external("web")]).await;
    add_rule(&cluster);
    tokio::time::sleep(5 * MINUTE).await;
    cluster.remove("web").await;
    cluster.settle().await;
    let balancer = only(&cluster, BALANCERS);
    assert_eq!(balancer["properties"]["loadBalancingRules"].as_array().unwrap().len(), 1);
    assert_eq!(cluster.public_ips().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn leftovers_of_a_service_do_not_block_one_of_the_same_name() {
    let (cluster, manager) = Cluster::with_two_nodes().serving(&[external("web")]).await;
    manager.kill();
    cluster.change("web", |web| web.metadata.finalizers = None);
    cluster.delete("web");
    assert!(cluster.service("web").is_none());
    let _manager = cluster.serve_and_settle(&[external("web")]).await;
}

/// Two Services of one process share an address. The rules of a deleted Service are removed with it, without a comparison.
#[tokio::test(start_paused = true)]
async fn a_deleted_service_leaves_no_rule_at_a_shared_address() {
    let inside = with(internal("inside"), "azure-allowed-ip-ranges", "10.9.0.0/16");
    let outside = with(external("outside"), "azure-allowed-ip-ranges", "203.0.113.0/24");
    let (cluster, _manager) = Cluster::with_two_nodes().serving(&[inside, outside]).await;
    let rules = |cluster: &Cluster| {
        let group = only(cluster, "Microsoft.Network/networkSecurityGroups");
        let named = |rule: &Value| (rule["name"].to_string(), rule["properties"].to_string());
        group["properties"]["securityRules"].as_array().unwrap().iter().map(named).collect::<Vec<_>>()
    };
    let before = rules(&cluster);
    let address = |name: &str| cluster.addresses(name).remove(0);
    let locked = with(internal("locked"), "azure-deny-all-except-load-balancer-source-ranges", "true");
    let locked = with(locked.ports(&[("more", 81)]), "azure-allowed-ip-ranges", "10.9.9.0/24");
    cluster.create(&with(locked, "azure-load-balancer-ipv4", &address("inside")));
    cluster.add(&pinned("open", &address("outside"), 81)).await;
    cluster.settle().await;
    assert_ne!(rules(&cluster), before);
    ["locked", "open"].iter().for_each(|name| cluster.delete(name));
    cluster.until("they are deleted", 5 * MINUTE, |cluster| cluster.services().len() == 2).await;
    assert_eq!(rules(&cluster), before);
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_reference_fails_only_its_own_service() {
    let cluster = Cluster::with_two_nodes();
    cluster.azure().add_fault(Fault::refuse(403, "AuthorizationFailed").path("*/resourceGroups/forbidden/*"));
    cluster.azure().add_fault(Fault::refuse(400, "InvalidResourceName").path("*/subnets/odd"));
    cluster.create(&external("before"));
    cluster.create(&with(external("bad"), "azure-load-balancer-resource-group", "forbidden"));
    cluster.create(&with(internal("odd"), "azure-load-balancer-internal-subnet", "odd"));
    let _manager = cluster.start();
    cluster.until_served("before", 5 * MINUTE).await;
    cluster.settle().await;
    cluster.create(&external("later"));
    cluster.until_served("later", 5 * MINUTE).await;
    for (name, named) in [("bad", "resourceGroups/forbidden"), ("odd", "subnets/odd")] {
        cluster.assert_warned(name, named);
        cluster.remove(name).await;
    }
}
#[tokio::test(start_paused = true)]
async fn a_public_ip_in_a_group_no_longer_named_is_deleted() {
    let cluster = Cluster::with_two_nodes();
    cluster.put_group("elsewhere");
    let _manager =
        cluster.serve_and_settle(&[with(external("web"), "azure-load-balancer-resource-group", "elsewhere")]).await;
    let before = cluster.addresses("web");
    tokio::time::sleep(60 * MINUTE).await;
    cluster.change("web", |web| annotate(web, "azure-load-balancer-resource-group", None));
    cluster.until("it has another address", 30 * MINUTE, |cluster| cluster.addresses("web") != before).await;
    cluster.settle().await;
    assert_eq!(cluster.public_ips().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unprovisioned_public_ip_delays_no_other_service() {
    let cluster = Cluster::with_two_nodes();
    let id = cluster.put_public_ip("theirs", "203.0.113.9");
    cluster.azure().change_document(&id, |document| document["properties"]["provisioningState"] = json!("Failed"));
    for kind in ["loadBalancers", "publicIPAddresses"] {
        cluster.objections.add(Objection {
            kind,
            text: if kind == "loadBalancers" { "publicIPAddresses/theirs".to_owned() } else { "203.0.113.9".to_owned() },
            code: "ReferencedResourceNotProvisioned",
            message: format!(
                "Cannot proceed with operation because resource {id} used by resource kubernetes is not in Succeeded state."
            ),
        });
    }
    cluster.create(&with(external("bad"), "azure-pip-name", "theirs"));
    (0..5).for_each(|index| drop(cluster.create(&external(&format!("s{index}")))));
    let _manager = cluster.start();
    let ready = |cluster: &Cluster| cluster.services().iter().filter(|service| is_ready(service)).count();
    cluster.until("the others are ready", 10 * MINUTE, |cluster| ready(cluster) == 5).await;
    // The backoff has reached its maximum then.
    tokio::time::sleep(60 * MINUTE).await;
    let before = cluster.objections.refused();
    tokio::time::sleep(60 * MINUTE).await;
    let refused = cluster.objections.refused() - before;
    assert!(refused <= 120, "{refused} writes in an hour that cannot succeed");
}

#[tokio::test(start_paused = true)]
async fn an_unwritable_load_balancer_delays_only_its_own_services() {
    let cluster = Cluster::with_two_nodes();
    let names = ["a", "b", "c", "inside"];
    let _manager = cluster.serve(&[external("a"), external("b"), external("c"), internal("inside")]).await;
    let broken = Fault::refuse(500, "InternalServerError").method("PUT").path("*/loadBalancers/kubernetes-internal");
    cluster.azure().add_fault(broken);
    names.iter().for_each(|name| cluster.change(name, |service| set_port(service, 8080)));
    let has_new_ports = |cluster: &Cluster| {
        let documents = cluster.balancers();
        let rules =
            documents.iter().filter_map(|document| document["properties"]["loadBalancingRules"].as_array()).flatten();
        rules.filter(|rule| rule["properties"]["frontendPort"] == 8080).count() == 3
    };
    let ready = |cluster: &Cluster| names.map(|name| is_ready(&cluster.service(name).unwrap()));
    let others_are = |cluster: &Cluster| has_new_ports(cluster) && ready(cluster) == [true, true, true, false];
    cluster.until("all but one are ready", 30 * MINUTE, others_are).await;
}

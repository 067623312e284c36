//! What others have left, made or broken: it may stay, but it must not stand in anybody's way.

use std::time::Duration;

use cloud_controller_manager::sandbox::{
    azure::{AzureOptions, Fault},
    objects::ServiceExt,
};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, addresses, alone, is_ready, two_nodes},
    services::{annotate, external, internal, set_port, with},
    wire::Objection,
};

const MINUTE: Duration = Duration::from_secs(60);
const BALANCERS: &str = "Microsoft.Network/loadBalancers";
const PUBLIC_IPS: &str = "Microsoft.Network/publicIPAddresses";

fn cluster() -> Cluster {
    Cluster::new(two_nodes(), AzureOptions::default())
}

/// The one document of a type.
fn only(cluster: &Cluster, kind: &str) -> Value {
    let mut documents = cluster.azure().documents_of(kind);
    assert_eq!(documents.len(), 1, "{documents:?}");
    documents.remove(0)
}

/// Somebody adds a rule of their own to the front end of the only Service.
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

#[test]
fn a_rule_of_somebody_else_keeps_front_end_and_public_ip_but_not_the_service() {
    alone(async {
        let cluster = cluster();
        cluster.create(&external("web"));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        add_rule(&cluster);
        tokio::time::sleep(5 * MINUTE).await;
        cluster.delete("web");
        cluster.until_gone(30 * MINUTE).await;
        cluster.settle().await;
        let balancer = only(&cluster, BALANCERS);
        assert_eq!(balancer["properties"]["loadBalancingRules"].as_array().unwrap().len(), 1);
        assert_eq!(cluster.azure().documents_of(PUBLIC_IPS).len(), 1);
        life.stop().await;
    });
}

#[test]
fn what_a_service_of_the_same_name_has_left_keeps_nobody_from_being_served() {
    alone(async {
        let cluster = cluster();
        cluster.create(&external("web"));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        life.kill();
        cluster.change("web", |web| web.metadata.finalizers = None);
        cluster.delete("web");
        assert!(cluster.service("web").is_none());
        cluster.create(&external("web"));
        let life = cluster.start();
        cluster.until_ready(30 * MINUTE).await;
        cluster.settle().await;
        life.stop().await;
    });
}

#[test]
fn without_floating_ip_only_machines_behind_the_load_balancer_are_opened() {
    alone(async {
        let cluster = cluster();
        let nodes = cluster.world.nodes();
        let (control, worker) = (&nodes[0], &nodes[1]);
        let address = |node: &Node| {
            let listed = node.status.as_ref().unwrap().addresses.as_ref().unwrap();
            listed.iter().find(|address| address.type_ == "InternalIP").unwrap().address.clone()
        };
        cluster.server.update_with::<Node>("", control.metadata.name.as_ref().unwrap(), |node| {
            let labels = node.metadata.labels.get_or_insert_default();
            labels.insert("node-role.kubernetes.io/control-plane".to_owned(), String::new());
        });
        cluster.create(&with(external("web").node_port(30_080), "azure-disable-load-balancer-floating-ip", "true"));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        let group = only(&cluster, "Microsoft.Network/networkSecurityGroups").to_string();
        assert!(group.contains(&format!("\"{}\"", address(worker))), "{group}");
        assert!(!group.contains(&format!("\"{}\"", address(control))), "{group}");
        life.stop().await;
    });
}

/// Two Services of one process share an address. The rules of one leave with it, before anything is compared.
#[test]
fn a_deleted_service_leaves_no_rule_at_a_shared_address() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
        cluster.create(&with(internal("inside"), "azure-allowed-ip-ranges", "10.9.0.0/16"));
        cluster.create(&with(external("outside"), "azure-allowed-ip-ranges", "203.0.113.0/24"));
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        let rules = |cluster: &Cluster| {
            let group = only(cluster, "Microsoft.Network/networkSecurityGroups");
            let named = |rule: &Value| (rule["name"].to_string(), rule["properties"].to_string());
            group["properties"]["securityRules"].as_array().unwrap().iter().map(named).collect::<Vec<_>>()
        };
        let before = rules(&cluster);
        let address = |name: &str| addresses(&cluster.service(name).unwrap()).remove(0);
        let locked = with(internal("locked"), "azure-deny-all-except-load-balancer-source-ranges", "true");
        let locked = with(locked.ports(&[("more", 81)]), "azure-allowed-ip-ranges", "10.9.9.0/24");
        cluster.create(&with(locked, "azure-load-balancer-ipv4", &address("inside")));
        cluster.create(&crate::azure_services::services::pinned("open", &address("outside"), 81));
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        assert_ne!(rules(&cluster), before);
        ["locked", "open"].iter().for_each(|name| cluster.delete(name));
        cluster.until("they are gone", 5 * MINUTE, |cluster| cluster.services().len() == 2).await;
        assert_eq!(rules(&cluster), before);
        life.stop().await;
    });
}

#[test]
fn what_one_service_names_and_nobody_may_read_is_its_own_trouble() {
    alone(async {
        let cluster = cluster();
        cluster.azure().add_fault(Fault::refuse(403, "AuthorizationFailed").path("*/resourceGroups/forbidden/*"));
        cluster.azure().add_fault(Fault::refuse(400, "InvalidResourceName").path("*/subnets/odd"));
        cluster.create(&external("before"));
        cluster.create(&with(external("bad"), "azure-load-balancer-resource-group", "forbidden"));
        cluster.create(&with(internal("odd"), "azure-load-balancer-internal-subnet", "odd"));
        let life = cluster.start();
        let ready = |name: &'static str| move |cluster: &Cluster| is_ready(&cluster.service(name).unwrap());
        cluster.until("the first is ready", 5 * MINUTE, ready("before")).await;
        cluster.settle().await;
        cluster.create(&external("later"));
        cluster.until("the last is ready", 5 * MINUTE, ready("later")).await;
        for (name, named) in [("bad", "resourceGroups/forbidden"), ("odd", "subnets/odd")] {
            let warnings = cluster.warnings(name);
            assert!(warnings.iter().any(|(_, message)| message.contains(named)), "{warnings:?}");
            cluster.delete(name);
            cluster.until("it can be deleted", 10 * MINUTE, |cluster| cluster.service(name).is_none()).await;
        }
        life.stop().await;
    });
}
#[test]
fn a_public_ip_in_a_group_that_nobody_names_any_more_is_deleted() {
    alone(async {
        let cluster = cluster();
        let topology = cluster.world.topology();
        let group =
            cloud_controller_manager::providers::azure::arm::ResourceId::group_of(&topology.subscription, "elsewhere");
        cluster.azure().put_document(topology.group_document(&group)).unwrap();
        cluster.create(&with(external("web"), "azure-load-balancer-resource-group", "elsewhere"));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        let before = addresses(&cluster.service("web").unwrap());
        tokio::time::sleep(60 * MINUTE).await;
        cluster.change("web", |web| annotate(web, "azure-load-balancer-resource-group", None));
        cluster
            .until("it has another address", 30 * MINUTE, |cluster| addresses(&cluster.service("web").unwrap()) != before)
            .await;
        cluster.settle().await;
        only(&cluster, PUBLIC_IPS);
        life.stop().await;
    });
}

#[test]
fn a_public_ip_that_is_not_provisioned_holds_up_nobody_else() {
    alone(async {
        let cluster = cluster();
        let topology = cluster.world.topology();
        let id = topology.group_id().resource(PUBLIC_IPS, &["theirs"]);
        let document = json!({
            "id": id, "name": "theirs", "type": PUBLIC_IPS, "location": topology.location,
            "sku": {"name": "Standard", "tier": "Regional"},
            "properties": {
                "publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4", "ipAddress": "203.0.113.9",
                "provisioningState": "Failed",
            },
        });
        cluster.azure().put_document(document).unwrap();
        for kind in ["loadBalancers", "publicIPAddresses"] {
            cluster.objections.add(Objection {
                kind,
                text: if kind == "loadBalancers" { "publicIPAddresses/theirs".to_owned() } else { "203.0.113.9".to_owned() },
                code: "ReferencedResourceNotProvisioned",
                message: format!("Cannot proceed with operation because resource {id} used by resource kubernetes is not in Succeeded state."),
            });
        }
        cluster.create(&with(external("bad"), "azure-pip-name", "theirs"));
        (0..5).for_each(|index| drop(cluster.create(&external(&format!("s{index}")))));
        let life = cluster.start();
        let ready = |cluster: &Cluster| cluster.services().iter().filter(|service| is_ready(service)).count();
        cluster.until("the others are ready", 10 * MINUTE, |cluster| ready(cluster) == 5).await;
        // By then the pauses have grown; time is the input here, on a paused clock.
        tokio::time::sleep(60 * MINUTE).await;
        let before = cluster.objections.refused();
        tokio::time::sleep(60 * MINUTE).await;
        let refused = cluster.objections.refused() - before;
        assert!(refused <= 120, "{refused} writes in an hour that cannot succeed");
        life.stop().await;
    });
}

#[test]
fn a_load_balancer_that_cannot_be_written_holds_up_only_those_on_it() {
    alone(async {
        let cluster = cluster();
        let names = ["a", "b", "c", "inside"];
        names.iter().for_each(|name| {
            cluster.create(&if *name == "inside" { internal(name) } else { external(name) });
        });
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        let broken = Fault::refuse(500, "InternalServerError").method("PUT").path("*/loadBalancers/kubernetes-internal");
        cluster.azure().add_fault(broken);
        names.iter().for_each(|name| cluster.change(name, |service| set_port(service, 8080)));
        let has_new_ports = |cluster: &Cluster| {
            let documents = cluster.azure().documents_of(BALANCERS);
            let rules =
                documents.iter().filter_map(|document| document["properties"]["loadBalancingRules"].as_array()).flatten();
            rules.filter(|rule| rule["properties"]["frontendPort"] == 8080).count() == 3
        };
        let ready = |cluster: &Cluster| names.map(|name| is_ready(&cluster.service(name).unwrap()));
        let others_are = |cluster: &Cluster| has_new_ports(cluster) && ready(cluster) == [true, true, true, false];
        cluster.until("all but one are ready", 30 * MINUTE, others_are).await;
        life.stop().await;
    });
}

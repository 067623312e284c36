//! Security rules for machines, where floating IP is off: they open those in the pools, and what nobody needs any more goes, whoever
//! remembers it.

use std::time::Duration;

use cloud_controller_manager::sandbox::{
    azure::AzureOptions,
    objects::{NodeExt, ServiceExt},
};
use k8s_openapi::api::core::v1::{Node, NodeAddress, Service};
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, addresses, alone, is_ready, two_nodes},
    services::{external, with},
};

const MINUTE: Duration = Duration::from_secs(60);
const GROUPS: &str = "Microsoft.Network/networkSecurityGroups";
const POOLS: &str = "loadBalancerBackendPoolConfigurationType";

fn cluster(pools: &str) -> Cluster {
    Cluster::new(two_nodes(), AzureOptions::default()).configured(POOLS, pools)
}

fn at_machines(name: &str, port: i32) -> Service {
    with(external(name).node_port(port), "azure-disable-load-balancer-floating-ip", "true")
}

/// Internal addresses of a Node, IPv4 and IPv6.
fn internal(node: &Node) -> Vec<String> {
    let listed = node.status.as_ref().unwrap().addresses.as_ref().unwrap();
    listed.iter().filter(|address| address.type_ == "InternalIP").map(|address| address.address.clone()).collect()
}

/// Destinations and ports of the rules of the security group.
fn opened(cluster: &Cluster) -> Vec<(String, String)> {
    let mut opened = Vec::new();
    for group in cluster.azure().documents_of(GROUPS) {
        for rule in group["properties"]["securityRules"].as_array().unwrap() {
            let rule = &rule["properties"];
            let of = |one: &str, all: &str| {
                let listed = rule[all].as_array().into_iter().flatten().filter_map(Value::as_str);
                let one = rule[one].as_str().filter(|text| !text.is_empty());
                one.into_iter().chain(listed).map(str::to_owned).collect::<Vec<_>>()
            };
            let ports = of("destinationPortRange", "destinationPortRanges").join(",");
            let addresses = of("destinationAddressPrefix", "destinationAddressPrefixes");
            opened.extend(addresses.into_iter().map(|address| (address, ports.clone())));
        }
    }
    opened.sort();
    opened
}

fn expected(of: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut expected: Vec<_> = of.iter().map(|(address, port)| ((*address).to_owned(), (*port).to_owned())).collect();
    expected.sort();
    expected
}

/// A rule such as this program and Go's make.
fn leave_rule(cluster: &Cluster, name: &str, priority: i32, addresses: &[&str], port: &str) {
    let id = cluster.azure().documents_of(GROUPS)[0]["id"].as_str().unwrap().to_owned();
    let rule = json!({
        "id": format!("{id}/securityRules/{name}"), "name": name,
        "properties": {
            "access": "Allow", "direction": "Inbound", "protocol": "Tcp", "priority": priority, "sourceAddressPrefix": "Internet",
            "sourcePortRange": "*", "destinationAddressPrefixes": addresses, "destinationPortRanges": [port],
        },
    });
    assert!(cluster.azure().change_document(&id, |group| {
        let rules = &mut group["properties"]["securityRules"];
        if rules.is_null() {
            *rules = json!([]);
        }
        rules.as_array_mut().unwrap().push(rule);
    }));
}

/// Interfaces tell machines, which are opened at all of their addresses, as Go does it.
#[test]
fn only_addresses_in_the_pools_of_the_services_families_are_opened() {
    for (pools, families) in [("nodeIP", 1), ("nodeIPConfiguration", 2)] {
        alone(async {
            let cluster = cluster(pools);
            cluster.create(&at_machines("web", 30_080));
            cluster.create(&crate::azure_services::services::dual_stack("both"));
            let life = cluster.start();
            cluster.until_ready(5 * MINUTE).await;
            cluster.settle().await;
            let nodes = cluster.world.nodes();
            let all: Vec<_> = nodes.iter().flat_map(internal).collect();
            let at_nodes: Vec<_> = opened(&cluster).into_iter().filter(|(address, _)| all.contains(address)).collect();
            let wanted: Vec<_> = nodes.iter().flat_map(|node| internal(node).into_iter().take(families)).collect();
            let wanted: Vec<_> = wanted.iter().map(|address| (address.as_str(), "30080")).collect();
            assert_eq!(at_nodes, expected(&wanted), "{pools}");
            life.stop().await;
        });
    }
}

/// A kubelet may write any number of addresses into the status of its Node.
#[test]
fn thousands_of_addresses_of_one_node_block_no_service() {
    for pools in ["nodeIP", "nodeIPConfiguration"] {
        alone(async {
            let cluster = cluster(pools);
            let life = cluster.start();
            cluster.create(&external("first"));
            cluster.until_ready(5 * MINUTE).await;
            let name = cluster.world.nodes()[0].metadata.name.clone().unwrap();
            cluster.server.update_with::<Node>("", &name, |node| {
                let addresses = node.status.get_or_insert_default().addresses.get_or_insert_default();
                addresses.extend((0..4_200).map(|index| NodeAddress {
                    type_: "InternalIP".to_owned(),
                    address: format!("10.77.{}.{}", index / 250, index % 250),
                }));
            });
            cluster.create(&at_machines("web", 30_080));
            cluster.until("it is served", MINUTE, |cluster| cluster.service("web").as_ref().is_some_and(is_ready)).await;
            let invented = opened(&cluster).iter().filter(|(address, _)| address.starts_with("10.77.")).count();
            assert!(invented < 8, "{pools}: {invented}");
            life.stop().await;
        });
    }
}

#[test]
fn a_machine_that_is_in_no_pool_is_not_opened() {
    for (pools, families) in [("nodeIP", 1), ("nodeIPConfiguration", 2)] {
        alone(async {
            let cluster = cluster(pools);
            let nodes = cluster.world.nodes();
            let name = nodes[0].metadata.name.clone().unwrap();
            cluster.server.update_with::<Node>("", &name, |node| {
                *node = node.clone().taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule");
            });
            cluster.create(&at_machines("web", 30_080));
            let life = cluster.start();
            cluster.until_ready(5 * MINUTE).await;
            cluster.settle().await;
            let wanted: Vec<_> = internal(&nodes[1]).into_iter().take(families).collect();
            let wanted: Vec<_> = wanted.iter().map(|address| (address.as_str(), "30080")).collect();
            assert_eq!(opened(&cluster), expected(&wanted), "{pools}");
            life.stop().await;
        });
    }
}

#[test]
fn a_machine_that_joins_for_no_service_is_opened() {
    alone(async {
        let cluster = cluster("nodeIP");
        let nodes = cluster.world.nodes();
        let manage = |value: Option<&'static str>| {
            cluster.server.update_with::<Node>("", nodes[0].metadata.name.as_deref().unwrap(), |node| {
                let labels = node.metadata.labels.get_or_insert_default();
                labels.remove("kubernetes.azure.com/managed");
                labels.extend(value.map(|value| ("kubernetes.azure.com/managed".to_owned(), value.to_owned())));
            });
        };
        manage(Some("false"));
        cluster.create(&at_machines("web", 30_080));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        let is_open = |cluster: &Cluster| opened(cluster).iter().any(|(address, _)| *address == internal(&nodes[0])[0]);
        assert!(!is_open(&cluster), "{:?}", opened(&cluster));
        manage(None);
        cluster.until("the machine is opened", 2 * MINUTE, is_open).await;
        life.stop().await;
    });
}

/// Its pools and its rules change for the Service and for its machines at the same time.
#[test]
fn a_machine_that_leaves_is_closed_without_a_warning() {
    alone(async {
        let cluster = cluster("nodeIP");
        cluster.create(&at_machines("web", 30_080));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        let nodes = cluster.world.nodes();
        cluster.server.update_with::<Node>("", nodes[0].metadata.name.as_deref().unwrap(), |node| {
            let labels = node.metadata.labels.get_or_insert_default();
            labels.insert("node.kubernetes.io/exclude-from-external-load-balancers".to_owned(), "true".to_owned());
        });
        let is_closed = |cluster: &Cluster| opened(cluster) == expected(&[(&internal(&nodes[1])[0], "30080")]);
        cluster.until("the machine is closed", 2 * MINUTE, is_closed).await;
        cluster.settle().await;
        assert_eq!(cluster.warnings("web"), []);
        life.stop().await;
    });
}

#[test]
fn what_opened_machines_before_goes_after_a_restart() {
    alone(async {
        let cluster = cluster("nodeIPConfiguration");
        cluster.create(&at_machines("web", 30_080));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        life.kill();
        cluster.change("web", |web| {
            *web = with(web.clone().node_port(30_081), "azure-disable-load-balancer-floating-ip", "false");
        });
        let nodes: Vec<_> = cluster.world.nodes().iter().map(|node| internal(node).remove(0)).collect();
        let elsewhere = ["10.99.0.7", "20.99.0.7"];
        leave_rule(&cluster, "k8s-azure-lb_allow_IPv4_0123", 900, &[&nodes[0], elsewhere[0], elsewhere[1]], "30555");
        let life = cluster.start();
        tokio::time::sleep(10 * MINUTE).await;
        cluster.settle().await;
        // What leads to nobody of this cluster may be another one's.
        let own = addresses(&cluster.service("web").unwrap());
        let wanted = [(own[0].as_str(), "80"), (elsewhere[0], "30555"), (elsewhere[1], "30555")];
        assert_eq!(opened(&cluster), expected(&wanted));
        life.stop().await;
    });
}

#[test]
fn the_address_of_a_node_that_went_meanwhile_leaves_with_its_entry_in_the_pool() {
    alone(async {
        let cluster = cluster("nodeIP");
        cluster.create(&at_machines("web", 30_080));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        life.kill();
        let nodes = cluster.world.nodes();
        cluster.server.delete::<Node>("", nodes[0].metadata.name.as_ref().unwrap());
        let life = cluster.start();
        tokio::time::sleep(10 * MINUTE).await;
        cluster.settle().await;
        assert_eq!(opened(&cluster), expected(&[(&internal(&nodes[1])[0], "30080")]));
        life.stop().await;
    });
}

/// It cannot be read any more, and goes on to be served as it was.
#[test]
fn a_service_that_is_refused_keeps_the_ports_that_its_rules_lead_to() {
    alone(async {
        let cluster = cluster("nodeIPConfiguration");
        cluster.create(&at_machines("web", 30_080));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        life.kill();
        let before = opened(&cluster);
        cluster.change("web", |web| {
            *web = with(web.clone().node_port(30_081), "azure-load-balancer-tcp-idle-timeout", "never");
        });
        cluster.create(&external("other"));
        let life = cluster.start();
        cluster.until("the other is ready", 10 * MINUTE, |cluster| is_ready(&cluster.service("other").unwrap())).await;
        cluster.settle().await;
        let after = opened(&cluster);
        assert!(before.iter().all(|rule| after.contains(rule)), "{before:?} {after:?}");
        life.stop().await;
    });
}

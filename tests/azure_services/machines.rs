//! Security rules for machines, where floating IP is off: they open the machines in the pools, and rules that no Service needs are removed,
//! also by a new process.

use cloud_controller_manager::sandbox::objects::{NodeExt, ServiceExt};
use k8s_openapi::api::core::v1::{Node, NodeAddress, Service};
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, MINUTE, run_paused},
    membership::EXCLUDED,
    services::{dual_stack, external, with},
};

const POOLS: &str = "loadBalancerBackendPoolConfigurationType";

fn cluster(pools: &str) -> Cluster {
    Cluster::with_two_nodes().configured(POOLS, pools)
}

fn at_machines(name: &str, port: i32) -> Service {
    with(external(name).node_port(port), "azure-disable-load-balancer-floating-ip", "true")
}

/// Returns the internal addresses of a Node, IPv4 and IPv6.
fn internal(node: &Node) -> Vec<String> {
    let listed = node.status.as_ref().unwrap().addresses.as_ref().unwrap();
    listed.iter().filter(|address| address.type_ == "InternalIP").map(|address| address.address.clone()).collect()
}

/// Returns the destinations and ports of the rules of the security group.
fn opened(cluster: &Cluster) -> Vec<(String, String)> {
    let mut opened = Vec::new();
    for group in cluster.security_groups() {
        for rule in group["properties"]["securityRules"].as_array().unwrap() {
            let rule = &rule["properties"];
            let of = |single: &str, all: &str| {
                let listed = rule[all].as_array().into_iter().flatten().filter_map(Value::as_str);
                let single = rule[single].as_str().filter(|text| !text.is_empty());
                single.into_iter().chain(listed).map(str::to_owned).collect::<Vec<_>>()
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

/// One of two machines is in no pool. With members by interface, a machine is opened at all of its addresses, as in Go.
#[test]
fn only_pool_addresses_of_the_services_families_are_opened() {
    for (pools, families) in [("nodeIP", 1), ("nodeIPConfiguration", 2)] {
        run_paused(async {
            let cluster = cluster(pools);
            let nodes = cluster.cloud.nodes();
            cluster.server.update_with::<Node>("", nodes[0].metadata.name.as_deref().unwrap(), |node| {
                *node = node.clone().taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule");
            });
            let _manager = cluster.serve_and_settle(&[at_machines("web", 30_080), dual_stack("both")]).await;
            let all: Vec<_> = nodes.iter().flat_map(internal).collect();
            let at_nodes: Vec<_> = opened(&cluster).into_iter().filter(|(address, _)| all.contains(address)).collect();
            let addresses: Vec<_> = internal(&nodes[1]).into_iter().take(families).collect();
            let destinations: Vec<_> = addresses.iter().map(|address| (address.as_str(), "30080")).collect();
            assert_eq!(at_nodes, expected(&destinations), "{pools}");
        });
    }
}

/// A kubelet may write any number of addresses into the status of its Node. Addresses that its machine lacks are ignored.
#[test]
fn thousands_of_addresses_of_one_node_block_no_service() {
    for pools in ["nodeIP", "nodeIPConfiguration"] {
        run_paused(async {
            let cluster = cluster(pools);
            let _manager = cluster.serve(&[external("first")]).await;
            let name = cluster.cloud.nodes()[0].metadata.name.clone().unwrap();
            cluster.server.update_with::<Node>("", &name, |node| {
                let addresses = node.status.get_or_insert_default().addresses.get_or_insert_default();
                addresses.extend((0..4_200).map(|index| NodeAddress {
                    type_: "InternalIP".to_owned(),
                    address: format!("10.77.{}.{}", index / 250, index % 250),
                }));
            });
            cluster.create(&at_machines("web", 30_080));
            cluster.until_served("web", MINUTE).await;
            let invented = opened(&cluster).iter().filter(|(address, _)| address.starts_with("10.77.")).count();
            assert_eq!(invented, 0, "{pools}");
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_joins_for_no_service_is_opened() {
    let cluster = cluster("nodeIP");
    let nodes = cluster.cloud.nodes();
    let name = nodes[0].metadata.name.as_deref().unwrap();
    cluster.label_node(name, "kubernetes.azure.com/managed", Some("false"));
    let _manager = cluster.serve_and_settle(&[at_machines("web", 30_080)]).await;
    let is_open = |cluster: &Cluster| opened(cluster).iter().any(|(address, _)| *address == internal(&nodes[0])[0]);
    assert!(!is_open(&cluster), "{:?}", opened(&cluster));
    cluster.label_node(name, "kubernetes.azure.com/managed", None);
    cluster.until("the machine is opened", 2 * MINUTE, is_open).await;
}

/// The pools and the rules of the Service change at the same time.
#[tokio::test(start_paused = true)]
async fn a_machine_that_leaves_is_closed_without_a_warning() {
    let (cluster, _manager) = cluster("nodeIP").serving(&[at_machines("web", 30_080)]).await;
    let nodes = cluster.cloud.nodes();
    cluster.label_node(nodes[0].metadata.name.as_deref().unwrap(), EXCLUDED, Some("true"));
    let is_closed = |cluster: &Cluster| opened(cluster) == expected(&[(&internal(&nodes[1])[0], "30080")]);
    cluster.until("the machine is closed", 2 * MINUTE, is_closed).await;
    cluster.settle().await;
    assert_eq!(cluster.warnings("web"), []);
}

/// A rule named as by this program and by Go leads to a machine and to foreign addresses.
#[tokio::test(start_paused = true)]
async fn rules_that_opened_machines_are_removed_after_a_restart() {
    let (cluster, manager) = cluster("nodeIPConfiguration").serving(&[at_machines("web", 30_080)]).await;
    manager.kill();
    cluster.change("web", |web| {
        *web = with(web.clone().node_port(30_081), "azure-disable-load-balancer-floating-ip", "false");
    });
    let group = cluster.security_groups()[0]["id"].as_str().unwrap().to_owned();
    let (machine, elsewhere) = (internal(&cluster.cloud.nodes()[0]).remove(0), ["10.99.0.7", "20.99.0.7"]);
    let name = "k8s-azure-lb_allow_IPv4_0123";
    let rule = json!({"id": format!("{group}/securityRules/{name}"), "name": name, "properties": {
        "access": "Allow", "direction": "Inbound", "protocol": "Tcp", "priority": 900, "sourceAddressPrefix": "Internet",
        "sourcePortRange": "*", "destinationAddressPrefixes": [machine, elsewhere[0], elsewhere[1]],
        "destinationPortRanges": ["30555"],
    }});
    assert!(cluster.azure().change_document(&group, |group| {
        group["properties"]["securityRules"].as_array_mut().unwrap().push(rule);
    }));
    let _manager = cluster.start();
    tokio::time::sleep(10 * MINUTE).await;
    cluster.settle().await;
    // Destinations outside of this cluster may belong to another one.
    let own = cluster.addresses("web");
    let destinations = [(own[0].as_str(), "80"), (elsewhere[0], "30555"), (elsewhere[1], "30555")];
    assert_eq!(opened(&cluster), expected(&destinations));
}

/// Its annotations are no longer valid, so the Service keeps its previous rules.
#[tokio::test(start_paused = true)]
async fn a_refused_service_keeps_the_ports_of_its_rules() {
    let (cluster, manager) = cluster("nodeIPConfiguration").serving(&[at_machines("web", 30_080)]).await;
    manager.kill();
    let before = opened(&cluster);
    cluster.change("web", |web| {
        *web = with(web.clone().node_port(30_081), "azure-load-balancer-tcp-idle-timeout", "never");
    });
    cluster.create(&external("other"));
    let _manager = cluster.start();
    cluster.until_served("other", 10 * MINUTE).await;
    cluster.settle().await;
    let after = opened(&cluster);
    assert!(before.iter().all(|rule| after.contains(rule)), "{before:?} {after:?}");
}

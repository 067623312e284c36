//! Security rules for machines, where floating IP is off: they open those in the pools, and what nobody needs any more goes, whoever
//! remembers it.

use cloud_controller_manager::sandbox::objects::{NodeExt, ServiceExt};
use k8s_openapi::api::core::v1::{Node, NodeAddress, Service};
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, MINUTE, alone},
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

/// Internal addresses of a Node, IPv4 and IPv6.
fn internal(node: &Node) -> Vec<String> {
    let listed = node.status.as_ref().unwrap().addresses.as_ref().unwrap();
    listed.iter().filter(|address| address.type_ == "InternalIP").map(|address| address.address.clone()).collect()
}

/// Destinations and ports of the rules of the security group.
fn opened(cluster: &Cluster) -> Vec<(String, String)> {
    let mut opened = Vec::new();
    for group in cluster.security_groups() {
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

/// One of two machines is in no pool. Interfaces tell machines, which are opened at all of their addresses, as Go does it.
#[test]
fn only_addresses_in_the_pools_of_the_services_families_are_opened() {
    for (pools, families) in [("nodeIP", 1), ("nodeIPConfiguration", 2)] {
        alone(async {
            let cluster = cluster(pools);
            let nodes = cluster.world.nodes();
            cluster.server.update_with::<Node>("", nodes[0].metadata.name.as_deref().unwrap(), |node| {
                *node = node.clone().taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule");
            });
            let _life = cluster.serve_and_settle(&[at_machines("web", 30_080), dual_stack("both")]).await;
            let all: Vec<_> = nodes.iter().flat_map(internal).collect();
            let at_nodes: Vec<_> = opened(&cluster).into_iter().filter(|(address, _)| all.contains(address)).collect();
            let wanted: Vec<_> = internal(&nodes[1]).into_iter().take(families).collect();
            let wanted: Vec<_> = wanted.iter().map(|address| (address.as_str(), "30080")).collect();
            assert_eq!(at_nodes, expected(&wanted), "{pools}");
        });
    }
}

/// A kubelet may write any number of addresses into the status of its Node. Those that its machine lacks do not count.
#[test]
fn thousands_of_addresses_of_one_node_block_no_service() {
    for pools in ["nodeIP", "nodeIPConfiguration"] {
        alone(async {
            let cluster = cluster(pools);
            let _life = cluster.serve(&[external("first")]).await;
            let name = cluster.world.nodes()[0].metadata.name.clone().unwrap();
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
    let nodes = cluster.world.nodes();
    let name = nodes[0].metadata.name.as_deref().unwrap();
    cluster.label_node(name, "kubernetes.azure.com/managed", Some("false"));
    let _life = cluster.serve_and_settle(&[at_machines("web", 30_080)]).await;
    let is_open = |cluster: &Cluster| opened(cluster).iter().any(|(address, _)| *address == internal(&nodes[0])[0]);
    assert!(!is_open(&cluster), "{:?}", opened(&cluster));
    cluster.label_node(name, "kubernetes.azure.com/managed", None);
    cluster.until("the machine is opened", 2 * MINUTE, is_open).await;
}

/// Its pools and its rules change for the Service and for its machines at the same time.
#[tokio::test(start_paused = true)]
async fn a_machine_that_leaves_is_closed_without_a_warning() {
    let (cluster, _life) = cluster("nodeIP").serving(&[at_machines("web", 30_080)]).await;
    let nodes = cluster.world.nodes();
    cluster.label_node(nodes[0].metadata.name.as_deref().unwrap(), EXCLUDED, Some("true"));
    let is_closed = |cluster: &Cluster| opened(cluster) == expected(&[(&internal(&nodes[1])[0], "30080")]);
    cluster.until("the machine is closed", 2 * MINUTE, is_closed).await;
    cluster.settle().await;
    assert_eq!(cluster.warnings("web"), []);
}

/// A rule such as this program and Go's make leads to a machine and to somebody else.
#[tokio::test(start_paused = true)]
async fn what_opened_machines_before_goes_after_a_restart() {
    let (cluster, life) = cluster("nodeIPConfiguration").serving(&[at_machines("web", 30_080)]).await;
    life.kill();
    cluster.change("web", |web| {
        *web = with(web.clone().node_port(30_081), "azure-disable-load-balancer-floating-ip", "false");
    });
    let group = cluster.security_groups()[0]["id"].as_str().unwrap().to_owned();
    let (machine, elsewhere) = (internal(&cluster.world.nodes()[0]).remove(0), ["10.99.0.7", "20.99.0.7"]);
    let name = "k8s-azure-lb_allow_IPv4_0123";
    let rule = json!({"id": format!("{group}/securityRules/{name}"), "name": name, "properties": {
        "access": "Allow", "direction": "Inbound", "protocol": "Tcp", "priority": 900, "sourceAddressPrefix": "Internet",
        "sourcePortRange": "*", "destinationAddressPrefixes": [machine, elsewhere[0], elsewhere[1]],
        "destinationPortRanges": ["30555"],
    }});
    assert!(cluster.azure().change_document(&group, |group| {
        group["properties"]["securityRules"].as_array_mut().unwrap().push(rule);
    }));
    let _life = cluster.start();
    tokio::time::sleep(10 * MINUTE).await;
    cluster.settle().await;
    // What leads to nobody of this cluster may be another one's.
    let own = cluster.addresses("web");
    let wanted = [(own[0].as_str(), "80"), (elsewhere[0], "30555"), (elsewhere[1], "30555")];
    assert_eq!(opened(&cluster), expected(&wanted));
}

/// It cannot be read any more, and goes on to be served as it was.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_refused_keeps_the_ports_that_its_rules_lead_to() {
    let (cluster, life) = cluster("nodeIPConfiguration").serving(&[at_machines("web", 30_080)]).await;
    life.kill();
    let before = opened(&cluster);
    cluster.change("web", |web| {
        *web = with(web.clone().node_port(30_081), "azure-load-balancer-tcp-idle-timeout", "never");
    });
    cluster.create(&external("other"));
    let _life = cluster.start();
    cluster.until_served("other", 10 * MINUTE).await;
    cluster.settle().await;
    let after = opened(&cluster);
    assert!(before.iter().all(|rule| after.contains(rule)), "{before:?} {after:?}");
}

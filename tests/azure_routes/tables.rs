//! Contents of the route table.

use std::net::IpAddr;

use cloud_controller_manager::{
    providers::azure::planner::routes::names,
    sandbox::azure::topology::{Pool, PoolKind, Topology},
};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::azure_routes::cluster::{Cluster, cidrs, pass, route};

/// Creates a cluster with so many Nodes.
fn cluster(nodes: u32) -> Cluster {
    Cluster::new(Topology::new().pool(Pool::new(PoolKind::Uniform, "pool1", nodes)))
}

#[tokio::test(start_paused = true)]
async fn a_created_table_has_configured_tags_and_keeps_foreign_ones() {
    let mut cluster = cluster(2);
    cluster.config["tags"] = json!("team=net");
    cluster.cloud.azure().delete_document(&cluster.table_id());
    cluster.join();
    let _replica = cluster.start();
    pass(60).await;
    cluster.assert_converged("created");
    let table = cluster.table();
    assert_eq!((&table["location"], &table["tags"]), (&json!("eastus"), &json!({"team": "net"})));
    assert_eq!(cluster.requests().0, 1, "table, tags and routes in one write");

    cluster.cloud.azure().change_document(&cluster.table_id(), |table| table["tags"] = json!({"own": "1"}));
    pass(600).await;
    assert_eq!(cluster.table()["tags"], json!({"own": "1", "team": "net"}));
    assert_eq!(cluster.requests().0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_changed_address_of_a_node_changes_its_route() {
    let cluster = cluster(3);
    let _replica = cluster.converge().await;
    let name = cluster.server.list::<Node>()[0].metadata.name.clone().unwrap();
    let address: IpAddr = "10.224.7.7".parse().unwrap();
    cluster.cloud.move_address(&name, address).unwrap();
    cluster.server.update_with("", &name, |node: &mut Node| {
        for current in node.status.iter_mut().flat_map(|status| status.addresses.iter_mut().flatten()) {
            if current.type_ == "InternalIP" {
                current.address = address.to_string();
            }
        }
    });
    cluster.requests();
    pass(5).await;
    cluster.assert_converged("moved");
    assert!(cluster.routes().values().any(|hop| hop == "10.224.7.7"));
    assert_eq!(cluster.requests().0, 1);
}

/// Single-stack programs named routes like their Nodes, and so may any other program.
#[tokio::test(start_paused = true)]
async fn a_foreign_route_keeps_its_name_that_equals_a_nodes_name() {
    let cluster = cluster(2);
    let nodes = cluster.cloud.nodes();
    let named = |at: usize| nodes[at].metadata.name.clone().unwrap();
    let theirs = route(&named(0), "192.168.0.0/16", "10.224.9.9");
    let own = route(&named(1), &cidrs(&nodes[1])[0], "10.224.0.5");
    cluster.cloud.azure().change_document(&cluster.table_id(), |table| {
        table["properties"]["routes"] = json!([theirs.clone(), own.clone()]);
    });
    cluster.join();
    let _replica = cluster.start();
    pass(30).await;
    let table = cluster.table();
    let routes = table["properties"]["routes"].as_array().unwrap();
    let names: Vec<_> = routes.iter().map(|route| route["name"].as_str().unwrap().to_owned()).collect();
    let full = |at: usize| names::route_name(&named(at), &cidrs(&nodes[at])[0]);
    assert_eq!(names, [named(0), full(1), full(0)], "{table:#}");
    assert_eq!(routes[0]["properties"]["addressPrefix"], "192.168.0.0/16");
}

#[tokio::test(start_paused = true)]
async fn no_route_is_written_without_a_table_in_the_configuration() {
    let mut cluster = cluster(1);
    cluster.config["routeTableName"] = json!("");
    cluster.join();
    let _replica = cluster.start();
    pass(30).await;
    assert_eq!(cluster.requests(), (0, 0));
    assert_eq!(cluster.unavailable("False").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_table_costs_no_other_node_its_route() {
    let cluster = Cluster::new(Topology::new().pools(PoolKind::Uniform, 5, 81));
    cluster.join();
    let _replica = cluster.start();
    pass(60).await;
    assert_eq!(
        (cluster.routes().len(), cluster.unavailable("False").len(), cluster.unavailable("True").len()),
        (400, 400, 5)
    );
    cluster.assert_truthful();
    assert!(cluster.requests().0 <= 3);
    assert!(cluster.warnings().iter().any(|warning| warning.contains("more than 400 routes")), "{:?}", cluster.warnings());
}

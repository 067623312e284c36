//! Requests to ARM for routes.

use std::time::Duration;

use cloud_controller_manager::{
    cloud_provider::{AddressType, NodeAddress, Route, RouteChanges, RouteOutcomes, Routes},
    sandbox::azure::topology::{PoolKind, Topology},
};
use k8s_openapi::api::core::v1::Node;

use crate::azure_routes::cluster::{Cluster, pass, slow};

#[tokio::test(start_paused = true)]
async fn a_hundred_nodes_are_replaced_by_a_hundred_others() {
    let cluster = Cluster::with_options(Topology::new().pools(PoolKind::Uniform, 2, 100), slow());
    let _replica = cluster.converge().await;
    let pool = cluster.cloud.topology().pools[0].name.clone();
    for removed in cluster.cloud.scale_in(&pool, 100).unwrap() {
        cluster.server.delete::<Node>("", &removed);
    }
    assert_eq!(cluster.cloud.scale_out(&pool, 100).unwrap().len(), 100);
    cluster.join();
    pass(60).await;
    cluster.assert_converged("replaced");
    let (writes, _) = cluster.requests();
    assert!((1..=3).contains(&writes), "{writes} writes");
}

#[tokio::test(start_paused = true)]
async fn steady_state_reads_the_table_only_when_the_cache_expires() {
    let cluster = Cluster::new(Topology::new().pools(PoolKind::Uniform, 1, 100).dual_stack());
    let replica = cluster.converge().await;
    pass(3600).await;
    let (writes, reads) = cluster.requests();
    // Full comparisons are five minutes apart, which is longer than the cache is valid.
    assert!(writes == 0 && (11..=13).contains(&reads), "{writes} writes, {reads} reads");
    cluster.assert_converged("an hour later");
    replica.stop().await;
}

#[tokio::test(start_paused = true)]
async fn single_calls_gather_while_a_write_is_in_flight() {
    let cluster = Cluster::with_options(Topology::new().pools(PoolKind::Uniform, 1, 50), slow());
    let routes = cluster.session().await.routes;
    let required = cluster.required_routes();
    let first = routes.create_route("", "", &required[0]);
    let others = async {
        pass(3).await;
        // Half of the calls run in one task, which is cancelled while it writes for all.
        let calls = |range: std::ops::Range<usize>| {
            required[range].iter().map(|route| routes.create_route("", "", route)).collect::<Vec<_>>()
        };
        let cancelled = tokio::time::timeout(Duration::from_secs(9), futures::future::join_all(calls(1..25)));
        let (cancelled, results) = tokio::join!(cancelled, futures::future::join_all(calls(25..50)));
        assert!(cancelled.is_err());
        results
    };
    let (first, others) = tokio::join!(first, others);
    assert_eq!(first, Ok(()));
    assert!(others.iter().all(Result::is_ok), "{others:?}");
    let (writes, _) = cluster.requests();
    assert!((2..=3).contains(&writes), "{writes} writes");
    assert!(cluster.routes().len() >= 26, "{}", cluster.routes().len());
    let listed = routes.list_routes("").await.unwrap();
    assert_eq!(listed.len(), cluster.routes().len());
    for route in &listed {
        assert_eq!(routes.delete_route("", route).await, Ok(()));
    }
    assert!(cluster.routes().is_empty());
}

/// A route is replaced when the address of a Node changes or differs from ARM's.
#[tokio::test(start_paused = true)]
async fn a_route_that_is_replaced_counts_as_deleted_and_as_created() {
    let cluster = Cluster::new(Topology::new().pools(PoolKind::Uniform, 1, 1));
    let routes = cluster.session().await.routes;
    let route = cluster.required_routes().remove(0);
    routes.create_route("", "", &route).await.unwrap();
    for hop in [None, Some("10.224.7.7")] {
        hop.iter().for_each(|hop| cluster.cloud.move_address(&route.target_node, hop.parse().unwrap()).unwrap());
        let node_addresses = hop.map(|hop| NodeAddress { type_: AddressType::InternalIP, address: hop.to_owned() });
        let required = Route { target_node_addresses: node_addresses.into_iter().collect(), ..route.clone() };
        let listed = routes.list_routes("").await.unwrap();
        cluster.requests();
        pass(1).await;
        let changes = RouteChanges { delete: listed, create: vec![(String::new(), required)] };
        let outcomes = routes.apply_routes("", &changes).await;
        assert_eq!(outcomes, RouteOutcomes { deleted: vec![Ok(())], created: vec![Ok(())] });
        assert_eq!(cluster.requests().0, usize::from(hop.is_some()), "{hop:?}");
        assert!(hop.is_none_or(|hop| cluster.routes().values().any(|next| next == hop)));
    }
}

#[tokio::test(start_paused = true)]
async fn each_route_is_counted_as_an_operation_of_its_node() {
    let cluster = Cluster::new(Topology::new().pools(PoolKind::Uniform, 1, 2));
    let (session, metrics) = cluster.counted_session().await;
    let route = cluster.required_routes().remove(0);
    session.routes.create_route("", "", &route).await.unwrap();
    let nowhere = Route { target_node: "nobody".into(), ..route.clone() };
    assert!(session.routes.create_route("", "", &nowhere).await.is_err());
    session.routes.delete_route("", &route).await.unwrap();
    let page = metrics.render().unwrap();
    let lines = |family: &str, request: &str, source: &str| {
        let labels = [format!("request=\"routes_{request}\""), format!("source=\"{source}\"")];
        let is_it = |line: &&str| line.contains(family) && labels.iter().all(|label| line.contains(label.as_str()));
        page.lines().filter(is_it).filter_map(|line| line.rsplit(' ').next()).collect::<Vec<_>>()
    };
    let duration = "cloudprovider_azure_op_duration_seconds_count";
    assert_eq!(lines(duration, "create_route", &route.target_node), ["1"]);
    assert_eq!(lines(duration, "delete_route", &route.target_node), ["1"]);
    assert_eq!(lines("cloudprovider_azure_op_failure_count", "create_route", "nobody"), ["1"]);
    assert!(lines("cloudprovider_azure_op_failure_count", "create_route", &route.target_node).is_empty());
}

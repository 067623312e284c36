//! Crashes, faults and external changes: the final route table is the same.

use std::{collections::BTreeMap, time::Duration};

use cloud_controller_manager::{
    cloud_provider::{RouteChanges, Routes},
    sandbox::azure::{
        AzureOptions, Class, Crash, Effect, Fault,
        topology::{Pool, PoolKind, Topology},
    },
};
use k8s_openapi::api::core::v1::Node;

use crate::azure_routes::{
    cluster::{Cluster, pass, route, slow},
    seeds,
};

/// Creates a dual-stack cluster with machines of two kinds.
fn cluster(seed: u64) -> Cluster {
    let topology = Topology::new()
        .pool(Pool::new(PoolKind::Uniform, "pool1", 4))
        .pool(Pool::new(PoolKind::AvailabilitySet, "as1", 2).in_group("elsewhere"))
        .dual_stack();
    Cluster::with_options(topology, AzureOptions { seed, ..AzureOptions::default() })
}

/// Removes some Nodes and adds others.
fn churn(cluster: &Cluster) {
    for removed in cluster.cloud.scale_in("pool1", 2).unwrap() {
        cluster.server.delete::<Node>("", &removed);
    }
    cluster.cloud.scale_out("pool1", 3).unwrap();
    cluster.join();
}

/// Returns the routes after an undisturbed run.
async fn undisturbed() -> BTreeMap<String, String> {
    let cluster = cluster(0);
    let _replica = cluster.converge().await;
    churn(&cluster);
    pass(30).await;
    cluster.assert_converged("undisturbed");
    cluster.routes()
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_request_leaves_the_same_table() {
    let expected = undisturbed().await;
    for crash in [Crash::Before, Crash::After] {
        let mut crashes = 0;
        for at_churn in [false, true] {
            for nth in 1.. {
                let cluster = cluster(0);
                cluster.join();
                if at_churn {
                    cluster.converge().await.stop().await;
                }
                cluster.cloud.azure().faults().crash_at(nth, crash);
                let replica = cluster.start();
                churn(&cluster);
                pass(20).await;
                cluster.assert_truthful();
                // The crashed process sends no more requests.
                let has_crashed = cluster.cloud.azure().faults().has_crashed();
                replica.stop().await;
                cluster.cloud.azure().faults().clear();
                let _replica = cluster.start();
                pass(60).await;
                let when = format!("{crash:?} request {nth}");
                cluster.assert_converged(&when);
                assert_eq!(cluster.routes(), expected, "{when}");
                if !has_crashed {
                    break;
                }
                crashes += 1;
            }
        }
        assert!(crashes >= 8, "{crash:?}: {crashes} crashes");
    }
}

/// Adds all kinds of faults of the simulator, together for a fifth of all requests.
fn storm(cluster: &Cluster) {
    let refused = |status, code: &str, wait| Effect::Refuse(status, code.to_owned(), wait);
    let effects = [
        refused(400, "InvalidRequestFormat", None),
        refused(403, "AuthorizationFailed", None),
        refused(404, "ResourceGroupNotFound", None),
        refused(409, "AnotherOperationInProgress", None),
        refused(412, "PreconditionFailed", None),
        refused(429, "RetryableErrorDueToAnotherOperation", Some(2)),
        refused(500, "InternalServerError", None),
        refused(503, "ServerUnavailable", Some(1)),
        Effect::NoConnection,
        Effect::DropBefore,
        Effect::DropAfter,
        Effect::Garbage,
        Effect::EmptyList,
        Effect::Truncated,
        Effect::Hang,
        Effect::FailOperation("InternalServerError".to_owned(), "no luck".to_owned()),
        Effect::Delay(Duration::from_secs(7)),
    ];
    let share = 0.2 / effects.len() as f64;
    for effect in effects {
        for class in [Class::Read, Class::Write, Class::Poll] {
            cluster.cloud.azure().add_fault(Fault::new(effect.clone()).class(class).with_probability(share));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_faults_leaves_the_same_table() {
    let expected = undisturbed().await;
    for seed in seeds::printed(0..12) {
        let cluster = cluster(seed);
        cluster.join();
        storm(&cluster);
        let replica = cluster.start();
        pass(120).await;
        churn(&cluster);
        for _ in 0..20 {
            pass(30).await;
            cluster.assert_truthful();
        }
        cluster.cloud.azure().faults().clear();
        pass(900).await;
        cluster.assert_converged(&format!("seed {seed}"));
        assert_eq!(cluster.routes(), expected, "seed {seed}");
        assert_eq!(cluster.drifted(), Vec::<String>::new(), "faults are not drift: seed {seed}");
        replica.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_response_is_checked_by_a_read_before_the_next_write() {
    let cluster = cluster(0);
    cluster.join();
    cluster.add_fault_of_writes(Fault::new(Effect::DropAfter).times(1));
    let _replica = cluster.start();
    pass(60).await;
    cluster.assert_converged("the response was lost");
    let (writes, reads) = cluster.requests();
    assert!(writes == 1 && reads >= 2, "{writes} writes, {reads} reads");
}

#[tokio::test(start_paused = true)]
async fn a_table_changed_by_another_writer_is_read_again_at_once() {
    let cluster = cluster(0);
    let _replica = cluster.converge().await;
    let mut table = cluster.table();
    table["properties"]["routes"].as_array_mut().unwrap().push(route("to-firewall", "0.0.0.0/0", "10.0.0.4"));
    cluster.cloud.azure().put_document(table).unwrap();
    cluster.requests();
    churn(&cluster);
    pass(5).await;
    let (writes, reads) = cluster.requests();
    assert_eq!((writes, reads), (2, 2), "one with the old etag, one with the new, and what its operation made of the table");
    let mut routes = cluster.routes();
    assert_eq!(routes.remove("0.0.0.0/0").as_deref(), Some("10.0.0.4"));
    assert_eq!(routes, cluster.expected_routes());
}

#[tokio::test(start_paused = true)]
async fn a_route_that_arm_rejects_does_not_block_other_routes() {
    let cluster = Cluster::new(Topology::new().pools(PoolKind::Uniform, 1, 4));
    // Initialized, so no change of a Node triggers an earlier reconcile.
    cluster.cloud.nodes().iter().for_each(|node| drop(cluster.server.create::<Node>(node)));
    // The writes with all four routes, the first two, and the first one.
    cluster.add_fault_of_writes(Fault::refuse(400, "InvalidRequestFormat").times(3));
    let _replica = cluster.start();
    pass(12).await;
    assert_eq!((cluster.unavailable("False").len(), cluster.unavailable("True").len()), (3, 1));
    cluster.assert_truthful();
    assert_eq!(cluster.requests().0, 5, "4, 2, 1, 1, 2");
    let warnings = cluster.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("InvalidRequestFormat"), "{warnings:?}");
    pass(20).await;
    cluster.assert_converged("retried after 15 s");
    assert_eq!(cluster.requests().0, 1);
}

/// Rejected routes are retried one by one, and there are more of them than a batch may retry.
#[tokio::test(start_paused = true)]
async fn routes_reported_as_created_exist_after_rejections() {
    let cluster = Cluster::new(Topology::new().pools(PoolKind::Uniform, 1, 60));
    let routes = cluster.session().await.routes;
    let create = cluster.required_routes().into_iter().map(|route| (String::new(), route)).collect();
    let changes = RouteChanges { create, ..RouteChanges::default() };
    cluster.add_fault_of_writes(Fault::refuse(400, "InvalidRequestFormat"));
    for _ in 0..5 {
        assert!(routes.apply_routes("", &changes).await.created.iter().all(Result::is_err));
    }
    cluster.cloud.azure().faults().clear();
    for _ in 0..2 {
        let created = routes.apply_routes("", &changes).await.created;
        assert_eq!(created.iter().filter(|result| result.is_ok()).count(), cluster.routes().len());
    }
    assert_eq!(cluster.routes().len(), 60);
}

/// A Node is deleted and registers again with another pod CIDR while its route is being written.
#[tokio::test(start_paused = true)]
async fn a_route_of_a_former_node_does_not_count_for_its_successor() {
    let cluster = Cluster::with_options(Topology::new().pools(PoolKind::Uniform, 1, 2), slow());
    cluster.join();
    let _replica = cluster.start();
    pass(5).await;
    let mut node = cluster.cloud.uninitialized_nodes().remove(0);
    let name = node.metadata.name.clone().unwrap();
    cluster.server.delete::<Node>("", &name);
    let spec = node.spec.as_mut().unwrap();
    (spec.pod_cidr, spec.pod_cidrs) = (Some("100.64.77.0/24".into()), Some(vec!["100.64.77.0/24".into()]));
    cluster.server.create::<Node>(&node);
    // The next write takes effect after a delay.
    cluster.add_fault_of_writes(Fault::new(Effect::Delay(Duration::from_secs(10))).times(1));
    for _ in 0..60 {
        pass(1).await;
        cluster.assert_truthful();
    }
    cluster.assert_converged("registered again");
}

/// Only the table's own 404 proves that there is no table, and no list of machines removes a route.
#[tokio::test(start_paused = true)]
async fn false_lists_and_missing_groups_remove_no_routes() {
    let group = |path: &str| Fault::refuse(404, "ResourceGroupNotFound").method("GET").path(path);
    let lists = ["virtualMachineScaleSets", "virtualMachines", "networkInterfaces"].map(|kind| format!("*/{kind}"));
    let empty = lists.iter().map(|path| Fault::new(Effect::EmptyList).path(path));
    let failed = lists.iter().map(String::as_str).chain(["*/routeTables/*"]).map(group);
    let expected = undisturbed().await;
    for (fault, restarted) in empty.chain(failed).flat_map(|fault| [(fault.clone(), false), (fault, true)]) {
        let cluster = cluster(0);
        let mut replica = cluster.converge().await;
        let before = cluster.routes();
        if restarted {
            replica.stop().await;
            replica = cluster.start();
        }
        let when = format!("{fault:?}, restarted: {restarted}");
        cluster.cloud.azure().add_fault(fault);
        for _ in 0..10 {
            pass(60).await;
            let now = cluster.routes();
            assert!(before.iter().all(|(name, hop)| now.get(name) == Some(hop)), "{when}: {now:?}");
        }
        cluster.cloud.azure().faults().clear();
        churn(&cluster);
        pass(60).await;
        cluster.assert_converged(&when);
        assert_eq!(cluster.routes(), expected, "{when}");
        replica.stop().await;
    }
}

/// Nodes are added and removed for an hour, which is not reported as drift. Then another writer deletes a route, changes one and adds one:
/// each change is reported once, counted and reverted.
#[tokio::test(start_paused = true)]
async fn external_route_changes_are_reported_counted_and_reverted() {
    let cluster = Cluster::new(Topology::new().pool(Pool::new(PoolKind::Uniform, "pool1", 4)));
    cluster.join();
    let replica = cluster.start();
    for _ in 0..3 {
        pass(1200).await;
        churn(&cluster);
    }
    pass(600).await;
    cluster.assert_converged("before");
    assert_eq!(cluster.drifted(), Vec::<String>::new());
    let mut table = cluster.table();
    let routes = table["properties"]["routes"].as_array_mut().unwrap();
    let deleted_route = routes.remove(0);
    routes[1]["properties"]["nextHopIpAddress"] = routes[0]["properties"]["nextHopIpAddress"].clone();
    routes.push(route("nobody____1006420024", "100.64.200.0/24", "10.0.0.9"));
    cluster.cloud.azure().put_document(table).unwrap();
    cluster.requests();
    pass(900).await;
    cluster.assert_converged("reverted");
    assert_eq!(cluster.requests().0, 1, "one write for all");
    for change in ["deleted", "changed", "added"] {
        let counted = replica.metrics.route_drift_total.with_label_values(&[change]).get();
        assert!((counted - 1.0).abs() < f64::EPSILON, "{change}: {counted}");
    }
    let messages = cluster.drifted();
    assert_eq!(messages.len(), 2, "the added route has no Node for an event: {messages:?}");
    let cidr = deleted_route["properties"]["addressPrefix"].as_str().unwrap();
    let deleted = format!("another writer deleted route for {cidr} of Node ");
    assert!(messages.iter().any(|message| message.starts_with(&deleted)), "{messages:?}");
    let is_whole =
        |message: &String| message.contains(" between 2026-01-01T01:") && message.ends_with("Z; the change is reverted now");
    assert!(messages.iter().all(is_whole), "{messages:?}");
}

//! Plans for Nodes, for a page and for the whole cluster.

use std::collections::BTreeSet;

use cloud_controller_manager::{cloud_provider::WritePlan, controllers::ServiceScope};

use super::*;

fn unread(plan: &WritePlan) -> Vec<&str> {
    plan.unread.iter().map(String::as_str).collect()
}

/// During an outage, each Node that is not ready may cost a request.
#[tokio::test(start_paused = true)]
async fn a_page_reads_a_hundred_nodes_and_counts_the_rest() {
    let server = server();
    let names: Vec<_> = (0..150).map(|number| format!("n{number:03}")).collect();
    let cloud = cloud(&names.iter().map(String::as_str).collect::<Vec<_>>());
    names.iter().for_each(|name| drop(server.create(&plain(name, "Unknown"))));
    let cluster = Cluster::start(server, cloud).await;
    cluster.shutdown.begin();
    pass(60).await;
    let lookups = || cluster.cloud.call_count(CallName::InstanceExists);
    for (scope, expected, omitted) in
        [(ServiceScope::Only(BTreeSet::new()), 100, "50 more Nodes "), (ServiceScope::All, 150, "")]
    {
        let before = lookups();
        let lifecycle = cluster.lifecycle.plan(&scope).await.unwrap();
        assert_eq!(lookups() - before, expected, "{scope:?}");
        for plan in [lifecycle, cluster.node.plan(&scope).await.unwrap()] {
            assert_eq!(plan.unread.len(), usize::from(!omitted.is_empty()), "{scope:?}: {:?}", unread(&plan));
            assert!(unread(&plan).iter().all(|line| line.starts_with(omitted)), "{:?}", unread(&plan));
        }
    }
}

/// Lists of the cloud contain the instances of ready Nodes.
#[tokio::test(start_paused = true)]
async fn a_page_plans_for_all_ready_nodes() {
    let server = server();
    let names: Vec<_> = (0..150).map(|number| format!("n{number:03}")).collect();
    let cloud = cloud(&names.iter().map(String::as_str).collect::<Vec<_>>());
    names.iter().for_each(|name| drop(server.create(&plain(name, "True"))));
    let (_election, leadership) = Leadership::channel();
    let cluster = Cluster::start_as(server, cloud, leadership).await;
    let plan = cluster.node.plan(&ServiceScope::Only(BTreeSet::new())).await.unwrap();
    let addresses = plan.writes.iter().filter(|write| write.to_string().contains("/status: "));
    assert_eq!((addresses.count(), unread(&plan)), (150, Vec::new()));
}

//! Fallback members of an entry without Nodes of its own, until its first own Node is ready.

use std::collections::BTreeSet;

use cloud_controller_manager::sandbox::{
    azure::{
        AzureOptions,
        topology::{PoolKind, Topology},
    },
    objects::NodeExt,
};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, MINUTE},
    services::{external, internal, with},
    several::{CONFIGURATIONS, configured, entry, members},
};

/// Creates a cluster in which the Nodes of scale set `missing` are not registered yet.
fn cluster(sets: u32, entries: Value, missing: &str) -> Cluster {
    let topology = Topology::new().pools(PoolKind::Uniform, sets, 2);
    let cluster = configured(Cluster::new(topology, AzureOptions::default()), entries);
    let absent = names(&cluster).into_iter().filter(|name| name.contains(missing));
    absent.for_each(|name| assert!(cluster.server.delete::<Node>("", &name)));
    cluster
}

fn names(cluster: &Cluster) -> BTreeSet<String> {
    cluster.server.list::<Node>().into_iter().filter_map(|node| node.metadata.name).collect()
}

/// Registers the first node of a scale set, and returns its name.
fn register(cluster: &Cluster, set: &str, ready: &str) -> String {
    let mut nodes = cluster.cloud.nodes().into_iter();
    let node = nodes.find(|node| node.metadata.name.as_ref().is_some_and(|name| name.contains(set))).unwrap();
    cluster.server.create(&node.condition("Ready", ready, "Test")).metadata.name.unwrap()
}

#[tokio::test(start_paused = true)]
async fn fallback_members_remain_until_the_first_own_node_is_ready() {
    let entries = json!([entry("kubernetes", 1), entry("lb2", 2), {"name": "lb3", "primaryVMSet": "none"}]);
    let cluster = cluster(3, entries, "pool3");
    for (service, name) in [(external("a"), "kubernetes"), (external("b"), "lb2"), (internal("c"), "lb3")] {
        cluster.create(&with(service, CONFIGURATIONS, name));
    }
    cluster.serve_and_settle(&[]).await.stop().await;
    let fallback_members = names(&cluster);
    assert_eq!(members(&cluster)["lb3-internal"], fallback_members);
    let before = members(&cluster)["kubernetes"].clone();
    let manager = cluster.serve_and_settle(&[]).await;
    let new = register(&cluster, "pool3", "False");
    let joined = |cluster: &Cluster| members(cluster)["lb3-internal"].contains(&new);
    cluster.until("the new node joins", MINUTE, joined).await;
    tokio::time::sleep(10 * MINUTE).await;
    let all: BTreeSet<String> = fallback_members.iter().chain([&new]).cloned().collect();
    assert_eq!(members(&cluster)["lb3-internal"], all, "it is not ready");
    cluster.server.update_with("", &new, |node: &mut Node| *node = node.clone().condition("Ready", "True", "Test"));
    let own = BTreeSet::from([new.clone()]);
    cluster.until("the stand-ins leave", 3 * MINUTE, |cluster| members(cluster)["lb3-internal"] == own).await;
    assert_eq!(members(&cluster)["kubernetes"], before);
    // When the own Node is no longer ready, the fallback members do not return.
    cluster.server.update_with("", &new, |node: &mut Node| *node = node.clone().condition("Ready", "False", "Test"));
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(members(&cluster)["lb3-internal"], own);
    manager.stop().await;
    cluster.assert_plans_nothing("with a node of its own").await;
}

#[tokio::test(start_paused = true)]
async fn a_set_that_grows_from_zero_takes_over_in_a_later_sync() {
    let cluster = cluster(2, json!([entry("kubernetes", 1), entry("lb2", 2)]), "pool1");
    for (name, entry_name) in [("a", "kubernetes"), ("b", "lb2")] {
        cluster.create(&with(external(name), CONFIGURATIONS, entry_name));
    }
    let _manager = cluster.serve_and_settle(&[]).await;
    let fallback_members = names(&cluster);
    assert_eq!(members(&cluster)["kubernetes"], fallback_members);
    let new = register(&cluster, "pool1", "True");
    let both = fallback_members.iter().chain([&new]).cloned().collect();
    cluster.until("it joins them", MINUTE, |cluster| members(cluster)["kubernetes"] == both).await;
    let own = BTreeSet::from([new]);
    let took = cluster.until("they leave", 3 * MINUTE, |cluster| members(cluster)["kubernetes"] == own).await;
    assert!(took > MINUTE / 2, "health probes need a while: {took:?}");
    assert_eq!(members(&cluster)["lb2"], fallback_members);
}

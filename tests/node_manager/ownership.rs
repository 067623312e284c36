//! Nodes that are not Azure's, in both modes.

use super::*;

const FOREIGN_ID: &str = "metal3://rack1/9";

/// Changes a Node that is named like a machine of the cloud to one that the kubelet of another cloud registers.
fn foreign(mut node: Node) -> Node {
    if node.metadata.name.as_deref() == Some(NODE) {
        node.spec.get_or_insert_default().provider_id = Some(FOREIGN_ID.to_owned());
    }
    node
}

fn unmanaged(mut node: Node) -> Node {
    node.metadata.labels.get_or_insert_default().insert("kubernetes.azure.com/managed".to_owned(), "false".to_owned());
    node
}

fn writes_to_node(cluster: &Cluster) -> usize {
    cluster.node_writes().iter().filter(|(_, name)| name == NODE).count()
}

#[tokio::test(start_paused = true)]
async fn nodes_of_other_clouds_are_left_alone() {
    let cluster = Cluster::new(Topology::new().pool(Pool::new(PoolKind::Uniform, "pool1", 3)));
    cluster.manage_centrally().await;
    cluster.manage(NODE, SETTINGS);
    cluster.register(foreign);
    let others = |server: &ApiServer| {
        let own = |node: &Node| node.metadata.name.as_deref() != Some(NODE);
        server.list::<Node>().iter().filter(|node| own(node)).all(|node| !taints::is_uninitialized(node))
    };
    cluster.until("the other nodes are initialized", others).await;
    tokio::time::sleep(PERIOD * 4).await;
    assert_eq!(writes_to_node(&cluster), 0);
    assert!(taints::is_uninitialized(&cluster.node(NODE)));
    let events = cluster.events(NODE);
    assert_eq!(events.iter().map(|(reason, _)| reason.as_str()).collect::<Vec<_>>(), ["NodeOfAnotherCloud"], "{events:?}");
    assert!(events[0].1.contains(FOREIGN_ID), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn unmanaged_node_needs_only_its_label() {
    for is_central in [true, false] {
        let cluster = Cluster::new(Topology::new().pool(Pool::new(PoolKind::Uniform, "pool1", 1)));
        match is_central {
            true => cluster.manage_centrally().await,
            false => cluster.names().iter().for_each(|name| drop(cluster.manage(name, SETTINGS))),
        }
        cluster.register(unmanaged);
        cluster.until_initialized().await;
        let node = &cluster.server.list::<Node>()[0];
        assert_eq!(cloud_controller_manager::node::provider_id(node), None);
        assert!(!node.metadata.labels.as_ref().unwrap().contains_key("topology.kubernetes.io/zone"));
    }
}

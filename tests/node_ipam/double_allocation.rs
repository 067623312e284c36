//! No CIDR twice: patches that come late, and leaders that wait for those of the former one.

use cloud_controller_manager::sandbox::{api_server::RequestRecord, http::Verb};
use k8s_openapi::api::core::v1::Node;

use super::world::*;

fn node_patches(request: &RequestRecord) -> bool {
    request.resource == "nodes" && request.verb == Verb::Patch
}

/// No other controller runs.
const ALONE: &[&str] = &["--cluster-cidr=10.244.0.0/19", "--configure-cloud-routes=false", "--controllers=node-ipam"];

/// A patch that was sent long ago on this version.
async fn give(cluster: &Cluster, name: &str, cidr: &str, version: &str) {
    let late = serde_json::json!({
        "metadata": {"resourceVersion": version},
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
    });
    let nodes: kube::Api<Node> = kube::Api::all(cluster.server.client());
    nodes.patch(name, &kube::api::PatchParams::default(), &kube::api::Patch::Merge(late)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_late_patch_of_the_former_leader_is_waited_for() {
    let cluster = Cluster::new();
    let first = cluster.campaign(ALONE);
    cluster.join("before", Taint::None);
    cluster.until_all_have_cidrs(1).await;
    first.kill();
    cluster.join("a", Taint::None);
    let version = cluster.server.get::<Node>("", "a").unwrap().metadata.resource_version.unwrap();
    cluster.campaign(ALONE);
    // It leads after 15 s or so.
    pass(30).await;
    cluster.join("b", Taint::None);
    pass(15).await;
    assert!(cluster.cidr("a").is_none() && cluster.cidr("b").is_none(), "the first leader's patches may be under way");
    give(&cluster, "a", "10.244.1.0/24", &version).await;
    cluster.until_all_have_cidrs(1).await;
    assert_eq!(cluster.cidr("a").as_deref(), Some("10.244.1.0/24"));
}

/// Silence at first, then a refusal: what was sent at first may be carried out much later.
#[tokio::test(start_paused = true)]
async fn a_patch_that_comes_late_takes_no_block_of_another_node() {
    for refusal in [403, 422, 429] {
        let cluster = Cluster::new();
        // There is one block.
        cluster.start(&["--cluster-cidr=10.244.0.0/24", "--configure-cloud-routes=false", "--controllers=node-ipam"]);
        pass(5).await;
        let of_a = |request: &RequestRecord| node_patches(request) && request.name == "a";
        cluster.server.faults().fail_next(1, 504, of_a);
        cluster.server.faults().fail_every(refusal, of_a);
        cluster.join("a", Taint::None);
        let version = cluster.server.get::<Node>("", "a").unwrap().metadata.resource_version.unwrap();
        pass(20).await;
        cluster.join("b", Taint::None);
        pass(300).await;
        cluster.server.faults().clear();
        give(&cluster, "a", "10.244.0.0/24", &version).await;
        pass(300).await;
        cluster.assert_disjoint();
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_released_its_lease_is_waited_for_where_a_node_is_without() {
    for joins_before in [true, false] {
        let cluster = Cluster::new();
        let first = cluster.campaign(ALONE);
        cluster.join("before", Taint::None);
        cluster.until_all_have_cidrs(1).await;
        first.stop();
        pass(5).await;
        if joins_before {
            cluster.join("a", Taint::None);
        }
        cluster.campaign(ALONE);
        pass(5).await;
        if !joins_before {
            cluster.join("a", Taint::None);
        }
        pass(10).await;
        assert_eq!(cluster.cidr("a").is_none(), joins_before, "a patch that it did not wait for may be under way");
        pass(60).await;
        assert!(cluster.cidr("a").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_leader_of_a_cluster_waits_for_nobody() {
    let cluster = Cluster::new();
    cluster.join("a", Taint::None);
    cluster.campaign(ALONE);
    pass(10).await;
    assert!(cluster.cidr("a").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_changes_is_waited_for_no_longer() {
    let cluster = Cluster::new();
    let first = cluster.campaign(ALONE);
    pass(5).await;
    first.kill();
    cluster.join("a", Taint::None);
    cluster.campaign(ALONE);
    pass(30).await;
    assert!(cluster.cidr("a").is_none());
    cluster.label("a", "changed");
    pass(5).await;
    assert!(cluster.cidr("a").is_some(), "a patch on its former version is a conflict");
}

#[tokio::test(start_paused = true)]
async fn cidrs_that_others_give_are_respected() {
    let cluster = Cluster::new();
    cluster.start(ALONE);
    cluster.join("a", Taint::None);
    cluster.until_all_have_cidrs(1).await;
    cluster.server.faults().stall_watches();
    let foreign = serde_json::json!({
        "metadata": {"name": "foreign"},
        "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]},
    });
    cluster.server.create::<Node>(&serde_json::from_value(foreign).unwrap());
    pass(200).await;
    cluster.join("b", Taint::None);
    cluster.until_all_have_cidrs(1).await;
}

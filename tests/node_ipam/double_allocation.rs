//! No CIDR is assigned twice: late patches, and leaders that wait for patches of the former leader.

use cloud_controller_manager::sandbox::{api_server::RequestRecord, http::Verb};
use k8s_openapi::api::core::v1::Node;

use super::cluster::*;

fn node_patches(request: &RequestRecord) -> bool {
    request.resource == "nodes" && request.verb == Verb::Patch
}

/// Flags under which no other controller runs.
const ALONE: &[&str] = &["--cluster-cidr=10.244.0.0/19", "--configure-cloud-routes=false", "--controllers=node-ipam"];

/// Sends a patch that is bound to an old version of the Node, as if it had been on its way for long.
async fn send_late_patch(cluster: &Cluster, name: &str, cidr: &str, version: &str) {
    let late = serde_json::json!({
        "metadata": {"resourceVersion": version},
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
    });
    let nodes: kube::Api<Node> = kube::Api::all(cluster.server.client());
    nodes.patch(name, &kube::api::PatchParams::default(), &kube::api::Patch::Merge(late)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn new_leader_waits_for_late_patches_of_the_former_one() {
    let cluster = Cluster::new();
    let first = cluster.start_candidate(ALONE);
    cluster.join("before", Taint::None);
    cluster.until_all_have_cidrs(1).await;
    first.kill();
    cluster.join("a", Taint::None);
    let version = cluster.server.get::<Node>("", "a").unwrap().metadata.resource_version.unwrap();
    cluster.start_candidate(ALONE);
    // It leads after about 15 s.
    pass(30).await;
    cluster.join("b", Taint::None);
    pass(15).await;
    assert!(cluster.cidr("a").is_none() && cluster.cidr("b").is_none(), "patches of the first leader may be in flight");
    send_late_patch(&cluster, "a", "10.244.1.0/24", &version).await;
    cluster.until_all_have_cidrs(1).await;
    assert_eq!(cluster.cidr("a").as_deref(), Some("10.244.1.0/24"));
}

/// The first patch gets no response, the following ones are rejected. The first may still be executed much later.
#[tokio::test(start_paused = true)]
async fn late_patch_never_gets_the_block_of_another_node() {
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
        send_late_patch(&cluster, "a", "10.244.0.0/24", &version).await;
        pass(300).await;
        cluster.assert_disjoint();
    }
}

#[tokio::test(start_paused = true)]
async fn released_lease_delays_only_nodes_that_joined_before() {
    for joins_before in [true, false] {
        let cluster = Cluster::new();
        let first = cluster.start_candidate(ALONE);
        cluster.join("before", Taint::None);
        cluster.until_all_have_cidrs(1).await;
        first.stop();
        pass(5).await;
        if joins_before {
            cluster.join("a", Taint::None);
        }
        cluster.start_candidate(ALONE);
        pass(5).await;
        if !joins_before {
            cluster.join("a", Taint::None);
        }
        pass(10).await;
        assert_eq!(cluster.cidr("a").is_none(), joins_before, "a patch from before the release may be in flight");
        pass(60).await;
        assert!(cluster.cidr("a").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn first_leader_of_a_cluster_allocates_immediately() {
    let cluster = Cluster::new();
    cluster.join("a", Taint::None);
    cluster.start_candidate(ALONE);
    pass(10).await;
    assert!(cluster.cidr("a").is_some());
}

#[tokio::test(start_paused = true)]
async fn changed_node_ends_the_wait_for_late_patches() {
    let cluster = Cluster::new();
    let first = cluster.start_candidate(ALONE);
    pass(5).await;
    first.kill();
    cluster.join("a", Taint::None);
    cluster.start_candidate(ALONE);
    pass(30).await;
    assert!(cluster.cidr("a").is_none());
    cluster.label("a", "changed");
    pass(5).await;
    assert!(cluster.cidr("a").is_some(), "a patch on its former version is a conflict");
}

#[tokio::test(start_paused = true)]
async fn cidrs_of_another_allocator_are_respected() {
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

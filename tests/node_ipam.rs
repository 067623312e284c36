//! Pod CIDRs: the whole manager over the in-memory API server and the fake cloud. Paused clock.
#![expect(clippy::unwrap_used, reason = "a test panics if its setup fails")]

#[path = "node_ipam/crashes.rs"]
mod crashes;
#[path = "node_ipam/double_allocation.rs"]
mod double_allocation;
use crate::mortal;
use crate::seeds;
#[path = "node_ipam/cluster.rs"]
mod cluster;

use std::collections::BTreeSet;

use cloud_controller_manager::{
    cloud_provider::PodCidrMaskSizes,
    sandbox::{
        api_server::RequestRecord,
        http::Verb,
        objects::{NodeExt, uninitialized_node},
    },
};
use cluster::*;
use k8s_openapi::api::core::v1::Event;

fn patches(request: &RequestRecord) -> bool {
    request.resource == "nodes" && request.verb == Verb::Patch
}

#[tokio::test(start_paused = true)]
async fn initializing_patch_includes_the_pod_cidrs() {
    let cluster = Cluster::new();
    (0..20).for_each(|index| cluster.join(&format!("n{index}"), Taint::Uninitialized));
    cluster.start(&["--cluster-cidr=10.244.0.0/16,fd00:10::/48"]);
    cluster.until_all_have_cidrs(2).await;
    cluster.until(|cluster| cluster.cloud.routes().len() == 40, "routed").await;
    let writes = cluster.server.requests().into_iter().filter(|request| patches(request) && request.subresource.is_empty());
    assert_eq!(writes.count(), 20, "one for each Node: taint, provider id, labels and pod CIDRs");
    let expected: BTreeSet<_> = (0..20).map(|block| format!("10.244.{block}.0/24")).collect();
    assert_eq!(cluster.cidrs().iter().map(|cidrs| cidrs[0].clone()).collect::<BTreeSet<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn nodes_initialized_elsewhere_get_a_separate_patch() {
    let all: &[(&str, Taint)] = &[("new", Taint::Uninitialized), ("old", Taint::None)];
    for (controllers, has_machines, nodes) in [("*,-cloud-node", true, all), ("*", false, &all[..1])] {
        let cluster = Cluster::new();
        if !has_machines {
            cluster.cloud.configure(|config| config.any_instance = None);
        }
        cluster.start(&["--cluster-cidr=10.244.0.0/16", &format!("--controllers={controllers}")]);
        nodes.iter().for_each(|(name, taint)| cluster.join(name, *taint));
        cluster.until_all_have_cidrs(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_flag_no_node_gets_a_pod_cidr() {
    let cluster = Cluster::new();
    cluster.start_without(&["--cluster-cidr=10.244.0.0/16"]);
    cluster.join("n", Taint::Uninitialized);
    pass(300).await;
    assert_eq!(cluster.cidrs(), vec![Vec::<String>::new()]);
}

#[tokio::test(start_paused = true)]
async fn exhausted_range_is_reported_and_freed_blocks_are_reused() {
    let cluster = Cluster::new();
    cluster.start(&["--cluster-cidr=10.244.0.0/22", "--service-cluster-ip-range=10.244.1.0/24"]);
    for name in ["a", "b", "c"] {
        cluster.join(name, Taint::Uninitialized);
        cluster.until(|cluster| cluster.cidr(name).is_some(), "given a CIDR").await;
    }
    assert_eq!(cluster.allocated(), ["10.244.0.0/24", "10.244.2.0/24", "10.244.3.0/24"]);
    cluster.join("d", Taint::Uninitialized);
    cluster.until(|cluster| cluster.events("d").contains(&"CIDRNotAvailable".to_owned()), "reported").await;
    assert_eq!(cluster.cidr("d"), None);
    let free = cluster.cidr("b").unwrap();
    cluster.server.delete::<k8s_openapi::api::core::v1::Node>("", "b");
    cluster.until(|cluster| cluster.cidr("d").as_ref() == Some(&free), "given the block of b").await;
    let events: Vec<Event> = cluster.server.list();
    let event = events.iter().find(|event| event.reason.as_deref() == Some("CIDRNotAvailable")).unwrap();
    assert_eq!(event.message.as_deref(), Some("Node d status is now: CIDRNotAvailable"));
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    assert_eq!(event.source.as_ref().unwrap().component.as_deref(), Some("cidrAllocator"));
}

#[tokio::test(start_paused = true)]
async fn restart_keeps_the_pod_cidrs_of_nodes() {
    let cluster = Cluster::new();
    let first = cluster.start(&["--cluster-cidr=10.244.0.0/16"]);
    (0..5).for_each(|index| cluster.join(&format!("a{index}"), Taint::Uninitialized));
    cluster.until_all_have_cidrs(1).await;
    let before = cluster.allocated();
    first.kill();
    (0..5).for_each(|index| cluster.join(&format!("b{index}"), Taint::Uninitialized));
    cluster.start(&["--cluster-cidr=10.244.0.0/16"]);
    cluster.until_all_have_cidrs(1).await;
    assert_eq!(cluster.allocated().len(), 10);
    assert!(before.iter().all(|cidr| cluster.allocated().contains(cidr)));
}

#[tokio::test(start_paused = true)]
async fn rejected_pod_cidrs_do_not_block_initialization() {
    let cluster = Cluster::new();
    // The first patch of the object sets pod CIDRs. A fault cannot match the body of a request, so it is selected by order.
    cluster.start(&["--cluster-cidr=10.244.0.0/16"]);
    pass(5).await;
    let is_object = |request: &RequestRecord| patches(request) && request.subresource.is_empty();
    cluster.server.faults().fail_next(1, 422, is_object);
    cluster.server.faults().fail_every(422, move |request| is_object(request) && request.user_agent.contains("ipam"));
    cluster.join("n", Taint::Uninitialized);
    cluster.until(|cluster| cluster.is_initialized("n"), "initialized").await;
    cluster.until(|cluster| cluster.cidr("n").is_some(), "given a CIDR by a separate patch").await;
}

#[tokio::test(start_paused = true)]
async fn the_cloud_sets_the_block_sizes() {
    let cluster = Cluster::new();
    for (name, ipv4, ipv6) in [("big", Some(22), None), ("small", Some(26), Some(68)), ("plain", None, None)] {
        cluster.cloud.change_instance(name, |spec| spec.pod_cidr_masks = PodCidrMaskSizes { ipv4, ipv6 });
    }
    let flags = ["--cluster-cidr=10.244.0.0/16,fd00:10::/56", "--cidr-allocator-type=CloudAllocator"];
    cluster.start(&flags);
    for name in ["big", "small", "plain", "big2"] {
        cluster.join(name, Taint::Uninitialized);
        cluster.until(|cluster| cluster.cidr(name).is_some(), "given a CIDR").await;
    }
    let lengths = |name: &str| -> Vec<String> {
        cluster.cidrs_of(name).iter().map(|cidr| cidr.split_once('/').unwrap().1.to_owned()).collect()
    };
    assert_eq!(
        ["big", "small", "plain", "big2"].map(lengths),
        [["22", "64"], ["26", "68"], ["24", "64"], ["24", "64"]].map(|lengths| lengths.map(str::to_owned).to_vec())
    );
    cluster.assert_disjoint();
}

/// The block of the cloud's size fits into the range; that of the flags' size, which applies without tags, does not.
#[tokio::test(start_paused = true)]
async fn small_cluster_cidr_fits_the_block_sizes_of_the_cloud() {
    let cluster = Cluster::new();
    cluster.cloud.change_instance("small", |spec| spec.pod_cidr_masks = PodCidrMaskSizes { ipv4: Some(28), ipv6: None });
    cluster.start(&["--cluster-cidr=10.244.0.0/26", "--cidr-allocator-type=CloudAllocator"]);
    cluster.join("plain", Taint::Uninitialized);
    cluster.until(|cluster| cluster.events("plain").contains(&"CIDRNotAvailable".to_owned()), "reported").await;
    cluster.join("small", Taint::Uninitialized);
    cluster.until(|cluster| cluster.cidr("small").as_deref() == Some("10.244.0.0/28"), "given a CIDR").await;
    assert_eq!(cluster.cidr("plain"), None);
}

/// Upstream: `TestRetryAllocatingPodCidr`. Each block is tried three times. After a rejection, the next block follows. After a response
/// that leaves the outcome open, the Node keeps its block.
#[tokio::test(start_paused = true)]
async fn a_block_that_is_refused_is_followed_by_the_next_one() {
    for (code, expected) in [(409, "127.123.234.12/30"), (429, "127.123.234.12/30"), (500, "127.123.234.0/30")] {
        let cluster = Cluster::new();
        cluster.server.faults().fail_next(9, code, patches);
        cluster.start(&[
            "--cluster-cidr=127.123.234.0/28",
            "--node-cidr-mask-size-ipv4=30",
            "--controllers=node-ipam",
            "--configure-cloud-routes=false",
        ]);
        cluster.join("node0", Taint::None);
        cluster.until(|cluster| cluster.cidr("node0").is_some(), "given a CIDR").await;
        assert_eq!(cluster.cidr("node0").as_deref(), Some(expected), "{code}");
        assert!(cluster.events("node0").contains(&"CIDRAssignmentFailed".to_owned()));
        (1..4).for_each(|index| cluster.join(&format!("node{index}"), Taint::None));
        cluster.until_all_have_cidrs(1).await;
    }
}

/// One claim is in the first list, the other arrives later.
#[tokio::test(start_paused = true)]
async fn oversized_claims_are_reported_and_reserve_nothing() {
    let cluster = Cluster::new();
    let claim = |name: &str| cluster.server.create(&uninitialized_node(name).pod_cidrs(&["10.244.0.0/16"]));
    claim("listed");
    cluster.start(&["--cluster-cidr=10.244.0.0/16"]);
    cluster.join("n", Taint::Uninitialized);
    cluster.until(|cluster| cluster.cidr("n").is_some(), "given a CIDR").await;
    claim("late");
    for name in ["listed", "late"] {
        for reason in ["PodCIDRIgnored", "RouteRefused"] {
            cluster.until(|cluster| cluster.events(name).iter().any(|event| event == reason), reason).await;
        }
    }
    cluster.join("m", Taint::Uninitialized);
    cluster.until(|cluster| cluster.cidr("m").is_some(), "given a CIDR").await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_hidden_keeps_its_block() {
    let cluster = Cluster::new();
    cluster.start(&["--cluster-cidr=10.244.0.0/23", "--node-filter-requirements=!on-prem"]);
    for name in ["a", "b"] {
        cluster.join(name, Taint::Uninitialized);
        cluster.until(|cluster| cluster.cidr(name).is_some(), "given a CIDR").await;
    }
    cluster.label("a", "on-prem");
    cluster.join("c", Taint::Uninitialized);
    pass(300).await;
    assert_eq!(cluster.cidr("c"), None, "a exists, although it is hidden");
    let block = cluster.cidr("a").unwrap();
    cluster.server.delete::<k8s_openapi::api::core::v1::Node>("", "a");
    cluster.until(|cluster| cluster.cidr("c").as_ref() == Some(&block), "given the block of a").await;
}

#[tokio::test(start_paused = true)]
async fn five_thousand_nodes_cost_no_more_requests_than_without() {
    let mut requests = Vec::new();
    for allocates in [false, true] {
        let cluster = Cluster::new();
        (0..5_000).for_each(|index| cluster.join(&format!("node-{index}"), Taint::Uninitialized));
        let flags = ["--cluster-cidr=10.0.0.0/8", "--configure-cloud-routes=false"];
        if allocates {
            drop(cluster.start(&flags))
        } else {
            cluster.start_without(&flags)
        }
        cluster.until(|cluster| cluster.all_initialized(), "initialized").await;
        pass(60).await;
        if allocates {
            cluster.until_all_have_cidrs(1).await;
        }
        let counts = |request: &&RequestRecord| request.resource == "nodes";
        requests.push(cluster.server.requests().iter().filter(counts).count());
    }
    println!("requests for Nodes without and with pod CIDRs: {requests:?}");
    assert!(requests[1] * 100 <= requests[0] * 105, "{requests:?}");
}

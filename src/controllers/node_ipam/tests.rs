//! Checks at the start, and the pool's reactions to lists, watch events and results of patches.

use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use super::{plan::identity, *};
use crate::{
    metrics::Metrics,
    node::{fixtures::*, well_known::TAINT_UNINITIALIZED},
    runtime::{clock::Clock, patch::ApiError},
};

fn config(cluster: &str, allocator: CidrAllocatorType) -> NodeIpamConfig {
    let cluster_cidrs = cluster.split(',').filter(|cidr| !cidr.is_empty()).map(|cidr| cidr.parse().unwrap()).collect();
    NodeIpamConfig { enabled: true, allocator, cluster_cidrs, ..NodeIpamConfig::default() }
}

fn pool(cluster: &str, allocator: CidrAllocatorType) -> PodCidrPool {
    pool_of(config(cluster, allocator))
}

fn pool_of(config: NodeIpamConfig) -> PodCidrPool {
    measured_pool(config, Arc::new(Metrics::new().unwrap()))
}

fn measured_pool(config: NodeIpamConfig, metrics: Arc<Metrics>) -> PodCidrPool {
    let queue = ReconcileQueue::new("NodeIpam", KeyBackoff::DEFAULT, Clock::System, Arc::clone(&metrics));
    let empty = Allocations::new(&units(&config), &[]).unwrap();
    let pool = PodCidrPool::new(config, queue, metrics, crate::runtime::events::EventRecorder::channel("tests").0);
    pool.start_reading(empty);
    pool
}

fn open_pool(cluster: &str) -> PodCidrPool {
    let pool = pool(cluster, CidrAllocatorType::RangeAllocator);
    pool.finish_reading(&[], &[]).unwrap();
    pool.decide(PoolPhase::Open);
    pool
}

fn listed(name: &str, cidrs: &[&str]) -> ListedNode {
    let node = json!({"metadata": {"name": name, "uid": name, "resourceVersion": "5"}, "spec": {"podCIDRs": cidrs}});
    serde_json::from_value(node).unwrap()
}

fn with_cidrs(name: &str, cidrs: &[&str]) -> Node {
    node(name).with(|n| {
        n.metadata.uid = Some(name.to_owned());
        spec(n).pod_cidrs = Some(cidrs.iter().map(|&cidr| cidr.to_owned()).collect());
    })
}

fn tainted(name: &str) -> Node {
    with_cidrs(name, &[]).with(|n| spec(n).taints = Some(vec![taint(TAINT_UNINITIALIZED, "NoSchedule")]))
}

fn at_version(name: &str, version: &str) -> Node {
    with_cidrs(name, &[]).with(|n| n.metadata.resource_version = Some(version.into()))
}

/// Version of a Node that a patch is based on.
const AT_5: Option<&str> = Some("5");

#[test]
fn invalid_cluster_cidrs_and_masks_are_refused_at_the_start() {
    let check = |cluster: &str, ipv4: u8, ipv6: u8| {
        let config = config(cluster, CidrAllocatorType::RangeAllocator);
        check(&NodeIpamConfig { mask_ipv4: ipv4, mask_ipv6: ipv6, ..config }).map_err(|error| error.to_string())
    };
    for (cluster, ipv4, ipv6, expected) in [
        ("10.0.0.0/16", 24, 64, ""),
        ("10.0.0.0/16,fd00::/48", 24, 64, ""),
        ("fd00::/48,10.0.0.0/16", 16, 48, ""),
        ("", 24, 64, "--cluster-cidr is empty"),
        ("10.0.0.0/16,11.0.0.0/16", 24, 64, "of the same address family"),
        ("10.0.0.0/16,fd00::/48,11.0.0.0/16", 24, 64, "--cluster-cidr has 3 CIDRs"),
        ("10.0.0.0/25", 24, 64, "--node-cidr-mask-size-ipv4=24: blocks of /24 are larger than the cluster CIDR 10.0.0.0/25"),
        (
            "fd00::/47",
            24,
            64,
            "--node-cidr-mask-size-ipv6=64: blocks of /64 are too many for the cluster CIDR fd00::/47: at most /63",
        ),
    ] {
        let error = check(cluster, ipv4, ipv6).err().unwrap_or_default();
        assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{cluster}: {error}");
    }
}

/// Upstream: `TestNewNodeIpamControllerWithCIDRMasks`: CloudAllocator ignores the flags' prefixes.
#[test]
fn cloud_allocator_ignores_the_masks_of_the_flags() {
    for (cluster, prefixes, expected) in [
        ("10.0.0.0/21", [24].as_slice(), Ok("10.0.0.0/24")),
        ("10.0.0.0/26", &[28], Ok("10.0.0.0/28")),
        ("10.0.0.0/26", &[24], Err("larger than the cluster CIDR")),
        ("fd00::/40", &[56], Ok("fd00::/56")),
        ("fd00::/40", &[64], Err("too many for the cluster CIDR")),
        ("10.0.0.0/26,fd00::/120", &[26, 128], Ok("10.0.0.0/26")),
    ] {
        let config = config(cluster, CidrAllocatorType::CloudAllocator);
        assert_eq!(check(&config), Ok(()), "{cluster}");
        let range = NodeIpamConfig { allocator: CidrAllocatorType::RangeAllocator, ..config.clone() };
        assert_eq!(check(&range).is_ok(), cluster.ends_with("/21"), "{cluster}");
        let result = pool_of(config).reserve(&node("n"), prefixes).map_err(|error| error.to_string());
        match (result, expected) {
            (Ok(cidrs), Ok(expected)) => assert_eq!(cidrs[0].to_string(), expected),
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
            (result, _) => panic!("{cluster} {prefixes:?}: {result:?}"),
        }
    }
}

/// Upstream: `TestOccupyPreExistingCIDR`.
#[test]
fn invalid_pod_cidrs_of_nodes_stop_allocation() {
    for (cidrs, range, cloud) in [
        (&[][..], true, true),
        (&["10.0.1.0/24"], true, true),
        (&["11.0.1.0/24"], true, false),
        (&["nonsense"], false, false),
        (&["10.0.1.0/24", "fd00::/64"], false, false),
    ] {
        let reads = |allocator| pool("10.0.0.0/16", allocator).finish_reading(&[listed("n", cidrs)], &[]);
        assert_eq!(reads(CidrAllocatorType::RangeAllocator).is_ok(), range, "{cidrs:?}");
        let result = reads(CidrAllocatorType::CloudAllocator);
        assert_eq!(result.is_ok(), cloud, "{cidrs:?}");
        assert!(result.is_ok() || result.unwrap_err().starts_with("Node n: "));
    }
}

#[test]
fn watch_events_during_the_initial_read_count() {
    let pool = pool("10.0.0.0/22", CidrAllocatorType::RangeAllocator);
    pool.observe(&with_cidrs("allocated-meanwhile", &["10.0.0.0/24"]));
    pool.on_removed(&with_cidrs("deleted-meanwhile", &["10.0.1.0/24"]));
    let seen = [Arc::new(with_cidrs("seen-before", &["10.0.2.0/24"]))];
    pool.finish_reading(&[listed("deleted-meanwhile", &["10.0.1.0/24"]), listed("allocated-meanwhile", &[])], &seen)
        .unwrap();
    pool.decide(PoolPhase::Open);
    let allocated: Vec<_> = ["a", "b"].iter().map(|name| pool.reserve(&node(name), &[24]).unwrap()[0].to_string()).collect();
    assert_eq!(allocated, ["10.0.1.0/24", "10.0.3.0/24"]);
    assert!(pool.reserve(&node("c"), &[24]).is_err());
}

#[test]
fn initialization_sets_the_same_blocks_until_a_refusal() {
    let pool = open_pool("10.0.0.0/16");
    let node = tainted("n");
    let first = pool.spec_for(&node, AT_5).unwrap();
    for error in [ApiError::Conflict("n".into()), ApiError::Busy("429".into()), ApiError::Failed("silence".into())] {
        pool.settle(&node, AT_5, Some(&error));
        assert_eq!(pool.spec_for(&node, AT_5).as_ref(), Some(&first), "{error:?}");
    }
    // The new version shows that the patches without a response cannot be executed any more.
    pool.observe(&at_version("n", "6"));
    pool.settle(&node, AT_5, Some(&ApiError::Rejected("no".into())));
    assert_eq!(pool.spec_for(&node, AT_5), None, "the initialization continues without pod CIDRs");
    assert!(!pool.rules(&node, true).comes_with_initialization);
    assert_eq!(pool.reserve(&node, &[24]).unwrap()[0].to_string(), "10.0.1.0/24");
    pool.confirm(&node);
    assert!(pool.has(&node));
}

/// The patches without a response are that of the initialization and a separate one, of the same reconcile or of an earlier one.
#[test]
fn a_patch_without_response_keeps_its_block_reserved() {
    let silence = ApiError::Failed("504".into());
    for refused in [
        ApiError::Rejected("422".into()),
        ApiError::Busy("429".into()),
        ApiError::Forbidden("no".into()),
        ApiError::Conflict("n".into()),
    ] {
        for is_gone in [false, true] {
            let (pool, node) = (open_pool("10.0.0.0/24"), tainted("n"));
            pool.spec_for(&node, AT_5).unwrap();
            pool.settle(&node, AT_5, Some(&silence));
            let cidrs = pool.reserve(&node, &[24]).unwrap();
            for error in [&silence, &refused] {
                assert!(pool.patch_begins(&node, &cidrs, AT_5));
                pool.patch_ended(&node, AT_5, Some(error));
            }
            for version in ["4", "5"] {
                pool.observe(&at_version("n", version));
                pool.withdraw(&node);
                assert!(pool.reserve(&tainted("other"), &[24]).is_err(), "{refused:?} {version}");
            }
            assert!(pool.holders().contains("n"), "a list may show that it is deleted");
            if is_gone {
                pool.on_deleted("n");
            } else {
                pool.observe(&at_version("n", "6"));
                pool.withdraw(&node);
            }
            assert_eq!(pool.reserve(&tainted("other"), &[24]).unwrap(), cidrs, "{refused:?} {is_gone}");
        }
    }
}

#[test]
fn a_block_in_two_patches_outlasts_the_refusal_of_one() {
    let (pool, node, refused) = (open_pool("10.0.0.0/24"), tainted("n"), ApiError::Rejected("no".into()));
    pool.spec_for(&node, AT_5).unwrap();
    pool.allocate_separately(&node);
    let cidrs = pool.reserve(&node, &[24]).unwrap();
    assert!(pool.patch_begins(&node, &cidrs, AT_5));
    pool.settle(&node, AT_5, Some(&refused));
    assert!(pool.reserve(&tainted("other"), &[24]).is_err(), "the other patch is in flight");
    pool.patch_ended(&node, AT_5, Some(&refused));
    pool.withdraw(&node);
    assert_eq!(pool.reserve(&tainted("other"), &[24]).unwrap(), cidrs);
    assert!(!pool.patch_begins(&node, &cidrs, AT_5), "it is another Node's now");
}

#[test]
fn metrics_count_allocations_and_releases() {
    let metrics = Arc::new(Metrics::new().unwrap());
    let pool = measured_pool(config("10.0.0.0/22", CidrAllocatorType::RangeAllocator), Arc::clone(&metrics));
    pool.finish_reading(&[listed("a", &["10.0.0.0/24"])], &[]).unwrap();
    pool.decide(PoolPhase::Open);
    pool.reserve(&node("b"), &[24]).unwrap();
    pool.on_deleted("a");
    pool.publish();
    let label = &["10.0.0.0/22"];
    assert_eq!(metrics.cidrset_allocations_total.with_label_values(label).get().to_string(), "2");
    assert_eq!(metrics.cidrset_releases_total.with_label_values(label).get().to_string(), "1");
    assert_eq!(metrics.cidrset_usage.with_label_values(label).get().to_string(), "0.25");
    let tries = metrics.cidrset_allocation_tries.with_label_values(label);
    assert_eq!((tries.get_sample_count(), tries.get_sample_sum().to_string()), (1, "1".to_owned()));
}

#[test]
fn patch_sets_no_pod_cidrs_if_closed_or_not_needed() {
    let closed = pool("10.0.0.0/16", CidrAllocatorType::RangeAllocator);
    assert_eq!(closed.spec_for(&tainted("n"), AT_5), None);
    let open = open_pool("10.0.0.0/16");
    assert_eq!(open.spec_for(&with_cidrs("n", &["10.0.0.0/24"]), AT_5), None);
    let cloud = pool("10.0.0.0/16", CidrAllocatorType::CloudAllocator);
    cloud.finish_reading(&[], &[]).unwrap();
    cloud.decide(PoolPhase::Open);
    assert_eq!(cloud.spec_for(&tainted("n"), AT_5), None);
}

#[tokio::test(start_paused = true)]
async fn quarantine_ends_after_all_nodes_changed_or_its_timeout() {
    let at_version = |version: &str| at_version("a", version);
    let nodes = [listed("a", &[]), listed("b", &["10.0.0.0/24"])];
    for (change, expected) in [(None, 60), (Some(at_version("5")), 60), (Some(at_version("6")), 0)] {
        let pool = pool("10.0.0.0/16", CidrAllocatorType::RangeAllocator);
        pool.finish_reading(&nodes, &[]).unwrap();
        let started = Instant::now();
        let waiting = pool.quarantine(&nodes, &[], LATE_WRITES);
        let changing = async {
            assert_eq!(pool.phase(), PoolPhase::Quarantined);
            assert_eq!(pool.spec_for(&tainted("c"), AT_5), None);
            change.iter().for_each(|node| pool.observe(node));
        };
        tokio::join!(waiting, changing);
        assert_eq!((started.elapsed().as_secs(), pool.phase()), (expected, PoolPhase::Open), "{change:?}");
    }
    assert_eq!(identity(&at_version("5")), "a");
}

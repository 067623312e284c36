//! Leaders that die at any of their requests, and a range that is exhausted under successive leaders.

use std::time::Duration;

use cloud_controller_manager::sandbox::{api_server::RequestRecord, http::Verb};
use k8s_openapi::api::core::v1::Node;
use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::{
    cluster::*,
    mortal::{LastRequest, Life},
    seeds,
};

/// Eight blocks.
const FLAGS: &[&str] = &["--cluster-cidr=10.244.0.0/21", "--configure-cloud-routes=false"];
/// Longer than a lease lasts, and shorter than an API server may take.
const LATE: Duration = Duration::from_secs(40);

fn with_six_nodes() -> Cluster {
    let cluster = Cluster::new();
    (0..4).for_each(|index| cluster.join(&format!("n{index}"), Taint::Uninitialized));
    (0..2).for_each(|index| cluster.join(&format!("o{index}"), Taint::None));
    cluster
}

/// Returns how many requests a leader sends until all Nodes have their CIDRs and its cluster is quiet.
async fn requests_of_a_leader() -> usize {
    let cluster = with_six_nodes();
    let leader = cluster.start_candidate(FLAGS);
    cluster.until_all_have_cidrs(1).await;
    pass(5).await;
    leader.life.sent()
}

/// Returns `true` for patches of the second leader, except those of Nodes that have joined meanwhile.
fn of_the_second_for_others(request: &RequestRecord) -> bool {
    let is_patch = request.resource == "nodes" && request.verb == Verb::Patch;
    is_patch && request.user_agent.starts_with("replica-1/") && !request.name.starts_with("late")
}

/// The leader dies between any two requests or during any of them. No CIDR is assigned twice afterwards.
#[tokio::test(start_paused = true)]
async fn a_leader_may_die_at_any_request() {
    let all = requests_of_a_leader().await;
    assert!(all > 20, "{all}");
    for last in [LastRequest::Lost, LastRequest::Served, LastRequest::Late(LATE)] {
        for nth in 1..=all {
            let cluster = with_six_nodes();
            let first = cluster.start_candidate_for(FLAGS, Life::until(nth, last));
            cluster.until(|_| first.life.is_over(), "dead").await;
            // More Nodes than blocks, so that each block that seems free is allocated.
            (0..8).for_each(|index| cluster.join(&format!("late{index}"), Taint::Uninitialized));
            if let LastRequest::Late(_) = last {
                // Keeps the other Nodes unchanged, so that a late patch still matches the version of its Node.
                cluster.server.faults().fail_every(429, of_the_second_for_others);
            }
            cluster.start_candidate(FLAGS);
            pass(2 * LATE.as_secs()).await;
            cluster.assert_disjoint();
            cluster.server.faults().clear();
            cluster.until(|cluster| cluster.allocated().len() == 8, "given all blocks").await;
            pass(60).await;
            cluster.assert_disjoint();
            first.kill();
        }
    }
}

fn disturb(cluster: &Cluster, random: &mut SmallRng) {
    let faults = cluster.server.faults();
    let node_patches = |request: &RequestRecord| request.resource == "nodes" && request.verb == Verb::Patch;
    let times = random.random_range(1..6);
    match random.random_range(0..8) {
        0 => faults.stall_watches(),
        1 => faults.drop_watches(),
        2 => faults.compact(),
        3 => faults.fail_next(times, [409, 500, 504][random.random_range(0..3)], node_patches),
        4 => faults.delay_every(Duration::from_secs(random.random_range(1..20)), node_patches),
        5 => faults.hang_next(times, node_patches),
        _ => {}
    }
}

/// More Nodes than blocks join and leave under successive leaders, with stale watches and a failing API server.
#[tokio::test(start_paused = true)]
async fn exhausted_range_is_allocated_whole_and_never_twice() {
    const FOUR: &[&str] = &["--cluster-cidr=10.244.0.0/22", "--configure-cloud-routes=false"];
    for seed in seeds::printed(0..12) {
        let mut random = SmallRng::seed_from_u64(seed);
        let cluster = Cluster::new();
        let (mut leader, mut joined) = (cluster.start_candidate(FOUR), 0);
        for _ in 0..12 {
            for _ in 0..random.random_range(0..4) {
                let taint = if random.random_bool(0.5) { Taint::Uninitialized } else { Taint::None };
                cluster.join(&format!("n{joined}"), taint);
                joined += 1;
            }
            disturb(&cluster, &mut random);
            pass(random.random_range(0..30)).await;
            for name in cluster.nodes().into_keys().collect::<Vec<_>>() {
                if random.random_bool(0.25) {
                    cluster.server.delete::<Node>("", &name);
                    if random.random_bool(0.3) {
                        cluster.join(&name, Taint::Uninitialized);
                    }
                }
            }
            cluster.assert_disjoint();
            if random.random_bool(0.3) {
                if random.random_bool(0.5) {
                    leader.kill()
                } else {
                    leader.stop()
                }
                leader = cluster.start_candidate(FOUR);
            }
            cluster.server.faults().clear();
        }
        let expected = |cluster: &Cluster| cluster.nodes().len().min(4);
        cluster.until(|cluster| cluster.allocated().len() == expected(cluster), "fully allocated").await;
        cluster.assert_disjoint();
    }
}

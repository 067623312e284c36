//! Wall clocks of replicas that jump by up to a month at random moments. Input: a seed. Output: a panic if the holder of the Lease
//! changed, a Node was deleted, or a load balancer is left over. Durations are measured on a clock that does not jump.

use std::{collections::BTreeSet, time::Duration};

use cloud_controller_manager::sandbox::objects::uninitialized_node;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use tokio::time::{sleep, timeout};

use crate::api_server_faults::{
    fleet::Fleet,
    holder, seeds,
    sweep::{RECOVERED, change, is_settled},
};

const STEPS: usize = 16;
const MONTH: i64 = 30 * 24 * 3600;
/// Name of a Node without initialization and machine. It is deleted after the time in [`FLAGS`], which is longer than a history.
const UNINITIALIZED: &str = "uninitialized";
const FLAGS: &[&str] = &["--delete-uninitialized-nodes-after=1h"];

fn jump(fleet: &Fleet, random: &mut SmallRng) {
    let limit = if random.random_bool(0.5) { 60 } else { MONTH };
    let replica = &fleet.replicas[random.random_range(0..fleet.replicas.len())];
    replica.clock.set(SignedDuration::from_secs(random.random_range(-limit..limit)));
}

async fn history(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let (fleet, mut alive) = (Fleet::new(2, FLAGS), BTreeSet::new());
    fleet.server.create::<Node>(&uninitialized_node(UNINITIALIZED));
    fleet.server.wait_until(|server| holder(server).is_some()).await;
    let leader = holder(&fleet.server);
    for step in 0..STEPS {
        change(&fleet.server, &mut alive, step, &mut random);
        jump(&fleet, &mut random);
        sleep(Duration::from_secs(random.random_range(1..90))).await;
        assert_eq!(holder(&fleet.server), leader, "seed {seed}, step {step}");
    }
    let settled = async {
        while !is_settled(&fleet.server, &fleet.cloud, &alive) {
            sleep(Duration::from_secs(1)).await;
        }
    };
    assert!(timeout(RECOVERED, settled).await.is_ok(), "seed {seed}: {:?}", fleet.cloud.load_balancers().keys());
    assert_eq!(holder(&fleet.server), leader, "seed {seed}");
    assert!(fleet.server.get::<Node>("", UNINITIALIZED).is_some(), "seed {seed}");
    fleet.check_writes();
}

#[test]
fn clocks_that_jump_change_nothing() {
    seeds::sweep(0..12, |seed| crate::api_server_faults::sweep::run(history(seed)));
}

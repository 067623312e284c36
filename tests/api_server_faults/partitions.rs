//! One-way partitions between replicas and the API server at random moments, while Services are created and deleted. Delayed requests
//! arrive when the partition heals. Input: a seed. Output: a panic if a standby wrote, a Node was deleted, or a load balancer is left
//! over.

use std::{collections::BTreeSet, time::Duration};

use cloud_controller_manager::sandbox::partitions::PartitionedWay::{FromServer, ToServer};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use tokio::time::{sleep, timeout};

use crate::api_server_faults::{
    fleet::Fleet,
    seeds,
    sweep::{RECOVERED, change, is_settled},
};

const STEPS: usize = 16;
const REPLICAS: usize = 3;

fn partition(fleet: &Fleet, random: &mut SmallRng) {
    let index = random.random_range(0..REPLICAS);
    match random.random_range(0..6) {
        0 | 1 => fleet.partition(index, Some(ToServer)),
        2 | 3 => fleet.partition(index, Some(FromServer)),
        4 => fleet.partition(index, None),
        _ => fleet.heal_all(),
    }
}

async fn history(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut fleet, mut alive) = (Fleet::new(REPLICAS, &[]), BTreeSet::new());
    for step in 0..STEPS {
        change(&fleet.server, &mut alive, step, &mut random);
        partition(&fleet, &mut random);
        for _ in 0..random.random_range(1..6) {
            sleep(Duration::from_millis(random.random_range(100..20_000))).await;
            fleet.restart();
        }
    }
    fleet.heal_all();
    let recovered = async {
        while !is_settled(&fleet.server, &fleet.cloud, &alive) {
            sleep(Duration::from_secs(1)).await;
            fleet.restart();
        }
    };
    let outcome = timeout(RECOVERED, recovered).await;
    assert!(outcome.is_ok(), "seed {seed}: of {alive:?} in the cloud {:?}", fleet.cloud.load_balancers().keys());
    fleet.check_writes();
}

#[test]
fn partitions_cause_no_write_of_a_standby() {
    seeds::sweep(0..12, |seed| crate::api_server_faults::sweep::run(history(seed)));
}

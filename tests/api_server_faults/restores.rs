//! An API server whose etcd is restored from a backup: objects and resourceVersions are reset, and caches of replicas contain later states.
//!
//! Input: a seed. Output: a panic if a Service is not served, a Node was deleted, or a load balancer is left over for other Services than
//! those that the backup lacks. `orphans` lists the latter.

use std::{collections::BTreeSet, time::Duration};

use cloud_controller_manager::sandbox::{faults::Manner, http::Verb};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use tokio::time::{sleep, timeout};

use crate::api_server_faults::{
    fleet::Fleet,
    holder, is_served, seeds,
    sweep::{RECOVERED, change},
};

/// Number of Services that are created before the backup.
const SERVICES: usize = 4;
/// Number of changes between the backup and its restore.
const LOST: usize = 6;

async fn wait_until_settled(fleet: &mut Fleet, holds: impl Fn(&Fleet) -> bool, seed: u64, subject: &str) {
    let settled = async {
        while !(fleet.serves_all() && holder(&fleet.server).is_some() && holds(fleet)) {
            sleep(Duration::from_secs(1)).await;
            fleet.restart();
        }
    };
    let outcome = timeout(RECOVERED, settled).await;
    let report = || format!("Services {:?}, in the cloud {:?}", fleet.services(), fleet.cloud.load_balancers());
    assert!(outcome.is_ok(), "seed {seed}, {subject}: {}", report());
}

async fn history(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut fleet, mut alive) = (Fleet::new(2, &[]), BTreeSet::new());
    for name in (0..SERVICES).map(|index| format!("first{index}")) {
        crate::api_server_faults::create_service(&fleet.server, &name);
        alive.insert(name);
    }
    wait_until_settled(&mut fleet, |_| true, seed, "before the backup").await;
    sleep(Duration::from_secs(random.random_range(0..60))).await;
    let backup = fleet.server.faults().backup();
    let saved: BTreeSet<String> = fleet.services().into_iter().collect();
    for step in 0..LOST {
        change(&fleet.server, &mut alive, step, &mut random);
        // Some changes are reconciled before the restore, others are not.
        sleep(Duration::from_secs(random.random_range(0..30))).await;
    }
    // The API server is down meanwhile, sometimes for longer than the lease duration.
    let (before, away) = (fleet.server.faults(), random.random_range(0..30));
    before.hang_every(|_| true);
    sleep(Duration::from_secs(away)).await;
    before.clear();
    fleet.check_writes();
    let lost: BTreeSet<String> = fleet.services().into_iter().filter(|name| !saved.contains(name)).collect();
    fleet.server.clear_requests();
    fleet.server.faults().restore(&backup);

    // Changes immediately after the restore are reconciled, too.
    crate::api_server_faults::create_service(&fleet.server, "afterwards");
    let deleted = format!("first{}", random.random_range(0..SERVICES));
    fleet.server.delete::<k8s_openapi::api::core::v1::Service>("default", &deleted);
    let is_gone = |fleet: &Fleet| fleet.cloud.load_balancer_of(&format!("default/{deleted}")).is_none();
    wait_until_settled(&mut fleet, |fleet| is_gone(fleet) && is_served(&fleet.server, "afterwards"), seed, "afterwards")
        .await;
    let services: BTreeSet<String> = fleet.services().into_iter().collect();
    for balancer in fleet.cloud.load_balancers().values() {
        let name = balancer.service.trim_start_matches("default/");
        assert!(services.contains(name) || lost.contains(name), "seed {seed}: {name} has a load balancer");
    }
    let expected = saved.iter().filter(|name| **name != deleted).cloned().chain(["afterwards".to_owned()]);
    assert_eq!(services, expected.collect(), "seed {seed}");
    fleet.check_writes();
}

#[test]
fn services_of_a_restored_api_server_are_served() {
    seeds::sweep(0..12, |seed| crate::api_server_faults::sweep::run(history(seed)));
}

/// A watch from a version that the restore has reset is accepted and silent.
#[tokio::test(start_paused = true)]
async fn a_standby_with_silent_watches_lists_when_it_takes_over() {
    let (server, leader) = crate::api_server_faults::settled().await;
    let _standby = crate::api_server_faults::start(&server);
    sleep(Duration::from_secs(60)).await;
    server.faults().serve_every(Manner::Half, |request| request.verb == Verb::Watch && request.resource != "leases");
    server.faults().stall_watches();
    crate::api_server_faults::create_service(&server, "unseen");
    leader.stop.begin();
    let served = timeout(Duration::from_secs(30), server.wait_until(|server| is_served(server, "unseen"))).await;
    assert!(served.is_ok(), "a new leader does not see a Service that its watches missed");
}

//! A controller that moves between managers that die at any request, cannot renew, or cannot release. However a
//! manager ends, it writes only while it holds the second lease, no other manager holds that lease at the same time, and the lease
//! soon has another holder.

use cloud_controller_manager::sandbox::{api_server::RequestRecord, http::Verb};
use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::{mortal::LastRequest, seeds, *};

/// Limit of a takeover: the lease lasts for 15 s and is read about every 2 s.
const MAX_TAKEOVER: Duration = Duration::from_secs(20);

/// Returns a filter for writes of this lease by the manager called `name`.
fn lease_writes(name: &str, lease: &'static str) -> impl Fn(&RequestRecord) -> bool + Send + Sync + use<> {
    let agent = format!("{name}/");
    move |request| {
        let is_lease = request.resource == "leases" && request.name == lease;
        is_lease && request.verb == Verb::Update && request.user_agent.starts_with(&agent)
    }
}

/// Starts two managers, of which the first holds the second lease and serves Services.
async fn pair(cluster: &Cluster) -> [Manager; 2] {
    let old = cluster.start("old");
    until("the first holds both", || old.holds("old") && old.holds(SECOND)).await;
    let new = cluster.start("new");
    until("the other holds its own", || new.holds("new")).await;
    cluster.request_service("before");
    until("the first serves", || cluster.is_served("before")).await;
    [old, new]
}

/// Returns how long it takes until `new` holds the second lease. Both managers never hold it at the same time.
async fn wait_for_takeover(cluster: &Cluster, old: &Manager, new: &Manager) -> Duration {
    until("the other holds the second lease", || {
        assert!(!(old.holds(SECOND) && new.holds(SECOND)), "both hold it");
        cluster.assert_fenced();
        new.holds(SECOND)
    })
    .await
}

/// Checks that the new manager serves all Services, and that no late write of the former one arrives.
async fn assert_takeover(cluster: &Cluster) {
    cluster.request_service("after");
    until("the other serves", || cluster.is_served("before") && cluster.is_served("after")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    cluster.assert_fenced();
}

async fn requests_of_a_manager() -> usize {
    let cluster = Cluster::new(SERVICES);
    cluster.request_service("before");
    let manager = cluster.start("old");
    until("it serves", || cluster.is_served("before")).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    manager.life.sent()
}

#[tokio::test(start_paused = true)]
async fn a_manager_may_die_at_any_request() {
    let all = requests_of_a_manager().await;
    assert!(all > 20, "{all}");
    for last in [LastRequest::Lost, LastRequest::Served, LastRequest::Late(Duration::from_secs(20))] {
        for nth in 1..=all {
            let cluster = Cluster::new(SERVICES);
            cluster.request_service("before");
            let old = cluster.start_for("old", Life::until(nth, last));
            until("the first is dead", || old.life.is_over()).await;
            let new = cluster.start("new");
            let silent = wait_for_takeover(&cluster, &old, &new).await;
            assert!(silent < MAX_TAKEOVER, "request {nth}, {last:?}: {silent:?}");
            assert_takeover(&cluster).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_costs_the_time_of_the_lease() {
    for fault in ["500", "409", "429", "hangs", "lost"] {
        let cluster = Cluster::new(SERVICES);
        let [old, new] = pair(&cluster).await;
        let faults = cluster.server.faults();
        match fault {
            "hangs" => faults.hang_every(lease_writes("old", SECOND)),
            "lost" => old.life.end(),
            code => faults.fail_every(code.parse().unwrap(), lease_writes("old", SECOND)),
        }
        old.stop.begin();
        let silent = wait_for_takeover(&cluster, &old, &new).await;
        assert!(silent > Duration::from_secs(5) && silent < MAX_TAKEOVER, "{fault}: {silent:?}");
        let ended = tokio::time::timeout(Duration::from_secs(60), old.task).await;
        assert_eq!(ended.unwrap().unwrap().unwrap(), ManagerOutcome::Stopped, "{fault}");
        assert_takeover(&cluster).await;
        // Its own lease was released nevertheless, unless no request arrives.
        assert_eq!(cluster.holder("old").is_some(), fault == "lost", "{fault}");
    }
}

/// Only renewals of the second lease fail.
#[tokio::test(start_paused = true)]
async fn manager_that_cannot_renew_stops_before_another_begins() {
    for fault in ["500", "403", "hangs"] {
        let cluster = Cluster::new(SERVICES);
        let [old, new] = pair(&cluster).await;
        let faults = cluster.server.faults();
        match fault {
            "hangs" => faults.hang_every(lease_writes("old", SECOND)),
            code => faults.fail_every(code.parse().unwrap(), lease_writes("old", SECOND)),
        }
        let requests = async {
            for number in 0..40 {
                cluster.request_service(&format!("meanwhile-{number}"));
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        let (silent, ()) = tokio::join!(wait_for_takeover(&cluster, &old, &new), requests);
        assert!(silent < MAX_TAKEOVER + Duration::from_secs(5), "{fault}: {silent:?}");
        assert_eq!(old.task.await.unwrap().unwrap(), ManagerOutcome::LeaseLost, "{fault}");
        until("all are served", || (0..40).all(|number| cluster.is_served(&format!("meanwhile-{number}")))).await;
        assert_takeover(&cluster).await;
    }
}

/// Ends a manager in a random way. Returns how long the lease may then have no holder.
fn end(cluster: &Cluster, name: &str, manager: &Manager, random: &mut SmallRng) -> Duration {
    match random.random_range(0..4) {
        0 => {
            manager.stop.begin();
            return Duration::from_secs(6);
        }
        1 => manager.life.end(),
        2 => cluster.server.faults().fail_every(500, lease_writes(name, SECOND)),
        _ => {
            cluster.server.faults().hang_every(lease_writes(name, SECOND));
            manager.stop.begin();
        }
    }
    MAX_TAKEOVER + Duration::from_secs(5)
}

#[tokio::test(start_paused = true)]
async fn successive_managers_run_it_one_at_a_time() {
    for seed in seeds::printed(0..8) {
        let mut random = SmallRng::seed_from_u64(seed);
        let cluster = Cluster::new(SERVICES);
        let mut alive = vec![("m0".to_owned(), cluster.start("m0"))];
        until("the first holds it", || alive[0].1.holds(SECOND)).await;
        let mut ended = Vec::new();
        for round in 1..8 {
            let name = format!("m{round}");
            alive.push((name.clone(), cluster.start(&name)));
            until("the next one holds its own", || alive[1].1.holds(&name)).await;
            cluster.request_service(&format!("s{round}"));
            tokio::time::sleep(Duration::from_millis(random.random_range(0..4_000))).await;
            let (name, last) = alive.remove(0);
            let limit = end(&cluster, &name, &last, &mut random);
            let silent = wait_for_takeover(&cluster, &last, &alive[0].1).await;
            assert!(silent < limit, "seed {seed}, round {round}: {silent:?}");
            ended.push(last);
        }
        until("all are served", || (1..8).all(|round| cluster.is_served(&format!("s{round}")))).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        cluster.assert_fenced();
        assert!(ended.iter().all(|manager| manager.life.is_over() || manager.task.is_finished()), "seed {seed}");
    }
}

//! A controller that moves between managers that die at any request, cannot renew, or cannot release. However one ends: what it writes
//! leaves while it holds the second lease, nobody else holds it at the same time, and it has another holder soon.

use cloud_controller_manager::sandbox::{api_server::RequestRecord, http::Verb};
use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::{mortal::LastRequest, seeds, *};

/// The lease lasts for 15 s and is looked at every 2 s or so.
const TAKEN_OVER: Duration = Duration::from_secs(20);

/// Writes of this lease by the manager called `name`.
fn lease_writes(name: &str, lease: &'static str) -> impl Fn(&RequestRecord) -> bool + Send + Sync + use<> {
    let agent = format!("{name}/");
    move |request| {
        let is_lease = request.resource == "leases" && request.name == lease;
        is_lease && request.verb == Verb::Update && request.user_agent.starts_with(&agent)
    }
}

/// Two managers, of which the first holds the second lease and serves.
async fn pair(cluster: &Cluster) -> [Manager; 2] {
    let old = cluster.start("old");
    until("the first holds both", || old.holds("old") && old.holds(SECOND)).await;
    let new = cluster.start("new");
    until("the other holds its own", || new.holds("new")).await;
    cluster.ask("before");
    until("the first serves", || cluster.is_served("before")).await;
    [old, new]
}

/// How long it takes until the other one holds the second lease; they never hold it both.
async fn taken_over(cluster: &Cluster, old: &Manager, new: &Manager) -> Duration {
    until("the other holds the second lease", || {
        assert!(!(old.holds(SECOND) && new.holds(SECOND)), "both hold it");
        cluster.assert_fenced();
        new.holds(SECOND)
    })
    .await
}

/// The other one does the work, and nothing of the first one's comes late.
async fn goes_on(cluster: &Cluster) {
    cluster.ask("after");
    until("the other serves", || cluster.is_served("before") && cluster.is_served("after")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    cluster.assert_fenced();
}

async fn requests_of_a_manager() -> usize {
    let cluster = Cluster::new(SERVICES);
    cluster.ask("before");
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
            cluster.ask("before");
            let old = cluster.start_for("old", Life::until(nth, last));
            until("the first is dead", || old.life.is_over()).await;
            let new = cluster.start("new");
            let silent = taken_over(&cluster, &old, &new).await;
            assert!(silent < TAKEN_OVER, "request {nth}, {last:?}: {silent:?}");
            goes_on(&cluster).await;
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
        let silent = taken_over(&cluster, &old, &new).await;
        assert!(silent > Duration::from_secs(5) && silent < TAKEN_OVER, "{fault}: {silent:?}");
        let ended = tokio::time::timeout(Duration::from_secs(60), old.task).await;
        assert_eq!(ended.unwrap().unwrap().unwrap(), ManagerOutcome::Stopped, "{fault}");
        goes_on(&cluster).await;
        // Its own lease was given up all the same, unless nothing of it arrives.
        assert_eq!(cluster.holder("old").is_some(), fault == "lost", "{fault}");
    }
}

/// Everything but the renewals of the second lease goes through.
#[tokio::test(start_paused = true)]
async fn who_cannot_renew_the_second_lease_stops_writing_before_another_begins() {
    for fault in ["500", "403", "hangs"] {
        let cluster = Cluster::new(SERVICES);
        let [old, new] = pair(&cluster).await;
        let faults = cluster.server.faults();
        match fault {
            "hangs" => faults.hang_every(lease_writes("old", SECOND)),
            code => faults.fail_every(code.parse().unwrap(), lease_writes("old", SECOND)),
        }
        let asking = async {
            for number in 0..40 {
                cluster.ask(&format!("meanwhile-{number}"));
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        let (silent, ()) = tokio::join!(taken_over(&cluster, &old, &new), asking);
        assert!(silent < TAKEN_OVER + Duration::from_secs(5), "{fault}: {silent:?}");
        assert_eq!(old.task.await.unwrap().unwrap(), ManagerOutcome::LeaseLost, "{fault}");
        until("all are served", || (0..40).all(|number| cluster.is_served(&format!("meanwhile-{number}")))).await;
        goes_on(&cluster).await;
    }
}

/// Ends a manager in some way, and answers how long the lease may then be without a holder.
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
    TAKEN_OVER + Duration::from_secs(5)
}

#[tokio::test(start_paused = true)]
async fn managers_in_turn_run_it_one_at_a_time() {
    for seed in seeds::printed(0..8) {
        let mut random = SmallRng::seed_from_u64(seed);
        let cluster = Cluster::new(SERVICES);
        let mut alive = vec![("m0".to_owned(), cluster.start("m0"))];
        until("the first holds it", || alive[0].1.holds(SECOND)).await;
        let mut ended = Vec::new();
        for turn in 1..8 {
            let name = format!("m{turn}");
            alive.push((name.clone(), cluster.start(&name)));
            until("the next one holds its own", || alive[1].1.holds(&name)).await;
            cluster.ask(&format!("s{turn}"));
            tokio::time::sleep(Duration::from_millis(random.random_range(0..4_000))).await;
            let (name, last) = alive.remove(0);
            let limit = end(&cluster, &name, &last, &mut random);
            let silent = taken_over(&cluster, &last, &alive[0].1).await;
            assert!(silent < limit, "seed {seed}, turn {turn}: {silent:?}");
            ended.push(last);
        }
        until("all are served", || (1..8).all(|turn| cluster.is_served(&format!("s{turn}")))).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        cluster.assert_fenced();
        assert!(ended.iter().all(|manager| manager.life.is_over() || manager.task.is_finished()), "seed {seed}");
    }
}

//! Random faults of the API server at random moments, while Services are created and deleted and two replicas compete. Input: a seed.
//! Output: a panic that names the seed, unless exactly the existing Services have a load balancer and one replica leads after the
//! recovery.

use std::{collections::BTreeSet, time::Duration};

use cloud_controller_manager::{
    providers::fake::{FakeCloud, FakeConfig},
    sandbox::{
        api_server::{ApiServer, RequestRecord},
        faults::Manner,
        http::Verb,
    },
};
use k8s_openapi::api::core::v1::Service;
use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use tokio::time::{sleep, timeout};

use crate::api_server_faults::{Replica, clock, create_service, holder, is_served, seeds, start_on};

/// Number of faults and changes of one history.
const STEPS: usize = 24;
/// Time after which all work must be done: a replica that ended is restarted, and retries may be in backoff for minutes.
pub(crate) const RECOVERED: Duration = Duration::from_secs(900);

/// Returns a random filter for requests that the manager sends often.
fn request(random: &mut SmallRng) -> impl Fn(&RequestRecord) -> bool + Send + Sync + use<> {
    let verbs = [Verb::List, Verb::Watch, Verb::Patch, Verb::Get, Verb::Update, Verb::Create];
    let verb = *verbs.choose(random).unwrap();
    let resource = *["services", "nodes", "leases", "events"].choose(random).unwrap();
    move |request: &RequestRecord| request.verb == verb && request.resource == resource
}

fn inject_fault(server: &ApiServer, random: &mut SmallRng) {
    let (faults, count) = (server.faults(), random.random_range(1..4));
    let matches = request(random);
    match random.random_range(0..13) {
        0 => faults.hang_next(count, matches),
        1 => faults.hang_every(matches),
        2 => faults.serve_next(count, Manner::Half, matches),
        3 => faults.serve_next(count, Manner::Trickle(Duration::from_millis(200)), matches),
        4 => faults.serve_next(count, Manner::Expired, matches),
        5 => faults.serve_every(Manner::WithoutBookmarks, matches),
        6 => faults.throttle_next(count, random.random_range(1..30), matches),
        7 => faults.fail_next(count, *[409, 410, 422, 500, 503, 504].choose(random).unwrap(), matches),
        8 => faults.delay_every(Duration::from_secs(random.random_range(1..20)), matches),
        9 => faults.stall_watches(),
        10 => faults.drop_watches(),
        11 => faults.compact(),
        _ => faults.clear(),
    }
}

/// Creates or deletes a Service.
pub(crate) fn change(server: &ApiServer, alive: &mut BTreeSet<String>, step: usize, random: &mut SmallRng) {
    let names: Vec<_> = alive.iter().cloned().collect();
    match names.choose(random) {
        Some(name) if random.random_bool(0.4) => {
            server.delete::<Service>("default", name);
            alive.remove(name);
        }
        _ => {
            let name = format!("s{step}");
            create_service(server, &name);
            alive.insert(name);
        }
    }
}

/// Restarts the replicas that have ended, as the kubelet does.
fn restart(replicas: &mut [Replica], server: &ApiServer, cloud: &FakeCloud) {
    for replica in replicas.iter_mut().filter(|replica| replica.ended.is_finished()) {
        *replica = start_on(server, cloud.replica());
    }
}

pub(crate) fn is_settled(server: &ApiServer, cloud: &FakeCloud, alive: &BTreeSet<String>) -> bool {
    let services = server.list::<Service>();
    let names: BTreeSet<_> = services.iter().filter_map(|service| service.metadata.name.clone()).collect();
    names == *alive
        && names.iter().all(|name| is_served(server, name))
        && cloud.load_balancers().len() == alive.len()
        && cloud.leaks(&services).is_empty()
        && holder(server).is_some()
}

async fn history(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let (server, cloud, mut alive) = (ApiServer::new(clock()), FakeCloud::new(FakeConfig::any_node()), BTreeSet::new());
    let mut replicas = [start_on(&server, cloud.replica()), start_on(&server, cloud.replica())];
    for step in 0..STEPS {
        change(&server, &mut alive, step, &mut random);
        inject_fault(&server, &mut random);
        for _ in 0..random.random_range(1..6) {
            sleep(Duration::from_secs(random.random_range(1..30))).await;
            restart(&mut replicas, &server, &cloud);
        }
    }
    server.faults().clear();
    let recovered = async {
        while !is_settled(&server, &cloud, &alive) {
            sleep(Duration::from_secs(1)).await;
            restart(&mut replicas, &server, &cloud);
        }
    };
    let outcome = timeout(RECOVERED, recovered).await;
    let report = || format!("of {alive:?} in the cloud {:?}, leader {:?}", cloud.load_balancers().keys(), holder(&server));
    assert!(outcome.is_ok(), "seed {seed}: {}", report());
}

/// Runs a history on a paused clock.
pub(crate) fn run(history: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(history);
}

#[test]
fn random_faults_leave_nothing_undone() {
    seeds::sweep(0..12, |seed| run(history(seed)));
}

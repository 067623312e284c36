//! Faults around a manager: an API server that is restored from a backup, a wall clock that jumps, a login service with failures or false
//! responses. In the end there is one public IP for each Service, and no other.

use std::{collections::BTreeSet, time::Duration};

use cloud_controller_manager::sandbox::azure::{Effect, Fault};
use jiff::SignedDuration;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde_json::Value;

use crate::azure_services::{
    cluster::{Cluster, HOUR, addresses, run_paused},
    seeds,
    services::{external, set_port},
};

const MONTH: i64 = 30 * 24 * 3600;

fn public_addresses(cluster: &Cluster) -> BTreeSet<String> {
    let documents = cluster.public_ips();
    let address = |document: &Value| document["properties"]["ipAddress"].as_str().unwrap_or_default().to_owned();
    documents.iter().map(address).collect()
}

/// Waits until nothing is left to do, and asserts that there is exactly one public IP for each Service.
async fn settled(cluster: &Cluster) {
    cluster.until_ready(HOUR).await;
    cluster.settle().await;
    let expected: BTreeSet<String> = cluster.services().iter().flat_map(addresses).collect();
    assert_eq!(expected.len(), cluster.services().len());
    assert_eq!(public_addresses(cluster), expected);
}

/// Deletes all Services, and asserts that no public IP is left.
async fn emptied(cluster: &Cluster) {
    let names: Vec<String> = cluster.services().into_iter().filter_map(|service| service.metadata.name).collect();
    names.iter().for_each(|name| cluster.delete(name));
    cluster.until_all_deleted(HOUR).await;
    cluster.settle().await;
    assert_eq!(public_addresses(cluster), BTreeSet::new());
}

/// The leader ends when the restored Lease is older than its own (`tests/api_server_faults`), so another process starts on the restored
/// state.
#[tokio::test(start_paused = true)]
async fn a_restored_api_server_leaks_no_public_ip() {
    let cluster = Cluster::with_two_nodes();
    let manager = cluster.start();
    ["a", "b", "c"].iter().for_each(|name| drop(cluster.create(&external(name))));
    settled(&cluster).await;
    let backup = cluster.server.faults().backup();
    cluster.delete("b");
    cluster.change("a", |service| set_port(service, 8080));
    cluster.until_deleted("b").await;
    settled(&cluster).await;
    cluster.server.faults().restore(&backup);
    manager.kill();

    let _manager = cluster.start();
    cluster.until("b has its public IP again", HOUR, |cluster| public_addresses(cluster).len() == 3).await;
    settled(&cluster).await;
    emptied(&cluster).await;
}

fn jumping(seed: u64) {
    run_paused(async {
        let mut random = SmallRng::seed_from_u64(seed);
        let cluster = Cluster::with_two_nodes();
        let _manager = cluster.start();
        for step in 0..12 {
            cluster.jump(SignedDuration::from_secs(random.random_range(-MONTH..MONTH)));
            match random.random_range(0..3) {
                0 if step > 2 => cluster.delete(&format!("s{}", random.random_range(0..step))),
                _ => drop(cluster.create(&external(&format!("s{step}")))),
            }
            tokio::time::sleep(Duration::from_secs(random.random_range(1..120))).await;
        }
        settled(&cluster).await;
        emptied(&cluster).await;
    });
}

#[test]
fn a_jumping_clock_leaks_no_public_ip() {
    seeds::sweep(0..4, jumping);
}

/// Returns false responses of a login service.
fn lies() -> [Effect; 7] {
    [
        Effect::Garbage,
        Effect::Truncated,
        Effect::ProxyPage(200),
        Effect::Refuse(401, "invalid_client".to_owned(), None),
        Effect::Refuse(429, "TooManyRequests".to_owned(), Some(5)),
        Effect::NoConnection,
        Effect::Hang,
    ]
}

#[test]
fn a_lying_login_service_delays_and_leaks_nothing() {
    const LOGIN: &str = "*/oauth2/v2.0/token";
    for lie in lies() {
        run_paused(async {
            let cluster = Cluster::with_two_nodes();
            let _manager = cluster.start();
            cluster.create(&external("before"));
            settled(&cluster).await;
            // From now on ARM refuses the token, and no new one is issued.
            cluster.azure().clear_requests();
            cluster.azure().add_fault(Fault::new(lie.clone()).path(LOGIN));
            cluster.azure().add_fault(Fault::new(Effect::ExpireToken).path("/subscriptions/*"));
            cluster.create(&external("meanwhile"));
            cluster.delete("before");
            tokio::time::sleep(HOUR / 2).await;
            assert!(cluster.service("before").is_some(), "{lie:?}: its public IP is still there");
            assert_eq!(public_addresses(&cluster).len(), 1, "{lie:?}");
            let logins = cluster.azure().count(|request| request.path.ends_with("/token"));
            assert!((1..500).contains(&logins), "{lie:?}: {logins} logins in half an hour");

            cluster.azure().faults().clear();
            cluster.until_deleted("before").await;
            settled(&cluster).await;
            emptied(&cluster).await;
        });
    }
}

//! A seed replays exactly: the simulated ARM gets the same requests, at the same moments and in the same order.

use crate::azure_services::{
    cluster::{Cluster, run_paused},
    seeds, sequences, storm,
};

/// Returns all requests to the cloud with their times since the first one.
fn log(cluster: &Cluster) -> Vec<String> {
    let requests = cluster.azure().requests();
    let first = requests.first().map(|request| request.at);
    let line = |request: &cloud_controller_manager::sandbox::azure::RequestRecord| {
        let at = first.map(|first| request.at - first).unwrap_or_default();
        let (method, path, query) = (&request.method, &request.path, &request.query);
        format!("{at:?} {method} {path}?{query} {} bytes: {} with {} bytes", request.sent, request.status, request.bytes)
    };
    requests.iter().map(line).collect()
}

fn assert_same(seed: u64, runs: &[Vec<String>; 2]) {
    let [first, second] = runs;
    let at = first.iter().zip(second).position(|(a, b)| a != b).unwrap_or(first.len().min(second.len()));
    let around = |log: &[String]| log[at.saturating_sub(4).min(log.len())..(at + 3).min(log.len())].join("\n");
    let (length, other_length) = (first.len(), second.len());
    assert!(
        first == second,
        "seed {seed}: request {at} of {length} and {other_length} differs\n{}\n---\n{}",
        around(first),
        around(second)
    );
    assert!(length > 50, "seed {seed}: {length} requests");
}

#[test]
fn ten_storms_twice_send_the_same_requests() {
    seeds::each_seed(0..10, |seed| {
        let run = |_| run_paused(async { log(&storm::disturbed(seed, storm::Layout::of(seed)).await.0) });
        assert_same(seed, &[0, 1].map(run));
    });
}

#[test]
fn ten_histories_twice_send_the_same_requests() {
    seeds::each_seed(0..10, |seed| {
        let run = |_| run_paused(async { log(&sequences::run_history(seed).await.0) });
        assert_same(seed, &[0, 1].map(run));
    });
}

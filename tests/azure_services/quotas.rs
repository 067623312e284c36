//! Azure's quotas, enforced by the simulator: of principals, of the network provider, and of compute resources. Scenarios count refused and
//! waiting requests, and refusals of a neighbor in the same subscription.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use cloud_controller_manager::{
    controllers::service::conditions,
    sandbox::{
        azure::{
            Azure, AzureOptions, Class, Effect, Fault, Latencies, Latency, Quotas, RequestRecord,
            entra::Principal,
            topology::{PoolKind, Topology},
        },
        objects::load_balancer_service,
    },
};
use http::{Method, Request};
use k8s_openapi::api::core::v1::Service;
use tokio::{
    task::JoinHandle,
    time::{Instant, interval, sleep},
};

use crate::azure_services::{
    cluster::{Cluster, HOUR, MINUTE, Manager, is_ready, run_paused, ten_nodes},
    scale::as_slow_as_azure,
    services::{annotate, external},
    wire::Objection,
};

const SECOND: Duration = Duration::from_secs(1);
/// Window of the network provider's quota.
const WINDOW: Duration = Duration::from_secs(300);
/// Half of the network provider's writes.
const HALF: u32 = 500;
/// Number of the network provider's writes that the program may borrow beyond its share.
const BORROWED: usize = 50;
/// Most writes of the load balancer while the budget spreads 600 public IPs over two windows.
const BALANCER_WRITES: usize = 8;
const NEIGHBOR: &str = "neighbor";

/// Returns the series of requests that waited for the budget.
fn waits(manager: &Manager) -> Vec<String> {
    let metrics = manager.metrics.render().unwrap();
    let counts = metrics.lines().filter(|line| line.starts_with("azure_arm_budget_wait_seconds_count"));
    counts.filter(|line| !line.contains("bucket=\"none\"")).map(str::to_owned).collect()
}

fn is_of_neighbor(request: &RequestRecord) -> bool {
    request.user_agent == NEIGHBOR
}

/// Returns the numbers of responses with status 429 to the neighbor and to other clients.
fn refused(azure: &Azure) -> (usize, usize) {
    let refused = |is_neighbor| azure.count(|request| request.status == 429 && is_of_neighbor(request) == is_neighbor);
    (refused(true), refused(false))
}

fn create(cluster: &Cluster, count: usize, first: usize) {
    (first..first + count).for_each(|index| drop(cluster.create(&external(&format!("s{index}")))));
}

fn delete(cluster: &Cluster, count: usize, first: usize) {
    (first..first + count).for_each(|index| cluster.delete(&format!("s{index}")));
}

/// Starts a client with its own identity that writes network resources of the subscription at a constant rate, half of the quota.
fn neighbor(cluster: &Cluster) -> JoinHandle<()> {
    let (azure, topology) = (cluster.azure().clone(), cluster.cloud.topology());
    let principal = Principal::new(&topology.tenant, NEIGHBOR);
    let endpoints = cluster.cloud.endpoints();
    let (token, _) =
        cluster.cloud.with_directory(|directory| directory.issue(&principal, &endpoints.audience, cluster.now()));
    let table = topology.group_id().resource("Microsoft.Network/routeTables", &[NEIGHBOR]);
    let url = format!("{}{table}?api-version=2024-05-01", endpoints.resource_manager.trim_end_matches('/'));
    let request = move || {
        let body = format!(r#"{{"location": "{}", "properties": {{"routes": []}}}}"#, topology.location);
        let request = Request::builder().method(Method::PUT).uri(&url).header("user-agent", NEIGHBOR);
        request.header("authorization", format!("Bearer {token}")).body(Bytes::from(body)).unwrap()
    };
    tokio::spawn(async move {
        let mut ticks = interval(WINDOW / HALF);
        loop {
            ticks.tick().await;
            azure.respond(request()).await.unwrap();
        }
    })
}

#[tokio::test(start_paused = true)]
async fn service_churn_never_waits_for_the_budget() {
    let cluster = Cluster::new(ten_nodes(), as_slow_as_azure());
    let (manager, start) = (cluster.start(), Instant::now());
    for wave in 0..15 {
        create(&cluster, 10, wave * 10);
        cluster.until_ready(HOUR).await;
        delete(&cluster, 10, wave * 10);
        cluster.until_all_deleted(HOUR).await;
    }
    println!("150 Services in waves of ten: {:?}, {} writes", start.elapsed(), cluster.writes().len());
    assert_eq!(waits(&manager), Vec::<String>::new());
    assert_eq!(refused(cluster.azure()), (0, 0));
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_neighbor_with_half_of_the_quota_is_never_refused() {
    let cluster = Cluster::new(ten_nodes(), as_slow_as_azure());
    let neighbor = neighbor(&cluster);
    let manager = cluster.start();
    for _ in 0..2 {
        create(&cluster, 200, 0);
        cluster.until_ready(HOUR).await;
        delete(&cluster, 200, 0);
        cluster.until_all_deleted(HOUR).await;
        tokio::time::sleep(WINDOW).await;
    }
    assert_eq!(refused(cluster.azure()), (0, 0));
    assert!(cluster.azure().count(is_of_neighbor) >= 2 * HALF as usize, "it wrote as much as it could");
    neighbor.abort();
    manager.stop().await;
}

/// Creates 600 Services at once. Returns the neighbor's refusals in the first window and in the next two, then those of this program.
async fn create_600_next_to_a_neighbor(share_percent: u8) -> (usize, usize, usize) {
    let topology = Topology::new().pools(PoolKind::Uniform, 1, 3);
    // Allows more rules than fit on a network interface.
    let cluster = Cluster::new(topology, as_slow_as_azure())
        .configured("requestSharePercent", share_percent)
        .configured("maximumNetworkInterfaceRuleCount", 1_500);
    let (neighbor, start) = (neighbor(&cluster), Instant::now());
    let manager = cluster.start();
    create(&cluster, 600, 0);
    let took = cluster.until_ready(HOUR).await;
    tokio::time::sleep_until(start + 3 * WINDOW).await;
    let azure = cluster.azure();
    let late = azure.count(|request| request.status == 429 && is_of_neighbor(request) && request.at >= start + WINDOW);
    let (of_neighbor, of_program) = refused(azure);
    let balancer_writes =
        azure.count(|request| request.class == Class::Write && request.resource_type == "microsoft.network/loadbalancers");
    println!(
        "600 Services next to a neighbor, {share_percent} %: {took:?}; {of_neighbor} of the neighbor's {} writes refused, {late} of \
         them after the first window, and {of_program} of the program's; {balancer_writes} writes of the load balancer",
        azure.count(is_of_neighbor)
    );
    assert!(balancer_writes <= BALANCER_WRITES, "{balancer_writes} writes of the load balancer");
    neighbor.abort();
    manager.stop().await;
    (of_neighbor - late, late, of_program)
}

#[test]
fn more_than_the_share_is_borrowed_once_and_little() {
    let (first, late, own) = run_paused(create_600_next_to_a_neighbor(50));
    assert!(first <= BORROWED, "{first} of the neighbor's requests");
    assert!(late == 0, "{late} of the neighbor's requests");
    assert!(own <= 1, "{own} of the program's requests");
}

#[test]
fn a_share_of_100_percent_gets_a_neighbor_throttled() {
    let (first, ..) = run_paused(create_600_next_to_a_neighbor(100));
    assert!(first > BORROWED, "{first} of the neighbor's requests: the simulator's quota is not shared");
}

/// Calls `disturb` every half second for seven minutes, and creates a Service of namespace `quiet` every 40 s. Returns the time until each of
/// these was ready.
async fn victims(cluster: &Cluster, disturb: impl Fn(usize)) -> Vec<Duration> {
    let (start, mut created, mut took) = (Instant::now(), Vec::new(), Vec::new());
    for round in 0..840 {
        disturb(round);
        if round % 80 == 0 {
            let name = format!("victim{round}");
            cluster.create(&load_balancer_service("quiet", &name));
            created.push((name, Instant::now()));
        }
        sleep(Duration::from_millis(500)).await;
        let services = cluster.services();
        let ready = |name: &str| services.iter().any(|it| it.metadata.name.as_deref() == Some(name) && is_ready(it));
        created.retain(|(name, at)| {
            if ready(name) {
                took.push(at.elapsed());
            }
            !ready(name)
        });
    }
    assert!(start.elapsed() >= Duration::from_secs(420));
    assert_eq!(created, [], "still not ready");
    took
}

/// Edits the DNS label of `count` Services of one namespace to labels that ARM rejects. Returns the times of Services of another one.
async fn victims_of_constant_edits(count: usize) -> Vec<Duration> {
    let cluster = Cluster::new(ten_nodes(), as_slow_as_azure());
    cluster.objections.add(Objection {
        kind: "publicIPAddresses",
        text: "\"domainNameLabel\":\"taken".to_owned(),
        code: "DnsRecordInUse",
        message: "DNS record taken.eastus.cloudapp.azure.com is already used by another public IP.".to_owned(),
    });
    let manager = cluster.start();
    create(&cluster, count, 0);
    cluster.until_ready(HOUR).await;
    let edit = |round: usize| {
        let label = format!("taken-{}", round % 2);
        for index in 0..count {
            cluster.change(&format!("s{index}"), |service| annotate(service, "azure-dns-label-name", Some(&label)));
        }
    };
    let took = victims(&cluster, edit).await;
    println!("{count} edited Services: {took:?}, waits: {:?}", waits(&manager));
    manager.stop().await;
    took
}

#[test]
fn constant_edits_in_one_namespace_do_not_delay_others() {
    let calm = run_paused(victims_of_constant_edits(0)).into_iter().max().unwrap();
    for count in [3, 60] {
        let slowest = run_paused(victims_of_constant_edits(count)).into_iter().max().unwrap();
        assert!(slowest <= calm + Duration::from_secs(10), "{slowest:?} next to {count} edited Services, {calm:?} without");
    }
}

/// Returns options with writes that take 200 ms, and Azure's quotas.
fn fast_writes() -> AzureOptions {
    let takes = Latency { respond: Duration::ZERO, operation: Duration::from_millis(200) };
    let latencies = Latencies::default().with(Class::Write, "*", takes).with(Class::Delete, "*", takes);
    AzureOptions { latencies, quotas: Quotas::azure(), ..AzureOptions::default() }
}

/// Creates five Services of one namespace if there are none, and deletes them if all are ready.
fn churn(cluster: &Cluster) {
    let of_churn = |service: &Service| service.metadata.namespace.as_deref() == Some("churn");
    let services: Vec<Service> = cluster.services().into_iter().filter(of_churn).collect();
    if services.is_empty() {
        (0..5).for_each(|index| drop(cluster.create(&load_balancer_service("churn", &format!("c{index}")))));
    } else if services.iter().all(|service| is_ready(service) && service.metadata.deletion_timestamp.is_none()) {
        for index in 0..5 {
            cluster.server.delete::<Service>("churn", &format!("c{index}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn creating_and_deleting_in_a_loop_delays_no_other_namespace() {
    let cluster = Cluster::new(ten_nodes(), fast_writes());
    let manager = cluster.start();
    let took = victims(&cluster, |_| churn(&cluster)).await;
    println!("next to five Services in a loop: {took:?}, {} writes, waits: {:?}", cluster.writes().len(), waits(&manager));
    assert!(took.iter().all(|took| *took <= 10 * SECOND), "{took:?}");
    assert!(cluster.writes().len() > HALF as usize, "the loop was limited");
    assert_eq!(refused(cluster.azure()), (0, 0));
    manager.stop().await;
}

/// Changes tags, timeout and source ranges of a Service, each round to the other of two values.
fn edit(service: &mut Service, round: usize) {
    let (timeout, range) = if round.is_multiple_of(2) { ("5", "203.0.113.0/24") } else { ("6", "198.51.100.0/24") };
    annotate(service, "azure-pip-tags", Some(&format!("round={timeout}")));
    annotate(service, "azure-load-balancer-tcp-idle-timeout", Some(timeout));
    annotate(service, "azure-allowed-ip-ranges", Some(range));
}

#[tokio::test(start_paused = true)]
async fn edits_in_three_namespaces_delay_no_fourth() {
    let cluster = Cluster::new(ten_nodes(), fast_writes());
    let names = |namespace: &'static str| (0..20).map(move |index| (namespace, format!("s{index}")));
    let noisy: Vec<_> = ["a", "b", "c"].into_iter().flat_map(names).collect();
    noisy.iter().for_each(|(namespace, name)| drop(cluster.create(&load_balancer_service(namespace, name))));
    let manager = cluster.start();
    cluster.until_ready(HOUR).await;
    let disturb = |round: usize| {
        for (namespace, name) in &noisy {
            cluster.server.update_with(namespace, name, |service: &mut Service| edit(service, round));
        }
    };
    let took = victims(&cluster, disturb).await;
    println!("next to 60 edited Services: {took:?}, {} writes, waits: {:?}", cluster.writes().len(), waits(&manager));
    assert!(took.iter().all(|took| *took <= 10 * SECOND), "{took:?}");
    assert_eq!(refused(cluster.azure()), (0, 0));
    let message = |service: &Service| conditions::current(service).map(|condition| condition.message.clone());
    let messages: Vec<String> = cluster.services().iter().filter_map(message).collect();
    let names_share = |message: &String| message.contains("has used its share of the request quota network-writes");
    assert!(messages.iter().any(names_share), "{messages:?}");
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn edits_of_many_services_are_undone_within_a_minute() {
    // Allows more rules than fit on a network interface.
    let cluster = Cluster::new(ten_nodes(), fast_writes()).configured("maximumNetworkInterfaceRuleCount", 1_500);
    create(&cluster, 300, 0);
    let manager = cluster.start();
    cluster.until_ready(HOUR).await;
    cluster.settle().await;
    let set_timeouts = |timeout: Option<&str>| {
        for index in 0..300 {
            let key = "azure-load-balancer-tcp-idle-timeout";
            cluster.change(&format!("s{index}"), |service| annotate(service, key, timeout));
        }
    };
    set_timeouts(Some("17"));
    sleep(MINUTE).await;
    assert_eq!(timeouts(&cluster), [17]);
    set_timeouts(None);
    let took = cluster.until("all are back", MINUTE, |cluster| timeouts(cluster) == [4]).await;
    println!("300 Services are back after {took:?}");
    manager.stop().await;
}

/// Returns the distinct idle timeouts of all load balancing rules.
fn timeouts(cluster: &Cluster) -> Vec<i64> {
    let balancers = cluster.balancers();
    let rules = balancers.iter().flat_map(|balancer| balancer["properties"]["loadBalancingRules"].as_array().unwrap());
    let timeouts: BTreeSet<i64> =
        rules.map(|rule| rule["properties"]["idleTimeoutInMinutes"].as_i64().unwrap_or(4)).collect();
    timeouts.into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn the_condition_of_a_service_says_that_it_waits_for_a_quota() {
    let cluster = Cluster::with_ten_nodes();
    let throttled = Fault::new(Effect::Refuse(429, "TooManyRequests".into(), Some(120))).class(Class::Write).times(1);
    cluster.azure().add_fault(throttled);
    let manager = cluster.start();
    cluster.create(&external("web"));
    let condition = |cluster: &Cluster| {
        let status = cluster.service("web").and_then(|service| service.status);
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        conditions.into_iter().next().map(|condition| (condition.reason, condition.message))
    };
    let is_waiting = |cluster: &Cluster| condition(cluster).is_some_and(|(reason, _)| reason == "Waiting");
    cluster.until("the condition says what it waits for", 15 * SECOND, is_waiting).await;
    let (_, message) = condition(&cluster).unwrap();
    assert!(message.contains("request quota") && message.contains("until 2026-01-01T00:0"), "{message}");
    cluster.until_ready(5 * MINUTE).await;
    let ready = |cluster: &Cluster| condition(cluster).is_some_and(|(reason, _)| reason == "Ready");
    cluster.until("it is ready", 15 * SECOND, ready).await;
    manager.stop().await;
}

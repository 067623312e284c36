//! Azure's quotas, enforced by the simulator: each principal's, the network provider's, those of compute's resources. What is
//! refused, what waits, and what becomes of a neighbour in the same subscription.

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
    cluster::{Cluster, HOUR, Life, MINUTE, alone, is_ready, ten_nodes},
    scale::as_slow_as_azure,
    services::{annotate, external},
    wire::Objection,
};

const SECOND: Duration = Duration::from_secs(1);
/// What the network provider counts by.
const WINDOW: Duration = Duration::from_secs(300);
/// Half of the network provider's writes.
const HALF: u32 = 500;
/// What a share may borrow of the network provider's writes.
const BORROWED: usize = 50;
/// Most writes of the load balancer while the budget spreads 600 public IPs over two windows.
const BALANCER_WRITES: usize = 8;
const NEIGHBOUR: &str = "neighbour";

/// Requests that the budget made wait.
fn waits(life: &Life) -> Vec<String> {
    let metrics = life.metrics.render().unwrap();
    let counts = metrics.lines().filter(|line| line.starts_with("azure_arm_budget_wait_seconds_count"));
    counts.filter(|line| !line.contains("bucket=\"none\"")).map(str::to_owned).collect()
}

fn is_neighbours(request: &RequestRecord) -> bool {
    request.user_agent == NEIGHBOUR
}

/// Requests that were answered 429, of the neighbour's and of the others.
fn refused(azure: &Azure) -> (usize, usize) {
    let refused = |neighbours| azure.count(|request| request.status == 429 && is_neighbours(request) == neighbours);
    (refused(true), refused(false))
}

fn create(cluster: &Cluster, count: usize, first: usize) {
    (first..first + count).for_each(|index| drop(cluster.create(&external(&format!("s{index}")))));
}

fn delete(cluster: &Cluster, count: usize, first: usize) {
    (first..first + count).for_each(|index| cluster.delete(&format!("s{index}")));
}

/// A client with an identity of its own that writes network resources of the subscription, evenly, half of what the provider allows.
fn neighbour(cluster: &Cluster) -> JoinHandle<()> {
    let (azure, topology) = (cluster.azure().clone(), cluster.world.topology());
    let principal = Principal::new(&topology.tenant, NEIGHBOUR);
    let endpoints = cluster.world.endpoints();
    let (token, _) =
        cluster.world.with_directory(|directory| directory.issue(&principal, &endpoints.audience, cluster.now()));
    let table = topology.group_id().resource("Microsoft.Network/routeTables", &[NEIGHBOUR]);
    let url = format!("{}{table}?api-version=2024-05-01", endpoints.resource_manager.trim_end_matches('/'));
    let request = move || {
        let body = format!(r#"{{"location": "{}", "properties": {{"routes": []}}}}"#, topology.location);
        let request = Request::builder().method(Method::PUT).uri(&url).header("user-agent", NEIGHBOUR);
        request.header("authorization", format!("Bearer {token}")).body(Bytes::from(body)).unwrap()
    };
    tokio::spawn(async move {
        let mut turns = interval(WINDOW / HALF);
        loop {
            turns.tick().await;
            azure.respond(request()).await.unwrap();
        }
    })
}

#[tokio::test(start_paused = true)]
async fn services_that_come_and_go_never_wait_for_the_budget() {
    let cluster = Cluster::new(ten_nodes(), as_slow_as_azure());
    let (life, start) = (cluster.start(), Instant::now());
    for wave in 0..15 {
        create(&cluster, 10, wave * 10);
        cluster.until_ready(HOUR).await;
        delete(&cluster, 10, wave * 10);
        cluster.until_gone(HOUR).await;
    }
    println!("150 Services in waves of ten: {:?}, {} writes", start.elapsed(), cluster.writes().len());
    assert_eq!(waits(&life), Vec::<String>::new());
    assert_eq!(refused(cluster.azure()), (0, 0));
    life.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_with_half_of_the_quota_is_never_refused() {
    let cluster = Cluster::new(ten_nodes(), as_slow_as_azure());
    let neighbour = neighbour(&cluster);
    let life = cluster.start();
    for _ in 0..2 {
        create(&cluster, 200, 0);
        cluster.until_ready(HOUR).await;
        delete(&cluster, 200, 0);
        cluster.until_gone(HOUR).await;
        tokio::time::sleep(WINDOW).await;
    }
    assert_eq!(refused(cluster.azure()), (0, 0));
    assert!(cluster.azure().count(is_neighbours) >= 2 * HALF as usize, "it wrote as much as it could");
    neighbour.abort();
    life.stop().await;
}

/// Six hundred Services at once: the neighbour's refusals in the first window and in the two after it, then those of this program.
async fn six_hundred_beside_a_neighbour(share_percent: u8) -> (usize, usize, usize) {
    let topology = Topology::new().pools(PoolKind::Uniform, 1, 3);
    // More than fit at a network interface.
    let cluster = Cluster::new(topology, as_slow_as_azure())
        .configured("requestSharePercent", share_percent)
        .configured("maximumNetworkInterfaceRuleCount", 1_500);
    let (neighbour, start) = (neighbour(&cluster), Instant::now());
    let life = cluster.start();
    create(&cluster, 600, 0);
    let took = cluster.until_ready(HOUR).await;
    tokio::time::sleep_until(start + 3 * WINDOW).await;
    let azure = cluster.azure();
    let late = azure.count(|one| one.status == 429 && is_neighbours(one) && one.at >= start + WINDOW);
    let (of_neighbour, of_program) = refused(azure);
    let balancer_writes =
        azure.count(|request| request.class == Class::Write && request.resource_type == "microsoft.network/loadbalancers");
    println!(
        "600 Services beside a neighbour, {share_percent} %: {took:?}; {of_neighbour} of the neighbour's {} writes refused, {late} of \
         them after the first window, and {of_program} of the program's; {balancer_writes} writes of the load balancer",
        azure.count(is_neighbours)
    );
    assert!(balancer_writes <= BALANCER_WRITES, "{balancer_writes} writes of the load balancer");
    neighbour.abort();
    life.stop().await;
    (of_neighbour - late, late, of_program)
}

#[test]
fn more_than_the_share_is_borrowed_once_and_little() {
    let (first, late, own) = alone(six_hundred_beside_a_neighbour(50));
    assert!(first <= BORROWED, "{first} of the neighbour's requests");
    assert!(late == 0, "{late} of the neighbour's requests");
    assert!(own <= 1, "{own} of the program's requests");
}

#[test]
fn a_share_of_all_is_felt_by_a_neighbour() {
    let (first, ..) = alone(six_hundred_beside_a_neighbour(100));
    assert!(first > BORROWED, "{first} of the neighbour's requests: the simulator's quota is not shared");
}

/// Calls `disturb` every half second for seven minutes, and creates a Service of namespace `quiet` every 40 s. Returns how long each of these
/// took to be ready.
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
        let ready = |name: &str| services.iter().any(|one| one.metadata.name.as_deref() == Some(name) && is_ready(one));
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

/// Edits the DNS label of `count` Services of one namespace to labels that ARM rejects. Returns how long Services of another took.
async fn victims_of_constant_edits(count: usize) -> Vec<Duration> {
    let cluster = Cluster::new(ten_nodes(), as_slow_as_azure());
    cluster.objections.add(Objection {
        kind: "publicIPAddresses",
        text: "\"domainNameLabel\":\"taken".to_owned(),
        code: "DnsRecordInUse",
        message: "DNS record taken.eastus.cloudapp.azure.com is already used by another public IP.".to_owned(),
    });
    let life = cluster.start();
    create(&cluster, count, 0);
    cluster.until_ready(HOUR).await;
    let edit = |round: usize| {
        let label = format!("taken-{}", round % 2);
        for index in 0..count {
            cluster.change(&format!("s{index}"), |service| annotate(service, "azure-dns-label-name", Some(&label)));
        }
    };
    let took = victims(&cluster, edit).await;
    println!("{count} edited Services: {took:?}, waits: {:?}", waits(&life));
    life.stop().await;
    took
}

#[test]
fn constant_edits_in_one_namespace_do_not_delay_others() {
    let calm = alone(victims_of_constant_edits(0)).into_iter().max().unwrap();
    for count in [3, 60] {
        let slowest = alone(victims_of_constant_edits(count)).into_iter().max().unwrap();
        assert!(slowest <= calm + Duration::from_secs(10), "{slowest:?} beside {count} edited Services, {calm:?} without");
    }
}

/// Writes that take 200 ms, and Azure's quotas.
fn fast_writes() -> AzureOptions {
    let takes = Latency { respond: Duration::ZERO, operation: Duration::from_millis(200) };
    let latencies = Latencies::default().with(Class::Write, "*", takes).with(Class::Delete, "*", takes);
    AzureOptions { latencies, quotas: Quotas::azure(), ..AzureOptions::default() }
}

/// Creates five Services of one namespace, deletes them when they are ready, and begins again.
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
    let life = cluster.start();
    let took = victims(&cluster, |_| churn(&cluster)).await;
    println!("beside five Services in a loop: {took:?}, {} writes, waits: {:?}", cluster.writes().len(), waits(&life));
    assert!(took.iter().all(|took| *took <= 10 * SECOND), "{took:?}");
    assert!(cluster.writes().len() > HALF as usize, "the loop was limited");
    assert_eq!(refused(cluster.azure()), (0, 0));
    life.stop().await;
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
    let life = cluster.start();
    cluster.until_ready(HOUR).await;
    let disturb = |round: usize| {
        for (namespace, name) in &noisy {
            cluster.server.update_with(namespace, name, |service: &mut Service| edit(service, round));
        }
    };
    let took = victims(&cluster, disturb).await;
    println!("beside 60 edited Services: {took:?}, {} writes, waits: {:?}", cluster.writes().len(), waits(&life));
    assert!(took.iter().all(|took| *took <= 10 * SECOND), "{took:?}");
    assert_eq!(refused(cluster.azure()), (0, 0));
    let message = |service: &Service| conditions::current(service).map(|condition| condition.message.clone());
    let messages: Vec<String> = cluster.services().iter().filter_map(message).collect();
    let names_share = |message: &String| message.contains("has used its share of the request quota network-writes");
    assert!(messages.iter().any(names_share), "{messages:?}");
    life.stop().await;
}

#[tokio::test(start_paused = true)]
async fn edits_of_many_services_are_undone_within_a_minute() {
    // More than fit at a network interface.
    let cluster = Cluster::new(ten_nodes(), fast_writes()).configured("maximumNetworkInterfaceRuleCount", 1_500);
    create(&cluster, 300, 0);
    let life = cluster.start();
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
    life.stop().await;
}

/// The different idle timeouts of all load balancing rules.
fn timeouts(cluster: &Cluster) -> Vec<i64> {
    let balancers = cluster.balancers();
    let rules = balancers.iter().flat_map(|balancer| balancer["properties"]["loadBalancingRules"].as_array().unwrap());
    let timeouts: BTreeSet<i64> =
        rules.map(|rule| rule["properties"]["idleTimeoutInMinutes"].as_i64().unwrap_or(4)).collect();
    timeouts.into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn a_service_that_waits_for_a_quota_says_so_in_its_condition() {
    let cluster = Cluster::with_ten_nodes();
    let throttled = Fault::new(Effect::Refuse(429, "TooManyRequests".into(), Some(120))).class(Class::Write).times(1);
    cluster.azure().add_fault(throttled);
    let life = cluster.start();
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
    life.stop().await;
}

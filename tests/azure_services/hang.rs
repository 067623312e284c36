//! One slow or refused request stops no other Service.
//!
//! A request hangs or is refused, and two seconds after it was sent another Service changes in a way that does not need it. A second run
//! without the fault proves that the other Service would be done in time.

use std::time::Duration;

use cloud_controller_manager::sandbox::{
    azure::{Class, Effect, Fault, RequestRecord, faults},
    objects::ServiceExt,
};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::azure_services::{
    cluster::{BALANCERS, Cluster, PUBLIC_IPS, TIMEOUT, addresses, is_ready, run_paused},
    services::{annotate, external, internal, pinned, set_port, with},
};

/// Letters of scenarios that fail so far. A fix removes its letter.
const OPEN: &[&str] = &[];
/// Time from the first request that hangs or is refused until the other Service changes.
const LEAD: Duration = Duration::from_secs(2);
/// Time that the other Service may take.
const LIMIT: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(100);

const INSTANCES: &str = "*/virtualMachines/*";
const ELEVENTH: &str = "*/virtualMachines/10";
const RANGE: &str = "203.0.113.0/24";

/// A fault, and the change that it must not delay.
struct Scenario {
    /// Services that are served before the fault.
    served: Vec<Service>,
    effect: Effect,
    /// Method and path of the affected requests.
    request: (&'static str, &'static str),
    /// Number of affected requests; `None`: all.
    times: Option<usize>,
    /// Whether the process is stopped before the cause and started after it.
    restarts: bool,
    /// Causes the request.
    cause: fn(&Cluster),
    /// Changes another Service.
    change: fn(&Cluster),
    /// Whether the change is done.
    is_done: fn(&Cluster) -> bool,
}

/// Returns a scenario in which another external Service is created next to served ones.
fn scenario(effect: Effect, request: (&'static str, &'static str), cause: fn(&Cluster)) -> Scenario {
    Scenario {
        served: vec![external("first"), internal("inside")],
        effect,
        request,
        times: None,
        restarts: false,
        cause,
        change: |cluster| drop(cluster.create(&external("other"))),
        is_done: |cluster| cluster.service("other").as_ref().is_some_and(is_ready),
    }
}

/// Returns a scenario in which the first of these writes never ends.
fn hanging(path: &'static str, cause: fn(&Cluster)) -> Scenario {
    Scenario { times: Some(1), ..scenario(Effect::HangOperation, ("PUT", path), cause) }
}

/// Returns a scenario in which these requests are refused.
fn refused(code: &str, request: (&'static str, &'static str), cause: fn(&Cluster)) -> Scenario {
    scenario(Effect::Refuse(409, code.to_owned(), None), request, cause)
}

fn is_like(record: &RequestRecord, (method, path): (&str, &str)) -> bool {
    record.method == method && faults::glob(&path.to_ascii_lowercase(), &record.path.to_ascii_lowercase())
}

/// Returns the time until `holds`; `None`: longer than `limit`.
async fn within(cluster: &Cluster, limit: Duration, holds: impl Fn(&Cluster) -> bool) -> Option<Duration> {
    let start = Instant::now();
    while !holds(cluster) {
        if start.elapsed() >= limit {
            return None;
        }
        tokio::time::sleep(TICK).await;
    }
    Some(start.elapsed())
}

/// Returns the time until the other Service is done, with the fault or without it; `None`: longer than [`LIMIT`].
async fn play(scenario: &Scenario, is_disturbed: bool) -> Option<Duration> {
    let Scenario { served, effect, request, times, restarts, cause, change, is_done } = scenario;
    let (cluster, manager) = Cluster::with_ten_nodes().serving(served).await;
    cluster.azure().clear_requests();
    if is_disturbed {
        let fault = Fault::new(effect.clone()).method(request.0).path(request.1);
        cluster.azure().add_fault(if let Some(times) = times { fault.times(*times) } else { fault });
    }
    let manager = if *restarts {
        manager.stop().await;
        cause(&cluster);
        cluster.start()
    } else {
        cause(&cluster);
        manager
    };
    let is_sent = |cluster: &Cluster| cluster.azure().count(|record| is_like(record, *request)) > 0;
    assert!(within(&cluster, TIMEOUT, is_sent).await.is_some(), "{request:?} was never sent");
    tokio::time::sleep(LEAD).await;
    assert!(!is_done(&cluster), "it was not requested yet");
    change(&cluster);
    let took = within(&cluster, LIMIT, is_done).await;
    manager.kill();
    took
}

fn judge(letter: &str, holds: bool, found: &str) {
    println!("{letter}: {found}");
    assert_eq!(holds, !OPEN.contains(&letter), "{letter}: {found}; letters in OPEN must fail, the others must hold");
}

fn check(letter: &str, scenario: &Scenario) {
    let calm = run_paused(play(scenario, false));
    assert!(calm.is_some(), "{letter}: not done within {LIMIT:?}, although nothing is slow or refused");
    let took = run_paused(play(scenario, true));
    judge(letter, took.is_some(), &format!("{took:?}, without the fault {calm:?}"));
}

fn join_machine(cluster: &Cluster) {
    cluster.register(&cluster.add_machine());
}

fn create_stuck(cluster: &Cluster) {
    cluster.create(&external("stuck"));
}

fn on_new_load_balancer(scenario: Scenario) -> Scenario {
    let change: fn(&Cluster) = |cluster| drop(cluster.create(&internal("other")));
    Scenario { served: vec![external("first")], change, ..scenario }
}

#[test]
fn a_hanging_instance_write_delays_no_service() {
    check("a", &hanging(INSTANCES, join_machine));
}

#[test]
fn a_hanging_instance_write_delays_no_new_load_balancer() {
    check("a-new", &on_new_load_balancer(hanging(INSTANCES, join_machine)));
}

#[test]
fn a_refused_instance_delays_no_service() {
    check("b", &refused("OperationNotAllowed", ("PUT", INSTANCES), join_machine));
}

#[test]
fn a_refused_instance_delays_no_new_load_balancer() {
    check("b-new", &on_new_load_balancer(refused("OperationNotAllowed", ("PUT", ELEVENTH), join_machine)));
}

#[test]
fn a_hanging_public_ip_write_delays_no_other_service() {
    // One of four hangs. The others were written while it was announced.
    let cause: fn(&Cluster) =
        |cluster| (1..5).for_each(|number| drop(cluster.create(&external(&format!("early-{number}")))));
    check("c", &hanging("*/publicIPAddresses/*", cause));
}

/// Returns a scenario in which the write of the internal load balancer hangs.
fn internal_hangs() -> Scenario {
    hanging("*/loadBalancers/kubernetes-internal", |cluster| drop(cluster.create(&internal("stuck"))))
}

#[test]
fn an_internal_load_balancer_that_hangs_delays_no_external_one() {
    check("d", &internal_hangs());
}

#[test]
fn a_load_balancer_that_hangs_delays_no_source_ranges() {
    let change: fn(&Cluster) = |cluster| {
        cluster.change("first", |service| *service = service.clone().source_ranges(&[RANGE]));
    };
    let is_done: fn(&Cluster) -> bool = |cluster| json!(cluster.security_groups()).to_string().contains(RANGE);
    check("d-rules", &Scenario { change, is_done, ..internal_hangs() });
}

#[test]
fn an_unresponsive_resource_group_delays_no_other_service() {
    let cause: fn(&Cluster) = |cluster| {
        cluster.put_group("elsewhere");
        cluster.create(&with(external("stuck"), "azure-load-balancer-resource-group", "elsewhere"));
    };
    check("e", &scenario(Effect::Hang, ("GET", "*/resourceGroups/elsewhere/*"), cause));
}

fn share(cluster: &Cluster, name: &str, port: i32) {
    cluster.create(&pinned(name, &cluster.addresses("first")[0], port));
}

/// More Services share the public IP than its tag lists, and a new process reconciles all of them.
#[test]
fn services_that_share_a_public_ip_delay_no_other_of_them() {
    let cause: fn(&Cluster) = |cluster| (8001..8020).for_each(|port| share(cluster, &format!("sharer-{port}"), port));
    let change: fn(&Cluster) = |cluster| share(cluster, "other", 9000);
    let lists = ("GET", "*/publicIPAddresses");
    check("f", &Scenario { restarts: true, change, ..scenario(Effect::Delay(Duration::ZERO), lists, cause) });
}

fn create_linked(cluster: &Cluster, name: &str) {
    cluster.create(&with(internal(name), "azure-pls-create", "true"));
}

#[test]
fn a_refused_private_link_service_keeps_no_address_back() {
    let links = ("PUT", "*/privateLinkServices/*");
    let scenario = refused("ViolationOfPolicy", links, |cluster| create_linked(cluster, "stuck"));
    let is_done: fn(&Cluster) -> bool =
        |cluster| cluster.service("other").is_some_and(|service| !addresses(&service).is_empty());
    check("g", &Scenario { change: |cluster| create_linked(cluster, "other"), is_done, ..scenario });
}

fn make_internal(cluster: &Cluster, name: &str) {
    cluster.change(name, |service| annotate(service, "azure-load-balancer-internal", Some("true")));
}

#[test]
fn a_locked_public_ip_that_was_left_keeps_no_address_back() {
    let scenario = refused("ScopeLocked", ("DELETE", "*/publicIPAddresses/*"), |cluster| make_internal(cluster, "left"));
    let served = vec![external("first"), external("left"), external("stays"), internal("inside")];
    let is_done: fn(&Cluster) -> bool =
        |cluster| cluster.addresses("first").iter().any(|address| address.starts_with("10."));
    check("h", &Scenario { served, change: |cluster| make_internal(cluster, "first"), is_done, ..scenario });
}

#[test]
fn a_security_group_that_hangs_delays_no_service_without_rules() {
    let change: fn(&Cluster) =
        |cluster| drop(cluster.create(&with(external("other"), "azure-disable-load-balancer-nsg-rule", "true")));
    check("i", &Scenario { change, ..hanging("*/networkSecurityGroups/*", create_stuck) });
}

/// Returns the number of writes of a machine that Azure refuses, in ten minutes in which each of fifty Services changes.
async fn writes_of_refused_machine() -> usize {
    let name = |index: usize| format!("s{index}");
    let services: Vec<Service> = (0..50).map(|index| external(&name(index))).collect();
    let (cluster, manager) = Cluster::with_ten_nodes().serving(&services).await;
    let refusal = Fault::refuse(409, "OperationNotAllowed").method("PUT").path(INSTANCES);
    cluster.azure().add_fault(refusal);
    cluster.azure().clear_requests();
    join_machine(&cluster);
    for index in 0..50 {
        cluster.change(&name(index), |service| set_port(service, 8080));
        tokio::time::sleep(Duration::from_secs(12)).await;
    }
    manager.kill();
    cluster.azure().count(|record| is_like(record, ("PUT", INSTANCES)))
}

#[test]
fn a_refused_machine_is_written_once_a_minute() {
    let count = run_paused(writes_of_refused_machine());
    assert!(count > 0, "the machine was never written");
    judge("j", count <= 11, &format!("{count} writes in ten minutes"));
}

/// Runs a Service while ARM stores another value than the one that was sent. Returns whether it is ready after ten minutes, and the number
/// of writes of this kind until then.
async fn normalized(kind: &'static str, service: &Service, normalize: fn(&mut Value)) -> (bool, usize) {
    let (cluster, manager) = Cluster::with_ten_nodes().serving(&[external("first")]).await;
    let azure = cluster.azure().clone();
    let arm = tokio::spawn(async move {
        loop {
            for mut document in azure.documents_of(kind) {
                let before = document.clone();
                normalize(&mut document);
                if document != before {
                    azure.change_document(before["id"].as_str().unwrap(), normalize);
                }
            }
            tokio::time::sleep(TICK / 2).await;
        }
    });
    cluster.azure().clear_requests();
    cluster.create(service);
    tokio::time::sleep(Duration::from_secs(600)).await;
    arm.abort();
    manager.kill();
    let is_write = |record: &RequestRecord| record.class == Class::Write && record.resource_type.eq_ignore_ascii_case(kind);
    (is_ready(&cluster.service("other").unwrap()), cluster.azure().count(is_write))
}

/// Asserts at most one write, and two more that detect that writing changes nothing.
fn check_normalized(letter: &str, kind: &'static str, service: &Service, normalize: fn(&mut Value)) {
    let (is_ready, writes) = run_paused(normalized(kind, service, normalize));
    assert!(writes > 0, "{letter}: nothing was written");
    judge(letter, is_ready && writes <= 3, &format!("ready: {is_ready}, {writes} writes in ten minutes"));
}

#[test]
fn a_load_balancer_that_arm_normalizes_is_not_written_in_a_loop() {
    let service = with(external("other"), "azure-load-balancer-tcp-idle-timeout", "10");
    check_normalized("k", BALANCERS, &service, |document| {
        for rule in document["properties"]["loadBalancingRules"].as_array_mut().into_iter().flatten() {
            if rule["properties"]["idleTimeoutInMinutes"] == 10 {
                rule["properties"]["idleTimeoutInMinutes"] = json!(12);
            }
        }
    });
}

#[test]
fn a_public_ip_that_arm_normalizes_is_not_written_in_a_loop() {
    let service = with(external("other"), "azure-pip-tags", "team=Blue");
    check_normalized("l", PUBLIC_IPS, &service, |document| {
        if document["tags"]["team"] == "Blue" {
            document["tags"]["team"] = json!("blue");
        }
    });
}

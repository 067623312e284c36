//! Services that compete for the quota of writes: namespaces that use it up, and many edits that are reverted.
//!
//! `tests/azure_services/quotas.rs` asserts the same on a paused clock.

use std::{collections::BTreeSet, time::Duration};

use cloud_controller_manager::{
    controllers::service::conditions,
    sandbox::{api_server::ApiServer, azure::Quotas, objects::load_balancer_service},
};
use k8s_openapi::api::core::v1::Service;
use serde_json::Value;
use tokio::time::{Instant, interval, sleep_until};

use super::{
    TICK,
    cluster::{Cluster, Manager},
    operating,
    program::{COUNTS_ONLY, is_shipped},
};

const SECOND: Duration = Duration::from_secs(1);
/// Services in each of three namespaces that change all the time.
const CHANGED: usize = if COUNTS_ONLY { 2 } else { 20 };
/// Services in the namespace whose Services are created and deleted all the time.
const CHURNED: usize = if COUNTS_ONLY { 1 } else { 5 };
/// Services of a quiet namespace, and the time from one creation to the next.
const QUIET: (u32, Duration) = if COUNTS_ONLY { (2, SECOND) } else { (6, Duration::from_secs(20)) };
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Services whose timeout is edited and edited back, and the time between both.
const EDITED: (u32, Duration) = if COUNTS_ONLY { (30, Duration::from_secs(6)) } else { (300, Duration::from_secs(60)) };
const LONGEST_RETURN: Duration = Duration::from_secs(60);
pub(super) const PREFIX: &str = "service.beta.kubernetes.io/";

/// Runs all scenarios, each in a cluster of its own. Both assert seconds under load, so they run one after the other.
pub(super) async fn all() {
    Box::pin(reverted_edits()).await;
    Box::pin(noisy_namespaces()).await;
}

/// Creates a cluster in which a write takes 200 ms and Azure's quotas are in force.
async fn cluster_with_quotas() -> Cluster {
    let cluster = Cluster::new(operating()).await;
    cluster.simulation.azure().with_options(|options| options.quotas = Quotas::azure());
    cluster
}

/// Creates Services of a quiet namespace while four other namespaces cause as many writes as they can.
async fn noisy_namespaces() {
    let cluster = cluster_with_quotas().await;
    let names = |namespace: &'static str| (0..CHANGED).map(move |index| (namespace, format!("service-{index}")));
    let noisy: Vec<_> = ["a", "b", "c"].into_iter().flat_map(names).collect();
    for (namespace, name) in &noisy {
        cluster.server.create::<Service>(&load_balancer_service(namespace, name));
    }
    let manager = cluster.start();
    cluster.until_ready(&manager).await;
    let waits = tokio::select! {
        waits = create_quiet_services(&cluster, &manager) => waits,
        () = disturb(&cluster.server, &noisy) => unreachable!("it is dropped first"),
    };
    println!("new Services next to {} changed and {CHURNED} churned ones were ready after {waits:.1?}", noisy.len());
    assert!(!is_shipped() || waits.iter().all(|wait| *wait <= LONGEST_WAIT), "{waits:?}");
    assert_eq!(cluster.simulation.azure().count(|request| request.status == 429), 0, "requests above the quotas");
    manager.program.terminate();
}

/// Returns how long each Service took to be ready.
async fn create_quiet_services(cluster: &Cluster, manager: &Manager) -> Vec<Duration> {
    let (count, period) = QUIET;
    let mut waits = Vec::new();
    for index in 0..count {
        let (name, created) = (format!("quiet-{index}"), Instant::now());
        cluster.server.create::<Service>(&load_balancer_service("quiet", &name));
        let is_served = || cluster.server.get::<Service>("quiet", &name).as_ref().is_some_and(is_ready);
        cluster.until(manager, TICK, is_served).await;
        waits.push(created.elapsed());
        sleep_until(created + period).await;
    }
    waits
}

/// Changes all `noisy` Services twice a second, and creates and deletes others, until it is dropped.
async fn disturb(server: &ApiServer, noisy: &[(&str, String)]) {
    let mut rounds = interval(SECOND / 2);
    for round in 0_u32.. {
        rounds.tick().await;
        churn(server);
        for (namespace, name) in noisy {
            server.update_with(namespace, name, |service: &mut Service| edit(service, round));
        }
    }
}

/// Creates Services of one namespace, deletes them when they are ready, and begins again.
fn churn(server: &ApiServer) {
    let is_churned = |service: &Service| service.metadata.namespace.as_deref() == Some("churn");
    let services: Vec<Service> = server.list::<Service>().into_iter().filter(is_churned).collect();
    let is_settled = |service: &Service| is_ready(service) && service.metadata.deletion_timestamp.is_none();
    for name in (0..CHURNED).map(|index| format!("churned-{index}")) {
        if services.is_empty() {
            server.create::<Service>(&load_balancer_service("churn", &name));
        } else if services.iter().all(is_settled) {
            server.delete::<Service>("churn", &name);
        }
    }
}

/// Changes tags, idle timeout and source ranges, each round to the other of two values.
fn edit(service: &mut Service, round: u32) {
    let (minutes, range) = if round.is_multiple_of(2) { ("5", "203.0.113.0/24") } else { ("6", "198.51.100.0/24") };
    annotate(service, "azure-pip-tags", Some(&format!("round={minutes}")));
    annotate(service, "azure-load-balancer-tcp-idle-timeout", Some(minutes));
    annotate(service, "azure-allowed-ip-ranges", Some(range));
}

pub(super) fn annotate(service: &mut Service, key: &str, value: Option<&str>) {
    let (annotations, key) = (service.metadata.annotations.get_or_insert_default(), format!("{PREFIX}{key}"));
    match value {
        Some(value) => drop(annotations.insert(key, value.to_owned())),
        None => drop(annotations.remove(&key)),
    }
}

pub(super) fn is_ready(service: &Service) -> bool {
    conditions::current(service).is_some_and(|condition| condition.reason == "Ready")
}

/// Edits the idle timeout of many Services, and edits it back.
async fn reverted_edits() {
    let (cluster, (count, pause)) = (cluster_with_quotas().await, EDITED);
    let names: Vec<String> = (0..count).map(|index| format!("service-{index}")).collect();
    names.iter().for_each(|name| drop(cluster.server.create::<Service>(&load_balancer_service("default", name))));
    let manager = cluster.start();
    cluster.until_ready(&manager).await;
    let set_timeouts = |minutes: Option<&str>| {
        let change = |service: &mut Service| annotate(service, "azure-load-balancer-tcp-idle-timeout", minutes);
        names.iter().for_each(|name| drop(cluster.server.update_with("default", name, change)));
    };
    let edited = Instant::now();
    set_timeouts(Some("17"));
    cluster.until(&manager, SECOND, || timeouts(&cluster) == [17]).await;
    sleep_until(edited + pause).await;
    let reverted = Instant::now();
    set_timeouts(None);
    cluster.until(&manager, SECOND, || timeouts(&cluster) == [4]).await;
    let elapsed = reverted.elapsed();
    println!("{count} reverted edits were in Azure after {elapsed:.1?}");
    assert!(!is_shipped() || elapsed <= LONGEST_RETURN, "{elapsed:?}");
    assert_eq!(cluster.simulation.azure().count(|request| request.status == 429), 0, "requests above the quotas");
    manager.program.terminate();
}

/// Returns the different idle timeouts of all rules, in minutes.
fn timeouts(cluster: &Cluster) -> Vec<i64> {
    let timeout_of = |rule: &Value| rule["properties"]["idleTimeoutInMinutes"].as_i64().unwrap_or(4);
    let balancers = cluster.simulation.azure().documents_of("Microsoft.Network/loadBalancers");
    let rules = balancers.iter().filter_map(|balancer| balancer["properties"]["loadBalancingRules"].as_array()).flatten();
    rules.map(timeout_of).collect::<BTreeSet<_>>().into_iter().collect()
}

//! Other writers, and Services that compete: a network plugin that writes conditions of Nodes, a person who patches addresses, namespaces that use
//! up the quota of writes, and a public IP with more Services than its tag can list.
//!
//! `tests/controllers_route.rs`, `tests/controllers_service` and `tests/azure_services` assert the same on a paused clock.

use std::{collections::BTreeSet, time::Duration};

use cloud_controller_manager::{
    controllers::service::conditions,
    sandbox::{
        api_server::{ApiServer, RequestRecord},
        azure::Quotas,
        objects::{NodeExt, ObjectExt, ServiceExt, load_balancer_service},
    },
};
use k8s_openapi::api::core::v1::{Event, LoadBalancerIngress, Node, Service};
use serde_json::Value;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};

use super::{
    Bounds, Row, TICK, operating,
    place::{Manager, Place},
    program::{COUNTS_ONLY, is_shipped},
    responding,
};

const SECOND: Duration = Duration::from_secs(1);
/// Flags of all controllers; machines of the simulated cloud have pod CIDRs in this range.
const ROUTES: &[&str] = &["--configure-cloud-routes=true", "--allocate-node-cidrs=true", "--cluster-cidr=100.64.0.0/10"];
const NODES: usize = 10;
/// Time for which conditions are overwritten.
const FIGHT: Duration = Duration::from_secs(if COUNTS_ONLY { 10 } else { 120 });
/// Repairs of a Node in this time: at once, then after 5, 10, 20 and 40 s.
const REPAIRS: usize = if COUNTS_ONLY { 3 } else { 6 };
const HOST_NAME: &str = "web.example.com";
/// Time for which a patched host name must remain.
const RETENTION: Duration = Duration::from_secs(if COUNTS_ONLY { 3 } else { 10 });
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
/// Services that the tag of a public IP can list, with names of [`sharing_name`]: their keys and commas are 255 characters.
const LISTED: i32 = 16;
/// One Service more than that.
const SHARING: usize = 17;
pub(super) const PREFIX: &str = "service.beta.kubernetes.io/";

/// Plays all scenarios, each in a cluster of its own. The one that asserts seconds under load runs alone, the others at the same time.
pub(super) async fn all() -> Vec<Row> {
    let ((), (), (), restart) = tokio::join!(
        Box::pin(contested_conditions()),
        Box::pin(patched_addresses()),
        Box::pin(reverted_edits()),
        Box::pin(shared_public_ip()),
    );
    Box::pin(noisy_namespaces()).await;
    vec![restart]
}

/// Plays a network plugin with a reason of its own, and one that contradicts the routes.
async fn contested_conditions() {
    let (reasons, statuses) =
        tokio::join!(condition_writes("False", "CiliumIsUp"), condition_writes("True", "CiliumIsDown"));
    println!("{NODES} Nodes in {FIGHT:?}: {reasons} writes against another reason, {statuses} against another status");
    assert_eq!(reasons, 0, "a reason was overwritten");
    assert!((NODES..=REPAIRS * NODES).contains(&statuses), "{statuses} repairs of {NODES} Nodes");
}

/// Counts the program's writes of Node status while a plugin sets the condition of all Nodes again whenever it differs.
async fn condition_writes(status: &str, reason: &str) -> usize {
    let cluster = Place::new(responding()).await;
    let manager = cluster.start_with(ROUTES);
    let has_routes = |node: &Node| network_unavailable(node).is_some_and(|(status, _)| status == "False");
    cluster.until(&manager, TICK, || cluster.server.list::<Node>().iter().all(has_routes)).await;
    sleep(2 * SECOND).await;
    cluster.server.clear_requests();
    let end = Instant::now() + FIGHT;
    while Instant::now() < end {
        set_condition(&cluster.server, status, reason);
        sleep(SECOND).await;
    }
    let is_status_write =
        |request: &&RequestRecord| request.verb.is_write() && request.resource == "nodes" && request.subresource == "status";
    let writes = cluster.server.requests().iter().filter(is_status_write).count();
    manager.program.terminate();
    writes
}

/// Returns status and reason of the condition.
fn network_unavailable(node: &Node) -> Option<(&str, &str)> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == "NetworkUnavailable")?;
    Some((condition.status.as_str(), condition.reason.as_deref().unwrap_or_default()))
}

fn set_condition(server: &ApiServer, status: &str, reason: &str) {
    let nodes = server.list::<Node>().into_iter();
    for node in nodes.filter(|node| network_unavailable(node) != Some((status, reason))) {
        let set = |node: &mut Node| *node = node.clone().condition("NetworkUnavailable", status, reason);
        server.update_with("", node.metadata.name.as_deref().expect("a name"), set);
    }
}

/// Adds a host name to the status of a served Service, then removes the address.
async fn patched_addresses() {
    let cluster = Place::new(responding()).await;
    cluster.server.create::<Service>(&load_balancer_service("default", "web"));
    let manager = cluster.start();
    cluster.until_ready(&manager).await;
    sleep(2 * SECOND).await;
    let mut expected = listed_addresses(&cluster.server, "web");
    expected.insert(HOST_NAME.to_owned());
    let host_name = LoadBalancerIngress { hostname: Some(HOST_NAME.to_owned()), ..LoadBalancerIngress::default() };
    change_ingress(&cluster.server, |ingress| ingress.push(host_name));
    sleep(RETENTION).await;
    assert_eq!(listed_addresses(&cluster.server, "web"), expected, "after {RETENTION:?}");

    change_ingress(&cluster.server, |ingress| ingress.retain(|entry| entry.ip.is_none()));
    let removed = Instant::now();
    let restoration = cluster.server.wait_until(|server| listed_addresses(server, "web") == expected);
    timeout(LONGEST_WAIT, restoration).await.expect("the address is listed again, next to the host name");
    println!("a removed address was restored after {} ms, a host name remained", removed.elapsed().as_millis());
    manager.program.terminate();
}

/// Returns the addresses and host names in the status of a Service of the namespace `default`.
fn listed_addresses(server: &ApiServer, name: &str) -> BTreeSet<String> {
    let status = server.get::<Service>("default", name).and_then(|service| service.status);
    let ingress = status.and_then(|status| status.load_balancer).and_then(|balancer| balancer.ingress);
    ingress.into_iter().flatten().filter_map(|entry| entry.ip.or(entry.hostname)).collect()
}

fn change_ingress(server: &ApiServer, change: impl FnOnce(&mut Vec<LoadBalancerIngress>)) {
    server.update_with("default", "web", |service: &mut Service| {
        let balancer = service.status.as_mut().and_then(|status| status.load_balancer.as_mut());
        change(balancer.and_then(|balancer| balancer.ingress.as_mut()).expect("addresses"));
    });
}

/// Creates a cluster in which a write takes 200 ms and Azure's quotas are in force.
async fn cluster_with_quotas() -> Place {
    let cluster = Place::new(operating()).await;
    cluster.world.azure().with_options(|options| options.quotas = Quotas::azure());
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
    assert_eq!(cluster.world.azure().count(|request| request.status == 429), 0, "requests above the quotas");
    manager.program.terminate();
}

/// Returns how long each Service took to be ready.
async fn create_quiet_services(cluster: &Place, manager: &Manager) -> Vec<Duration> {
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
    println!("{count} edits that were taken back were reverted in Azure after {elapsed:.1?}");
    assert!(!is_shipped() || elapsed <= LONGEST_RETURN, "{elapsed:?}");
    assert_eq!(cluster.world.azure().count(|request| request.status == 429), 0, "requests above the quotas");
    manager.program.terminate();
}

fn rules(cluster: &Place) -> Vec<Value> {
    let balancers = cluster.world.azure().documents_of("Microsoft.Network/loadBalancers");
    let rules_of = |balancer: &Value| balancer["properties"]["loadBalancingRules"].as_array().cloned().unwrap_or_default();
    balancers.iter().flat_map(rules_of).collect()
}

/// Returns the different idle timeouts of all rules, in minutes.
fn timeouts(cluster: &Place) -> Vec<i64> {
    let timeout_of = |rule: &Value| rule["properties"]["idleTimeoutInMinutes"].as_i64().unwrap_or(4);
    rules(cluster).iter().map(timeout_of).collect::<BTreeSet<_>>().into_iter().collect()
}

fn sharing_name(number: i32) -> String {
    format!("echo-{number:02}")
}

/// Creates one Service more than the tag of their public IP can list, and restarts the program with them.
async fn shared_public_ip() -> Row {
    let cluster = Place::new(responding()).await;
    cluster.server.create::<Service>(&load_balancer_service("default", &sharing_name(1)));
    let manager = cluster.start();
    cluster.until_ready(&manager).await;
    let address = listed_addresses(&cluster.server, &sharing_name(1)).pop_first().expect("an address");
    for numbers in [2..=LISTED, LISTED + 1..=LISTED + 1] {
        for number in numbers {
            let service = load_balancer_service("default", &sharing_name(number)).ports(&[("http", 8000 + number)]);
            cluster.server.create::<Service>(&service.annotation(&format!("{PREFIX}azure-load-balancer-ipv4"), &address));
        }
        cluster.until_ready(&manager).await;
    }
    let name = format!("{} Services on one public IP", LISTED + 1);
    cluster.settled(&name, Instant::now(), &manager, 0.0, "", Bounds::default()).await;
    assert_sharing(&cluster);
    assert_eq!(omitted_services(&cluster.server).len(), 1, "events");
    manager.program.terminate();

    cluster.world.azure().clear_requests();
    cluster.server.clear_requests();
    let (started, manager) = (Instant::now(), cluster.start());
    cluster.until_listed(&manager).await;
    let bounds = Bounds { writes: Some(0), ..Bounds::default() };
    let row = cluster.settled(&format!("restart with {name}"), started, &manager, 0.0, "not measured", bounds).await;
    assert_sharing(&cluster);
    manager.program.terminate();
    row
}

/// Asserts that all Services are served on one public IP, and that events name only the one that its tag cannot list.
fn assert_sharing(cluster: &Place) {
    let services = cluster.server.list::<Service>();
    assert!(services.iter().all(is_ready), "not ready:\n{}", cluster.log());
    let public_ips = cluster.world.azure().documents_of("Microsoft.Network/publicIPAddresses");
    assert_eq!((services.len(), rules(cluster).len(), public_ips.len()), (SHARING, SHARING, 1));
    assert!(omitted_services(&cluster.server).iter().all(|name| *name == sharing_name(LISTED + 1)), "events");
}

/// Returns the Service of each event that says that a tag has no room for it.
fn omitted_services(server: &ApiServer) -> Vec<String> {
    let says_so =
        |event: &Event| event.message.as_deref().is_some_and(|message| message.contains("has no room for default/"));
    server.list::<Event>().into_iter().filter(says_so).filter_map(|event| event.involved_object.name).collect()
}

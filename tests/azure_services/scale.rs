//! Number of writes and time for 500 Services, with Azure's durations of writes and the request budget.

use std::{collections::BTreeMap, time::Duration};

use cloud_controller_manager::sandbox::azure::{
    AzureOptions, Class, Latencies, Latency, Quotas, RequestRecord,
    topology::{PoolKind, Topology},
};
use k8s_openapi::api::core::v1::Service;

use crate::azure_services::{
    cluster::{Cluster, HOUR},
    documents::{differences, exact},
    services::{external, internal},
};

const SERVICES: usize = 500;
/// Writes beyond one for each public IP.
const FEW: usize = 20;

/// A principal's quota of writes: burst, and requests per second after that.
const WRITES: (f64, f64) = (200.0, 10.0);
const READS: (f64, f64) = (250.0, 25.0);
/// Seconds of the operations to create a Service, one after the other: public IP, load balancer, security group.
const CREATION: f64 = 2.0 + 5.0 + 5.0;
/// Seconds of the operations to delete a Service: public IP, load balancer, security group, and the write of the load balancer before.
const DELETION: f64 = 5.0 + 5.0 + 5.0 + 2.0;
/// Factors by which creation and deletion may take longer than the quotas and these operations.
const SLACK: (f64, f64) = (1.05, 1.15);

/// Returns options in which every write is a long-running operation.
pub(crate) fn as_slow_as_azure() -> AzureOptions {
    let takes = |seconds| Latency { respond: Duration::ZERO, operation: Duration::from_secs(seconds) };
    let latencies = Latencies::default()
        .with(Class::Write, "Microsoft.Network/publicIPAddresses", takes(2))
        .with(Class::Write, "Microsoft.Network/loadBalancers", takes(5))
        .with(Class::Write, "Microsoft.Network/networkSecurityGroups", takes(5))
        .with(Class::Delete, "*", takes(5));
    AzureOptions { latencies, quotas: Quotas::azure(), ..AzureOptions::default() }
}

/// Creates a cluster with Services that are not reconciled yet.
fn cluster(service: fn(&str) -> Service) -> Cluster {
    // Allows more rules than fit on a network interface.
    let cluster = Cluster::new(Topology::new().pools(PoolKind::Uniform, 1, 3), as_slow_as_azure())
        .configured("maximumNetworkInterfaceRuleCount", 1_500);
    (0..SERVICES).for_each(|index| drop(cluster.create(&service(&format!("s{index}")))));
    cluster
}

/// Limit of reads and polls: pages of lists, which follow the operations of public IPs while the budget spaces the writes, and reads and
/// polls of the documents that all Services share.
const LISTS: usize = 120;

/// Returns the requests since the last call: writes, reads and polls, and a description.
fn take_requests(cluster: &Cluster) -> (usize, usize, String) {
    let requests = cluster.azure().requests();
    cluster.azure().clear_requests();
    let mut counts = BTreeMap::<String, usize>::new();
    let mut refused = 0;
    for request in requests.iter().filter(|request| matches!(request.class, Class::Write | Class::Delete)) {
        let kind = request.resource_type.rsplit('/').next().unwrap_or_default();
        *counts.entry(format!("{} {kind}", request.method)).or_default() += 1;
        refused += usize::from(request.status >= 400);
    }
    assert!(requests.iter().all(|request| request.status != 429), "a quota was exceeded");
    let reads = requests.iter().filter(|request| matches!(request.class, Class::Read | Class::Poll)).count();
    let writes = counts.values().sum();
    // Each deletion ends with its own 404.
    let deletions = requests.iter().filter(|request| request.class == Class::Delete).count();
    assert!(reads <= LISTS + deletions, "{reads} reads and polls for {writes} writes, {deletions} of them deletions");
    (writes, reads, format!("{counts:?}, {refused} refused, {reads} reads and polls"))
}

/// Returns the seconds that the quotas require.
fn fastest(writes: usize, reads: usize) -> f64 {
    let of = |count: usize, (burst, per_second): (f64, f64)| {
        (f64::from(u32::try_from(count).unwrap()) - burst).max(0.0) / per_second
    };
    of(writes, WRITES).max(of(reads, READS))
}

fn is_soon(took: Duration, quotas: f64, stages: f64, slack: f64) -> bool {
    took.as_secs_f64() <= (quotas + stages) * slack
}

/// Prints the times of writes of the documents that Services share, and of the last public IP.
fn timeline(cluster: &Cluster) {
    let requests = cluster.azure().requests();
    let is_write = |request: &&RequestRecord| matches!(request.class, Class::Write | Class::Delete);
    let is_public_ip = |request: &&RequestRecord| request.resource_type.ends_with("/publicipaddresses");
    let last = requests.iter().filter(is_write).rfind(is_public_ip).into_iter();
    for write in last.chain(requests.iter().filter(is_write).filter(|request| !is_public_ip(request))) {
        let (at, kind) = (write.at - requests[0].at, write.resource_type.rsplit('/').next().unwrap_or_default());
        println!("{:6.1} s: {} {kind}, {} bytes", at.as_secs_f64(), write.method, write.sent);
    }
}

#[tokio::test(start_paused = true)]
async fn five_hundred_external_services() {
    let cluster = cluster(external);
    let mut before = exact(&cluster);
    let _manager = cluster.start();
    let took = cluster.until_ready(HOUR).await;
    timeline(&cluster);
    let (count, reads, description) = take_requests(&cluster);
    println!(
        "{SERVICES} external Services: {} s, {count} writes; the quotas allow them in {:.0} s and the reads in {:.0} s, and one of each kind takes 12 s more: {description}",
        took.as_secs(),
        fastest(count, 0),
        fastest(0, reads)
    );
    assert!(count <= SERVICES + FEW, "{count} writes: {description}");
    assert!(is_soon(took, fastest(count, reads), CREATION, SLACK.0), "{took:?}");

    one_node_joins(&cluster).await;
    tokio::time::sleep(HOUR).await;
    assert_eq!(cluster.writes(), Vec::<String>::new(), "nothing has changed");
    cluster.azure().clear_requests();

    (0..SERVICES).for_each(|index| cluster.delete(&format!("s{index}")));
    let took = cluster.until_all_deleted(HOUR).await;
    let (count, reads, description) = take_requests(&cluster);
    println!(
        "{SERVICES} of them deleted: {} s, {count} writes; the quotas allow them in {:.0} s and the reads in {:.0} s: {description}",
        took.as_secs(),
        fastest(count, 0),
        fastest(0, reads)
    );
    assert!(count <= SERVICES + FEW, "{count} writes: {description}");
    assert!(is_soon(took, fastest(count, reads), DELETION, SLACK.1), "{took:?}");
    cluster.settle().await;
    let mut remaining = exact(&cluster);
    remaining.retain(|id, _| id.contains("/providers/microsoft.network/"));
    before.retain(|id, _| id.contains("/providers/microsoft.network/"));
    assert_eq!(differences(&before, &remaining), Vec::<String>::new(), "left over");
}

/// Asserts that a new Node costs at most one write of each affected document.
async fn one_node_joins(cluster: &Cluster) {
    cluster.settle().await;
    cluster.azure().clear_requests();
    cluster.register(&cluster.add_machine());
    cluster.settle().await;
    let mut written = BTreeMap::<String, usize>::new();
    for write in cluster.writes() {
        *written.entry(write).or_default() += 1;
    }
    println!("one node joins {SERVICES} Services: {written:?}");
    assert!(written.keys().any(|write| write.starts_with("PUT")), "the node is in no pool");
    assert!(written.values().all(|times| *times == 1), "{written:?}");
    assert!(written.len() <= 2, "{written:?}");
    cluster.azure().clear_requests();
}

#[tokio::test(start_paused = true)]
async fn five_hundred_internal_services() {
    let cluster = cluster(internal);
    let _manager = cluster.start();
    let took = cluster.until_ready(HOUR).await;
    let (count, _, description) = take_requests(&cluster);
    println!("{SERVICES} internal Services: {} s, {count} writes: {description}", took.as_secs());
    assert!(count <= FEW, "{count} writes: {description}");
    assert!(took <= Duration::from_secs(60), "{took:?}");
    (0..SERVICES).for_each(|index| cluster.delete(&format!("s{index}")));
    let took = cluster.until_all_deleted(HOUR).await;
    let (count, _, description) = take_requests(&cluster);
    println!("{SERVICES} of them deleted: {} s, {count} writes: {description}", took.as_secs());
    assert!(count <= FEW, "{count} writes: {description}");
}

//! How requests, bytes and documents grow with the number of Services on one load balancer, with Azure's durations and quotas: from 50
//! to 400; with `CCM_SOAK_SECONDS` set to 600, which are as many front ends as Azure lets one load balancer have.

use std::time::Duration;

use cloud_controller_manager::sandbox::azure::{AzureOptions, Class, Latencies, Latency, Quotas, RequestRecord};

use crate::azure_services::{
    cluster::{Cluster, HOUR, Life, alone, ten_nodes},
    scale::as_slow_as_azure,
    services::external,
};

/// How much more may be sent and received for so many Services than for 50.
const BYTES: (usize, f64) = (400, 9.0);
/// The same from 50 to 400 where writes take less than half a second.
const BYTES_OF_FAST_WRITES: f64 = 10.0;
/// The same where the network provider's quota spreads the public IPs over two windows of five minutes: meanwhile they are listed now and
/// then, and the load balancer is written four times.
const BYTES_OF_TWO_WINDOWS: (usize, f64) = (599, 32.0);
/// Azure's limit of the body of a request to Resource Manager.
pub(crate) const LONGEST_BODY: usize = 4 * 1024 * 1024;

/// What was asked of ARM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traffic {
    reads: usize,
    polls: usize,
    pub(crate) writes: usize,
    sent: usize,
    received: usize,
    /// Longest body of a write of a load balancer, and of the security group.
    pub(crate) balancer: usize,
    pub(crate) group: usize,
}

impl Traffic {
    fn of(requests: &[RequestRecord]) -> Self {
        let count = |class: &[Class]| requests.iter().filter(|request| class.contains(&request.class)).count();
        let arm = || requests.iter().filter(|request| request.class != Class::Other);
        let longest = |kind: &str| arm().filter(|it| it.resource_type.ends_with(kind)).map(|it| it.sent).max().unwrap_or(0);
        Self {
            reads: count(&[Class::Read]),
            polls: count(&[Class::Poll]),
            writes: count(&[Class::Write, Class::Delete]),
            sent: arm().map(|request| request.sent).sum(),
            received: arm().map(|request| request.bytes).sum(),
            balancer: longest("/loadbalancers"),
            group: longest("/networksecuritygroups"),
        }
    }

    pub(crate) fn text(&self) -> String {
        let Self { reads, polls, writes, sent, received, balancer, group } = self;
        format!(
            "{writes} writes, {reads} reads, {polls} polls, {sent} bytes sent, {received} received, bodies {balancer} and {group}"
        )
    }

    pub(crate) fn bytes(&self) -> f64 {
        f64::from(u32::try_from(self.sent + self.received).unwrap())
    }
}

/// What so many external Services cost.
#[derive(Debug)]
struct Growth {
    services: usize,
    seconds: u64,
    created: Traffic,
    /// An hour without change.
    hour: Traffic,
    /// One more Service.
    one_more: Traffic,
}

impl Growth {
    fn print(&self) {
        let Self { services, seconds, created, hour, one_more } = self;
        println!("{services} Services in {seconds} s: {}", created.text());
        println!("  an hour without change: {}", hour.text());
        println!("  one more: {}", one_more.text());
    }
}

/// Requests since last asked.
pub(crate) fn traffic(cluster: &Cluster) -> Traffic {
    let traffic = Traffic::of(&cluster.azure().requests());
    cluster.azure().clear_requests();
    traffic
}

/// Creates so many Services, and returns how long it took and what it cost.
async fn create(options: AzureOptions, services: usize) -> (Cluster, Life, Duration, Traffic) {
    // More than fit at a network interface.
    let cluster = Cluster::new(ten_nodes(), options).configured("maximumNetworkInterfaceRuleCount", 1_500);
    (0..services).for_each(|index| drop(cluster.create(&external(&format!("s{index}")))));
    let life = cluster.start();
    let took = cluster.until_ready(HOUR).await;
    let created = traffic(&cluster);
    (cluster, life, took, created)
}

async fn measure(services: usize) -> Growth {
    let (cluster, life, took, created) = create(as_slow_as_azure(), services).await;
    cluster.settle().await;
    traffic(&cluster);
    tokio::time::sleep(HOUR).await;
    let hour = traffic(&cluster);
    cluster.add(&external("more")).await;
    let one_more = traffic(&cluster);
    life.stop().await;
    Growth { services, seconds: took.as_secs(), created, hour, one_more }
}

#[test]
fn bytes_grow_with_the_number_of_services() {
    let is_long = std::env::var_os("CCM_SOAK_SECONDS").is_some();
    let few = alone(measure(50));
    few.print();
    for (services, most) in std::iter::once(BYTES).chain(is_long.then_some(BYTES_OF_TWO_WINDOWS)) {
        let many = alone(measure(services));
        let ratio = many.created.bytes() / few.created.bytes();
        many.print();
        println!("{ratio:.1} times the bytes");
        assert!(ratio <= most, "{ratio:.1} times the bytes: {few:?}\n{many:?}");
        assert_eq!(many.hour.writes, 0, "nothing has changed: {many:?}");
        assert_eq!(many.one_more.writes, few.one_more.writes, "one more Service: {few:?}\n{many:?}");
        assert!(many.one_more.balancer.max(many.one_more.group) < LONGEST_BODY, "{many:?}");
    }
}

/// Writes that take 200 ms to answer and 200 ms more to end, as in `cargo bench --bench azure_services`, which counts the same on a clock
/// that nobody stops.
fn responding() -> AzureOptions {
    let latency = Latency { respond: Duration::from_millis(200), operation: Duration::from_millis(200) };
    AzureOptions { latencies: Latencies::writes(latency), quotas: Quotas::azure(), ..AzureOptions::default() }
}

async fn created(services: usize) -> Traffic {
    let (_cluster, life, took, created) = create(responding(), services).await;
    println!("{services} Services whose writes take 0.4 s in {:.1} s: {}", took.as_secs_f64(), created.text());
    life.stop().await;
    created
}

#[test]
fn bytes_grow_with_the_number_of_services_when_writes_are_fast() {
    let [few, many] = [50, 400].map(|services| alone(created(services)));
    let ratio = many.bytes() / few.bytes();
    println!("{ratio:.1} times the bytes");
    assert!(ratio <= BYTES_OF_FAST_WRITES, "{ratio:.1} times the bytes: {few:?}\n{many:?}");
}

//! Growth of requests, bytes and documents with the number of Services on one load balancer, with Azure's durations and quotas: from 50
//! to 400; with `CCM_SOAK_SECONDS` set to 600, which is Azure's limit of frontends of a load balancer.

use std::time::Duration;

use cloud_controller_manager::sandbox::azure::{Class, RequestRecord};
use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;

use crate::azure_services::{
    cluster::{Cluster, HOUR, is_ready, run_paused, ten_nodes},
    scale::as_slow_as_azure,
    services::external,
};

/// Number of Services, and the limit of their bytes as a multiple of the bytes for 50.
const BYTES: (usize, f64) = (400, 9.0);
/// Limit as [`BYTES`] where the network provider's quota spreads the public IPs over two windows of five minutes. In the second window
/// they are listed several times, and the load balancer is written four times.
const BYTES_OF_TWO_WINDOWS: (usize, f64) = (599, 32.0);
/// Azure's limit of the body of a request to Resource Manager.
const LONGEST_BODY: usize = 4 * 1024 * 1024;

/// Requests to ARM and their bytes.
#[derive(Debug, Clone, Copy)]
struct Traffic {
    reads: usize,
    polls: usize,
    writes: usize,
    sent: usize,
    received: usize,
    /// Longest body of a write of a load balancer.
    balancer: usize,
    group: usize,
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

    fn text(&self) -> String {
        let Self { reads, polls, writes, sent, received, balancer, group } = self;
        format!(
            "{writes} writes, {reads} reads, {polls} polls, {sent} bytes sent, {received} received, bodies {balancer} and {group}"
        )
    }

    fn bytes(&self) -> f64 {
        f64::from(u32::try_from(self.sent + self.received).unwrap())
    }
}

/// Traffic of so many Services.
#[derive(Debug)]
pub(crate) struct Growth {
    created: Traffic,
    /// An hour without change.
    hour: Traffic,
    /// One more Service.
    one_more: Traffic,
}

impl Growth {
    /// Measures the traffic of Services that are created at once, then of an hour without changes, then of one more Service.
    pub(crate) async fn measure(cluster: &Cluster, services: usize, service: impl Fn(usize) -> Service) -> Self {
        (0..services).for_each(|number| drop(cluster.create(&service(number))));
        let manager = cluster.start();
        let took = until_ready(cluster, services).await;
        assert_eq!(cluster.azure().count(|request| request.status == 429), 0, "a quota was exceeded");
        let created = traffic(cluster);
        println!("{services} Services in {} s: {}", took.as_secs(), created.text());
        cluster.settle().await;
        traffic(cluster);
        tokio::time::sleep(HOUR).await;
        let hour = traffic(cluster);
        println!("  an hour without change: {}", hour.text());
        cluster.create(&service(services));
        let took = cluster.until_ready(HOUR).await;
        let one_more = traffic(cluster);
        println!("  one more in {} s: {}", took.as_secs(), one_more.text());
        manager.stop().await;
        Self { created, hour, one_more }
    }

    /// Asserts that creating these Services takes at most `times` the bytes of `few`, and that nothing else depends on the size.
    pub(crate) fn assert_at_most(&self, times: f64, few: &Self) {
        let ratio = self.created.bytes() / few.created.bytes();
        println!("{ratio:.1} times the bytes");
        assert!(ratio <= times, "{ratio:.1} times the bytes: {few:?}\n{self:?}");
        assert_eq!(self.hour.writes, 0, "nothing has changed: {self:?}");
        assert_eq!(self.one_more.writes, few.one_more.writes, "one more Service: {few:?}\n{self:?}");
        let longest = [self.created, self.one_more].map(|it| it.balancer.max(it.group)).into_iter().max();
        assert!(longest < Some(LONGEST_BODY), "{self:?}");
    }
}

/// Waits until all Services are served. Checks once per second and 1,000 Services, because a check takes more time than the manager.
async fn until_ready(cluster: &Cluster, services: usize) -> Duration {
    let (start, step) = (Instant::now(), Duration::from_secs(1 + services as u64 / 1_000));
    while !cluster.services().iter().all(is_ready) {
        assert!(start.elapsed() < 24 * HOUR, "not ready within a day");
        tokio::time::sleep(step).await;
    }
    start.elapsed()
}

/// Returns the requests since the last call.
fn traffic(cluster: &Cluster) -> Traffic {
    let traffic = Traffic::of(&cluster.azure().requests());
    cluster.azure().clear_requests();
    traffic
}

/// Measures external Services on one load balancer.
fn measure(services: usize) -> Growth {
    run_paused(async {
        // Allows more rules than fit on a network interface.
        let cluster = Cluster::new(ten_nodes(), as_slow_as_azure()).configured("maximumNetworkInterfaceRuleCount", 1_500);
        Growth::measure(&cluster, services, |number| external(&format!("s{number}"))).await
    })
}

#[test]
fn bytes_grow_with_the_number_of_services() {
    let is_long = std::env::var_os("CCM_SOAK_SECONDS").is_some();
    let few = measure(50);
    for (services, times) in std::iter::once(BYTES).chain(is_long.then_some(BYTES_OF_TWO_WINDOWS)) {
        measure(services).assert_at_most(times, &few);
    }
}

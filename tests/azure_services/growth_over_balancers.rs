//! How requests, bytes, memory and processor time grow with the number of load balancers, each with as many Services and Nodes as the
//! others, with Azure's durations and quotas: from 1 to 4. `CCM_LOAD_BALANCERS=40` plays 10,000 Services and 15,000 Nodes on 40 load
//! balancers.

use std::time::Duration;

use cloud_controller_manager::sandbox::azure::{
    AzureOptions, Class, LoadBalancerLimits, RequestRecord,
    topology::{PoolKind, Topology},
};
use k8s_openapi::api::core::v1::Service;
use serde_json::Value;
use tokio::time::Instant;

use crate::azure_services::{
    cluster::{Cluster, HOUR, alone, is_ready},
    growth::{LONGEST_BODY, Traffic, traffic},
    scale::as_slow_as_azure,
    services::{annotate, external},
    several::{configured, entry},
};

/// Services and Nodes of each load balancer.
const FEW: Shares = Shares { services: 50, nodes: 5 };
/// The same with `CCM_LOAD_BALANCERS` set: all rules together stay below the 300 of a network interface.
const MANY: Shares = Shares { services: 250, nodes: 375 };
/// How many times the bytes of one load balancer four may take.
const BYTES_OF_FOUR: f64 = 4.0;

/// Azure's limit of destinations of a security group. More Services need one whose rules somebody else writes, such as one for all addresses.
const MOST_DESTINATIONS: usize = 4_000;

#[derive(Debug, Clone, Copy)]
struct Shares {
    services: usize,
    nodes: u32,
}

/// What so many load balancers cost.
#[derive(Debug)]
struct Growth {
    created: Traffic,
    hour: Traffic,
    one_more: Traffic,
}

/// Of this process: the manager, the simulated Azure and the API server together.
#[derive(Debug, Clone, Copy)]
struct Usage {
    resident_mib: u64,
    cpu_seconds: u64,
}

impl Usage {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let ticks: u64 =
            stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2).map(|it| it.parse::<u64>().unwrap()).sum();
        Self { resident_mib: kib / 1024, cpu_seconds: ticks / 100 }
    }

    fn print(self, what: &str) {
        println!("  {what}: {} MiB resident, {} s of processor time so far", self.resident_mib, self.cpu_seconds);
    }
}

fn cluster(balancers: usize, share: Shares) -> Cluster {
    let options = AzureOptions { limits: LoadBalancerLimits::azure(), ..as_slow_as_azure() };
    let topology = Topology::new().pools(PoolKind::Uniform, u32::try_from(balancers).unwrap(), share.nodes);
    let name = |set: usize| if set == 1 { "kubernetes".to_owned() } else { format!("lb{set}") };
    let entries: Value = (1..=balancers).map(|set| entry(&name(set), set)).collect();
    configured(Cluster::new(topology, options), entries)
}

/// An API server hands out 2,768 node ports unless it is told to (`--service-node-port-range`), which is too few for the largest clusters
/// here.
fn service(number: usize, has_rules: bool) -> Service {
    let mut service = external(&format!("s{number}"));
    annotate(&mut service, "azure-disable-load-balancer-nsg-rule", (!has_rules).then_some("true"));
    let port = &mut service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0];
    port.node_port = Some(20_000 + i32::try_from(number).unwrap());
    service
}

/// To as many seconds as there are thousands of Services, because each look at all of them takes more of this process than the manager does.
async fn until_ready(cluster: &Cluster, services: usize) -> Duration {
    let (start, step) = (Instant::now(), Duration::from_secs(1 + services as u64 / 1_000));
    while !cluster.services().iter().all(is_ready) {
        assert!(start.elapsed() < 24 * HOUR, "not ready within a day");
        tokio::time::sleep(step).await;
    }
    start.elapsed()
}

fn refused(requests: &[RequestRecord]) -> usize {
    requests.iter().filter(|request| request.class != Class::Other && request.status == 429).count()
}

async fn measure(balancers: usize, share: Shares, has_rules: bool) -> Growth {
    let cluster = cluster(balancers, share);
    let services = balancers * share.services;
    (0..services).for_each(|number| drop(cluster.create(&service(number, has_rules))));
    Usage::now().print("before the start");
    let life = cluster.start();
    let took = until_ready(&cluster, services).await;
    assert_eq!(refused(&cluster.azure().requests()), 0, "a quota was exceeded");
    let created = traffic(&cluster);
    println!(
        "{balancers} load balancers, {services} Services, {} Nodes in {} s: {}",
        balancers * share.nodes as usize,
        took.as_secs(),
        created.text()
    );
    Usage::now().print("all are ready");
    cluster.settle().await;
    traffic(&cluster);
    tokio::time::sleep(HOUR).await;
    let hour = traffic(&cluster);
    println!("  an hour without change: {}", hour.text());
    cluster.create(&service(services, has_rules));
    let took = cluster.until_ready(HOUR).await;
    let one_more = traffic(&cluster);
    println!("  one more in {} s: {}", took.as_secs(), one_more.text());
    life.stop().await;
    Usage::now().print("the manager has stopped");
    restarted(&cluster).await;
    Growth { created, hour, one_more }
}

/// A manager that finds everything done writes nothing.
async fn restarted(cluster: &Cluster) {
    cluster.azure().clear_requests();
    let life = cluster.start();
    cluster.settle().await;
    let traffic = traffic(cluster);
    println!("  restart: {}", traffic.text());
    Usage::now().print("restarted");
    assert_eq!(traffic.writes, 0, "nothing has changed: {traffic:?}");
    life.stop().await;
}

fn check(few: &Growth, many: &Growth, most: f64) {
    let ratio = many.created.bytes() / few.created.bytes();
    println!("{ratio:.1} times the bytes");
    assert!(ratio <= most, "{ratio:.1} times the bytes: {few:?}\n{many:?}");
    assert_eq!(many.hour.writes, 0, "nothing has changed: {many:?}");
    assert_eq!(many.one_more.writes, few.one_more.writes, "one more Service: {few:?}\n{many:?}");
    assert!(many.created.balancer.max(many.created.group) < LONGEST_BODY, "{many:?}");
}

#[test]
fn bytes_grow_with_the_number_of_load_balancers() {
    let asked = std::env::var("CCM_LOAD_BALANCERS").ok().map(|text| text.parse::<usize>().unwrap());
    let (share, balancers) = asked.map_or((FEW, 4), |balancers| (MANY, balancers));
    let has_rules = balancers * share.services < MOST_DESTINATIONS;
    let [few, many] = [1, balancers].map(|balancers| alone(measure(balancers, share, has_rules)));
    let most = if asked.is_some() { f64::INFINITY } else { BYTES_OF_FOUR };
    check(&few, &many, most);
}

//! Growth of requests and bytes with the number of load balancers, from 1 to 4, with Azure's durations and quotas. Each has the same number
//! of Services and Nodes. `CCM_LOAD_BALANCERS=40` plays 10,000 Services and 15,000 Nodes on 40 load balancers.

use cloud_controller_manager::sandbox::azure::{
    AzureOptions, LoadBalancerLimits,
    topology::{PoolKind, Topology},
};
use k8s_openapi::api::core::v1::Service;
use serde_json::Value;

use crate::azure_services::{
    cluster::{Cluster, run_paused},
    growth::Growth,
    scale::as_slow_as_azure,
    services::{annotate, external},
    several::{configured, entry},
};

/// Services and Nodes of each load balancer.
const FEW: Shares = Shares { services: 50, nodes: 5 };
/// Services and Nodes of each load balancer with `CCM_LOAD_BALANCERS` set: all rules together fit the 300 of a network interface.
const MANY: Shares = Shares { services: 250, nodes: 375 };
/// Limit of the bytes of four load balancers, as a multiple of the bytes of one.
const BYTES_OF_FOUR: f64 = 4.0;

/// Azure's limit of destinations of a security group. More Services need a group whose rules are managed outside of the program, such as a
/// rule for all addresses.
const MOST_DESTINATIONS: usize = 4_000;

#[derive(Debug, Clone, Copy)]
struct Shares {
    services: usize,
    nodes: u32,
}

fn cluster(balancers: usize, share: Shares) -> Cluster {
    let options = AzureOptions { limits: LoadBalancerLimits::azure(), ..as_slow_as_azure() };
    let topology = Topology::new().pools(PoolKind::Uniform, u32::try_from(balancers).unwrap(), share.nodes);
    let name = |set: usize| if set == 1 { "kubernetes".to_owned() } else { format!("lb{set}") };
    let entries: Value = (1..=balancers).map(|set| entry(&name(set), set)).collect();
    configured(Cluster::new(topology, options), entries)
}

/// Returns a Service with a node port of its own range, because an API server allocates only 2,768 by default
/// (`--service-node-port-range`), too few for the largest clusters here.
fn service(number: usize, has_rules: bool) -> Service {
    let mut service = external(&format!("s{number}"));
    annotate(&mut service, "azure-disable-load-balancer-nsg-rule", (!has_rules).then_some("true"));
    let port = &mut service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0];
    port.node_port = Some(20_000 + i32::try_from(number).unwrap());
    service
}

/// Measures so many load balancers, and asserts that a restarted manager writes nothing.
fn measure(balancers: usize, share: Shares, has_rules: bool) -> Growth {
    run_paused(async {
        let cluster = cluster(balancers, share);
        let growth = Growth::measure(&cluster, balancers * share.services, |number| service(number, has_rules)).await;
        cluster.assert_plans_nothing("all is done").await;
        growth
    })
}

#[test]
fn bytes_grow_with_the_number_of_load_balancers() {
    let requested = std::env::var("CCM_LOAD_BALANCERS").ok().map(|text| text.parse::<usize>().unwrap());
    let (share, balancers) = requested.map_or((FEW, 4), |balancers| (MANY, balancers));
    let has_rules = balancers * share.services < MOST_DESTINATIONS;
    let [few, many] = [1, balancers].map(|balancers| measure(balancers, share, has_rules));
    many.assert_at_most(if requested.is_some() { f64::INFINITY } else { BYTES_OF_FOUR }, &few);
}

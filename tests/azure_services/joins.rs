//! Hundreds of instances join while Services are created: each instance gives the load balancer another etag.

use std::{collections::BTreeSet, time::Duration};

use cloud_controller_manager::sandbox::azure::{AzureOptions, Class, Latency, RequestRecord};

use crate::azure_services::{
    cluster::{Cluster, HOUR, ten_nodes},
    scale::as_slow_as_azure,
    services::external,
};

const INSTANCES: &str = "microsoft.compute/virtualmachinescalesets/virtualmachines";
const WAVES: usize = 20;
const INSTANCES_OF_A_WAVE: u32 = 15;
/// Instances in the pool at the end, with those from the beginning.
const MEMBERS: usize = 10 + WAVES * INSTANCES_OF_A_WAVE as usize;
/// Shorter than the write of the load balancer for the Service of the previous wave.
const INTERVAL: Duration = Duration::from_secs(2);
/// Writes of the load balancer beyond one for each new Service.
const FEW: usize = 2;

/// Returns options with durations in which an instance can join between the read of a load balancer and its write.
fn options() -> AzureOptions {
    let takes = |respond, operation| Latency {
        respond: Duration::from_millis(respond),
        operation: Duration::from_millis(operation),
    };
    let mut options = as_slow_as_azure();
    options.latencies =
        options.latencies.with(Class::Read, "*", takes(20, 0)).with(Class::Write, INSTANCES, takes(50, 2_000));
    options
}

fn is_write(request: &RequestRecord, kind: &str) -> bool {
    request.class == Class::Write && request.resource_type == kind
}

/// Returns the number of instances that were written.
fn members(cluster: &Cluster) -> usize {
    let requests = cluster.azure().requests();
    let accepted = requests.iter().filter(|request| is_write(request, INSTANCES) && (200..300).contains(&request.status));
    accepted.map(|request| request.path.as_str()).collect::<BTreeSet<_>>().len()
}

/// Returns the numbers of writes of load balancers that were accepted and that were refused.
fn balancer_writes(cluster: &Cluster) -> (usize, usize) {
    let count = |is_refused| {
        let is_counted = |request: &RequestRecord| {
            is_write(request, "microsoft.network/loadbalancers") && (request.status >= 400) == is_refused
        };
        cluster.azure().count(is_counted)
    };
    (count(false), count(true))
}

#[tokio::test(start_paused = true)]
async fn no_service_fails_while_300_instances_join() {
    let cluster = Cluster::new(ten_nodes(), options());
    let manager = cluster.serve(&["a", "b", "c"].map(external)).await;
    let (before, _) = balancer_writes(&cluster);
    let pool = cluster.cloud.topology().pools[0].name.clone();
    for wave in 0..WAVES {
        let machines = cluster.cloud.scale_out(&pool, INSTANCES_OF_A_WAVE).unwrap();
        machines.iter().for_each(|machine| cluster.register(machine));
        cluster.create(&external(&format!("s{wave}")));
        tokio::time::sleep(INTERVAL).await;
    }
    let ready = cluster.until_ready(HOUR).await;
    let joined = cluster.until("all instances have joined", HOUR, |cluster| members(cluster) == MEMBERS).await;
    let (after, refused) = balancer_writes(&cluster);
    println!(
        "{WAVES} Services are ready {ready:?} after the last wave, and the instances in the pool {joined:?} later: {} writes of the load \
         balancer, {refused} refused",
        after - before
    );
    for service in cluster.services() {
        let name = service.metadata.name.unwrap_or_default();
        assert_eq!(cluster.warnings(&name), [], "{name}");
    }
    // An instance that joins needs no write of the load balancer.
    assert!(after - before <= WAVES + FEW, "{} writes of the load balancer", after - before);
    manager.stop().await;
}

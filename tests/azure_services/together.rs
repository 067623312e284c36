//! Machines that join or leave several load balancers at once are written once, from one list.

use std::{collections::BTreeMap, time::Duration};

use cloud_controller_manager::sandbox::azure::{AzureOptions, Class, Latencies, Latency, Quotas, RequestRecord};
use tokio::time::Instant;

use crate::azure_services::{
    cluster::{Cluster, MINUTE, is_ready, ten_nodes},
    services::{external, internal},
};

const SETS: &str = "microsoft.compute/virtualmachinescalesets";
const INSTANCES: &str = "microsoft.compute/virtualmachinescalesets/virtualmachines";

/// Requests to compute since the log was cleared.
#[derive(Debug, Default)]
struct Cost {
    instances_written: usize,
    models_written: usize,
    /// Reads of single instances and models before they were written. What an operation has made of them is read after it.
    singles: Vec<String>,
    lists: Vec<String>,
}

fn cost(cluster: &Cluster) -> Cost {
    let requests = cluster.azure().requests();
    cluster.azure().clear_requests();
    let of = |class, kinds: &[&str]| -> Vec<&RequestRecord> {
        let is_so = |request: &&RequestRecord| request.class == class && kinds.contains(&request.resource_type.as_str());
        requests.iter().filter(is_so).collect()
    };
    let (lists, singles): (Vec<_>, Vec<_>) = of(Class::Read, &[SETS, INSTANCES]).into_iter().partition(|read| read.list);
    let place = |one: &RequestRecord| requests.iter().position(|request| std::ptr::eq(request, one));
    let writes = of(Class::Write, &[SETS, INSTANCES]);
    let precedes = |read: &&RequestRecord| !writes.iter().any(|write| write.path == read.path && place(write) < place(read));
    let singles: Vec<_> = singles.into_iter().filter(precedes).collect();
    let paths = |reads: Vec<&RequestRecord>| reads.into_iter().map(|read| read.path.clone()).collect();
    Cost {
        instances_written: of(Class::Write, &[INSTANCES]).len(),
        models_written: of(Class::Write, &[SETS]).len(),
        singles: paths(singles),
        lists: paths(lists),
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_external_and_the_last_internal_service_go_together() {
    let cluster = Cluster::with_ten_nodes();
    let _life = cluster.start();
    tokio::time::sleep(MINUTE).await;
    cluster.azure().clear_requests();
    cluster.create(&external("web"));
    cluster.add(&internal("inside")).await;
    let came = cost(&cluster);
    println!("created: {came:?}");
    assert_eq!((came.instances_written, came.models_written), (10, 1));
    // The model, which was listed before.
    assert!(came.singles.len() <= 1 && came.lists.len() <= 3, "{came:#?}");

    cluster.settle().await;
    cluster.azure().clear_requests();
    cluster.delete("web");
    cluster.delete("inside");
    cluster.until_gone(5 * MINUTE).await;
    let went = cost(&cluster);
    println!("deleted: {went:?}");
    assert_eq!(cluster.balancers(), Vec::<serde_json::Value>::new());
    assert_eq!((went.instances_written, went.models_written), (10, 1));
    // Models, instances to write on, and one list that follows the ten operations.
    assert!(went.singles.is_empty() && went.lists.len() <= 3, "{went:#?}");
}

/// Compute's published limit of writes of one instance or scale set: so many at once, and so many a minute.
const BURST: f64 = 12.0;
const PER_MINUTE: f64 = 4.0;

/// The least that was left of that limit for any document.
fn least_left(requests: &[RequestRecord]) -> f64 {
    let mut left = BTreeMap::<&str, (Instant, f64)>::new();
    let mut least = BURST;
    for request in requests.iter().filter(|request| request.class == Class::Write) {
        if [SETS, INSTANCES].contains(&request.resource_type.as_str()) {
            let (at, tokens) = left.entry(&request.path).or_insert((request.at, BURST));
            *tokens = (*tokens + (request.at - *at).as_secs_f64() * PER_MINUTE / 60.0).min(BURST) - 1.0;
            *at = request.at;
            least = least.min(*tokens);
        }
    }
    least
}

#[tokio::test(start_paused = true)]
async fn services_that_come_and_go_do_not_use_up_the_quota_of_compute() {
    const CYCLES: usize = 12;
    let takes = Latency { respond: Duration::from_millis(200), operation: Duration::from_millis(200) };
    let options = AzureOptions { latencies: Latencies::writes(takes), quotas: Quotas::azure(), ..AzureOptions::default() };
    // At its share of one half the program would slow down by itself: that many writes are all that the limit gives in the long run.
    let cluster = Cluster::new(ten_nodes(), options).configured("requestSharePercent", 100);
    let _life = cluster.start();
    tokio::time::sleep(MINUTE).await;
    cluster.azure().clear_requests();
    let mut slowest = Duration::ZERO;
    for cycle in 0..CYCLES {
        let started = Instant::now();
        let names: Vec<String> = (0..10).map(|index| format!("c{cycle}-{index}")).collect();
        for (index, name) in names.iter().enumerate() {
            cluster.create(&if index % 2 == 0 { external(name) } else { internal(name) });
        }
        let are_ready = |cluster: &Cluster| names.iter().all(|name| cluster.service(name).is_some_and(|it| is_ready(&it)));
        slowest = slowest.max(cluster.until("they are ready", 10 * MINUTE, are_ready).await);
        names.iter().for_each(|name| cluster.delete(name));
        let gone = cluster.until_gone(10 * MINUTE).await;
        slowest = slowest.max(gone);
        tokio::time::sleep_until(started + Duration::from_secs(30)).await;
    }
    let requests = cluster.azure().requests();
    let refused = requests.iter().filter(|request| request.status == 429).count();
    let left = least_left(&requests);
    let cost = cost(&cluster);
    println!("{CYCLES} cycles: {cost:?}, {refused} refused, at least {left:.1} of {BURST} writes left, slowest {slowest:?}");
    assert!(cost.instances_written <= 2 * 10 * CYCLES, "{cost:?}");
    assert!(cost.models_written <= 2 * CYCLES, "{cost:?}");
    assert_eq!(refused, 0);
    assert!(left >= BURST / 2.0, "{left} writes left");
    assert!(slowest <= Duration::from_secs(10), "{slowest:?}");
}

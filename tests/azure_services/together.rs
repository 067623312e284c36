//! Machines that join or leave several load balancers at once: each is written once, after one list.

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
    /// Reads of single instances and models before their writes; reads of the results of operations do not count.
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
    let index_of = |record: &RequestRecord| requests.iter().position(|request| std::ptr::eq(request, record));
    let writes = of(Class::Write, &[SETS, INSTANCES]);
    let precedes =
        |read: &&RequestRecord| !writes.iter().any(|write| write.path == read.path && index_of(write) < index_of(read));
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
async fn deleting_both_last_services_writes_each_machine_once() {
    let cluster = Cluster::with_ten_nodes();
    let _manager = cluster.start();
    tokio::time::sleep(MINUTE).await;
    cluster.azure().clear_requests();
    cluster.create(&external("web"));
    cluster.add(&internal("inside")).await;
    let creation = cost(&cluster);
    println!("created: {creation:?}");
    assert_eq!((creation.instances_written, creation.models_written), (10, 1));
    // The model, which was listed before.
    assert!(creation.singles.len() <= 1 && creation.lists.len() <= 3, "{creation:#?}");

    cluster.settle().await;
    cluster.azure().clear_requests();
    cluster.delete("web");
    cluster.delete("inside");
    cluster.until_all_deleted(5 * MINUTE).await;
    let deletion = cost(&cluster);
    println!("deleted: {deletion:?}");
    assert_eq!(cluster.balancers(), Vec::<serde_json::Value>::new());
    assert_eq!((deletion.instances_written, deletion.models_written), (10, 1));
    // Models, instances to write on, and one list that follows the ten operations.
    assert!(deletion.singles.is_empty() && deletion.lists.len() <= 3, "{deletion:#?}");
}

/// Compute's published limit of writes of one instance or scale set: burst, and writes per minute.
const BURST: f64 = 12.0;
const PER_MINUTE: f64 = 4.0;

/// Returns the smallest remaining number of writes within that limit, over all documents.
fn least_remaining(requests: &[RequestRecord]) -> f64 {
    let mut budgets = BTreeMap::<&str, (Instant, f64)>::new();
    let mut least = BURST;
    for request in requests.iter().filter(|request| request.class == Class::Write) {
        if [SETS, INSTANCES].contains(&request.resource_type.as_str()) {
            let (at, tokens) = budgets.entry(&request.path).or_insert((request.at, BURST));
            *tokens = (*tokens + (request.at - *at).as_secs_f64() * PER_MINUTE / 60.0).min(BURST) - 1.0;
            *at = request.at;
            least = least.min(*tokens);
        }
    }
    least
}

#[tokio::test(start_paused = true)]
async fn service_churn_does_not_exhaust_the_quota_of_compute() {
    const CYCLES: usize = 12;
    let takes = Latency { respond: Duration::from_millis(200), operation: Duration::from_millis(200) };
    let options = AzureOptions { latencies: Latencies::writes(takes), quotas: Quotas::azure(), ..AzureOptions::default() };
    // With its default share of one half, the program would limit itself to fewer writes than the quota allows.
    let cluster = Cluster::new(ten_nodes(), options).configured("requestSharePercent", 100);
    let _manager = cluster.start();
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
        let deletion = cluster.until_all_deleted(10 * MINUTE).await;
        slowest = slowest.max(deletion);
        tokio::time::sleep_until(started + Duration::from_secs(30)).await;
    }
    let requests = cluster.azure().requests();
    let refused = requests.iter().filter(|request| request.status == 429).count();
    let remaining = least_remaining(&requests);
    let cost = cost(&cluster);
    println!(
        "{CYCLES} cycles: {cost:?}, {refused} refused, at least {remaining:.1} of {BURST} writes left, slowest {slowest:?}"
    );
    assert!(cost.instances_written <= 2 * 10 * CYCLES, "{cost:?}");
    assert!(cost.models_written <= 2 * CYCLES, "{cost:?}");
    assert_eq!(refused, 0);
    assert!(remaining >= BURST / 2.0, "{remaining} writes left");
    assert!(slowest <= Duration::from_secs(10), "{slowest:?}");
}

//! Growth of requests and bytes with the cluster: in proportion to it, or to the pages of ARM's lists. One more Node costs the same in any
//! cluster.
//!
//! From 1,000 to 5,000 Nodes; to 15,000 with `CCM_SOAK_SECONDS` set.

use std::time::Duration;

use cloud_controller_manager::sandbox::azure::{RequestRecord, topology::PoolKind};

use crate::azure_nodes::{Cluster, EACH, MINUTE, arcs};

/// Tolerance of a proportional growth.
const SLACK: f64 = 1.05;
/// Number of lists that do not depend on the number of pages: scale sets, machines outside of them.
const FIXED: usize = 2;
/// Longer than a minute. With exactly a minute, a response without delay would be as old as the limit and not older, which saves one read
/// per hour.
const QUERY_INTERVAL: Duration = Duration::from_secs(61);

/// Requests of a step and the bytes of their responses.
#[derive(Debug, Clone, Copy)]
struct Cost {
    requests: usize,
    bytes: usize,
}

impl Cost {
    fn of(requests: &[RequestRecord]) -> Self {
        Self { requests: requests.len(), bytes: requests.iter().map(|request| request.bytes).sum() }
    }
}

/// Costs of a cluster of uniform scale sets.
#[derive(Debug)]
struct Growth {
    nodes: usize,
    /// All Nodes are initialized at once.
    first: Cost,
    /// One hour, in which all Nodes are queried about once a minute.
    hour: Cost,
    one_more: Cost,
}

async fn measure(pools: u32) -> Growth {
    let cluster = Cluster::of_pools(PoolKind::Uniform, pools).await;
    let nodes = arcs(cluster.cloud.uninitialized_nodes());
    cluster.session.inventory.warm().await.unwrap();
    cluster.initialize(&nodes).await;
    let first = Cost::of(&cluster.requests());
    cluster.query_each(QUERY_INTERVAL, 60).await;
    let hour = Cost::of(&cluster.requests());
    tokio::time::advance(MINUTE).await;
    cluster.add_node().await;
    let one_more = Cost::of(&cluster.requests());
    Growth { nodes: nodes.len(), first, hour, one_more }
}

fn is_proportional(few: usize, many: usize, times: f64) -> bool {
    let of = |number: usize| f64::from(u32::try_from(number).unwrap());
    of(many) <= of(few) * times * SLACK
}

#[tokio::test(start_paused = true)]
async fn requests_and_bytes_grow_with_the_cluster() {
    let pools: &[u32] = if std::env::var_os("CCM_SOAK_SECONDS").is_some() { &[1, 15] } else { &[1, 5] };
    let mut measured = Vec::new();
    for pools in pools {
        measured.push(measure(*pools).await);
        println!("{:?}", measured.last());
    }
    let few = &measured[0];
    for many in &measured[1..] {
        let times = f64::from(u32::try_from(many.nodes / few.nodes).unwrap());
        // Lists of machines and of interfaces, each in pages of 100.
        assert_eq!(many.first.requests, FIXED + 2 * many.nodes / 100, "{many:?}");
        assert!(is_proportional(few.hour.requests, many.hour.requests, times), "{few:?}\n{many:?}");
        assert!(is_proportional(few.first.bytes, many.first.bytes, times), "{few:?}\n{many:?}");
        assert!(is_proportional(few.hour.bytes, many.hour.bytes, times), "{few:?}\n{many:?}");
        assert!(many.one_more.requests <= few.one_more.requests, "{few:?}\n{many:?}");
        assert!(many.one_more.bytes <= few.one_more.bytes * 2, "{few:?}\n{many:?}");
    }
    assert_eq!(few.nodes, EACH as usize);
}

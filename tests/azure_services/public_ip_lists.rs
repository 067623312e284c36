//! More Services share a public IP than its tag `k8s-azure-service` can list: Azure accepts 256 characters.

use serde_json::Value;

use crate::azure_services::{
    cluster::{Cluster, MINUTE},
    services::{external, pinned, set_port},
};

const SERVICES: i32 = 20;

fn name(number: i32) -> String {
    format!("echo-{number:02}")
}

/// Returns the keys of Services as the tag lists them: 16 keys have 255 characters.
fn keys(numbers: impl IntoIterator<Item = i32>) -> String {
    let keys: Vec<String> = numbers.into_iter().map(|number| format!("default/{}", name(number))).collect();
    keys.join(",")
}

fn list(cluster: &Cluster) -> String {
    let public_ips = cluster.public_ips();
    assert_eq!(public_ips.len(), 1);
    public_ips[0]["tags"]["k8s-azure-service"].as_str().unwrap_or_default().to_owned()
}

fn ports(cluster: &Cluster) -> Vec<i64> {
    let balancer = cluster.balancers().remove(0);
    let rules = balancer["properties"]["loadBalancingRules"].as_array().cloned().unwrap_or_default();
    let mut ports: Vec<i64> = rules.iter().filter_map(|rule| rule["properties"]["frontendPort"].as_i64()).collect();
    ports.sort_unstable();
    ports
}

/// Counts the events that say that the list has no room for a Service.
fn notices(cluster: &Cluster, number: i32) -> usize {
    let text = format!("has no room for default/{}", name(number));
    let warnings = cluster.warnings(&name(number));
    warnings.iter().filter(|(reason, message)| reason == "KeptPublicIPAddress" && message.contains(&text)).count()
}

fn assert_no_write_failed(cluster: &Cluster) {
    let refused: Vec<String> = cluster.writes().into_iter().filter(|write| write.contains("(4")).collect();
    assert_eq!(refused, Vec::<String>::new());
    let failed = (1..=SERVICES).flat_map(|number| cluster.warnings(&name(number)));
    let failed: Vec<_> = failed.filter(|(reason, _)| reason == "SyncLoadBalancerFailed").collect();
    assert_eq!(failed, Vec::<(String, String)>::new());
}

#[tokio::test(start_paused = true)]
async fn more_services_share_a_public_ip_than_its_tag_lists() {
    let (cluster, manager) = Cluster::with_two_nodes().serving(&[external(&name(1))]).await;
    let address = cluster.addresses(&name(1)).remove(0);
    for number in 2..=SERVICES {
        cluster.add(&pinned(&name(number), &address, 8000 + number)).await;
    }
    cluster.settle().await;
    assert_eq!(list(&cluster), keys(1..=16));
    assert_eq!(ports(&cluster).len(), 20);
    let counts: Vec<usize> = (1..=SERVICES).map(|number| notices(&cluster, number)).collect();
    let expected: Vec<usize> = (1..=SERVICES).map(|number| usize::from(number > 16)).collect();
    assert_eq!(counts, expected);
    assert_no_write_failed(&cluster);
    manager.stop().await;

    // After a restart all are requested at once, and each can still be changed.
    cluster.azure().clear_requests();
    let _manager = cluster.start();
    cluster.change(&name(1), |service| set_port(service, 8001));
    cluster.change(&name(20), |service| set_port(service, 8120));
    cluster
        .until("the rules follow", 10 * MINUTE, |cluster| [8001, 8120].iter().all(|port| ports(cluster).contains(port)))
        .await;
    cluster.settle().await;
    cluster.until_ready(MINUTE).await;
    assert_eq!(list(&cluster), keys(1..=16));
    assert_no_write_failed(&cluster);

    // A deleted Service makes room in the list.
    cluster.remove(&name(3)).await;
    cluster.settle().await;
    assert_eq!(list(&cluster), keys([1, 2].into_iter().chain(4..=17)));
    for number in (1..=SERVICES).filter(|number| *number != 3) {
        cluster.delete(&name(number));
    }
    cluster.until_all_deleted(10 * MINUTE).await;
    cluster.settle().await;
    assert_eq!(cluster.public_ips(), Vec::<Value>::new());
}

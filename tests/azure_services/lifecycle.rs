//! Services that need no load balancer, rights that are missing at the start, and counts of batches and members.

use cloud_controller_manager::sandbox::{
    azure::Fault,
    objects::{ObjectExt, ServiceExt, service},
};

use crate::azure_services::{
    cluster::{Cluster, MINUTE},
    services::external,
};

/// Returns the names of the parts of all load balancers in a list.
fn parts(cluster: &Cluster, list: &str) -> Vec<String> {
    let balancers = cluster.balancers();
    let lists = balancers.iter().filter_map(|balancer| balancer["properties"][list].as_array());
    lists.flatten().filter_map(|part| part["name"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_service_that_needs_no_load_balancer_gets_none() {
    let cluster = Cluster::with_two_nodes();
    cluster.create(&external("elsewhere").load_balancer_class("example.com/other"));
    cluster.create(&service("default", "plain"));
    // A foreign finalizer keeps the Service, which never had a load balancer.
    cluster.create(&external("dying").finalizer("example.com/keep"));
    cluster.delete("dying");
    let _manager = cluster.start();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(cluster.writes(), Vec::<String>::new());
    cluster.create(&external("web"));
    cluster.until_served("web", 5 * MINUTE).await;
    cluster.settle().await;
    assert_eq!(parts(&cluster, "frontendIPConfigurations").len(), 1);
    for name in ["elsewhere", "plain", "dying"] {
        assert_eq!(cluster.addresses(name), Vec::<String>::new(), "{name}");
    }
}

/// Only new public IPs need the zones of the region, so a role that may not read them does not affect existing Services.
#[tokio::test(start_paused = true)]
async fn existing_services_work_without_the_right_to_read_zones() {
    let (cluster, manager) = Cluster::with_two_nodes().serving(&[external("web")]).await;
    manager.stop().await;

    cluster
        .azure()
        .add_fault(Fault::refuse(403, "AuthorizationFailed").path("/subscriptions/*/providers/Microsoft.Compute"));
    let _manager = cluster.start();
    cluster.change("web", |web| web.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8080);
    cluster.create(&external("new"));
    cluster.until("a warning about the new Service", 5 * MINUTE, |cluster| !cluster.warnings("new").is_empty()).await;
    cluster.settle().await;
    let rules = parts(&cluster, "loadBalancingRules");
    assert!(rules.len() == 1 && rules[0].ends_with("-8080"), "{rules:?}");
    assert_eq!(cluster.warnings("web"), []);

    cluster.azure().faults().clear();
    cluster.until_ready(20 * MINUTE).await;
}

/// Returns the number of writes of load balancers for ten Services that exist when the manager starts.
async fn writes_of_load_balancers(flag: &str) -> usize {
    let cluster = Cluster::with_two_nodes();
    (0..10).for_each(|index| drop(cluster.create(&external(&format!("s{index}")))));
    let manager = cluster.start_with(&[flag]);
    cluster.until_ready(60 * MINUTE).await;
    manager.stop().await;
    cluster.writes().iter().filter(|write| write.contains("/loadBalancers/")).count()
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_1_concurrent_sync_does_not_limit_batches() {
    assert!(writes_of_load_balancers("--concurrent-service-syncs=1").await <= 2);
    assert!(writes_of_load_balancers("--concurrent-service-syncs=2").await >= 5);
}

/// Upstream's dashboards show these series for machines that join and leave pools.
#[tokio::test(start_paused = true)]
async fn membership_is_counted_for_the_service_that_needs_it() {
    let cluster = Cluster::with_two_nodes();
    let manager = cluster.start();
    cluster.add(&external("web")).await;
    cluster.remove("web").await;
    cluster.settle().await;
    let page = manager.metrics.render().unwrap();
    for request in ["vmss_ensure_hosts_in_pool", "vmss_ensure_backend_pool_deleted"] {
        let series = page.lines().filter(|line| line.starts_with("cloudprovider_azure_op_duration_seconds_count{"));
        let label = format!("request=\"services_{request}\"");
        let mut of_service = series.filter(|line| line.contains(&label) && line.contains("source=\"default/web\""));
        assert!(of_service.next().is_some(), "{request}");
    }
}

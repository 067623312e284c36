//! What happens to a Service besides being created and deleted while somebody looks.

use cloud_controller_manager::sandbox::{
    azure::Fault,
    objects::{ObjectExt, ServiceExt, service},
};

use crate::azure_services::{
    cluster::{Cluster, MINUTE},
    services::external,
};

/// Names of the parts of all load balancers in a list.
fn parts(cluster: &Cluster, list: &str) -> Vec<String> {
    let balancers = cluster.balancers();
    let lists = balancers.iter().filter_map(|balancer| balancer["properties"][list].as_array());
    lists.flatten().filter_map(|part| part["name"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_service_that_nobody_asks_for_gets_nothing() {
    let cluster = Cluster::with_two_nodes();
    cluster.create(&external("elsewhere").load_balancer_class("example.com/other"));
    cluster.create(&service("default", "plain"));
    // Somebody else's finalizer keeps it, it never had a load balancer.
    cluster.create(&external("dying").finalizer("example.com/keep"));
    cluster.delete("dying");
    let _life = cluster.start();
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

/// Only what is made anew needs the zones of the region: a role that may not read them stops nothing that is there.
#[tokio::test(start_paused = true)]
async fn without_the_right_to_read_zones_what_is_there_stays_in_order() {
    let (cluster, life) = Cluster::with_two_nodes().serving(&[external("web")]).await;
    life.stop().await;

    cluster
        .azure()
        .add_fault(Fault::refuse(403, "AuthorizationFailed").path("/subscriptions/*/providers/Microsoft.Compute"));
    let _life = cluster.start();
    cluster.change("web", |web| web.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8080);
    cluster.create(&external("new"));
    cluster.until("the new one is told", 5 * MINUTE, |cluster| !cluster.warnings("new").is_empty()).await;
    cluster.settle().await;
    let rules = parts(&cluster, "loadBalancingRules");
    assert!(rules.len() == 1 && rules[0].ends_with("-8080"), "{rules:?}");
    assert_eq!(cluster.warnings("web"), []);

    cluster.azure().faults().clear();
    cluster.until_ready(20 * MINUTE).await;
}

/// Writes of load balancers for ten Services that wait when the manager starts.
async fn writes_of_load_balancers(flag: &str) -> usize {
    let cluster = Cluster::with_two_nodes();
    (0..10).for_each(|index| drop(cluster.create(&external(&format!("s{index}")))));
    let life = cluster.start_with(&[flag]);
    cluster.until_ready(60 * MINUTE).await;
    life.stop().await;
    cluster.writes().iter().filter(|write| write.contains("/loadBalancers/")).count()
}

#[tokio::test(start_paused = true)]
async fn one_service_at_a_time_is_what_nobody_asks_of_azure() {
    assert!(writes_of_load_balancers("--concurrent-service-syncs=1").await <= 2);
    assert!(writes_of_load_balancers("--concurrent-service-syncs=2").await >= 5);
}

/// What upstream's dashboards show of machines that join and leave the pools.
#[tokio::test(start_paused = true)]
async fn membership_is_counted_for_the_service_that_asks_for_it() {
    let cluster = Cluster::with_two_nodes();
    let life = cluster.start();
    cluster.add(&external("web")).await;
    cluster.remove("web").await;
    cluster.settle().await;
    let page = life.metrics.render().unwrap();
    for request in ["vmss_ensure_hosts_in_pool", "vmss_ensure_backend_pool_deleted"] {
        let series = page.lines().filter(|line| line.starts_with("cloudprovider_azure_op_duration_seconds_count{"));
        let label = format!("request=\"services_{request}\"");
        let mut of_service = series.filter(|line| line.contains(&label) && line.contains("source=\"default/web\""));
        assert!(of_service.next().is_some(), "{request}");
    }
}

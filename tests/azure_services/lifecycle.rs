//! What happens to a Service besides being created and deleted while somebody looks.

use std::time::Duration;

use cloud_controller_manager::sandbox::{
    azure::{AzureOptions, Fault},
    objects::{ObjectExt, ServiceExt, service},
};
use serde_json::Value;

use crate::azure_services::{
    cluster::{Cluster, addresses, alone, is_ready, two_nodes},
    documents::{State, differences, exact},
    services::{annotate, dual_stack, external, internal, local, pinned},
};

const MINUTE: Duration = Duration::from_secs(60);

fn cluster() -> Cluster {
    Cluster::new(two_nodes(), AzureOptions::default())
}

/// Nothing is left, nothing is missing.
fn assert_as_before(before: &State, cluster: &Cluster) {
    assert_eq!(differences(before, &exact(cluster)), Vec::<String>::new());
}

/// Names of the parts of all load balancers in a list.
fn parts(cluster: &Cluster, list: &str) -> Vec<String> {
    let balancers = cluster.azure().documents_of("Microsoft.Network/loadBalancers");
    let lists = balancers.iter().filter_map(|balancer| balancer["properties"][list].as_array());
    lists.flatten().filter_map(|part| part["name"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_service_that_nobody_asks_for_gets_nothing() {
    alone(async {
        let cluster = cluster();
        cluster.create(&external("elsewhere").load_balancer_class("example.com/other"));
        cluster.create(&service("default", "plain"));
        // Somebody else's finalizer keeps it, it never had a load balancer.
        cluster.create(&external("dying").finalizer("example.com/keep"));
        cluster.delete("dying");
        let life = cluster.start();
        tokio::time::sleep(MINUTE).await;
        assert_eq!(cluster.writes(), Vec::<String>::new());
        cluster.create(&external("web"));
        cluster.until("it is ready", 5 * MINUTE, |cluster| cluster.service("web").is_some_and(|web| is_ready(&web))).await;
        cluster.settle().await;
        assert_eq!(parts(&cluster, "frontendIPConfigurations").len(), 1);
        for name in ["elsewhere", "plain", "dying"] {
            let service = cluster.service(name).unwrap();
            assert_eq!(addresses(&service), Vec::<String>::new(), "{name}");
        }
        life.stop().await;
    });
}

#[test]
fn what_was_deleted_while_nobody_looked_is_cleaned_up() {
    alone(async {
        let cluster = cluster();
        let before = exact(&cluster);
        [external("a"), internal("b"), dual_stack("c"), local("d")].iter().for_each(|service| drop(cluster.create(service)));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        life.kill();
        ["a", "b", "c", "d"].iter().for_each(|name| cluster.delete(name));
        assert_eq!(cluster.services().len(), 4, "finalizers keep them");
        let life = cluster.start();
        cluster.until_gone(10 * MINUTE).await;
        cluster.settle().await;
        assert_as_before(&before, &cluster);
        life.stop().await;
    });
}

#[test]
fn a_service_that_is_no_load_balancer_any_more_leaves_nothing() {
    alone(async {
        let cluster = cluster();
        let before = exact(&cluster);
        [external("a"), internal("b")].iter().for_each(|service| drop(cluster.create(service)));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        for name in ["a", "b"] {
            cluster.change(name, |service| service.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned()));
        }
        cluster.settle().await;
        assert_as_before(&before, &cluster);
        for service in cluster.services() {
            assert_eq!(addresses(&service), Vec::<String>::new());
            assert_eq!(service.metadata.finalizers.unwrap_or_default(), Vec::<String>::new());
        }
        life.stop().await;
    });
}

#[test]
fn a_service_moves_between_internal_and_external() {
    alone(async {
        let cluster = cluster();
        cluster.create(&external("web"));
        cluster.create(&external("other"));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        let (outside, public) = (exact(&cluster), addresses(&cluster.service("web").unwrap()));
        cluster.change("web", |service| annotate(service, "azure-load-balancer-internal", Some("true")));
        cluster.settle().await;
        let private = addresses(&cluster.service("web").unwrap());
        assert!(
            private.iter().all(|address| address.starts_with("10.")) && private.len() == 1,
            "{private:?}, was {public:?}"
        );
        assert_eq!(cluster.azure().documents_of("Microsoft.Network/publicIPAddresses").len(), 1, "its public IP is gone");
        cluster.change("web", |service| annotate(service, "azure-load-balancer-internal", None));
        cluster.settle().await;
        assert!(exact(&cluster).keys().eq(outside.keys()), "the internal load balancer is gone, the public IP is back");
        let again = addresses(&cluster.service("web").unwrap());
        assert!(again.len() == 1 && again[0].starts_with("20."), "{again:?}");
        life.stop().await;
    });
}

#[test]
fn who_shares_an_address_keeps_it_when_the_first_one_leaves() {
    alone(async {
        let cluster = cluster();
        let before = exact(&cluster);
        cluster.create(&external("first"));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        let address = addresses(&cluster.service("first").unwrap()).remove(0);
        cluster.create(&pinned("second", &address, 8080));
        cluster.until_ready(5 * MINUTE).await;
        assert_eq!(addresses(&cluster.service("second").unwrap()), std::slice::from_ref(&address));
        assert_eq!(parts(&cluster, "frontendIPConfigurations").len(), 1);
        assert_eq!(parts(&cluster, "loadBalancingRules").len(), 2);
        cluster.delete("first");
        cluster.until("the first one is gone", 10 * MINUTE, |cluster| cluster.service("first").is_none()).await;
        cluster.settle().await;
        assert_eq!(parts(&cluster, "loadBalancingRules").len(), 1);
        assert_eq!(addresses(&cluster.service("second").unwrap()), std::slice::from_ref(&address));
        let has = |document: &Value| document["properties"]["ipAddress"] == address.as_str();
        assert!(cluster.azure().documents_of("Microsoft.Network/publicIPAddresses").iter().any(has), "its address is lost");
        life.stop().await;
        cluster.azure().clear_requests();
        let life = cluster.start();
        cluster.settle().await;
        assert_eq!(cluster.writes(), Vec::<String>::new(), "a restart changes nothing");
        cluster.delete("second");
        cluster.until_gone(10 * MINUTE).await;
        cluster.settle().await;
        assert_as_before(&before, &cluster);
        life.stop().await;
    });
}

#[test]
fn nodes_come_and_go() {
    alone(async {
        let cluster = cluster();
        [external("a"), internal("b")].iter().for_each(|service| drop(cluster.create(service)));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        let two = exact(&cluster);
        let pool = cluster.world.topology().pools[0].name.clone();
        let name = cluster.world.scale_out(&pool, 1).unwrap().remove(0);
        cluster.server.create(&cluster.world.topology().node(&cluster.world.machine(&name).unwrap()));
        cluster.settle().await;
        let pools = |document: &Value| document.to_string().to_lowercase().contains("/backendaddresspools/kubernetes");
        let now = exact(&cluster);
        let mut joined = now.iter().filter(|(id, _)| !two.contains_key(*id) && id.contains("/networkinterfaces/"));
        assert!(joined.next().is_some_and(|(_, document)| pools(document)), "the new machine is in no pool");
        cluster.server.delete::<k8s_openapi::api::core::v1::Node>("", &name);
        cluster.world.scale_in(&pool, 1).unwrap();
        cluster.settle().await;
        assert_eq!(differences(&two, &exact(&cluster)), Vec::<String>::new());
        life.stop().await;
    });
}

/// Only what is made anew needs the zones of the region: a role that may not read them stops nothing that is there.
#[test]
fn without_the_right_to_read_zones_what_is_there_stays_in_order() {
    alone(async {
        let cluster = cluster();
        cluster.create(&external("web"));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        life.stop().await;

        cluster
            .azure()
            .add_fault(Fault::refuse(403, "AuthorizationFailed").path("/subscriptions/*/providers/Microsoft.Compute"));
        let life = cluster.start();
        cluster.change("web", |web| web.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8080);
        cluster.create(&external("new"));
        cluster.until("the new one is told", 5 * MINUTE, |cluster| !cluster.warnings("new").is_empty()).await;
        cluster.settle().await;
        let rules = parts(&cluster, "loadBalancingRules");
        assert!(rules.len() == 1 && rules[0].ends_with("-8080"), "{rules:?}");
        assert_eq!(cluster.warnings("web"), []);

        cluster.azure().faults().clear();
        cluster.until_ready(20 * MINUTE).await;
        life.stop().await;
    });
}

/// Writes of load balancers for ten Services that wait when the manager starts.
async fn writes_of_load_balancers(flag: &str) -> usize {
    let cluster = cluster();
    (0..10).for_each(|index| drop(cluster.create(&external(&format!("s{index}")))));
    let life = cluster.start_with(&[flag]);
    cluster.until_ready(60 * MINUTE).await;
    life.stop().await;
    cluster.writes().iter().filter(|write| write.contains("/loadBalancers/")).count()
}

#[test]
fn one_service_at_a_time_is_what_nobody_asks_of_azure() {
    alone(async {
        assert!(writes_of_load_balancers("--concurrent-service-syncs=1").await <= 2);
        assert!(writes_of_load_balancers("--concurrent-service-syncs=2").await >= 5);
    });
}

/// What upstream's dashboards show of machines that join and leave the pools.
#[test]
fn membership_is_counted_for_the_service_that_asks_for_it() {
    alone(async {
        let cluster = Cluster::new(two_nodes(), AzureOptions::default());
        let life = cluster.start();
        cluster.create(&external("web"));
        cluster.until_ready(5 * MINUTE).await;
        cluster.delete("web");
        cluster.until_gone(5 * MINUTE).await;
        cluster.settle().await;
        let page = life.metrics.render().unwrap();
        for request in ["vmss_ensure_hosts_in_pool", "vmss_ensure_backend_pool_deleted"] {
            let series = page.lines().filter(|line| line.starts_with("cloudprovider_azure_op_duration_seconds_count{"));
            let label = format!("request=\"services_{request}\"");
            let mut of_service = series.filter(|line| line.contains(&label) && line.contains("source=\"default/web\""));
            assert!(of_service.next().is_some(), "{request}");
        }
        life.stop().await;
    });
}

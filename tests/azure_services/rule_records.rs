//! Destinations of security rules that a new process reads from the ConfigMap of the previous one, which has only additional and former
//! public addresses.

use std::collections::BTreeMap;

use cloud_controller_manager::providers::azure::planner::load_balancer::rule_records::CONFIG_MAP;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use crate::azure_services::{
    cluster::{Cluster, MINUTE},
    services::{annotate, external, internal, with},
};

const ADDITIONAL: &str = "azure-additional-public-ips";
const FORMER: &str = "198.51.100.7";

fn cluster() -> Cluster {
    let cluster = Cluster::with_two_nodes();
    cluster.create(&with(external("web"), ADDITIONAL, FORMER));
    cluster
}

fn opens(cluster: &Cluster, address: &str) -> bool {
    let groups = cluster.security_groups();
    groups.iter().any(|group| group.to_string().contains(&format!("\"{address}\"")))
}

/// Returns the kinds of the writes that a manager would send if it started now.
async fn planned(cluster: &Cluster) -> Vec<&'static str> {
    cluster.plan(&[]).await.writes().map(|write| write.kind).collect()
}

fn recorded(cluster: &Cluster) -> BTreeMap<String, String> {
    let map = cluster.server.get::<ConfigMap>("kube-system", CONFIG_MAP);
    map.and_then(|map| map.data).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_service_without_finalizer_leaves_no_additional_address() {
    let cluster = cluster();
    cluster.create(&external("other"));
    let manager = cluster.serve_and_settle(&[]).await;
    manager.kill();
    cluster.change("web", |web| web.metadata.finalizers = None);
    cluster.delete("web");
    let _manager = cluster.start();
    cluster.settle().await;
    assert!(!opens(&cluster, FORMER), "{:?}", recorded(&cluster));
    let other = cluster.addresses("other").remove(0);
    assert!(opens(&cluster, &other));
}

#[tokio::test(start_paused = true)]
async fn the_last_service_leaves_no_additional_address() {
    let cluster = cluster();
    let manager = cluster.serve_and_settle(&[]).await;
    manager.kill();
    cluster.change("web", |web| web.metadata.finalizers = None);
    cluster.delete("web");
    assert_eq!(planned(&cluster).await, ["security_group", "config_map"]);
    let _manager = cluster.start();
    cluster.settle().await;
    assert!(!opens(&cluster, FORMER), "{:?}", recorded(&cluster));
    assert_eq!(recorded(&cluster), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn a_service_without_such_addresses_writes_no_record() {
    let cluster = Cluster::with_two_nodes();
    let on_machines = with(external("machines"), "azure-disable-load-balancer-floating-ip", "true");
    let _manager = cluster.serve_and_settle(&[external("web"), internal("inside"), on_machines]).await;
    cluster.remove("web").await;
    assert_eq!(cluster.server.get::<ConfigMap>("kube-system", CONFIG_MAP), None);
}

#[tokio::test(start_paused = true)]
async fn a_plan_prints_the_writes_of_the_record() {
    let cluster = cluster();
    let manager = cluster.serve_and_settle(&[]).await;
    manager.stop().await;
    assert_eq!(planned(&cluster).await, Vec::<&str>::new());
    // The Go CCM writes no record.
    cluster.server.delete::<ConfigMap>("kube-system", CONFIG_MAP);
    assert_eq!(planned(&cluster).await, ["config_map"]);
    let _manager = cluster.start();
    cluster.settle().await;
    assert!(recorded(&cluster).values().any(|record| record.contains(FORMER)));
}

/// Another cluster with the same security group has the same rule for its own address.
#[tokio::test(start_paused = true)]
async fn addresses_of_other_clusters_are_kept() {
    let cluster = cluster();
    let manager = cluster.serve_and_settle(&[]).await;
    manager.kill();
    let group = cluster.security_groups().remove(0);
    cluster.azure().change_document(group["id"].as_str().unwrap(), |document| {
        let rule = &mut document["properties"]["securityRules"][0]["properties"];
        rule["destinationAddressPrefixes"].as_array_mut().unwrap().push("198.51.100.99".into());
    });
    cluster.change("web", |web| annotate(web, ADDITIONAL, None));
    let _manager = cluster.start();
    cluster.settle().await;
    assert!(!opens(&cluster, FORMER) && opens(&cluster, "198.51.100.99"));
}

#[tokio::test(start_paused = true)]
async fn records_come_before_rules_and_leave_with_them() {
    let cluster = cluster();
    let manager = cluster.start();
    cluster
        .until("the group is written", 5 * MINUTE, |cluster| {
            let is_open = opens(cluster, FORMER);
            assert!(!is_open || recorded(cluster).values().any(|record| record.contains(FORMER)));
            is_open
        })
        .await;
    cluster.until_ready(5 * MINUTE).await;
    let versions =
        || cluster.server.get::<ConfigMap>("kube-system", CONFIG_MAP).and_then(|map| map.metadata.resource_version);
    let before = versions();
    manager.stop().await;
    let _manager = cluster.start();
    cluster.settle().await;
    assert_eq!(versions(), before, "a start writes nothing");
    cluster.remove("web").await;
    assert_eq!(recorded(&cluster), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn services_are_served_without_a_readable_record() {
    for code in [401, 403, 500] {
        let cluster = cluster();
        cluster.server.faults().fail_every(code, |request| request.resource == "configmaps");
        let _manager = cluster.serve_and_settle(&[]).await;
        assert!(opens(&cluster, FORMER), "{code}");
        cluster.server.faults().clear();
        cluster.add(&with(external("late"), ADDITIONAL, "198.51.100.8")).await;
        let are_recorded = |cluster: &Cluster| {
            let records: String = recorded(cluster).into_values().collect();
            records.contains(FORMER) && records.contains("198.51.100.8")
        };
        cluster.until(&format!("the addresses are recorded after {code}"), 5 * MINUTE, are_recorded).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_api_server_keeps_no_service_waiting_for_the_record() {
    let cluster = cluster();
    cluster.server.faults().hang_every(|request| request.resource == "configmaps");
    let _manager = cluster.start();
    cluster.until_ready(MINUTE).await;
    assert!(opens(&cluster, FORMER));
    cluster.remove("web").await;
}

/// The ConfigMap is deleted, and a copy of it is applied.
#[tokio::test(start_paused = true)]
async fn records_continue_in_a_recreated_config_map() {
    let cluster = cluster();
    let manager = cluster.serve_and_settle(&[]).await;
    let mut copy = cluster.server.get::<ConfigMap>("kube-system", CONFIG_MAP).unwrap();
    cluster.server.delete::<ConfigMap>("kube-system", CONFIG_MAP);
    copy.metadata = ObjectMeta { name: copy.metadata.name, namespace: copy.metadata.namespace, ..ObjectMeta::default() };
    cluster.server.create(&copy);
    cluster.add(&with(external("late"), ADDITIONAL, "198.51.100.8")).await;
    cluster.settle().await;
    let records = recorded(&cluster);
    assert!(records.values().any(|record| record.contains("198.51.100.8")), "{records:?}");
    manager.kill();
    cluster.change("late", |late| annotate(late, ADDITIONAL, None));
    let _manager = cluster.start();
    cluster.settle().await;
    assert!(!opens(&cluster, "198.51.100.8") && opens(&cluster, FORMER), "{:?}", recorded(&cluster));
}

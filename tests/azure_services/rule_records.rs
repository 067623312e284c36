//! What a process that begins knows of the destinations of security rules: the ConfigMap that the one before it wrote.

use std::{collections::BTreeMap, time::Duration};

use cloud_controller_manager::{
    providers::azure::planner::load_balancer::rule_records::CONFIG_MAP, sandbox::azure::AzureOptions,
};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use crate::azure_services::{
    cluster::{Cluster, Life, alone, two_nodes},
    services::{annotate, external, with},
};

const MINUTE: Duration = Duration::from_secs(60);
const ADDITIONAL: &str = "azure-additional-public-ips";
const FORMER: &str = "198.51.100.7";

fn cluster() -> Cluster {
    let cluster = Cluster::new(two_nodes(), AzureOptions::default());
    cluster.create(&with(external("web"), ADDITIONAL, FORMER));
    cluster
}

/// A manager that has served all Services and has nothing left to do.
async fn served(cluster: &Cluster) -> Life {
    let life = cluster.start();
    cluster.until_ready(5 * MINUTE).await;
    cluster.settle().await;
    life
}

fn opens(cluster: &Cluster, address: &str) -> bool {
    let groups = cluster.azure().documents_of("Microsoft.Network/networkSecurityGroups");
    groups.iter().any(|group| group.to_string().contains(&format!("\"{address}\"")))
}

fn recorded(cluster: &Cluster) -> BTreeMap<String, String> {
    let map = cluster.server.get::<ConfigMap>("kube-system", CONFIG_MAP);
    map.and_then(|map| map.data).unwrap_or_default()
}

#[test]
fn an_address_given_up_while_no_process_runs_leaves_the_rules() {
    alone(async {
        let cluster = cluster();
        let life = served(&cluster).await;
        assert!(opens(&cluster, FORMER));
        life.kill();
        cluster.change("web", |web| annotate(web, ADDITIONAL, None));
        let life = cluster.start();
        cluster.settle().await;
        assert!(!opens(&cluster, FORMER), "{:?}", recorded(&cluster));
        life.stop().await;
    });
}

#[test]
fn a_service_that_loses_its_finalizer_by_hand_leaves_no_additional_address() {
    alone(async {
        let cluster = cluster();
        cluster.create(&external("other"));
        let life = served(&cluster).await;
        life.kill();
        cluster.change("web", |web| web.metadata.finalizers = None);
        cluster.delete("web");
        let life = cluster.start();
        cluster.settle().await;
        assert!(!opens(&cluster, FORMER), "{:?}", recorded(&cluster));
        let other = crate::azure_services::cluster::addresses(&cluster.service("other").unwrap()).remove(0);
        assert!(opens(&cluster, &other));
        life.stop().await;
    });
}

/// Another cluster with the same security group has the same rule for its own address.
#[test]
fn addresses_of_others_stay() {
    alone(async {
        let cluster = cluster();
        let life = served(&cluster).await;
        life.kill();
        let group = cluster.azure().documents_of("Microsoft.Network/networkSecurityGroups").remove(0);
        cluster.azure().change_document(group["id"].as_str().unwrap(), |document| {
            let rule = &mut document["properties"]["securityRules"][0]["properties"];
            rule["destinationAddressPrefixes"].as_array_mut().unwrap().push("198.51.100.99".into());
        });
        cluster.change("web", |web| annotate(web, ADDITIONAL, None));
        let life = cluster.start();
        cluster.settle().await;
        assert!(!opens(&cluster, FORMER) && opens(&cluster, "198.51.100.99"));
        life.stop().await;
    });
}

#[test]
fn records_come_before_rules_and_leave_with_them() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
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
        life.stop().await;
        let life = cluster.start();
        cluster.settle().await;
        assert_eq!(versions(), before, "a start writes nothing");
        cluster.delete("web");
        cluster.until_gone(5 * MINUTE).await;
        assert_eq!(recorded(&cluster), BTreeMap::new());
        life.stop().await;
    });
}

#[test]
fn services_are_served_without_the_right_to_record() {
    alone(async {
        let cluster = cluster();
        cluster.server.faults().fail_every(403, |request| request.resource == "configmaps");
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        assert!(opens(&cluster, FORMER));
        cluster.delete("web");
        cluster.until_gone(5 * MINUTE).await;
        life.stop().await;
    });
}

/// Somebody deletes the ConfigMap and applies a copy of it.
#[test]
fn records_go_on_in_another_config_map() {
    alone(async {
        let cluster = cluster();
        let life = served(&cluster).await;
        let mut copy = cluster.server.get::<ConfigMap>("kube-system", CONFIG_MAP).unwrap();
        cluster.server.delete::<ConfigMap>("kube-system", CONFIG_MAP);
        copy.metadata = ObjectMeta { name: copy.metadata.name, namespace: copy.metadata.namespace, ..ObjectMeta::default() };
        cluster.server.create(&copy);
        cluster.create(&with(external("late"), ADDITIONAL, "198.51.100.8"));
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        let records = recorded(&cluster);
        assert!(records.values().any(|record| record.contains("198.51.100.8")), "{records:?}");
        life.kill();
        cluster.change("late", |late| annotate(late, ADDITIONAL, None));
        let life = cluster.start();
        cluster.settle().await;
        assert!(!opens(&cluster, "198.51.100.8") && opens(&cluster, FORMER), "{:?}", recorded(&cluster));
        life.stop().await;
    });
}

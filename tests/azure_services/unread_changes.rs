//! Changes of a Service that the provider does not read.

use std::time::Duration;

use cloud_controller_manager::controllers::service::conditions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use crate::azure_services::{
    cluster::{BALANCERS, Cluster, MINUTE},
    services::{annotate, external},
};

const SECOND: Duration = Duration::from_secs(1);

/// Writes an annotation of another program.
fn beat(cluster: &Cluster, count: u32) {
    cluster.change("web", |service| {
        let annotations = service.metadata.annotations.get_or_insert_default();
        annotations.insert("example.com/beat".to_owned(), count.to_string());
    });
}

fn condition(cluster: &Cluster) -> Option<Condition> {
    conditions::current(&cluster.service("web").unwrap()).cloned()
}

/// Beats every five seconds for this time, and asserts that the condition never changes.
async fn beat_for(cluster: &Cluster, time: Duration, first: u32) {
    let before = condition(cluster);
    for count in 0..u32::try_from(time.as_secs() / 5).unwrap() {
        beat(cluster, first + count);
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(condition(cluster), before, "beat {count}");
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_annotations_only_lead_to_a_comparison() {
    let (cluster, _manager) = Cluster::with_two_nodes().serving(&[external("web")]).await;
    let id = cluster.balancers()[0]["id"].as_str().unwrap().to_owned();
    let delete_rules = |document: &mut Value| document["properties"]["loadBalancingRules"].as_array_mut().unwrap().clear();
    assert!(cluster.azure().change_document(&id, delete_rules));
    cluster.azure().clear_requests();
    beat_for(&cluster, 295 * SECOND, 0).await;
    assert_eq!(cluster.writes(), Vec::<String>::new(), "not at once");
    cluster.until("the comparison restores the rule", 15 * SECOND, |cluster| cluster.writes().len() == 1).await;
    assert!(cluster.writes()[0].contains(BALANCERS), "{:?}", cluster.writes());

    beat_for(&cluster, 9 * MINUTE, 100).await;
    assert_eq!(cluster.writes().len(), 1, "nothing else differs");
}

#[tokio::test(start_paused = true)]
async fn an_edit_among_foreign_annotations_is_carried_out() {
    let (cluster, _manager) = Cluster::with_two_nodes().serving(&[external("web")]).await;
    cluster.azure().clear_requests();
    beat(&cluster, 1);
    cluster.change("web", |service| annotate(service, "azure-load-balancer-tcp-idle-timeout", Some("10")));
    beat(&cluster, 2);
    cluster.until("the edit is carried out", 30 * SECOND, |cluster| cluster.writes().len() == 1).await;
}

//! Pools that network interfaces list become pools that list addresses, by Azure's own action.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::azure_services::{
    cluster::{Cluster, PATIENCE},
    services::external,
};

const TYPE: &str = "loadBalancerBackendPoolConfigurationType";

/// A Service whose back-end pool two interfaces list, and a configuration that asks for addresses.
async fn to_be_migrated() -> Cluster {
    let (cluster, life) =
        Cluster::with_two_nodes().configured(TYPE, "nodeIPConfiguration").serving(&[external("web")]).await;
    life.stop().await;
    cluster.azure().clear_requests();
    cluster.configured(TYPE, "nodeIP").configured("enableMigrateToIPBasedBackendPoolAPI", true)
}

/// How many interfaces list the pool, and how many addresses it lists.
fn members(cluster: &Cluster) -> (usize, usize) {
    let balancers = cluster.balancers();
    let pool = &balancers[0]["properties"]["backendAddressPools"][0]["properties"];
    let entries = |field: &str| pool[field].as_array().cloned().unwrap_or_default();
    let addresses = entries("loadBalancerBackendAddresses");
    let has_address = |entry: &&Value| entry["properties"]["ipAddress"].is_string();
    (entries("backendIPConfigurations").len(), addresses.iter().filter(has_address).count())
}

fn sent(cluster: &Cluster) -> BTreeSet<String> {
    let without_status = |write: String| write.rsplit_once(' ').map(|(write, _)| write.to_lowercase()).unwrap_or_default();
    cluster.writes().into_iter().map(without_status).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_is_what_was_planned() {
    let cluster = to_be_migrated().await;
    assert_eq!(members(&cluster), (2, 0));
    let plan = cluster.plan(&[]).await;
    let planned = plan.writes().map(|write| format!("{} {}", write.method, write.target).to_lowercase());
    let planned: BTreeSet<String> = planned.filter(|write| write.contains("/providers/")).collect();
    assert_eq!(cluster.writes(), Vec::<String>::new(), "planning writes nothing");
    assert!(planned.iter().any(|write| write.starts_with("post ")), "{planned:#?}");
    let life = cluster.start();
    cluster.settle().await;
    life.stop().await;
    let sent: BTreeSet<String> = sent(&cluster).into_iter().map(|write| write.replace("/migratetoipbased", "")).collect();
    assert_eq!(sent, planned);
    assert_eq!(members(&cluster), (0, 2));
    cluster.plans_nothing("the pools list addresses").await;
}

/// What ARM refuses to migrate keeps its members.
#[tokio::test(start_paused = true)]
async fn a_refused_migration_takes_no_machine_out() {
    let cluster = to_be_migrated().await;
    cluster.azure().deny("microsoft.network/loadbalancers/migratetoipbased/action", "");
    let life = cluster.start();
    cluster.until("the migration is refused twice", PATIENCE, |cluster| cluster.writes().len() >= 2).await;
    life.stop().await;
    let writes = sent(&cluster);
    assert!(writes.iter().all(|write| write.starts_with("post ")), "{writes:#?}");
    assert_eq!(members(&cluster), (2, 0));
    cluster.azure().allow_all();
    let life = cluster.start();
    cluster.settle().await;
    life.stop().await;
    assert_eq!(members(&cluster), (0, 2));
}

//! Migration of pools whose members are interfaces to pools that list addresses, with Azure's action.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::azure_services::{
    cluster::{Cluster, TIMEOUT},
    services::external,
};

const TYPE: &str = "loadBalancerBackendPoolConfigurationType";

/// Prepares a Service whose backend pool has two interfaces, and a configuration with members by address.
async fn to_be_migrated() -> Cluster {
    let (cluster, manager) =
        Cluster::with_two_nodes().configured(TYPE, "nodeIPConfiguration").serving(&[external("web")]).await;
    manager.stop().await;
    cluster.azure().clear_requests();
    cluster.configured(TYPE, "nodeIP").configured("enableMigrateToIPBasedBackendPoolAPI", true)
}

/// Returns the number of interfaces and of addresses in the pool.
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
async fn a_migration_sends_the_planned_writes() {
    let cluster = to_be_migrated().await;
    assert_eq!(members(&cluster), (2, 0));
    let plan = cluster.plan(&[]).await;
    let planned = plan.writes().map(|write| format!("{} {}", write.method, write.target).to_lowercase());
    let planned: BTreeSet<String> = planned.filter(|write| write.contains("/providers/")).collect();
    assert_eq!(cluster.writes(), Vec::<String>::new(), "planning writes nothing");
    assert!(planned.iter().any(|write| write.starts_with("post ")), "{planned:#?}");
    let manager = cluster.start();
    cluster.settle().await;
    manager.stop().await;
    let sent: BTreeSet<String> = sent(&cluster).into_iter().map(|write| write.replace("/migratetoipbased", "")).collect();
    assert_eq!(sent, planned);
    assert_eq!(members(&cluster), (0, 2));
    cluster.assert_plans_nothing("the pools list addresses").await;
}

/// A pool that ARM refuses to migrate keeps its members.
#[tokio::test(start_paused = true)]
async fn a_refused_migration_removes_no_machine() {
    let cluster = to_be_migrated().await;
    cluster.azure().deny("microsoft.network/loadbalancers/migratetoipbased/action", "");
    let manager = cluster.start();
    cluster.until("the migration is refused twice", TIMEOUT, |cluster| cluster.writes().len() >= 2).await;
    manager.stop().await;
    let writes = sent(&cluster);
    assert!(writes.iter().all(|write| write.starts_with("post ")), "{writes:#?}");
    assert_eq!(members(&cluster), (2, 0));
    cluster.azure().allow_all();
    let manager = cluster.start();
    cluster.settle().await;
    manager.stop().await;
    assert_eq!(members(&cluster), (0, 2));
}

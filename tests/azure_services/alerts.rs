//! Faults of the cloud fire the alerts that are meant for them, and a cloud without faults fires none: the metrics of a manager, read
//! every minute of simulated time, go through promtool with the alerts that ship.

use std::collections::BTreeSet;

use cloud_controller_manager::sandbox::{
    azure::{
        AzureOptions, Effect, Fault, Omission,
        topology::{Pool, PoolKind, Topology},
    },
    objects::{NodeExt, ServiceExt},
};
use k8s_openapi::api::core::v1::{Event, Node, Service};
use serde_json::json;

use crate::azure_services::{
    cluster::{Cluster, MINUTE, Manager, ten_nodes},
    scraped::{ScrapedSeries, set},
    services::external,
};

/// Alerts about replicas and their port: these managers run without leader election and serve no port.
const OF_REPLICAS: [&str; 2] = ["NoLeader", "NotReady"];

/// Scrapes the metrics once a minute for so many minutes.
async fn read(scraped: &mut ScrapedSeries, manager: &Manager, minutes: usize) {
    for _ in 0..minutes {
        tokio::time::sleep(MINUTE).await;
        manager.metrics.observe();
        scraped.scrape(&[("a:10258", manager.metrics.render().unwrap())]);
    }
}

/// Returns the alerts that fire at some minute, without those of [`OF_REPLICAS`].
fn firing(scraped: &ScrapedSeries) -> BTreeSet<String> {
    scraped.firing().into_iter().filter(|name| !OF_REPLICAS.contains(&name.as_str())).collect()
}

/// Starts a manager that serves so many Services, and scrapes it for five minutes.
async fn served(topology: Topology, services: usize) -> (Cluster, Manager, ScrapedSeries) {
    let cluster = Cluster::new(topology, AzureOptions::default());
    (0..services).for_each(|index| drop(cluster.create(&external(&format!("s{index}")))));
    let manager = cluster.serve(&[]).await;
    let mut scraped = ScrapedSeries::since(cluster.now());
    read(&mut scraped, &manager, 5).await;
    (cluster, manager, scraped)
}

#[tokio::test(start_paused = true)]
async fn a_cloud_without_faults_fires_no_alert() {
    let (cluster, manager, mut scraped) = served(ten_nodes(), 10).await;
    for index in 0..5 {
        cluster.create(&external(&format!("late-{index}")));
        cluster.delete(&format!("s{index}"));
        read(&mut scraped, &manager, 10).await;
    }
    assert_eq!(firing(&scraped), set(&[]));
}

#[tokio::test(start_paused = true)]
async fn a_removed_role_fires_alerts() {
    let (cluster, manager, mut scraped) = served(ten_nodes(), 3).await;
    cluster.azure().add_fault(Fault::new(Effect::Forbidden));
    (0..5).for_each(|index| drop(cluster.create(&external(&format!("late-{index}")))));
    read(&mut scraped, &manager, 90).await;
    let firing = firing(&scraped);
    for alert in ["ArmForbidden", "ServicesFailing", "ServiceStuck", "InventoryOld"] {
        assert!(firing.contains(alert), "{alert} is not among {firing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn throttling_fires_alerts() {
    let (cluster, manager, mut scraped) = served(ten_nodes(), 3).await;
    let refuse = Effect::Refuse(429, "TooManyRequests".into(), Some(45));
    cluster.azure().add_fault(Fault::new(refuse).with_probability(0.5).lasting(30 * MINUTE));
    for index in 0..40 {
        cluster.create(&external(&format!("late-{index}")));
        read(&mut scraped, &manager, 1).await;
    }
    let firing = firing(&scraped);
    for alert in ["ArmThrottled", "BudgetWait"] {
        assert!(firing.contains(alert), "{alert} is not among {firing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn machines_that_azure_denies_fire_an_alert() {
    let pools = [("pool0", 60), ("pool1", 40)].map(|(name, count)| Pool::new(PoolKind::Uniform, name, count));
    let topology = pools.into_iter().fold(Topology::new(), Topology::pool);
    let (cluster, manager, mut scraped) = served(topology, 1).await;
    for machine in cluster.cloud.machines() {
        let status = if machine.pool.name == "pool0" { "Unknown" } else { "True" };
        cluster.server.update_with::<Node>("", &machine.computer_name(), |node| *node = node.clone().ready(status));
    }
    // The machines exist. ARM denies that, and lists half of them.
    let (machines, lists) = ("*/virtualMachineScaleSets/pool0/virtualMachines/*", "*/pool0/virtualMachines");
    cluster.azure().add_fault(Fault::refuse(404, "ResourceNotFound").path(machines));
    cluster.azure().add_fault(Fault::new(Effect::PartialList(Omission::EveryOther)).path(lists));
    read(&mut scraped, &manager, 30).await;
    let (firing, events) = (firing(&scraped), cluster.server.list::<Event>());
    let reasons: BTreeSet<_> = events.iter().filter_map(|event| event.reason.clone()).collect();
    assert!(firing.contains("MassDeletionHeld"), "{firing:?} {reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn nodes_that_wait_for_their_machine_fire_alerts() {
    let (cluster, manager, mut scraped) = served(ten_nodes(), 1).await;
    let pool = cluster.cloud.machines()[0].pool.name.clone();
    for name in cluster.cloud.scale_out(&pool, 3).unwrap() {
        cluster.server.create::<Node>(&cluster.cloud.uninitialized_node(&name).unwrap());
    }
    read(&mut scraped, &manager, 10).await;
    assert_eq!(firing(&scraped), set(&[]), "they are initialized");

    // Azure does not show their machines for half an hour.
    let names = cluster.cloud.scale_out(&pool, 3).unwrap();
    cluster.azure().add_fault(Fault::refuse(500, "InternalServerError").lasting(30 * MINUTE));
    for name in &names {
        cluster.server.create::<Node>(&cluster.cloud.uninitialized_node(name).unwrap());
    }
    read(&mut scraped, &manager, 45).await;
    let firing = firing(&scraped);
    for alert in ["NodesUninitialized", "NodesSlow"] {
        assert!(firing.contains(alert), "{alert} is not among {firing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_registered_without_the_taint_fire_an_alert() {
    let (cluster, manager, mut scraped) = served(ten_nodes(), 1).await;
    let name = cluster.add_machine();
    let mut node = cluster.cloud.uninitialized_node(&name).unwrap();
    node.spec.get_or_insert_default().taints = None;
    cluster.server.create::<Node>(&node);
    let mut unmanaged = node.clone();
    unmanaged.metadata.name = Some("on-premises".to_owned());
    unmanaged.metadata.labels.get_or_insert_default().insert("kubernetes.azure.com/managed".into(), "false".into());
    cluster.server.create::<Node>(&unmanaged);
    read(&mut scraped, &manager, 20).await;
    assert_eq!(firing(&scraped), set(&["NodesWithoutProviderID"]));
    let events = cluster.server.list::<Event>();
    let reported = events.iter().filter(|event| event.reason.as_deref() == Some("NodeWithoutProviderID"));
    let reported: Vec<_> = reported.map(|event| (event.involved_object.name.as_deref(), event.count)).collect();
    assert_eq!(reported, [(Some(name.as_str()), Some(1))], "one event, and none for the unmanaged Node");

    let taint = json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]);
    cluster.server.update_with::<Node>("", &name, |node| {
        node.spec.get_or_insert_default().taints = serde_json::from_value(taint.clone()).unwrap();
    });
    read(&mut scraped, &manager, 1).await;
    let spec = cluster.server.get::<Node>("", &name).unwrap().spec.unwrap_or_default();
    assert!(spec.provider_id.is_some() && spec.taints.unwrap_or_default().is_empty(), "the remedy works");
}

/// Starts a manager that reloads its configuration from a file.
async fn reloading() -> (Cluster, Manager, tempfile::TempDir) {
    let cluster = Cluster::with_ten_nodes();
    let folder = tempfile::tempdir().unwrap();
    let manager = cluster.start_following(&folder.path().join("azure.json"));
    cluster.add(&external("web")).await;
    (cluster, manager, folder)
}

#[tokio::test(start_paused = true)]
async fn an_invalid_configuration_file_fires_an_alert() {
    let (cluster, manager, folder) = reloading().await;
    let mut scraped = ScrapedSeries::since(cluster.now());
    let write = |location: serde_json::Value| {
        let mut config = cluster.cloud.config();
        config["location"] = location;
        std::fs::write(folder.path().join("azure.json"), config.to_string()).unwrap();
    };
    let valid_location = cluster.cloud.config()["location"].clone();
    // A file that is repaired within minutes fires no alert.
    write(json!([1]));
    read(&mut scraped, &manager, 5).await;
    write(valid_location);
    read(&mut scraped, &manager, 10).await;
    assert_eq!(firing(&scraped), set(&[]));
    write(json!([1]));
    read(&mut scraped, &manager, 15).await;
    assert_eq!(firing(&scraped), set(&["ConfigurationRefused"]));
}

/// Returns a Service with so many ports, each of which needs a rule.
fn with_ports(name: &str, count: i32) -> Service {
    let names: Vec<String> = (0..count).map(|index| format!("p{index}")).collect();
    let ports: Vec<(&str, i32)> = names.iter().map(String::as_str).zip(8_000..).collect();
    external(name).ports(&ports)
}

#[tokio::test(start_paused = true)]
async fn a_nearly_full_load_balancer_fires_an_alert() {
    // Of 250 rules that a basic load balancer has.
    let cluster = Cluster::with_ten_nodes().configured("loadBalancerSku", "basic");
    let manager = cluster.start();
    let mut scraped = ScrapedSeries::since(cluster.now());
    for name in ["one", "two"] {
        cluster.add(&with_ports(name, 95)).await;
    }
    read(&mut scraped, &manager, 15).await;
    assert_eq!(firing(&scraped), set(&[]), "three quarters");
    cluster.add(&with_ports("three", 20)).await;
    read(&mut scraped, &manager, 15).await;
    assert_eq!(firing(&scraped), set(&["LoadBalancerNearlyFull"]));
}

#[tokio::test(start_paused = true)]
async fn repeated_external_changes_fire_an_alert() {
    let cluster = Cluster::with_ten_nodes();
    cluster.create(&external("web"));
    let manager = cluster.start_with(&["--min-resync-period=3m"]);
    cluster.until_ready(10 * MINUTE).await;
    let mut scraped = ScrapedSeries::since(cluster.now());
    for _ in 0..60 {
        let balancer = cluster.balancers().remove(0);
        cluster.azure().change_document(balancer["id"].as_str().unwrap(), |document| {
            document["properties"]["probes"][0]["properties"]["port"] = json!(1234);
        });
        read(&mut scraped, &manager, 1).await;
    }
    let firing = firing(&scraped);
    assert!(firing.contains("DriftLeft"), "{firing:?}");
}

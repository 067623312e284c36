//! External changes in Azure: a comparison finds, reports and reverts them, or only reports them if configured, and never fights another
//! writer.

use std::{sync::Arc, time::Duration};

use cloud_controller_manager::{cloud_provider::CloudProvider, providers::azure::metrics::AzureMetrics};
use k8s_openapi::api::core::v1;
use proptest::{prelude::*, test_runner::Config};
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{BALANCERS, Cluster, MINUTE, Manager, PUBLIC_IPS, SECURITY_GROUPS, run_paused},
    membership::EXCLUDED,
    services::{annotate, external, internal, set_port, with},
};

const COMPARISONS: &str = "--min-resync-period=10m";
const DRIFTED: &str = "LoadBalancerDrifted";
const DELAYED: &str = "LoadBalancerRepairDelayed";

/// An external change to the documents of the Service `web`.
struct Tampering {
    name: &'static str,
    kind: &'static str,
    resource: &'static str,
    change: fn(&mut Value),
}

const TAMPERINGS: &[Tampering] = &[
    Tampering {
        name: "deletes a rule",
        kind: BALANCERS,
        resource: "load_balancer",
        change: |document| drop(document["properties"]["loadBalancingRules"].as_array_mut().unwrap().remove(0)),
    },
    Tampering {
        name: "changes a probe",
        kind: BALANCERS,
        resource: "load_balancer",
        change: |document| document["properties"]["probes"][0]["properties"]["port"] = json!(1234),
    },
    Tampering {
        name: "removes a tag of the public IP",
        kind: PUBLIC_IPS,
        resource: "public_ip",
        change: |document| drop(document["tags"].as_object_mut().unwrap().remove("team")),
    },
    Tampering {
        name: "changes a tag of the load balancer",
        kind: BALANCERS,
        resource: "load_balancer",
        change: |document| document["tags"]["team"] = json!("theirs"),
    },
    Tampering {
        name: "removes the tags of the security group",
        kind: SECURITY_GROUPS,
        resource: "security_group",
        change: |document| document["tags"] = json!({}),
    },
    Tampering {
        name: "adds a security rule under our name",
        kind: SECURITY_GROUPS,
        resource: "security_group",
        change: |document| {
            let rules = document["properties"]["securityRules"].as_array_mut().unwrap();
            let mut rule = rules[0].clone();
            let name = rule["name"].as_str().unwrap();
            let name = format!("{}{}", &name[..name.len() - 4], "0000");
            rule["id"] = json!(rule["id"].as_str().unwrap().replace(rule["name"].as_str().unwrap(), &name));
            rule["name"] = json!(name);
            rule["properties"]["priority"] = json!(777);
            rule["properties"]["destinationPortRanges"] = json!(["22"]);
            rules.push(rule);
        },
    },
    Tampering {
        name: "closes a security rule",
        kind: SECURITY_GROUPS,
        resource: "security_group",
        change: |document| document["properties"]["securityRules"][0]["properties"]["access"] = json!("Deny"),
    },
];

fn cluster() -> Cluster {
    Cluster::with_two_nodes().configured("tags", "team=network")
}

/// Returns the first document of a type.
fn document(cluster: &Cluster, kind: &str) -> Value {
    cluster.azure().documents_of(kind).remove(0)
}

/// Returns load balancers, public IPs and security groups without their versions.
fn documents(cluster: &Cluster) -> Vec<Value> {
    let mut all: Vec<Value> =
        [BALANCERS, PUBLIC_IPS, SECURITY_GROUPS].iter().flat_map(|kind| cluster.azure().documents_of(kind)).collect();
    all.iter_mut().for_each(without_versions);
    all
}

fn without_versions(value: &mut Value) {
    match value {
        Value::Object(object) => {
            ["etag", "resourceGuid"].into_iter().for_each(|key| drop(object.remove(key)));
            object.values_mut().for_each(without_versions);
        }
        Value::Array(list) => list.iter_mut().for_each(without_versions),
        _ => {}
    }
}

fn tamper(cluster: &Cluster, tampering: &Tampering) {
    let id = document(cluster, tampering.kind)["id"].as_str().unwrap().to_owned();
    assert!(cluster.azure().change_document(&id, tampering.change));
}

/// Returns the messages of the warnings with this reason about `web`.
fn messages(cluster: &Cluster, reason: &str) -> Vec<String> {
    cluster.warnings("web").into_iter().filter(|(actual, _)| actual == reason).map(|(_, message)| message).collect()
}

fn counted(manager: &Manager, resource: &str, outcome: &str) -> f64 {
    let metrics = manager.metrics.table::<AzureMetrics>().unwrap();
    metrics.rows.drift.with_label_values(&[resource, outcome]).get()
}

fn drifted(manager: &Manager, reason: &str) -> f64 {
    manager.metrics.table::<AzureMetrics>().unwrap().rows.drifted_services.with_label_values(&[reason]).get()
}

fn status(manager: &Manager) -> Value {
    json!(manager.provider.status())["session"]["loadBalancers"]["drift"].clone()
}

/// Starts a manager with `flag` that serves `web` and has nothing left to do.
async fn served(cluster: &Cluster, flag: &str) -> Manager {
    cluster.create(&external("web"));
    let manager = cluster.start_with(&[flag]);
    cluster.until_ready(5 * MINUTE).await;
    cluster.settle().await;
    cluster.azure().clear_requests();
    manager
}

#[test]
fn external_changes_are_reported_counted_and_reverted_once() {
    for tampering in TAMPERINGS {
        run_paused(async {
            let (cluster, name) = (cluster(), tampering.name);
            let manager = served(&cluster, COMPARISONS).await;
            let before = documents(&cluster);
            tamper(&cluster, tampering);
            assert_ne!(documents(&cluster), before, "{name}");
            tokio::time::sleep(65 * MINUTE).await;
            assert_eq!(documents(&cluster), before, "{name}");
            let (writes, messages) = (cluster.writes(), messages(&cluster, DRIFTED));
            assert!(writes.len() == 1 && writes[0].contains(tampering.kind), "{name}: {writes:?}");
            assert!(messages.len() == 1 && messages[0].contains(tampering.kind), "{name}: {messages:?}");
            assert!(
                messages[0].contains(" between 2026-01-01T") && messages[0].ends_with("; it is put right now"),
                "{name}: {messages:?}"
            );
            assert_eq!(counted(&manager, tampering.resource, "repaired"), 1.0, "{name}");
            assert_eq!((drifted(&manager, "delayed"), drifted(&manager, "reported")), (0.0, 0.0), "{name}");
            let latest = &status(&manager)["latest"];
            let note = (latest.as_array().unwrap().len(), &latest[0]["about"], &latest[0]["outcome"]);
            assert_eq!(note, (1, &json!("default/web"), &json!("repaired")), "{name}: {latest}");
            assert!(messages[0].starts_with(latest[0]["what"].as_str().unwrap()), "{name}: {latest}");
        });
    }
}

#[test]
fn reported_drift_is_kept_until_the_service_changes() {
    for tampering in TAMPERINGS {
        run_paused(async {
            let (cluster, name) = (cluster().configured("driftPolicy", "report"), tampering.name);
            let manager = served(&cluster, COMPARISONS).await;
            let before = documents(&cluster);
            tamper(&cluster, tampering);
            tokio::time::sleep(125 * MINUTE).await;
            assert_eq!(cluster.writes(), Vec::<String>::new(), "{name}");
            let messages = messages(&cluster, DRIFTED);
            assert!(
                messages.len() == 1 && messages[0].ends_with("; it is left as it is (driftPolicy: report)"),
                "{name}: {messages:?}"
            );
            assert_eq!(
                (counted(&manager, tampering.resource, "reported"), drifted(&manager, "reported")),
                (1.0, 1.0),
                "{name}"
            );
            assert_eq!(status(&manager)["services"]["default/web"]["documents"].as_array().unwrap().len(), 1, "{name}");
            let latest = &status(&manager)["latest"];
            assert_eq!(
                (latest.as_array().unwrap().len(), &latest[0]["outcome"]),
                (1, &json!("reported")),
                "{name}: {latest}"
            );
            assert_eq!(cluster.addresses("web").len(), 1, "{name}");
            let service = cluster.service("web").unwrap();
            let nodes: Vec<_> = cluster.cloud.nodes().into_iter().map(Arc::new).collect();
            let plan = manager.plan(&service, &nodes).await;
            assert!(plan.contains(tampering.kind), "{name}: {plan}");
            for minutes in ["5", "4"] {
                cluster.change("web", |web| annotate(web, "azure-load-balancer-tcp-idle-timeout", Some(minutes)));
                cluster.settle().await;
            }
            assert_eq!((documents(&cluster), drifted(&manager, "reported")), (before, 0.0), "{name}");
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_status_is_only_reported_if_configured() {
    let cluster = cluster().configured("driftPolicy", "report");
    let _manager = served(&cluster, COMPARISONS).await;
    cluster.change("web", |web| web.status = None);
    tokio::time::sleep(65 * MINUTE).await;
    assert_eq!(cluster.addresses("web"), [""; 0], "neither at once nor after a comparison");
    let is_report = |event: &v1::Event| event.reason.as_deref() == Some("LoadBalancerStatusChanged");
    let events = cluster.server.list::<v1::Event>();
    let reported: i32 = events.iter().filter(|event| is_report(event)).map(|event| event.count.unwrap_or(1)).sum();
    assert_eq!(reported, 1);
    cluster.change("web", |web| set_port(web, 8080));
    cluster.until_ready(5 * MINUTE).await;
    assert_eq!(cluster.addresses("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_writer_is_not_fought() {
    let cluster = cluster();
    let manager = served(&cluster, "--min-resync-period=3m").await;
    let tampering = &TAMPERINGS[1];
    for _ in 0..60 {
        let is_ours = document(&cluster, BALANCERS)["properties"]["probes"][0]["properties"]["port"] != json!(1234);
        if is_ours {
            tamper(&cluster, tampering);
        }
        tokio::time::sleep(MINUTE).await;
    }
    let writes = cluster.writes();
    println!("a fight of an hour, compared every 3 minutes: {} writes", writes.len());
    assert!((2..=4).contains(&writes.len()), "{writes:#?}");
    assert_eq!(messages(&cluster, DELAYED).len(), 1, "{:?}", cluster.warnings("web"));
    assert_eq!(messages(&cluster, DRIFTED).len(), writes.len());
    assert_eq!(drifted(&manager, "delayed"), 1.0);
    assert!(counted(&manager, "load_balancer", "delayed") >= 1.0);
    assert!(status(&manager)["services"]["default/web"]["repairAfter"].is_string(), "{}", status(&manager));
    // The writer stops, and the next repair remains.
    cluster
        .until("the probe is right", 400 * MINUTE, |cluster| {
            document(cluster, BALANCERS)["properties"]["probes"][0]["properties"]["port"] != json!(1234)
        })
        .await;
    cluster.settle().await;
    assert_eq!(drifted(&manager, "delayed"), 0.0);
}

/// Nodes that join or leave do not override the policy, because rules and frontends do not depend on them.
#[tokio::test(start_paused = true)]
async fn new_nodes_do_not_revert_drift_that_is_only_reported() {
    let cluster = Cluster::with_ten_nodes().configured("driftPolicy", "report");
    let manager = served(&cluster, COMPARISONS).await;
    tamper(&cluster, &TAMPERINGS[0]);
    tokio::time::sleep(15 * MINUTE).await;
    let changed = document(&cluster, BALANCERS)["properties"]["loadBalancingRules"].clone();
    let node = cluster.cloud.nodes()[3].metadata.name.clone().unwrap();
    cluster.label_node(&node, EXCLUDED, Some(""));
    tokio::time::sleep(45 * MINUTE).await;
    assert_eq!(document(&cluster, BALANCERS)["properties"]["loadBalancingRules"], changed);
    let writes = cluster.writes();
    assert!(!writes.is_empty() && writes.iter().all(|write| !write.contains(SECURITY_GROUPS)), "{writes:?}");
    assert_eq!(counted(&manager, "load_balancer", "reported"), 1.0);
}

/// A new process has no baseline, so it writes what differs without a report.
#[tokio::test(start_paused = true)]
async fn changes_before_the_start_are_not_reported_as_drift() {
    let cluster = cluster();
    served(&cluster, COMPARISONS).await.stop().await;
    let before = documents(&cluster);
    tamper(&cluster, &TAMPERINGS[0]);
    let manager = cluster.start_with(&[COMPARISONS]);
    tokio::time::sleep(30 * MINUTE).await;
    assert_eq!((documents(&cluster), cluster.writes().len()), (before, 1));
    assert_eq!((messages(&cluster, DRIFTED).len(), counted(&manager, "load_balancer", "repaired")), (0, 0.0));
}

/// Drift detection needs no request of its own: a comparison reads each document or list once, however many Services there are.
#[tokio::test(start_paused = true)]
async fn drift_detection_adds_no_requests_to_a_comparison() {
    let cluster = cluster();
    (0..20).for_each(|index| drop(cluster.create(&external(&format!("other-{index}")))));
    cluster.create(&internal("inside"));
    let _manager = served(&cluster, "--min-resync-period=1h").await;
    cluster.azure().clear_requests();
    tokio::time::sleep(61 * MINUTE).await;
    let requests = cluster.azure().requests();
    let sent = requests.iter().filter(|request| request.resource_type.starts_with("microsoft.network/"));
    let mut sent: Vec<String> = sent.map(|request| format!("{} {}", request.method, request.resource_type)).collect();
    sent.sort();
    assert_eq!(sent, COMPARED);
}

/// Requests of one comparison of 22 Services to the network provider.
const COMPARED: [&str; 4] = [
    "GET microsoft.network/loadbalancers",
    "GET microsoft.network/networksecuritygroups",
    "GET microsoft.network/publicipaddresses",
    "GET microsoft.network/virtualnetworks/subnets",
];

/// A change by users or of Nodes between comparisons.
#[derive(Debug, Clone, Copy)]
enum Event {
    Create(u8),
    Delete(u8),
    Port(u8, i32),
    Internal(u8),
    Exclude(usize, bool),
    Wait(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0_u8..4).prop_map(Event::Create),
        (0_u8..4).prop_map(Event::Delete),
        (0_u8..4, 80..83).prop_map(|(number, port)| Event::Port(number, port)),
        (0_u8..4).prop_map(Event::Internal),
        (0_usize..10, any::<bool>()).prop_map(|(node, excluded)| Event::Exclude(node, excluded)),
        (1_u64..900).prop_map(Event::Wait),
    ];
    prop::collection::vec(event, 1..25)
}

async fn happen(cluster: &Cluster, event: Event) {
    let name = |number: u8| format!("s{number}");
    let is_active =
        |number: u8| cluster.service(&name(number)).is_some_and(|service| service.metadata.deletion_timestamp.is_none());
    match event {
        Event::Create(number) if cluster.service(&name(number)).is_none() => drop(cluster.create(&external(&name(number)))),
        Event::Delete(number) if is_active(number) => cluster.delete(&name(number)),
        Event::Port(number, port) if is_active(number) => cluster.change(&name(number), |service| set_port(service, port)),
        Event::Internal(number) if is_active(number) => {
            cluster
                .change(&name(number), |service| *service = with(service.clone(), "azure-load-balancer-internal", "true"));
        }
        Event::Exclude(node, excluded) => {
            let node = cluster.cloud.nodes()[node].metadata.name.clone().unwrap();
            cluster.label_node(&node, EXCLUDED, excluded.then_some(""));
        }
        Event::Wait(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
        Event::Create(_) | Event::Delete(_) | Event::Port(..) | Event::Internal(_) => {}
    }
}

proptest! {
    #![proptest_config(Config { cases: 12, failure_persistence: None, ..Config::default() })]

    /// No change by users or of Nodes is reported as an external change.
    #[test]
    fn changes_by_users_and_nodes_are_not_reported_as_drift(events in events()) {
        run_paused(async {
            let cluster = Cluster::with_ten_nodes();
            let manager = served(&cluster, "--min-resync-period=2m").await;
            for event in &events {
                happen(&cluster, *event).await;
            }
            tokio::time::sleep(20 * MINUTE).await;
            for resource in ["load_balancer", "public_ip", "security_group", "private_link_service"] {
                for outcome in ["repaired", "reported", "delayed"] {
                    assert_eq!(counted(&manager, resource, outcome), 0.0, "{resource} {outcome}: {events:?} {:?}", cluster.warnings("web"));
                }
            }
        });
    }
}

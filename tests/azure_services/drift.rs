//! What somebody else changes in Azure: a comparison finds it, tells it, and puts it right, or leaves it as the configuration says; and never
//! in a fight with another writer.

use std::{sync::Arc, time::Duration};

use cloud_controller_manager::{cloud_provider::CloudProvider, providers::azure::metrics::AzureMetrics};
use k8s_openapi::api::core::v1;
use proptest::{prelude::*, test_runner::Config};
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{BALANCERS, Cluster, Life, MINUTE, PUBLIC_IPS, SECURITY_GROUPS, alone},
    membership::EXCLUDED,
    services::{annotate, external, internal, set_port, with},
};

const COMPARISONS: &str = "--min-resync-period=10m";
const DRIFTED: &str = "LoadBalancerDrifted";
const DELAYED: &str = "LoadBalancerRepairDelayed";

/// Something that somebody else does to the documents of the Service `web`.
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

/// The document of a type.
fn document(cluster: &Cluster, kind: &str) -> Value {
    cluster.azure().documents_of(kind).remove(0)
}

/// What Azure has, without versions.
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

/// Messages of the events of this reason about `web`.
fn told(cluster: &Cluster, reason: &str) -> Vec<String> {
    cluster.warnings("web").into_iter().filter(|(known, _)| known == reason).map(|(_, message)| message).collect()
}

fn counted(life: &Life, resource: &str, outcome: &str) -> f64 {
    let metrics = life.metrics.table::<AzureMetrics>().unwrap();
    metrics.rows.drift.with_label_values(&[resource, outcome]).get()
}

fn left(life: &Life, reason: &str) -> f64 {
    life.metrics.table::<AzureMetrics>().unwrap().rows.drifted_services.with_label_values(&[reason]).get()
}

fn status(life: &Life) -> Value {
    json!(life.provider.status())["session"]["loadBalancers"]["drift"].clone()
}

/// `web` is served, and a comparison has found nothing.
async fn served(cluster: &Cluster, flag: &str) -> Life {
    cluster.create(&external("web"));
    let life = cluster.start_with(&[flag]);
    cluster.until_ready(5 * MINUTE).await;
    cluster.settle().await;
    cluster.azure().clear_requests();
    life
}

#[test]
fn what_somebody_else_changed_is_told_counted_and_put_right_once() {
    for tampering in TAMPERINGS {
        alone(async {
            let (cluster, name) = (cluster(), tampering.name);
            let life = served(&cluster, COMPARISONS).await;
            let before = documents(&cluster);
            tamper(&cluster, tampering);
            assert_ne!(documents(&cluster), before, "{name}");
            tokio::time::sleep(65 * MINUTE).await;
            assert_eq!(documents(&cluster), before, "{name}");
            let (writes, told) = (cluster.writes(), told(&cluster, DRIFTED));
            assert!(writes.len() == 1 && writes[0].contains(tampering.kind), "{name}: {writes:?}");
            assert!(told.len() == 1 && told[0].contains(tampering.kind), "{name}: {told:?}");
            assert!(
                told[0].contains(" between 2026-01-01T") && told[0].ends_with("; it is put right now"),
                "{name}: {told:?}"
            );
            assert_eq!(counted(&life, tampering.resource, "repaired"), 1.0, "{name}");
            assert_eq!((left(&life, "delayed"), left(&life, "reported")), (0.0, 0.0), "{name}");
            let latest = &status(&life)["latest"];
            let note = (latest.as_array().unwrap().len(), &latest[0]["about"], &latest[0]["outcome"]);
            assert_eq!(note, (1, &json!("default/web"), &json!("repaired")), "{name}: {latest}");
            assert!(told[0].starts_with(latest[0]["what"].as_str().unwrap()), "{name}: {latest}");
        });
    }
}

#[test]
fn what_is_only_reported_is_left_until_the_service_changes() {
    for tampering in TAMPERINGS {
        alone(async {
            let (cluster, name) = (cluster().configured("driftPolicy", "report"), tampering.name);
            let life = served(&cluster, COMPARISONS).await;
            let before = documents(&cluster);
            tamper(&cluster, tampering);
            tokio::time::sleep(125 * MINUTE).await;
            assert_eq!(cluster.writes(), Vec::<String>::new(), "{name}");
            let told = told(&cluster, DRIFTED);
            assert!(told.len() == 1 && told[0].ends_with("; it is left as it is (driftPolicy: report)"), "{name}: {told:?}");
            assert_eq!((counted(&life, tampering.resource, "reported"), left(&life, "reported")), (1.0, 1.0), "{name}");
            assert_eq!(status(&life)["services"]["default/web"]["documents"].as_array().unwrap().len(), 1, "{name}");
            let latest = &status(&life)["latest"];
            assert_eq!(
                (latest.as_array().unwrap().len(), &latest[0]["outcome"]),
                (1, &json!("reported")),
                "{name}: {latest}"
            );
            assert_eq!(cluster.addresses("web").len(), 1, "{name}");
            let service = cluster.service("web").unwrap();
            let nodes: Vec<_> = cluster.world.nodes().into_iter().map(Arc::new).collect();
            let plan = life.plan(&service, &nodes).await;
            assert!(plan.contains(tampering.kind), "{name}: {plan}");
            for minutes in ["5", "4"] {
                cluster.change("web", |web| annotate(web, "azure-load-balancer-tcp-idle-timeout", Some(minutes)));
                cluster.settle().await;
            }
            assert_eq!((documents(&cluster), left(&life, "reported")), (before, 0.0), "{name}");
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_status_is_only_reported_if_configured() {
    let cluster = cluster().configured("driftPolicy", "report");
    let _life = served(&cluster, COMPARISONS).await;
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
    let life = served(&cluster, "--min-resync-period=3m").await;
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
    assert_eq!(told(&cluster, DELAYED).len(), 1, "{:?}", cluster.warnings("web"));
    assert_eq!(told(&cluster, DRIFTED).len(), writes.len());
    assert_eq!(left(&life, "delayed"), 1.0);
    assert!(counted(&life, "load_balancer", "delayed") >= 1.0);
    assert!(status(&life)["services"]["default/web"]["repairAfter"].is_string(), "{}", status(&life));
    // The writer gives up: the last word is the cluster's.
    cluster
        .until("the probe is right", 400 * MINUTE, |cluster| {
            document(cluster, BALANCERS)["properties"]["probes"][0]["properties"]["port"] != json!(1234)
        })
        .await;
    cluster.settle().await;
    assert_eq!(left(&life, "delayed"), 0.0);
}

/// Nodes that join or leave are no reason to overrule the policy: rules and front ends do not follow them.
#[tokio::test(start_paused = true)]
async fn new_nodes_do_not_put_right_what_is_only_reported() {
    let cluster = Cluster::with_ten_nodes().configured("driftPolicy", "report");
    let life = served(&cluster, COMPARISONS).await;
    tamper(&cluster, &TAMPERINGS[0]);
    tokio::time::sleep(15 * MINUTE).await;
    let changed = document(&cluster, BALANCERS)["properties"]["loadBalancingRules"].clone();
    let node = cluster.world.nodes()[3].metadata.name.clone().unwrap();
    cluster.label_node(&node, EXCLUDED, Some(""));
    tokio::time::sleep(45 * MINUTE).await;
    assert_eq!(document(&cluster, BALANCERS)["properties"]["loadBalancingRules"], changed);
    let writes = cluster.writes();
    assert!(!writes.is_empty() && writes.iter().all(|write| !write.contains(SECURITY_GROUPS)), "{writes:?}");
    assert_eq!(counted(&life, "load_balancer", "reported"), 1.0);
}

/// What a restart finds is a write like any other: the process does not know what was right.
#[tokio::test(start_paused = true)]
async fn what_was_changed_while_nobody_watched_is_no_drift() {
    let cluster = cluster();
    served(&cluster, COMPARISONS).await.stop().await;
    let before = documents(&cluster);
    tamper(&cluster, &TAMPERINGS[0]);
    let life = cluster.start_with(&[COMPARISONS]);
    tokio::time::sleep(30 * MINUTE).await;
    assert_eq!((documents(&cluster), cluster.writes().len()), (before, 1));
    assert_eq!((told(&cluster, DRIFTED).len(), counted(&life, "load_balancer", "repaired")), (0, 0.0));
}

/// The search looks at what a comparison reads anyway: each document or list once, however many Services there are.
#[tokio::test(start_paused = true)]
async fn a_comparison_without_drift_sends_what_it_always_sent() {
    let cluster = cluster();
    (0..20).for_each(|index| drop(cluster.create(&external(&format!("other-{index}")))));
    cluster.create(&internal("inside"));
    let _life = served(&cluster, "--min-resync-period=1h").await;
    cluster.azure().clear_requests();
    tokio::time::sleep(61 * MINUTE).await;
    let requests = cluster.azure().requests();
    let sent = requests.iter().filter(|request| request.resource_type.starts_with("microsoft.network/"));
    let mut sent: Vec<String> = sent.map(|request| format!("{} {}", request.method, request.resource_type)).collect();
    sent.sort();
    assert_eq!(sent, COMPARED);
}

/// What one comparison of 22 Services asks of the network provider.
const COMPARED: [&str; 4] = [
    "GET microsoft.network/loadbalancers",
    "GET microsoft.network/networksecuritygroups",
    "GET microsoft.network/publicipaddresses",
    "GET microsoft.network/virtualnetworks/subnets",
];

/// A change of users and Nodes while comparisons go on.
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
        (0_u8..4, 80..83).prop_map(|(who, port)| Event::Port(who, port)),
        (0_u8..4).prop_map(Event::Internal),
        (0_usize..10, any::<bool>()).prop_map(|(node, excluded)| Event::Exclude(node, excluded)),
        (1_u64..900).prop_map(Event::Wait),
    ];
    prop::collection::vec(event, 1..25)
}

async fn happen(cluster: &Cluster, event: Event) {
    let name = |who: u8| format!("s{who}");
    let there = |who: u8| cluster.service(&name(who)).is_some_and(|service| service.metadata.deletion_timestamp.is_none());
    match event {
        Event::Create(who) if cluster.service(&name(who)).is_none() => drop(cluster.create(&external(&name(who)))),
        Event::Delete(who) if there(who) => cluster.delete(&name(who)),
        Event::Port(who, port) if there(who) => cluster.change(&name(who), |service| set_port(service, port)),
        Event::Internal(who) if there(who) => {
            cluster.change(&name(who), |service| *service = with(service.clone(), "azure-load-balancer-internal", "true"));
        }
        Event::Exclude(node, excluded) => {
            let node = cluster.world.nodes()[node].metadata.name.clone().unwrap();
            cluster.label_node(&node, EXCLUDED, excluded.then_some(""));
        }
        Event::Wait(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
        Event::Create(_) | Event::Delete(_) | Event::Port(..) | Event::Internal(_) => {}
    }
}

proptest! {
    #![proptest_config(Config { cases: 12, failure_persistence: None, ..Config::default() })]

    /// Whatever users and Nodes do, nothing of it is called a change of somebody else.
    #[test]
    fn normal_changes_are_no_drift(events in events()) {
        alone(async {
            let cluster = Cluster::with_ten_nodes();
            let life = served(&cluster, "--min-resync-period=2m").await;
            for event in &events {
                happen(&cluster, *event).await;
            }
            tokio::time::sleep(20 * MINUTE).await;
            for resource in ["load_balancer", "public_ip", "security_group", "private_link_service"] {
                for outcome in ["repaired", "reported", "delayed"] {
                    assert_eq!(counted(&life, resource, outcome), 0.0, "{resource} {outcome}: {events:?} {:?}", cluster.warnings("web"));
                }
            }
        });
    }
}

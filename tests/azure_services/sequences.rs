//! Random histories: Services of every kind are created, changed and deleted, Nodes are added, removed and excluded, and the manager is
//! killed and restarted, with different configurations.
//!
//! In: a seed. Out: nothing, or a panic that names the seed and the differences. Four checks, none of which needs another program: a second
//! manager writes nothing; a cluster that gets the final objects at once has the same final state; all Services are ready, except refused
//! ones; and after all Services are deleted, the cloud is as before the first one.
//!
//! Four cases make a final state depend on its history, and the histories avoid them. Two are properties of Azure: no two Services request
//! the same port of the same address, and a refused Service was never accepted before. One is intended: pools keep their last members when
//! no Node is eligible, as with Go, because an empty pool serves no traffic; so one Node always remains eligible. One is a limit that
//! `docs/guides/azure.md` documents: addresses of machines are not recorded, so unless pools list addresses, only a process that has seen a
//! Node can attribute its address. Here a process sees each Node that is removed, and removes its address from rules.

use std::{collections::BTreeSet, time::Duration};

use cloud_controller_manager::sandbox::{
    azure::{
        AzureOptions,
        topology::{PoolKind, Topology},
    },
    objects::ServiceExt,
};
use k8s_openapi::api::core::v1::{Node, Service};
use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use serde_json::Value;

use crate::azure_services::{
    cluster::{Cluster, is_ready, run_paused},
    documents::{State, differences, unordered, without_idle_pools},
    membership::EXCLUDED,
    seeds,
    services::{annotate, dual_stack, external, set_port, with},
};

/// Nodes at the start, and machines.
const NODES: usize = 3;
const MACHINES: u32 = 6;
/// Acts of one history.
const ACTS: usize = 18;
/// Histories in CI.
const HISTORIES: u64 = 20;
/// Annotation of a Service whose rules lead to Nodes.
const OPENS_NODES: (&str, &str) = ("azure-disable-load-balancer-floating-ip", "true");
/// A public IP that a user created; Services share it.
const SHARED: &str = "shared";

/// Act of a user, a Node or the manager.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Create(Box<Service>),
    SetPort(String, i32),
    Annotate(String, &'static str, Option<String>),
    Delete(String),
    /// The machine and its Node are deleted.
    Remove(String),
    /// An existing machine registers its Node.
    Add(Box<Node>),
    Exclude(String, bool),
    Kill,
    Stop,
}

/// Annotations that can change at any time, with values.
const ANNOTATIONS: &[(&str, &[&str])] = &[
    ("azure-load-balancer-internal", &["true", "false"]),
    ("azure-load-balancer-tcp-idle-timeout", &["5", "30"]),
    ("azure-disable-load-balancer-floating-ip", &["true", "false"]),
    ("azure-load-balancer-disable-tcp-reset", &["true"]),
    ("azure-allowed-service-tags", &["AzureCloud", "AzureCloud,Storage"]),
    ("azure-load-balancer-health-probe-protocol", &["tcp", "http", "https"]),
    ("azure-load-balancer-health-probe-request-path", &["/healthy"]),
    ("azure-load-balancer-health-probe-interval", &["7", "20"]),
    ("azure-load-balancer-health-probe-num-of-probe", &["3"]),
    ("azure-pip-tags", &["team=a", "team=b,cost=1"]),
    ("azure-additional-public-ips", &["198.51.100.7", "198.51.100.8,198.51.100.9", "10.20.0.1,10.224.0.4"]),
    ("azure-allowed-ip-ranges", &["192.0.2.0/24", "192.0.2.0/24,198.18.0.0/15"]),
    ("azure-deny-all-except-load-balancer-source-ranges", &["true"]),
];

/// Annotation for which a Service is refused.
const REFUSED: (&str, &str) = ("azure-load-balancer-tcp-idle-timeout", "soon");

fn random_service(name: &str, port: i32, random: &mut SmallRng) -> Service {
    let mut service = match random.random_range(0..8) {
        0 => dual_stack(name),
        1 => external(name).external_traffic_policy("Local"),
        2 => external(name).source_ranges(&["203.0.113.0/24"]),
        3 => with(external(name), "azure-pip-name", SHARED),
        4 => with(external(name), "azure-load-balancer-enable-high-availability-ports", "true"),
        5 => with(external(name), "azure-dns-label-name", &format!("label-{name}")),
        _ => external(name),
    };
    if random.random_bool(0.2) {
        service = service.port("dns", "UDP", 5000 + port);
    }
    set_port(&mut service, port);
    if random.random_bool(0.4) && !is_fixed(&service) {
        annotate(&mut service, "azure-load-balancer-internal", Some("true"));
    }
    for _ in 0..random.random_range(0..4) {
        if let Some((key, value)) = annotation(&service, random) {
            annotate(&mut service, key, Some(&value));
        }
    }
    if random.random_bool(0.1) {
        annotate(&mut service, REFUSED.0, Some(REFUSED.1));
    }
    service
}

fn value_of<'a>(service: &'a Service, key: &str) -> Option<&'a str> {
    let annotations = service.metadata.annotations.as_ref()?;
    annotations.get(&format!("service.beta.kubernetes.io/{key}")).map(String::as_str)
}

/// Returns `true` if the Service must remain external, because it names a public IP or a label for one.
fn is_fixed(service: &Service) -> bool {
    ["azure-pip-name", "azure-dns-label-name"].iter().any(|key| value_of(service, key).is_some())
}

fn is_refused(service: &Service) -> bool {
    value_of(service, REFUSED.0) == Some(REFUSED.1)
}

fn annotation(service: &Service, random: &mut SmallRng) -> Option<(&'static str, String)> {
    let (key, values) = ANNOTATIONS.choose(random)?;
    let value = (*values.choose(random)?).to_owned();
    let has_ranges = service.spec.as_ref().is_some_and(|spec| spec.load_balancer_source_ranges.is_some());
    let is_excluded = match *key {
        "azure-load-balancer-internal" => is_fixed(service),
        "azure-allowed-ip-ranges" => has_ranges,
        _ => false,
    };
    (!is_excluded).then_some((key, value))
}

/// Returns `true` if `node` is the only one that is eligible for the pools.
fn is_last(nodes: &[String], excluded: &BTreeSet<String>, node: &String) -> bool {
    !excluded.contains(node) && nodes.iter().all(|other| other == node || excluded.contains(other))
}

/// Returns the acts of the history `seed`.
fn acts(seed: u64, cluster: &Cluster) -> Vec<Act> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut later = cluster.cloud.nodes();
    let mut nodes: Vec<_> = later.drain(..NODES).filter_map(|node| node.metadata.name).collect();
    let mut alive: Vec<Service> = Vec::new();
    let mut excluded = BTreeSet::new();
    let mut acts = Vec::new();
    for number in 0..ACTS {
        let port = 1000 + i32::try_from(number).unwrap();
        let chosen = (0..alive.len()).collect::<Vec<_>>().choose(&mut random).copied();
        let act = match (random.random_range(0..20), chosen) {
            (0..=2, Some(at)) if alive.len() > 2 => Act::Delete(name(&alive.remove(at))),
            (3..=5, Some(at)) => {
                set_port(&mut alive[at], port);
                Act::SetPort(name(&alive[at]), port)
            }
            (6..=9, Some(at)) => {
                let Some((key, value)) = annotation(&alive[at], &mut random) else { continue };
                let value = random.random_bool(0.7).then_some(value);
                annotate(&mut alive[at], key, value.as_deref());
                Act::Annotate(name(&alive[at]), key, value)
            }
            (10, _) if nodes.len() > 2 => {
                let at = random.random_range(0..nodes.len());
                if is_last(&nodes, &excluded, &nodes[at]) {
                    continue;
                }
                Act::Remove(nodes.remove(at))
            }
            (11, _) if !later.is_empty() => {
                let node = later.remove(0);
                nodes.extend(node.metadata.name.clone());
                Act::Add(Box::new(node))
            }
            (12..=13, _) => {
                let node = nodes.choose(&mut random).unwrap().clone();
                if is_last(&nodes, &excluded, &node) {
                    continue;
                }
                let is_excluded = excluded.insert(node.clone()) || !excluded.remove(&node);
                Act::Exclude(node, is_excluded)
            }
            (14, _) => Act::Kill,
            (15, _) => Act::Stop,
            _ => {
                let service = random_service(&format!("s{number}"), port, &mut random);
                alive.push(service.clone());
                Act::Create(Box::new(service))
            }
        };
        acts.push(act);
    }
    acts
}

/// Describes a Service by its name, ports, annotations and policies.
fn brief(service: &Service) -> String {
    let annotations = service.metadata.annotations.iter().flatten();
    let pairs = annotations.map(|(key, value)| format!("{}={value}", key.trim_start_matches("service.beta.kubernetes.io/")));
    let fields = service.spec.as_ref().unwrap();
    let ports =
        fields.ports.iter().flatten().map(|port| format!("{}/{}", port.port, port.protocol.as_deref().unwrap_or("TCP")));
    let policies = [&fields.ip_family_policy, &fields.external_traffic_policy].into_iter().flatten().cloned();
    let words: Vec<_> = ports.chain(pairs).chain(policies).collect();
    format!("{} {}", name(service), words.join(" "))
}

impl std::fmt::Display for Act {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Create(service) => write!(f, "Create({})", brief(service)),
            Self::Add(node) => write!(f, "Add({:?})", node.metadata.name),
            other => write!(f, "{other:?}"),
        }
    }
}

fn name(service: &Service) -> String {
    service.metadata.name.clone().unwrap_or_default()
}

/// Applies an act on machines and Nodes. The cluster for comparison gets these acts, too.
fn act_on_nodes(cluster: &Cluster, act: &Act) {
    match act {
        Act::Remove(node) => {
            cluster.cloud.delete_machine(node).unwrap();
            cluster.server.delete::<Node>("", node);
        }
        Act::Add(node) => {
            cluster.server.create::<Node>(node);
        }
        Act::Exclude(node, is_excluded) => {
            cluster.label_node(node, EXCLUDED, is_excluded.then_some(""));
        }
        _ => {}
    }
}

fn act_on_services(cluster: &Cluster, act: &Act) {
    match act {
        Act::Create(service) => drop(cluster.create(service)),
        Act::SetPort(name, port) => cluster.change(name, |service| set_port(service, *port)),
        Act::Annotate(name, key, value) => cluster.change(name, |service| annotate(service, key, value.as_deref())),
        Act::Delete(name) => cluster.delete(name),
        _ => {}
    }
}

/// Returns `true` if the pools of the cluster list addresses instead of interfaces.
fn lists_addresses(seed: u64) -> bool {
    seed % 3 == 1
}

/// Creates a cluster whose kind and configuration depend on the seed.
fn cluster(seed: u64) -> Cluster {
    let kinds = [PoolKind::Uniform, PoolKind::Flexible, PoolKind::AvailabilitySet, PoolKind::Standalone];
    let kind = kinds[usize::try_from(seed / 3 % 4).unwrap()];
    let vm_type = match kind {
        PoolKind::Uniform => "vmss",
        PoolKind::Flexible => "vmssflex",
        _ => "standard",
    };
    let cluster = Cluster::new(Topology::new().dual_stack().pools(kind, 1, MACHINES), AzureOptions::default());
    let cluster = cluster.configured("vmType", vm_type);
    let cluster = match seed % 3 {
        0 => cluster,
        _ if lists_addresses(seed) => cluster.configured("loadBalancerBackendPoolConfigurationType", "nodeIP"),
        _ => cluster.configured("tags", "owner=team").configured("systemTags", "owner"),
    };
    for node in &cluster.cloud.nodes()[NODES..] {
        cluster.server.delete::<Node>("", node.metadata.name.as_deref().unwrap());
    }
    cluster.put_public_ip(SHARED, "52.0.0.9");
    cluster
}

/// Deletes all Services while a manager runs, and returns the cloud.
async fn emptied(cluster: &Cluster) -> State {
    let manager = cluster.start();
    cluster.services().iter().for_each(|service| cluster.delete(&name(service)));
    cluster.until_all_deleted(Duration::from_secs(7200)).await;
    cluster.settle().await;
    manager.stop().await;
    without_history(&unordered(cluster))
}

/// Returns the cloud without values that depend on the history.
///
/// Documents of a user keep some values after the last Service is deleted: tags that name the cluster and no Service, those of the
/// configuration, an idle timeout that a Service requested, and the API version that a flexible scale set needs for pools. Tags of an
/// annotation remain when the annotation is removed, because they cannot be distinguished from a user's. A shared frontend is named after
/// its first Service, which may be deleted. A pool that no rule uses remains until the load balancer is deleted, as with Go.
fn without_history(state: &State) -> State {
    let mut state = without_idle_pools(with_shared_frontend_named(state));
    for (id, document) in &mut state {
        sort_parts(document);
        for tag in ["team", "cost"] {
            document["tags"].as_object_mut().map(|tags| tags.remove(tag));
        }
        if id.ends_with(SHARED) || id.contains("networksecuritygroups") {
            document["tags"] = Value::Null;
            document["properties"]["idleTimeoutInMinutes"] = Value::Null;
        }
        if let Some(profile) = document.pointer_mut("/properties/virtualMachineProfile/networkProfile") {
            profile["networkApiVersion"] = Value::Null;
        }
    }
    state
}

fn with_shared_frontend_named(state: &State) -> State {
    let is_shared =
        |front: &&Value| front["properties"]["publicIPAddress"]["id"].as_str().is_some_and(|id| id.ends_with(SHARED));
    let frontends = state.values().filter_map(|document| document["properties"]["frontendIPConfigurations"].as_array());
    let names: Vec<_> = frontends.flatten().filter(is_shared).filter_map(|front| front["name"].as_str()).collect();
    let rename = |document: &Value| {
        let text = names.iter().fold(document.to_string(), |text, name| {
            let text = text.replace(&format!("frontendIPConfigurations/{name}\""), "frontendIPConfigurations/shared\"");
            text.replace(&format!("\"name\":\"{name}\""), "\"name\":\"shared\"")
        });
        serde_json::from_str(&text).unwrap()
    };
    state.iter().map(|(id, document)| (id.clone(), rename(document))).collect()
}

/// Sorts parts: new ones are appended, so their order depends on the history.
fn sort_parts(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.iter_mut().for_each(sort_parts);
            items.sort_by_key(|item| [item["id"].to_string(), item["name"].to_string()]);
        }
        Value::Object(fields) => fields.values_mut().for_each(sort_parts),
        _ => {}
    }
}

/// Returns `true` if rules of a Service lead to Nodes from this act on.
fn opens_nodes(act: &Act) -> bool {
    match act {
        Act::Create(service) => value_of(service, OPENS_NODES.0) == Some(OPENS_NODES.1),
        Act::Annotate(_, key, value) => (*key, value.as_deref()) == (OPENS_NODES.0, Some(OPENS_NODES.1)),
        _ => false,
    }
}

/// Acts before which the manager must finish. Otherwise a process would not see a Node that is removed, or would end before the address of
/// the Node is removed from all rules.
#[derive(Default)]
struct SettlingRule {
    opens_nodes: bool,
    /// The process has seen all Nodes.
    is_settled: bool,
    /// The address of a Node may be in rules.
    is_leaving: bool,
}

impl SettlingRule {
    /// Returns `true` if the manager must finish before `act`.
    fn applies_to(&mut self, act: &Act) -> bool {
        self.opens_nodes |= opens_nodes(act);
        let (ends, removes) = (matches!(act, Act::Kill | Act::Stop), matches!(act, Act::Remove(_)));
        let settles = self.opens_nodes && ((removes && !self.is_settled) || (ends && self.is_leaving));
        self.is_settled = !ends && (self.is_settled || settles);
        self.is_leaving = removes || (self.is_leaving && !settles);
        settles
    }
}

pub(crate) async fn run_history(seed: u64) -> (Cluster, Vec<Act>) {
    let cluster = cluster(seed);
    let acts = acts(seed, &cluster);
    let mut pauses = SmallRng::seed_from_u64(!seed);
    let mut manager = cluster.start();
    let mut rule = SettlingRule::default();
    for act in &acts {
        if rule.applies_to(act) && !lists_addresses(seed) {
            cluster.settle().await;
        }
        act_on_services(&cluster, act);
        act_on_nodes(&cluster, act);
        match act {
            Act::Kill => {
                manager.kill();
                manager = cluster.start();
            }
            Act::Stop => {
                manager.stop().await;
                manager = cluster.start();
            }
            _ => {}
        }
        if pauses.random_bool(0.7) {
            tokio::time::sleep(Duration::from_millis(pauses.random_range(0..90_000))).await;
        }
    }
    cluster.settle().await;
    let unexpected: Vec<_> =
        cluster.services().into_iter().filter(|service| is_ready(service) == is_refused(service)).collect();
    let describe_unexpected = |service: &Service| format!("{}: {:?}", brief(service), cluster.warnings(&name(service)));
    assert!(unexpected.is_empty(), "seed {seed}: {:#?}", unexpected.iter().map(describe_unexpected).collect::<Vec<_>>());
    manager.stop().await;
    (cluster, acts)
}

/// Creates a cluster with the final Nodes and Services at once. Returns the cloud before its manager and after it.
async fn made_at_once(seed: u64, acts: &[Act], services: Vec<Service>) -> (State, State) {
    let cluster = cluster(seed);
    acts.iter().for_each(|act| act_on_nodes(&cluster, act));
    let before = without_history(&unordered(&cluster));
    for mut service in services {
        service.status = None;
        service.metadata.finalizers = None;
        cluster.server.restore(&service);
    }
    let manager = cluster.start();
    cluster.settle().await;
    manager.stop().await;
    (before, without_history(&unordered(&cluster)))
}

fn check(seed: u64) {
    let (acts, services, end, empty) = run_paused(async {
        let (cluster, acts) = run_history(seed).await;
        let end = without_history(&unordered(&cluster));
        cluster.assert_plans_nothing(&format!("seed {seed}: planned again")).await;
        let services = cluster.services();
        (acts, services, end, emptied(&cluster).await)
    });
    let (before, expected) = run_paused(made_at_once(seed, &acts, services));
    let list_acts = || acts.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert_eq!(
        differences(&expected, &end),
        Vec::<String>::new(),
        "seed {seed}: the state depends on the history\n{}",
        list_acts()
    );
    assert_eq!(differences(&before, &empty), Vec::<String>::new(), "seed {seed}: leftovers\n{}", list_acts());
}

#[test]
fn final_state_depends_only_on_inputs() {
    seeds::each_seed(0..HISTORIES, check);
}

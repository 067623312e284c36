//! Members of the backend pools: the machines of all eligible Nodes, whatever happens to Services.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cloud_controller_manager::sandbox::azure::{
    AzureOptions, Class,
    topology::{Machine, Pool, PoolKind, Topology},
};
use k8s_openapi::{
    api::core::v1::{Node, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use serde_json::Value;

use crate::azure_services::{
    cluster::{Cluster, MINUTE, Manager, run_paused},
    seeds,
    services::{annotate, external, internal},
};

/// Time within which pools follow Nodes.
const SOON: Duration = Duration::from_secs(15);
/// Longer than a machine without a Node stays in the pools.
const LONG: Duration = Duration::from_secs(75 * 60);
pub(crate) const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const MANAGED: &str = "kubernetes.azure.com/managed";
const BY_ADDRESS: &str = "nodeIP";
const BY_INTERFACE: &str = "nodeIPConfiguration";

fn machines(count: u32) -> Topology {
    Topology::new().pools(PoolKind::Uniform, 1, count)
}

/// Serves these Services with pools of this kind.
async fn served(topology: Topology, kind: &str, services: &[Service]) -> (Cluster, Manager) {
    let cluster = Cluster::new(topology, AzureOptions::default());
    cluster.configured("loadBalancerBackendPoolConfigurationType", kind).serving(services).await
}

/// Returns the names of the machines in each pool, by id of the pool.
fn members(cluster: &Cluster) -> BTreeMap<String, BTreeSet<String>> {
    let (machines, mut members) = (cluster.cloud.machines(), BTreeMap::<String, BTreeSet<String>>::new());
    let topology = cluster.cloud.topology();
    for balancer in cluster.balancers() {
        for pool in list(&balancer["properties"]["backendAddressPools"]) {
            let listed = list(&pool["properties"]["loadBalancerBackendAddresses"]);
            let addresses: Vec<_> = listed.iter().filter_map(|entry| entry["properties"]["ipAddress"].as_str()).collect();
            let is_in = |machine: &&Machine| {
                machine.ip_configurations.iter().any(|it| addresses.contains(&it.address.to_string().as_str()))
            };
            let names = machines.iter().filter(is_in).map(Machine::computer_name).collect();
            members.insert(pool["id"].as_str().unwrap().to_lowercase(), names);
        }
    }
    for machine in &machines {
        let interface = cluster.azure().document(machine.interface_id(&topology).as_str()).unwrap_or_default();
        for configuration in list(&interface["properties"]["ipConfigurations"]) {
            for pool in list(&configuration["properties"]["loadBalancerBackendAddressPools"]) {
                let id = pool["id"].as_str().unwrap().to_lowercase();
                members.entry(id).or_default().insert(machine.computer_name());
            }
        }
    }
    members
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns `true` if every pool has exactly these machines.
fn all_have<'a>(cluster: &Cluster, names: impl IntoIterator<Item = &'a String>) -> bool {
    let names: BTreeSet<String> = names.into_iter().cloned().collect();
    let members = members(cluster);
    !members.is_empty() && members.values().all(|members| *members == names)
}

async fn until_all_have(cluster: &Cluster, limit: Duration, names: &[&String]) {
    let condition = format!("pools have {names:?}");
    let has = |cluster: &Cluster| all_have(cluster, names.iter().copied());
    let start = tokio::time::Instant::now();
    while !has(cluster) && start.elapsed() < limit {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(has(cluster), "not within {limit:?}: {condition}, but {:?}", members(cluster));
}

fn names(cluster: &Cluster) -> Vec<String> {
    cluster.cloud.machines().iter().map(Machine::computer_name).collect()
}

fn unregister(cluster: &Cluster, name: &str) {
    cluster.server.delete::<Node>("", name);
}

/// Sets both kinds of source ranges, which is refused.
fn refuse(service: &mut Service) {
    annotate(service, "azure-allowed-ip-ranges", Some("10.0.0.0/8"));
    service.spec.as_mut().unwrap().load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned()]);
}

fn accept(service: &mut Service) {
    annotate(service, "azure-allowed-ip-ranges", None);
    service.spec.as_mut().unwrap().load_balancer_source_ranges = None;
}

#[test]
fn a_node_rejoins_when_its_exclusion_ends() {
    for kind in [BY_ADDRESS, BY_INTERFACE] {
        run_paused(async {
            let (cluster, _manager) = served(machines(3), kind, &[external("web")]).await;
            let all = names(&cluster);
            for (key, value) in [(EXCLUDED, "true"), (EXCLUDED, ""), (MANAGED, "false")] {
                println!("{kind} {key}={value}");
                cluster.label_node(&all[1], key, Some(value));
                until_all_have(&cluster, SOON, &[&all[0], &all[2]]).await;
                cluster.settle().await;
                cluster.label_node(&all[1], key, None);
                until_all_have(&cluster, SOON, &[&all[0], &all[1], &all[2]]).await;
            }
        });
    }
}

/// The kubelet that registers a Node chooses its provider id.
#[test]
fn a_claim_of_another_nodes_machine_changes_no_pool() {
    for kind in [BY_ADDRESS, BY_INTERFACE] {
        run_paused(async {
            let (cluster, _manager) = served(machines(3), kind, &[external("web")]).await;
            let all = names(&cluster);
            until_all_have(&cluster, SOON, &[&all[0], &all[1], &all[2]]).await;
            let mut evil: Node = cluster.server.get("", &all[0]).unwrap();
            evil.metadata = ObjectMeta { name: Some("evil".to_owned()), ..ObjectMeta::default() };
            evil.metadata.labels = Some([(EXCLUDED.to_owned(), String::new())].into());
            cluster.server.create(&evil);
            tokio::time::sleep(MINUTE).await;
            assert!(all_have(&cluster, &all), "{kind}: {:?}", members(&cluster));

            cluster.label_node("evil", EXCLUDED, None);
            cluster.label_node(&all[0], EXCLUDED, Some("true"));
            until_all_have(&cluster, MINUTE, &[&all[1], &all[2]]).await;
            let warnings = cluster.warnings("evil");
            assert!(warnings.iter().any(|(reason, _)| reason == "ProviderIDConflict"), "{kind}: {warnings:?}");
        });
    }
}

/// The machine's own Node is not registered.
#[test]
fn a_single_claim_of_another_machine_joins_no_pool() {
    for kind in [BY_ADDRESS, BY_INTERFACE] {
        run_paused(async {
            let (cluster, _manager) = served(machines(3), kind, &[external("web")]).await;
            let all = names(&cluster);
            let mut evil: Node = cluster.server.get("", &all[0]).unwrap();
            unregister(&cluster, &all[0]);
            until_all_have(&cluster, SOON, &[&all[1], &all[2]]).await;
            evil.metadata = ObjectMeta { name: Some("evil".to_owned()), ..ObjectMeta::default() };
            cluster.server.create(&evil);
            let is_reported = |cluster: &Cluster| cluster.is_warned("evil", "load balancers ignore this node");
            cluster.until("the claim is reported", 3 * MINUTE, is_reported).await;
            cluster.settle().await;
            assert!(all_have(&cluster, &all[1..]), "{kind}: {:?}", members(&cluster));
        });
    }
}

#[test]
fn a_node_that_was_excluded_at_the_start_rejoins() {
    for kind in [BY_ADDRESS, BY_INTERFACE] {
        run_paused(async {
            let (cluster, manager) = served(machines(3), kind, &[external("web"), internal("inside")]).await;
            let all = names(&cluster);
            manager.stop().await;
            cluster.label_node(&all[1], EXCLUDED, Some("true"));
            let _manager = cluster.start();
            until_all_have(&cluster, MINUTE, &[&all[0], &all[2]]).await;
            cluster.settle().await;
            cluster.label_node(&all[1], EXCLUDED, None);
            until_all_have(&cluster, SOON, &[&all[0], &all[1], &all[2]]).await;
        });
    }
}

/// Cases for each kind of machine.
#[test]
fn a_machine_leaves_when_its_node_is_removed() {
    for (kind, pool) in
        [(BY_ADDRESS, PoolKind::Uniform), (BY_INTERFACE, PoolKind::Uniform), (BY_INTERFACE, PoolKind::AvailabilitySet)]
    {
        run_paused(async {
            let topology = Topology::new().pools(pool, 1, 3);
            let (cluster, _manager) = served(topology, kind, &[external("web")]).await;
            let all = names(&cluster);
            unregister(&cluster, &all[1]);
            println!("{kind} {pool:?}");
            until_all_have(&cluster, SOON, &[&all[0], &all[2]]).await;
            cluster.settle().await;
            cluster.register(&all[1]);
            until_all_have(&cluster, SOON, &[&all[0], &all[1], &all[2]]).await;
        });
    }
}

/// The Node was deleted while no manager ran. A pool member without a Node may also be a machine that is starting, so it is kept for a while.
#[tokio::test(start_paused = true)]
async fn a_machine_without_a_node_leaves_after_a_delay() {
    let (cluster, manager) = served(machines(3), BY_INTERFACE, &[external("web")]).await;
    let all = names(&cluster);
    manager.stop().await;
    unregister(&cluster, &all[1]);
    let _manager = cluster.start();
    tokio::time::sleep(50 * MINUTE).await;
    assert!(all_have(&cluster, &all), "a machine that starts is kept");
    until_all_have(&cluster, LONG, &[&all[0], &all[2]]).await;
}

#[tokio::test(start_paused = true)]
async fn machines_outside_uniform_scale_sets_are_ignored_if_disabled() {
    let sets = Pool::new(PoolKind::AvailabilitySet, "set", 2);
    let topology = Topology::new().pools(PoolKind::Uniform, 1, 2).pool(sets);
    let cluster = Cluster::new(topology, AzureOptions::default()).configured("disableAvailabilitySetNodes", true);
    let (cluster, manager) = cluster.serving(&[external("web")]).await;
    let all = names(&cluster);
    let uniform: Vec<&String> = all.iter().filter(|name| !name.starts_with("set")).collect();
    assert_eq!(uniform.len(), 2);
    until_all_have(&cluster, MINUTE, &uniform).await;
    manager.stop().await;
    // With flexible scale sets, machines of all kinds are eligible.
    let cluster = cluster.configured("enableVmssFlexNodes", true);
    let _manager = cluster.start();
    until_all_have(&cluster, MINUTE, &all.iter().collect::<Vec<_>>()).await;
}

/// Returns the numbers of reads and writes since the log was cleared.
fn cost(cluster: &Cluster) -> (usize, usize) {
    let reads = cluster.azure().count(|request| request.class == Class::Read);
    (reads, cluster.writes().len())
}

/// The host sync and the Services share their results, so neither repeats the reads and writes of the other.
#[tokio::test(start_paused = true)]
async fn host_syncs_cost_no_requests_in_addition_to_services() {
    let cluster = Cluster::new(machines(10), AzureOptions::default());
    (0..20).for_each(|index| drop(cluster.create(&external(&format!("s{index}")))));
    let manager = cluster.serve(&[]).await;
    tokio::time::sleep(SOON).await;
    manager.stop().await;
    cluster.azure().clear_requests();
    let _manager = cluster.start();
    tokio::time::sleep(SOON).await;
    let (reads, writes) = cost(&cluster);
    println!("restart: {reads} reads, {writes} writes");
    assert!(reads <= 10 && writes == 0, "{reads} reads, {writes} writes");
    cluster.azure().clear_requests();
    let new = cluster.add_machine();
    cluster.server.create::<Node>(&cluster.cloud.uninitialized_node(&new).unwrap());
    tokio::time::sleep(SOON).await;
    let (reads, writes) = cost(&cluster);
    println!("a Node more: {reads} reads, {writes} writes");
    assert!(reads <= 5 && writes == 1, "{reads} reads, {writes} writes");
    cluster.azure().clear_requests();
    tokio::time::sleep(60 * MINUTE).await;
    let listing = cost(&cluster).0;
    unregister(&cluster, &new);
    cluster.cloud.delete_machine(&new).unwrap();
    cluster.azure().clear_requests();
    tokio::time::sleep(SOON).await;
    let (reads, writes) = cost(&cluster);
    println!("an hour: {listing} reads; a Node less: {reads} reads, {writes} writes");
    assert!(writes == 0, "{reads} reads, {writes} writes");
}

/// Applies a random change to the machines, Nodes or Services.
fn apply_random_change(cluster: &Cluster, spare: &str, random: &mut SmallRng) {
    let pool = cluster.cloud.topology().pools[0].name.clone();
    let machines: Vec<String> = names(cluster).into_iter().filter(|name| name != spare).collect();
    let Some(name) = machines.choose(random) else { return };
    let has_node = cluster.server.get::<Node>("", name).is_some();
    let service = *["web", "inside"].choose(random).unwrap();
    match random.random_range(0..10) {
        0 if machines.len() < 6 => cluster.register(&cluster.cloud.scale_out(&pool, 1).unwrap()[0]),
        1 if has_node => unregister(cluster, name),
        2 | 3 if !has_node => cluster.register(name),
        4 if has_node => cluster.label_node(name, EXCLUDED, Some(["true", "", "false"].choose(random).unwrap())),
        5 if has_node => cluster.label_node(name, EXCLUDED, None),
        6 if has_node => cluster.label_node(name, MANAGED, Some("false")),
        7 if has_node => cluster.label_node(name, MANAGED, None),
        8 => cluster.change(service, if random.random_bool(0.5) { refuse } else { accept }),
        9 if machines.len() > 2 => {
            cluster.cloud.delete_machine(name).unwrap();
            if has_node {
                unregister(cluster, name);
            }
        }
        _ => {}
    }
}

/// Returns the machines whose Nodes are eligible for the pools.
fn eligible(cluster: &Cluster) -> Vec<String> {
    let is_excluded = |node: &Node| {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        labels.get(EXCLUDED).is_some_and(|value| value != "false")
            || labels.get(MANAGED).is_some_and(|value| value == "false")
    };
    let is_eligible = |name: &String| cluster.server.get::<Node>("", name).is_some_and(|node| !is_excluded(&node));
    names(cluster).into_iter().filter(is_eligible).collect()
}

/// Twenty sequences, both kinds of pools.
#[test]
fn final_pools_depend_only_on_the_final_nodes() {
    for seed in seeds::printed(0..20) {
        let kind = if seed.is_multiple_of(2) { BY_ADDRESS } else { BY_INTERFACE };
        run_paused(async move {
            let mut random = SmallRng::seed_from_u64(seed);
            let services = [external("web"), internal("inside")];
            let (cluster, mut manager) = served(machines(3), kind, &services).await;
            let spare = names(&cluster).remove(0);
            for _ in 0..25 {
                apply_random_change(&cluster, &spare, &mut random);
                tokio::time::sleep(Duration::from_millis(random.random_range(0..4_000))).await;
                if random.random_bool(0.04) {
                    manager.kill();
                    manager = cluster.start();
                }
            }
            tokio::time::sleep(LONG).await;
            let (expected, found) = (eligible(&cluster), members(&cluster));
            assert!(all_have(&cluster, &expected), "seed {seed}, {kind}: {found:?} instead of {expected:?}");
            manager.stop().await;
            let _manager = cluster.start();
            tokio::time::sleep(LONG).await;
            assert_eq!(members(&cluster), found, "seed {seed}, {kind}: a new process has another result");
        });
    }
}

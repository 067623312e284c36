//! Pools of Services with policy `Local` on several load balancers: they follow endpoints, with a bounded number of writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cloud_controller_manager::sandbox::azure::{
    AzureOptions, Class, Crash, Fault, RequestRecord,
    topology::{PoolKind, Topology},
};
use k8s_openapi::api::{
    core::v1::{Namespace, Node, Service},
    discovery::v1::EndpointSlice,
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::azure_services::{
    cluster::{Cluster, MINUTE, Manager, run_paused},
    membership::EXCLUDED,
    services::{dual_stack, external, local, set_port},
};

/// `loadBalancerBackendPoolUpdateIntervalInSeconds`.
const INTERVAL: Duration = Duration::from_secs(30);
const AFTER_INTERVAL: Duration = Duration::from_secs(45);

fn cluster(nodes: u32) -> Cluster {
    let topology = Topology::new().dual_stack().pools(PoolKind::Uniform, 1, nodes);
    let entries = json!([{"name": "kubernetes", "primaryVMSet": "none"}, {"name": "lb2", "primaryVMSet": "nobody"}]);
    let cluster = Cluster::new(topology, AzureOptions::default());
    cluster
        .configured("loadBalancerBackendPoolConfigurationType", "nodeIP")
        .configured("multipleStandardLoadBalancerConfigurations", entries)
}

/// Creates or replaces the slice of this number, with an endpoint on each of these Nodes.
fn slice(cluster: &Cluster, service: &str, number: u32, nodes: &[&str]) {
    let name = format!("{service}-{number}");
    let endpoints: Vec<_> = nodes.iter().map(|node| json!({"addresses": ["10.244.0.9"], "nodeName": node})).collect();
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": name, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "endpoints": endpoints, "ports": [],
    }))
    .unwrap();
    match cluster.server.get::<EndpointSlice>("default", &name) {
        Some(_) => drop(cluster.server.update_with("default", &name, |existing: &mut EndpointSlice| {
            existing.endpoints.clone_from(&slice.endpoints);
        })),
        None => drop(cluster.server.create(&slice)),
    }
}

fn nodes(cluster: &Cluster) -> Vec<String> {
    cluster.server.list::<Node>().into_iter().filter_map(|node| node.metadata.name).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the names of the entries of each pool, by the pool's name.
fn pools(cluster: &Cluster) -> BTreeMap<String, BTreeSet<String>> {
    let balancers = cluster.balancers();
    let pools = balancers.iter().flat_map(|balancer| list(&balancer["properties"]["backendAddressPools"]));
    let names = |pool: &Value| {
        let entries = list(&pool["properties"]["loadBalancerBackendAddresses"]);
        entries.iter().filter_map(|entry| Some(entry["name"].as_str()?.to_owned())).collect()
    };
    pools.map(|pool| (pool["name"].as_str().unwrap().to_owned(), names(pool))).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Starts a manager that serves these Services, with one endpoint each, on the first Node.
async fn served(nodes_there: u32, services: &[Service]) -> (Cluster, Manager, Vec<String>) {
    let cluster = cluster(nodes_there);
    let names = nodes(&cluster);
    for service in services {
        slice(&cluster, service.metadata.name.as_deref().unwrap(), 1, &[&names[0]]);
        cluster.create(service);
    }
    let manager = cluster.serve_and_settle(&[]).await;
    cluster.azure().clear_requests();
    (cluster, manager, names)
}

fn is_write(request: &RequestRecord) -> bool {
    matches!(request.class, Class::Write | Class::Delete)
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_endpoints_costs_one_write_per_pool_and_interval() {
    let services: Vec<Service> = (0..50).map(|number| local(&format!("web-{number}"))).collect();
    let (cluster, _manager, nodes) = served(8, &services).await;
    let (mut random, minutes) = (SmallRng::seed_from_u64(7), 3);
    let mut last: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let start = Instant::now();
    for _ in 0..1_000 * minutes {
        let (service, some) = (random.random_range(0..50), random.random_range(0..4));
        let on: Vec<usize> = (0..some).map(|_| random.random_range(0..nodes.len())).collect();
        let names: Vec<&str> = on.iter().map(|node| nodes[*node].as_str()).collect();
        slice(&cluster, &format!("web-{service}"), 1, &names);
        last.insert(service, on);
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let stormed = start.elapsed();
    cluster.quiet_for(4 * INTERVAL).await;

    let requests = cluster.azure().requests();
    let mut written: BTreeMap<String, Vec<Instant>> = BTreeMap::new();
    for request in requests.iter().filter(|request| is_write(request)) {
        assert!(request.path.contains("/backendAddressPools/"), "nothing else is written: {}", request.path);
        written.entry(request.path.clone()).or_default().push(request.at);
    }
    let most = written.values().map(Vec::len).max().unwrap();
    let intervals = usize::try_from(stormed.as_secs() / INTERVAL.as_secs()).unwrap() + 1;
    let all: usize = written.values().map(Vec::len).sum();
    println!("{all} writes of {} pools for 3000 changes in {stormed:?}; at most {most} of one", written.len());
    assert!(most <= intervals, "{most} writes of a pool in {intervals} intervals");
    for (pool, times) in &written {
        // Writes of a load balancer are queued, so one write may be late and the next one in time.
        let close = times.windows(3).find(|three| three[2] - three[0] < INTERVAL);
        assert_eq!(close, None, "{pool} is written more than once in an interval");
    }
    let current_pools = pools(&cluster);
    for (service, on) in last {
        let expected: BTreeSet<String> = on.iter().map(|node| nodes[*node].clone()).collect();
        assert_eq!(current_pools[&format!("default-web-{service}")], expected, "web-{service}");
    }
}

#[tokio::test(start_paused = true)]
async fn own_pools_follow_endpoints_next_to_preconfigured_pools() {
    let cluster = cluster(3).configured("preConfiguredBackendPoolLoadBalancerTypes", "all");
    let names = nodes(&cluster);
    slice(&cluster, "web", 1, &[&names[0]]);
    let _manager = cluster.serve_and_settle(&[local("web"), external("other")]).await;
    let of_cluster = pools(&cluster)["kubernetes"].clone();
    slice(&cluster, "web", 1, &[&names[1]]);
    cluster.until("it follows", AFTER_INTERVAL, |cluster| pools(cluster)["default-web"] == set(&[&names[1]])).await;
    cluster.server.delete::<Node>("", &names[2]);
    cluster.settle().await;
    assert_eq!(pools(&cluster)["kubernetes"], of_cluster, "the cluster's pool is left to others");
}

#[tokio::test(start_paused = true)]
async fn a_pool_lists_the_nodes_of_all_slices() {
    let (cluster, _manager, names) = served(3, &[local("web"), external("other")]).await;
    let [a, b, c] = [0, 1, 2].map(|at| names[at].as_str());
    assert_eq!(pools(&cluster)["default-web"], set(&[a]));
    let after = async |step: &str, expected: &[&str]| {
        tokio::time::sleep(AFTER_INTERVAL).await;
        assert_eq!(pools(&cluster)["default-web"], set(expected), "{step}");
    };
    slice(&cluster, "web", 2, &[b]);
    after("a second slice", &[a, b]).await;
    slice(&cluster, "web", 1, &[b, c]);
    after("two slices on one node", &[b, c]).await;
    slice(&cluster, "web", 1, &[]);
    after("endpoints removed", &[b]).await;
    slice(&cluster, "web", 2, &[]);
    after("slices without endpoints", &[]).await;
    cluster.server.delete::<EndpointSlice>("default", "web-1");
    cluster.server.delete::<EndpointSlice>("default", "web-2");
    after("no slice at all", &[a, b, c]).await;
    let writes = cluster.writes();
    assert!(writes.iter().all(|write| write.contains("/backendAddressPools/default-web")), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_policy_creates_and_removes_the_pool() {
    let (cluster, _manager, names) = served(2, &[local("web"), external("other")]).await;
    let policy = |policy: &str| {
        cluster.change("web", |service| {
            service.spec.as_mut().unwrap().external_traffic_policy = Some(policy.to_owned());
        });
    };
    policy("Cluster");
    cluster.quiet_for(2 * MINUTE).await;
    assert!(!pools(&cluster).contains_key("default-web"), "{:?}", pools(&cluster));
    policy("Local");
    cluster.quiet_for(2 * MINUTE).await;
    assert_eq!(pools(&cluster)["default-web"], set(&[&names[0]]));
    cluster.delete("web");
    cluster.quiet_for(2 * MINUTE).await;
    assert!(cluster.service("web").is_none() && !pools(&cluster).contains_key("default-web"));
}

#[tokio::test(start_paused = true)]
async fn a_dual_stack_service_has_a_pool_of_each_family() {
    let mut dual = dual_stack("web");
    dual.spec.as_mut().unwrap().external_traffic_policy = Some("Local".to_owned());
    dual.spec.as_mut().unwrap().health_check_node_port = Some(31_000);
    let (cluster, _manager, names) = served(2, &[dual]).await;
    slice(&cluster, "web", 1, &[&names[1]]);
    tokio::time::sleep(AFTER_INTERVAL).await;
    let current_pools = pools(&cluster);
    assert_eq!(
        (&current_pools["default-web"], &current_pools["default-web-ipv6"]),
        (&set(&[&names[1]]), &set(&[&names[1]]))
    );
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_moved_during_downtime_are_found_at_start() {
    let (cluster, manager, names) = served(3, &[local("web")]).await;
    manager.stop().await;
    slice(&cluster, "web", 1, &[&names[2]]);
    let _manager = cluster.start();
    cluster.settle().await;
    assert_eq!(pools(&cluster)["default-web"], set(&[&names[2]]));
    assert_eq!(cluster.writes().len(), 1, "{:?}", cluster.writes());
}

#[test]
fn a_crash_at_any_request_leaves_nothing_wrong() {
    for when in [Crash::Before, Crash::After] {
        for nth in 1.. {
            let has_crashed = run_paused(async {
                let (cluster, manager, names) = served(3, &[local("web"), local("api")]).await;
                manager.wire.cut_at(nth, when);
                slice(&cluster, "web", 1, &[&names[1], &names[2]]);
                slice(&cluster, "api", 1, &[&names[2]]);
                tokio::time::sleep(AFTER_INTERVAL).await;
                let has_crashed = manager.wire.is_cut();
                manager.kill();
                let manager = cluster.start();
                cluster.quiet_for(2 * MINUTE).await;
                let current_pools = pools(&cluster);
                assert_eq!(current_pools["default-web"], set(&[&names[1], &names[2]]), "crash {when:?} request {nth}");
                assert_eq!(current_pools["default-api"], set(&[&names[2]]), "crash {when:?} request {nth}");
                cluster.azure().clear_requests();
                cluster.quiet_for(2 * MINUTE).await;
                assert_eq!(cluster.writes(), [""; 0], "crash {when:?} request {nth}");
                manager.stop().await;
                has_crashed
            });
            if !has_crashed {
                assert!(nth > 2, "{nth} requests");
                break;
            }
        }
    }
}

#[test]
fn a_pool_write_is_retried_until_azure_shows_it() {
    for (status, code, times) in
        [(429, "TooManyRequests", 3), (412, "PreconditionFailed", 3), (500, "InternalServerError", 9)]
    {
        run_paused(async {
            let (cluster, _manager, names) = served(2, &[local("web"), local("api")]).await;
            let pool = "*/backendAddressPools/default-web";
            cluster.azure().add_fault(Fault::refuse(status, code).method("PUT").path(pool).times(times));
            slice(&cluster, "web", 1, &[&names[1]]);
            slice(&cluster, "api", 1, &[&names[1]]);
            tokio::time::sleep(AFTER_INTERVAL).await;
            // All pools share a quota.
            let is_followed = pools(&cluster)["default-api"] == set(&[&names[1]]);
            assert!(is_followed || status == 429, "{code}: another pool does not wait");
            cluster.settle().await;
            for name in ["default-web", "default-api"] {
                assert_eq!(pools(&cluster)[name], set(&[&names[1]]), "{code}");
            }
            let writes = cluster.writes();
            assert!(writes.iter().all(|write| write.contains("/backendAddressPools/")), "{code}: {writes:?}");
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_cannot_be_written_is_reported_on_its_service() {
    let (cluster, _manager, names) = served(2, &[local("web"), local("api")]).await;
    let pool = "*/backendAddressPools/default-web";
    cluster.azure().add_fault(Fault::refuse(403, "AuthorizationFailed").method("PUT").path(pool).lasting(5 * MINUTE));
    slice(&cluster, "web", 1, &[&names[1]]);
    slice(&cluster, "api", 1, &[&names[1]]);
    tokio::time::sleep(AFTER_INTERVAL).await;
    let report_count = |name: &str| {
        let about = cluster.warnings(name).into_iter();
        about.filter(|(reason, _)| reason == "LoadBalancerBackendPoolUpdateFailed").count()
    };
    assert!(report_count("web") > 0 && report_count("api") == 0, "{:?}", cluster.warnings("web"));
    cluster.settle().await;
    assert_eq!(pools(&cluster)["default-web"], set(&[&names[1]]));
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_cannot_be_written_delays_no_other_service() {
    let (cluster, _manager, names) = served(2, &[local("web")]).await;
    let pool = "*/backendAddressPools/default-web";
    cluster.azure().add_fault(Fault::refuse(403, "AuthorizationFailed").method("PUT").path(pool).lasting(30 * MINUTE));
    slice(&cluster, "web", 1, &[&names[1]]);
    tokio::time::sleep(AFTER_INTERVAL).await;
    slice(&cluster, "api", 1, &[&names[1]]);
    cluster.create(&local("api"));
    cluster.create(&external("other"));
    tokio::time::sleep(10 * MINUTE).await;
    assert_ne!(pools(&cluster)["default-web"], set(&[&names[1]]), "the pool cannot be written yet");
    for name in ["api", "other"] {
        assert!(!cluster.addresses(name).is_empty(), "{name}: {:?}", cluster.warnings(name));
    }
    cluster.settle().await;
    assert_eq!(pools(&cluster)["default-web"], set(&[&names[1]]));
}

/// A selector of an entry, and the edit that sets its label: on the Namespace of all Services, or on a Service.
type LabelEdit = (&'static str, fn(&Cluster));
const LABEL_EDITS: [LabelEdit; 2] = [
    ("serviceNamespaceSelector", |cluster| {
        cluster.server.update_with("", "default", |namespace: &mut Namespace| set_tier(&mut namespace.metadata.labels));
    }),
    ("serviceLabelSelector", |cluster| cluster.change("web", |service| set_tier(&mut service.metadata.labels))),
];

fn set_tier(labels: &mut Option<BTreeMap<String, String>>) {
    labels.get_or_insert_default().insert("tier".to_owned(), "gold".to_owned());
}

/// Serves `web` on an entry without selector; entry `lb2` accepts Services that `selector` matches.
async fn selecting(selector: &str, moves_services: bool) -> (Cluster, Manager) {
    let entries = json!([
        {"name": "kubernetes", "primaryVMSet": "none"},
        {"name": "lb2", "primaryVMSet": "nobody", selector: {"matchLabels": {"tier": "gold"}}},
    ]);
    let cluster = cluster(2).configured("multipleStandardLoadBalancerConfigurations", entries);
    let (cluster, manager) =
        cluster.configured("moveServicesOnLabelChange", moves_services).serving(&[external("web")]).await;
    assert_eq!(balancers(&cluster), ["kubernetes"]);
    cluster.azure().clear_requests();
    (cluster, manager)
}

fn balancers(cluster: &Cluster) -> Vec<String> {
    cluster.balancers().iter().map(|balancer| balancer["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_edit_of_labels_alone_moves_a_service_at_a_restart() {
    for (selector, edit) in LABEL_EDITS {
        run_paused(async {
            let (cluster, manager) = selecting(selector, false).await;
            edit(&cluster);
            cluster.quiet_for(10 * MINUTE).await;
            assert_eq!(cluster.writes(), [""; 0], "{selector}");
            // A change of Nodes does not apply the edited labels.
            cluster.label_node(&nodes(&cluster)[0], EXCLUDED, Some(""));
            cluster.quiet_for(2 * MINUTE).await;
            assert_eq!(balancers(&cluster), ["kubernetes"], "{selector}");
            let plan = cluster.plan(&[]).await;
            let moves = "Service default/web comes from load balancer kubernetes, since another entry's selector matches";
            assert!(plan.json().to_string().contains(moves), "{selector}: {}", plan.json());
            manager.stop().await;
            let _manager = cluster.start();
            cluster.quiet_for(2 * MINUTE).await;
            assert_eq!(balancers(&cluster), ["lb2"], "{selector}: after a restart");
        });
    }
}

#[test]
fn labels_count_when_their_service_changes() {
    type Change = (fn(&mut Service), Duration);
    let set_foreign = |service: &mut Service| {
        service.metadata.annotations.get_or_insert_default().insert("example.com/touched".into(), "now".into());
    };
    // A change of a field that the provider does not read triggers a comparison within five minutes.
    let changes: [Change; 2] = [(|service| set_port(service, 81), MINUTE), (set_foreign, 6 * MINUTE)];
    for (selector, edit) in LABEL_EDITS {
        for (change, delay) in changes {
            run_paused(async {
                let (cluster, _manager) = selecting(selector, false).await;
                edit(&cluster);
                cluster.quiet_for(MINUTE).await;
                cluster.change("web", change);
                tokio::time::sleep(delay).await;
                cluster.quiet_for(MINUTE).await;
                assert_eq!(balancers(&cluster), ["lb2"], "{selector}");
                let warnings = cluster.warnings("web");
                assert!(warnings.iter().all(|(reason, _)| reason != "LoadBalancerDrifted"), "{selector}: {warnings:?}");
            });
        }
    }
}

#[test]
fn an_edit_of_labels_moves_services_at_once_if_configured() {
    for (selector, edit) in LABEL_EDITS {
        run_paused(async {
            let (cluster, manager) = selecting(selector, true).await;
            cluster.server.update_with("", "default", |namespace: &mut Namespace| {
                namespace.metadata.labels.get_or_insert_default().insert("unread".to_owned(), "gold".to_owned());
            });
            cluster.quiet_for(2 * MINUTE).await;
            assert_eq!(cluster.writes(), [""; 0]);
            edit(&cluster);
            cluster.quiet_for(2 * MINUTE).await;
            assert_eq!(balancers(&cluster), ["lb2"], "{selector}");
            manager.stop().await;
            let _manager = cluster.start();
            cluster.quiet_for(2 * MINUTE).await;
            assert_eq!(balancers(&cluster), ["lb2"], "{selector}: after a restart");
        });
    }
}

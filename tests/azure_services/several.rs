//! Several standard load balancers: costs, moves of Services, and refusals.

use std::collections::{BTreeMap, BTreeSet};

use cloud_controller_manager::{
    providers::azure::metrics::AzureMetrics,
    sandbox::{
        azure::{
            AzureOptions, Class, Effect, Fault, LoadBalancerLimits,
            topology::{PoolKind, Topology},
        },
        objects::ServiceExt,
    },
};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, MINUTE, Manager, TIMEOUT, addresses, is_ready},
    scale::as_slow_as_azure,
    services::{annotate, dual_stack, external, internal, local, pinned, set_port, with},
};

pub(crate) const CONFIGURATIONS: &str = "azure-load-balancer-configurations";
pub(crate) const INTERNAL: &str = "azure-load-balancer-internal";
const LIST: &str = "multipleStandardLoadBalancerConfigurations";

/// Returns an entry whose machines are those of one scale set.
pub(crate) fn entry(name: &str, set: usize) -> Value {
    json!({"name": name, "primaryVMSet": format!("aks-pool{set}-vmss")})
}

/// Returns the entries `kubernetes`, `lb2` and so on.
fn entries(count: usize) -> Value {
    let name = |set: usize| if set == 1 { "kubernetes".to_owned() } else { format!("lb{set}") };
    (1..=count).map(|set| entry(&name(set), set)).collect()
}

/// Configures these entries for managers that start from now on.
pub(crate) fn configured(cluster: Cluster, entries: Value) -> Cluster {
    cluster.configured("loadBalancerBackendPoolConfigurationType", "nodeIP").configured(LIST, entries)
}

/// Creates a cluster with `sets` scale sets of two machines each, and as many entries.
pub(crate) fn cluster(sets: u32, options: AzureOptions) -> Cluster {
    let topology = Topology::new().dual_stack().pools(PoolKind::Uniform, sets, 2);
    configured(Cluster::new(topology, options), entries(sets as usize))
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the names of frontends and rules, by name of the load balancer.
pub(crate) fn parts(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let of = |document: &Value| {
        let both = ["frontendIPConfigurations", "loadBalancingRules"];
        let names = both.iter().flat_map(|kind| list(&document["properties"][*kind])).map(|part| text(&part["name"]));
        (text(&document["name"]), names.collect())
    };
    cluster.balancers().iter().map(of).collect()
}

/// Returns the prefix of the names of a Service's parts.
fn prefix(service: &Service) -> String {
    let uid = service.metadata.uid.clone().unwrap_or_default().replace('-', "");
    format!("a{uid}").chars().take(32).collect()
}

/// Returns the load balancers with parts of a Service.
pub(crate) fn load_balancers_of(cluster: &Cluster, name: &str) -> Vec<String> {
    let prefix = prefix(&cluster.service(name).unwrap());
    let has = |names: &Vec<String>| names.iter().any(|part| part.to_lowercase().starts_with(&prefix));
    parts(cluster).into_iter().filter(|(_, names)| has(names)).map(|(balancer, _)| balancer).collect()
}

/// Returns the names of the members of the IPv4 pool, by name of the load balancer.
pub(crate) fn members(cluster: &Cluster) -> BTreeMap<String, BTreeSet<String>> {
    let of = |document: &Value| {
        let pools = list(&document["properties"]["backendAddressPools"]).iter();
        let own = pools.filter(|pool| pool["name"] == "kubernetes");
        let listed = own.flat_map(|pool| list(&pool["properties"]["loadBalancerBackendAddresses"]));
        (text(&document["name"]), listed.map(|member| text(&member["name"])).collect())
    };
    cluster.balancers().iter().map(of).collect()
}

/// Returns the sorted names of the pools, by name of the load balancer.
fn pools(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let of = |document: &Value| {
        let mut names: Vec<_> =
            list(&document["properties"]["backendAddressPools"]).iter().map(|pool| text(&pool["name"])).collect();
        names.sort();
        (text(&document["name"]), names)
    };
    cluster.balancers().iter().map(of).collect()
}

fn is_gone(cluster: &Cluster, balancer: &str) -> bool {
    !parts(cluster).contains_key(balancer)
}

#[tokio::test(start_paused = true)]
async fn two_hundred_services_on_four_load_balancers_cost_few_writes() {
    let cluster = cluster(4, as_slow_as_azure());
    for index in 0..200 {
        cluster.create(&external(&format!("s{index}")));
    }
    cluster.azure().clear_requests();
    let manager = cluster.start();
    manager.metrics.register::<AzureMetrics>().unwrap();
    cluster.until_ready(TIMEOUT).await;
    cluster.settle().await;
    let all = cluster.writes();
    let (pools, rest): (Vec<_>, Vec<_>) = all.iter().partition(|write| write.contains("/backendAddressPools/"));
    println!("{} writes, {} of them of members", all.len(), pools.len());
    assert!(rest.len() <= 200 + 4 * 4, "{} writes: {:?}", rest.len(), &rest[200.min(rest.len())..]);
    assert!(pools.len() <= 16, "{pools:?}");
    let rules: Vec<usize> = parts(&cluster).values().map(Vec::len).collect();
    assert_eq!(rules, [100; 4], "a frontend and a rule for each, spread evenly");
    let shown = gauges(&manager);
    assert!(shown.contains("cloud_controller_manager_azure_load_balancer_rules{load_balancer=\"lb3\"} 50"), "{shown}");
    assert!(
        shown.contains("cloud_controller_manager_azure_load_balancer_rules_limit{load_balancer=\"lb3\"} 1500"),
        "{shown}"
    );
    manager.stop().await;
    cluster.assert_plans_nothing("taken over").await;
}

/// Returns the gauges of load balancers.
fn gauges(manager: &Manager) -> String {
    let all = manager.metrics.render().unwrap();
    all.lines()
        .filter(|line| line.starts_with("cloud_controller_manager_azure_load_balancer"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[tokio::test(start_paused = true)]
async fn a_move_keeps_addresses_and_nodes_follow_load_balancers() {
    let services = [dual_stack("a"), internal("i"), external("b")].map(|it| with(it, CONFIGURATIONS, "kubernetes"));
    let (cluster, manager) = cluster(2, AzureOptions::default()).serving(&services).await;
    assert_eq!(members(&cluster)["kubernetes"].len(), 4, "lb2 does not exist yet");
    let before: Vec<_> = ["a", "i"].map(|name| cluster.addresses(name)).into();
    for name in ["a", "i"] {
        cluster.change(name, |service| annotate(service, CONFIGURATIONS, Some("lb2")));
    }
    cluster.settle().await;
    assert_eq!(
        (load_balancers_of(&cluster, "a"), load_balancers_of(&cluster, "i")),
        (vec!["lb2".to_owned()], vec!["lb2-internal".to_owned()])
    );
    let after: Vec<_> = ["a", "i"].map(|name| cluster.addresses(name)).into();
    assert_eq!(before, after);
    let found = members(&cluster);
    assert_eq!(found["lb2"], found["lb2-internal"]);
    assert!(found["lb2"].iter().all(|node| node.starts_with("aks-pool2")) && found["lb2"].len() == 2, "{found:?}");
    assert_eq!(found["kubernetes"].len(), 2);
    assert!(is_gone(&cluster, "kubernetes-internal"));
    // After the internal load balancer is deleted, the external one keeps the Nodes; then that is deleted, too.
    cluster.delete("i");
    cluster.until("lb2-internal is deleted", TIMEOUT, |cluster| is_gone(cluster, "lb2-internal")).await;
    cluster.settle().await;
    assert_eq!(members(&cluster)["lb2"].len(), 2);
    cluster.delete("a");
    cluster.until("lb2 is deleted", TIMEOUT, |cluster| is_gone(cluster, "lb2")).await;
    cluster.settle().await;
    assert_eq!(members(&cluster)["kubernetes"].len(), 4, "Nodes of a deleted load balancer move to another one");
    manager.stop().await;
    cluster.assert_plans_nothing("planned again").await;
}

/// Two Services swap load balancers, so in the first step both load balancers release an address. One of these writes fails. A third Service,
/// whose load balancer is written only in the second step, is in the same batch.
#[tokio::test(start_paused = true)]
async fn a_failure_in_the_first_step_does_not_skip_the_second() {
    let externals = [("a", "kubernetes"), ("b", "lb2"), ("c", "kubernetes"), ("d", "lb2")];
    let cluster = cluster(2, AzureOptions::default());
    cluster.create(&with(internal("i"), CONFIGURATIONS, "kubernetes"));
    let manager =
        cluster.serve_and_settle(&externals.map(|(name, entry)| with(external(name), CONFIGURATIONS, entry))).await;
    let fails = Effect::FailOperation("RetryableError".to_owned(), "A retryable error occurred.".to_owned());
    cluster.azure().add_fault(Fault::new(fails).class(Class::Write).path("*/loadBalancers/lb2").times(1));
    for (name, entry) in [("a", "lb2"), ("b", "kubernetes")] {
        cluster.change(name, |service| annotate(service, CONFIGURATIONS, Some(entry)));
    }
    cluster.change("i", |service| set_port(service, 8080));
    cluster.settle().await;
    let rules = &parts(&cluster)["kubernetes-internal"];
    assert!(rules.iter().any(|name| name.ends_with("-TCP-8080")), "{rules:?}");
    assert_eq!(
        (load_balancers_of(&cluster, "a"), load_balancers_of(&cluster, "b")),
        (vec!["lb2".to_owned()], vec!["kubernetes".to_owned()])
    );
    manager.stop().await;
    cluster.assert_plans_nothing("after the failure").await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_entry_changes_nothing_and_allows_deletion() {
    let (cluster, _manager) = cluster(2, AzureOptions::default()).serving(&[external("web")]).await;
    cluster.azure().clear_requests();
    cluster.change("web", |service| annotate(service, CONFIGURATIONS, Some("lb9")));
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(cluster.writes(), [""; 0]);
    cluster.assert_warned("web", "(kubernetes, lb2), found `lb9`");
    cluster.remove("web").await;
    assert!(parts(&cluster).is_empty());
}

/// Upstream's end-to-end tests and tools of users search for these words.
#[tokio::test(start_paused = true)]
async fn refusals_to_place_or_move_have_the_words_of_upstream() {
    let owner = with(external("owner"), CONFIGURATIONS, "kubernetes");
    let (cluster, manager) = cluster(2, AzureOptions::default()).serving(&[owner]).await;
    let shared = cluster.addresses("owner").remove(0);
    cluster.add(&pinned("guest", &shared, 81)).await;
    cluster.create(&with(pinned("both", &shared, 82), CONFIGURATIONS, "kubernetes"));
    cluster.change("owner", |service| annotate(service, CONFIGURATIONS, Some("lb2")));
    for (name, words) in [
        ("both", "conflicting load balancer configuration"),
        ("owner", "cannot migrate from load balancer kubernetes to lb2"),
        ("owner", "is also used by Service default/guest"),
    ] {
        cluster.until_warned(name, words).await;
    }
    assert_eq!(load_balancers_of(&cluster, "owner"), ["kubernetes"]);
    manager.stop().await;
    // The entry is closed: a new Service is not placed there, although it names the address.
    let closed =
        json!([{"name": "kubernetes", "primaryVMSet": "aks-pool1-vmss", "allowServicePlacement": false}, entry("lb2", 2)]);
    let cluster = configured(cluster, closed);
    cluster.delete("both");
    cluster.change("owner", |service| annotate(service, CONFIGURATIONS, None));
    cluster.create(&pinned("late", &shared, 83));
    let _manager = cluster.start();
    cluster.until_warned("late", "which is not in the eligible set (lb2)").await;
    cluster.settle().await;
    assert_eq!(load_balancers_of(&cluster, "late"), [""; 0]);
    assert!(["owner", "guest"].iter().all(|name| is_ready(&cluster.service(name).unwrap())));
}

/// From one load balancer to several, then without one of the entries in use, and back to one: all addresses are kept.
#[tokio::test(start_paused = true)]
async fn addresses_survive_a_change_to_several_balancers_and_back() {
    let topology = Topology::new().dual_stack().pools(PoolKind::Uniform, 3, 2);
    let initial =
        Cluster::new(topology, AzureOptions::default()).configured("loadBalancerBackendPoolConfigurationType", "nodeIP");
    initial.serve_and_settle(&[external("a"), dual_stack("b"), internal("i")]).await.stop().await;
    let of = |cluster: &Cluster| -> BTreeMap<String, Vec<String>> {
        cluster.services().iter().map(|it| (it.metadata.name.clone().unwrap_or_default(), addresses(it))).collect()
    };
    let at_first = of(&initial);
    initial.azure().clear_requests();
    let several = configured(initial, entries(3));
    let manager = several.serve_and_settle(&[]).await;
    assert_eq!(several.writes(), [""; 0], "no Service moves");
    for service in [external("c"), external("d"), internal("j"), local("l")] {
        several.create(&service);
    }
    several.until_ready(TIMEOUT).await;
    for name in ["i", "l"] {
        several.change(name, |service| annotate(service, CONFIGURATIONS, Some("lb3")));
    }
    several.settle().await;
    let in_between = of(&several);
    assert_eq!(load_balancers_of(&several, "i"), ["lb3-internal"]);
    assert!(pools(&several)["lb3"].contains(&"default-l".to_owned()));
    manager.stop().await;
    // `lb3` is removed, although Services are on it. The two that named it no longer do, and all of them move.
    let fewer = configured(several, entries(2));
    for name in ["i", "l"] {
        fewer.change(name, |service| annotate(service, CONFIGURATIONS, None));
    }
    let manager = fewer.serve_and_settle(&[]).await;
    assert!(is_gone(&fewer, "lb3") && is_gone(&fewer, "lb3-internal"), "{:?}", parts(&fewer));
    assert_eq!(of(&fewer), in_between);
    manager.stop().await;
    fewer.assert_plans_nothing("with two entries").await;
    let single = fewer.configured(LIST, json!([]));
    let manager = single.serve_and_settle(&[]).await;
    assert_eq!(parts(&single).into_keys().collect::<Vec<_>>(), ["kubernetes", "kubernetes-internal"]);
    let at_last = of(&single);
    assert_eq!(at_last, in_between);
    assert!(at_first.iter().all(|(name, addresses)| at_last[name] == *addresses));
    assert_eq!(members(&single)["kubernetes"].len(), 6);
    assert_eq!(pools(&single)["kubernetes"], ["kubernetes", "kubernetes-IPv6"]);
    manager.stop().await;
    single.assert_plans_nothing("with one load balancer").await;
}

fn many(service: Service, count: i32) -> Service {
    let names: Vec<String> = (0..count).map(|index| format!("p{index}")).collect();
    let ports: Vec<(&str, i32)> = names.iter().map(String::as_str).zip(8_000..).collect();
    service.ports(&ports)
}

fn two_machines(options: AzureOptions) -> Cluster {
    Cluster::new(Topology::new().pools(PoolKind::Uniform, 1, 2), options)
}

/// Returns options with all limits of Azure.
fn limited() -> AzureOptions {
    AzureOptions { limits: LoadBalancerLimits::azure(), ..AzureOptions::default() }
}

fn refused_requests(cluster: &Cluster) -> usize {
    cluster.azure().requests().iter().filter(|request| request.status == 400).count()
}

/// Azure's limits are never exceeded, because the program refuses first.
#[tokio::test(start_paused = true)]
async fn a_full_network_interface_is_reported_before_azure_refuses() {
    let cluster = two_machines(limited()).configured("maximumNetworkInterfaceRuleCount", 300);
    for service in [many(external("a"), 150), many(internal("b"), 145)] {
        cluster.create(&service);
    }
    let manager = cluster.start();
    manager.metrics.register::<AzureMetrics>().unwrap();
    cluster.until_ready(TIMEOUT).await;
    cluster.create(&many(external("late"), 6));
    cluster.until_warned("late", "has 295 of 300 rules").await;
    cluster.assert_warned("late", "multipleStandardLoadBalancerConfigurations");
    assert_eq!(refused_requests(&cluster), 0);
    // Fewer ports fit.
    cluster.change("late", |service| *service = many(service.clone(), 5));
    cluster.until_ready(TIMEOUT).await;
    cluster.settle().await;
    let all = manager.metrics.render().unwrap();
    assert!(
        all.contains("cloud_controller_manager_azure_network_interface_rules{load_balancer=\"kubernetes\"} 300"),
        "{all}"
    );
}

/// The program sends more rules than Azure documents until Azure refuses them.
#[tokio::test(start_paused = true)]
async fn undocumented_rule_capacity_is_used_until_azure_refuses() {
    let (cluster, manager) = two_machines(AzureOptions::default()).serving(&[many(external("web"), 300)]).await;
    cluster.add(&many(internal("late"), 6)).await;
    cluster.add(&external("later")).await;
    let [(reason, message)] = &cluster.warnings("late")[..] else { panic!("{:?}", cluster.warnings("late")) };
    assert!(reason == "TooManyInterfaceRules" && message.contains("has 306 rules now"), "{message}");
    assert_eq!(cluster.warnings("later"), [], "the limit was exceeded before");
    manager.stop().await;

    let (cluster, _manager) = two_machines(limited()).serving(&[many(external("web"), 300)]).await;
    cluster.create(&external("late"));
    cluster.until_warned("late", "NAT or load balancing rules combined").await;
    let before = refused_requests(&cluster);
    assert!(before > 0);
    cluster.create(&external("later"));
    cluster.until_warned("later", "has 300 of 300 rules").await;
    assert_eq!(refused_requests(&cluster), before, "no further request is sent");
}

//! Several standard load balancers: what they cost, who moves and what moving keeps.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

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
    cluster::{Cluster, Life, PATIENCE, addresses, alone, is_ready},
    documents::{differences, unordered},
    scale::as_slow_as_azure,
    services::{annotate, dual_stack, external, internal, local, pinned, set_port, with},
};

const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const CONFIGURATIONS: &str = "azure-load-balancer-configurations";
pub(crate) const INTERNAL: &str = "azure-load-balancer-internal";
const LIST: &str = "multipleStandardLoadBalancerConfigurations";

/// An entry whose machines are those of one scale set.
pub(crate) fn entry(name: &str, set: usize) -> Value {
    json!({"name": name, "primaryVMSet": format!("aks-pool{set}-vmss")})
}

/// Entries `kubernetes`, `lb2` and so on.
fn entries(count: usize) -> Value {
    let name = |set: usize| if set == 1 { "kubernetes".to_owned() } else { format!("lb{set}") };
    (1..=count).map(|set| entry(&name(set), set)).collect()
}

/// The same cluster with these entries from its next life on.
pub(crate) fn configured(cluster: Cluster, entries: Value) -> Cluster {
    cluster.configured("loadBalancerBackendPoolConfigurationType", "nodeIP").configured(LIST, entries)
}

/// With `sets` scale sets of two machines each, and as many entries.
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

/// Front ends and rules, by name of the load balancer.
pub(crate) fn parts(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let of = |document: &Value| {
        let both = ["frontendIPConfigurations", "loadBalancingRules"];
        let names = both.iter().flat_map(|kind| list(&document["properties"][*kind])).map(|part| text(&part["name"]));
        (text(&document["name"]), names.collect())
    };
    cluster.azure().documents_of("Microsoft.Network/loadBalancers").iter().map(of).collect()
}

/// What the Service's names begin with.
fn prefix(service: &Service) -> String {
    let uid = service.metadata.uid.clone().unwrap_or_default().replace('-', "");
    format!("a{uid}").chars().take(32).collect()
}

/// Load balancers with parts of a Service.
pub(crate) fn places(cluster: &Cluster, name: &str) -> Vec<String> {
    let prefix = prefix(&cluster.service(name).unwrap());
    let has = |names: &Vec<String>| names.iter().any(|part| part.to_lowercase().starts_with(&prefix));
    parts(cluster).into_iter().filter(|(_, names)| has(names)).map(|(balancer, _)| balancer).collect()
}

/// Names of the members of each pool for IPv4, by name of the load balancer.
pub(crate) fn members(cluster: &Cluster) -> BTreeMap<String, BTreeSet<String>> {
    let of = |document: &Value| {
        let pools = list(&document["properties"]["backendAddressPools"]).iter();
        let own = pools.filter(|pool| pool["name"] == "kubernetes");
        let listed = own.flat_map(|pool| list(&pool["properties"]["loadBalancerBackendAddresses"]));
        (text(&document["name"]), listed.map(|one| text(&one["name"])).collect())
    };
    cluster.azure().documents_of("Microsoft.Network/loadBalancers").iter().map(of).collect()
}

/// Names of pools, in order, by name of the load balancer.
fn pools(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let of = |document: &Value| {
        let mut names: Vec<_> =
            list(&document["properties"]["backendAddressPools"]).iter().map(|pool| text(&pool["name"])).collect();
        names.sort();
        (text(&document["name"]), names)
    };
    cluster.azure().documents_of("Microsoft.Network/loadBalancers").iter().map(of).collect()
}

/// A manager that finds everything as it is now has nothing to do.
pub(crate) async fn plans_nothing(cluster: &Cluster, what: &str) {
    let before = unordered(cluster);
    cluster.azure().clear_requests();
    let life = cluster.start();
    cluster.settle().await;
    let writes = cluster.writes();
    assert_eq!(writes, Vec::<String>::new(), "{what}\n{:#?}", differences(&before, &unordered(cluster)));
    life.stop().await;
}

async fn served(cluster: &Cluster) -> Life {
    let life = cluster.start();
    cluster.until_ready(PATIENCE).await;
    cluster.settle().await;
    life
}

fn is_gone(cluster: &Cluster, balancer: &str) -> bool {
    !parts(cluster).contains_key(balancer)
}

#[test]
fn two_hundred_services_on_four_load_balancers_cost_few_writes() {
    alone(async {
        let cluster = cluster(4, as_slow_as_azure());
        for index in 0..200 {
            cluster.create(&external(&format!("s{index}")));
        }
        cluster.azure().clear_requests();
        let life = cluster.start();
        life.metrics.register::<AzureMetrics>().unwrap();
        cluster.until_ready(PATIENCE).await;
        cluster.settle().await;
        let all = cluster.writes();
        let (pools, rest): (Vec<_>, Vec<_>) = all.iter().partition(|write| write.contains("/backendAddressPools/"));
        println!("{} writes, {} of them of members", all.len(), pools.len());
        assert!(rest.len() <= 200 + 4 * 4, "{} writes: {:?}", rest.len(), &rest[200.min(rest.len())..]);
        assert!(pools.len() <= 16, "{pools:?}");
        let rules: Vec<usize> = parts(&cluster).values().map(Vec::len).collect();
        assert_eq!(rules, [100; 4], "a front end and a rule for each, spread evenly");
        let shown = gauges(&life);
        assert!(shown.contains("cloud_controller_manager_azure_load_balancer_rules{load_balancer=\"lb3\"} 50"), "{shown}");
        assert!(
            shown.contains("cloud_controller_manager_azure_load_balancer_rules_limit{load_balancer=\"lb3\"} 1500"),
            "{shown}"
        );
        life.stop().await;
        plans_nothing(&cluster, "taken over").await;
    });
}

/// Gauges of load balancers.
fn gauges(life: &Life) -> String {
    let all = life.metrics.render().unwrap();
    all.lines()
        .filter(|line| line.starts_with("cloud_controller_manager_azure_load_balancer"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn a_service_that_moves_keeps_its_addresses_and_nodes_follow_load_balancers() {
    alone(async {
        let cluster = cluster(2, AzureOptions::default());
        for service in [dual_stack("a"), internal("i"), external("b")] {
            cluster.create(&with(service, CONFIGURATIONS, "kubernetes"));
        }
        let life = served(&cluster).await;
        assert_eq!(members(&cluster)["kubernetes"].len(), 4, "lb2 does not exist yet");
        let before: Vec<_> = ["a", "i"].map(|name| addresses(&cluster.service(name).unwrap())).into();
        for name in ["a", "i"] {
            cluster.change(name, |service| annotate(service, CONFIGURATIONS, Some("lb2")));
        }
        cluster.settle().await;
        assert_eq!(
            (places(&cluster, "a"), places(&cluster, "i")),
            (vec!["lb2".to_owned()], vec!["lb2-internal".to_owned()])
        );
        let after: Vec<_> = ["a", "i"].map(|name| addresses(&cluster.service(name).unwrap())).into();
        assert_eq!(before, after);
        let found = members(&cluster);
        assert_eq!(found["lb2"], found["lb2-internal"]);
        assert!(found["lb2"].iter().all(|node| node.starts_with("aks-pool2")) && found["lb2"].len() == 2, "{found:?}");
        assert_eq!(found["kubernetes"].len(), 2);
        assert!(is_gone(&cluster, "kubernetes-internal"));
        // One twin goes, the other one keeps the Nodes; then that goes, too.
        cluster.delete("i");
        cluster.until("lb2-internal goes", PATIENCE, |cluster| is_gone(cluster, "lb2-internal")).await;
        cluster.settle().await;
        assert_eq!(members(&cluster)["lb2"].len(), 2);
        cluster.delete("a");
        cluster.until("lb2 goes", PATIENCE, |cluster| is_gone(cluster, "lb2")).await;
        cluster.settle().await;
        assert_eq!(members(&cluster)["kubernetes"].len(), 4, "Nodes of a load balancer that is gone are behind another");
        life.stop().await;
        plans_nothing(&cluster, "planned again").await;
    });
}

/// Two Services change places, so that both load balancers give an address back first. One of these writes fails, and a third Service,
/// whose load balancer is written in the second step alone, is in the same batch.
#[test]
fn a_failure_in_the_first_step_leaves_nobody_without_the_second() {
    alone(async {
        let cluster = cluster(2, AzureOptions::default());
        cluster.create(&with(internal("i"), CONFIGURATIONS, "kubernetes"));
        for (name, entry) in [("a", "kubernetes"), ("b", "lb2"), ("c", "kubernetes"), ("d", "lb2")] {
            cluster.create(&with(external(name), CONFIGURATIONS, entry));
        }
        let life = served(&cluster).await;
        let fails = Effect::FailOperation("RetryableError".to_owned(), "A retryable error occurred.".to_owned());
        cluster.azure().add_fault(Fault::new(fails).class(Class::Write).path("*/loadBalancers/lb2").times(1));
        for (name, entry) in [("a", "lb2"), ("b", "kubernetes")] {
            cluster.change(name, |service| annotate(service, CONFIGURATIONS, Some(entry)));
        }
        cluster.change("i", |service| set_port(service, 8080));
        cluster.settle().await;
        let rules = &parts(&cluster)["kubernetes-internal"];
        assert!(rules.iter().any(|name| name.ends_with("-TCP-8080")), "{rules:?}");
        assert_eq!((places(&cluster, "a"), places(&cluster, "b")), (vec!["lb2".to_owned()], vec!["kubernetes".to_owned()]));
        life.stop().await;
        plans_nothing(&cluster, "after the failure").await;
    });
}

#[test]
fn an_unknown_entry_changes_nothing_and_keeps_nobody_from_going() {
    alone(async {
        let cluster = cluster(2, AzureOptions::default());
        cluster.create(&external("web"));
        let life = served(&cluster).await;
        cluster.azure().clear_requests();
        cluster.change("web", |service| annotate(service, CONFIGURATIONS, Some("lb9")));
        tokio::time::sleep(5 * MINUTE).await;
        assert_eq!(cluster.writes(), [""; 0]);
        let told = cluster.warnings("web");
        assert!(told.iter().any(|(_, message)| message.contains("(kubernetes, lb2), found `lb9`")), "{told:?}");
        cluster.delete("web");
        cluster.until_gone(PATIENCE).await;
        assert!(parts(&cluster).is_empty());
        life.stop().await;
    });
}

/// Upstream's end-to-end tests and tools of users look for these words.
#[test]
fn refusals_to_place_or_move_have_the_words_of_upstream() {
    alone(async {
        let cluster = cluster(2, AzureOptions::default());
        cluster.create(&with(external("owner"), CONFIGURATIONS, "kubernetes"));
        let life = served(&cluster).await;
        let shared = addresses(&cluster.service("owner").unwrap()).remove(0);
        cluster.create(&pinned("guest", &shared, 81));
        cluster.until_ready(PATIENCE).await;
        cluster.create(&with(pinned("both", &shared, 82), CONFIGURATIONS, "kubernetes"));
        cluster.change("owner", |service| annotate(service, CONFIGURATIONS, Some("lb2")));
        for (name, words) in [
            ("both", "conflicting load balancer configuration"),
            ("owner", "cannot migrate from load balancer kubernetes to lb2"),
            ("owner", "is also used by Service default/guest"),
        ] {
            let has_event = |cluster: &Cluster| {
                let mut all = cluster.warnings(name).into_iter();
                all.any(|(reason, message)| reason == "SyncLoadBalancerFailed" && message.contains(words))
            };
            cluster.until(words, PATIENCE, has_event).await;
        }
        assert_eq!(places(&cluster, "owner"), ["kubernetes"]);
        life.stop().await;
        // The entry is closed: a Service that comes later gets no place there with the address.
        let closed = json!([{"name": "kubernetes", "primaryVMSet": "aks-pool1-vmss", "allowServicePlacement": false}, entry("lb2", 2)]);
        let cluster = configured(cluster, closed);
        cluster.delete("both");
        cluster.change("owner", |service| annotate(service, CONFIGURATIONS, None));
        cluster.create(&pinned("late", &shared, 83));
        let life = cluster.start();
        let is_refused = |cluster: &Cluster| {
            cluster.warnings("late").iter().any(|(_, message)| message.contains("which is not in the eligible set (lb2)"))
        };
        cluster.until("the guest is refused", PATIENCE, is_refused).await;
        cluster.settle().await;
        assert_eq!(places(&cluster, "late"), [""; 0]);
        assert!(["owner", "guest"].iter().all(|name| is_ready(&cluster.service(name).unwrap())));
        life.stop().await;
    });
}

/// To several, an entry is taken away with all that is on it, and back to one, with addresses kept all the way.
#[test]
fn from_one_to_several_and_back_nobody_loses_an_address() {
    alone(async {
        let topology = Topology::new().dual_stack().pools(PoolKind::Uniform, 3, 2);
        let alone =
            Cluster::new(topology, AzureOptions::default()).configured("loadBalancerBackendPoolConfigurationType", "nodeIP");
        for service in [external("a"), dual_stack("b"), internal("i")] {
            alone.create(&service);
        }
        served(&alone).await.stop().await;
        let of = |cluster: &Cluster| -> BTreeMap<String, Vec<String>> {
            cluster.services().iter().map(|one| (one.metadata.name.clone().unwrap_or_default(), addresses(one))).collect()
        };
        let at_first = of(&alone);
        alone.azure().clear_requests();
        let several = configured(alone, entries(3));
        let life = served(&several).await;
        assert_eq!(several.writes(), [""; 0], "nobody moves");
        for service in [external("c"), external("d"), internal("j"), local("l")] {
            several.create(&service);
        }
        several.until_ready(PATIENCE).await;
        for name in ["i", "l"] {
            several.change(name, |service| annotate(service, CONFIGURATIONS, Some("lb3")));
        }
        several.settle().await;
        let in_between = of(&several);
        assert_eq!(places(&several, "i"), ["lb3-internal"]);
        assert!(pools(&several)["lb3"].contains(&"default-l".to_owned()));
        life.stop().await;
        // `lb3` is taken away, although Services are there. What names it is refused, and moves none the less.
        let fewer = configured(several, entries(2));
        for name in ["i", "l"] {
            fewer.change(name, |service| annotate(service, CONFIGURATIONS, None));
        }
        let life = served(&fewer).await;
        assert!(is_gone(&fewer, "lb3") && is_gone(&fewer, "lb3-internal"), "{:?}", parts(&fewer));
        assert_eq!(of(&fewer), in_between);
        life.stop().await;
        plans_nothing(&fewer, "with two entries").await;
        let one = fewer.configured(LIST, json!([]));
        let life = served(&one).await;
        assert_eq!(parts(&one).into_keys().collect::<Vec<_>>(), ["kubernetes", "kubernetes-internal"]);
        let at_last = of(&one);
        assert_eq!(at_last, in_between);
        assert!(at_first.iter().all(|(name, addresses)| at_last[name] == *addresses));
        assert_eq!(members(&one)["kubernetes"].len(), 6);
        assert_eq!(pools(&one)["kubernetes"], ["kubernetes", "kubernetes-IPv6"]);
        life.stop().await;
        plans_nothing(&one, "with one again").await;
    });
}

fn many(service: Service, count: i32) -> Service {
    let names: Vec<String> = (0..count).map(|index| format!("p{index}")).collect();
    let ports: Vec<(&str, i32)> = names.iter().map(String::as_str).zip(8_000..).collect();
    service.ports(&ports)
}

fn refused_requests(cluster: &Cluster) -> usize {
    cluster.azure().requests().iter().filter(|request| request.status == 400).count()
}

/// Azure with all of its limits refuses nothing, because the program refuses first.
#[test]
fn a_network_interface_that_is_full_is_told_before_azure_refuses() {
    alone(async {
        let options = AzureOptions { limits: LoadBalancerLimits::azure(), ..AzureOptions::default() };
        let cluster = Cluster::new(Topology::new().pools(PoolKind::Uniform, 1, 2), options);
        let cluster = cluster.configured("maximumNetworkInterfaceRuleCount", 300);
        for service in [many(external("a"), 150), many(internal("b"), 145)] {
            cluster.create(&service);
        }
        let life = cluster.start();
        life.metrics.register::<AzureMetrics>().unwrap();
        cluster.until_ready(PATIENCE).await;
        cluster.create(&many(external("late"), 6));
        cluster.until("late is refused", PATIENCE, |cluster| !cluster.warnings("late").is_empty()).await;
        let told = cluster.warnings("late");
        let has = |words: &str| told.iter().any(|(_, message)| message.contains(words));
        assert!(has("has 295 of 300 rules") && has("multipleStandardLoadBalancerConfigurations"), "{told:?}");
        assert_eq!(refused_requests(&cluster), 0);
        // Fewer ports fit.
        cluster.change("late", |service| *service = many(service.clone(), 5));
        cluster.until_ready(PATIENCE).await;
        cluster.settle().await;
        let all = life.metrics.render().unwrap();
        assert!(
            all.contains("cloud_controller_manager_azure_network_interface_rules{load_balancer=\"kubernetes\"} 300"),
            "{all}"
        );
        life.stop().await;
    });
}

/// Whether Azure allows more than it documents is Azure's to say.
#[test]
fn a_network_interface_has_more_rules_than_documented_until_azure_refuses() {
    alone(async {
        let cluster = Cluster::new(Topology::new().pools(PoolKind::Uniform, 1, 2), AzureOptions::default());
        cluster.create(&many(external("web"), 300));
        let life = cluster.start();
        cluster.until_ready(PATIENCE).await;
        cluster.create(&many(internal("late"), 6));
        cluster.until_ready(PATIENCE).await;
        cluster.create(&external("later"));
        cluster.until_ready(PATIENCE).await;
        let [(reason, message)] = &cluster.warnings("late")[..] else { panic!("{:?}", cluster.warnings("late")) };
        assert!(reason == "TooManyInterfaceRules" && message.contains("has 306 rules now"), "{message}");
        assert_eq!(cluster.warnings("later"), [], "it was crossed before");
        life.stop().await;

        let options = AzureOptions { limits: LoadBalancerLimits::azure(), ..AzureOptions::default() };
        let cluster = Cluster::new(Topology::new().pools(PoolKind::Uniform, 1, 2), options);
        cluster.create(&many(external("web"), 300));
        let life = cluster.start();
        cluster.until_ready(PATIENCE).await;
        cluster.create(&external("late"));
        cluster.until("late is refused", PATIENCE, |cluster| !cluster.warnings("late").is_empty()).await;
        let told = cluster.warnings("late");
        assert!(told.iter().any(|(_, message)| message.contains("NAT or load balancing rules combined")), "{told:?}");
        let before = refused_requests(&cluster);
        assert!(before > 0);
        cluster.create(&external("later"));
        cluster.until("later is refused", PATIENCE, |cluster| !cluster.warnings("later").is_empty()).await;
        let told = cluster.warnings("later");
        assert!(told.iter().any(|(_, message)| message.contains("has 300 of 300 rules")), "{told:?}");
        assert_eq!(refused_requests(&cluster), before, "Azure is not asked again");
        life.stop().await;
    });
}

//! Random histories with several standard load balancers: Services that share addresses or have private link services, Nodes, Namespaces,
//! entries and restarts.
//!
//! In: a seed. Out: nothing, or a panic that names the seed and the acts. Whenever no work is pending, no Service is on two load balancers,
//! no Service has lost an address without a request, every private link service leads to an existing frontend, and a restarted manager
//! writes nothing. Labels may move Services at one start before that.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cloud_controller_manager::sandbox::azure::AzureOptions;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, Manager, TIMEOUT, addresses, is_ready, run_paused},
    documents::unordered,
    membership::EXCLUDED,
    seeds,
    services::{annotate, dual_stack, external, internal, set_port, with},
    several::{CONFIGURATIONS, INTERNAL, cluster, configured, entry, list, load_balancers_of, members, parts, text},
};

const CREATE_LINK: &str = "azure-pls-create";
const LINKS: &str = "Microsoft.Network/privateLinkServices";
/// A public IP that a user created; Services share it.
const SHARED: &str = "shared";
/// An address of the subnet; Services share it.
const SHARED_INSIDE: &str = "10.224.0.99";

/// Act of a user, a Node or the manager.
#[derive(Debug, Clone)]
enum Act {
    Create(String, Kind),
    SetPort(String, i32),
    /// The Service names entries, or none.
    Name(String, Option<String>),
    Label(String, Option<&'static str>),
    /// The Namespace of all Services gets another label.
    LabelNamespace(Option<&'static str>),
    /// A private link service is requested, or no longer.
    Link(String, bool),
    Flip(String),
    Delete(String),
    Exclude(String, bool),
    /// The machine and its Node are deleted.
    Remove(String),
    Kill,
    /// The manager is killed when no work is pending, and the next one must write nothing.
    Stop,
    /// The manager restarts with another list of entries.
    Restart(Value),
}

/// Kind of a Service at its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    External,
    DualStack,
    Internal,
    /// On the shared public IP.
    Guest,
    /// At the shared internal address.
    InternalGuest,
    /// With a private link service.
    Linked,
    ExternalLinked,
}

const KINDS: [Kind; 9] = [
    Kind::External,
    Kind::External,
    Kind::DualStack,
    Kind::Internal,
    Kind::Guest,
    Kind::InternalGuest,
    Kind::Linked,
    Kind::Linked,
    Kind::ExternalLinked,
];

impl Kind {
    /// Returns `true` if the Service names an address, so it may neither name entries nor change between internal and external.
    fn is_guest(self) -> bool {
        matches!(self, Self::Guest | Self::InternalGuest)
    }

    fn service(self, name: &str) -> Service {
        match self {
            Self::External => external(name),
            Self::DualStack => dual_stack(name),
            Self::Internal => internal(name),
            Self::Guest => with(external(name), "azure-pip-name", SHARED),
            Self::InternalGuest => with(internal(name), "azure-load-balancer-ipv4", SHARED_INSIDE),
            Self::Linked => with(internal(name), CREATE_LINK, "true"),
            Self::ExternalLinked => {
                with(with(external(name), "azure-disable-load-balancer-floating-ip", "true"), CREATE_LINK, "true")
            }
        }
    }
}

/// Existing Services with their kinds at creation.
type Alive = BTreeMap<String, Kind>;

/// Returns a random list of entries.
fn some_entries(random: &mut SmallRng) -> Value {
    let mut list = vec![entry("kubernetes", 1)];
    if random.random_bool(0.8) {
        let mut second = entry("lb2", 2);
        if random.random_bool(0.4) {
            second["serviceLabelSelector"] = json!({"matchLabels": {"tier": "gold"}});
        }
        if random.random_bool(0.2) {
            second["serviceNamespaceSelector"] = json!({"matchLabels": {"team": "blue"}});
        }
        list.push(second);
    }
    if random.random_bool(0.6) {
        let mut third = entry("lb3", 9);
        if random.random_bool(0.3) {
            third["allowServicePlacement"] = json!(false);
        }
        if random.random_bool(0.3) {
            third["nodeSelector"] = json!({"matchLabels": {"kubernetes.io/os": "linux"}});
        }
        if random.random_bool(0.2) {
            third["serviceNamespaceSelector"] = json!({"matchLabels": {"team": "red"}});
        }
        list.push(third);
    }
    Value::Array(list)
}

fn random_act(number: usize, alive: &mut Alive, nodes: &mut Vec<String>, random: &mut SmallRng) -> Option<Act> {
    let names: Vec<String> = alive.keys().cloned().collect();
    let chosen = names.choose(random).map(|name| (name.clone(), alive[name]));
    let port = i32::try_from(number).unwrap();
    Some(match (random.random_range(0..25), chosen) {
        (0..=2, Some((name, _))) if alive.len() > 2 => {
            alive.remove(&name);
            Act::Delete(name)
        }
        (3..=4, Some((name, _))) => Act::SetPort(name, 1000 + port),
        (5..=8, Some((name, kind))) if !kind.is_guest() => {
            let entries = ["kubernetes", "lb2", "lb3", "lb2,lb3"].choose(random).map(|entries| (*entries).to_owned());
            Act::Name(name, entries.filter(|_| random.random_bool(0.7)))
        }
        (9..=10, Some((name, _))) => {
            Act::Label(name, ["gold", "iron"].choose(random).copied().filter(|_| random.random_bool(0.8)))
        }
        (11, Some((name, kind))) if !kind.is_guest() => Act::Flip(name),
        (12, _) => Act::LabelNamespace(["blue", "red"].choose(random).copied().filter(|_| random.random_bool(0.8))),
        (13, Some((name, kind))) if kind != Kind::Guest && kind != Kind::DualStack => {
            Act::Link(name, random.random_bool(0.7))
        }
        (14..=15, _) => Act::Exclude(nodes[random.random_range(1..nodes.len())].clone(), random.random_bool(0.5)),
        (16, _) if nodes.len() > 3 => Act::Remove(nodes.remove(random.random_range(1..nodes.len()))),
        (17, _) => Act::Kill,
        (18, _) => Act::Stop,
        (19..=20, _) => Act::Restart(some_entries(random)),
        _ => {
            let (name, kind) = (format!("s{number}"), *KINDS.choose(random)?);
            alive.insert(name.clone(), kind);
            Act::Create(name, kind)
        }
    })
}

fn act_on_objects(cluster: &Cluster, act: &Act) {
    match act {
        Act::Create(name, kind) => {
            let mut service = kind.service(name);
            // No two Services request the same port of a shared address.
            set_port(&mut service, 2000 + name[1..].parse::<i32>().unwrap());
            cluster.create(&service);
        }
        Act::SetPort(name, port) => cluster.change(name, |service| set_port(service, *port)),
        Act::Name(name, entries) => cluster.change(name, |service| annotate(service, CONFIGURATIONS, entries.as_deref())),
        Act::Label(name, tier) => cluster.change(name, |service| {
            let labels = service.metadata.labels.get_or_insert_default();
            labels.remove("tier");
            labels.extend(tier.map(|tier| ("tier".to_owned(), tier.to_owned())));
        }),
        Act::LabelNamespace(team) => {
            cluster.server.update_with("", "default", |namespace: &mut Namespace| {
                let labels = namespace.metadata.labels.get_or_insert_default();
                labels.remove("team");
                labels.extend(team.map(|team| ("team".to_owned(), team.to_owned())));
            });
        }
        Act::Link(name, is_requested) => {
            cluster
                .change(name, |service| annotate(service, CREATE_LINK, Some(if *is_requested { "true" } else { "false" })));
        }
        Act::Flip(name) => cluster.change(name, |service| {
            let was_internal = requests_internal(service);
            annotate(service, INTERNAL, (!was_internal).then_some("true"));
        }),
        Act::Delete(name) => cluster.delete(name),
        Act::Exclude(node, is_excluded) => {
            cluster.label_node(node, EXCLUDED, is_excluded.then_some(""));
        }
        Act::Remove(node) => {
            cluster.cloud.delete_machine(node).unwrap();
            cluster.server.delete::<Node>("", node);
        }
        Act::Kill | Act::Stop | Act::Restart(_) => {}
    }
}

fn requests_internal(service: &Service) -> bool {
    service.metadata.annotations.iter().flatten().any(|(key, value)| key.ends_with(INTERNAL) && value == "true")
}

/// Returns `true` if the Service is internal or external as requested. A Service that is refused for another reason, such as a missing entry,
/// is not changed, and gets another address when that reason is removed.
fn is_of_requested_kind(cluster: &Cluster, service: &Service) -> bool {
    let load_balancers = load_balancers_of(cluster, service.metadata.name.as_deref().unwrap_or_default());
    load_balancers.iter().all(|balancer| balancer.ends_with("-internal") == requests_internal(service))
}

/// Asserts the invariants that hold whenever no work is pending. `expected`: addresses that no request has changed.
fn check_invariants(cluster: &Cluster, expected: &BTreeMap<String, Vec<String>>, context: &str) {
    for service in cluster.services() {
        let name = service.metadata.name.clone().unwrap();
        let load_balancers = load_balancers_of(cluster, &name);
        assert!(load_balancers.len() <= 1, "{name} is on {load_balancers:?}\n{context}");
        assert!(!is_ready(&service) || load_balancers.len() == 1, "{name} is on no load balancer\n{context}");
        if let Some(before) = expected.get(&name).filter(|before| !before.is_empty()) {
            assert_eq!(*before, addresses(&service), "{name} lost its address\n{context}");
        }
    }
    for (balancer, members) in members(cluster) {
        assert!(!members.is_empty(), "{balancer} has no Nodes\n{context}");
    }
    check_links(cluster, context);
}

/// Asserts that each private link service leads to an existing frontend, and no two to the same.
fn check_links(cluster: &Cluster, context: &str) {
    let balancers = cluster.balancers();
    let parts = balancers.iter().flat_map(|document| list(&document["properties"]["frontendIPConfigurations"]));
    let frontends: BTreeSet<String> = parts.map(|part| text(&part["id"]).to_lowercase()).collect();
    let mut targets = BTreeSet::new();
    for link in cluster.azure().documents_of(LINKS) {
        for part in list(&link["properties"]["loadBalancerFrontendIpConfigurations"]) {
            let id = text(&part["id"]).to_lowercase();
            assert!(frontends.contains(&id), "{} leads to {id}, which does not exist\n{context}", link["name"]);
            assert!(targets.insert(id.clone()), "two lead to {id}\n{context}");
        }
    }
}

/// Starts and stops a manager if edited labels take effect only at the next start.
async fn apply_labels(cluster: &Cluster) {
    if !cluster.config().move_services_on_label_change {
        let manager = cluster.start();
        cluster.settle().await;
        manager.stop().await;
    }
}

/// Ends the manager and starts another one if `act` requires it.
async fn continue_manager(cluster: Cluster, manager: Manager, act: &Act, context: &str) -> (Cluster, Manager) {
    let cluster = match act {
        Act::Kill => {
            manager.kill();
            cluster
        }
        Act::Restart(entries) => {
            manager.stop().await;
            configured(cluster, entries.clone())
        }
        Act::Stop => {
            // The next manager must find the state of a settled cluster.
            cluster.settle().await;
            manager.kill();
            apply_labels(&cluster).await;
            cluster.assert_plans_nothing(context).await;
            cluster
        }
        _ => return (cluster, manager),
    };
    let manager = cluster.start();
    (cluster, manager)
}

fn check(seed: u64) {
    run_paused(async {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut cluster =
            cluster(2, AzureOptions::default()).configured("moveServicesOnLabelChange", seed.is_multiple_of(2));
        cluster.put_public_ip(SHARED, "52.0.0.9");
        let before = unordered(&cluster);
        let mut nodes: Vec<String> = cluster.cloud.nodes().into_iter().filter_map(|node| node.metadata.name).collect();
        let (mut alive, mut expected, mut acts) = (Alive::new(), BTreeMap::new(), Vec::<String>::new());
        let mut manager = cluster.start();
        for number in 0..28 {
            let Some(act) = random_act(number, &mut alive, &mut nodes, &mut random) else { continue };
            acts.push(format!("{act:?}"));
            if let Act::Flip(name) = &act {
                expected.remove(name);
            }
            act_on_objects(&cluster, &act);
            (cluster, manager) =
                continue_manager(cluster, manager, &act, &format!("seed {seed}\n{}", acts.join("\n"))).await;
            match random.random_range(0..3) {
                0 => {}
                1 => tokio::time::sleep(Duration::from_millis(random.random_range(0..20_000))).await,
                _ => {
                    cluster.settle().await;
                    let context = format!("seed {seed}\n{}", acts.join("\n"));
                    check_invariants(&cluster, &expected, &context);
                    let now = cluster.services().into_iter().filter(|it| is_of_requested_kind(&cluster, it));
                    expected = now.map(|it| (it.metadata.name.clone().unwrap(), addresses(&it))).collect();
                }
            }
        }
        cluster.settle().await;
        let context = format!("seed {seed}\n{}", acts.join("\n"));
        check_invariants(&cluster, &expected, &context);
        manager.stop().await;
        apply_labels(&cluster).await;
        cluster.assert_plans_nothing(&context).await;
        let manager = cluster.start();
        alive.keys().for_each(|name| cluster.delete(name));
        cluster.until_all_deleted(2 * TIMEOUT).await;
        cluster.settle().await;
        manager.stop().await;
        let balancers = parts(&cluster);
        assert!(balancers.is_empty(), "{balancers:?} remain\n{context}");
        assert_eq!(cluster.azure().documents_of(LINKS), Vec::<Value>::new(), "{context}");
        let is_address = |id: &&String| id.contains("publicipaddresses");
        assert_eq!(
            unordered(&cluster).keys().filter(is_address).count(),
            before.keys().filter(is_address).count(),
            "{context}"
        );
    });
}

#[test]
fn random_histories_keep_addresses_and_one_load_balancer() {
    seeds::each_seed(0..24, check);
}

//! Random histories with several standard load balancers: Services that share addresses or have private link services, Nodes, Namespaces,
//! entries and restarts.
//!
//! In: a seed. Out: nothing, or a panic that names the seed and what somebody did. Whenever it is quiet, nobody is on two load balancers,
//! no address was lost that nobody asked to change, every private link service leads to a front end of its Service's, and a manager that
//! is started anew plans nothing; labels may move Services at the start before.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cloud_controller_manager::sandbox::azure::AzureOptions;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, Life, PATIENCE, addresses, alone, is_ready},
    documents::unordered,
    membership::EXCLUDED,
    seeds,
    services::{annotate, dual_stack, external, internal, set_port, with},
    several::{CONFIGURATIONS, INTERNAL, cluster, configured, entry, list, members, parts, places, text},
};

const CREATE_LINK: &str = "azure-pls-create";
const LINKS: &str = "Microsoft.Network/privateLinkServices";
/// A public IP that a user made, and an address of the subnet: Services share each.
const SHARED: &str = "shared";
const SHARED_INSIDE: &str = "10.224.0.99";

/// One thing that somebody does.
#[derive(Debug, Clone)]
enum Act {
    Create(String, Kind),
    SetPort(String, i32),
    /// Names entries, or none.
    Name(String, Option<String>),
    Label(String, Option<&'static str>),
    /// The labels of the Namespace of all Services.
    LabelNamespace(Option<&'static str>),
    /// Whether a private link service is asked for.
    Link(String, bool),
    Flip(String),
    Delete(String),
    Exclude(String, bool),
    /// The machine and its Node go.
    Remove(String),
    Kill,
    /// A manager that is started when it is quiet finds nothing to do.
    Stop,
    /// Another list of entries from now on.
    Restart(Value),
}

/// What a Service is at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    External,
    DualStack,
    Internal,
    /// On the public IP that others use, too.
    Guest,
    /// At the address that others have, too.
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
    /// Whether it names an address, and so may neither name entries nor change from internal to external.
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

/// Services that there are, and what they were at first.
type Alive = BTreeMap<String, Kind>;

/// Lists of entries that a cluster may have, one after the other.
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
            // No two want the same port of a shared address.
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
        Act::Link(name, asks) => {
            cluster.change(name, |service| annotate(service, CREATE_LINK, Some(if *asks { "true" } else { "false" })));
        }
        Act::Flip(name) => cluster.change(name, |service| {
            let is_internal = asks_internal(service);
            annotate(service, INTERNAL, (!is_internal).then_some("true"));
        }),
        Act::Delete(name) => cluster.delete(name),
        Act::Exclude(node, is_excluded) => {
            cluster.label_node(node, EXCLUDED, is_excluded.then_some(""));
        }
        Act::Remove(node) => {
            cluster.world.delete_machine(node).unwrap();
            cluster.server.delete::<Node>("", node);
        }
        Act::Kill | Act::Stop | Act::Restart(_) => {}
    }
}

fn asks_internal(service: &Service) -> bool {
    service.metadata.annotations.iter().flatten().any(|(key, value)| key.ends_with(INTERNAL) && value == "true")
}

/// Whether it is where it asks to be, inside or outside. Who is refused for another reason, such as an entry that is not there, stays where
/// it was, and changes its address when somebody takes that reason away.
fn is_of_asked_kind(cluster: &Cluster, service: &Service) -> bool {
    let places = places(cluster, service.metadata.name.as_deref().unwrap_or_default());
    places.iter().all(|place| place.ends_with("-internal") == asks_internal(service))
}

/// What has to hold whenever it is quiet. `kept`: addresses that nobody has asked to change.
fn check_invariants(cluster: &Cluster, kept: &BTreeMap<String, Vec<String>>, told: &str) {
    for service in cluster.services() {
        let name = service.metadata.name.clone().unwrap();
        let places = places(cluster, &name);
        assert!(places.len() <= 1, "{name} is on {places:?}\n{told}");
        assert!(!is_ready(&service) || places.len() == 1, "{name} is nowhere\n{told}");
        if let Some(before) = kept.get(&name).filter(|before| !before.is_empty()) {
            assert_eq!(*before, addresses(&service), "{name} lost its address\n{told}");
        }
    }
    for (balancer, members) in members(cluster) {
        assert!(!members.is_empty(), "{balancer} has no Nodes\n{told}");
    }
    check_links(cluster, told);
}

/// Each private link service leads to a front end that there is, no two to the same.
fn check_links(cluster: &Cluster, told: &str) {
    let balancers = cluster.balancers();
    let parts = balancers.iter().flat_map(|document| list(&document["properties"]["frontendIPConfigurations"]));
    let frontends: BTreeSet<String> = parts.map(|part| text(&part["id"]).to_lowercase()).collect();
    let mut led_to = BTreeSet::new();
    for link in cluster.azure().documents_of(LINKS) {
        for part in list(&link["properties"]["loadBalancerFrontendIpConfigurations"]) {
            let id = text(&part["id"]).to_lowercase();
            assert!(frontends.contains(&id), "{} leads to {id}, which is gone\n{told}", link["name"]);
            assert!(led_to.insert(id.clone()), "two lead to {id}\n{told}");
        }
    }
}

/// Starts a manager once where an edit of labels alone moves Services at the next start.
async fn let_labels_count(cluster: &Cluster) {
    if !cluster.config().move_services_on_label_change {
        let life = cluster.start();
        cluster.settle().await;
        life.stop().await;
    }
}

/// The life goes on, or ends and another begins.
async fn live_on(cluster: Cluster, life: Life, act: &Act, told: &str) -> (Cluster, Life) {
    let cluster = match act {
        Act::Kill => {
            life.kill();
            cluster
        }
        Act::Restart(entries) => {
            life.stop().await;
            configured(cluster, entries.clone())
        }
        Act::Stop => {
            // Who is killed now finds all as it is when nothing is left to do.
            cluster.settle().await;
            life.kill();
            let_labels_count(&cluster).await;
            cluster.plans_nothing(told).await;
            cluster
        }
        _ => return (cluster, life),
    };
    let life = cluster.start();
    (cluster, life)
}

fn check(seed: u64) {
    alone(async {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut cluster =
            cluster(2, AzureOptions::default()).configured("moveServicesOnLabelChange", seed.is_multiple_of(2));
        cluster.put_public_ip(SHARED, "52.0.0.9");
        let before = unordered(&cluster);
        let mut nodes: Vec<String> = cluster.world.nodes().into_iter().filter_map(|node| node.metadata.name).collect();
        let (mut alive, mut kept, mut acts) = (Alive::new(), BTreeMap::new(), Vec::<String>::new());
        let mut life = cluster.start();
        for number in 0..28 {
            let Some(act) = random_act(number, &mut alive, &mut nodes, &mut random) else { continue };
            acts.push(format!("{act:?}"));
            if let Act::Flip(name) = &act {
                kept.remove(name);
            }
            act_on_objects(&cluster, &act);
            (cluster, life) = live_on(cluster, life, &act, &format!("seed {seed}\n{}", acts.join("\n"))).await;
            match random.random_range(0..3) {
                0 => {}
                1 => tokio::time::sleep(Duration::from_millis(random.random_range(0..20_000))).await,
                _ => {
                    cluster.settle().await;
                    let told = format!("seed {seed}\n{}", acts.join("\n"));
                    check_invariants(&cluster, &kept, &told);
                    let now = cluster.services().into_iter().filter(|one| is_of_asked_kind(&cluster, one));
                    kept = now.map(|one| (one.metadata.name.clone().unwrap(), addresses(&one))).collect();
                }
            }
        }
        cluster.settle().await;
        let told = format!("seed {seed}\n{}", acts.join("\n"));
        check_invariants(&cluster, &kept, &told);
        life.stop().await;
        let_labels_count(&cluster).await;
        cluster.plans_nothing(&told).await;
        let life = cluster.start();
        alive.keys().for_each(|name| cluster.delete(name));
        cluster.until_gone(2 * PATIENCE).await;
        cluster.settle().await;
        life.stop().await;
        let balancers = parts(&cluster);
        assert!(balancers.is_empty(), "{balancers:?} stay\n{told}");
        assert_eq!(cluster.azure().documents_of(LINKS), Vec::<Value>::new(), "{told}");
        let is_address = |id: &&String| id.contains("publicipaddresses");
        assert_eq!(
            unordered(&cluster).keys().filter(is_address).count(),
            before.keys().filter(is_address).count(),
            "{told}"
        );
    });
}

#[test]
fn whatever_happens_nobody_is_on_two_load_balancers_or_loses_an_address() {
    seeds::each_seed(0..24, check);
}

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use tokio::time::Instant;

use super::{super::stand_ins::ReadyEntries, *};
use crate::providers::azure::{
    config::BackendPoolType,
    planner::load_balancer::{
        desired::samples,
        labels::{LabelMap, LabelMatcher},
    },
};

fn entry(name: &str, set: &str, selector: Option<&str>) -> LoadBalancerEntry {
    let matcher = |value: &str| LabelMatcher::new(&serde_json::from_value(json!({"matchLabels": {"pool": value}})).unwrap());
    LoadBalancerEntry {
        primary_vm_set: set.to_owned(),
        node_selector: selector.map(matcher),
        ..LoadBalancerEntry::implied(name)
    }
}

fn settings(entries: &[LoadBalancerEntry]) -> LoadBalancerSettings {
    LoadBalancerSettings { entries: entries.to_vec(), pool_type: BackendPoolType::NodeIp, ..samples::settings() }
}

fn node(number: usize, set: Option<&str>, label: &str) -> PoolNode {
    PoolNode {
        name: format!("n{number:04}"),
        addresses: vec![format!("10.{}.{}.{}", number / 62_500, number / 250 % 250, number % 250 + 1).parse().unwrap()],
        vm_set: set.map(str::to_owned),
        labels: LabelMap::from([("pool".to_owned(), label.to_owned())]),
        is_ready: true,
        ..PoolNode::default()
    }
}

fn load_balancer(name: &str, members: &[&PoolNode]) -> ArmLoadBalancer {
    let listed: Vec<_> = members
        .iter()
        .map(|node| json!({"name": node.name, "properties": {"ipAddress": node.addresses[0].to_string()}}))
        .collect();
    let pools = json!([{"name": "kubernetes", "properties": {"loadBalancerBackendAddresses": listed}}]);
    samples::load_balancer(json!({
        "id": samples::network(&format!("loadBalancers/{name}")), "name": name, "sku": {"name": "Standard"},
        "properties": {"backendAddressPools": pools}}))
}

/// Returns load balancers whose pools have these members.
fn there(balancers: &[(&str, Vec<&PoolNode>)]) -> ObservedNetwork {
    samples::observed(balancers.iter().map(|(name, members)| load_balancer(name, members)).collect())
}

/// Returns the names of the Nodes that join the pools of an entry.
fn joining<'n>(placement: &NodePlacement, entry: &str, hosts: &'n [PoolNode]) -> Vec<&'n str> {
    let scope = PoolScope::Entry(entry.to_owned());
    placement.of_pool(&scope, hosts, hosts).0.into_iter().map(|node| node.name.as_str()).collect()
}

fn placed<'n>(observed: &ObservedNetwork, hosts: &'n [PoolNode], settings: &LoadBalancerSettings) -> Vec<Vec<&'n str>> {
    let placement = place_nodes(observed, &[], hosts, settings);
    settings.entries.iter().map(|entry| joining(&placement, &entry.name, hosts)).collect()
}

#[test]
fn the_primary_set_decides_when_its_load_balancer_is_there() {
    let settings = settings(&[entry("kubernetes", "one", None), entry("lb2", "two", None)]);
    let hosts = [node(1, Some("ONE"), ""), node(2, Some("two"), ""), node(3, None, "")];
    let alone = there(&[("kubernetes", vec![])]);
    assert_eq!(placed(&alone, &hosts, &settings)[0], ["n0001", "n0002", "n0003"]);
    let both = there(&[("kubernetes", hosts.iter().collect()), ("LB2-internal", vec![])]);
    assert_eq!(placed(&both, &hosts, &settings), [vec!["n0001", "n0003"], vec!["n0002"]]);
    // If one of the two load balancers of an entry is deleted, the entry still has the other.
    let id = |name: &str| [ResourceId::parse(&samples::network(&format!("loadBalancers/{name}"))).unwrap()];
    let twins = there(&[("kubernetes", vec![]), ("lb2", vec![]), ("lb2-internal", vec![])]);
    assert_eq!(joining(&place_nodes(&twins, &id("lb2"), &hosts, &settings), "lb2", &hosts), ["n0002"]);
    let last = place_nodes(&both, &id("lb2-internal"), &hosts, &settings);
    assert_eq!(joining(&last, "kubernetes", &hosts).len(), 3, "Nodes of what goes are placed elsewhere");
}

#[test]
fn selectors_take_nodes_and_others_stay_or_go_where_the_fewest_are() {
    let settings = settings(&[entry("kubernetes", "a", None), entry("lb2", "b", Some("x")), entry("lb3", "c", None)]);
    let hosts: Vec<PoolNode> = (1..=6).map(|number| node(number, None, if number == 6 { "x" } else { "y" })).collect();
    let seen = there(&[("kubernetes", hosts[..3].iter().collect()), ("lb2", vec![]), ("lb3", vec![])]);
    let found = placed(&seen, &hosts, &settings);
    assert_eq!(found, [vec!["n0001", "n0002", "n0003"], vec!["n0006"], vec!["n0004", "n0005"]]);
    let only_selective = LoadBalancerSettings { entries: vec![entry("kubernetes", "a", Some("x"))], ..settings };
    let placement = place_nodes(&there(&[("kubernetes", vec![])]), &[], &hosts, &only_selective);
    let unplaced: Vec<&str> = placement.unplaced.iter().map(String::as_str).collect();
    assert_eq!(unplaced, ["n0001", "n0002", "n0003", "n0004", "n0005"]);
    assert!(place_nodes(&there(&[]), &[], &hosts, &only_selective).unplaced.is_empty(), "there is nothing to be behind");
}

#[test]
fn an_entry_without_nodes_has_all_stand_in_and_they_do_not_stay_there_for_that() {
    let settings = settings(&[entry("lb3", "none", None), entry("kubernetes", "one", None), entry("lb2", "two", None)]);
    let hosts = [node(1, Some("one"), ""), node(2, None, ""), node(3, Some("two"), "")];
    let all: Vec<&PoolNode> = hosts.iter().collect();
    let seen = there(&[("kubernetes", vec![&hosts[0], &hosts[1]]), ("lb2", vec![&hosts[2]]), ("lb3", all)]);
    let found = placed(&seen, &hosts, &settings);
    assert_eq!(found, [vec!["n0001", "n0002", "n0003"], vec!["n0001", "n0002"], vec!["n0003"]]);
}

/// Returns the names of the members that the pools of an entry have after a pass.
fn members(observed: &ObservedNetwork, entry: &str, hosts: &[PoolNode], settings: &LoadBalancerSettings) -> Vec<String> {
    let placement = place_nodes(observed, &[], hosts, settings);
    let documents = observed.load_balancers.iter();
    let document = documents.clone().find(|document| document.name.as_deref() == Some(entry)).unwrap();
    let pool = managed_pool::all_of(document).remove(0);
    let pool = ManagedPool { scope: PoolScope::Entry(entry.to_owned()), ..pool };
    let document = match placement.update(&pool, &pool.document, (hosts, hosts), settings) {
        PoolUpdate::Changed(document) => *document,
        _ => pool.document,
    };
    let listed = document.properties.unwrap().load_balancer_backend_addresses.unwrap();
    listed.into_iter().filter_map(|entry| entry.name).collect()
}

#[test]
fn stand_ins_leave_when_the_own_nodes_have_been_ready_for_a_while() {
    let settings = settings(&[entry("kubernetes", "one", None), entry("lb3", "three", None)]);
    let minute = Duration::from_secs(60);
    let (mut ready_entries, start) = (ReadyEntries::default(), Instant::now());
    for (seconds, is_ready, stand_in) in [
        (0, true, true),
        (59, true, true),
        (60, true, false),
        (61, false, true),
        (62, true, true),
        (121, true, true),
        (122, true, false),
    ] {
        let hosts = [node(1, Some("one"), ""), PoolNode { is_ready, ..node(3, Some("three"), "") }];
        let seen = there(&[("kubernetes", vec![&hosts[0]]), ("lb3", hosts.iter().collect())]);
        let mut placement = place_nodes(&seen, &[], &hosts, &settings);
        ready_entries.keep_recent(&mut placement, start + Duration::from_secs(seconds), minute);
        assert_eq!(placement.has_stand_ins(), stand_in, "after {seconds} s");
        let staying = placement.of_pool(&PoolScope::Entry("lb3".to_owned()), &hosts, &hosts).1;
        assert_eq!(staying.len(), if stand_in { 2 } else { 1 });
    }
}

#[test]
fn a_node_that_moves_to_a_new_load_balancer_does_not_stand_in() {
    let settings = settings(&[entry("kubernetes", "one", None), entry("lb2", "two", None)]);
    let hosts = [PoolNode { is_ready: false, ..node(1, Some("one"), "") }, node(2, Some("two"), "")];
    let seen = there(&[("kubernetes", hosts.iter().collect()), ("lb2", vec![])]);
    assert_eq!(members(&seen, "kubernetes", &hosts, &settings), ["n0001"]);
    assert_eq!(members(&seen, "lb2", &hosts, &settings), ["n0002"]);
}

#[test]
fn a_node_of_which_nothing_is_known_stays_where_it_is_and_goes_nowhere() {
    let settings = settings(&[entry("kubernetes", "one", None), entry("lb2", "two", None)]);
    let lost = PoolNode { is_unlocated: true, ..node(2, None, "") };
    let hosts = [node(1, Some("one"), ""), lost, node(3, Some("two"), "")];
    let seen = there(&[("kubernetes", vec![&hosts[0]]), ("lb2", vec![&hosts[1], &hosts[2]])]);
    let placement = place_nodes(&seen, &[], &hosts, &settings);
    assert_eq!(["kubernetes", "lb2"].map(|entry| joining(&placement, entry, &hosts)), [["n0001"], ["n0003"]]);
    let scope = PoolScope::Entry("lb2".to_owned());
    assert!(placement.of_pool(&scope, &hosts, &hosts).1.iter().any(|node| node.is_unlocated), "it may stay");
    assert_eq!(placement.reason(&scope).unwrap(), "Nodes of entry lb2: 1 by primaryVMSet");
}

#[test]
fn nobody_stands_in_for_a_node_of_which_nothing_is_known() {
    let settings = settings(&[entry("kubernetes", "one", None), entry("lb2", "two", None)]);
    let lost = PoolNode { is_unlocated: true, ..node(2, None, "") };
    let hosts = [node(1, Some("one"), ""), lost];
    let seen = there(&[("kubernetes", vec![&hosts[0]]), ("lb2", vec![&hosts[1]])]);
    let placement = place_nodes(&seen, &[], &hosts, &settings);
    let scope = PoolScope::Entry("lb2".to_owned());
    let (joining, staying) = placement.of_pool(&scope, &hosts, &hosts);
    assert!(joining.is_empty() && staying.len() == 2, "who is there stays");
    assert!(placement.reason(&scope).unwrap().contains("none joins"));
    let elsewhere = there(&[("kubernetes", hosts.iter().collect()), ("lb2", vec![])]);
    let placement = place_nodes(&elsewhere, &[], &hosts, &settings);
    assert_eq!(placement.of_pool(&scope, &hosts, &hosts).0.len(), 1, "nobody waits there");
}

#[test]
fn thousands_of_nodes_are_placed_in_a_moment() {
    let names = ["kubernetes", "lb2", "lb3", "lb4", "lb5"];
    let settings = settings(&names.map(|name| entry(name, name, (name == "lb5").then_some("x"))));
    let sets = ["lb2", "lb3", "other"];
    let hosts: Vec<PoolNode> =
        (0..5_000).map(|number| node(number, Some(sets[number % 3]), ["x", "y"][number % 2])).collect();
    let seen = there(&names.map(|name| (name, hosts.iter().collect())));
    let started = Instant::now();
    let found = placed(&seen, &hosts, &settings);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(found.iter().map(Vec::len).max(), Some(5_000), "one has all stand in");
}

/// Returns entries with or without a primary set and a selector.
fn any_entries() -> impl Strategy<Value = Vec<LoadBalancerEntry>> {
    let one = (prop::option::of("[a-c]"), prop::option::weighted(0.4, "[xy]"));
    prop::collection::vec(one, 1..5).prop_map(|rows| {
        let rows = rows.into_iter().zip(["kubernetes", "lb2", "lb3", "lb4"]);
        let of = |set: Option<String>, name: &str| set.unwrap_or_else(|| format!("none-{name}"));
        rows.map(|((set, selector), name)| entry(name, &of(set, name), selector.as_deref())).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Checks with changing Nodes and load balancers that every Node is behind exactly one entry, apart from stand-ins, and
    /// that a second pass plans no change.
    #[test]
    fn a_node_is_behind_one_entry_and_nothing_is_planned_twice(
        entries in any_entries(),
        rounds in prop::collection::vec((0_u8..255, 0_u8..15), 1..6),
        kinds in prop::collection::vec((prop::option::of("[a-d]"), "[xyz]"), 8),
    ) {
        let settings = settings(&entries);
        let all: Vec<PoolNode> = kinds.iter().enumerate().map(|(place, (set, label))| node(place, set.as_deref(), label)).collect();
        let mut pools: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (present, balancers) in rounds {
            let has = |bits: u8, place: usize| bits & (1 << place) != 0;
            let hosts: Vec<PoolNode> = all.iter().enumerate().filter(|(place, _)| has(present, *place)).map(|(_, node)| node.clone()).collect();
            pools.retain(|entry, _| has(balancers, *entry));
            for place in (0..entries.len()).filter(|place| has(balancers, *place)) {
                pools.entry(place).or_default();
            }
            let look = |pools: &BTreeMap<usize, BTreeSet<usize>>| -> (BTreeMap<usize, BTreeSet<usize>>, NodePlacement) {
                let seen = pools.iter().map(|(entry, members)| (entries[*entry].name.as_str(), members.iter().map(|member| &all[*member]).collect()));
                let placement = place_nodes(&there(&seen.collect::<Vec<_>>()), &[], &hosts, &settings);
                let members = |entry: &usize| joining(&placement, &entries[*entry].name, &hosts).iter().map(|name| name[1..].parse().unwrap()).collect();
                (pools.keys().map(|entry| (*entry, members(entry))).collect(), placement)
            };
            let (after, placement) = look(&pools);
            prop_assert_eq!(&look(&after).0, &after, "planned again");
            let own: Vec<&BTreeMap<String, PlacementReason>> = placement.by_entry.values().collect();
            for host in &hosts {
                let times = own.iter().filter(|nodes| nodes.contains_key(&host.name)).count() + usize::from(placement.unplaced.contains(&host.name));
                prop_assert_eq!(times, usize::from(!pools.is_empty()), "{}", host.name);
            }
            pools = after;
        }
    }
}

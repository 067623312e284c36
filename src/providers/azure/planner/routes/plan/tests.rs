use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::providers::azure::model::ResourceId;

fn settings() -> RouteSettings {
    let group = ResourceId::group_of("s", "rg");
    RouteSettings {
        table: Some(group.resource("Microsoft.Network/routeTables", &["rt"])),
        location: "eastus".into(),
        tags: BTreeMap::new(),
        system_tags: Vec::new(),
        ttl: std::time::Duration::ZERO,
        most_routes: MOST_MANAGED_ROUTES,
    }
}

fn tagged() -> RouteSettings {
    RouteSettings { tags: [("a".to_owned(), "b".to_owned())].into(), ..settings() }
}

fn route(name: &str, prefix: &str, hop: &str) -> Value {
    let properties = json!({"addressPrefix": prefix, "nextHopType": "VirtualAppliance", "nextHopIpAddress": hop,
        "hasBgpOverride": false, "provisioningState": "Succeeded"});
    json!({"id": format!("/subscriptions/s/x/routes/{name}"), "name": name, "etag": "W/\"1\"", "properties": properties})
}

fn table(routes: &[Value]) -> RouteTable {
    let table = json!({
        "id": "/subscriptions/s/x", "name": "rt", "location": "westus", "etag": "W/\"1\"", "tags": {"x": "y"},
        "properties": {"routes": routes, "disableBgpRoutePropagation": true, "subnets": [{"id": "/s"}], "provisioningState": "Succeeded"},
    });
    serde_json::from_value(table).unwrap()
}

fn set(node: &str, prefix: &str, hop: &str) -> RouteChange {
    RouteChange::Set(DesiredRoute {
        name: names::route_name(node, prefix),
        prefix: prefix.into(),
        next_hop: hop.parse().unwrap(),
    })
}

fn remove(name: &str) -> RouteChange {
    RouteChange::Remove(name.into())
}

fn planned(table: &RouteTable, changes: &[RouteChange]) -> RouteTablePlan {
    plan(Some(table), changes, &settings(), &|name| {
        if name == "node-1" { vec!["10.0.0.0/24".into()] } else { no_cidrs(name) }
    })
}

fn no_cidrs(_: &str) -> Vec<String> {
    Vec::new()
}

/// Returns name, prefix and next hop of the routes to write.
fn written(planned: &RouteTablePlan) -> Vec<(String, String, String)> {
    let text = |value: &Option<String>| value.clone().unwrap();
    let routes = routes_of(planned.document.as_ref()).iter();
    let properties = routes.map(|route| (text(&route.name), route.properties.clone().unwrap()));
    properties.map(|(name, it)| (name, text(&it.address_prefix), text(&it.next_hop_ip_address))).collect()
}

fn row(name: &str, prefix: &str, hop: &str) -> (String, String, String) {
    (name.into(), prefix.into(), hop.into())
}

#[test]
fn what_is_there_is_not_written_again() {
    let before = table(&[
        route("Node-1____1000024", "10.0.0.0/24", "10.1.0.1"),
        route("node-2____fd0064", "FD00::/64", "fd01:0:0::1"),
    ]);
    let there = [set("node-1", "10.0.0.0/24", "10.1.0.1"), set("node-2", "fd00::/64", "fd01::1"), remove("node-3____x")];
    let names: Vec<_> = there.iter().map(|change| is_applied(Some(&before), change)).collect();
    assert_eq!(planned(&before, &there).document, None);
    assert_eq!(planned(&before, &[remove("node-3____x")]).document, None);
    assert_eq!(names, [true; 3]);
    let back = [remove("node-1____1000024"), set("node-1", "10.0.0.0/24", "10.1.0.1")];
    assert_eq!(planned(&before, &back).document, None, "removed and wanted again");
}

#[test]
fn a_changed_address_changes_the_route_in_place() {
    let before = table(&[route("node-1____1000024", "10.0.0.0/24", "10.1.0.1"), route("other", "10.9.0.0/24", "10.1.0.1")]);
    let changes = [remove("node-1____1000024"), set("node-1", "10.0.0.0/24", "10.1.0.9")];
    let rows = [row("node-1____1000024", "10.0.0.0/24", "10.1.0.9"), row("other", "10.9.0.0/24", "10.1.0.1")];
    for changes in [&changes[1..], &changes] {
        let after = planned(&before, changes);
        assert_eq!(written(&after), rows);
        let document = serde_json::to_value(after.document.unwrap()).unwrap();
        assert_eq!(document["properties"]["routes"][0]["properties"]["hasBgpOverride"], false, "what is not modelled stays");
    }
}

#[test]
fn a_prefix_of_another_route_is_refused_and_harms_nobody() {
    let before = table(&[route("theirs", "10.0.0.0/24", "10.1.0.1")]);
    let changes = [set("node-1", "10.0.0.7/24", "10.1.0.1"), set("node-2", "10.0.1.0/24", "10.1.0.2")];
    let after = planned(&before, &changes);
    assert!(after.refused[0].as_ref().unwrap().contains("\"theirs\" has 10.0.0.7/24 already"), "{:?}", after.refused);
    assert_eq!((written(&after).len(), &after.refused[1]), (2, &None));
    let freed = planned(&before, &[changes[0].clone(), remove("theirs")]);
    assert_eq!((written(&freed).len(), &freed.refused[0]), (1, &None), "deletions come first");
}

#[test]
fn the_limit_is_azures() {
    let routes: Vec<Value> =
        (0..400).map(|n| route(&format!("r{n}"), &format!("10.{}.{}.0/24", n / 256, n % 256), "10.1.0.1")).collect();
    let more = [set("node-1", "11.0.0.0/24", "10.1.0.1"), set("node-2", "11.0.1.0/24", "10.1.0.1")];
    assert_eq!(planned(&table(&routes), &more).refused, [None, None], "only ARM knows whether its limit was raised");
    let limited = RouteSettings { most_routes: MOST_ROUTES, ..settings() };
    let planned = |table: &RouteTable, changes: &[RouteChange]| plan(Some(table), changes, &limited, &no_cidrs);
    let full = planned(&table(&routes), &more);
    assert_eq!(full.document, None);
    assert!(full.refused.iter().all(|reason| reason.as_ref().is_some_and(|reason| reason.contains("more than 400 routes"))));
    let one = planned(&table(&routes), &[more[0].clone(), more[1].clone(), remove("R7")]);
    assert_eq!(one.refused.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(written(&one).len(), 400);
    let more_than_the_limit: Vec<Value> = routes.into_iter().chain([route("x", "12.0.0.0/24", "10.1.0.1")]).collect();
    assert_eq!(planned(&table(&more_than_the_limit), &more).refused, [None, None], "a managed table may have more");
}

#[test]
fn nodes_with_too_long_names_are_refused_alone() {
    let changes = [set(&"n".repeat(70), "10.0.1.0/24", "10.1.0.2"), set("node-2", "10.0.2.0/24", "10.1.0.3")];
    let outcome = planned(&table(&[]), &changes);
    let [Some(reason), None] = outcome.refused.as_slice() else { panic!("{:?}", outcome.refused) };
    assert!(reason.contains("more than 80 characters") && reason.contains("at most 68"), "{reason}");
    assert_eq!(written(&outcome).len(), 1);
}

#[test]
fn a_missing_table_is_made_for_a_route_only() {
    let none = |changes: &[RouteChange]| plan(None, changes, &tagged(), &no_cidrs);
    assert_eq!(none(&[]).document, None);
    assert_eq!(none(&[remove("x")]).document, None);
    let made = serde_json::to_value(none(&[set("node-1", "10.0.0.0/24", "10.1.0.1")]).document.unwrap()).unwrap();
    let routes = made["properties"]["routes"].clone();
    assert_eq!(made, json!({"name": "rt", "location": "eastus", "tags": {"a": "b"}, "properties": {"routes": routes}}));
    assert_eq!(routes.as_array().unwrap().len(), 1);
}

#[test]
fn tags_are_written_by_themselves_and_once() {
    let before = table(&[]);
    assert_eq!(plan(Some(&before), &[], &settings(), &no_cidrs).document, None);
    let tags = |system: &[&str]| {
        let settings = RouteSettings { system_tags: system.iter().map(|text| (*text).to_owned()).collect(), ..tagged() };
        let after = plan(Some(&before), &[], &settings, &no_cidrs).document.unwrap();
        assert_eq!(plan(Some(&after), &[], &settings, &no_cidrs).document, None, "twice");
        after.tags.unwrap().into_keys().collect::<Vec<_>>()
    };
    assert_eq!(tags(&[]), ["a", "x"]);
    assert_eq!(tags(&["k8s"]), ["a"], "with systemTags, others go");
}

#[test]
fn bare_names_of_nodes_become_full_ones_with_the_next_write() {
    let before = table(&[route("node-1", "10.0.0.0/24", "10.1.0.1"), route("to-firewall", "0.0.0.0/0", "10.0.0.4")]);
    assert_eq!(planned(&before, &[]).document, None, "not for that alone");
    let after = planned(&before, &[set("node-2", "10.0.1.0/24", "10.1.0.2")]);
    let names: Vec<_> = written(&after).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["node-1____1000024", "to-firewall", "node-2____1001024"]);
    assert_eq!(routes_of(after.document.as_ref())[0].id, None, "it is another resource");
    for stranger in [route("node-1", "192.168.0.0/16", "10.1.0.1"), route("node-2", "10.0.0.0/24", "10.1.0.1")] {
        let after = planned(&table(&[stranger]), &[set("node-3", "10.0.1.0/24", "10.1.0.2")]);
        assert!(!written(&after)[0].0.contains("____"), "it does not lead to that Node's pods");
    }
}

fn some_changes() -> impl Strategy<Value = Vec<RouteChange>> {
    let change = (0..6_u8, 0..8_u8, 1..4_u8, any::<bool>()).prop_map(|(node, net, hop, gone)| {
        let (node, prefix) = (format!("node-{node}"), format!("10.0.{net}.0/24"));
        if gone { remove(&names::route_name(&node, &prefix)) } else { set(&node, &prefix, &format!("10.1.0.{hop}")) }
    });
    prop::collection::vec(change, 0..12)
}

proptest! {
    /// Checks that routes of other owners remain, that no prefix occurs twice, and that repeated changes have no effect.
    #[test]
    fn whatever_is_asked_the_table_is_one_that_arm_takes(first in some_changes(), second in some_changes()) {
        let stranger = route("to-firewall", "0.0.0.0/0", "10.0.0.4");
        let mut now = table(std::slice::from_ref(&stranger));
        for changes in [first, second] {
            let after = planned(&now, &changes);
            now = after.document.unwrap_or(now);
            let routes = routes_of(Some(&now));
            prop_assert_eq!(serde_json::to_value(&routes[0]).unwrap(), stranger.clone());
            let prefixes: std::collections::BTreeSet<_> = routes.iter().map(|route| route.properties.clone().unwrap().address_prefix).collect();
            prop_assert_eq!(prefixes.len(), routes.len());
            let sets = changes.iter().filter(|change| matches!(change, RouteChange::Set(_))).cloned().collect::<Vec<_>>();
            let refused = planned(&now, &sets).refused;
            let last = |at: usize| !sets[at + 1..].iter().any(|later| matches!((later, &sets[at]), (RouteChange::Set(a), RouteChange::Set(b)) if a.name == b.name));
            for at in (0..sets.len()).filter(|at| refused[*at].is_none() && last(*at)) {
                prop_assert!(is_applied(Some(&now), &sets[at]));
            }
        }
    }
}

fn lines(plan: &RouteTablePlan) -> String {
    plan.steps.iter().map(|step| format!("{step}\n")).collect()
}

#[test]
fn every_difference_is_printed() {
    let there = table(&[
        route("gone____1", "10.0.9.0/24", "10.1.0.9"),
        route("node-1", "10.0.0.0/24", "10.1.0.1"),
        route("a____1001024", "10.0.1.0/24", "10.1.0.8"),
    ]);
    let changes = [
        remove("gone____1"),
        set("a", "10.0.1.0/24", "10.1.0.2"),
        set("b", "10.0.2.0/24", "10.1.0.3"),
        set("c", "10.0.2.0/24", "10.1.0.4"),
    ];
    let text = lines(&planned(&there, &changes));
    let expected = "delete route gone____1 of Node \"gone\"\n\
                    change route a____1001024 of Node \"a\", 10.0.1.0/24 to 10.1.0.2: it leads to 10.1.0.8\n\
                    create route b____1002024 of Node \"b\", 10.0.2.0/24 to 10.1.0.3: it is not in the table\n\
                    rename route node-1 to node-1____1000024: it has no pod CIDR in its name\n\
                    route c____1002024 of Node \"c\" waits: ";
    assert!(text.starts_with(expected), "{text}");
    let made = lines(&plan(None, &changes[2..3], &settings(), &no_cidrs));
    assert!(made.starts_with("create the route table: there is none") && made.lines().count() == 2, "{made}");
    let tags = lines(&plan(Some(&there), &[], &tagged(), &no_cidrs));
    assert!(tags.starts_with("set the tags of the route table"), "{tags}");
    assert_eq!(lines(&planned(&there, &[])), "");
}

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cloud_provider::AddressType;

const CLUSTER: &[&str] = &["10.120.0.0/16", "a00:100::/24"];

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn node(name: &str, address: &str, cidrs: &[&str]) -> Arc<Node> {
    let node = json!({
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": {"podCIDRs": cidrs},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    });
    Arc::new(serde_json::from_value(node).unwrap())
}

fn route(target: &str, cidr: &str) -> Route {
    Route { target_node: target.into(), destination_cidr: cidr.into(), ..Route::default() }
}

/// Returns a route that tracks node addresses.
fn tracked(target: &str, cidr: &str, addresses: &[&str]) -> Route {
    let internal = |address: &&str| NodeAddress { type_: AddressType::InternalIP, address: (*address).to_owned() };
    let target_node_addresses = addresses.iter().map(internal).collect();
    Route { enable_node_addresses: true, target_node_addresses, ..route(target, cidr) }
}

fn blackhole(cidr: &str) -> Route {
    Route { blackhole: true, ..route("", cidr) }
}

fn changes(routes: &[Route], nodes: &[Arc<Node>]) -> Vec<String> {
    changes_of(&plan(routes, nodes, &nets(CLUSTER)))
}

/// Returns the changes of a plan, as `-target cidr` and `+target cidr`.
fn changes_of(plan: &RoutePlan) -> Vec<String> {
    let deletions = plan.changes.delete.iter().map(|route| format!("-{} {}", route.target_node, route.destination_cidr));
    let creations =
        plan.changes.create.iter().map(|(_, route)| format!("+{} {}", route.target_node, route.destination_cidr));
    deletions.chain(creations).collect()
}

#[test]
fn responsibility_follows_the_cluster_cidr() {
    let table = [
        ("10.244.0.0/16", "10.244.0.0/24", true),
        ("10.244.0.0/16", "10.244.255.0/24", true),
        ("10.244.0.0/14", "10.244.0.0/24", true),
        ("10.244.0.0/14", "10.247.255.0/24", true),
        ("a00:100::/10", "a00:100::/24", true),
        ("10.244.0.0/16", "10.224.0.0/24", false),
        ("10.244.0.0/14", "10.248.0.0/24", false),
        ("10.244.0.0/14", "10.243.255.0/24", false),
        ("a00:100::/10", "b00:100::/24", false),
        ("10.244.0.0/16", "not a CIDR", false),
        ("10.244.0.0/16", "10.0.0.0/8", false),
        ("10.244.0.0/16", "10.244.255.0/15", true),
    ];
    for (cluster, cidr, expected) in table {
        assert_eq!(is_responsible_for(&route("n", cidr), &nets(&[cluster])), expected, "{cidr} in {cluster}");
    }
}

#[test]
fn dual_stack_routes_follow_cidrs_and_addresses() {
    let nodes = [
        node("node-1", "10.10.0.1", &["10.120.0.0/24", "a00:100::/64"]),
        node("node-2", "10.10.0.2", &["10.120.1.0/24", "a00:101::/64"]),
    ];
    let all = [
        route("node-1", "10.120.0.0/24"),
        route("node-1", "a00:100::/64"),
        route("node-2", "10.120.1.0/24"),
        route("node-2", "a00:101::/64"),
    ];
    let created = ["+node-1 10.120.0.0/24", "+node-1 a00:100::/64", "+node-2 10.120.1.0/24", "+node-2 a00:101::/64"];
    let deleted = ["-node-1 10.120.0.0/24", "-node-1 a00:100::/64", "-node-2 10.120.1.0/24", "-node-2 a00:101::/64"];
    let tracking = |first: &[&str], second: &[&str]| -> Vec<Route> {
        let addresses = |name: &str| if name == "node-1" { first.to_vec() } else { second.to_vec() };
        all.iter().map(|r| tracked(&r.target_node, &r.destination_cidr, &addresses(&r.target_node))).collect()
    };
    let with = |more: &[Route]| [&all[..], more].concat();
    let table: Vec<(&str, Vec<Route>, Vec<&str>)> = vec![
        ("routes without addresses", tracking(&[], &[]), [deleted, created].concat()),
        ("addresses changed", tracking(&["10.9.0.1"], &["10.9.0.2"]), [deleted, created].concat()),
        ("one address changed", tracking(&["10.10.0.1"], &["10.9.0.2"]), [&deleted[2..], &created[2..]].concat()),
        ("addresses unchanged", tracking(&["10.10.0.1"], &["10.10.0.2"]), vec![]),
        ("no routes", vec![], created.to_vec()),
        ("all present", all.to_vec(), vec![]),
        ("some present", all[..2].to_vec(), created[2..].to_vec()),
        (
            "attached to wrong nodes",
            vec![route("node-2", "10.120.0.0/24"), route("node-2", "a00:100::/64"), all[2].clone(), all[3].clone()],
            vec!["-node-2 10.120.0.0/24", "-node-2 a00:100::/64", "+node-1 10.120.0.0/24", "+node-1 a00:100::/64"],
        ),
        (
            "too many",
            with(&[route("node-3", "10.120.2.0/24"), route("node-4", "a00:102::/64")]),
            vec!["-node-3 10.120.2.0/24", "-node-4 a00:102::/64"],
        ),
    ];
    for (name, routes, expected) in table {
        assert_eq!(changes(&routes, &nodes), expected, "{name}");
    }
}

#[test]
fn single_stack_routes_follow_cidrs() {
    let nodes = [node("node-1", "10.10.0.1", &["10.120.0.0/24"]), node("node-2", "10.10.0.2", &["10.120.1.0/24"])];
    let (first, second) = (route("node-1", "10.120.0.0/24"), route("node-2", "10.120.1.0/24"));
    let table: Vec<(&str, Vec<Route>, Vec<&str>)> = vec![
        (
            "one incorrect",
            vec![first.clone(), route("node-2", "10.120.2.0/24")],
            vec!["-node-2 10.120.2.0/24", "+node-2 10.120.1.0/24"],
        ),
        ("unknown target", vec![first.clone(), second.clone(), route("", "10.120.7.0/24")], vec!["- 10.120.7.0/24"]),
        ("blackhole inside", vec![first.clone(), second.clone(), blackhole("10.120.9.0/24")], vec!["- 10.120.9.0/24"]),
        ("blackhole outside", vec![first.clone(), second.clone(), blackhole("10.1.2.0/24")], vec![]),
        (
            "blackhole in place of a node's route",
            vec![Route { blackhole: true, ..first }, second],
            vec!["-node-1 10.120.0.0/24", "+node-1 10.120.0.0/24"],
        ),
    ];
    for (name, routes, expected) in table {
        assert_eq!(changes(&routes, &nodes), expected, "{name}");
    }
}

#[test]
fn nodes_without_cidrs_are_planned_only_if_they_have_a_route() {
    let nodes = [node("bare", "10.10.0.1", &[]), node("node-2", "10.10.0.2", &["10.120.1.0/24"])];
    let names = |plan: &RoutePlan| -> Vec<String> { plan.nodes.iter().map(|node| node.node.name_any()).collect() };
    let without_routes = plan(&[], &nodes, &nets(CLUSTER));
    assert_eq!(names(&without_routes), ["node-2"]);
    let led_to = plan(&[route("bare", "10.120.0.0/24")], &nodes, &nets(CLUSTER));
    assert_eq!(names(&led_to), ["bare", "node-2"]);
    assert_eq!(led_to.nodes[0].routes, []);
    assert_eq!(led_to.changes.delete, [route("bare", "10.120.0.0/24")]);
}

#[test]
fn a_cidr_listed_twice_is_one_route() {
    let nodes = [node("node-1", "10.10.0.1", &["10.120.0.0/24", "10.120.0.0/24"])];
    assert_eq!(changes(&[], &nodes), ["+node-1 10.120.0.0/24"]);
}

#[test]
fn cidrs_are_compared_by_meaning() {
    let nodes = [node("node-1", "10.10.0.1", &["10.120.0.0/24", "a00:0100:0000::/64"])];
    let routes = [route("node-1", "10.120.0.1/24"), route("node-1", "A00:100::/64")];
    assert_eq!(changes(&routes, &nodes), Vec::<String>::new());
}

#[test]
fn foreign_routes_are_kept() {
    let nodes = [node("node-1", "10.10.0.1", &["192.168.0.0/24"])];
    let foreign = [tracked("node-1", "192.168.0.0/24", &["10.9.9.9"]), route("gone", "172.16.0.0/12"), route("gone", "?")];
    assert_eq!(changes(&foreign, &nodes), Vec::<String>::new());
}

/// The kubelet that registers a Node may claim any pod CIDR.
#[test]
fn pod_cidrs_beyond_the_limits_get_no_route() {
    let cluster_cidrs = nets(CLUSTER);
    let node_masks = NodeMaskSizes { ipv4: Some(24), ipv6: Some(64) };
    let limits = RouteLimits { cluster_cidrs: &cluster_cidrs, node_masks };
    let refused = |cidr: &str| {
        let plan = plan_within(&[], &[node("evil", "10.10.0.1", &[cidr])], limits);
        assert_eq!(plan.changes.create.is_empty(), !plan.refused.is_empty(), "{cidr}");
        assert_eq!(plan.nodes[0].routes == [RequiredRoute::Refused], !plan.refused.is_empty(), "{cidr}");
        plan.refused.first().map(|refused| refused.reason)
    };
    for cidr in ["0.0.0.0/0", "10.0.0.0/8", "10.121.0.0/24", "::/0"] {
        assert_eq!(refused(cidr), Some(RefusedCidr::Outside), "{cidr}");
    }
    let (ipv4, ipv6) = ((20, "node-cidr-mask-size-ipv4"), (60, "node-cidr-mask-size-ipv6"));
    for (cidr, (limit, flag)) in [("10.120.0.0/16", ipv4), ("10.120.0.0/19", ipv4), ("a00:100::/59", ipv6)] {
        assert_eq!(refused(cidr), Some(RefusedCidr::TooLarge { limit, flag }), "{cidr}");
    }
    for cidr in ["10.120.0.0/20", "10.120.0.0/24", "10.120.0.0/26", "a00:100::/60", "a00:100::/64"] {
        assert_eq!(refused(cidr), None, "{cidr}");
    }
    assert!(plan(&[], &[node("n", "10.10.0.1", &["10.120.0.0/16"])], &cluster_cidrs).refused.is_empty(), "no prefix");
}

/// The Node may predate the current mask or cluster CIDR.
#[test]
fn existing_routes_beyond_the_limits_are_kept() {
    let cluster_cidrs = nets(CLUSTER);
    let node_masks = NodeMaskSizes { ipv4: Some(26), ipv6: None };
    let limits = RouteLimits { cluster_cidrs: &cluster_cidrs, node_masks };
    let (large, outside) = ("10.120.16.0/20", "10.120.0.0/15");
    let replaced = ["-old 10.120.16.0/20", "+old 10.120.16.0/20"];
    let dead_end = Route { blackhole: true, ..route("old", large) };
    let table = [
        ("larger than the limit", large, route("old", large), &[][..], true),
        ("outside of --cluster-cidr", outside, route("old", outside), &[], true),
        ("current addresses", large, tracked("old", large, &["10.10.0.1"]), &[], true),
        ("former addresses", large, tracked("old", large, &["10.9.9.9"]), &replaced, true),
        ("blackhole", large, dead_end, &replaced, true),
        ("another Node's", large, route("other", large), &["-other 10.120.16.0/20"], false),
        ("another CIDR's", large, route("old", "10.120.16.0/24"), &["-old 10.120.16.0/24"], false),
    ];
    for (name, cidr, route, expected, has_route) in table {
        let plan = plan_within(&[route], &[node("old", "10.10.0.1", &[cidr])], limits);
        assert_eq!(changes_of(&plan), expected, "{name}");
        assert_eq!(plan.refused.iter().map(|refused| refused.has_route).collect::<Vec<_>>(), [has_route], "{name}");
        assert_eq!(plan.nodes[0].routes == [RequiredRoute::Refused], !has_route, "{name}");
        let start = if has_route { "route for" } else { "no route for" };
        assert!(plan.refused[0].to_string().starts_with(&format!("{start} {cidr} of Node \"old\"")), "{name}");
    }
}

/// Returns dual-stack Nodes with these IPv4 prefixes and this status of `Ready`.
fn sized_nodes(ready: &str, prefixes: &[u8]) -> Vec<Arc<Node>> {
    let sized = |(index, prefix): (usize, &u8)| {
        let cidrs = [format!("10.120.{index}.0/{prefix}"), format!("a00:100:0:{index}::/64")];
        let mut node = Node::clone(&node(&format!("{ready}-{index}"), "10.10.0.1", &[&cidrs[0], &cidrs[1]]));
        let condition = json!({"type": "Ready", "status": ready});
        node.status.as_mut().unwrap().conditions = Some(vec![serde_json::from_value(condition).unwrap()]);
        Arc::new(node)
    };
    prefixes.iter().enumerate().map(sized).collect()
}

#[test]
fn most_ready_nodes_determine_the_size_of_pod_cidrs() {
    let table = [
        ("none", &[][..], &[][..], (None, None)),
        ("two are ready", &[24, 24], &[24, 24], (None, None)),
        ("three", &[24, 24, 24], &[], (Some(24), Some(64))),
        ("others are not ready", &[24, 24, 24], &[16, 16, 16, 16], (Some(24), Some(64))),
        ("one has another", &[16, 24, 24], &[], (Some(24), Some(64))),
        ("as many have another", &[26, 20, 26, 20], &[], (Some(20), Some(64))),
    ];
    for (name, ready, unready, (ipv4, ipv6)) in table {
        let nodes = [sized_nodes("True", ready), sized_nodes("Unknown", unready)].concat();
        assert_eq!(NodeMaskSizes::default().or_of_nodes(&nodes), NodeMaskSizes { ipv4, ipv6 }, "{name}");
        let flags = NodeMaskSizes { ipv4: Some(22), ipv6: None };
        assert_eq!(flags.or_of_nodes(&nodes), NodeMaskSizes { ipv4: Some(22), ipv6 }, "{name}");
    }
    let greedy = node("greedy", "10.10.0.9", &["10.120.128.0/19"]);
    let claim = |ready: &[u8]| plan(&[], &[sized_nodes("True", ready), vec![greedy.clone()]].concat(), &nets(CLUSTER));
    assert_eq!((claim(&[24, 24]).refused.len(), claim(&[24, 24, 24]).refused.len()), (0, 1));
    assert_eq!(claim(&[23, 23, 23]).refused.len(), 0);
}

#[test]
fn a_new_route_carries_target_addresses_cidr_and_hint() {
    let plan = plan(&[], &[node("node-1", "10.10.0.1", &["10.120.0.0/24"])], &nets(CLUSTER));
    let expected = Route { enable_node_addresses: false, ..tracked("node-1", "10.120.0.0/24", &["10.10.0.1"]) };
    assert_eq!(plan.changes.create, [("uid-node-1".to_owned(), expected)]);
    assert_eq!(plan.nodes[0].routes, [RequiredRoute::Create(0)]);
}

/// Returns a route of a cloud: any target among few, any CIDR among few, some foreign, some blackholes, some tracking addresses.
fn any_route() -> impl Strategy<Value = Route> {
    let cidr =
        prop_oneof![(0..6u8).prop_map(|i| format!("10.120.{i}.0/24")), (0..3u8).prop_map(|i| format!("10.7.{i}.0/24"))];
    let target = prop_oneof![Just(String::new()), (0..6u8).prop_map(|i| format!("node-{i}"))];
    (cidr, target, any::<bool>(), any::<bool>(), 0..3u8).prop_map(|(cidr, target, tracks, blackhole, address)| {
        let route = if tracks { tracked(&target, &cidr, &[&format!("10.10.0.{address}")]) } else { route(&target, &cidr) };
        Route { blackhole, ..route }
    })
}

/// Returns Nodes by number, each with its own CIDR or none.
fn any_nodes() -> impl Strategy<Value = Vec<Arc<Node>>> {
    proptest::collection::btree_map(0..6u8, (any::<bool>(), 0..3u8), 0..6).prop_map(|nodes: BTreeMap<_, _>| {
        let build = |(i, (has_cidr, address)): (u8, (bool, u8))| {
            let cidr = format!("10.120.{i}.0/24");
            let cidrs = if has_cidr { vec![cidr.as_str()] } else { Vec::new() };
            node(&format!("node-{i}"), &format!("10.10.0.{address}"), &cidrs)
        };
        nodes.into_iter().map(build).collect()
    })
}

fn is_foreign(route: &Route) -> bool {
    route.destination_cidr.starts_with("10.7.")
}

proptest! {
    /// For any routes and any failures in the first rounds: once changes succeed, the next round changes nothing. Foreign routes are
    /// unchanged, each node has its route, and there are no other routes.
    #[test]
    fn routes_converge_after_failures(
        mut routes in proptest::collection::vec(any_route(), 0..12),
        nodes in any_nodes(),
        failures in proptest::collection::vec(any::<bool>(), 0..30),
    ) {
        let foreign: Vec<_> = routes.iter().filter(|route| is_foreign(route)).cloned().collect();
        let mut failures = failures.into_iter();
        for _ in 0..40 {
            let changes = plan(&routes, &nodes, &nets(CLUSTER)).changes;
            if changes == RouteChanges::default() {
                break;
            }
            for deletion in changes.delete {
                let position = routes.iter().position(|route| *route == deletion);
                prop_assert!(position.is_some(), "deletes a route that is not listed");
                if !failures.next().unwrap_or(false) {
                    routes.remove(position.unwrap());
                }
            }
            for (_, new) in changes.create {
                if !failures.next().unwrap_or(false) {
                    routes.push(Route { enable_node_addresses: true, ..new });
                }
            }
        }
        prop_assert_eq!(plan(&routes, &nodes, &nets(CLUSTER)).changes, RouteChanges::default());
        prop_assert_eq!(routes.iter().filter(|route| is_foreign(route)).cloned().collect::<Vec<_>>(), foreign);
        let ours: BTreeSet<_> = routes.iter().filter(|route| !is_foreign(route))
            .map(|route| (route.target_node.clone(), route.destination_cidr.clone())).collect();
        let required: BTreeSet<_> = nodes.iter()
            .flat_map(|node| pod_cidrs(node).iter().map(|cidr| (node.name_any(), cidr.clone()))).collect();
        prop_assert_eq!(ours, required);
        prop_assert!(routes.iter().all(|route| is_foreign(route) || !route.blackhole));
    }
}

#[test]
fn routes_of_hidden_nodes_are_kept() {
    let routes = [
        route("seen", "10.120.0.0/24"),
        route("seen", "10.120.9.0/24"),
        route("hidden", "10.120.1.0/24"),
        route("gone", "10.120.2.0/24"),
        blackhole("10.120.3.0/24"),
    ];
    let plan = plan(&routes, &[node("seen", "10.0.0.1", &["10.120.0.0/24"])], &nets(CLUSTER));
    assert_eq!(unlisted_nodes(&plan).into_iter().collect::<Vec<_>>(), ["gone", "hidden"]);
    let hidden = |cidrs: &[&str]| UnlistedNode::Hidden(cidrs.iter().map(|cidr| (*cidr).to_owned()).collect());
    let all = vec!["10.120.9.0/24", "10.120.1.0/24", "10.120.2.0/24", "10.120.3.0/24"];
    let without = vec!["10.120.9.0/24", "10.120.2.0/24", "10.120.3.0/24"];
    for (unlisted, expected, unchanged) in [
        (hidden(&["fd00::/64", "10.120.1.0/24"]), &without, 2),
        (hidden(&["10.120.0.0/23"]), &without, 2),
        (UnlistedNode::Unknown, &without, 2),
        (hidden(&["10.120.7.0/24"]), &all, 1),
        (hidden(&["10.120.1.0/25"]), &all, 1),
        (hidden(&[]), &all, 1),
        (UnlistedNode::Gone, &all, 1),
    ] {
        let mut plan = plan.clone();
        let seen = [
            ("hidden".to_owned(), unlisted.clone()),
            ("gone".to_owned(), UnlistedNode::Gone),
            ("seen".to_owned(), UnlistedNode::Unknown),
        ];
        retain_routes_of_unlisted_nodes(&mut plan, &seen.into());
        let deleted: Vec<_> = plan.changes.delete.iter().map(|route| route.destination_cidr.as_str()).collect();
        assert_eq!((&deleted, plan.unchanged), (expected, unchanged), "{unlisted:?}");
    }
}

#[test]
fn every_change_is_printed_with_its_reason() {
    let nodes = [node("a", "1.1.1.1", &["10.120.0.0/24"]), node("b", "2.2.2.2", &["10.120.1.0/24", "10.120.2.0/24"])];
    let routes = [
        route("gone", "10.120.9.0/24"),
        route("a", "10.120.8.0/24"),
        Route { blackhole: true, name: "r".into(), ..route("a", "10.120.0.0/24") },
        tracked("b", "10.120.1.0/24", &["9.9.9.9"]),
    ];
    let mut planned = plan(&routes, &nodes, &nets(CLUSTER));
    let all = "delete route for 10.120.9.0/24 of Node \"gone\": there is no such Node\n\
               delete route for 10.120.8.0/24 of Node \"a\": the Node does not have this pod CIDR\n\
               delete route r for 10.120.0.0/24 of Node \"a\": it is a blackhole\n\
               delete route for 10.120.1.0/24 of Node \"b\": the Node has other addresses\n\
               create route for 10.120.0.0/24 of Node \"a\": the existing route does not lead to the Node\n\
               create route for 10.120.1.0/24 of Node \"b\": the existing route does not lead to the Node\n\
               create route for 10.120.2.0/24 of Node \"b\": the Node has this pod CIDR and no route leads there\n";
    let lines = |plan: &RoutePlan| plan.reasons().map(|line| line + "\n").collect::<String>();
    assert_eq!(lines(&planned), all);

    retain_routes_of_unlisted_nodes(&mut planned, &HashMap::new());
    let (_, rest) = all.split_once('\n').unwrap();
    assert_eq!(lines(&planned), rest);
    let waits = "route for 10.120.9.0/24 of Node \"gone\" waits: it is not known whether its Node exists";
    assert_eq!(planned.unresolved().collect::<Vec<_>>(), [waits]);
    assert_eq!(planned.deletion_reasons.len(), planned.changes.delete.len());
    assert_eq!(lines(&plan(&[route("a", "10.120.0.0/24")], &nodes[..1], &nets(CLUSTER))), "");
}

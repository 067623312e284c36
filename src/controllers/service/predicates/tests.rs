//! Upstream's tables `TestRespectsPredicates`, `TestListWithPredicate`, `TestShouldSyncUpdatedNode…`, `TestNodesNotEqual`.

use k8s_openapi::{
    api::core::v1::{NodeAddress, NodeCondition, NodeSpec, NodeStatus, Taint},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use super::*;
use crate::cloud_provider::helpers::FALSE;

fn node(name: &str, provider_id: Option<&str>) -> Node {
    Node {
        metadata: ObjectMeta { name: Some(name.into()), ..Default::default() },
        spec: Some(NodeSpec { provider_id: provider_id.map(Into::into), ..Default::default() }),
        status: Some(NodeStatus::default()),
    }
}

type Change = fn(&mut Node);

fn with(node: &Node, change: Change) -> Node {
    let mut node = node.clone();
    change(&mut node);
    node
}

const EXCLUDE: Change = |node| {
    node.metadata.labels.get_or_insert_default().insert(EXCLUDE_LABEL.into(), String::new());
};
const LABEL: Change = |node| {
    node.metadata.labels.get_or_insert_default().insert("tier".into(), "gold".into());
};
const SCALE_DOWN: Change = |node| taint(node, TO_BE_DELETED_TAINT);
const OTHER_TAINT: Change = |node| taint(node, "dedicated");
const READY: Change = |node| condition(node, "Ready", "True");
const NOT_READY: Change = |node| condition(node, "Ready", "False");
const PRESSURE: Change = |node| condition(node, "MemoryPressure", "True");
const DELETE: Change = |node| node.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
const NO_ID: Change = |node| node.spec.as_mut().unwrap().provider_id = None;
const NEW_ID: Change = |node| node.spec.as_mut().unwrap().provider_id = Some("fake://other".into());

fn taint(node: &mut Node, key: &str) {
    let taint = Taint { key: key.into(), effect: "NoSchedule".into(), ..Default::default() };
    node.spec.as_mut().unwrap().taints.get_or_insert_default().push(taint);
}

fn condition(node: &mut Node, type_: &str, status: &str) {
    let condition = NodeCondition { type_: type_.into(), status: status.into(), ..Default::default() };
    node.status.as_mut().unwrap().conditions = Some(vec![condition]);
}

#[test]
fn hosts_are_neither_excluded_nor_being_removed() {
    let cases: [(&str, Change, bool); 9] = [
        ("plain", |_| {}, true),
        ("ready", READY, true),
        ("not ready", NOT_READY, true),
        ("labeled", LABEL, true),
        ("tainted otherwise", OTHER_TAINT, true),
        ("without provider id", NO_ID, true),
        ("excluded", EXCLUDE, false),
        ("being scaled down", SCALE_DOWN, false),
        ("being deleted", DELETE, false),
    ];
    for (name, change, expected) in cases {
        assert_eq!(is_host(&with(&node("n", Some("fake://n")), change)), expected, "{name}");
    }
    let all: Vec<_> = cases.iter().map(|(name, change, _)| Arc::new(with(&node(name, None), *change))).collect();
    assert_eq!(LoadBalancerHosts::among(all, None).nodes.len(), 6);
}

#[test]
fn only_a_spelling_of_false_disables_the_exclusion() {
    for (value, expected) in [("", true), ("true", true), ("1", true), ("no", true), ("fAlse", true), ("false", false)] {
        let mut node = node("n", None);
        node.metadata.labels = Some([(EXCLUDE_LABEL.to_owned(), value.to_owned())].into());
        assert_eq!(is_excluded(&node), expected, "{value:?}");
    }
    for value in FALSE {
        let mut node = node("n", None);
        node.metadata.labels = Some([(EXCLUDE_LABEL.to_owned(), value.to_owned())].into());
        assert!(!is_excluded(&node), "{value:?}");
    }
}

#[test]
fn only_exclusion_and_provider_id_cause_a_node_sync() {
    let states: [(&str, Change); 6] = [
        ("plain", |_| {}),
        ("tainted", SCALE_DOWN),
        ("excluded", EXCLUDE),
        ("not ready", NOT_READY),
        ("without id", NO_ID),
        ("being deleted", DELETE),
    ];
    let changes: [(&str, Change); 8] = [
        ("other taint", OTHER_TAINT),
        ("scale-down taint", SCALE_DOWN),
        ("label", LABEL),
        ("ready", READY),
        ("not ready", NOT_READY),
        ("other condition", PRESSURE),
        ("deletion", DELETE),
        ("nothing", |_| {}),
    ];
    for (state_name, state) in states {
        let before = with(&node("n", Some("fake://n")), state);
        for (name, change) in changes {
            let after = with(&before, change);
            assert!(!should_sync_updated_node(&before, &after), "{state_name}: {name}");
            assert!(!should_sync_updated_node(&after, &before), "{state_name}: {name} undone");
        }
        let renamed = with(&before, NEW_ID);
        assert!(should_sync_updated_node(&before, &renamed), "{state_name}: provider id");
        assert!(should_sync_updated_node(&renamed, &before), "{state_name}: provider id undone");
        let excluded = with(&before, EXCLUDE);
        assert_eq!(should_sync_updated_node(&before, &excluded), state_name != "excluded", "{state_name}: exclusion");
        assert_eq!(should_sync_updated_node(&excluded, &before), state_name != "excluded", "{state_name}: exclusion undone");
    }
    let (with_id, without) = (node("n", Some("fake://n")), node("n", None));
    assert!(should_sync_updated_node(&without, &with_id) && should_sync_updated_node(&with_id, &without));
}

#[test]
fn labels_ids_and_addresses_may_change_hosts() {
    let plain = node("n", Some("fake://n"));
    let changes: [(&str, Change, [bool; 2]); 9] = [
        ("nothing", |_| {}, [false, false]),
        ("label", LABEL, [true, true]),
        ("exclusion", EXCLUDE, [true, true]),
        ("provider id", NEW_ID, [true, true]),
        ("addresses", |node| node.status.as_mut().unwrap().addresses = Some(vec![NodeAddress::default()]), [true, true]),
        ("scale-down taint", SCALE_DOWN, [false, true]),
        ("deletion", DELETE, [false, true]),
        ("other taint", OTHER_TAINT, [false, false]),
        ("not ready", NOT_READY, [false, false]),
    ];
    for (name, change, expected) in changes {
        let changed = with(&plain, change);
        assert_eq!(
            [may_change_hosts(&plain, &changed), may_change_hosts(&changed, &plain)],
            expected,
            "{name}, done and undone"
        );
    }
}

#[test]
fn only_times_and_messages_make_a_heartbeat() {
    let before = with(&node("n", Some("fake://n")), READY);
    let beat = with(&before, |node| {
        node.metadata.resource_version = Some("8".into());
        let condition = &mut node.status.as_mut().unwrap().conditions.as_mut().unwrap()[0];
        condition.last_heartbeat_time = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        condition.message = Some("kubelet is posting ready status".into());
    });
    assert!(is_heartbeat(&before, &beat) && is_heartbeat(&before, &before));
    let relevant_changes: [(&str, Change); 9] = [
        ("exclusion", EXCLUDE),
        ("scale-down", SCALE_DOWN),
        ("label", LABEL),
        ("annotation", |node| node.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into())),
        ("readiness", NOT_READY),
        ("deletion", DELETE),
        ("provider id", NEW_ID),
        ("addresses", |node| node.status.as_mut().unwrap().addresses = Some(vec![NodeAddress::default()])),
        ("another of its name", |node| node.metadata.uid = Some("other".into())),
    ];
    for (name, change) in relevant_changes {
        assert!(!is_heartbeat(&before, &with(&beat, change)), "{name}");
        assert!(!is_heartbeat(&with(&beat, change), &before), "{name} undone");
    }
}

#[test]
fn node_sets_are_equal_when_names_and_provider_ids_are() {
    let (first, second) = (node("one", Some("fake://1")), node("two", Some("fake://2")));
    let set = NodeSet::of([&first, &second]);
    assert_eq!(set, NodeSet::of([&second, &first]), "order does not matter");
    assert_eq!(set, NodeSet::of([&with(&first, READY), &with(&second, LABEL)]), "conditions and labels do not matter");
    assert_ne!(set, NodeSet::of([&first]), "a node is missing");
    assert_ne!(set, NodeSet::of([&first, &with(&second, NEW_ID)]), "another provider id");
    assert_ne!(NodeSet::of([&node("n", None)]), NodeSet::of([&node("n", Some("fake://n"))]), "provider id appears");
    assert_ne!(NodeSet::of([&node("a", None)]), NodeSet::of([&node("b", None)]), "swapped, both without provider id");
}

#[test]
fn an_equal_set_is_shared() {
    let nodes = vec![Arc::new(node("one", None))];
    let first = LoadBalancerHosts::among(nodes.clone(), None);
    let second = LoadBalancerHosts::among(nodes, Some(&first.set));
    assert!(Arc::ptr_eq(&first.set.members, &second.set.members));
}

//! Tests of the facts about a Service that are recorded for the next process.

use super::*;
use crate::providers::azure::planner::load_balancer::desired::samples::{ensure, service};

const MACHINES: [&str; 2] = ["10.0.0.4", "2603:1030:c02::4"];

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn addresses<C: FromIterator<IpAddr>>(texts: &[&str]) -> C {
    texts.iter().map(|text| address(text)).collect()
}

/// Returns the destinations of a group with all rules of a Service, each of which leads to all of its addresses.
fn listing(rules: &ServiceRules) -> ListedDestinations {
    let all = &(&rules.destinations | &rules.former) | &rules.claimed;
    rules.ownership.rules.iter().map(|rule| (*rule, all.clone())).collect()
}

fn recorded(memory: &RuleMemory, rules: &ServiceRules) -> Vec<String> {
    let records = memory.records([rules], &listing(rules));
    records.values().flat_map(|record| &record.addresses).map(ToString::to_string).collect()
}

fn wanted(spec: &ServiceSpec, frontend: &str) -> ServiceRules {
    ServiceRules::wanted(spec, &[address(frontend)], &addresses::<Vec<_>>(&MACHINES)).unwrap()
}

fn applied(memory: &mut RuleMemory, spec: &ServiceSpec, frontend: &str) {
    let rules = wanted(spec, frontend);
    memory.record_applied(&ensure(spec), &rules, &listing(&rules));
}

#[test]
fn only_what_nothing_else_shows_is_recorded() {
    let web = || service("web");
    let in_status = |texts: &[&str]| ServiceSpec { status_addresses: addresses(texts), ..web() };
    let additional = |text: &str| ServiceSpec { additional_ips: addresses(&[text]), ..web() };
    let on_machines = ServiceSpec { floating_ip: false, ..in_status(&["20.0.0.1"]) };
    for (about, spec, expected) in [
        ("a frontend", in_status(&["20.0.0.1"]), None),
        ("machines", on_machines.clone(), None),
        ("a former private frontend", in_status(&["10.1.0.9"]), None),
        ("a former public frontend", in_status(&["20.0.0.9"]), Some("20.0.0.9")),
        ("an additional address", additional("20.0.0.8"), Some("20.0.0.8")),
        ("an additional private address", additional("10.50.0.1"), Some("10.50.0.1")),
        (
            "machines and an additional address",
            ServiceSpec { additional_ips: addresses(&["20.0.0.8"]), ..on_machines },
            Some("20.0.0.8"),
        ),
    ] {
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(recorded(&RuleMemory::default(), &wanted(&spec, "20.0.0.1")), expected, "{about}");
    }
}

#[test]
fn public_addresses_that_a_service_had_are_recorded() {
    let mut memory = RuleMemory::default();
    memory.note_nodes(addresses(&MACHINES));
    let before = ServiceSpec { floating_ip: false, ..service("web") };
    applied(&mut memory, &before, "20.0.0.1");
    assert_eq!(memory.records([], &listing(&wanted(&before, "20.0.0.1"))), RuleRecords::new(), "machines and a frontend");
    let mut moved = wanted(&service("web"), "20.0.0.2");
    memory.add_history(&mut moved, memory.history_of(&before.identity).unwrap());
    assert_eq!(recorded(&memory, &moved), ["20.0.0.1"]);
    assert!(moved.former.contains(&address(MACHINES[0])));
}

#[test]
fn what_is_restored_adds_to_what_is_known() {
    let web = ServiceSpec { additional_ips: addresses(&["20.0.0.8"]), ..service("web") };
    let mut memory = RuleMemory::default();
    applied(&mut memory, &web, "20.0.0.1");
    let other = service("other").identity;
    let record = |text: &str| RuleRecord { addresses: addresses(&[text]), rules: BTreeSet::new() };
    memory.restore([(web.identity.clone(), record("20.0.0.9")), (other.clone(), record("20.0.0.7"))].into());
    let known = &memory.history_of(&web.identity).unwrap().recorded;
    assert_eq!(*known, addresses::<BTreeSet<_>>(&["20.0.0.8", "20.0.0.9"]));
    assert_eq!(memory.unserved(), [other]);
}

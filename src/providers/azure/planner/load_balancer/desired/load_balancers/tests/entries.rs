//! Several load balancers: the assignment of Services, their moves, and that no Service is on two of them.

use std::sync::Arc;

use super::*;
use crate::providers::azure::planner::load_balancer::{
    entries::LoadBalancerEntry,
    labels::{LabelMap, LabelMatcher},
};

pub(super) fn entry(name: &str) -> LoadBalancerEntry {
    LoadBalancerEntry { primary_vm_set: format!("set-{name}"), ..LoadBalancerEntry::implied(name) }
}

pub(super) fn matcher(key: &str, value: &str) -> Option<LabelMatcher> {
    let selector = json!({"matchLabels": {key: value}});
    Some(LabelMatcher::new(&serde_json::from_value(selector).unwrap()))
}

pub(super) fn of(entries: &[LoadBalancerEntry]) -> LoadBalancerSettings {
    LoadBalancerSettings { entries: entries.to_vec(), ..settings() }
}

fn three() -> LoadBalancerSettings {
    of(&["kubernetes", "lb2", "lb3"].map(entry))
}

pub(super) fn named(spec: ServiceSpec, entries: &[&str]) -> ServiceSpec {
    ServiceSpec { configurations: Some(entries.iter().map(|name| (*name).to_owned()).collect()), ..spec }
}

pub(super) fn with_label(spec: ServiceSpec, value: &str) -> ServiceSpec {
    ServiceSpec { labels: [("t".to_owned(), value.to_owned())].into(), ..spec }
}

/// Returns the public IPs. External Services with the same pinned address share one.
pub(super) fn ips(asks: &[ServiceRequest]) -> PublicIpAssignment {
    let external = asks.iter().filter_map(ensured_spec).filter(|spec| !spec.internal);
    let id = |spec: &ServiceSpec, family: IpFamily| match spec.pinned.get(family) {
        Some(address) => public_ip(&format!("pinned-{address}")),
        None => public_ip(&naming::public_ip("kubernetes", &spec.identity, None, family, spec.is_dual_stack())),
    };
    let all =
        external.flat_map(|spec| spec.families.iter().map(|family| ((spec.identity.clone(), *family), id(spec, *family))));
    all.collect()
}

fn planned(
    there: &ObservedNetwork,
    asks: &[ServiceRequest],
    others: &[Arc<ServiceSpec>],
    settings: &LoadBalancerSettings,
) -> LoadBalancerPlan {
    plan_load_balancers(there, asks, others, &ips(asks), settings)
}

/// Plans and writes until the plan is complete. Returns the observed state after that.
fn settled(
    there: &ObservedNetwork,
    asks: &[ServiceRequest],
    others: &[Arc<ServiceSpec>],
    settings: &LoadBalancerSettings,
) -> ObservedNetwork {
    settle(there, |there| planned(there, asks, others, settings))
}

/// Returns the names of the load balancers that have frontends or rules of the Service.
fn places<'a>(there: &'a ObservedNetwork, spec: &ServiceSpec) -> Vec<&'a str> {
    let has_parts = |document: &&ArmLoadBalancer| {
        frontend_names(document).iter().any(|name| naming::owns_frontend(&spec.identity, name))
            || rule_names(document).iter().any(|name| naming::owns_rule(&spec.identity, name))
    };
    let mut names: Vec<_> = there.load_balancers.iter().filter(has_parts).filter_map(|it| it.name.as_deref()).collect();
    names.sort_unstable();
    names
}

pub(super) fn empty() -> ObservedNetwork {
    observed(Vec::new())
}

#[test]
fn services_are_spread_as_one_after_another_would_be() {
    let specs: Vec<ServiceSpec> = (0..30).map(|number| service(&format!("s{number:02}"))).collect();
    let asks: Vec<ServiceRequest> = specs.iter().map(ensure).collect();
    let at_once = settled(&empty(), &asks, &[], &three());
    let mut one_by_one = empty();
    for (place, ask) in asks.iter().enumerate() {
        let others: Vec<_> = specs[..place].iter().cloned().map(Arc::new).collect();
        one_by_one = settled(&one_by_one, std::slice::from_ref(ask), &others, &three());
        // ARM lists load balancers in the order of their creation.
        one_by_one.load_balancers.sort_by_key(|document| document.name.clone());
    }
    for spec in &specs {
        assert_eq!(places(&at_once, spec), places(&one_by_one, spec), "{}", spec.identity.key);
    }
    let counts: Vec<usize> = at_once.load_balancers.iter().map(|document| draft::rules(document).len()).collect();
    assert_eq!(counts, [20, 20, 20]);
}

#[test]
fn annotation_selectors_and_closed_entries_decide() {
    let closed = LoadBalancerEntry { is_closed: true, ..entry("lb4") };
    let gold = LoadBalancerEntry { service_selector: matcher("t", "gold"), ..entry("lb2") };
    let team = LoadBalancerEntry { namespace_selector: matcher("team", "x"), ..entry("lb3") };
    let both = LoadBalancerEntry {
        service_selector: matcher("t", "both"),
        namespace_selector: matcher("team", "x"),
        ..entry("lb5")
    };
    let settings = of(&[entry("kubernetes"), gold, team, closed, both]);
    let place = |spec: &ServiceSpec, team: Option<&str>| {
        let mut there = empty();
        let labels = team.map(|team| [("default".to_owned(), [("team".to_owned(), team.to_owned())].into())].into());
        there.namespace_labels = labels.unwrap_or_default();
        let outcome = planned(&there, &[ensure(spec)], &[], &settings);
        match &outcome.services[&spec.identity] {
            Ok(placed) => placed.load_balancer.as_ref().unwrap().name().to_owned(),
            Err(refusal) => refusal.to_string(),
        }
    };
    let web = service("web");
    assert_eq!(place(&web, Some("y")), "kubernetes");
    assert_eq!(place(&web, Some("x")), "lb3");
    assert_eq!(place(&with_label(web.clone(), "gold"), Some("y")), "lb2");
    // Both selectors match and the Service is on no load balancer: the first entry is chosen.
    assert_eq!(place(&with_label(web.clone(), "gold"), Some("x")), "lb2");
    assert_eq!(place(&with_label(web.clone(), "both"), Some("y")), "kubernetes", "half a match is none");
    assert_eq!(place(&named(web.clone(), &["kubernetes", "lb3"]), Some("x")), "lb3", "what selects beats what is named");
    assert!(place(&named(web.clone(), &["lb4"]), Some("x")).contains("lb4 (allowServicePlacement is false)"));
    assert!(place(&named(web.clone(), &["lb2"]), Some("x")).contains("serviceLabelSelector does not match"));
    assert!(place(&web, None).contains("labels of Namespace default are not known"));
    assert_eq!(place(&named(web.clone(), &["kubernetes"]), None), "kubernetes", "nobody asks for the labels");
    let deletion = planned(&empty(), &[remove(&web)], &[], &settings);
    assert!(deletion.services.values().all(Result::is_ok), "whatever is eligible");
}

#[test]
fn a_service_moves_when_its_entry_does_not_take_it_and_at_no_other_time() {
    let (a, b) = (service("a"), service("b"));
    let there = settled(&empty(), &[ensure(&a), ensure(&b)], &[], &three());
    assert_eq!((places(&there, &a), places(&there, &b)), (vec!["kubernetes"], vec!["lb2"]));
    let moved = named(a.clone(), &["lb3"]);
    let outcome = planned(&there, &[ensure(&moved)], &[Arc::new(b.clone())], &three());
    let reasons = outcome.changes.iter().flat_map(|change| &change.reasons).cloned().collect::<Vec<_>>().join("; ");
    let expected = "Service default/a comes from load balancer kubernetes, since the annotation names other entries";
    assert!(reasons.contains(expected), "{reasons}");
    assert_eq!(outcome.changes.iter().map(|change| change.wave).collect::<Vec<_>>(), [1, 2], "given back, then taken");
    let there = settled(&there, &[ensure(&moved)], &[Arc::new(b)], &three());
    assert_eq!(places(&there, &a), ["lb3"]);
    assert!(planned(&there, &[ensure(&a)], &[], &three()).changes.is_empty(), "without the annotation it stays");
    let closed = of(&[entry("kubernetes"), entry("lb2"), LoadBalancerEntry { is_closed: true, ..entry("lb3") }]);
    assert!(planned(&there, &[ensure(&a)], &[], &closed).changes.is_empty(), "and where the entry is closed");
    let inside = ServiceSpec { internal: true, ..a.clone() };
    let flipped = settled(&there, &[ensure(&inside)], &[], &closed);
    assert_eq!(places(&flipped, &a), ["lb3-internal"], "and when it becomes internal");
}

/// Azure may assign a released address to a frontend that requests no particular one.
#[test]
fn who_gets_any_address_comes_after_those_who_move_with_theirs() {
    let status = |address: &str, spec: ServiceSpec| ServiceSpec { status_addresses: vec![address.parse().unwrap()], ..spec };
    let mover = named(pinned("10.0.0.5", ServiceSpec { internal: true, ..service("a") }), &["lb2"]);
    let there = settled(&empty(), &[ensure(&mover)], &[], &three());
    let mover = status("10.0.0.5", named(ServiceSpec { internal: true, ..service("a") }, &["lb3"]));
    let new = named(ServiceSpec { internal: true, ..service("b") }, &["lb2"]);
    let first = planned(&there, &[ensure(&mover), ensure(&new)], &[], &three());
    assert!(first.is_interim, "{:?}", first.changes);
    let between = applied(&there, &first);
    assert_eq!((places(&between, &mover), places(&between, &new)), (vec!["lb3-internal"], vec![]));
    let after = settled(&between, &[ensure(&mover), ensure(&new)], &[], &three());
    assert_eq!((places(&after, &mover), places(&after, &new)), (vec!["lb3-internal"], vec!["lb2-internal"]));
    // Another Service has the address: Azure may choose any address.
    let holder = pinned("10.0.0.5", ServiceSpec { internal: true, ..named(service("c"), &["lb2"]) });
    let held = settled(&empty(), &[ensure(&holder)], &[], &three());
    let outcome = planned(&held, &[ensure(&mover)], &[Arc::new(holder)], &three());
    assert!(outcome.services.values().all(Result::is_ok), "{:?}", outcome.services);
}

#[test]
fn who_names_an_address_goes_where_it_is() {
    let owner = pinned("20.0.0.1", service("a"));
    let guest = ServiceSpec { ports: vec![port(Protocol::Tcp, 81, 30081)], ..pinned("20.0.0.1", service("b")) };
    let asks = [ensure(&guest), ensure(&owner), ensure(&service("c"))];
    let there = settled(&empty(), &asks, &[], &three());
    assert_eq!(places(&there, &owner), places(&there, &guest), "both are new");
    let selected = LoadBalancerEntry { service_selector: matcher("t", "x"), ..entry("lb2") };
    let settings = of(&[entry("kubernetes"), selected]);
    let there = settled(&empty(), &[ensure(&owner)], &[], &settings);
    let elsewhere = with_label(guest.clone(), "x");
    let outcome = planned(&there, &[ensure(&elsewhere)], &[Arc::new(owner.clone())], &settings);
    let told = refusal(&outcome, &elsewhere).to_string();
    let expected = "on load balancer kubernetes, which is not in the eligible set (lb2): another entry's selector matches";
    assert!(told.contains(expected), "{told}");
    let shared = settled(&there, &[ensure(&guest)], &[Arc::new(owner.clone())], &settings);
    let outcome = planned(&shared, &[ensure(&with_label(owner, "x"))], &[Arc::new(guest)], &settings);
    let is_unchanged = outcome.services.values().all(Result::is_ok) && outcome.changes.is_empty();
    assert!(is_unchanged, "others hold its frontend: {:?}", outcome.services);
}

#[test]
fn labels_do_not_evict_a_service_that_cannot_move() {
    let owner = pinned("20.0.0.1", service("a"));
    let guest = ServiceSpec { ports: vec![port(Protocol::Tcp, 81, 30081)], ..pinned("20.0.0.1", service("b")) };
    let plain = of(&["kubernetes", "lb2"].map(entry));
    let there = settled(&empty(), &[ensure(&owner), ensure(&guest)], &[], &plain);
    assert_eq!(places(&there, &guest), ["kubernetes"]);
    let of_gold = |name: &str| LoadBalancerEntry { service_selector: matcher("t", "gold"), ..entry(name) };
    for (case, label, entries) in [
        ("the address is there", "gold", [entry("kubernetes"), of_gold("lb2")]),
        ("no entry takes it", "silver", [of_gold("kubernetes"), of_gold("lb2")]),
    ] {
        let moved = with_label(guest.clone(), label);
        let outcome = planned(&there, &[ensure(&moved)], &[Arc::new(owner.clone())], &of(&entries));
        assert!(outcome.services[&moved.identity].is_ok() && outcome.changes.is_empty(), "{case}: {:?}", outcome.services);
        let outcome = planned(&there, &[ensure(&named(moved, &["lb2"]))], &[Arc::new(owner.clone())], &of(&entries));
        assert!(outcome.services.values().all(Result::is_err), "{case}: the annotation does");
    }
}

/// An internal owner could get an address elsewhere, but its guests would keep the old address without it.
#[test]
fn the_owner_of_a_shared_frontend_cannot_migrate() {
    let outside = public_ip(&naming::public_ip("kubernetes", &service("a").identity, None, IpFamily::V4, false));
    for internal in [false, true] {
        let kind = |spec: ServiceSpec| ServiceSpec { internal, ..spec };
        let owner = kind(ServiceSpec { status_addresses: vec!["10.0.0.5".parse().unwrap()], ..service("a") });
        let address = if internal { "10.0.0.5" } else { "20.0.0.1" };
        let guest = kind(ServiceSpec { ports: vec![port(Protocol::Tcp, 81, 30081)], ..pinned(address, service("b")) });
        let all = [ensure(&owner), ensure(&guest)];
        let mut ips = ips(&all);
        ips.values_mut().for_each(|id| *id = outside.clone());
        let there = applied(&empty(), &plan_load_balancers(&empty(), &all[..1], &[], &ips, &three()));
        let first = [Arc::new(owner.clone())];
        let there = applied(&there, &plan_load_balancers(&there, &all[1..], &first, &ips, &three()));
        let moved = named(owner, &["lb2"]);
        let outcome = plan_load_balancers(&there, &[ensure(&moved)], &[Arc::new(guest.clone())], &ips, &three());
        let message = refusal(&outcome, &moved).to_string();
        assert!(message.contains("cannot migrate from load balancer kubernetes"), "{message}");
        assert!(message.contains("is also used by Service default/b;"), "{message}");
        assert!(outcome.changes.is_empty());
        let together = [ensure(&moved), remove(&guest)];
        let outcome = plan_load_balancers(&there, &together, &[], &ips, &three());
        assert!(outcome.services.values().all(Result::is_ok), "{:?}", outcome.services);
    }
}

#[test]
fn what_no_entry_names_any_more_moves_with_all_that_shares_it() {
    let owner = named(pinned("20.0.0.1", service("a")), &["lb2"]);
    let owner = ServiceSpec { configurations: None, ..owner };
    let guest = ServiceSpec { ports: vec![port(Protocol::Tcp, 81, 30081)], ..pinned("20.0.0.1", service("b")) };
    let others = [service("c"), ServiceSpec { internal: true, ..service("d") }];
    let only_lb2 = of(&[LoadBalancerEntry { is_closed: true, ..entry("kubernetes") }, entry("lb2")]);
    let all: Vec<ServiceRequest> = [&owner, &guest, &others[0], &others[1]].map(ensure).into();
    let there = settled(&empty(), &all, &[], &only_lb2);
    assert_eq!(there.load_balancers.iter().filter_map(|it| it.name.as_deref()).collect::<Vec<_>>(), ["lb2", "lb2-internal"]);
    // Without entries, the first Service that is requested moves the others of its kind, too.
    let rest: Vec<Arc<ServiceSpec>> = [&owner, &others[0], &others[1]].map(|spec| Arc::new(spec.clone())).into();
    let ips_of_all = ips(&all);
    let outcome = plan_load_balancers(&there, &[ensure(&guest)], &rest, &ips_of_all, &settings());
    let after = applied(&there, &outcome);
    assert_eq!([&owner, &guest, &others[0]].map(|spec| places(&after, spec)), [["kubernetes"]; 3].map(Vec::from));
    assert_eq!(places(&after, &others[1]), ["lb2-internal"], "nobody asked for the internal ones");
    assert!(deletes(&outcome, "lb2"));
    assert!(deletes(&planned(&after, &[remove(&others[1])], &[], &settings()), "lb2-internal"));
    // From one entry to several, no Service moves.
    assert!(plan_load_balancers(&after, &all[..3], &rest[2..], &ips_of_all, &three()).changes.is_empty());
}

#[test]
fn a_service_moves_by_its_labels_and_those_of_its_namespace() {
    let team = |value: &str| LabelMap::from([("team".to_owned(), value.to_owned())]);
    let gold = LoadBalancerEntry { service_selector: matcher("t", "gold"), ..entry("lb2") };
    let team_x = LoadBalancerEntry { namespace_selector: matcher("team", "x"), ..entry("lb2") };
    let team_y = LoadBalancerEntry { namespace_selector: matcher("team", "y"), ..entry("kubernetes") };
    let web = service("web");
    let placed = |value: &str| ServiceSpec { namespace_labels: Some(team(value)), ..web.clone() };
    for (case, spec, entries, expected) in [
        ("its own label", with_label(web.clone(), "gold"), [entry("kubernetes"), gold], "lb2"),
        ("the current label of its Namespace", web.clone(), [entry("kubernetes"), team_x.clone()], "lb2"),
        ("the label that placed it", placed("y"), [entry("kubernetes"), team_x], "kubernetes"),
        ("its entry does not match", web.clone(), [team_y.clone(), entry("lb2")], "lb2"),
        ("its entry matched when it was placed", placed("y"), [team_y, entry("lb2")], "kubernetes"),
    ] {
        let settings = of(&entries);
        let mut there = empty();
        there.namespace_labels = [("default".to_owned(), team("y"))].into();
        let mut there = settled(&there, &[ensure(&web)], &[], &settings);
        assert_eq!(places(&there, &web), ["kubernetes"], "{case}");
        there.namespace_labels = [("default".to_owned(), team("x"))].into();
        assert_eq!(places(&settled(&there, &[ensure(&spec)], &[], &settings), &spec), [expected], "{case}");
    }
}

#[test]
fn a_load_balancer_that_is_too_full_is_not_chosen() {
    let crowded = |name: &str, ports: i32| {
        let ports = (1..=ports).map(|number| port(Protocol::Udp, number, 30_000 + number)).collect();
        ServiceSpec { ports, ..named(service(name), &[if name == "a" { "kubernetes" } else { "lb2" }]) }
    };
    let settings = LoadBalancerSettings { interface_rules: None, ..of(&["kubernetes", "lb2"].map(entry)) };
    let make = |first: i32, second: i32| {
        settled(&empty(), &[ensure(&crowded("a", first)), ensure(&crowded("b", second))], &[], &settings)
    };
    let web = service("web");
    let at = |there: &ObservedNetwork| places(&settled(there, &[ensure(&web)], &[], &settings), &web).join(",");
    assert_eq!(at(&make(300, 301)), "kubernetes");
    let outcome = planned(&make(302, 301), &[ensure(&web)], &[], &settings);
    let told = refusal(&outcome, &web).to_string();
    assert!(told.contains("kubernetes has 302, lb2 has 301") && told.contains("add an entry"), "{told}");
}

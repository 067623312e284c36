//! Public IPs within the limits of tags: the list of Services, and the number of tags.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::fixtures::*;
use crate::providers::azure::planner::load_balancer::{desired::ServiceRequest, spec::ServiceSpec};

const TAG: &str = "k8s-azure-service";
const ADDRESS: &str = "20.0.0.1";

fn name(number: usize) -> String {
    format!("echo-{number:02}")
}

/// Keys of Services, as the tag lists them: 16 of them have 255 characters.
fn keys(numbers: impl IntoIterator<Item = usize>) -> String {
    let keys: Vec<String> = numbers.into_iter().map(|number| format!("default/{}", name(number))).collect();
    keys.join(",")
}

/// Returns the Service for which the public IP was created, or one that shares its address.
fn spec(number: usize) -> ServiceSpec {
    if number == 1 { service(&name(1)) } else { pinned(&name(number), ADDRESS) }
}

/// Returns a cloud with one public IP that lists these Services.
fn shared_by(numbers: impl IntoIterator<Item = usize>) -> World {
    World::of(vec![pip(&name_of(&name(1)), ADDRESS, &used_by(&keys(numbers)), &json!({}))])
}

fn list(world: &World) -> String {
    world.tags(&name_of(&name(1)))[TAG].clone()
}

#[test]
fn a_free_place_goes_to_a_service_that_had_none() {
    let mut world = shared_by(1..=16);
    let remaining = |but: usize| (1..=20).filter(move |number| *number != but).map(spec).collect::<Vec<_>>();
    let outcome = world.settle(&[remove(&spec(3))], &remaining(3));
    assert_eq!((outcome.writes.len(), list(&world)), (1, keys([1, 2].into_iter().chain(4..=17))));
    // All listed Services leave: the others prove ownership, and the last one to leave releases the public IP.
    let removed: Vec<_> = (1..=17).map(|number| remove(&spec(number))).collect();
    let outcome = world.settle(&removed, &[spec(18), spec(19), spec(20)]);
    assert_eq!((outcome.releases.len(), list(&world)), (0, keys(18..=20)));
    let removed: Vec<_> = (18..=20).map(|number| remove(&spec(number))).collect();
    assert_eq!(world.settle(&removed, &[]).releases.len(), 1);

    // A Service for which the list has room is added when it is requested.
    let mut world = shared_by(1..=3);
    world.settle(&[remove(&spec(3))], &[spec(1), spec(2), spec(9)]);
    assert_eq!(list(&world), keys(1..=2));
}

#[test]
fn an_omitted_service_takes_its_label_tag_along() {
    let mut world = shared_by(1..=16);
    let mut labeled = spec(17);
    labeled.public_ip.dns_label = Some("shop".into());
    let others: Vec<_> = (1..=16).map(spec).collect();
    world.settle(&[ensure(labeled.clone())], &others);
    let label_tag = |world: &World| world.tags(&name_of(&name(1))).get("k8s-azure-dns-label-service").cloned();
    assert_eq!(label_tag(&world).as_deref(), Some("default/echo-17"));
    world.settle(&[remove(&labeled)], &others);
    assert_eq!((label_tag(&world), list(&world)), (None, keys(1..=16)));
}

#[test]
fn a_public_ip_has_at_most_fifty_tags() {
    let own: BTreeMap<_, _> = (0..50).map(|number| (format!("a{number:02}"), "v".to_owned())).collect();
    let web = with("web", |spec| {
        spec.public_ip.tags = own;
        spec.public_ip.dns_label = Some("shop".into());
    });
    let mut world = World::of(vec![]);
    world.settle(&[ensure(web.clone())], &[]);
    let tags = world.tags(&name_of("web"));
    let marks = [TAG, "k8s-azure-cluster-name", "k8s-azure-dns-label-service"];
    assert!(tags.len() == 50 && marks.iter().all(|mark| tags.contains_key(*mark)), "{tags:?}");
    let notices = world.plan(&[ensure(web)], &[]).retained;
    assert!(notices.len() == 1 && notices[0].is_notice, "{notices:?}");
    assert!(notices[0].reasons[0].contains("`a47`, `a48`, `a49`"), "{notices:?}");
}

/// A public IP that already has the maximum number of tags remains in use.
#[test]
fn a_public_ip_without_room_gets_no_label_tag() {
    let mut tags = used_by("default/web");
    (0..48).for_each(|number| tags[format!("a{number:02}")] = json!("v"));
    let mut world = World::of(vec![pip(&name_of("web"), ADDRESS, &tags, &json!({}))]);
    let web = with("web", |spec| spec.public_ip.dns_label = Some("shop".into()));
    let outcome = world.settle(&[ensure(web)], &[]);
    assert_eq!((outcome.writes.len(), world.tags(&name_of("web")).len()), (1, 50));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]
    /// Each of 24 Services is requested, kept without a request, or removed in each step.
    #[test]
    fn a_list_is_never_too_long(steps in prop::collection::vec(prop::collection::vec(0..3_u8, 24), 1..5)) {
        let mut world = shared_by(1..=1);
        for step in &steps {
            let of = |fate: u8| (1..).zip(step).filter(move |(_, it)| **it == fate).map(|(number, _)| spec(number));
            let requests: Vec<ServiceRequest> = of(0).map(ensure).chain(of(1).map(|spec| remove(&spec))).collect();
            let outcome = world.settle(&requests, &of(2).collect::<Vec<_>>());
            let lists = outcome.writes.iter().filter_map(|change| change.document.tags.as_ref()?.get(TAG)?.as_ref());
            prop_assert!(lists.clone().all(|list| list.len() <= 256), "{:?}", lists.collect::<Vec<_>>());
        }
        let removed: Vec<_> = (1..=24).map(|number| remove(&spec(number))).collect();
        world.settle(&removed, &[]);
        prop_assert_eq!(world.names(), Vec::<&str>::new());
    }
}

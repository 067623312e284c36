//! DNS labels, and public IPs that users create.

use std::collections::BTreeMap;

use serde_json::json;

use super::fixtures::*;
use crate::providers::azure::planner::load_balancer::spec::ServiceSpec;

const TAG: &str = "k8s-azure-dns-label-service";

fn label(world: &World, name: &str) -> Option<String> {
    let dns = world.get(name).unwrap().properties.clone().unwrap().dns_settings;
    dns.and_then(|dns| dns.domain_name_label)
}

/// Returns the reasons why Services do not get their labels.
fn rejections(outcome: &super::super::PublicIpPlan) -> Vec<String> {
    let of = |kept: &super::super::PublicIpRelease| format!("{}: {}", kept.services[0].key, kept.reasons.join("; "));
    outcome.retained.iter().filter(|kept| kept.reasons[0].contains("DNS label")).map(of).collect()
}

/// Returns a Service that selects the public IP `mine` by its name.
fn naming(name: &str, dns_label: Option<&str>) -> ServiceSpec {
    with(name, |spec| {
        spec.public_ip.name.v4 = Some("mine".into());
        spec.public_ip.dns_label = dns_label.map(str::to_owned);
    })
}

#[test]
fn a_users_public_ip_is_neither_tagged_nor_deleted() {
    let mut world = World::of(vec![pip("mine", "20.0.0.1", &json!({"owner": "me"}), &json!({}))]);
    world.settings.tags = [("env".to_owned(), "prod".to_owned())].into();
    let mut spec = naming("web", None);
    spec.public_ip.ip_tags = Some(vec![("a".into(), "b".into())]);
    for mutate in [false, true] {
        world.settings.mutate_ip_tags = mutate;
        let outcome = world.settle(&[ensure(spec.clone())], &[]);
        let kept: Vec<_> = outcome.retained.iter().flat_map(|kept| &kept.reasons).collect();
        assert!(outcome.writes.is_empty() && outcome.releases.is_empty(), "{outcome:?}");
        assert!(kept.len() == 1 && kept[0].contains("IP tags"), "{kept:?}");
    }
    let outcome = world.settle(&[remove(&spec)], &[]);
    assert_eq!((outcome.writes, outcome.releases), (vec![], vec![]));
}

#[test]
fn a_service_labels_the_public_ip_of_a_user() {
    let mut world = World::of(vec![pip("mine", "20.0.0.1", &json!({"owner": "me"}), &json!({}))]);
    for (wanted, expected, writes) in
        [(Some("x"), Some("x"), 1), (Some("X"), Some("x"), 0), (Some("y"), Some("y"), 1), (None, Some("y"), 0)]
    {
        let outcome = world.settle(&[ensure(naming("web", wanted))], &[]);
        assert_eq!((outcome.writes.len(), rejections(&outcome)), (writes, vec![]));
        assert_eq!(label(&world, "mine").as_deref(), expected);
        assert_eq!(world.tags("mine"), own_tags());
    }
    // A second Service on the public IP neither changes nor removes the label.
    for (wanted, reasons) in [("other", 1), ("", 0), ("y", 0)] {
        let outcome = world.settle(&[ensure(naming("guest", Some(wanted)))], &[naming("web", Some("y"))]);
        assert_eq!((outcome.writes.len(), rejections(&outcome).len()), (0, reasons), "{wanted}");
        assert!(outcome.services.values().all(Result::is_ok));
    }
}

fn own_tags() -> BTreeMap<String, String> {
    [("owner".to_owned(), "me".to_owned())].into()
}

/// Earlier versions tagged these public IPs.
#[test]
fn a_label_tag_leaves_a_users_public_ip_with_its_service() {
    let tags = json!({"owner": "me", TAG: "default/web"});
    let mut world = World::of(vec![pip("mine", "20.0.0.1", &tags, &json!({"dnsSettings": {"domainNameLabel": "shop"}}))]);
    world.settle(&[ensure(naming("web", Some("")))], &[]);
    assert_eq!(label(&world, "mine"), None);
    world.settle(&[remove(&naming("web", Some("")))], &[]);
    assert_eq!(world.tags("mine"), own_tags());
}

/// An operator's label is changed on request, and never removed.
#[test]
fn an_empty_value_removes_only_a_label_that_the_service_set() {
    let theirs = json!({"dnsSettings": {"domainNameLabel": "shop"}});
    let elsewhere = json!({"k8s-azure-service": "default/other", "k8s-azure-cluster-name": "elsewhere"});
    for (tags, wanted, expected, message) in [
        (
            json!({}),
            "",
            "shop",
            "default/web: it keeps its DNS label `shop`, which may be that of the user who created it; remove the label in Azure",
        ),
        (json!({}), "shop", "shop", ""),
        (json!({}), "new", "new", ""),
        (elsewhere.clone(), "", "shop", "default/web: it keeps its DNS label `shop`: another cluster created it"),
        (elsewhere, "new", "shop", "default/web: it keeps its DNS label `shop`: another cluster created it"),
        (used_by("default/web"), "", "shop", "default/web: it keeps its DNS label `shop`, which default/web has not set"),
    ] {
        let mut world = World::of(vec![pip("mine", "20.0.0.1", &tags, &theirs)]);
        let outcome = world.settle(&[ensure(naming("web", Some(wanted)))], &[]);
        assert!(outcome.services.values().all(Result::is_ok));
        assert_eq!(label(&world, "mine").as_deref(), Some(expected), "{tags} {wanted}");
        assert_eq!(rejections(&outcome).join("; "), message);
    }
}

#[test]
fn where_namespaces_are_enforced_a_tag_says_whose_services_may_pick_a_public_ip() {
    let tag = |namespaces: &str| json!({"k8s-azure-allowed-namespaces": namespaces});
    let made = |services: &str| used_by(services);
    for (tags, allowed) in [
        (json!({}), false),
        (tag(""), false),
        (tag("shop, default"), true),
        (tag("*"), true),
        (tag("shop"), false),
        (made("default/other"), true),
        (made("shop/other"), false),
        (made("shop/other,default/other"), false),
        (json!({"k8s-azure-service": "default/other", "k8s-azure-cluster-name": "elsewhere"}), false),
    ] {
        let mut world = World::of(vec![pip("picked", "20.0.0.1", &tags, &json!({}))]);
        let named = with("web", |spec| spec.public_ip.name.v4 = Some("picked".into()));
        for spec in [named, pinned("web", "20.0.0.1")] {
            world.settings.namespaces_are_enforced = false;
            assert!(world.plan(&[ensure(spec.clone())], &[]).services[&who("web")].is_ok(), "{tags}");
            world.settings.namespaces_are_enforced = true;
            let outcome = world.plan(&[ensure(spec.clone())], &[]);
            assert_eq!(outcome.services[&who("web")].is_ok(), allowed, "{tags}");
            assert!(allowed || outcome.writes.is_empty() && outcome.releases.is_empty());
        }
        // A public IP that was created for the Service needs no tag.
        assert!(world.plan(&[ensure(service("web"))], &[]).services[&who("web")].is_ok());
    }
}

#[test]
fn only_one_service_sets_the_label_of_a_public_ip() {
    let name = name_of("a");
    let mut world = World::of(vec![pip(&name, "20.0.0.1", &used_by("default/a"), &json!({}))]);
    world.settle(&[ensure(labeled("a", "one"))], &[]);
    // A conflict rejects the label, not the Service.
    let outcome = world.settle(&[ensure(labeled("b", "two"))], &[service("a")]);
    assert!(outcome.services.values().all(Result::is_ok));
    assert!(rejections(&outcome)[0].contains("default/b: it does not get the DNS label `two`: default/a has set"));
    assert_eq!(label(&world, &name).as_deref(), Some("one"));
    assert!(world.tags(&name)["k8s-azure-service"].contains("default/b"));
    // The owner leaves in the same batch and another Service becomes the owner. The label remains when no Service requests one.
    let outcome = world.settle(&[ensure(labeled("b", "three")), remove(&service("a"))], &[]);
    assert!(outcome.services.values().all(Result::is_ok));
    assert_eq!((label(&world, &name).as_deref(), world.tags(&name)[TAG].as_str()), (Some("three"), "default/b"));
    world.settle(&[ensure(pinned("c", "20.0.0.1"))], &[labeled("b", "three")]);
    world.settle(&[remove(&labeled("b", "three"))], &[pinned("c", "20.0.0.1")]);
    assert_eq!(label(&world, &name).as_deref(), Some("three"));
    assert!(!world.tags(&name).contains_key("k8s-azure-dns-label-service"));
}

/// Returns a Service with a DNS label. `a` has the public IP of its generated name, and others pin its address.
fn labeled(name: &str, label: &str) -> ServiceSpec {
    let mut spec = if name == "a" { service(name) } else { pinned(name, "20.0.0.1") };
    spec.public_ip.dns_label = Some(label.into());
    spec
}

#[test]
fn the_maker_of_a_public_ip_precedes_its_guests() {
    let name = name_of("b");
    let maker = |label: &str| with("b", |spec| spec.public_ip.dns_label = Some(label.into()));
    let guest = |label: &str| labeled("c", label);
    let mut world = World::of(vec![pip(&name, "20.0.0.1", &used_by("default/b"), &json!({}))]);
    world.settle(&[ensure(guest("theirs"))], &[service("b")]);
    assert_eq!(label(&world, &name).as_deref(), Some("theirs"));
    let outcome = world.settle(&[ensure(maker("own"))], &[guest("theirs")]);
    assert!(outcome.services.values().all(Result::is_ok));
    assert_eq!((label(&world, &name).as_deref(), world.tags(&name)[TAG].as_str()), (Some("own"), "default/b"));
    let outcome = world.settle(&[ensure(guest("theirs"))], &[maker("own")]);
    assert_eq!((outcome.writes.len(), rejections(&outcome).len()), (0, 1));
    // An empty label never conflicts with the current label or with a requested label.
    let outcome = world.settle(&[ensure(guest(""))], &[maker("own")]);
    assert_eq!((outcome.writes.len(), rejections(&outcome).len()), (0, 0));
    world.settle(&[ensure(maker(""))], &[guest("theirs")]);
    let outcome = world.settle(&[ensure(guest("theirs"))], &[maker("")]);
    assert_eq!((label(&world, &name).as_deref(), rejections(&outcome).len()), (Some("theirs"), 0));
}

#[test]
fn of_two_that_ask_for_a_label_at_once_the_first_by_name_gets_it() {
    let spec = |name: &str| ensure(labeled(name, name));
    for asks in [[spec("b"), spec("c")], [spec("c"), spec("b")]] {
        let mut world = World::of(vec![pip("old", "20.0.0.1", &used_by("default/x"), &json!({}))]);
        let outcome = world.settle(&asks, &[]);
        assert!(outcome.services.values().all(Result::is_ok));
        assert_eq!(label(&world, "old").as_deref(), Some("b"));
        assert!(rejections(&outcome)[0].starts_with("default/c: it does not get the DNS label `c`"));
    }
}

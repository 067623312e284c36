//! Tables of Services and the managers that serve them.

use k8s_openapi::api::core::v1::ServiceSpec;

use super::*;

const OURS: &str = "load-balancer-cleanup.example.com/azure";
const THEIRS: &str = "load-balancer-cleanup.example.com/other";

fn service(type_: &str, class: Option<&str>, finalizers: &[&str]) -> Service {
    let mut service = Service::default();
    service.metadata.finalizers = Some(finalizers.iter().map(|finalizer| (*finalizer).to_owned()).collect());
    let load_balancer_class = class.map(str::to_owned);
    service.spec = Some(ServiceSpec { type_: Some(type_.to_owned()), load_balancer_class, ..ServiceSpec::default() });
    service
}

fn classes(class: Option<&str>, without_class: bool) -> LoadBalancerClasses {
    LoadBalancerClasses::new(class, without_class).unwrap()
}

#[test]
fn a_class_determines_the_manager_of_the_load_balancer() {
    let (upstream, both, own) =
        (classes(None, true), classes(Some("example.com/azure"), true), classes(Some("example.com/azure"), false));
    assert_eq!(upstream, LoadBalancerClasses::default());
    // By class: served by upstream, by a manager of a class and of no class, and by a manager of a class only.
    for (class, expected) in [
        (None, [true, true, false]),
        (Some("example.com/azure"), [false, true, true]),
        (Some("example.com/other"), [false, false, false]),
        (Some("Example.com/azure"), [false, false, false]),
        (Some("azure"), [false, false, false]),
        (Some(""), [false, false, false]),
    ] {
        let all = [&upstream, &both, &own];
        let subject = service("LoadBalancer", class, &[]);
        assert_eq!(all.map(|classes| classes.wants(&subject)), expected, "{class:?}");
        assert_eq!(all.map(|classes| classes.is_elsewhere(&subject)), expected.map(|is_served| !is_served), "{class:?}");
        for type_ in ["ClusterIP", "NodePort", "ExternalName"] {
            let other = service(type_, class, &[]);
            assert!(all.iter().all(|classes| !classes.wants(&other) && !classes.is_elsewhere(&other)), "{type_} {class:?}");
        }
    }
}

#[test]
fn each_class_has_its_own_finalizer() {
    let own = classes(Some("example.com/azure"), true);
    assert_eq!(own.finalizer_of(&service("LoadBalancer", Some("example.com/azure"), &[])), OURS);
    assert_eq!(own.finalizer_of(&service("LoadBalancer", None, &[])), FINALIZER);
    let short = classes(Some("internal-vip"), false);
    let served = service("LoadBalancer", Some("internal-vip"), &[]);
    assert_eq!(short.finalizer_of(&served), "load-balancer-cleanup/internal-vip");
    assert_eq!([OURS, FINALIZER, THEIRS].map(|finalizer| own.is_own_finalizer(finalizer)), [true, true, false]);
    let alone = classes(Some("example.com/azure"), false);
    assert_eq!([OURS, FINALIZER, THEIRS].map(|finalizer| alone.is_own_finalizer(finalizer)), [true, false, false]);
    let upstream = LoadBalancerClasses::default();
    assert_eq!([OURS, FINALIZER, THEIRS].map(|finalizer| upstream.is_own_finalizer(finalizer)), [false, true, false]);
}

#[test]
fn finalizers_of_managers_differ_from_other_finalizers() {
    let upstream = LoadBalancerClasses::default();
    for (finalizer, expected) in [
        (OURS, true),
        ("load-balancer-cleanup/azure", true),
        (FINALIZER, false),
        ("example.com/load-balancer-cleanup", false),
        ("load-balancer-cleanupper/x", false),
        ("load-balancer-cleanup", false),
        ("service.k8s.aws/resources", false),
    ] {
        let subject = service("LoadBalancer", None, &[finalizer]);
        assert_eq!(upstream.other_finalizer(&subject).is_some(), expected, "{finalizer}");
    }
    assert!(has_cleanup_finalizer(&service("ClusterIP", None, &["x/y", THEIRS])));
    assert!(!has_cleanup_finalizer(&service("LoadBalancer", None, &["x/y"])));
}

/// The columns are `is_managed` and `is_others`, each for upstream's default and for a manager of a class only.
#[test]
fn a_service_has_one_manager_at_a_time() {
    let (upstream, own) = (LoadBalancerClasses::default(), classes(Some("example.com/azure"), false));
    let class = Some("example.com/azure");
    for (name, service, managed, others) in [
        ("new", service("LoadBalancer", None, &[]), [true, false], [false, false]),
        ("new, of the class", service("LoadBalancer", class, &[]), [false, true], [false, false]),
        ("served", service("LoadBalancer", None, &[FINALIZER]), [true, false], [false, true]),
        ("served, of the class", service("LoadBalancer", class, &[OURS]), [false, true], [true, false]),
        ("released", service("ClusterIP", None, &[FINALIZER]), [true, false], [false, true]),
        ("released, of the class", service("ClusterIP", None, &[OURS]), [false, true], [true, false]),
        ("changes to the class", service("LoadBalancer", class, &[FINALIZER]), [true, false], [false, true]),
        ("changes to none", service("LoadBalancer", None, &[OURS]), [false, true], [true, false]),
        ("finalizers of both", service("LoadBalancer", class, &[FINALIZER, OURS]), [false, true], [true, false]),
        ("released by both", service("ClusterIP", None, &[FINALIZER, OURS]), [true, true], [false, false]),
        ("of a third", service("LoadBalancer", Some("example.com/other"), &[THEIRS]), [false, false], [true, true]),
        ("of another controller", service("LoadBalancer", Some("metallb"), &["x/y"]), [false, false], [false, false]),
    ] {
        assert_eq!([&upstream, &own].map(|classes| classes.is_managed(&service)), managed, "{name}");
        assert_eq!([&upstream, &own].map(|classes| classes.is_others(&service)), others, "{name}");
    }
}

#[test]
fn classes_are_names_that_fit_into_a_finalizer() {
    let longest = format!("{}/x", vec!["a".repeat(57); 4].join("."));
    for valid in ["azure", "example.com/azure", "e/A_b.c-9", longest.as_str(), &"a".repeat(63)] {
        assert!(LoadBalancerClasses::new(Some(valid), true).is_ok(), "{valid}");
    }
    let long = format!("a{longest}");
    let name = "a".repeat(64);
    for invalid in ["", "/", "a/", "/a", "a/b/c", "Example.com/a", "-a", "a-", "a b", "ü", "a..b/c", "-a/b", &long, &name] {
        assert!(LoadBalancerClasses::new(Some(invalid), true).is_err(), "{invalid}");
    }
    assert!(LoadBalancerClasses::new(Some(&long), true).unwrap_err().contains("at most 231 characters"));
}

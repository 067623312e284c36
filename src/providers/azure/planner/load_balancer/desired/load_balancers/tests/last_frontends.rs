//! Load balancers that must not lose their last frontend.

use super::{
    entries::{empty, entry, ips, named, of},
    *,
};

fn preconfigured(settings: LoadBalancerSettings) -> LoadBalancerSettings {
    LoadBalancerSettings { preconfigured: (true, false), ..settings }
}

fn two() -> LoadBalancerSettings {
    of(&["kubernetes", "lb2"].map(entry))
}

fn planned(there: &ObservedNetwork, asks: &[ServiceRequest], settings: &LoadBalancerSettings) -> LoadBalancerPlan {
    plan_load_balancers(there, asks, &[], &ips(asks), settings)
}

/// Asserts that no write removes the last frontend of a load balancer.
fn keeps_frontends(there: &ObservedNetwork, outcome: &LoadBalancerPlan) {
    for change in &outcome.changes {
        let LoadBalancerWrite::Put(document) = &change.write else { continue };
        let had = there.load_balancer(&change.id).is_some_and(|before| !draft::frontends(before).is_empty());
        assert!(!had || !draft::frontends(document).is_empty(), "{change:?}");
    }
}

#[test]
fn a_preconfigured_one_keeps_one_of_two_and_is_not_written_again() {
    let there = made(&[&service("a"), &service("b")]);
    let asks = [remove(&service("a")), remove(&service("b"))];
    let settings = preconfigured(settings());
    let outcome = plan_with(&there, &asks, &settings);
    let document = put(&outcome, "kubernetes");
    assert_eq!((frontend_names(document).len(), rule_names(document).len()), (1, 0));
    let retained: Vec<_> =
        outcome.services.values().flat_map(|placed| placed.as_ref().unwrap().retained_frontends.clone()).collect();
    assert!(retained.len() == 1 && retained[0].uses.is_empty(), "{retained:?}");
    let after = applied(&there, &outcome);
    assert!(!outcome.frontends_of_public_ips(&there).is_empty(), "its public IP remains");
    assert!(plan_with(&after, &asks, &settings).changes.is_empty());
}

#[test]
fn the_last_service_of_a_preconfigured_one_moves_when_another_has_come() {
    let (a, b) = (named(service("a"), &["lb2"]), named(service("b"), &["lb2"]));
    let there = applied(&empty(), &planned(&empty(), &[ensure(&a)], &two()));
    let settings = preconfigured(two());
    let away = named(a.clone(), &["kubernetes"]);
    let outcome = planned(&there, &[ensure(&away)], &settings);
    assert!(outcome.changes.is_empty());
    assert!(refusal(&outcome, &a).message.contains("the last frontend of load balancer lb2"), "{:?}", outcome.services);
    let both = planned(&there, &[ensure(&away), ensure(&b)], &settings);
    assert!(both.services.values().all(Result::is_ok));
    keeps_frontends(&there, &both);
}

#[test]
fn a_circle_deletes_one_load_balancer_or_none() {
    let on = |name: &str, place: &str| named(service(name), &[place]);
    let (a, b, c) = (on("a", "kubernetes"), on("b", "lb2"), on("c", "lb2"));
    let swapped = [ensure(&on("a", "lb2")), ensure(&on("b", "kubernetes"))];
    for (more, deleted) in [(None, 1), (Some(&c), 0)] {
        let at_first: Vec<_> = [&a, &b].into_iter().chain(more).map(ensure).collect();
        let mut there = applied(&empty(), &planned(&empty(), &at_first, &two()));
        let asks: Vec<_> = swapped.iter().cloned().chain(more.map(ensure)).collect();
        let mut deletions = 0;
        for _ in 0..4 {
            let outcome = planned(&there, &asks, &two());
            keeps_frontends(&there, &outcome);
            deletions += outcome.changes.iter().filter(|change| change.write == LoadBalancerWrite::Delete).count();
            there = applied(&there, &outcome);
        }
        assert!(planned(&there, &asks, &two()).changes.is_empty());
        assert_eq!(deletions, deleted);
    }
}

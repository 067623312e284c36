//! What is remembered between calls for a Service.

use super::*;
use crate::providers::azure::{
    model::ResourceId,
    planner::load_balancer::desired::samples::{public_ip, service},
};

fn watch(policy: DriftPolicy) -> DriftWatch {
    DriftWatch::new(policy, Arc::new(Metrics::new().unwrap()), Clock::manual("2026-01-01T00:00:00Z".parse().unwrap()))
}

fn documents(id: &ResourceId) -> Vec<DriftedDocument> {
    vec![DriftedDocument { kind: &api::PUBLIC_IPS, id: id.clone(), repairs: vec!["its tags differ".to_owned()] }]
}

#[tokio::test(start_paused = true)]
async fn a_call_is_a_comparison_only_if_all_was_right_for_the_same() {
    use EnsureOrigin::{Change, Comparison, Hosts};
    let (spec, other) = (service("web"), ServiceSpec { idle_timeout: 9, ..service("web") });
    let mut with_address = spec.clone();
    with_address.status_addresses = vec!["20.0.0.1".parse().unwrap()];
    for (name, settled, spec, origin, compared) in [
        ("a start", false, &spec, Comparison, None),
        ("a comparison", true, &spec, Comparison, Some(7)),
        ("the first address", true, &with_address, Comparison, Some(7)),
        ("other Nodes", true, &spec, Hosts, Some(7)),
        ("a touched Service", true, &spec, Change, None),
        ("another spec", true, &other, Comparison, None),
    ] {
        let watch = watch(DriftPolicy::Repair);
        if settled {
            watch.settled(&service("web"), 7);
        }
        assert_eq!(watch.begin(spec, origin), compared, "{name}");
        // Whoever failed comes again as if something had changed.
        assert_eq!(watch.begin(spec, Change), compared, "{name}, again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_changes_after_a_comparison_failed_is_a_change() {
    let watch = watch(DriftPolicy::Report);
    let in_team = |team: &str| {
        let labels = BTreeMap::from([("team".to_owned(), team.to_owned())]);
        ServiceSpec { namespace_labels: Some(labels), ..service("web") }
    };
    watch.settled(&in_team("a"), 7);
    assert_eq!(watch.begin(&in_team("a"), EnsureOrigin::Comparison), Some(7));
    assert_eq!(watch.begin(&in_team("a"), EnsureOrigin::Change), Some(7), "the next try");
    assert_eq!(watch.begin(&in_team("b"), EnsureOrigin::Change), None);
}

#[tokio::test(start_paused = true)]
async fn after_a_repair_has_begun_and_after_a_doubt_nothing_is_compared() {
    let (watch, spec) = (watch(DriftPolicy::Repair), service("web"));
    watch.settled(&spec, 7);
    assert!(matches!(watch.judge(&spec.identity, documents(&public_ip("a"))), DriftVerdict::Repair(_)));
    assert_eq!(watch.begin(&spec, EnsureOrigin::Comparison), None);
    watch.settled(&spec, 7);
    watch.doubt(&spec.identity);
    assert_eq!(watch.begin(&spec, EnsureOrigin::Comparison), None);
}

#[tokio::test(start_paused = true)]
async fn what_is_reported_says_when_and_goes_with_the_service() {
    let (watch, spec) = (watch(DriftPolicy::Report), service("web"));
    let who = &spec.identity;
    watch.settled(&spec, 7);
    assert_eq!(watch.judge(who, Vec::new()), DriftVerdict::Right);
    let mut told = Vec::new();
    for _ in 0..2 {
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
        let DriftVerdict::Report(message) = watch.judge(who, documents(&public_ip("a"))) else { panic!() };
        told.push(message);
    }
    assert_eq!(told[0], told[1]);
    let expected = " (its tags differ) between 2026-01-01T00:00:00Z and 2026-01-01T00:01:00Z; it is left as it is (driftPolicy: report)";
    assert!(told[0].starts_with("somebody else changed /subscriptions/") && told[0].ends_with(expected), "{}", told[0]);
    assert_eq!((watch.status().drifted, watch.status().policy.as_str()), (1, "report"));
    watch.forget(who);
    assert_eq!(watch.status().drifted, 0);
}

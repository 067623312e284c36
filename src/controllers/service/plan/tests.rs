//! Decisions, urgency and failures as tables.

use k8s_openapi::{
    api::core::v1::{Node, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{super::needs_update::FINALIZER, *};

fn service(type_: &str, finalizer: bool) -> Service {
    let mut service = Service::default();
    service.metadata.uid = Some("u1".into());
    service.metadata.finalizers = finalizer.then(|| vec![FINALIZER.into()]);
    service.spec = Some(ServiceSpec { type_: Some(type_.into()), ..Default::default() });
    service
}

fn deleted(mut service: Service) -> Service {
    service.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    service
}

/// It got another class while nobody looked.
fn handed_over() -> Service {
    let mut service = service("LoadBalancer", true);
    service.spec.as_mut().unwrap().load_balancer_class = Some("other".into());
    service
}

fn hosts(names: &[&str]) -> NodeSet {
    let node = |name: &&str| {
        let mut node = Node::default();
        node.metadata.name = Some((*name).to_owned());
        node
    };
    NodeSet::of(&names.iter().map(node).collect::<Vec<_>>())
}

fn settled(service: &Service) -> Applied {
    Applied { settled: true, nodes: Some(hosts(&["a"])), ..Applied::unknown(Arc::new(service.clone())) }
}

#[test]
fn a_service_that_is_not_known() {
    let mut classed = service("LoadBalancer", false);
    classed.spec.as_mut().unwrap().load_balancer_class = Some("other".into());
    let cases = [
        ("gone", None, Decision::Ignore),
        ("ClusterIP", Some(service("ClusterIP", false)), Decision::Ignore),
        ("of another class", Some(classed.clone()), Decision::Ignore),
        ("of another class, deleted", Some(deleted(classed)), Decision::Ignore),
        ("of another class, with finalizer", Some(handed_over()), Decision::Cleanup),
        ("of another class, with finalizer, deleted", Some(deleted(handed_over())), Decision::Cleanup),
        ("new", Some(service("LoadBalancer", false)), Decision::Ensure(Cause::Unsettled)),
        ("with finalizer", Some(service("LoadBalancer", true)), Decision::Ensure(Cause::Unsettled)),
        ("ClusterIP with finalizer", Some(service("ClusterIP", true)), Decision::Cleanup),
        ("deleted", Some(deleted(service("LoadBalancer", true))), Decision::Cleanup),
        ("deleted, cleaned, held by others", Some(deleted(service("LoadBalancer", false))), Decision::Ignore),
    ];
    for (name, service, expected) in cases {
        assert_eq!(decide(service.as_ref(), None, &hosts(&["a"])), expected, "{name}");
    }
}

#[test]
fn a_service_that_is_known() {
    let same = service("LoadBalancer", true);
    let known = settled(&same);
    let mut changed = same.clone();
    changed.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
    let mut replaced = same.clone();
    replaced.metadata.uid = Some("u2".into());
    let orphan = Decision::DeleteOrphan(Arc::new(same.clone()));
    let answer = Answer { status: None, stage: Stage::Ready };
    let unpublished = Applied { unpublished: Some(answer.clone()), ..known.clone() };
    let verify = Applied { verify: true, ..known.clone() };
    let unsettled = Applied { settled: false, ..known.clone() };
    let (a, b) = (hosts(&["a"]), hosts(&["b"]));
    let cases = [
        ("unchanged", Some(&same), &known, &a, Decision::Ignore),
        ("other hosts", Some(&same), &known, &b, Decision::UpdateHosts),
        ("changed", Some(&changed), &known, &a, Decision::Ensure(Cause::Changed)),
        ("changed and other hosts", Some(&changed), &known, &b, Decision::Ensure(Cause::Changed)),
        ("unsettled", Some(&same), &unsettled, &b, Decision::Ensure(Cause::Unsettled)),
        ("resync", Some(&same), &verify, &a, Decision::Ensure(Cause::Resync)),
        ("unpublished", Some(&same), &unpublished, &a, Decision::Publish(answer)),
        ("changed before published", Some(&changed), &unpublished, &a, Decision::Ensure(Cause::Changed)),
        ("gone", None, &known, &a, orphan.clone()),
        ("replaced", Some(&replaced), &known, &a, orphan),
        ("deleted", Some(&deleted(same.clone())), &known, &a, Decision::Cleanup),
        ("other type, no finalizer", Some(&service("ClusterIP", false)), &known, &a, Decision::Cleanup),
    ];
    for (name, service, applied, hosts, expected) in cases {
        assert_eq!(decide(service, Some(applied), hosts), expected, "{name}");
    }
}

#[test]
fn only_settled_load_balancers_with_other_hosts_are_affected() {
    let (same, old) = (settled(&service("LoadBalancer", true)), hosts(&["a"]));
    let unsettled = Applied { settled: false, ..same.clone() };
    let all = [("same", &same), ("unsettled", &unsettled)];
    let affected = |hosts: &NodeSet| -> Vec<&str> {
        super::affected(all.iter().map(|(name, applied)| (name, *applied)), hosts).into_iter().copied().collect()
    };
    assert_eq!(affected(&old), Vec::<&str>::new());
    assert_eq!(affected(&hosts(&["a", "b"])), ["same"]);
    assert_eq!(affected(&hosts(&[])), ["same"]);
}

#[test]
fn changes_are_as_urgent_as_who_waits_for_them() {
    let (wants, cleanup) = (service("LoadBalancer", true), deleted(service("LoadBalancer", true)));
    let mut served = wants.clone();
    let ingress = Some(vec![Default::default()]);
    served.status.get_or_insert_default().load_balancer = Some(LoadBalancerStatus { ingress });
    assert_eq!(on_added(&wants, true), Some(Priority::UserChange));
    assert_eq!(on_added(&served, true), Some(Priority::Resync));
    assert_eq!(on_added(&served, false), Some(Priority::UserChange));
    assert_eq!(on_added(&cleanup, true), Some(Priority::Deletion));
    assert_eq!(on_added(&service("ClusterIP", false), false), None);
    assert_eq!(on_updated(&wants, &served), None, "our own write of the status");
    assert_eq!(on_updated(&wants, &cleanup), Some(Priority::Deletion));
    assert_eq!(on_updated(&cleanup, &cleanup), None, "does not cut the back-off short");
    assert_eq!(on_updated(&service("ClusterIP", false), &wants), Some(Priority::UserChange));
    let theirs = handed_over();
    assert_eq!(on_added(&theirs, true), Some(Priority::Resync));
    assert_eq!(on_updated(&service("ClusterIP", true), &theirs), Some(Priority::Deletion));
    assert_eq!(on_updated(&theirs, &theirs), None, "it may be the finalizer of somebody else");
    assert_eq!(on_updated(&theirs, &deleted(theirs.clone())), Some(Priority::Deletion));
}

#[test]
fn failures_are_classed_by_the_next_move() {
    let cloud = |error| Failure::Cloud { doing: "doing", error }.verdict();
    let after = Duration::from_secs(42);
    let wait = cloud(CloudError::RetryAfter { after, message: "busy".into() });
    assert!(matches!(wait.outcome, Outcome::After(delay, _) if delay == after));
    assert!(matches!(wait.stage, Some(Stage::Waiting(_))));
    let invalid = cloud(CloudError::invalid("bad port"));
    assert!(matches!(invalid.outcome, Outcome::After(delay, _) if delay == BACKOFF.max));
    assert_eq!(invalid.stage, Some(Stage::Invalid("doing: bad port".into())));
    let refused = cloud(CloudError::refused("bad port"));
    assert_eq!(refused.outcome, Outcome::Failed("doing: bad port".into()));
    assert_eq!(refused.stage, invalid.stage);
    let failed = cloud(CloudError::failed("boom"));
    assert_eq!(failed.outcome, Outcome::Failed("doing: boom".into()));
    assert_eq!(cloud(CloudError::NotLeader("x".into())).stage, None);
    let api = |error| Failure::Api { doing: "doing", error };
    assert_eq!(api(ApiError::NotFound("x".into())).verdict().outcome, Outcome::Done);
    assert!(!api(ApiError::Conflict("x".into())).is_news() && api(ApiError::Failed("x".into())).is_news());
}

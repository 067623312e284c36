//! Tables of decisions, priorities and failures.

use k8s_openapi::{
    api::core::v1::{LoadBalancerIngress, Node, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::Time,
};

use proptest::prelude::*;

use super::*;
use crate::cloud_provider::helpers::FINALIZER;

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

/// Returns a Service that got another class while no manager was running.
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

fn settled(service: &Service) -> AppliedService {
    AppliedService { synced: true, nodes: Some(hosts(&["a"])), ..AppliedService::unsynced(Arc::new(service.clone())) }
}

#[test]
fn decisions_about_untracked_services() {
    let mut classed = service("LoadBalancer", false);
    classed.spec.as_mut().unwrap().load_balancer_class = Some("other".into());
    let cases = [
        ("gone", None, ServiceAction::Ignore),
        ("ClusterIP", Some(service("ClusterIP", false)), ServiceAction::Ignore),
        ("of another class", Some(classed.clone()), ServiceAction::Ignore),
        ("of another class, deleted", Some(deleted(classed)), ServiceAction::Ignore),
        ("of another class, with finalizer", Some(handed_over()), ServiceAction::Cleanup),
        ("of another class, with finalizer, deleted", Some(deleted(handed_over())), ServiceAction::Cleanup),
        ("new", Some(service("LoadBalancer", false)), ServiceAction::Ensure(EnsureReason::NotSynced)),
        ("with finalizer", Some(service("LoadBalancer", true)), ServiceAction::Ensure(EnsureReason::NotSynced)),
        ("ClusterIP with finalizer", Some(service("ClusterIP", true)), ServiceAction::Cleanup),
        ("deleted", Some(deleted(service("LoadBalancer", true))), ServiceAction::Cleanup),
        (
            "deleted, cleaned, delayed by another finalizer",
            Some(deleted(service("LoadBalancer", false))),
            ServiceAction::Ignore,
        ),
    ];
    for (name, service, expected) in cases {
        assert_eq!(
            decide(&LoadBalancerClasses::default(), service.as_ref(), None, &hosts(&["a"]), &SelectedLabels::default()),
            expected,
            "{name}"
        );
    }
}

#[test]
fn decisions_about_tracked_services() {
    let same = service("LoadBalancer", true);
    let tracked = settled(&same);
    let mut changed = same.clone();
    changed.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
    let mut replaced = same.clone();
    replaced.metadata.uid = Some("u2".into());
    let orphan = ServiceAction::DeleteOrphan(Arc::new(same.clone()));
    let update = ServiceStatusUpdate { status: None, phase: LoadBalancerPhase::Ready };
    let unpublished = AppliedService { unpublished: Some(update.clone()), ..tracked.clone() };
    let verify = AppliedService { verify: true, ..tracked.clone() };
    let mut relabeled = tracked.clone();
    let mut elsewhere = Service::default();
    elsewhere.metadata.labels = Some([("tier".to_owned(), "gold".to_owned())].into());
    let read = crate::cloud_provider::LabelsRead { service: ["tier".to_owned()].into(), ..Default::default() };
    relabeled.labels = SelectedLabels::of(&read, &elsewhere, None);
    let unsettled = AppliedService { synced: false, ..tracked.clone() };
    let (a, b) = (hosts(&["a"]), hosts(&["b"]));
    let cases = [
        ("unchanged", Some(&same), &tracked, &a, ServiceAction::Ignore),
        ("other hosts", Some(&same), &tracked, &b, ServiceAction::UpdateHosts),
        ("changed", Some(&changed), &tracked, &a, ServiceAction::Ensure(EnsureReason::Changed)),
        ("changed and other hosts", Some(&changed), &tracked, &b, ServiceAction::Ensure(EnsureReason::Changed)),
        ("unsettled", Some(&same), &unsettled, &b, ServiceAction::Ensure(EnsureReason::NotSynced)),
        ("resync", Some(&same), &verify, &a, ServiceAction::Ensure(EnsureReason::Resync)),
        ("unpublished", Some(&same), &unpublished, &a, ServiceAction::Publish(update)),
        ("changed before published", Some(&changed), &unpublished, &a, ServiceAction::Ensure(EnsureReason::Changed)),
        ("gone", None, &tracked, &a, orphan.clone()),
        ("replaced", Some(&replaced), &tracked, &a, orphan),
        ("deleted", Some(&deleted(same.clone())), &tracked, &a, ServiceAction::Cleanup),
        ("other type, no finalizer", Some(&service("ClusterIP", false)), &tracked, &a, ServiceAction::Cleanup),
    ];
    for (name, service, applied, hosts, expected) in cases {
        assert_eq!(
            decide(&LoadBalancerClasses::default(), service, Some(applied), hosts, &SelectedLabels::default()),
            expected,
            "{name}"
        );
    }
}

/// Returns a Service as another writer may leave it.
fn any_service() -> impl Strategy<Value = Service> {
    let finalizers = prop::sample::select(vec![&[][..], &["other"], &[FINALIZER], &["other", FINALIZER]]);
    let addresses = prop::sample::select(vec![&[][..], &["20.0.0.1"], &["20.0.0.2"], &["20.0.0.1", "20.0.0.2"]]);
    let reasons =
        prop::sample::select(vec![None, Some(LoadBalancerPhase::Ready), Some(LoadBalancerPhase::Failed("x".into()))]);
    (finalizers, addresses, reasons).prop_map(|(finalizers, addresses, phase)| {
        let mut service = service("LoadBalancer", false);
        service.metadata.finalizers = Some(finalizers.iter().map(|name| (*name).to_owned()).collect());
        service.metadata.resource_version = Some("7".into());
        let status = service.status.get_or_insert_default();
        status.load_balancer = Some(published(addresses));
        status.conditions = phase.map(|phase| vec![phase.condition(None, None, jiff::Timestamp::UNIX_EPOCH)]);
        service
    })
}

fn published(addresses: &[&str]) -> LoadBalancerStatus {
    let ingress = |ip: &&str| LoadBalancerIngress { ip: Some((*ip).to_owned()), ..LoadBalancerIngress::default() };
    LoadBalancerStatus { ingress: Some(addresses.iter().map(ingress).collect()) }
}

fn ips(service: &Service) -> Vec<String> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    status.and_then(|status| status.ingress.as_ref()).into_iter().flatten().filter_map(|entry| entry.ip.clone()).collect()
}

proptest! {
    /// The leader writes exactly when the finalizer, its address or its condition is missing, and then no other address is lost.
    #[test]
    fn a_settled_service_gets_missing_parts_and_keeps_the_rest(service in any_service()) {
        let (classes, status, now) = (LoadBalancerClasses::default(), published(&["20.0.0.1"]), jiff::Timestamp::UNIX_EPOCH);
        let phase = LoadBalancerPhase::Ready;
        let applied =
            AppliedService { phase: Some(phase.clone()), published: Some(status.clone()), ..settled(&service) };
        let action = decide(&classes, Some(&service), Some(&applied), &hosts(&["a"]), &SelectedLabels::default());
        let before = ips(&service);
        let lacks_address = !before.contains(&"20.0.0.1".to_owned());
        let has_wrong_condition = status_patch::publish(&service, None, &phase, now).is_some();
        let update = ServiceStatusUpdate { status: Some(status.clone()), phase: phase.clone() };
        let expected = if status_patch::lacks_finalizer(&classes, &service) || lacks_address || has_wrong_condition {
            ServiceAction::Restore(update)
        } else if before.len() > 1 {
            ServiceAction::ReportAdditions
        } else {
            ServiceAction::Ignore
        };
        prop_assert_eq!(action, expected);

        let replaced = AppliedService { replaced: vec!["7".into()], ..applied.clone() };
        prop_assert_eq!(after_other_writer(&classes, &service, &replaced), None, "the store is behind");

        let listed = status_patch::addresses(&service, &status, Some(&status));
        let body = status_patch::restore(&classes, &service, (Some(&listed), &phase), now);
        let mut restored = serde_json::to_value(&service).unwrap();
        json_patch::merge(&mut restored, &body);
        let restored: Service = serde_json::from_value(restored).unwrap();
        let reported = AppliedService { is_reported: true, ..applied };
        prop_assert_eq!(after_other_writer(&classes, &restored, &reported), None, "one patch restores all");
        let after = ips(&restored);
        prop_assert!(before.iter().all(|ip| after.contains(ip)), "lost: {:?} of {:?}", after, before);
        prop_assert_eq!(status_patch::own_addresses(&restored, &status, &listed), status, "the others are not ours");
    }
}

#[test]
fn only_settled_load_balancers_with_other_hosts_are_affected() {
    let (same, old) = (settled(&service("LoadBalancer", true)), hosts(&["a"]));
    let unsettled = AppliedService { synced: false, ..same.clone() };
    let all = [("same", &same), ("unsettled", &unsettled)];
    let affected = |hosts: &NodeSet| -> Vec<&str> {
        super::affected(all.iter().map(|(name, applied)| (name, *applied)), hosts).into_iter().copied().collect()
    };
    assert_eq!(affected(&old), Vec::<&str>::new());
    assert_eq!(affected(&hosts(&["a", "b"])), ["same"]);
    assert_eq!(affected(&hosts(&[])), ["same"]);
}

#[test]
fn priority_depends_on_the_kind_of_change() {
    let classes = LoadBalancerClasses::default();
    let on_added = |service: &Service, initial| super::on_added(&classes, service, initial);
    let on_updated = |old: &Service, new: &Service| super::on_updated(&classes, old, new);
    let (wants, cleanup) = (service("LoadBalancer", true), deleted(service("LoadBalancer", true)));
    let mut served = wants.clone();
    let ingress = Some(vec![Default::default()]);
    served.status.get_or_insert_default().load_balancer = Some(LoadBalancerStatus { ingress });
    assert_eq!(on_added(&wants, true), Some(ReconcilePriority::UserChange));
    assert_eq!(on_added(&served, true), Some(ReconcilePriority::Resync));
    assert_eq!(on_added(&served, false), Some(ReconcilePriority::UserChange));
    assert_eq!(on_added(&cleanup, true), Some(ReconcilePriority::Deletion));
    assert_eq!(on_added(&service("ClusterIP", false), false), None);
    assert_eq!(on_updated(&wants, &served), None, "our own write of the status");
    assert_eq!(on_updated(&wants, &cleanup), Some(ReconcilePriority::Deletion));
    assert_eq!(on_updated(&cleanup, &cleanup), None, "does not cut the backoff short");
    assert_eq!(on_updated(&service("ClusterIP", false), &wants), Some(ReconcilePriority::UserChange));
    let theirs = handed_over();
    assert_eq!(on_added(&theirs, true), Some(ReconcilePriority::Resync));
    assert_eq!(on_updated(&service("ClusterIP", true), &theirs), Some(ReconcilePriority::Deletion));
    assert_eq!(on_updated(&theirs, &theirs), None, "it may be the finalizer of another component");
    assert_eq!(on_updated(&theirs, &deleted(theirs.clone())), Some(ReconcilePriority::Deletion));
}

#[test]
fn failures_determine_outcome_and_phase() {
    let cloud = |error| ServiceSyncError::Cloud { operation: "doing", error }.response();
    let after = Duration::from_secs(42);
    let wait = cloud(CloudError::RetryAfter { after, message: "busy".into() });
    assert!(matches!(wait.outcome, ReconcileResult::RequeueAfter(delay, _) if delay == after));
    assert!(matches!(wait.phase, Some(LoadBalancerPhase::Waiting(_))));
    let invalid = cloud(CloudError::invalid("bad port"));
    assert_eq!(invalid.outcome, ReconcileResult::Rejected("doing: bad port".into()));
    assert_eq!(invalid.phase, Some(LoadBalancerPhase::Invalid("doing: bad port".into())));
    let refused = cloud(CloudError::refused("bad port"));
    assert_eq!(refused.outcome, ReconcileResult::Failed("doing: bad port".into()));
    assert_eq!(refused.phase, invalid.phase);
    let failed = cloud(CloudError::failed("boom"));
    assert_eq!(failed.outcome, ReconcileResult::Failed("doing: boom".into()));
    assert_eq!(cloud(CloudError::NotLeader("x".into())).phase, None);
    let api = |error| ServiceSyncError::Api { operation: "doing", error };
    assert_eq!(api(ApiError::NotFound("x".into())).response().outcome, ReconcileResult::Done);
    assert!(!api(ApiError::Conflict("x".into())).is_reportable() && api(ApiError::Failed("x".into())).is_reportable());
}

#[test]
fn services_of_another_manager_are_handed_over() {
    const OURS: &str = "load-balancer-cleanup.example.com/azure";
    let own = LoadBalancerClasses::new(Some("example.com/azure"), false).unwrap();
    let with = |type_: &str, class: Option<&str>, finalizers: &[&str]| {
        let mut service = service(type_, false);
        service.metadata.finalizers = Some(finalizers.iter().map(|finalizer| (*finalizer).to_owned()).collect());
        service.spec.as_mut().unwrap().load_balancer_class = class.map(str::to_owned);
        service
    };
    let (class, upstream) = (Some("example.com/azure"), LoadBalancerClasses::default());
    let (new, wait) =
        (ServiceAction::Ensure(EnsureReason::NotSynced), |finalizer: &str| ServiceAction::Wait(finalizer.to_owned()));
    let (ignore, cleanup, hand_over) = (ServiceAction::Ignore, ServiceAction::Cleanup, ServiceAction::HandOver);
    // Per Service: the decisions of a manager with upstream's default, and of one that serves only the class.
    for (name, service, expected) in [
        ("new", with("LoadBalancer", None, &[]), [new.clone(), ignore.clone()]),
        ("new, of the class", with("LoadBalancer", class, &[]), [ignore.clone(), new.clone()]),
        ("with finalizer", with("LoadBalancer", None, &[FINALIZER]), [new.clone(), ignore.clone()]),
        ("with finalizer, of the class", with("LoadBalancer", class, &[OURS]), [ignore.clone(), new.clone()]),
        ("type changed", with("ClusterIP", None, &[FINALIZER]), [cleanup.clone(), ignore.clone()]),
        ("type changed, of the class", with("ClusterIP", None, &[OURS]), [ignore.clone(), cleanup.clone()]),
        ("deleted", deleted(with("LoadBalancer", None, &[FINALIZER])), [cleanup.clone(), ignore.clone()]),
        ("deleted, of the class", deleted(with("LoadBalancer", class, &[OURS])), [ignore.clone(), cleanup.clone()]),
        ("changes to the class", with("LoadBalancer", class, &[FINALIZER]), [cleanup.clone(), wait(FINALIZER)]),
        ("changes to none", with("LoadBalancer", None, &[OURS]), [wait(OURS), cleanup.clone()]),
        ("changed, deleted", deleted(with("LoadBalancer", class, &[FINALIZER])), [cleanup.clone(), hand_over.clone()]),
        ("both finalizers", with("LoadBalancer", class, &[FINALIZER, OURS]), [hand_over.clone(), new]),
        ("both finalizers, deleted", deleted(with("LoadBalancer", None, &[FINALIZER, OURS])), [cleanup.clone(), hand_over]),
        ("both finalizers, type changed", with("ClusterIP", None, &[FINALIZER, OURS]), [cleanup.clone(), cleanup]),
        ("of a third manager", with("LoadBalancer", Some("x"), &["load-balancer-cleanup/x"]), [ignore.clone(), ignore]),
    ] {
        let decided = |classes| decide(classes, Some(&service), None, &hosts(&["a"]), &SelectedLabels::default());
        assert_eq!([&upstream, &own].map(decided), expected, "{name}");
    }
    let (shared, released) = (with("LoadBalancer", class, &[FINALIZER]), with("LoadBalancer", class, &[]));
    assert_eq!(on_updated(&own, &shared, &released), Some(ReconcilePriority::UserChange), "the finalizer was removed");
    assert_eq!(on_updated(&upstream, &shared, &released), None);
    assert_eq!(on_updated(&own, &released, &with("LoadBalancer", class, &[OURS])), None);
}

//! Cached state of Services: upstream's `TestServiceCache` and more.

use k8s_openapi::api::core::v1::ServiceSpec;

use super::*;

fn service(uid: &str, type_: &str) -> Arc<Service> {
    let mut service = Service::default();
    service.metadata.name = Some("web".into());
    service.metadata.uid = Some(uid.into());
    service.spec = Some(ServiceSpec { type_: Some(type_.into()), ..Default::default() });
    Arc::new(service)
}

fn key() -> ObjectKey {
    ObjectKey::of(service("u1", "LoadBalancer").as_ref())
}

fn uid(state: &ServiceCache) -> Option<&str> {
    state.get(&key()).and_then(|applied| applied.service.metadata.uid.as_deref())
}

#[test]
fn the_leader_forgets_nothing_that_it_has_not_cleaned_up() {
    let mut state = ServiceCache::default();
    let old = service("u1", "LoadBalancer");
    assert!(!state.observe(&ObjectChange::Added(Arc::clone(&old)), true));
    state.observe(&ObjectChange::Updated { old: Arc::clone(&old), new: service("u1", "ClusterIP") }, true);
    assert!(state.observe(&ObjectChange::Deleted(old), true), "it was deleted and may have a load balancer");
    state.observe(&ObjectChange::Added(service("u2", "LoadBalancer")), true);
    assert_eq!(uid(&state), Some("u1"));
    state.forget(&key());
    assert!(!state.observe(&ObjectChange::Deleted(service("u2", "LoadBalancer")), true));
}

#[test]
fn equal_requests_share_the_memory_of_the_store() {
    let mut state = ServiceCache::default();
    let old = service("u1", "LoadBalancer");
    let new = Arc::new(Service { status: Some(Default::default()), ..old.as_ref().clone() });
    state.observe(&ObjectChange::Added(Arc::clone(&old)), true);
    state.observe(&ObjectChange::Updated { old, new: Arc::clone(&new) }, true);
    assert!(Arc::ptr_eq(&state.get(&key()).unwrap().service, &new), "the old version is still in memory");
}

#[test]
fn a_standby_follows_the_watch() {
    let mut state = ServiceCache::default();
    let old = service("u1", "LoadBalancer");
    state.observe(&ObjectChange::Added(Arc::clone(&old)), false);
    state.observe(&ObjectChange::Updated { old: Arc::clone(&old), new: service("u2", "LoadBalancer") }, false);
    assert_eq!(uid(&state), Some("u2"));
    assert!(!state.observe(&ObjectChange::Deleted(old), false));
    assert_eq!(uid(&state), None);
}

#[test]
fn cached_state_is_unsynced_during_a_call() {
    let mut state = ServiceCache::default();
    let (service, set) = (service("u1", "LoadBalancer"), NodeSet::of([]));
    state.mark_pending(&key(), &service, LoadBalancerPhase::Ensuring);
    assert!(!state.get(&key()).unwrap().synced);
    state.mark_synced(
        &key(),
        (&set, SelectedLabels::default()),
        ServiceStatusUpdate { status: None, phase: LoadBalancerPhase::Ready },
    );
    state.mark_published(&key(), None);
    assert_eq!(state.verify_all(), [key()]);
    let applied = state.get(&key()).unwrap();
    assert!(applied.synced && applied.verify && applied.unpublished.is_none() && applied.nodes == Some(set));
    assert_eq!(state.phases(), [("Ready", 1)].into());
    state.mark_pending(&key(), &service, LoadBalancerPhase::Updating);
    state.postpone_update(&key());
    assert!(state.get(&key()).unwrap().synced);
}

#[test]
fn a_check_requested_during_a_call_follows_it() {
    let mut state = ServiceCache::default();
    let (service, set) = (service("u1", "LoadBalancer"), NodeSet::of([]));
    let success = || ServiceStatusUpdate { status: None, phase: LoadBalancerPhase::Ready };
    state.mark_pending(&key(), &service, LoadBalancerPhase::Ensuring);
    state.verify_all();
    state.mark_synced(&key(), (&set, SelectedLabels::default()), success());
    assert!(state.get(&key()).unwrap().verify, "the call began before");
    state.mark_pending(&key(), &service, LoadBalancerPhase::Ensuring);
    state.mark_synced(&key(), (&set, SelectedLabels::default()), success());
    assert!(!state.get(&key()).unwrap().verify);
}

#[tokio::test(start_paused = true)]
async fn unread_changes_are_compared_once_in_five_minutes() {
    let (mut state, start, minute) = (ServiceCache::default(), Instant::now(), Duration::from_secs(60));
    let [first, second, third] = ["u1"; 3].map(|uid| service(uid, "LoadBalancer"));
    state.observe(&ObjectChange::Added(Arc::clone(&first)), true);
    assert_eq!(state.attempted(&key()), None, "no call was made");
    state.mark_pending(&key(), &first, LoadBalancerPhase::Ensuring);
    assert_eq!(state.postpone_change((&key(), &first), &second, start), Some(5 * minute));
    assert_eq!(state.postpone_change((&key(), &first), &third, start), None, "another version is compared");
    assert_eq!(state.postpone_change((&key(), &second), &third, start + minute), Some(4 * minute), "with the first one");
    let is_requested = |state: &ServiceCache| state.get(&key()).unwrap().verify;
    assert_eq!((state.begin_comparison(&key(), start + minute), is_requested(&state)), (Some(4 * minute), false));
    assert_eq!((state.begin_comparison(&key(), start + 5 * minute), is_requested(&state)), (None, true));
    state.mark_pending(&key(), &third, LoadBalancerPhase::Ensuring);
    assert_eq!((state.begin_comparison(&key(), start + 6 * minute), is_requested(&state)), (None, false), "it began");
    assert!(Arc::ptr_eq(&state.attempted(&key()).unwrap(), &third));
}

#[tokio::test(start_paused = true)]
async fn node_sync_lasts_from_the_first_node_to_the_last_service() {
    let (mut state, start) = (ServiceCache::default(), Instant::now());
    let second = Duration::from_secs(1);
    state.nodes_changed(start);
    state.nodes_changed(start + second);
    assert_eq!(state.begin_node_sync(&[key(), ObjectKey::cluster("other")], start + second), None);
    assert_eq!(state.end_node_sync(&key(), start + second), None);
    assert_eq!(state.end_node_sync(&ObjectKey::cluster("other"), start + 3 * second), Some(3 * second));
    assert_eq!(state.end_node_sync(&key(), start), None);
    assert_eq!(state.begin_node_sync(&[], start), Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn gauges_cover_a_service_from_first_attempt_to_publication() {
    let metrics = Metrics::new().unwrap();
    let mut state = ServiceCache::default();
    let web = service("u1", "LoadBalancer");
    state.observe(&ObjectChange::Added(Arc::clone(&web)), true);
    let count = |reason: &str, stage: &str| metrics.services.with_label_values(&[stage, reason]).get();
    let oldest = || metrics.oldest_unsettled_service.with_label_values::<&str>(&[]).get();
    let publish = |state: &ServiceCache, leading| state.publish(&metrics, leading, Instant::now());
    publish(&state, true);
    assert_eq!((count("Pending", "new"), count("Ready", "settled"), oldest()), (1.0, 0.0, 0.0));

    state.mark_pending(&key(), &web, LoadBalancerPhase::Ensuring);
    tokio::time::advance(Duration::from_secs(60)).await;
    state.set_phase(&key(), LoadBalancerPhase::Failed("no".into()));
    tokio::time::advance(Duration::from_secs(60)).await;
    publish(&state, true);
    assert_eq!((count("Pending", "new"), count("Failed", "blocked"), oldest()), (0.0, 1.0, 120.0));
    publish(&state, false);
    assert_eq!((count("Failed", "blocked"), oldest()), (0.0, 0.0), "a standby reconciles none");

    let update = ServiceStatusUpdate { status: None, phase: LoadBalancerPhase::Ready };
    state.mark_synced(&key(), (&NodeSet::of([]), SelectedLabels::default()), update);
    publish(&state, true);
    assert_eq!(oldest(), 120.0, "the status is not published yet");
    state.mark_published(&key(), None);
    publish(&state, true);
    assert_eq!((count("Ready", "settled"), oldest()), (1.0, 0.0));

    state.mark_pending(&key(), &web, LoadBalancerPhase::Updating);
    state.forget(&key());
    tokio::time::advance(Duration::from_secs(60)).await;
    publish(&state, true);
    assert_eq!(oldest(), 0.0);
}

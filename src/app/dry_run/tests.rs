use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use tokio::sync::watch;

use super::*;
use crate::{
    providers::fake::{CallName, FakeCloud, FakeConfig},
    runtime::{leader_election::Leadership, store::InformerStore},
};

/// A process that does not lead, with these Services and this cloud.
fn standby(services: impl IntoIterator<Item = String>, cloud: FakeCloud) -> Arc<ManagerState> {
    let service = |name: String| -> Service {
        let ports = json!([{"port": 80, "protocol": "TCP"}]);
        let spec = json!({"type": "LoadBalancer", "ports": ports});
        serde_json::from_value(json!({"metadata": {"namespace": "a", "name": name, "uid": name}, "spec": spec})).unwrap()
    };
    let (_leading, leadership) = Leadership::channel();
    Arc::new(ManagerState {
        leadership,
        election: None,
        migration: None,
        nodes: InformerStore::<Node>::of(Vec::new()),
        classes: crate::cloud_provider::load_balancer_class::LoadBalancerClasses::default(),
        services: Some(InformerStore::of(services.into_iter().map(service))),
        namespaces: Default::default(),
        endpoint_slices: Default::default(),
        provider: Arc::new(cloud),
        provider_ready: watch::channel(Some(Ok(()))).1,
        controllers: Vec::new(),
        skipped: Vec::new(),
        is_shadow: false,
    })
}

fn of_services(after: Option<String>) -> DryRunScope {
    DryRunScope::Cluster { kind: Some(DryRunKind::Services), after }
}

/// The Services that pages are about, each page from where the one before ended; fails when a page is too long.
async fn headings<F: Future<Output = String>>(page: impl Fn(Option<String>) -> F) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let text = page(after.clone()).await;
        assert!(text.len() <= 512 * 1024, "{} bytes", text.len());
        let named = text.lines().filter_map(|line| line.strip_prefix("Service "));
        found.extend(named.map(str::to_owned));
        let Some((_, next)) = text.rsplit_once("&after=") else { return found };
        assert!(found.len() <= 1_000, "the pages come to no end");
        after = Some(next.trim().to_owned());
    }
}

#[test]
fn sections_and_pages_are_bounded_and_say_so() {
    assert_eq!(section("Routes", " \n"), "Routes\n  nothing to do\n");
    assert_eq!(section("Routes", "a\n  b\n"), "Routes\n  a\n    b\n");
    let long = section("Routes", &"x\n".repeat(LINES + 2));
    assert!(long.ends_with("  x\n  2 more lines are left out\n") && long.lines().count() == LINES + 2);
    let cut = section("Routes", &format!("a\n{}\nb\n", "x".repeat(LONGEST_SECTION)));
    assert_eq!(cut, format!("Routes\n  a\n  {}…\n  b\n", "x".repeat(LONGEST_LINE)));
    let keys: Vec<String> = ["a/a", "a/b", "a/c"].map(str::to_owned).into();
    assert_eq!(left_out(&keys, 3, None), "");
    assert_eq!(left_out(&keys, 2, None), "1 more Services are left out: see /planz?kind=services&after=a/b\n");
    assert_eq!(left_out(&keys, 0, Some("a/0")), "3 more Services are left out: see /planz?kind=services&after=a/0\n");
}

#[tokio::test(start_paused = true)]
async fn what_takes_too_long_is_left_out() {
    let until = Instant::now() + PATIENCE;
    assert_eq!(in_time(std::future::ready(1), until).await, Some(1));
    assert_eq!(in_time(std::future::pending::<u8>(), until).await, None);
    assert_eq!(in_time(std::future::ready(1), until).await, None, "the time is over");
}

#[test]
fn what_is_the_users_to_change_is_told_apart_from_what_the_cloud_does_not_tell() {
    for (error, code, part) in [
        (CloudError::invalid("spec.ports: no"), 422, "refused: spec.ports: no"),
        (CloudError::refused("spec.ports: no"), 422, "refused: spec.ports: no"),
        (CloudError::NotImplemented, 501, "\"some\""),
        (CloudError::failed("HTTP 500"), 502, "HTTP 500"),
        (CloudError::Deadline { call: "plan_load_balancer", limit: std::time::Duration::from_secs(9) }, 504, "9s"),
    ] {
        let told = cloud_refusal("some", &error);
        assert!(told.code == code && told.reason.contains(part), "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_are_bounded_in_bytes_and_go_on_without_loss_or_repetition() {
    let keys: Vec<String> = (0..230).map(|number| format!("a/{number:03}")).collect();
    for line in ["x", &"x".repeat(30_000), &"x".repeat(LONGEST_PAGE)] {
        let plan = |_: String| async move { Ok([line; 40].join("\n")) };
        // Other sections came before.
        let bounds = || (Instant::now() + PATIENCE, LONGEST_PAGE - 3 * LONGEST_SECTION);
        let page = |after: Option<String>| {
            let (keys, bounds) = (&keys, bounds());
            async move {
                let text = plan_services(keys, after.as_deref(), bounds, plan).await;
                assert!(text.len() <= bounds.1, "{} bytes", text.len());
                text
            }
        };
        assert_eq!(headings(page).await, keys, "lines of {}", line.len());
    }
    let long = "x\n".repeat(LONGEST_PAGE);
    let told = first_lines(&long, "", (usize::MAX, LONGEST_PAGE - LONGEST_END));
    assert!(told.len() <= LONGEST_PAGE && told.ends_with(" more lines are left out\n"));
}

#[tokio::test(start_paused = true)]
async fn the_pages_of_a_standby_name_every_service_once_and_ask_for_each_once() {
    let names: Vec<String> = (0..SERVICES * 2 + 30).map(|number| format!("s{number:03}")).collect();
    let cloud = FakeCloud::new(FakeConfig::any_node());
    let planner = planner(&standby(names.clone(), cloud.clone()), None, "kubernetes".to_owned());
    let found = headings(|after| planner(of_services(after)).map(Result::unwrap)).await;
    assert_eq!(found, names.iter().map(|name| format!("a/{name}")).collect::<Vec<_>>());
    assert_eq!(usize::try_from(cloud.call_count(CallName::PlanLoadBalancer)).unwrap(), names.len());
    assert_eq!(planner(of_services(None)).await, planner(of_services(None)).await);
    assert_eq!(cloud.call_count(CallName::EnsureLoadBalancer), 0);
}

#[tokio::test(start_paused = true)]
async fn one_plan_of_the_cluster_is_made_at_a_time() {
    let cloud = FakeCloud::new(FakeConfig::any_node());
    cloud.set_latency(CallName::PlanLoadBalancer, Duration::from_secs(5));
    let planner = planner(&standby(["web".to_owned()], cloud), None, "kubernetes".to_owned());
    let first = async { planner(of_services(None)).await.unwrap() };
    let others = async {
        let refusal = planner(of_services(None)).await;
        // One Service costs little.
        planner(DryRunScope::Service("a/web".to_owned())).await.unwrap();
        refusal
    };
    let (told, refusal) = tokio::join!(first, others);
    let busy = "another plan of the cluster is being made: ask again in a moment".to_owned();
    assert_eq!(refusal, Err(DryRunError { code: 503, reason: busy }));
    assert_eq!(planner(of_services(None)).await.unwrap(), told, "it is over");
}

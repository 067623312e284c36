use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::{
    cloud_provider::{CloudError, CloudResult, PlannedWrite, WritePlan, load_balancer_class::LoadBalancerClasses},
    controllers::{
        Controller,
        names::{ControllerNames, NODE, ROUTE, SERVICE},
    },
    providers::fake::{FakeCloud, FakeConfig},
    runtime::{leader_election::Leadership, shutdown::Shutdown, store::InformerStore, watch},
    status::ControllerStatus,
};

/// Controller that plans one write for each Service, and records the keys of planned Services.
#[derive(Default)]
struct Planning {
    delay: Duration,
    /// Reasons of each write; long ones make long pages.
    reasons: Vec<String>,
    result: Option<CloudResult<WritePlan>>,
    planned_keys: Mutex<Vec<String>>,
}

impl Controller for Planning {
    fn run(self: Arc<Self>, _: Shutdown) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
    fn status(&self) -> ControllerStatus {
        ControllerStatus::default()
    }
    fn plan<'a>(&'a self, scope: &'a ServiceScope) -> BoxFuture<'a, CloudResult<WritePlan>> {
        Box::pin(async move {
            tokio::time::sleep(self.delay).await;
            let ServiceScope::Only(keys) = scope else { panic!("a page plans for some Services") };
            self.planned_keys.lock().extend(keys.iter().cloned());
            let write = |key: &String| {
                let write = PlannedWrite::patch("service", "/x".to_owned(), "why", json!({})).on_behalf_of(key);
                PlannedWrite { reasons: self.reasons.clone(), ..write }
            };
            let writes = keys.iter().map(write).collect();
            self.result.clone().unwrap_or_else(|| Ok(WritePlan { writes, ..WritePlan::default() }))
        })
    }
}

/// Returns the pages of a standby with `count` Services.
fn pages(count: usize, planning: Planning) -> (Planner, Arc<Planning>) {
    let planning = Arc::new(planning);
    (pages_of(count, vec![(SERVICE, Arc::clone(&planning) as Arc<dyn Controller>)]), planning)
}

fn pages_of(count: usize, controllers: Vec<(ControllerNames, Arc<dyn Controller>)>) -> Planner {
    let service = |number: usize| -> Service {
        let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}]});
        let name = format!("s{number:03}");
        serde_json::from_value(json!({"metadata": {"namespace": "a", "name": name, "uid": name}, "spec": spec})).unwrap()
    };
    let (_leading, leadership) = Leadership::channel();
    let state = ManagerState {
        leadership,
        election: None,
        migration: None,
        nodes: InformerStore::<Node>::of(Vec::new()),
        classes: LoadBalancerClasses::default(),
        services: Some(InformerStore::of((0..count).map(service))),
        namespaces: Default::default(),
        endpoint_slices: Default::default(),
        provider: Arc::new(FakeCloud::new(FakeConfig::any_node())),
        provider_ready: watch::channel(Some(Ok(()))).1,
        controllers,
        skipped: vec![("cloud-node-controller", "switched off".to_owned())],
        is_dry_run: false,
    };
    planner(&Arc::new(state), None)
}

fn of_services(after: Option<String>) -> PlanRequest {
    PlanRequest::Cluster { kind: Some(PlanKind::Services), after }
}

#[test]
fn long_sections_end_with_the_number_of_omitted_lines() {
    assert_eq!(bounded("Routes\n  a\n    b\n"), "Routes\n  a\n    b\n");
    assert_eq!(bounded(&format!("{}\nb\n", "x".repeat(MAX_SECTION))), format!("{}…\nb\n", "x".repeat(MAX_LINE)));
    let long = bounded(&"x\n".repeat(MAX_SECTION));
    assert!(long.len() < MAX_SECTION + 2 * 1024 + MAX_SECTION && long.ends_with(" more lines are omitted\n"));
}

#[tokio::test(start_paused = true)]
async fn pages_of_a_standby_cover_every_service_once() {
    let count = MAX_SERVICES * 2 + 30;
    let (planner, planning) = pages(count, Planning { reasons: vec!["x".repeat(30_000)], ..Planning::default() });
    let mut after = None;
    loop {
        let text = planner(of_services(after)).await.unwrap();
        assert!(text.len() <= 512 * 1024, "{} bytes", text.len());
        let Some((_, next)) = text.rsplit_once("&after=") else { break };
        after = Some(next.trim().to_owned());
    }
    let expected: Vec<_> = (0..count).map(|number| format!("a/s{number:03}")).collect();
    assert_eq!(*planning.planned_keys.lock(), expected);
    assert_eq!(planner(of_services(None)).await, planner(of_services(None)).await);
}

#[tokio::test(start_paused = true)]
async fn a_page_shows_the_requested_parts() {
    let (planner, _) = pages(1, Planning { reasons: vec!["why".to_owned()], ..Planning::default() });
    let request = |kind| PlanRequest::Cluster { kind, after: None };
    let all = planner(request(None)).await.unwrap();
    let services = "Services\n  PATCH /x: why (for a/s000)\n";
    let skipped = "Nodes\n  not planned: switched off\n";
    assert!(all.starts_with(services) && all.contains(skipped), "{all}");
    assert!(all.ends_with("1 writes planned, 0 leftovers would be removed\n"), "{all}");
    let nodes = planner(request(Some(PlanKind::Nodes))).await.unwrap();
    assert!(nodes.starts_with(skipped) && !nodes.contains("Services"), "{nodes}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_part_does_not_hide_the_others() {
    let planning = |seconds| -> Arc<dyn Controller> {
        Arc::new(Planning { delay: Duration::from_secs(seconds), reasons: vec!["why".to_owned()], ..Planning::default() })
    };
    let slow = || planning(200);
    for (controllers, late) in [
        ([(SERVICE, slow()), (ROUTE, planning(5)), (NODE, planning(5))], "Services"),
        ([(SERVICE, planning(40)), (ROUTE, slow()), (NODE, planning(5))], "Routes"),
        ([(SERVICE, planning(40)), (ROUTE, planning(5)), (NODE, slow())], "Nodes"),
    ] {
        let start = Instant::now();
        let text = pages_of(1, controllers.into())(PlanRequest::Cluster { kind: None, after: None }).await.unwrap();
        assert!(start.elapsed() <= PLAN_TIMEOUT + Duration::from_secs(1), "{late}: {:?}", start.elapsed());
        for heading in ["Services", "Routes", "Nodes"] {
            let is_planned = text.contains(&format!("{heading}\n  PATCH /x: why (for a/s000)\n"));
            assert_eq!(is_planned, heading != late, "{heading}: {text}");
        }
        assert!(text.contains(&format!("  {late}: no plan was made in time\n")), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn cluster_plans_are_made_one_at_a_time() {
    let (planner, _) = pages(1, Planning { delay: Duration::from_secs(5), ..Planning::default() });
    let first = async { planner(of_services(None)).await.unwrap() };
    let others = async {
        let refusal = planner(of_services(None)).await;
        // The plan for one Service is not limited.
        planner(PlanRequest::Service("a/s000".to_owned())).await.unwrap();
        refusal
    };
    let (text, refusal) = tokio::join!(first, others);
    assert_eq!(refusal.map_err(|error| error.code), Err(503));
    assert_eq!(planner(of_services(None)).await.unwrap(), text, "the first plan has ended");
}

#[tokio::test(start_paused = true)]
async fn status_distinguishes_refusals_from_failed_reads() {
    let refused = WritePlan { refused: ["Service a/s000: no such protocol".to_owned()].into(), ..WritePlan::default() };
    for (result, delay, code, part) in [
        (Ok(refused), 0, 422, "  refused: Service a/s000: no such protocol\n"),
        (
            Err(CloudError::failed("HTTP 500")),
            0,
            502,
            "INCOMPLETE: this could not be read, and may hide changes:\n  HTTP 500\n",
        ),
        (Err(CloudError::NotImplemented), 0, 502, "the cloud provider does not plan its writes"),
        (Ok(WritePlan::default()), 200, 502, "no plan was made in time"),
    ] {
        let planning = Planning { result: Some(result), delay: Duration::from_secs(delay), ..Planning::default() };
        let error = pages(1, planning).0(PlanRequest::Service("a/s000".to_owned())).await.unwrap_err();
        assert!(error.code == code && error.reason.contains(part), "{error:?}");
    }
    let (planner, _) = pages(1, Planning { result: Some(Ok(WritePlan::default())), ..Planning::default() });
    let text = planner(PlanRequest::Service("a/s000".to_owned())).await.unwrap();
    assert_eq!(text, "Services\n  nothing to do\n0 writes planned, 0 leftovers would be removed\n");
    assert_eq!(planner(PlanRequest::Service("a/none".to_owned())).await.unwrap_err().code, 404);
}

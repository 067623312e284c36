//! The route controller against the in-memory API server and the fake cloud.

#![allow(clippy::unwrap_used, reason = "helpers of tests outside test functions")]

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cloud_controller_manager::{
    cloud_provider::{CloudError, Route, Routes, WritePlan},
    controllers::{
        Controller, ControllerContext, Informers, ServiceScope,
        route::{NodeMaskSizes, RESYNC_PERIOD, RouteController, RouteControllerConfig, RouteControllerError},
    },
    metrics::Metrics,
    providers::fake::{CallBehavior, CallName, FakeCloud, FakeConfig},
    runtime::{
        clock::Clock,
        events::{EventRecorder, RecordedEvent},
        informer::Informer,
        leader_election::{Leadership, LeadershipState},
        patch::ObjectWriter,
        shutdown::Shutdown,
        store::InformerStore,
    },
    sandbox::{api_server::ApiServer, faults::on, http::Verb, objects::NodeExt},
};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use proptest::prelude::*;
use serde_json::json;
use tokio::sync::mpsc;

const CLUSTER: &str = "kubernetes";
const PERIOD: Duration = Duration::from_secs(10);

/// Cluster with a running controller.
struct Bench {
    server: ApiServer,
    cloud: FakeCloud,
    controller: Arc<RouteController>,
    metrics: Arc<Metrics>,
    nodes: InformerStore<Node>,
    events: mpsc::Receiver<(&'static str, RecordedEvent)>,
    shutdown: Shutdown,
}

fn config() -> RouteControllerConfig {
    RouteControllerConfig {
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        reconciliation_period: PERIOD,
        watch_based: true,
        nodes_are_filtered: false,
        node_masks: NodeMaskSizes::default(),
    }
}

impl Bench {
    async fn start(server: ApiServer, cloud: FakeCloud, leadership: Leadership) -> Self {
        Self::start_with(server, cloud, leadership, (true, false)).await
    }

    async fn start_with(
        server: ApiServer,
        cloud: FakeCloud,
        leadership: Leadership,
        (watch_based, nodes_are_filtered): (bool, bool),
    ) -> Self {
        let metrics = Arc::new(Metrics::new().unwrap());
        let (recorder, events) = EventRecorder::channel("route-controller");
        let context = ControllerContext {
            cluster_name: CLUSTER.into(),
            writer: ObjectWriter::new(server.client(), leadership),
            events: recorder,
            clock: Clock::System,
            metrics: Arc::clone(&metrics),
        };
        let mut informers = Informers::new(Informer::new(|_| {}), Informer::new(|_| {}));
        let config = RouteControllerConfig { watch_based, nodes_are_filtered, ..config() };
        let controller = RouteController::new(&context, &mut informers, Arc::new(cloud.clone()), config).unwrap();
        let (nodes, shutdown) = (informers.nodes.store(), Shutdown::new());
        informers.nodes.start(server.client(), &shutdown, Arc::clone(&metrics));
        nodes.synced().await;
        tokio::spawn(Arc::clone(&controller).run(shutdown.clone()));
        Self { server, cloud, controller, metrics, nodes, events, shutdown }
    }

    async fn new() -> Self {
        let server = ApiServer::new(Clock::System);
        Self::start(server, FakeCloud::new(FakeConfig::any_node()), Leadership::unopposed()).await
    }

    /// Waits for the first reconcile.
    async fn begun(&self) {
        self.cloud.wait_until(|cloud| cloud.call_count(CallName::ListRoutes) > 0).await;
        self.settled().await;
    }

    /// Waits until nothing is pending, running or failing.
    async fn settled(&self) {
        while !self.controller.status().unsettled.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the store of the controller has `count` Nodes.
    async fn seen(&self, count: usize) {
        while self.nodes.len() != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn wait_for_condition(&self, node: &str, expected: (&str, &str)) {
        self.server
            .wait_until(|server| condition(server, node).is_some_and(|(s, r)| (s.as_str(), r.as_str()) == expected))
            .await;
    }

    fn routes(&self) -> BTreeSet<(String, String)> {
        self.cloud.routes().into_iter().map(|route| (route.target_node, route.destination_cidr)).collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

const CREATED: (&str, &str) = ("False", "RouteCreated");
const NOT_CREATED: (&str, &str) = ("True", "NoRouteCreated");

fn condition(server: &ApiServer, node: &str) -> Option<(String, String)> {
    let status = server.get::<Node>("", node)?.status?;
    let condition = status.conditions?.into_iter().find(|condition| condition.type_ == "NetworkUnavailable")?;
    Some((condition.status, condition.reason?))
}

fn name(i: usize) -> String {
    format!("node-{i:03}")
}

fn cidr(i: usize) -> String {
    format!("10.244.{}.{}/25", i / 2, (i % 2) * 128)
}

fn node(i: usize) -> Node {
    let node = json!({
        "metadata": {"name": name(i)},
        "spec": {"podCIDR": cidr(i), "podCIDRs": [cidr(i)]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": format!("10.0.{}.{}", i / 200, i % 200 + 1)}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    });
    serde_json::from_value(node).unwrap()
}

fn expected_routes(nodes: impl IntoIterator<Item = usize>) -> BTreeSet<(String, String)> {
    nodes.into_iter().map(|i| (name(i), cidr(i))).collect()
}

fn route(target: &str, cidr: &str) -> Route {
    Route { target_node: target.into(), destination_cidr: cidr.into(), ..Route::default() }
}

#[tokio::test(start_paused = true)]
async fn a_plan_names_hidden_nodes_that_cannot_be_read() {
    let cloud = FakeCloud::new(FakeConfig::any_node());
    for i in 0..130 {
        cloud.create_route(CLUSTER, "", &route(&format!("gone-{i:03}"), &format!("10.244.{i}.0/24"))).await.unwrap();
    }
    let (_leading, leadership) = Leadership::channel();
    let bench = Bench::start_with(ApiServer::new(Clock::System), cloud, leadership, (true, true)).await;
    let reads = |server: &ApiServer| server.requests().iter().filter(|request| request.name.starts_with("gone-")).count();
    // The first reconcile reads all of them.
    bench.server.wait_until(|server| reads(server) == 130).await;
    bench.server.faults().fail_every(500, |request| request.name.ends_with('9'));
    let plan = bench.controller.plan(&ServiceScope::All).await.unwrap();
    assert_eq!((plan.writes.len(), plan.is_complete()), (117, false));
    let waiting = plan.unread.iter().filter(|line| line.ends_with(" waits: it is not known whether its Node exists"));
    assert_eq!(waiting.count(), 13, "{:#?}", plan.unread);
    assert_eq!(plan.notes.iter().filter(|line| line.ends_with(": there is no such Node")).count(), 117);
}

#[tokio::test(start_paused = true)]
async fn a_plan_on_a_standby_is_repeatable_and_changes_nothing() {
    let server = ApiServer::new(Clock::System);
    (0..2).for_each(|i| drop(server.create(&node(i))));
    let cloud = FakeCloud::new(FakeConfig::any_node());
    cloud.create_route(CLUSTER, "", &route("gone", "10.244.9.0/24")).await.unwrap();
    let (_leading, leadership) = Leadership::channel();
    let bench = Bench::start(server, cloud, leadership).await;
    let before = bench.routes();
    let plan = async || bench.controller.plan(&ServiceScope::All).await.unwrap();
    let planned = plan().await;
    let lines = |plan: &WritePlan| -> Vec<String> { plan.writes.iter().map(ToString::to_string).collect() };
    assert_eq!((lines(&planned), &planned.notes), (lines(&plan().await), &plan().await.notes));
    for line in [
        "DELETE route to 10.244.9.0/24 of Node \"gone\": delete it",
        "PUT route to 10.244.0.128/25 of Node \"node-001\": create it",
        "PATCH /api/v1/nodes/node-000/status: condition NetworkUnavailable: it has its routes",
    ] {
        assert!(lines(&planned).iter().any(|found| found == line), "{line} is not in\n{planned:#?}");
    }
    for line in [
        "for 10.244.9.0/24 of Node \"gone\": there is no such Node",
        "create route for 10.244.0.0/25 of Node \"node-000\": the Node has this pod CIDR and no route leads there",
    ] {
        assert!(planned.notes.iter().any(|found| found.contains(line)), "{line} is not in\n{planned:#?}");
    }
    assert_eq!(bench.routes(), before);
    assert_eq!(bench.cloud.call_count(CallName::ApplyRoutes), 0);
    assert!(bench.server.requests().iter().all(|request| request.subresource != "status"));
}

#[tokio::test(start_paused = true)]
async fn four_hundred_nodes_at_once_cost_one_list_and_one_batch() {
    let bench = Bench::new().await;
    bench.begun().await;
    bench.cloud.clear_calls();
    (0..400).for_each(|i| drop(bench.server.create(&node(i))));
    bench.seen(400).await;
    bench.settled().await;
    assert_eq!(bench.routes(), expected_routes(0..400));
    assert_eq!(bench.cloud.objects_of(CallName::ApplyRoutes), ["0 deleted, 400 created"]);
    assert_eq!(bench.cloud.call_count(CallName::ListRoutes), 1);
    for i in 0..400 {
        assert_eq!(condition(&bench.server, &name(i)), Some((CREATED.0.into(), CREATED.1.into())), "{}", name(i));
    }
    let patches = bench.server.requests().into_iter().filter(|request| request.subresource == "status").count();
    assert_eq!(patches, 400);
    let ready = bench.server.get::<Node>("", &name(0)).unwrap().status.unwrap().conditions.unwrap();
    assert!(
        ready.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        "other conditions are kept"
    );
}

#[tokio::test(start_paused = true)]
async fn at_rest_there_is_one_list_per_resync_and_no_write() {
    let bench = Bench::new().await;
    bench.server.create(&node(0));
    bench.wait_for_condition(&name(0), CREATED).await;
    bench.settled().await;
    bench.cloud.clear_calls();
    bench.server.clear_requests();
    let syncs = bench.metrics.route_sync_total.with_label_values::<&str>(&[]).get();
    // One second more, because the third resync is due exactly after three periods.
    tokio::time::sleep(3 * RESYNC_PERIOD + Duration::from_secs(1)).await;
    assert_eq!(bench.cloud.call_count(CallName::ListRoutes), 3);
    assert_eq!(bench.cloud.write_count(), 0);
    assert_eq!(bench.cloud.call_count(CallName::ApplyRoutes), 0);
    assert_eq!(bench.server.requests().into_iter().filter(|request| request.subresource == "status").count(), 0);
    let now = bench.metrics.route_sync_total.with_label_values::<&str>(&[]).get();
    assert!((now - syncs - 3.0).abs() < f64::EPSILON);
}

#[tokio::test(start_paused = true)]
async fn with_the_feature_gate_off_only_time_makes_routes_due() {
    let cloud = FakeCloud::new(FakeConfig::any_node());
    let bench = Bench::start_with(ApiServer::new(Clock::System), cloud, Leadership::unopposed(), (false, false)).await;
    tokio::time::sleep(PERIOD / 2).await;
    bench.cloud.clear_calls();
    bench.server.create(&node(0));
    tokio::time::sleep(PERIOD / 4).await;
    assert_eq!(bench.cloud.call_count(CallName::ListRoutes), 0);
    tokio::time::sleep(3 * PERIOD).await;
    assert_eq!(bench.cloud.call_count(CallName::ListRoutes), 3);
    assert_eq!(bench.routes(), expected_routes([0]));
}

#[tokio::test(start_paused = true)]
async fn routes_are_deleted_with_their_node_and_foreign_routes_kept() {
    let bench = Bench::new().await;
    let foreign = [("elsewhere", "192.168.7.0/24"), ("elsewhere", "10.0.0.0/8")];
    for (target, cidr) in foreign {
        bench.cloud.create_route(CLUSTER, "hint", &route(target, cidr)).await.unwrap();
    }
    let foreign: BTreeSet<_> = foreign.iter().map(|(target, cidr)| ((*target).to_owned(), (*cidr).to_owned())).collect();
    bench.cloud.create_route(CLUSTER, "hint", &route("gone", "10.244.200.0/24")).await.unwrap();
    bench.server.create(&node(0));
    bench.server.create(&node(1));
    bench.wait_for_condition(&name(1), CREATED).await;
    assert_eq!(bench.routes(), &expected_routes([0, 1]) | &foreign);
    bench.server.delete::<Node>("", &name(0));
    bench.cloud.wait_until(|cloud| cloud.routes().iter().all(|route| route.target_node != name(0))).await;
    assert_eq!(bench.routes(), &expected_routes([1]) | &foreign);
}

#[tokio::test(start_paused = true)]
async fn oversized_pod_cidrs_get_no_new_route() {
    let (server, cloud) = (ApiServer::new(Clock::System), FakeCloud::new(FakeConfig::any_node()));
    (0..3).for_each(|i| drop(server.create(&node(i))));
    let oversized = [(name(3), "10.244.64.0/20".to_owned()), (name(4), "10.244.128.0/20".to_owned())];
    for (i, (_, cidr)) in (3..).zip(&oversized) {
        server.create(&node(i).pod_cidrs(&[cidr]));
    }
    cloud.create_route(CLUSTER, "", &route(&oversized[0].0, &oversized[0].1)).await.unwrap();
    let mut bench = Bench::start(server, cloud, Leadership::unopposed()).await;
    bench.begun().await;
    assert_eq!(bench.routes(), &expected_routes(0..3) | &BTreeSet::from([oversized[0].clone()]));
    let conditions = oversized.each_ref().map(|(node, _)| condition(&bench.server, node).unwrap().1);
    assert_eq!(conditions, [CREATED.1, NOT_CREATED.1]);

    let limit = "it is larger than /21, the largest size that gets a route; if the size is intended, set \
                 --node-cidr-mask-size-ipv4, else register the Node again with a smaller pod CIDR";
    let mut events = BTreeSet::new();
    while let Ok((_, event)) = bench.events.try_recv() {
        events.insert((event.about.name.unwrap(), event.reason, event.message));
    }
    let refused = |i: usize, text: &str| (name(i), "RouteRefused", format!("spec.podCIDRs {text}: {limit}"));
    let expected = [
        refused(3, "10.244.64.0/20 keeps its route, but would get no new one"),
        refused(4, "10.244.128.0/20 gets no route"),
    ];
    assert_eq!(events, BTreeSet::from(expected));

    let plan = bench.controller.plan(&ServiceScope::All).await.unwrap();
    let line = format!("route for 10.244.64.0/20 of Node \"node-003\" is kept, but a new one would be refused: {limit}");
    assert_eq!((plan.refused.len(), plan.retained), (1, BTreeSet::from([line])));
}

#[tokio::test(start_paused = true)]
async fn routes_of_missing_nodes_stay_while_a_list_is_pending() {
    let bench = Bench::new().await;
    bench.begun().await;
    bench.server.faults().hang_every(on(Verb::List, "nodes"));
    bench.nodes.request_relist();
    // The watch ends here, so it does not deliver this Node.
    tokio::time::sleep(Duration::from_millis(10)).await;
    bench.server.create(&node(0));
    for index in [0, 1] {
        bench.cloud.create_route(CLUSTER, "hint", &route(&name(index), &cidr(index))).await.unwrap();
    }
    let without_node = |cloud: &FakeCloud| cloud.routes().iter().all(|route| route.target_node != name(1));
    bench.cloud.wait_until(without_node).await;
    assert_eq!(bench.routes(), expected_routes([0]), "the API server reports that the second Node does not exist");
}

#[tokio::test(start_paused = true)]
async fn a_failing_node_does_not_starve_others() {
    let mut bench = Bench::new().await;
    bench.begun().await;
    let refused = CallBehavior { error: Some("no quota".into()), objects: vec![name(0)], ..CallBehavior::default() };
    bench.cloud.configure(|config| drop(config.calls.insert(CallName::CreateRoute, refused)));
    (0..10).for_each(|i| drop(bench.server.create(&node(i))));
    bench.wait_for_condition(&name(0), NOT_CREATED).await;
    bench.wait_for_condition(&name(9), CREATED).await;
    assert_eq!(bench.routes(), expected_routes(1..10));
    let (_, event) = bench.events.recv().await.unwrap();
    assert_eq!((event.reason, event.about.name.as_deref()), ("FailedToCreateRoute", Some("node-000")));
    let uid = bench.server.get::<Node>("", &name(0)).unwrap().uid().unwrap();
    assert!(event.message.starts_with(&format!("Could not create route {uid} 10.244.0.0/25 for node node-000 after ")));
    assert!(event.message.ends_with(": no quota"), "{}", event.message);
    assert!(bench.events.try_recv().is_err(), "one event, for the failing node alone");

    // The failing Node is in backoff. A new Node does not wait for its end.
    tokio::time::sleep(Duration::from_secs(60)).await;
    bench.cloud.clear_calls();
    let created_at = tokio::time::Instant::now();
    bench.server.create(&node(10));
    bench.wait_for_condition(&name(10), CREATED).await;
    assert!(created_at.elapsed() < Duration::from_secs(1), "{:?}", created_at.elapsed());

    bench.cloud.configure(|config| config.calls.clear());
    bench.wait_for_condition(&name(0), CREATED).await;
    bench.settled().await;
    assert_eq!(bench.routes(), expected_routes(0..11));
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_is_retried_with_backoff_and_reported() {
    let server = ApiServer::new(Clock::System);
    let cloud = FakeCloud::new(FakeConfig::any_node());
    cloud.create_route(CLUSTER, "hint", &route("gone", "10.244.200.0/24")).await.unwrap();
    cloud.fail_next(CallName::ListRoutes, &CloudError::failed("cloud is down"), 7);
    server.create(&node(0));
    let began = tokio::time::Instant::now();
    let bench = Bench::start(server, cloud, Leadership::unopposed()).await;
    bench.cloud.wait_until(|cloud| cloud.call_count(CallName::ListRoutes) == 3).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(bench.controller.status().problem.as_deref(), Some("routes cannot be listed: cloud is down"));
    assert_eq!(bench.cloud.routes().len(), 1, "nothing is changed without a list");
    assert_eq!(condition(&bench.server, &name(0)), None);
    bench.wait_for_condition(&name(0), CREATED).await;
    // 0.5 + 1 + 2 + 4 + 8 + 10 + 10 s.
    assert_eq!(began.elapsed().as_secs(), 35);
    assert_eq!(bench.controller.status().problem, None);
    assert_eq!(bench.routes(), expected_routes([0]));
}

#[tokio::test(start_paused = true)]
async fn conflicts_on_the_condition_are_retried_at_once() {
    let bench = Bench::new().await;
    bench.begun().await;
    bench.server.faults().fail_next(3, 409, |request| request.subresource == "status");
    bench.server.create(&node(0));
    bench.wait_for_condition(&name(0), CREATED).await;
    bench.settled().await;
    assert_eq!(bench.cloud.call_count(CallName::ApplyRoutes), 1);
    assert_eq!(bench.cloud.call_count(CallName::ListRoutes), 2, "only the condition is retried");
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_condition_is_a_failure_that_recovers() {
    let bench = Bench::new().await;
    bench.begun().await;
    bench.server.faults().fail_every(403, |request| request.subresource == "status");
    bench.server.create(&node(0));
    bench.cloud.wait_until(|cloud| cloud.call_count(CallName::ListRoutes) == 4).await;
    let unsettled = bench.controller.status().unsettled;
    assert!(
        unsettled[0].failures > 0 && unsettled[0].reason.as_deref().unwrap().contains("NetworkUnavailable"),
        "{unsettled:?}"
    );
    assert_eq!(bench.cloud.call_count(CallName::ApplyRoutes), 1);
    bench.server.faults().clear();
    bench.wait_for_condition(&name(0), CREATED).await;
}

#[tokio::test(start_paused = true)]
async fn without_the_lease_nothing_is_written() {
    let server = ApiServer::new(Clock::System);
    let (leading, leadership) = Leadership::channel();
    let bench = Bench::start(server, FakeCloud::new(FakeConfig::any_node()), leadership).await;
    bench.server.create(&node(0));
    bench.seen(1).await;
    bench.settled().await;
    assert_eq!((bench.routes(), condition(&bench.server, &name(0))), (expected_routes([]), None));
    leading.send(LeadershipState::Unopposed).unwrap();
    bench.wait_for_condition(&name(0), CREATED).await;
    assert_eq!(bench.routes(), expected_routes([0]));
}

#[tokio::test]
async fn a_provider_without_routes_has_its_own_error() {
    let cloud = FakeCloud::new(FakeConfig::parse("routes: {enabled: false}").unwrap());
    let context = ControllerContext {
        cluster_name: CLUSTER.into(),
        writer: ObjectWriter::new(ApiServer::new(Clock::System).client(), Leadership::unopposed()),
        events: EventRecorder::channel("route-controller").0,
        clock: Clock::System,
        metrics: Arc::new(Metrics::new().unwrap()),
    };
    let mut informers = Informers::new(Informer::new(|_| {}), Informer::new(|_| {}));
    let built = RouteController::new(&context, &mut informers, Arc::new(cloud), config());
    assert_eq!(built.err(), Some(RouteControllerError::RoutesUnsupported("fake".into())));
}

/// Action of another component, or a failure.
#[derive(Debug, Clone)]
enum Action {
    Join(usize),
    Leave(usize),
    DeleteRoute(usize),
    FailCreations(usize),
    FailList,
    Wait(u64),
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..8usize).prop_map(Action::Join),
        2 => (0..8usize).prop_map(Action::Leave),
        1 => (0..8usize).prop_map(Action::DeleteRoute),
        1 => (1..4usize).prop_map(Action::FailCreations),
        1 => Just(Action::FailList),
        3 => (0..2000u64).prop_map(Action::Wait),
    ]
}

async fn perform(bench: &Bench, actions: Vec<Action>) -> BTreeSet<usize> {
    let mut existing = BTreeSet::new();
    for action in actions {
        match action {
            Action::Join(i) if existing.insert(i) => drop(bench.server.create(&node(i))),
            Action::Leave(i) if existing.remove(&i) => drop(bench.server.delete::<Node>("", &name(i))),
            Action::Join(_) | Action::Leave(_) => {}
            Action::DeleteRoute(i) => {
                // An earlier injected failure may refuse the deletion.
                let _ = bench.cloud.delete_route(CLUSTER, &route(&name(i), &cidr(i))).await;
            }
            Action::FailCreations(times) => bench.cloud.fail_next(CallName::CreateRoute, &CloudError::failed("boom"), times),
            Action::FailList => bench.cloud.fail_next(CallName::ListRoutes, &CloudError::failed("boom"), 1),
            Action::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
        }
    }
    existing
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// After any actions and failures, at most one resync later, exactly the existing Nodes have their route and condition, and nothing
    /// more is written.
    #[test]
    fn converges(actions in proptest::collection::vec(any_action(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let bench = Bench::new().await;
            let existing = perform(&bench, actions).await;
            tokio::time::sleep(2 * RESYNC_PERIOD).await;
            bench.settled().await;
            prop_assert_eq!(bench.routes(), expected_routes(existing.iter().copied()));
            for i in &existing {
                prop_assert_eq!(condition(&bench.server, &name(*i)), Some((CREATED.0.to_owned(), CREATED.1.to_owned())));
            }
            let writes = bench.cloud.write_count();
            tokio::time::sleep(RESYNC_PERIOD).await;
            prop_assert_eq!(bench.cloud.write_count(), writes);
            Ok(())
        })?;
    }
}

/// Sets the condition as another writer.
fn overwrite_condition(server: &ApiServer, node: &str, (status, reason): (&str, &str)) {
    server.update_with("", node, |node: &mut Node| {
        let conditions = node.status.as_mut().unwrap().conditions.as_mut().unwrap();
        let condition = conditions.iter_mut().find(|condition| condition.type_ == "NetworkUnavailable").unwrap();
        (condition.status, condition.reason) = (status.to_owned(), Some(reason.to_owned()));
    });
}

#[tokio::test(start_paused = true)]
async fn a_condition_of_another_writer_is_repaired_without_the_cloud() {
    let bench = Bench::new().await;
    bench.server.create(&node(0));
    bench.wait_for_condition(&name(0), CREATED).await;
    bench.settled().await;
    bench.cloud.clear_calls();
    bench.server.clear_requests();

    overwrite_condition(&bench.server, &name(0), ("True", "Other"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(condition(&bench.server, &name(0)), Some((CREATED.0.to_owned(), CREATED.1.to_owned())));
    assert_eq!(bench.cloud.call_count(CallName::ListRoutes), 0);

    for _ in 0..300 {
        overwrite_condition(&bench.server, &name(0), ("True", "Other"));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let writes = bench.server.requests().iter().filter(|request| request.verb.is_write()).count();
    assert!((6..=8).contains(&writes), "{writes} writes in five minutes of fighting");
    bench.wait_for_condition(&name(0), CREATED).await;
}

#[tokio::test(start_paused = true)]
async fn reasons_of_a_network_plugin_are_left_alone() {
    const PLUGIN: (&str, &str) = ("False", "CiliumIsUp");
    let bench = Bench::new().await;
    bench.server.create(&node(0));
    bench.wait_for_condition(&name(0), CREATED).await;
    bench.settled().await;
    bench.server.clear_requests();
    overwrite_condition(&bench.server, &name(0), PLUGIN);
    tokio::time::sleep(2 * RESYNC_PERIOD).await;
    bench.settled().await;
    assert_eq!(condition(&bench.server, &name(0)), Some((PLUGIN.0.to_owned(), PLUGIN.1.to_owned())));
    assert_eq!(bench.server.requests().iter().filter(|request| request.verb.is_write()).count(), 0);
}

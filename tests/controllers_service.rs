//! The service controller over the in-process API server and the fake cloud, under a paused clock.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{sync::Arc, time::Duration};

use cloud_controller_manager::{
    cloud_provider::{CloudError, CloudProvider},
    controllers::{
        Controller, ControllerContext, Informers,
        service::{self, ServiceController, ServiceControllerConfig, conditions, needs_update::FINALIZER, service_informer},
    },
    metrics::Metrics,
    providers::fake::{CallName, FakeCloud, FakeConfig},
    runtime::{
        clock::Clock,
        events::{EventRecorder, RecordedEvent},
        informer::Informer,
        leader_election::{Leadership, LeadershipState},
        patch::ObjectWriter,
        shutdown::Shutdown,
        store::InformerStore,
    },
    sandbox::{
        api_server::{ApiServer, RequestRecord},
        faults::{Crash, on},
        http::Verb,
        objects::{ObjectExt, ServiceExt, load_balancer_service, node},
    },
};
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::{sync::mpsc, task::JoinHandle, time::Instant};

#[path = "controllers_service/classes.rs"]
mod classes;
#[path = "controllers_service/convergence.rs"]
mod convergence;
#[path = "controllers_service/edits.rs"]
mod edits;
#[path = "controllers_service/incomplete.rs"]
mod incomplete;
#[path = "controllers_service/restore.rs"]
mod restore;

/// What outlives a controller.
struct World {
    server: ApiServer,
    cloud: FakeCloud,
    clock: Clock,
}

/// One life of the controller.
struct Life {
    controller: Arc<ServiceController>,
    services: InformerStore<Service>,
    shutdown: Shutdown,
    task: JoinHandle<()>,
    events: mpsc::Receiver<(&'static str, RecordedEvent)>,
    metrics: Arc<Metrics>,
}

impl World {
    fn new() -> Self {
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        let world = Self { server: ApiServer::new(clock), cloud: FakeCloud::new(FakeConfig::any_node()), clock };
        world.server.create(&node("n1"));
        world
    }

    fn start(&self) -> Life {
        self.start_with(0, Duration::ZERO)
    }

    fn start_with(&self, concurrent_syncs: usize, resync_period: Duration) -> Life {
        self.start_under(
            Leadership::unopposed(),
            ServiceControllerConfig { concurrent_syncs, resync_period, ..Default::default() },
        )
    }

    /// Runs the controller as soon as this replica leads.
    fn start_under(&self, leadership: Leadership, config: ServiceControllerConfig) -> Life {
        let (recorder, events) = EventRecorder::channel("service-controller");
        let metrics = Arc::new(Metrics::new().unwrap());
        let context = ControllerContext {
            cluster_name: "kubernetes".to_owned(),
            writer: ObjectWriter::new(self.server.client(), leadership.clone()),
            events: recorder,
            clock: self.clock,
            metrics: Arc::clone(&metrics),
        };
        let provider: Arc<dyn CloudProvider> = Arc::new(self.cloud.clone());
        let services = service_informer(config.classes.clone(), &provider);
        let mut informers = Informers::new(Informer::new(|_: &mut Node| {}), services);
        let controller = service::new(&context, &mut informers, Arc::new(self.cloud.clone()), config).unwrap();
        let (services, shutdown) = (informers.services.store(), Shutdown::new());
        informers.nodes.start(self.server.client(), &shutdown, Arc::clone(&metrics));
        informers.services.start(self.server.client(), &shutdown, Arc::clone(&metrics));
        let (running, stop) = (Arc::clone(&controller), shutdown.clone());
        let task = tokio::spawn(async move {
            leadership.acquired().await;
            running.run(stop).await;
        });
        Life { controller, services, shutdown, task, events, metrics }
    }

    fn service(&self, name: &str) -> Option<Service> {
        self.server.get("default", name)
    }

    fn create(&self, name: &str) {
        self.server.create(&load_balancer_service("default", name));
    }

    fn set_port(&self, name: &str, port: i32) {
        self.server.update_with("default", name, |service: &mut Service| {
            service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = port;
        });
    }

    fn patches(&self) -> Vec<RequestRecord> {
        self.server.requests().into_iter().filter(|request| request.verb == Verb::Patch).collect()
    }

    fn reason(&self, name: &str) -> Option<String> {
        conditions::current(&self.service(name)?).map(|condition| condition.reason.clone())
    }

    fn ips(&self, name: &str) -> Vec<String> {
        let status = self.service(name).and_then(|service| service.status).and_then(|status| status.load_balancer);
        let ingress = status.and_then(|status| status.ingress).unwrap_or_default();
        ingress.into_iter().filter_map(|ingress| ingress.ip).collect()
    }

    /// Checks that Services and cloud agree, whatever led here.
    fn assert_converged(&self) {
        let services: Vec<Service> = self.server.list();
        assert_eq!(self.cloud.leaks(&services), Vec::<String>::new());
        let mut hosts: Vec<String> = self.server.list::<Node>().into_iter().filter_map(|node| node.metadata.name).collect();
        hosts.sort();
        for service in services {
            let name = service.metadata.name.clone().unwrap();
            let balancer = self.cloud.load_balancer_of(&format!("default/{name}")).expect("has a load balancer");
            let addresses: Vec<_> = balancer.addresses.iter().map(ToString::to_string).collect();
            assert_eq!(self.ips(&name), addresses, "{name}");
            assert_eq!(balancer.ports[0].port, service.spec.unwrap().ports.unwrap()[0].port, "{name}");
            assert_eq!(balancer.hosts, hosts, "{name}");
            assert_eq!(service.metadata.finalizers, Some(vec![FINALIZER.to_owned()]), "{name}");
            assert_eq!(self.reason(&name).as_deref(), Some("Ready"), "{name}");
        }
    }
}

impl Life {
    fn reasons(&mut self) -> Vec<&'static str> {
        std::iter::from_fn(|| self.events.try_recv().ok()).map(|(_, event)| event.reason).collect()
    }

    /// As `kill -9` does it.
    async fn kill(self) {
        self.task.abort();
        self.shutdown.begin();
        let _ = self.task.await;
    }
}

/// A controller that serves one Service.
async fn settled() -> (World, Life) {
    let world = World::new();
    let life = world.start();
    world.create("web");
    pass(3).await;
    (world, life)
}

/// Lets everything happen that happens within this (virtual) time.
async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_is_created_updated_and_deleted() {
    let (world, mut life) = settled().await;
    world.assert_converged();
    assert_eq!(world.patches().len(), 2, "finalizer, status: {:?}", world.patches());
    assert!(world.patches().iter().all(|patch| patch.subresource == "status"));
    assert_eq!(life.reasons(), ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]);
    world.server.clear_requests();

    world.set_port("web", 8080);
    pass(3).await;
    world.assert_converged();
    assert_eq!(world.patches(), [], "the addresses are the same");
    assert_eq!(world.cloud.call_count(CallName::EnsureLoadBalancer), 2);
    life.reasons();

    world.server.delete::<Service>("default", "web");
    pass(3).await;
    assert!(world.service("web").is_none());
    world.assert_converged();
    assert_eq!(world.patches().len(), 1);
    assert_eq!(life.reasons(), ["DeletingLoadBalancer", "DeletedLoadBalancer"]);
    assert_eq!(life.controller.status().unsettled, []);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_no_load_balancer_any_more_is_cleaned() {
    let (world, _life) = settled().await;
    world.server.update_with("default", "web", |service: &mut Service| {
        service.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
    });
    pass(3).await;
    assert!(world.cloud.load_balancers().is_empty());
    let service = world.service("web").unwrap();
    assert_eq!(service.metadata.finalizers.unwrap_or_default(), Vec::<String>::new());
    assert_eq!((world.ips("web").len(), world.reason("web")), (0, None));
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_an_unchanged_service_is_ensured_once_and_not_written() {
    let (world, life) = settled().await;
    life.kill().await;
    world.server.clear_requests();
    world.cloud.clear_calls();
    let _life = world.start();
    pass(60).await;
    assert_eq!(world.cloud.call_count(CallName::EnsureLoadBalancer), 1);
    assert_eq!(world.patches(), []);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_read_again_without_asking_the_cloud_again() {
    let world = World::new();
    world.server.faults().fail_next(2, 409, on(Verb::Patch, "services"));
    let mut life = world.start();
    world.create("web");
    pass(3).await;
    world.assert_converged();
    assert_eq!(world.cloud.call_count(CallName::EnsureLoadBalancer), 1);
    assert!(!life.reasons().contains(&"SyncLoadBalancerFailed"));
}

#[tokio::test(start_paused = true)]
async fn a_failure_backs_off_and_is_written_once() {
    let world = World::new();
    world.cloud.fail_next(CallName::EnsureLoadBalancer, &CloudError::failed("no quota"), 3);
    let mut life = world.start();
    world.create("web");
    pass(1).await;
    assert_eq!(world.reason("web").as_deref(), Some("Failed"));
    assert_eq!(life.controller.status().unsettled[0].failures, 1);
    // 5 s, 10 s, 20 s: attempts at 0, 5, 15 and 35 s.
    pass(33).await;
    assert_eq!(world.cloud.call_count(CallName::EnsureLoadBalancer), 3);
    assert_eq!(world.patches().len(), 2, "finalizer, failure");
    pass(3).await;
    world.assert_converged();
    assert_eq!(world.patches().len(), 3);
    assert_eq!(life.reasons().iter().filter(|reason| **reason == "SyncLoadBalancerFailed").count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_got_another_class_while_nobody_looked_is_cleaned_and_left_to_others() {
    for deleted in [false, true] {
        let world = World::new();
        let life = world.start();
        world.create("web");
        pass(10).await;
        world.assert_converged();
        life.kill().await;
        // Its type has to be another meanwhile.
        world.server.update_with("default", "web", |service: &mut Service| {
            service.status = None;
            *service = service.clone().service_type("ClusterIP");
        });
        let class = |service: &mut Service| {
            let classed = service.clone().service_type("LoadBalancer").load_balancer_class("example.com/other");
            *service = classed.ingress_ip("198.51.100.7");
        };
        world.server.update_with("default", "web", class);
        let theirs =
            load_balancer_service("default", "theirs").finalizer(FINALIZER).load_balancer_class("example.com/other");
        world.server.create(&theirs);
        if deleted {
            ["web", "theirs"].iter().for_each(|name| _ = world.server.delete::<Service>("default", name));
        }
        let before = world.patches().len();
        let life = world.start();
        pass(30).await;
        assert!(world.cloud.load_balancers().is_empty(), "deleted: {deleted}");
        let finalizers = |name: &str| world.service(name).map(|service| service.metadata.finalizers.unwrap_or_default());
        if deleted {
            assert_eq!((finalizers("web"), finalizers("theirs")), (None, None));
        } else {
            assert_eq!(finalizers("web"), Some(Vec::new()));
            assert_eq!(world.ips("web"), ["198.51.100.7"]);
            assert_eq!(finalizers("theirs"), Some(vec![FINALIZER.to_owned()]));
            assert_eq!(world.patches().len() - before, 1);
        }
        life.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_with_growing_pauses() {
    let world = World::new();
    world.cloud.fail_next(CallName::EnsureLoadBalancer, &CloudError::refused("bad port"), 100);
    let mut life = world.start();
    world.create("web");
    pass(34).await;
    assert_eq!(world.reason("web").as_deref(), Some("Invalid"));
    assert_eq!(life.reasons().iter().filter(|reason| **reason == "SyncLoadBalancerFailed").count(), 3);
    assert_eq!(world.patches().len(), 2, "finalizer, refusal");
}

#[tokio::test(start_paused = true)]
async fn waiting_is_not_failing_and_no_resync_disturbs_it() {
    let world = World::new();
    let wait = CloudError::RetryAfter { after: Duration::from_secs(42), message: "throttled".into() };
    world.cloud.fail_next(CallName::EnsureLoadBalancer, &wait, 1);
    let life = world.start_with(0, Duration::from_secs(10));
    world.create("web");
    pass(41).await;
    assert_eq!(world.reason("web").as_deref(), Some("Waiting"));
    let unsettled = life.controller.status().unsettled;
    assert_eq!((unsettled[0].failures, world.cloud.call_count(CallName::EnsureLoadBalancer)), (0, 1));
    pass(5).await;
    world.assert_converged();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_every_condition_is_not_hammered() {
    let world = World::new();
    world.cloud.set_latency(CallName::EnsureLoadBalancer, Duration::from_secs(1));
    world.cloud.fail_next(CallName::EnsureLoadBalancer, &CloudError::failed("no quota"), 1000);
    let _life = world.start();
    world.create("web");
    world.cloud.wait_until(|cloud| cloud.call_count(CallName::EnsureLoadBalancer) == 1).await;
    world.server.faults().fail_next(1000, 409, on(Verb::Patch, "services"));
    pass(3).await;
    assert!((2..20).contains(&world.patches().len()), "{}", world.patches().len());
}

#[tokio::test(start_paused = true)]
async fn a_standby_keeps_nothing_of_what_is_gone_and_a_new_leader_measures_nothing_of_the_past() {
    let world = World::new();
    let (lead, leadership) = Leadership::channel();
    let config = ServiceControllerConfig::default();
    let life = world.start_under(leadership, config);
    let keys = || -> Vec<_> { life.controller.status().unsettled.into_iter().map(|key| key.key).collect() };
    ["gone", "web"].iter().for_each(|name| world.create(name));
    pass(3600).await;
    assert_eq!(keys(), ["default/gone", "default/web", "nodes", "hosts"]);
    world.server.delete::<Service>("default", "gone");
    pass(10).await;
    assert_eq!(keys(), ["default/web", "nodes", "hosts"]);
    assert_eq!(world.cloud.calls(), []);

    lead.send_replace(LeadershipState::Unopposed);
    pass(10).await;
    world.assert_converged();
    assert_eq!(keys(), Vec::<String>::new());
    let latency = life.metrics.service_nodesync_latency.with_label_values::<&str>(&[]);
    assert!(latency.get_sample_count() > 0 && latency.get_sample_sum() < 10.0, "{}", latency.get_sample_sum());
}

#[tokio::test(start_paused = true)]
async fn a_service_that_vanished_by_force_leaves_nothing() {
    let (world, _life) = settled().await;
    world.server.update_with("default", "web", |service: &mut Service| service.metadata.finalizers = None);
    world.server.delete::<Service>("default", "web");
    world.create("web");
    pass(3).await;
    world.assert_converged();
    assert_eq!(world.cloud.load_balancers().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_change_costs_one_call_per_affected_service_and_no_write() {
    let world = World::new();
    let mut life = world.start();
    (0..20).for_each(|index| world.create(&format!("s{index}")));
    pass(3).await;
    life.reasons();
    world.server.clear_requests();
    world.cloud.clear_calls();
    (2..7).for_each(|index| drop(world.server.create(&node(&format!("n{index}")))));
    pass(60).await;
    assert_eq!(world.cloud.call_count(CallName::UpdateLoadBalancer), 20);
    assert_eq!(world.cloud.call_count(CallName::EnsureLoadBalancer), 0);
    assert_eq!(world.patches(), []);
    assert_eq!(life.reasons(), ["UpdatedLoadBalancer"; 20]);
    world.assert_converged();
}

#[tokio::test(start_paused = true)]
async fn a_growing_cluster_is_no_failure_however_slow_the_cloud() {
    let (world, life) = settled().await;
    world.cloud.set_latency(CallName::UpdateLoadBalancer, Duration::from_secs(2));
    for index in 2..40 {
        world.server.create(&node(&format!("n{index}")));
        pass(1).await;
        assert!(life.controller.status().unsettled.iter().all(|key| key.failures == 0), "at node {index}");
    }
    pass(10).await;
    world.assert_converged();
    let calls = world.cloud.call_count(CallName::UpdateLoadBalancer);
    assert!((8..=20).contains(&calls), "one call at a time takes in what came meanwhile: {calls}");
    assert_eq!(world.cloud.call_count(CallName::EnsureLoadBalancer), 1);
}

#[tokio::test(start_paused = true)]
async fn only_changes_of_the_stable_node_set_reach_the_cloud() {
    let (world, mut life) = settled().await;
    life.reasons();
    let label = |key: &str| {
        world.server.update_with("", "n1", |node: &mut Node| {
            node.metadata.labels.get_or_insert_default().insert(key.to_owned(), "true".to_owned());
        });
    };
    label("colour");
    pass(5).await;
    assert_eq!(world.cloud.call_count(CallName::UpdateLoadBalancer), 0);
    label("node.kubernetes.io/exclude-from-external-load-balancers");
    pass(5).await;
    assert_eq!(world.cloud.load_balancer_of("default/web").unwrap().hosts, Vec::<String>::new());
    assert_eq!(life.reasons(), ["UnAvailableLoadBalancer"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_node_change_is_carried_on_retry() {
    let (world, mut life) = settled().await;
    world.cloud.fail_next(CallName::UpdateLoadBalancer, &CloudError::failed("boom"), 1);
    world.server.create(&node("n2"));
    pass(30).await;
    world.assert_converged();
    assert!(life.reasons().contains(&"UpdateLoadBalancerFailed"));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_services_take_the_time_of_one() {
    let world = World::new();
    world.cloud.set_latency(CallName::EnsureLoadBalancer, Duration::from_millis(50));
    (0..1000).for_each(|index| world.create(&format!("s{index}")));
    let _life = world.start();
    let start = Instant::now();
    world.cloud.wait_until(|cloud| cloud.call_count(CallName::EnsureLoadBalancer) == 1000).await;
    pass(1).await;
    assert!(start.elapsed() < Duration::from_millis(1200), "{:?}", start.elapsed());
    assert!(world.cloud.max_in_flight_seen() >= 100);
    world.assert_converged();
}

#[tokio::test(start_paused = true)]
async fn user_changes_go_before_what_is_known_already() {
    let world = World::new();
    let life = world.start();
    (0..10).for_each(|index| world.create(&format!("s{index}")));
    pass(3).await;
    life.kill().await;
    world.cloud.clear_calls();
    world.cloud.set_latency(CallName::EnsureLoadBalancer, Duration::from_secs(1));
    let _life = world.start_with(1, Duration::ZERO);
    world.cloud.wait_until(|cloud| cloud.call_count(CallName::EnsureLoadBalancer) == 1).await;
    world.create("urgent");
    pass(20).await;
    assert_eq!(world.cloud.objects_of(CallName::EnsureLoadBalancer)[1], "default/urgent");
    assert_eq!(world.cloud.max_in_flight_seen(), 1);
    world.assert_converged();
}

#[tokio::test(start_paused = true)]
async fn a_resync_looks_at_the_cloud_again_and_writes_nothing() {
    let world = World::new();
    let mut life = world.start_with(0, Duration::from_secs(3600));
    world.create("web");
    pass(3).await;
    life.reasons();
    world.server.clear_requests();
    pass(3600).await;
    assert_eq!(world.cloud.call_count(CallName::EnsureLoadBalancer), 2);
    assert_eq!((world.patches(), life.reasons()), (vec![], vec![]));
}

/// The three changes a user makes, one after another.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    Create,
    Update,
    Delete,
}

const ACTS: [Act; 3] = [Act::Create, Act::Update, Act::Delete];

fn act(world: &World, act: Act) {
    match act {
        Act::Create => world.create("web"),
        Act::Update => world.set_port("web", 8080),
        Act::Delete => drop(world.server.delete::<Service>("default", "web")),
    }
}

/// Does everything before `last` undisturbed; the cloud's steps take time from here on, so that a crash can hit their middle.
async fn prepared(last: Act) -> (World, Life) {
    let world = World::new();
    let life = world.start();
    for earlier in ACTS.into_iter().take_while(|earlier| *earlier != last) {
        act(&world, earlier);
        pass(3).await;
    }
    for (call, _) in CallName::TABLE.iter().filter(|(call, _)| call.is_step()) {
        world.cloud.set_latency(*call, Duration::from_millis(10));
    }
    world.cloud.clear_calls();
    (world, life)
}

async fn restarted(world: &World, life: Life, last: Act) {
    life.kill().await;
    world.server.faults().recover();
    let life = world.start();
    pass(900).await;
    world.assert_converged();
    assert_eq!(world.service("web").is_none(), last == Act::Delete);
    assert_eq!(life.controller.status().unsettled, []);
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_to_the_cluster_leaves_nothing_behind() {
    for (last, crash) in ACTS.into_iter().flat_map(|act| [(act, Crash::BeforeEffect), (act, Crash::AfterEffect)]) {
        for nth in 1.. {
            let (world, life) = prepared(last).await;
            world.server.faults().crash_after(nth, crash);
            act(&world, last);
            pass(2).await;
            let crashed = world.server.faults().has_crashed();
            world.server.faults().clear();
            restarted(&world, life, last).await;
            if !crashed {
                assert!(nth > 1 || last == Act::Update, "{last:?} writes");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_step_of_the_cloud_leaves_nothing_behind() {
    for last in ACTS {
        let mut crashes = 0;
        for nth in 1.. {
            let (world, life) = prepared(last).await;
            act(&world, last);
            let reached = world.cloud.wait_until(|cloud| cloud.calls().len() >= nth);
            if tokio::time::timeout(Duration::from_secs(3), reached).await.is_err() {
                break;
            }
            crashes += 1;
            restarted(&world, life, last).await;
        }
        assert!(crashes >= 2, "{last:?} was cut {crashes} times");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_service_is_read_while_a_list_is_pending() {
    let (world, life) = settled().await;
    world.cloud.fail_next(CallName::EnsureLoadBalancerDeleted, &CloudError::failed("boom"), 1);
    world.server.update_with("default", "web", |service: &mut Service| service.metadata.finalizers = None);
    world.server.delete::<Service>("default", "web");
    pass(1).await;
    assert!(life.services.is_empty() && world.cloud.load_balancer_of("default/web").is_some(), "its deletion is retried");
    world.server.faults().hang_every(on(Verb::List, "services"));
    life.services.want_relist();
    // The watch ends here, so that it never shows this Service.
    pass(1).await;
    world.create("web");
    pass(60).await;
    assert!(life.services.is_empty() && world.cloud.load_balancer_of("default/web").is_some());
}

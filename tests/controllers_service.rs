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

/// State that outlives a controller.
struct Cluster {
    server: ApiServer,
    cloud: FakeCloud,
    clock: Clock,
}

/// Running controller.
struct Replica {
    controller: Arc<ServiceController>,
    services: InformerStore<Service>,
    shutdown: Shutdown,
    task: JoinHandle<()>,
    events: mpsc::Receiver<(&'static str, RecordedEvent)>,
    metrics: Arc<Metrics>,
}

impl Cluster {
    fn new() -> Self {
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        let cluster = Self { server: ApiServer::new(clock), cloud: FakeCloud::new(FakeConfig::any_node()), clock };
        cluster.server.create(&node("n1"));
        cluster
    }

    fn start(&self) -> Replica {
        self.start_with(0, Duration::ZERO)
    }

    fn start_with(&self, concurrent_syncs: usize, resync_period: Duration) -> Replica {
        self.start_under(
            Leadership::unopposed(),
            ServiceControllerConfig { concurrent_syncs, resync_period, ..Default::default() },
        )
    }

    /// Runs the controller as soon as this replica leads.
    fn start_under(&self, leadership: Leadership, config: ServiceControllerConfig) -> Replica {
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
        Replica { controller, services, shutdown, task, events, metrics }
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

    /// Checks that Services and cloud are consistent.
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

impl Replica {
    fn reasons(&mut self) -> Vec<&'static str> {
        std::iter::from_fn(|| self.events.try_recv().ok()).map(|(_, event)| event.reason).collect()
    }

    /// Ends the controller like `kill -9`.
    async fn kill(self) {
        self.task.abort();
        self.shutdown.begin();
        let _ = self.task.await;
    }
}

/// Starts a controller that serves one Service.
async fn settled() -> (Cluster, Replica) {
    let cluster = Cluster::new();
    let replica = cluster.start();
    cluster.create("web");
    pass(3).await;
    (cluster, replica)
}

/// Waits for `seconds` of virtual time.
async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_is_created_updated_and_deleted() {
    let (cluster, mut replica) = settled().await;
    cluster.assert_converged();
    assert_eq!(cluster.patches().len(), 2, "finalizer, status: {:?}", cluster.patches());
    assert!(cluster.patches().iter().all(|patch| patch.subresource == "status"));
    assert_eq!(replica.reasons(), ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]);
    cluster.server.clear_requests();

    cluster.set_port("web", 8080);
    pass(3).await;
    cluster.assert_converged();
    assert_eq!(cluster.patches(), [], "the addresses are the same");
    assert_eq!(cluster.cloud.call_count(CallName::EnsureLoadBalancer), 2);
    replica.reasons();

    cluster.server.delete::<Service>("default", "web");
    pass(3).await;
    assert!(cluster.service("web").is_none());
    cluster.assert_converged();
    assert_eq!(cluster.patches().len(), 1);
    assert_eq!(replica.reasons(), ["DeletingLoadBalancer", "DeletedLoadBalancer"]);
    assert_eq!(replica.controller.status().unsettled, []);
}

#[tokio::test(start_paused = true)]
async fn a_service_of_another_type_is_cleaned_up() {
    let (cluster, _replica) = settled().await;
    cluster.server.update_with("default", "web", |service: &mut Service| {
        service.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
    });
    pass(3).await;
    assert!(cluster.cloud.load_balancers().is_empty());
    let service = cluster.service("web").unwrap();
    assert_eq!(service.metadata.finalizers.unwrap_or_default(), Vec::<String>::new());
    assert_eq!((cluster.ips("web").len(), cluster.reason("web")), (0, None));
}

#[tokio::test(start_paused = true)]
async fn a_restart_ensures_an_unchanged_service_once_without_a_write() {
    let (cluster, replica) = settled().await;
    replica.kill().await;
    cluster.server.clear_requests();
    cluster.cloud.clear_calls();
    let _replica = cluster.start();
    pass(60).await;
    assert_eq!(cluster.cloud.call_count(CallName::EnsureLoadBalancer), 1);
    assert_eq!(cluster.patches(), []);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_retried_without_another_cloud_call() {
    let cluster = Cluster::new();
    cluster.server.faults().fail_next(2, 409, on(Verb::Patch, "services"));
    let mut replica = cluster.start();
    cluster.create("web");
    pass(3).await;
    cluster.assert_converged();
    assert_eq!(cluster.cloud.call_count(CallName::EnsureLoadBalancer), 1);
    assert!(!replica.reasons().contains(&"SyncLoadBalancerFailed"));
}

#[tokio::test(start_paused = true)]
async fn a_failure_backs_off_and_is_written_once() {
    let cluster = Cluster::new();
    cluster.cloud.fail_next(CallName::EnsureLoadBalancer, &CloudError::failed("no quota"), 3);
    let mut replica = cluster.start();
    cluster.create("web");
    pass(1).await;
    assert_eq!(cluster.reason("web").as_deref(), Some("Failed"));
    assert_eq!(replica.controller.status().unsettled[0].failures, 1);
    // 5 s, 10 s, 20 s: attempts at 0, 5, 15 and 35 s.
    pass(33).await;
    assert_eq!(cluster.cloud.call_count(CallName::EnsureLoadBalancer), 3);
    assert_eq!(cluster.patches().len(), 2, "finalizer, failure");
    pass(3).await;
    cluster.assert_converged();
    assert_eq!(cluster.patches().len(), 3);
    assert_eq!(replica.reasons().iter().filter(|reason| **reason == "SyncLoadBalancerFailed").count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_service_reclassified_during_downtime_is_cleaned_up() {
    for deleted in [false, true] {
        let cluster = Cluster::new();
        let replica = cluster.start();
        cluster.create("web");
        pass(10).await;
        cluster.assert_converged();
        replica.kill().await;
        // The class can only change while the Service has another type.
        cluster.server.update_with("default", "web", |service: &mut Service| {
            service.status = None;
            *service = service.clone().service_type("ClusterIP");
        });
        let class = |service: &mut Service| {
            let classed = service.clone().service_type("LoadBalancer").load_balancer_class("example.com/other");
            *service = classed.ingress_ip("198.51.100.7");
        };
        cluster.server.update_with("default", "web", class);
        let theirs =
            load_balancer_service("default", "theirs").finalizer(FINALIZER).load_balancer_class("example.com/other");
        cluster.server.create(&theirs);
        if deleted {
            ["web", "theirs"].iter().for_each(|name| _ = cluster.server.delete::<Service>("default", name));
        }
        let before = cluster.patches().len();
        let replica = cluster.start();
        pass(30).await;
        assert!(cluster.cloud.load_balancers().is_empty(), "deleted: {deleted}");
        let finalizers = |name: &str| cluster.service(name).map(|service| service.metadata.finalizers.unwrap_or_default());
        if deleted {
            assert_eq!((finalizers("web"), finalizers("theirs")), (None, None));
        } else {
            assert_eq!(finalizers("web"), Some(Vec::new()));
            assert_eq!(cluster.ips("web"), ["198.51.100.7"]);
            assert_eq!(finalizers("theirs"), Some(vec![FINALIZER.to_owned()]));
            assert_eq!(cluster.patches().len() - before, 1);
        }
        replica.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_reported_with_growing_delays() {
    let cluster = Cluster::new();
    cluster.cloud.fail_next(CallName::EnsureLoadBalancer, &CloudError::refused("bad port"), 100);
    let mut replica = cluster.start();
    cluster.create("web");
    pass(34).await;
    assert_eq!(cluster.reason("web").as_deref(), Some("Invalid"));
    assert_eq!(replica.reasons().iter().filter(|reason| **reason == "SyncLoadBalancerFailed").count(), 3);
    assert_eq!(cluster.patches().len(), 2, "finalizer, refusal");
}

#[tokio::test(start_paused = true)]
async fn waiting_is_not_failing_and_no_resync_disturbs_it() {
    let cluster = Cluster::new();
    let wait = CloudError::RetryAfter { after: Duration::from_secs(42), message: "throttled".into() };
    cluster.cloud.fail_next(CallName::EnsureLoadBalancer, &wait, 1);
    let replica = cluster.start_with(0, Duration::from_secs(10));
    cluster.create("web");
    pass(41).await;
    assert_eq!(cluster.reason("web").as_deref(), Some("Waiting"));
    let unsettled = replica.controller.status().unsettled;
    assert_eq!((unsettled[0].failures, cluster.cloud.call_count(CallName::EnsureLoadBalancer)), (0, 1));
    pass(5).await;
    cluster.assert_converged();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_every_condition_is_not_hammered() {
    let cluster = Cluster::new();
    cluster.cloud.set_latency(CallName::EnsureLoadBalancer, Duration::from_secs(1));
    cluster.cloud.fail_next(CallName::EnsureLoadBalancer, &CloudError::failed("no quota"), 1000);
    let _replica = cluster.start();
    cluster.create("web");
    cluster.cloud.wait_until(|cloud| cloud.call_count(CallName::EnsureLoadBalancer) == 1).await;
    cluster.server.faults().fail_next(1000, 409, on(Verb::Patch, "services"));
    pass(3).await;
    assert!((2..20).contains(&cluster.patches().len()), "{}", cluster.patches().len());
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_ignores_deleted_services_and_standby_time() {
    let cluster = Cluster::new();
    let (lead, leadership) = Leadership::channel();
    let config = ServiceControllerConfig::default();
    let replica = cluster.start_under(leadership, config);
    let keys = || -> Vec<_> { replica.controller.status().unsettled.into_iter().map(|key| key.key).collect() };
    ["gone", "web"].iter().for_each(|name| cluster.create(name));
    pass(3600).await;
    assert_eq!(keys(), ["default/gone", "default/web", "nodes", "hosts"]);
    cluster.server.delete::<Service>("default", "gone");
    pass(10).await;
    assert_eq!(keys(), ["default/web", "nodes", "hosts"]);
    assert_eq!(cluster.cloud.calls(), []);

    lead.send_replace(LeadershipState::Unopposed);
    pass(10).await;
    cluster.assert_converged();
    assert_eq!(keys(), Vec::<String>::new());
    let latency = replica.metrics.service_nodesync_latency.with_label_values::<&str>(&[]);
    assert!(latency.get_sample_count() > 0 && latency.get_sample_sum() < 10.0, "{}", latency.get_sample_sum());
}

#[tokio::test(start_paused = true)]
async fn a_service_deleted_without_finalizer_leaves_no_resources() {
    let (cluster, _replica) = settled().await;
    cluster.server.update_with("default", "web", |service: &mut Service| service.metadata.finalizers = None);
    cluster.server.delete::<Service>("default", "web");
    cluster.create("web");
    pass(3).await;
    cluster.assert_converged();
    assert_eq!(cluster.cloud.load_balancers().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_change_costs_one_call_per_service_and_no_write() {
    let cluster = Cluster::new();
    let mut replica = cluster.start();
    (0..20).for_each(|index| cluster.create(&format!("s{index}")));
    pass(3).await;
    replica.reasons();
    cluster.server.clear_requests();
    cluster.cloud.clear_calls();
    (2..7).for_each(|index| drop(cluster.server.create(&node(&format!("n{index}")))));
    pass(60).await;
    assert_eq!(cluster.cloud.call_count(CallName::UpdateLoadBalancer), 20);
    assert_eq!(cluster.cloud.call_count(CallName::EnsureLoadBalancer), 0);
    assert_eq!(cluster.patches(), []);
    assert_eq!(replica.reasons(), ["UpdatedLoadBalancer"; 20]);
    cluster.assert_converged();
}

#[tokio::test(start_paused = true)]
async fn a_growing_cluster_causes_no_failure_in_a_slow_cloud() {
    let (cluster, replica) = settled().await;
    cluster.cloud.set_latency(CallName::UpdateLoadBalancer, Duration::from_secs(2));
    for index in 2..40 {
        cluster.server.create(&node(&format!("n{index}")));
        pass(1).await;
        assert!(replica.controller.status().unsettled.iter().all(|key| key.failures == 0), "at node {index}");
    }
    pass(10).await;
    cluster.assert_converged();
    let calls = cluster.cloud.call_count(CallName::UpdateLoadBalancer);
    assert!((8..=20).contains(&calls), "a call includes all Nodes that joined during the previous call: {calls}");
    assert_eq!(cluster.cloud.call_count(CallName::EnsureLoadBalancer), 1);
}

#[tokio::test(start_paused = true)]
async fn only_changes_of_the_stable_node_set_reach_the_cloud() {
    let (cluster, mut replica) = settled().await;
    replica.reasons();
    let label = |key: &str| {
        cluster.server.update_with("", "n1", |node: &mut Node| {
            node.metadata.labels.get_or_insert_default().insert(key.to_owned(), "true".to_owned());
        });
    };
    label("color");
    pass(5).await;
    assert_eq!(cluster.cloud.call_count(CallName::UpdateLoadBalancer), 0);
    label("node.kubernetes.io/exclude-from-external-load-balancers");
    pass(5).await;
    assert_eq!(cluster.cloud.load_balancer_of("default/web").unwrap().hosts, Vec::<String>::new());
    assert_eq!(replica.reasons(), ["UnAvailableLoadBalancer"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_node_change_is_retried() {
    let (cluster, mut replica) = settled().await;
    cluster.cloud.fail_next(CallName::UpdateLoadBalancer, &CloudError::failed("boom"), 1);
    cluster.server.create(&node("n2"));
    pass(30).await;
    cluster.assert_converged();
    assert!(replica.reasons().contains(&"UpdateLoadBalancerFailed"));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_services_take_the_time_of_one() {
    let cluster = Cluster::new();
    cluster.cloud.set_latency(CallName::EnsureLoadBalancer, Duration::from_millis(50));
    (0..1000).for_each(|index| cluster.create(&format!("s{index}")));
    let _replica = cluster.start();
    let start = Instant::now();
    cluster.cloud.wait_until(|cloud| cloud.call_count(CallName::EnsureLoadBalancer) == 1000).await;
    pass(1).await;
    assert!(start.elapsed() < Duration::from_millis(1200), "{:?}", start.elapsed());
    assert!(cluster.cloud.max_in_flight_seen() >= 100);
    cluster.assert_converged();
}

#[tokio::test(start_paused = true)]
async fn user_changes_precede_existing_services() {
    let cluster = Cluster::new();
    let replica = cluster.start();
    (0..10).for_each(|index| cluster.create(&format!("s{index}")));
    pass(3).await;
    replica.kill().await;
    cluster.cloud.clear_calls();
    cluster.cloud.set_latency(CallName::EnsureLoadBalancer, Duration::from_secs(1));
    let _replica = cluster.start_with(1, Duration::ZERO);
    cluster.cloud.wait_until(|cloud| cloud.call_count(CallName::EnsureLoadBalancer) == 1).await;
    cluster.create("urgent");
    pass(20).await;
    assert_eq!(cluster.cloud.objects_of(CallName::EnsureLoadBalancer)[1], "default/urgent");
    assert_eq!(cluster.cloud.max_in_flight_seen(), 1);
    cluster.assert_converged();
}

#[tokio::test(start_paused = true)]
async fn a_resync_ensures_a_service_and_writes_nothing() {
    let cluster = Cluster::new();
    let mut replica = cluster.start_with(0, Duration::from_secs(3600));
    cluster.create("web");
    pass(3).await;
    replica.reasons();
    cluster.server.clear_requests();
    pass(3600).await;
    assert_eq!(cluster.cloud.call_count(CallName::EnsureLoadBalancer), 2);
    assert_eq!((cluster.patches(), replica.reasons()), (vec![], vec![]));
}

/// Changes of a user, in order.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    Create,
    Update,
    Delete,
}

const ACTS: [Act; 3] = [Act::Create, Act::Update, Act::Delete];

fn act(cluster: &Cluster, act: Act) {
    match act {
        Act::Create => cluster.create("web"),
        Act::Update => cluster.set_port("web", 8080),
        Act::Delete => drop(cluster.server.delete::<Service>("default", "web")),
    }
}

/// Performs all acts before `last` without failures. Then the steps of the cloud get a latency, so a crash can happen between them.
async fn prepared(last: Act) -> (Cluster, Replica) {
    let cluster = Cluster::new();
    let replica = cluster.start();
    for earlier in ACTS.into_iter().take_while(|earlier| *earlier != last) {
        act(&cluster, earlier);
        pass(3).await;
    }
    for (call, _) in CallName::TABLE.iter().filter(|(call, _)| call.is_step()) {
        cluster.cloud.set_latency(*call, Duration::from_millis(10));
    }
    cluster.cloud.clear_calls();
    (cluster, replica)
}

async fn restarted(cluster: &Cluster, replica: Replica, last: Act) {
    replica.kill().await;
    cluster.server.faults().recover();
    let replica = cluster.start();
    pass(900).await;
    cluster.assert_converged();
    assert_eq!(cluster.service("web").is_none(), last == Act::Delete);
    assert_eq!(replica.controller.status().unsettled, []);
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_to_the_cluster_leaves_nothing_behind() {
    for (last, crash) in ACTS.into_iter().flat_map(|act| [(act, Crash::BeforeEffect), (act, Crash::AfterEffect)]) {
        for nth in 1.. {
            let (cluster, replica) = prepared(last).await;
            cluster.server.faults().crash_after(nth, crash);
            act(&cluster, last);
            pass(2).await;
            let crashed = cluster.server.faults().has_crashed();
            cluster.server.faults().clear();
            restarted(&cluster, replica, last).await;
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
            let (cluster, replica) = prepared(last).await;
            act(&cluster, last);
            let call_sent = cluster.cloud.wait_until(|cloud| cloud.calls().len() >= nth);
            if tokio::time::timeout(Duration::from_secs(3), call_sent).await.is_err() {
                break;
            }
            crashes += 1;
            restarted(&cluster, replica, last).await;
        }
        assert!(crashes >= 2, "{last:?} was cut {crashes} times");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_service_is_read_while_a_list_is_pending() {
    let (cluster, replica) = settled().await;
    cluster.cloud.fail_next(CallName::EnsureLoadBalancerDeleted, &CloudError::failed("boom"), 1);
    cluster.server.update_with("default", "web", |service: &mut Service| service.metadata.finalizers = None);
    cluster.server.delete::<Service>("default", "web");
    pass(1).await;
    assert!(
        replica.services.is_empty() && cluster.cloud.load_balancer_of("default/web").is_some(),
        "its deletion is retried"
    );
    cluster.server.faults().hang_every(on(Verb::List, "services"));
    replica.services.request_relist();
    // The watch ends here, so it does not deliver this Service.
    pass(1).await;
    cluster.create("web");
    pass(60).await;
    assert!(replica.services.is_empty() && cluster.cloud.load_balancer_of("default/web").is_some());
}

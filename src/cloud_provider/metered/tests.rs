//! Every method goes through, writes ask for leadership, calls end at their deadline, and all is counted.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Service};
use parking_lot::Mutex;

use super::{super::*, *};
use crate::{
    cloud_provider::conformance,
    runtime::{leader_election::LeadershipState, shutdown::Shutdown},
};

/// Overrides every method, records its name, and returns after `latency`, with `error` if there is one.
#[derive(Clone, Default)]
struct Probe {
    reached: Arc<Mutex<BTreeSet<&'static str>>>,
    latency: Duration,
    error: Option<CloudError>,
}

impl Probe {
    fn note<T>(&self, name: &'static str, answer: T) -> T {
        self.reached.lock().insert(name);
        answer
    }

    async fn answer<T>(&self, name: &'static str, answer: T) -> CloudResult<T> {
        self.note(name, ());
        tokio::time::sleep(self.latency).await;
        self.error.clone().map_or(Ok(answer), Err)
    }

    fn part(&self, name: &'static str) -> Option<Arc<Self>> {
        self.note(name, Some(Arc::new(self.clone())))
    }

    fn reached(&self) -> BTreeSet<&'static str> {
        self.reached.lock().clone()
    }
}

#[async_trait]
impl CloudProvider for Probe {
    fn provider_name(&self) -> &str {
        self.note("provider_name", "probe")
    }
    fn has_cluster_id(&self) -> bool {
        self.note("has_cluster_id", false)
    }
    fn health(&self) -> Result<(), String> {
        self.note("health", ());
        Err("unwell".to_owned())
    }
    fn webhooks(&self) -> Vec<Arc<dyn AdmissionWebhook>> {
        self.note("webhooks", Vec::new())
    }
    fn observe(&self) {
        self.note("observe", ());
    }
    fn is_foreign(&self, _: &Node) -> bool {
        self.note("is_foreign", true)
    }
    fn needs_provider_id(&self, _: &Node) -> bool {
        self.note("needs_provider_id", false)
    }
    fn reads_node_label(&self, key: &str) -> bool {
        self.note("reads_node_label", key == "tier")
    }
    fn cache_age(&self) -> Duration {
        self.note("cache_age", Duration::from_secs(7))
    }
    fn reads_service_label(&self, key: &str) -> bool {
        self.note("reads_service_label", key == "team")
    }
    fn service_list_limits(&self) -> ServiceListLimits {
        self.note("service_list_limits", ServiceListLimits { source_ranges: 7, ports: 8 })
    }
    fn service_annotation(&self, _: &str, _: Option<&Service>) -> AnnotationUse {
        self.note("service_annotation", AnnotationUse::Unread)
    }
    fn refuses_cluster(&self, nodes: &[Arc<Node>]) -> Option<String> {
        self.note("refuses_cluster", nodes.is_empty().then(|| "empty".to_owned()))
    }

    fn status(&self) -> serde_json::Value {
        self.note("status", ());
        serde_json::Value::from("busy")
    }
    async fn initialize(&self, _: ProviderContext) -> CloudResult<()> {
        self.answer("initialize", ()).await
    }
    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(self.part("load_balancer")?)
    }
    fn instances(&self) -> Option<Arc<dyn Instances>> {
        Some(self.part("instances")?)
    }
    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(self.part("instances_v2")?)
    }
    fn zones(&self) -> Option<Arc<dyn Zones>> {
        Some(self.part("zones")?)
    }
    fn routes(&self) -> Option<Arc<dyn Routes>> {
        Some(self.part("routes")?)
    }
    fn pod_cidr_masks(&self) -> Option<Arc<dyn PodCidrMasks>> {
        Some(self.part("pod_cidr_masks")?)
    }
}

/// Implements traits for the probe: each call returns the default. The methods after `with` are written out.
macro_rules! probe {
    ($(
        impl $interface:ident {
            $($call:ident($(&$type:ty),*) -> $result:ty;)*
        }
        $(with { $($method:tt)* })?
    )*) => {$(
        #[async_trait]
        impl $interface for Probe {
            $(async fn $call(&self, $(_: &$type),*) -> CloudResult<$result> {
                self.answer(stringify!($call), Default::default()).await
            })*
            $($($method)*)?
        }
    )*};
}

probe! {
    impl PodCidrMasks {
        mask_sizes(&Node) -> PodCidrMaskSizes;
    }

    impl InstancesV2 {
        instance_exists(&Node) -> bool;
        instance_shutdown(&Node) -> bool;
        instance_runs(&Node) -> bool;
        instance_metadata(&Node) -> Option<InstanceMetadata>;
        is_unlisted(&Node) -> bool;
    }
    with {
        async fn existence(&self, _: &Node) -> Existence {
            match self.answer("existence", Existence::Gone).await {
                Ok(existence) => existence,
                Err(error) => Existence::Unknown(error.to_string()),
            }
        }
        async fn second_look(&self, _: &Node) -> SecondLook {
            match self.answer("second_look", SecondLook::Agrees).await {
                Ok(seen) => seen,
                Err(error) => SecondLook::Silent(error.to_string()),
            }
        }
        async fn instance_metadata_batch(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
            vec![self.answer("instance_metadata_batch", None).await; nodes.len()]
        }
    }

    impl Instances {
        node_addresses(&str) -> Vec<NodeAddress>;
        node_addresses_by_provider_id(&str) -> Vec<NodeAddress>;
        instance_id(&str) -> String;
        instance_type(&str) -> String;
        instance_type_by_provider_id(&str) -> String;
        instance_exists_by_provider_id(&str) -> bool;
        instance_shutdown_by_provider_id(&str) -> bool;
    }

    impl Zones {
        get_zone_by_provider_id(&str) -> Zone;
        get_zone_by_node_name(&str) -> Zone;
    }

    impl LoadBalancer {
        get_load_balancer(&str, &Service) -> Option<LoadBalancerStatus>;
        ensure_load_balancer(&str, &Service, &[Arc<Node>]) -> LoadBalancerStatus;
        compare_load_balancer(&str, &Service, &[Arc<Node>]) -> LoadBalancerStatus;
        update_load_balancer(&str, &Service, &[Arc<Node>]) -> ();
        sync_hosts(&str, &[Arc<Node>]) -> ();
        ensure_load_balancer_deleted(&str, &Service) -> ();
    }
    with {
        fn get_load_balancer_name(&self, _: &str, _: &Service) -> String {
            self.note("get_load_balancer_name", "of-the-probe".into())
        }
        fn labels_read(&self) -> LabelsRead {
            self.note("labels_read", LabelsRead { service: ["tier".to_owned()].into(), ..LabelsRead::default() })
        }
        async fn hosts_changed(&self) {
            self.note("hosts_changed", ())
        }
        async fn configuration_changed(&self) {
            self.note("configuration_changed", ())
        }
        fn max_in_flight(&self) -> Option<usize> {
            self.note("max_in_flight", Some(7))
        }
        fn reverts_external_changes(&self) -> bool {
            self.note("reverts_external_changes", false)
        }
        async fn plan_services(&self, _: &str, _: &ServiceDemand) -> CloudResult<ServicesPlan> {
            let plan = ServicesPlan { existing: ["a/b".to_owned()].into(), ..ServicesPlan::default() };
            self.answer("plan_services", plan).await
        }
        fn problem(&self) -> Option<String> {
            self.note("problem", Some("no".to_owned()))
        }
        fn is_same_request(&self, _: &Service, _: &Service) -> bool {
            self.note("is_same_request", true)
        }
        fn delay(&self, _: &Service) -> Option<String> {
            self.note("delay", Some("a quota".to_owned()))
        }
        fn disregards_limit(&self, limit: usize) -> Option<&'static str> {
            self.note("disregards_limit", (limit == 1).then_some("one is none"))
        }
    }

    impl Routes {
        list_routes(&str) -> Vec<Route>;
        create_route(&str, &str, &Route) -> ();
        delete_route(&str, &Route) -> ();
        routes_for_plan(&str) -> Vec<Route>;
        plan_changes(&str, &RouteChanges) -> WritePlan;
    }
    with {
        async fn apply_routes(&self, _: &str, changes: &RouteChanges) -> RouteOutcomes {
            let outcome = self.answer("apply_routes", ()).await;
            let created = vec![outcome.clone(); changes.create.len()];
            RouteOutcomes { deleted: vec![outcome; changes.delete.len()], created }
        }
    }
}

const WRITES: &str = "apply_routes compare_load_balancer create_route delete_route ensure_load_balancer \
    ensure_load_balancer_deleted sync_hosts update_load_balancer";

/// Accessors that answer at once, and waits that end with a change; all other methods are calls.
const ACCESSORS: &str = "cache_age configuration_changed delay disregards_limit get_load_balancer_name \
    has_cluster_id health hosts_changed instances instances_v2 is_foreign is_same_request labels_read load_balancer max_in_flight \
    needs_provider_id observe pod_cidr_masks problem provider_name reads_node_label reads_service_label \
    refuses_cluster reverts_external_changes routes service_annotation service_list_limits status webhooks zones";

fn is_in(methods: &str, name: &str) -> bool {
    methods.split(' ').any(|method| method == name)
}

/// Names of all methods of the contract, from its source, so that a new one cannot be forgotten here.
fn methods_of_the_contract() -> BTreeSet<&'static str> {
    let sources = [
        include_str!("../../cloud_provider.rs"),
        include_str!("../instances.rs"),
        include_str!("../load_balancer.rs"),
        include_str!("../pod_cidr_masks.rs"),
        include_str!("../routes.rs"),
        include_str!("../zones.rs"),
    ];
    let traits = sources.iter().flat_map(|source| source.split("\npub trait ").skip(1));
    let bodies = traits.map(|text| text.split("\n}\n").next().unwrap());
    let lines = bodies.flat_map(str::lines).map(str::trim_start);
    let methods = lines.filter_map(|line| line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn ")));
    methods.map(|rest| rest.split('(').next().unwrap()).collect()
}

fn context(leadership: Leadership) -> ProviderContext {
    conformance::context(leadership, Shutdown::new(), &[], &[]).unwrap()
}

fn changes() -> RouteChanges {
    RouteChanges { delete: vec![Route::default()], create: vec![(String::new(), Route::default()); 2] }
}

struct Answers {
    calls: Vec<(&'static str, Result<(), CloudError>)>,
    existence: Existence,
    second_look: SecondLook,
}

/// Calls every method once, as controllers would see the provider.
async fn call_everything(cloud: &dyn CloudProvider, leadership: Leadership) -> Answers {
    let (node, service, nodes) = (Node::default(), Service::default(), [Arc::new(Node::default())]);
    let mut calls = vec![("initialize", cloud.initialize(context(leadership)).await)];
    let v2 = cloud.instances_v2().unwrap();
    calls.push(("instance_exists", v2.instance_exists(&node).await.map(drop)));
    calls.push(("instance_shutdown", v2.instance_shutdown(&node).await.map(drop)));
    calls.push(("instance_runs", v2.instance_runs(&node).await.map(drop)));
    calls.push(("instance_metadata", v2.instance_metadata(&node).await.map(drop)));
    let batch = v2.instance_metadata_batch(&nodes).await;
    assert_eq!(batch.len(), 1);
    calls.extend(batch.into_iter().map(|answer| ("instance_metadata_batch", answer.map(drop))));
    calls.push(("is_unlisted", v2.is_unlisted(&node).await.map(drop)));
    let existence = v2.existence(&node).await;
    let second_look = v2.second_look(&node).await;
    let v1 = cloud.instances().unwrap();
    calls.push(("node_addresses", v1.node_addresses("").await.map(drop)));
    calls.push(("node_addresses_by_provider_id", v1.node_addresses_by_provider_id("").await.map(drop)));
    calls.push(("instance_id", v1.instance_id("").await.map(drop)));
    calls.push(("instance_type", v1.instance_type("").await.map(drop)));
    calls.push(("instance_type_by_provider_id", v1.instance_type_by_provider_id("").await.map(drop)));
    calls.push(("instance_exists_by_provider_id", v1.instance_exists_by_provider_id("").await.map(drop)));
    calls.push(("instance_shutdown_by_provider_id", v1.instance_shutdown_by_provider_id("").await.map(drop)));
    let zones = cloud.zones().unwrap();
    calls.push(("get_zone_by_provider_id", zones.get_zone_by_provider_id("").await.map(drop)));
    calls.push(("get_zone_by_node_name", zones.get_zone_by_node_name("").await.map(drop)));
    let balancer = cloud.load_balancer().unwrap();
    calls.push(("get_load_balancer", balancer.get_load_balancer("", &service).await.map(drop)));
    calls.push(("ensure_load_balancer", balancer.ensure_load_balancer("", &service, &nodes).await.map(drop)));
    calls.push(("compare_load_balancer", balancer.compare_load_balancer("", &service, &nodes).await.map(drop)));
    calls.push(("update_load_balancer", balancer.update_load_balancer("", &service, &nodes).await));
    calls.push(("sync_hosts", balancer.sync_hosts("", &nodes).await));
    calls.push(("ensure_load_balancer_deleted", balancer.ensure_load_balancer_deleted("", &service).await));
    calls.push(("plan_services", balancer.plan_services("", &ServiceDemand::default()).await.map(drop)));
    let routes = cloud.routes().unwrap();
    calls.push(("plan_changes", routes.plan_changes("", &changes()).await.map(drop)));
    calls.push(("list_routes", routes.list_routes("").await.map(drop)));
    calls.push(("create_route", routes.create_route("", "", &Route::default()).await));
    calls.push(("delete_route", routes.delete_route("", &Route::default()).await));
    calls.push(("routes_for_plan", routes.routes_for_plan("").await.map(drop)));
    let outcomes = routes.apply_routes("", &changes()).await;
    assert_eq!((outcomes.deleted.len(), outcomes.created.len()), (1, 2));
    calls.extend(outcomes.deleted.into_iter().chain(outcomes.created).map(|outcome| ("apply_routes", outcome)));
    calls.push(("mask_sizes", cloud.pod_cidr_masks().unwrap().mask_sizes(&node).await.map(drop)));
    Answers { calls, existence, second_look }
}

fn wrapped(probe: &Probe, leadership: Leadership) -> (Arc<dyn CloudProvider>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new().unwrap());
    (metered(Arc::new(probe.clone()), metrics.clone(), leadership.into(), CallDeadlines::default()), metrics)
}

fn errors(metrics: &Metrics, call: &str, reason: &str) -> f64 {
    metrics.provider_call_errors_total.with_label_values(&["probe", call, reason]).get()
}

fn measured(metrics: &Metrics, call: &str) -> u64 {
    metrics.provider_call_duration.with_label_values(&["probe", call]).get_sample_count()
}

#[tokio::test(start_paused = true)]
async fn every_method_reaches_the_provider_and_its_answer_comes_back() {
    let probe = Probe::default();
    let (cloud, metrics) = wrapped(&probe, Leadership::unopposed());
    let answers = call_everything(&*cloud, Leadership::unopposed()).await;

    assert!(answers.calls.iter().all(|(_, answer)| answer.is_ok()));
    assert_eq!((answers.existence, answers.second_look), (Existence::Gone, SecondLook::Agrees));
    assert_eq!(cloud.provider_name(), "probe");
    assert!(!cloud.has_cluster_id());
    assert_eq!((cloud.health(), cloud.status()), (Err("unwell".to_owned()), serde_json::Value::from("busy")));
    cloud.observe();
    assert!(cloud.is_foreign(&Node::default()) && !cloud.needs_provider_id(&Node::default()));
    assert!(cloud.reads_node_label("tier") && !cloud.reads_node_label("build") && cloud.reads_service_label("team"));
    assert_eq!((cloud.cache_age(), cloud.service_annotation("a", None)), (Duration::from_secs(7), AnnotationUse::Unread));
    assert_eq!((cloud.refuses_cluster(&[]).as_deref(), cloud.service_list_limits().ports), (Some("empty"), 8));
    assert!(cloud.webhooks().is_empty());
    let balancer = cloud.load_balancer().unwrap();
    assert_eq!(balancer.get_load_balancer_name("", &Service::default()), "of-the-probe");
    assert_eq!(balancer.labels_read().service.len(), 1);
    balancer.hosts_changed().await;
    balancer.configuration_changed().await;
    assert_eq!(balancer.max_in_flight(), Some(7));
    assert!(!balancer.reverts_external_changes());
    let service = Service::default();
    assert!(balancer.is_same_request(&service, &service));
    assert_eq!((balancer.problem().as_deref(), balancer.delay(&service).as_deref()), (Some("no"), Some("a quota")));
    assert_eq!(balancer.disregards_limit(1), Some("one is none"));
    let planned = balancer.plan_services("", &ServiceDemand::default()).await.unwrap();
    assert!(planned.existing.contains("a/b"));

    let contract = methods_of_the_contract();
    assert_eq!(probe.reached(), contract);
    for call in contract.iter().filter(|name| !is_in(ACCESSORS, name)) {
        assert!(measured(&metrics, call) > 0, "{call} is not measured");
    }
}

#[tokio::test(start_paused = true)]
async fn without_leadership_only_reads_reach_the_provider() {
    let (sender, leadership) = Leadership::channel();
    let probe = Probe::default();
    let (cloud, metrics) = wrapped(&probe, leadership.clone());
    let answers = call_everything(&*cloud, leadership).await;
    for (call, answer) in answers.calls {
        assert_eq!(matches!(answer, Err(CloudError::NotLeader(_))), is_in(WRITES, call), "{call}");
        assert_eq!(errors(&metrics, call, "not_leader") > 0.0, is_in(WRITES, call), "{call}");
    }
    assert!(WRITES.split(' ').all(|call| !probe.reached().contains(call)));

    sender.send_replace(LeadershipState::Leading { until: (Instant::now() + Duration::from_secs(10)).into() });
    let ensure = || async { cloud.load_balancer().unwrap().ensure_load_balancer("", &Service::default(), &[]).await };
    assert!(ensure().await.is_ok());
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(matches!(ensure().await, Err(CloudError::NotLeader(_))), "the renew deadline has passed");
}

#[tokio::test(start_paused = true)]
async fn calls_end_at_their_deadline() {
    let limits = CallDeadlines::default();
    for (latency, late_reads, late_writes) in [
        (limits.reads - Duration::from_secs(1), false, false),
        (limits.reads + Duration::from_secs(1), true, false),
        (limits.writes + Duration::from_secs(1), true, true),
    ] {
        let probe = Probe { latency, ..Probe::default() };
        let (cloud, metrics) = wrapped(&probe, Leadership::unopposed());
        let answers = call_everything(&*cloud, Leadership::unopposed()).await;
        for (call, answer) in answers.calls {
            let is_long = is_in(WRITES, call) || call == "initialize";
            let (late, limit) = if is_long { (late_writes, limits.writes) } else { (late_reads, limits.reads) };
            let expected = if late { Err(CloudError::Deadline { call, limit }) } else { Ok(()) };
            assert_eq!(answer, expected, "{call} after {latency:?}");
            assert_eq!(errors(&metrics, call, "deadline") > 0.0, late, "{call} after {latency:?}");
        }
        assert_eq!(matches!(answers.existence, Existence::Unknown(_)), late_reads);
        assert_eq!(matches!(answers.second_look, SecondLook::Silent(_)), late_reads);
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_by_class_and_passed_on() {
    let error = CloudError::RetryAfter { after: Duration::from_secs(42), message: "busy".into() };
    let probe = Probe { error: Some(error.clone()), ..Probe::default() };
    let (cloud, metrics) = wrapped(&probe, Leadership::unopposed());
    let answers = call_everything(&*cloud, Leadership::unopposed()).await;
    for (call, answer) in answers.calls {
        assert_eq!(answer, Err(error.clone()), "{call}");
        let expected = if call == "apply_routes" { 3.0 } else { 1.0 };
        assert_eq!(errors(&metrics, call, "retry_after"), expected, "{call}");
    }
    assert_eq!(answers.existence, Existence::Unknown(error.to_string()));
    assert_eq!(errors(&metrics, "existence", "unknown"), 1.0);
}

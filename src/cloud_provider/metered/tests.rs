//! Results are returned, writes need leadership, calls end at their deadline, and all calls are counted. Clippy rejects a
//! missing method.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Service};
use parking_lot::Mutex;

use super::{super::*, *};
use crate::{
    cloud_provider::conformance,
    runtime::{leader_election::LeadershipState, shutdown::Shutdown},
};

/// Provider that overrides methods of each kind, records their names, and returns after `latency`, with `error` if it is
/// set.
#[derive(Clone, Default)]
struct Probe {
    called: Arc<Mutex<BTreeSet<&'static str>>>,
    latency: Duration,
    error: Option<CloudError>,
}

impl Probe {
    fn record<T>(&self, name: &'static str, value: T) -> T {
        self.called.lock().insert(name);
        value
    }

    async fn call<T>(&self, name: &'static str, value: T) -> CloudResult<T> {
        self.record(name, ());
        tokio::time::sleep(self.latency).await;
        self.error.clone().map_or(Ok(value), Err)
    }

    fn called(&self) -> BTreeSet<&'static str> {
        self.called.lock().clone()
    }
}

#[async_trait]
impl CloudProvider for Probe {
    fn provider_name(&self) -> &str {
        "probe"
    }
    fn health(&self) -> Result<(), String> {
        Err("unwell".to_owned())
    }
    fn reads_node_label(&self, key: &str) -> bool {
        key == "tier"
    }
    async fn initialize(&self, _: ProviderContext) -> CloudResult<()> {
        self.call("initialize", ()).await
    }
    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(self.clone()))
    }
    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(self.clone()))
    }
    fn routes(&self) -> Option<Arc<dyn Routes>> {
        Some(Arc::new(self.clone()))
    }
}

/// Implements traits for the probe: each call returns the default. The methods after `with` are implemented in full.
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
                self.call(stringify!($call), Default::default()).await
            })*
            $($($method)*)?
        }
    )*};
}

probe! {
    impl InstancesV2 {
        instance_exists(&Node) -> bool;
        instance_shutdown(&Node) -> bool;
        instance_metadata(&Node) -> Option<InstanceMetadata>;
    }
    with {
        async fn existence(&self, _: &Node) -> Existence {
            match self.call("existence", Existence::Gone).await {
                Ok(existence) => existence,
                Err(error) => Existence::Unknown(error.to_string()),
            }
        }
        async fn second_look(&self, _: &Node) -> SecondLook {
            match self.call("second_look", SecondLook::Agrees).await {
                Ok(seen) => seen,
                Err(error) => SecondLook::Silent(error.to_string()),
            }
        }
        async fn instance_metadata_batch(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
            vec![self.call("instance_metadata_batch", None).await; nodes.len()]
        }
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
        async fn hosts_changed(&self) {
            self.record("hosts_changed", ())
        }
        async fn configuration_changed(&self) {
            self.record("configuration_changed", ())
        }
        fn delay(&self, _: &Service) -> Option<String> {
            Some("a quota".to_owned())
        }
    }

    impl Routes {
        list_routes(&str) -> Vec<Route>;
        create_route(&str, &str, &Route) -> ();
        delete_route(&str, &Route) -> ();
    }
    with {
        async fn apply_routes(&self, _: &str, changes: &RouteChanges) -> RouteOutcomes {
            let outcome = self.call("apply_routes", ()).await;
            let created = vec![outcome.clone(); changes.create.len()];
            RouteOutcomes { deleted: vec![outcome; changes.delete.len()], created }
        }
    }
}

const WRITES: &str = "apply_routes compare_load_balancer create_route delete_route ensure_load_balancer \
    ensure_load_balancer_deleted sync_hosts update_load_balancer";

fn is_in(methods: &str, name: &str) -> bool {
    methods.split(' ').any(|method| method == name)
}

fn context(leadership: Leadership) -> ProviderContext {
    conformance::context(leadership, Shutdown::new(), &[], &[]).unwrap()
}

fn changes() -> RouteChanges {
    RouteChanges { delete: vec![Route::default()], create: vec![(String::new(), Route::default()); 2] }
}

struct CallResults {
    calls: Vec<(&'static str, Result<(), CloudError>)>,
    existence: Existence,
    second_look: SecondLook,
}

/// Calls each method once, like the controllers.
async fn call_everything(cloud: &dyn CloudProvider, leadership: Leadership) -> CallResults {
    let (node, service, nodes) = (Node::default(), Service::default(), [Arc::new(Node::default())]);
    let mut calls = vec![("initialize", cloud.initialize(context(leadership)).await)];
    let v2 = cloud.instances_v2().unwrap();
    calls.push(("instance_exists", v2.instance_exists(&node).await.map(drop)));
    calls.push(("instance_shutdown", v2.instance_shutdown(&node).await.map(drop)));
    calls.push(("instance_metadata", v2.instance_metadata(&node).await.map(drop)));
    let batch = v2.instance_metadata_batch(&nodes).await;
    assert_eq!(batch.len(), 1);
    calls.extend(batch.into_iter().map(|result| ("instance_metadata_batch", result.map(drop))));
    let existence = v2.existence(&node).await;
    let second_look = v2.second_look(&node).await;
    let balancer = cloud.load_balancer().unwrap();
    calls.push(("get_load_balancer", balancer.get_load_balancer("", &service).await.map(drop)));
    calls.push(("ensure_load_balancer", balancer.ensure_load_balancer("", &service, &nodes).await.map(drop)));
    calls.push(("compare_load_balancer", balancer.compare_load_balancer("", &service, &nodes).await.map(drop)));
    calls.push(("update_load_balancer", balancer.update_load_balancer("", &service, &nodes).await));
    calls.push(("sync_hosts", balancer.sync_hosts("", &nodes).await));
    calls.push(("ensure_load_balancer_deleted", balancer.ensure_load_balancer_deleted("", &service).await));
    let routes = cloud.routes().unwrap();
    calls.push(("list_routes", routes.list_routes("").await.map(drop)));
    calls.push(("create_route", routes.create_route("", "", &Route::default()).await));
    calls.push(("delete_route", routes.delete_route("", &Route::default()).await));
    let outcomes = routes.apply_routes("", &changes()).await;
    assert_eq!((outcomes.deleted.len(), outcomes.created.len()), (1, 2));
    calls.extend(outcomes.deleted.into_iter().chain(outcomes.created).map(|outcome| ("apply_routes", outcome)));
    CallResults { calls, existence, second_look }
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
async fn results_are_returned_and_calls_are_measured() {
    let probe = Probe::default();
    let (cloud, metrics) = wrapped(&probe, Leadership::unopposed());
    let results = call_everything(&*cloud, Leadership::unopposed()).await;
    assert_eq!((results.existence, results.second_look), (Existence::Gone, SecondLook::Agrees));
    for (call, result) in results.calls {
        assert_eq!(result, Ok(()), "{call}");
        assert!(measured(&metrics, call) > 0, "{call} is not measured");
    }
    assert_eq!((cloud.provider_name(), cloud.health()), ("probe", Err("unwell".to_owned())));
    assert!(cloud.reads_node_label("tier") && !cloud.reads_node_label("build"));
    assert!(cloud.instances().is_none() && cloud.zones().is_none() && cloud.pod_cidr_masks().is_none());
    let balancer = cloud.load_balancer().unwrap();
    assert_eq!(balancer.delay(&Service::default()).as_deref(), Some("a quota"));
    balancer.hosts_changed().await;
    balancer.configuration_changed().await;
    assert!(["hosts_changed", "configuration_changed"].iter().all(|call| probe.called().contains(call)));
}

#[tokio::test(start_paused = true)]
async fn without_leadership_only_reads_reach_the_provider() {
    let (sender, leadership) = Leadership::channel();
    let probe = Probe::default();
    let (cloud, metrics) = wrapped(&probe, leadership.clone());
    let results = call_everything(&*cloud, leadership).await;
    for (call, result) in results.calls {
        assert_eq!(matches!(result, Err(CloudError::NotLeader(_))), is_in(WRITES, call), "{call}");
        assert_eq!(errors(&metrics, call, "not_leader") > 0.0, is_in(WRITES, call), "{call}");
    }
    assert!(WRITES.split(' ').all(|call| !probe.called().contains(call)));

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
        let results = call_everything(&*cloud, Leadership::unopposed()).await;
        for (call, result) in results.calls {
            let is_long = is_in(WRITES, call) || call == "initialize";
            let (late, limit) = if is_long { (late_writes, limits.writes) } else { (late_reads, limits.reads) };
            let expected = if late { Err(CloudError::Deadline { call, limit }) } else { Ok(()) };
            assert_eq!(result, expected, "{call} after {latency:?}");
            assert_eq!(errors(&metrics, call, "deadline") > 0.0, late, "{call} after {latency:?}");
        }
        assert_eq!(matches!(results.existence, Existence::Unknown(_)), late_reads);
        assert_eq!(matches!(results.second_look, SecondLook::Silent(_)), late_reads);
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_by_class_and_returned() {
    let error = CloudError::RetryAfter { after: Duration::from_secs(42), message: "busy".into() };
    let probe = Probe { error: Some(error.clone()), ..Probe::default() };
    let (cloud, metrics) = wrapped(&probe, Leadership::unopposed());
    let results = call_everything(&*cloud, Leadership::unopposed()).await;
    for (call, result) in results.calls {
        assert_eq!(result, Err(error.clone()), "{call}");
        let expected = if call == "apply_routes" { 3.0 } else { 1.0 };
        assert_eq!(errors(&metrics, call, "retry_after"), expected, "{call}");
    }
    assert_eq!(results.existence, Existence::Unknown(error.to_string()));
    assert_eq!(errors(&metrics, "existence", "unknown"), 1.0);
}

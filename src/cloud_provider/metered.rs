//! Decorators of the provider traits that add metrics, deadlines and the leadership check.
//!
//! In: a provider. Out: a provider whose calls are measured, end at a deadline, and write only while this replica leads.
//! Every method is delegated, including those with a default, so that no override of the provider is lost.

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::time::Instant;

use super::{
    AdmissionWebhook, AnnotationUse, CloudError, CloudProvider, CloudResult, Existence, InstanceMetadata, Instances,
    InstancesV2, LabelsRead, LoadBalancer, LoadBalancerStatus, NodeAddress, PodCidrMaskSizes, PodCidrMasks, ProviderContext,
    Route, RouteChanges, RouteOutcomes, Routes, SecondLook, ServiceDemand, ServiceListLimits, ServicesPlan, WritePlan, Zone,
    Zones,
};
use crate::{metrics::Metrics, runtime::leader_election::Leadership, status::ProviderDetails};

/// Deadlines of calls. A call that exceeds its deadline may still have had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallDeadlines {
    /// Deadline of calls that only read, by default 2 minutes.
    pub reads: Duration,
    /// Deadline of calls that write and of `initialize`, by default 20 minutes.
    ///
    /// Clouds take minutes to create a load balancer, and `initialize` may fill caches.
    pub writes: Duration,
}

impl Default for CallDeadlines {
    fn default() -> Self {
        Self { reads: Duration::from_secs(2 * 60), writes: Duration::from_secs(20 * 60) }
    }
}

/// Wraps `provider` and every part that it returns.
pub fn metered(
    provider: Arc<dyn CloudProvider>,
    metrics: Arc<Metrics>,
    leadership: WriteLeadership,
    deadlines: CallDeadlines,
) -> Arc<dyn CloudProvider> {
    let meter = CallMeter {
        provider: provider.provider_name().into(),
        metrics,
        leadership: leadership.load_balancers,
        route_leadership: leadership.routes,
        deadlines,
    };
    Arc::new(MeteredProvider { inner: provider, meter })
}

/// Leaderships that writes require, for each part of the provider.
///
/// With leader migration, the controllers of the parts run under different leases.
#[derive(Clone)]
pub struct WriteLeadership {
    /// Leadership of the service controller.
    pub load_balancers: Leadership,
    /// Leadership of the route controller.
    pub routes: Leadership,
}

impl From<Leadership> for WriteLeadership {
    fn from(leadership: Leadership) -> Self {
        Self { load_balancers: leadership.clone(), routes: leadership }
    }
}

struct MeteredProvider<T: ?Sized> {
    inner: Arc<T>,
    meter: CallMeter,
}

#[derive(Clone)]
struct CallMeter {
    provider: Arc<str>,
    metrics: Arc<Metrics>,
    leadership: Leadership,
    route_leadership: Leadership,
    deadlines: CallDeadlines,
}

impl CallMeter {
    fn wrap<T: ?Sized>(&self, inner: Arc<T>) -> Arc<MeteredProvider<T>> {
        Arc::new(MeteredProvider { inner, meter: self.clone() })
    }

    async fn read<T>(&self, call: &'static str, work: impl Future<Output = CloudResult<T>> + Send) -> CloudResult<T> {
        let result = self.within(call, self.deadlines.reads, work).await.and_then(|result| result);
        self.counted(call, result)
    }

    async fn write<T>(&self, call: &'static str, work: impl Future<Output = CloudResult<T>> + Send) -> CloudResult<T> {
        let result = match self.may_write() {
            Ok(()) => self.within(call, self.deadlines.writes, work).await.and_then(|result| result),
            Err(error) => Err(error),
        };
        self.counted(call, result)
    }

    fn may_write(&self) -> CloudResult<()> {
        self.leadership.check().map_err(|error| CloudError::NotLeader(error.to_string()))
    }

    /// Runs `work` within `limit` and measures its duration, including that of calls that exceed the limit.
    async fn within<F: Future + Send>(&self, call: &'static str, limit: Duration, work: F) -> CloudResult<F::Output> {
        let start = Instant::now();
        let result = tokio::time::timeout(limit, work).await;
        let seconds = start.elapsed().as_secs_f64();
        self.metrics.provider_call_duration.with_label_values(&[&*self.provider, call]).observe(seconds);
        result.map_err(|_| CloudError::Deadline { call, limit })
    }

    fn counted<T>(&self, call: &'static str, result: CloudResult<T>) -> CloudResult<T> {
        result.inspect_err(|error| self.count(call, error.class()))
    }

    fn count(&self, call: &'static str, reason: &str) {
        self.metrics.provider_call_errors_total.with_label_values(&[&*self.provider, call, reason]).inc();
    }
}

/// Implements traits by delegation. Clippy refuses a table that lacks a method.
///
/// A `read` or `write` is measured and ends at its deadline, an accessor returns at once, and a part is wrapped. The methods
/// after `with` are implemented in full.
macro_rules! relay {
    ($(
        impl $interface:ident {
            $($kind:ident $call:ident($($arg:ident: &$type:ty),*) -> $result:ty;)*
        }
        $(accessors { $($accessor:ident($($value:ident: $value_type:ty),*) $(-> $returned:ty)?;)* })?
        $(parts { $($getter:ident: $part:ident;)* })?
        $(with { $($method:tt)* })?
    )*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl $interface for MeteredProvider<dyn $interface> {
            $(async fn $call(&self, $($arg: &$type),*) -> CloudResult<$result> {
                self.meter.$kind(stringify!($call), self.inner.$call($($arg),*)).await
            })*
            $($(fn $accessor(&self, $($value: $value_type),*) $(-> $returned)? {
                self.inner.$accessor($($value),*)
            })*)?
            $($(fn $getter(&self) -> Option<Arc<dyn $part>> {
                Some(self.meter.wrap(self.inner.$getter()?))
            })*)?
            $($($method)*)?
        }
    )*};
}

relay! {
    impl CloudProvider {}
    accessors {
        provider_name() -> &str;
        has_cluster_id() -> bool;
        health() -> Result<(), String>;
        status() -> Option<ProviderDetails>;
        observe();
        reads_node_label(key: &str) -> bool;
        is_foreign(node: &Node) -> bool;
        needs_provider_id(node: &Node) -> bool;
        cache_age() -> Duration;
        reads_service_label(key: &str) -> bool;
        service_list_limits() -> ServiceListLimits;
        service_annotation(key: &str, service: Option<&Service>) -> AnnotationUse;
        refuses_cluster(nodes: &[Arc<Node>]) -> Option<String>;
        webhooks() -> Vec<Arc<dyn AdmissionWebhook>>;
    }
    parts {
        load_balancer: LoadBalancer;
        instances: Instances;
        instances_v2: InstancesV2;
        zones: Zones;
        pod_cidr_masks: PodCidrMasks;
    }
    with {
        async fn initialize(&self, context: ProviderContext) -> CloudResult<()> {
            let (call, limit) = ("initialize", self.meter.deadlines.writes);
            let result = self.meter.within(call, limit, self.inner.initialize(context)).await.and_then(|result| result);
            self.meter.counted(call, result)
        }

        fn routes(&self) -> Option<Arc<dyn Routes>> {
            let meter = CallMeter { leadership: self.meter.route_leadership.clone(), ..self.meter.clone() };
            Some(meter.wrap(self.inner.routes()?))
        }
    }

    impl PodCidrMasks {
        read mask_sizes(node: &Node) -> PodCidrMaskSizes;
    }

    impl InstancesV2 {
        read instance_exists(node: &Node) -> bool;
        read instance_shutdown(node: &Node) -> bool;
        read instance_runs(node: &Node) -> bool;
        read instance_metadata(node: &Node) -> Option<InstanceMetadata>;
        read is_unlisted(node: &Node) -> bool;
    }
    with {
        async fn existence(&self, node: &Node) -> Existence {
            let call = "existence";
            let existence = self.meter.read(call, self.inner.existence(node).map(Ok)).await;
            if matches!(existence, Ok(Existence::Unknown(_))) {
                self.meter.count(call, "unknown");
            }
            existence.unwrap_or_else(|error| Existence::Unknown(error.to_string()))
        }

        async fn second_look(&self, node: &Node) -> SecondLook {
            let verdict = self.meter.read("second_look", self.inner.second_look(node).map(Ok)).await;
            verdict.unwrap_or_else(|error| SecondLook::Silent(error.to_string()))
        }

        async fn instance_metadata_batch(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
            let call = "instance_metadata_batch";
            let work = self.inner.instance_metadata_batch(nodes);
            let results = self.meter.within(call, self.meter.deadlines.reads, work).await;
            let results = results.unwrap_or_else(|error| vec![Err(error); nodes.len()]);
            results.into_iter().map(|result| self.meter.counted(call, result)).collect()
        }
    }

    impl Instances {
        read node_addresses(name: &str) -> Vec<NodeAddress>;
        read node_addresses_by_provider_id(provider_id: &str) -> Vec<NodeAddress>;
        read instance_id(name: &str) -> String;
        read instance_type(name: &str) -> String;
        read instance_type_by_provider_id(provider_id: &str) -> String;
        read instance_exists_by_provider_id(provider_id: &str) -> bool;
        read instance_shutdown_by_provider_id(provider_id: &str) -> bool;
    }

    impl Zones {
        read get_zone_by_provider_id(provider_id: &str) -> Zone;
        read get_zone_by_node_name(name: &str) -> Zone;
    }

    impl LoadBalancer {
        read get_load_balancer(cluster: &str, service: &Service) -> Option<LoadBalancerStatus>;
        write ensure_load_balancer(cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> LoadBalancerStatus;
        write compare_load_balancer(cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> LoadBalancerStatus;
        write update_load_balancer(cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> ();
        write sync_hosts(cluster: &str, nodes: &[Arc<Node>]) -> ();
        write ensure_load_balancer_deleted(cluster: &str, service: &Service) -> ();
        read plan_services(cluster: &str, demand: &ServiceDemand) -> ServicesPlan;
    }
    accessors {
        get_load_balancer_name(cluster: &str, service: &Service) -> String;
        labels_read() -> LabelsRead;
        max_in_flight() -> Option<usize>;
        reverts_external_changes() -> bool;
        problem() -> Option<String>;
        is_same_request(old: &Service, new: &Service) -> bool;
        delay(service: &Service) -> Option<String>;
        disregards_limit(limit: usize) -> Option<&'static str>;
    }
    with {
        async fn hosts_changed(&self) {
            self.inner.hosts_changed().await;
        }

        async fn configuration_changed(&self) {
            self.inner.configuration_changed().await;
        }
    }

    impl Routes {
        read list_routes(cluster: &str) -> Vec<Route>;
        write create_route(cluster: &str, name_hint: &str, route: &Route) -> ();
        write delete_route(cluster: &str, route: &Route) -> ();
        read routes_for_plan(cluster: &str) -> Vec<Route>;
        read plan_changes(cluster: &str, changes: &RouteChanges) -> WritePlan;
    }
    with {
        async fn apply_routes(&self, cluster: &str, changes: &RouteChanges) -> RouteOutcomes {
            let call = "apply_routes";
            let (limit, work) = (self.meter.deadlines.writes, self.inner.apply_routes(cluster, changes));
            let outcomes = match self.meter.may_write() {
                Ok(()) => self.meter.within(call, limit, work).await,
                Err(error) => Err(error),
            };
            let outcomes = outcomes.unwrap_or_else(|error| RouteOutcomes::failed(changes, &error));
            let failures = outcomes.deleted.iter().chain(&outcomes.created).filter_map(|outcome| outcome.as_ref().err());
            failures.for_each(|error| self.meter.count(call, error.class()));
            outcomes
        }
    }
}

#[cfg(test)]
mod tests;

//! Decorators over the provider traits: times, counts, deadlines and the leadership check.
//!
//! In: a provider. Out: the same provider, whose calls are measured, end at a deadline, and write only while this replica leads.
//! Every method is passed on, also those with a default, so that what a provider overrides is never lost.

mod clusters;

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::time::Instant;

use super::{
    AdmissionWebhook, AnnotationUse, CloudError, CloudProvider, CloudResult, Clusters, Existence, InstanceMetadata,
    Instances, InstancesV2, LabelsRead, LoadBalancer, LoadBalancerStatus, NodeAddress, PodCidrMaskSizes, PodCidrMasks,
    ProviderContext, Route, RouteChanges, RouteOutcomes, Routes, SecondLook, ServiceDemand, ServiceListLimits, ServicesPlan,
    WritePlan, Zone, Zones,
};
use crate::{metrics::Metrics, runtime::leader_election::Leadership};

/// Deadlines of calls. A call that is cut off here may still have had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallDeadlines {
    /// Calls that only read.
    pub reads: Duration,
    /// Calls that write; clouds take minutes for a load balancer. Also the start of the provider, which may fill caches.
    pub writes: Duration,
}

impl Default for CallDeadlines {
    fn default() -> Self {
        Self { reads: Duration::from_secs(2 * 60), writes: Duration::from_secs(20 * 60) }
    }
}

/// Wraps `provider` and every part that it hands out.
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

/// Leadership that the calls that write check, for each part separately: with leader migration, controllers run under
/// different leases.
#[derive(Clone)]
pub struct WriteLeadership {
    /// Of the service controller.
    pub load_balancers: Leadership,
    /// Of the route controller.
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

    /// Measures `work`, also when it gives no answer in time.
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

#[async_trait]
impl CloudProvider for MeteredProvider<dyn CloudProvider> {
    fn provider_name(&self) -> &str {
        self.inner.provider_name()
    }

    fn has_cluster_id(&self) -> bool {
        self.inner.has_cluster_id()
    }
    fn health(&self) -> Result<(), String> {
        self.inner.health()
    }
    fn status(&self) -> serde_json::Value {
        self.inner.status()
    }
    fn observe(&self) {
        self.inner.observe();
    }
    fn reads_node_label(&self, key: &str) -> bool {
        self.inner.reads_node_label(key)
    }
    fn is_foreign(&self, node: &Node) -> bool {
        self.inner.is_foreign(node)
    }
    fn needs_provider_id(&self, node: &Node) -> bool {
        self.inner.needs_provider_id(node)
    }
    fn cache_age(&self) -> Duration {
        self.inner.cache_age()
    }
    fn reads_service_label(&self, key: &str) -> bool {
        self.inner.reads_service_label(key)
    }
    fn service_list_limits(&self) -> ServiceListLimits {
        self.inner.service_list_limits()
    }
    fn service_annotation(&self, key: &str, service: Option<&Service>) -> AnnotationUse {
        self.inner.service_annotation(key, service)
    }
    fn refuses_cluster(&self, nodes: &[Arc<Node>]) -> Option<String> {
        self.inner.refuses_cluster(nodes)
    }

    async fn initialize(&self, context: ProviderContext) -> CloudResult<()> {
        let limit = self.meter.deadlines.writes;
        let result = self.meter.within("initialize", limit, self.inner.initialize(context)).await.and_then(|result| result);
        self.meter.counted("initialize", result)
    }

    fn webhooks(&self) -> Vec<Arc<dyn AdmissionWebhook>> {
        self.inner.webhooks()
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(self.meter.wrap(self.inner.load_balancer()?))
    }

    fn instances(&self) -> Option<Arc<dyn Instances>> {
        Some(self.meter.wrap(self.inner.instances()?))
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(self.meter.wrap(self.inner.instances_v2()?))
    }

    fn zones(&self) -> Option<Arc<dyn Zones>> {
        Some(self.meter.wrap(self.inner.zones()?))
    }

    fn clusters(&self) -> Option<Arc<dyn Clusters>> {
        Some(self.meter.wrap(self.inner.clusters()?))
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        let meter = CallMeter { leadership: self.meter.route_leadership.clone(), ..self.meter.clone() };
        Some(meter.wrap(self.inner.routes()?))
    }

    fn pod_cidr_masks(&self) -> Option<Arc<dyn PodCidrMasks>> {
        Some(self.meter.wrap(self.inner.pod_cidr_masks()?))
    }
}

#[async_trait]
impl PodCidrMasks for MeteredProvider<dyn PodCidrMasks> {
    async fn mask_sizes(&self, node: &Node) -> CloudResult<PodCidrMaskSizes> {
        self.meter.read("mask_sizes", self.inner.mask_sizes(node)).await
    }
}

#[async_trait]
impl InstancesV2 for MeteredProvider<dyn InstancesV2> {
    async fn instance_exists(&self, node: &Node) -> CloudResult<bool> {
        self.meter.read("instance_exists", self.inner.instance_exists(node)).await
    }

    async fn instance_shutdown(&self, node: &Node) -> CloudResult<bool> {
        self.meter.read("instance_shutdown", self.inner.instance_shutdown(node)).await
    }

    async fn instance_runs(&self, node: &Node) -> CloudResult<bool> {
        self.meter.read("instance_runs", self.inner.instance_runs(node)).await
    }

    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>> {
        self.meter.read("instance_metadata", self.inner.instance_metadata(node)).await
    }

    async fn existence(&self, node: &Node) -> Existence {
        let call = "existence";
        match self.meter.within(call, self.meter.deadlines.reads, self.inner.existence(node)).await {
            Ok(Existence::Unknown(reason)) => {
                self.meter.count(call, "unknown");
                Existence::Unknown(reason)
            }
            Ok(verdict) => verdict,
            Err(error) => {
                self.meter.count(call, error.class());
                Existence::Unknown(error.to_string())
            }
        }
    }

    async fn second_look(&self, node: &Node) -> SecondLook {
        let call = "second_look";
        let seen = self.meter.within(call, self.meter.deadlines.reads, self.inner.second_look(node)).await;
        self.meter.counted(call, seen).unwrap_or_else(|error| SecondLook::Silent(error.to_string()))
    }

    async fn is_unlisted(&self, node: &Node) -> CloudResult<bool> {
        self.meter.read("is_unlisted", self.inner.is_unlisted(node)).await
    }

    async fn instance_metadata_batch(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        let call = "instance_metadata_batch";
        let work = self.inner.instance_metadata_batch(nodes);
        let results = self.meter.within(call, self.meter.deadlines.reads, work).await;
        let results = results.unwrap_or_else(|error| vec![Err(error); nodes.len()]);
        results.into_iter().map(|result| self.meter.counted(call, result)).collect()
    }
}

#[async_trait]
impl Instances for MeteredProvider<dyn Instances> {
    async fn node_addresses(&self, name: &str) -> CloudResult<Vec<NodeAddress>> {
        self.meter.read("node_addresses", self.inner.node_addresses(name)).await
    }

    async fn node_addresses_by_provider_id(&self, provider_id: &str) -> CloudResult<Vec<NodeAddress>> {
        let work = self.inner.node_addresses_by_provider_id(provider_id);
        self.meter.read("node_addresses_by_provider_id", work).await
    }

    async fn instance_id(&self, name: &str) -> CloudResult<String> {
        self.meter.read("instance_id", self.inner.instance_id(name)).await
    }

    async fn instance_type(&self, name: &str) -> CloudResult<String> {
        self.meter.read("instance_type", self.inner.instance_type(name)).await
    }

    async fn instance_type_by_provider_id(&self, provider_id: &str) -> CloudResult<String> {
        let work = self.inner.instance_type_by_provider_id(provider_id);
        self.meter.read("instance_type_by_provider_id", work).await
    }

    async fn add_ssh_key_to_all_instances(&self, user: &str, key_data: &[u8]) -> CloudResult<()> {
        let work = self.inner.add_ssh_key_to_all_instances(user, key_data);
        self.meter.write("add_ssh_key_to_all_instances", work).await
    }

    async fn current_node_name(&self, hostname: &str) -> CloudResult<String> {
        self.meter.read("current_node_name", self.inner.current_node_name(hostname)).await
    }

    async fn instance_exists_by_provider_id(&self, provider_id: &str) -> CloudResult<bool> {
        let work = self.inner.instance_exists_by_provider_id(provider_id);
        self.meter.read("instance_exists_by_provider_id", work).await
    }

    async fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> CloudResult<bool> {
        let work = self.inner.instance_shutdown_by_provider_id(provider_id);
        self.meter.read("instance_shutdown_by_provider_id", work).await
    }
}

#[async_trait]
impl Zones for MeteredProvider<dyn Zones> {
    async fn get_zone(&self) -> CloudResult<Zone> {
        self.meter.read("get_zone", self.inner.get_zone()).await
    }

    async fn get_zone_by_provider_id(&self, provider_id: &str) -> CloudResult<Zone> {
        self.meter.read("get_zone_by_provider_id", self.inner.get_zone_by_provider_id(provider_id)).await
    }

    async fn get_zone_by_node_name(&self, name: &str) -> CloudResult<Zone> {
        self.meter.read("get_zone_by_node_name", self.inner.get_zone_by_node_name(name)).await
    }
}

#[async_trait]
impl LoadBalancer for MeteredProvider<dyn LoadBalancer> {
    async fn get_load_balancer(&self, cluster: &str, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        self.meter.read("get_load_balancer", self.inner.get_load_balancer(cluster, service)).await
    }

    fn get_load_balancer_name(&self, cluster: &str, service: &Service) -> String {
        self.inner.get_load_balancer_name(cluster, service)
    }

    async fn ensure_load_balancer(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus> {
        self.meter.write("ensure_load_balancer", self.inner.ensure_load_balancer(cluster, service, nodes)).await
    }

    async fn compare_load_balancer(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus> {
        self.meter.write("compare_load_balancer", self.inner.compare_load_balancer(cluster, service, nodes)).await
    }

    async fn update_load_balancer(&self, cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<()> {
        self.meter.write("update_load_balancer", self.inner.update_load_balancer(cluster, service, nodes)).await
    }

    async fn sync_hosts(&self, cluster: &str, nodes: &[Arc<Node>]) -> CloudResult<()> {
        self.meter.write("sync_hosts", self.inner.sync_hosts(cluster, nodes)).await
    }

    async fn ensure_load_balancer_deleted(&self, cluster: &str, service: &Service) -> CloudResult<()> {
        let work = self.inner.ensure_load_balancer_deleted(cluster, service);
        self.meter.write("ensure_load_balancer_deleted", work).await
    }

    fn labels_read(&self) -> LabelsRead {
        self.inner.labels_read()
    }

    async fn hosts_changed(&self) {
        self.inner.hosts_changed().await;
    }

    async fn configuration_changed(&self) {
        self.inner.configuration_changed().await;
    }

    async fn plan_services(&self, cluster: &str, demand: &ServiceDemand) -> CloudResult<ServicesPlan> {
        self.meter.read("plan_services", self.inner.plan_services(cluster, demand)).await
    }

    fn max_in_flight(&self) -> Option<usize> {
        self.inner.max_in_flight()
    }

    fn reverts_external_changes(&self) -> bool {
        self.inner.reverts_external_changes()
    }

    fn problem(&self) -> Option<String> {
        self.inner.problem()
    }

    fn is_same_request(&self, old: &Service, new: &Service) -> bool {
        self.inner.is_same_request(old, new)
    }

    fn delay(&self, service: &Service) -> Option<String> {
        self.inner.delay(service)
    }

    fn disregards_limit(&self, limit: usize) -> Option<&'static str> {
        self.inner.disregards_limit(limit)
    }
}

#[async_trait]
impl Routes for MeteredProvider<dyn Routes> {
    async fn list_routes(&self, cluster: &str) -> CloudResult<Vec<Route>> {
        self.meter.read("list_routes", self.inner.list_routes(cluster)).await
    }

    async fn create_route(&self, cluster: &str, name_hint: &str, route: &Route) -> CloudResult<()> {
        self.meter.write("create_route", self.inner.create_route(cluster, name_hint, route)).await
    }

    async fn delete_route(&self, cluster: &str, route: &Route) -> CloudResult<()> {
        self.meter.write("delete_route", self.inner.delete_route(cluster, route)).await
    }

    async fn apply_routes(&self, cluster: &str, changes: &RouteChanges) -> RouteOutcomes {
        let call = "apply_routes";
        let outcomes = match self.meter.may_write() {
            Ok(()) => self.meter.within(call, self.meter.deadlines.writes, self.inner.apply_routes(cluster, changes)).await,
            Err(error) => Err(error),
        };
        let outcomes = outcomes.unwrap_or_else(|error| RouteOutcomes {
            deleted: vec![Err(error.clone()); changes.delete.len()],
            created: vec![Err(error); changes.create.len()],
        });
        let failures = outcomes.deleted.iter().chain(&outcomes.created).filter_map(|outcome| outcome.as_ref().err());
        failures.for_each(|error| self.meter.count(call, error.class()));
        outcomes
    }

    async fn routes_for_plan(&self, cluster: &str) -> CloudResult<Vec<Route>> {
        self.meter.read("routes_for_plan", self.inner.routes_for_plan(cluster)).await
    }

    async fn plan_changes(&self, cluster: &str, changes: &RouteChanges) -> CloudResult<WritePlan> {
        self.meter.read("plan_changes", self.inner.plan_changes(cluster, changes)).await
    }
}

#[cfg(test)]
mod tests;

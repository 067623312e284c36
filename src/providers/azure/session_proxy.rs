//! Parts that the provider hands out: each call is made on the current session.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::sync::Notify;

use super::{
    load_balancer::{cluster_watches::ClusterWatches, engine::AzureLoadBalancers},
    session::Session,
};
use crate::cloud_provider::{
    CloudError, CloudResult, Existence, InstanceMetadata, Instances, InstancesV2, LabelsRead, LoadBalancer,
    LoadBalancerStatus, NodeAddress, PodCidrMaskSizes, PodCidrMasks, Route, RouteChanges, RouteOutcomes, Routes, SecondLook,
    ServiceDemand, ServicesPlan, WritePlan, Zone, Zones,
};

/// Reason why `--concurrent-service-syncs=1` is not applied. Upstream: `cmd/cloud-controller-manager/app`.
const ONLY_ONE: &str = "Azure's Go program accepts no other value, so that it says nothing; \
                        give 2 or more to limit how many Services are worked on at a time";

/// Returns the session at work, if there is one yet.
pub(super) fn current_session(session: &ArcSwapOption<Session>) -> CloudResult<Arc<Session>> {
    session.load_full().ok_or_else(|| {
        CloudError::failed("the azure provider is not running: not initialised yet, or disableCloudProvider is set")
    })
}

/// Every part, over the session at work.
pub(super) struct SessionProxy(pub(super) Arc<ArcSwapOption<Session>>);

impl SessionProxy {
    fn session(&self) -> CloudResult<Arc<Session>> {
        current_session(&self.0)
    }
}

impl SessionProxy {
    fn load_balancers(&self) -> CloudResult<Arc<AzureLoadBalancers>> {
        let none = || CloudError::failed("the azure provider has not read the cluster's Services yet");
        self.session()?.load_balancers.clone().ok_or_else(none)
    }
}

/// Load balancers of the session at work, and what is watched for all sessions.
pub(super) struct LoadBalancerProxy {
    pub(super) session: SessionProxy,
    pub(super) watches: ClusterWatches,
    /// Notified when another session is in use.
    pub(super) reconfigured: Arc<Notify>,
}

impl LoadBalancerProxy {
    fn load_balancers(&self) -> CloudResult<Arc<AzureLoadBalancers>> {
        self.session.load_balancers()
    }
}

#[async_trait]
impl LoadBalancer for LoadBalancerProxy {
    async fn get_load_balancer(&self, cluster: &str, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        self.load_balancers()?.get_load_balancer(cluster, service).await
    }
    async fn ensure_load_balancer(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus> {
        self.load_balancers()?.ensure_load_balancer(cluster, service, nodes).await
    }
    async fn compare_load_balancer(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus> {
        self.load_balancers()?.compare_load_balancer(cluster, service, nodes).await
    }
    async fn update_load_balancer(&self, cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<()> {
        self.load_balancers()?.update_load_balancer(cluster, service, nodes).await
    }
    async fn sync_hosts(&self, cluster: &str, nodes: &[Arc<Node>]) -> CloudResult<()> {
        self.load_balancers()?.sync_hosts(cluster, nodes).await
    }
    async fn ensure_load_balancer_deleted(&self, cluster: &str, service: &Service) -> CloudResult<()> {
        self.load_balancers()?.ensure_load_balancer_deleted(cluster, service).await
    }
    async fn plan_services(&self, cluster: &str, demand: &ServiceDemand) -> CloudResult<ServicesPlan> {
        self.load_balancers()?.plan_services(cluster, demand).await
    }
    fn reverts_external_changes(&self) -> bool {
        self.load_balancers().is_ok_and(|load_balancers| load_balancers.reverts_external_changes())
    }
    fn problem(&self) -> Option<String> {
        self.load_balancers().ok()?.problem()
    }
    fn is_same_request(&self, old: &Service, new: &Service) -> bool {
        self.load_balancers().is_ok_and(|load_balancers| load_balancers.is_same_request(old, new))
    }
    fn delay(&self, service: &Service) -> Option<String> {
        self.load_balancers().ok()?.delay(service)
    }

    fn labels_read(&self) -> LabelsRead {
        self.load_balancers().map(|load_balancers| load_balancers.labels_read()).unwrap_or_default()
    }

    async fn hosts_changed(&self) {
        self.watches.endpoints_moved().await;
    }

    async fn configuration_changed(&self) {
        self.reconfigured.notified().await;
    }

    fn disregards_limit(&self, limit: usize) -> Option<&'static str> {
        (limit == 1).then_some(ONLY_ONE)
    }
}

#[async_trait]
impl InstancesV2 for SessionProxy {
    async fn instance_exists(&self, node: &Node) -> CloudResult<bool> {
        self.session()?.instances.instance_exists(node).await
    }
    async fn instance_shutdown(&self, node: &Node) -> CloudResult<bool> {
        self.session()?.instances.instance_shutdown(node).await
    }
    async fn instance_runs(&self, node: &Node) -> CloudResult<bool> {
        self.session()?.instances.instance_runs(node).await
    }
    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>> {
        self.session()?.instances.instance_metadata(node).await
    }
    async fn existence(&self, node: &Node) -> Existence {
        match self.session() {
            Ok(session) => session.instances.existence(node).await,
            Err(error) => Existence::Unknown(error.to_string()),
        }
    }
    async fn second_look(&self, node: &Node) -> SecondLook {
        match self.session() {
            Ok(session) => session.instances.second_look(node).await,
            Err(error) => SecondLook::Silent(error.to_string()),
        }
    }
    async fn is_unlisted(&self, node: &Node) -> CloudResult<bool> {
        self.session()?.instances.is_unlisted(node).await
    }
    async fn instance_metadata_batch(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        match self.session() {
            Ok(session) => session.instances.instance_metadata_batch(nodes).await,
            Err(error) => nodes.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

#[async_trait]
impl PodCidrMasks for SessionProxy {
    async fn mask_sizes(&self, node: &Node) -> CloudResult<PodCidrMaskSizes> {
        self.session()?.pod_cidr_masks.mask_sizes(node).await
    }
}

#[async_trait]
impl Instances for SessionProxy {
    async fn node_addresses(&self, name: &str) -> CloudResult<Vec<NodeAddress>> {
        self.session()?.instances.node_addresses(name).await
    }
    async fn node_addresses_by_provider_id(&self, provider_id: &str) -> CloudResult<Vec<NodeAddress>> {
        self.session()?.instances.node_addresses_by_provider_id(provider_id).await
    }
    async fn instance_id(&self, name: &str) -> CloudResult<String> {
        self.session()?.instances.instance_id(name).await
    }
    async fn instance_type(&self, name: &str) -> CloudResult<String> {
        self.session()?.instances.instance_type(name).await
    }
    async fn instance_type_by_provider_id(&self, provider_id: &str) -> CloudResult<String> {
        self.session()?.instances.instance_type_by_provider_id(provider_id).await
    }
    async fn current_node_name(&self, hostname: &str) -> CloudResult<String> {
        self.session()?.instances.current_node_name(hostname).await
    }
    async fn instance_exists_by_provider_id(&self, provider_id: &str) -> CloudResult<bool> {
        self.session()?.instances.instance_exists_by_provider_id(provider_id).await
    }
    async fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> CloudResult<bool> {
        self.session()?.instances.instance_shutdown_by_provider_id(provider_id).await
    }
}

#[async_trait]
impl Zones for SessionProxy {
    async fn get_zone(&self) -> CloudResult<Zone> {
        self.session()?.instances.get_zone().await
    }
    async fn get_zone_by_provider_id(&self, provider_id: &str) -> CloudResult<Zone> {
        self.session()?.instances.get_zone_by_provider_id(provider_id).await
    }
    async fn get_zone_by_node_name(&self, name: &str) -> CloudResult<Zone> {
        self.session()?.instances.get_zone_by_node_name(name).await
    }
}

#[async_trait]
impl Routes for SessionProxy {
    async fn list_routes(&self, cluster: &str) -> CloudResult<Vec<Route>> {
        self.session()?.routes.list_routes(cluster).await
    }
    async fn create_route(&self, cluster: &str, name_hint: &str, route: &Route) -> CloudResult<()> {
        self.session()?.routes.create_route(cluster, name_hint, route).await
    }
    async fn delete_route(&self, cluster: &str, route: &Route) -> CloudResult<()> {
        self.session()?.routes.delete_route(cluster, route).await
    }
    async fn routes_for_plan(&self, cluster: &str) -> CloudResult<Vec<Route>> {
        self.session()?.routes.routes_for_plan(cluster).await
    }
    async fn plan_changes(&self, cluster: &str, changes: &RouteChanges) -> CloudResult<WritePlan> {
        self.session()?.routes.plan_changes(cluster, changes).await
    }
    async fn apply_routes(&self, cluster: &str, changes: &RouteChanges) -> RouteOutcomes {
        match self.session() {
            Ok(session) => session.routes.apply_routes(cluster, changes).await,
            Err(error) => RouteOutcomes {
                deleted: vec![Err(error.clone()); changes.delete.len()],
                created: vec![Err(error); changes.create.len()],
            },
        }
    }
}

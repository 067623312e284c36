//! Upstream's metrics of membership in back-end pools.
//!
//! In: the Services for which machines join or leave pools. Out: an observation for each of them.

use std::sync::Arc;

use crate::{
    metrics::Metrics,
    providers::azure::{
        config::{AzureConfig, BackendPoolType, VmType},
        operation_metrics::{OperationLabels, OperationTimer},
        planner::load_balancer::{desired::ServiceRequest, spec::ServiceIdentity},
    },
    runtime::clock::Clock,
};

/// Counts for each Service what is done for all together, as the kind of machine that `vmType` names. Upstream counts each kind by
/// itself: `EnsureHostsInPool` and `EnsureBackendPoolDeleted` in `pkg/provider/azure_{standard,vmss,vmssflex}.go`.
pub(super) struct PoolMetrics {
    metrics: Arc<Metrics>,
    clock: Clock,
    resource_group: String,
    subscription: String,
    /// What joining and leaving are called; `None` where no machine has to say in which pools it is.
    requests: Option<[&'static str; 2]>,
}

impl PoolMetrics {
    pub(super) fn new(config: &AzureConfig, metrics: Arc<Metrics>, clock: Clock) -> Self {
        let requests = match config.vm_type {
            VmType::Standard => ["vmas_ensure_hosts_in_pool", "vmas_ensure_backend_pool_deleted"],
            VmType::Vmss => ["vmss_ensure_hosts_in_pool", "vmss_ensure_backend_pool_deleted"],
            VmType::VmssFlex => ["vmssflex_ensure_hosts_in_pool", "vmssflex_ensure_backend_pool_deleted"],
        };
        let is_by_interface = config.load_balancer_backend_pool_configuration_type == BackendPoolType::NodeIpConfiguration;
        Self {
            metrics,
            clock,
            resource_group: config.resource_group.clone(),
            subscription: config.subscription_id.clone(),
            requests: is_by_interface.then_some(requests),
        }
    }

    fn begin<'a>(&'a self, area: &'static str, request: &'a str, source: &'a str) -> OperationTimer<'a> {
        let (resource_group, subscription) = (self.resource_group.as_str(), self.subscription.as_str());
        let operation = OperationLabels { area, request, resource_group, subscription, source };
        OperationTimer::begin(&self.metrics, self.clock, operation)
    }

    /// Something is done to the private link service of this Service.
    pub(super) fn private_link<'a>(&'a self, request: &'a str, who: &'a ServiceIdentity) -> OperationTimer<'a> {
        self.begin("services", request, &who.key)
    }

    /// Machines join the pools for this Service.
    pub(super) fn join<'a>(&'a self, request: &'a ServiceRequest) -> Option<OperationTimer<'a>> {
        self.requests.map(|[join, _]| self.begin("services", join, &request.identity().key))
    }

    /// A pool that one Service has for itself is written. Upstream: `pkg/provider/azure_local_services.go`.
    pub(super) fn update_own_pool(&self) -> OperationTimer<'_> {
        self.begin("services_local", "update_backend_pool", "local_service_backend_pool_updater")
    }

    /// They leave them, because these Services were the last ones.
    pub(super) fn leave<'a>(&'a self, requests: &'a [ServiceRequest]) -> Vec<OperationTimer<'a>> {
        let Some([_, leave]) = self.requests else { return Vec::new() };
        requests.iter().map(|request| self.begin("services", leave, &request.identity().key)).collect()
    }
}

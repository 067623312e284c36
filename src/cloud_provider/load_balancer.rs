//! Load balancers: Services of type `LoadBalancer`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Service};

pub use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, PortStatus};

use super::{CloudError, CloudResult, WritePlan};

/// Services to plan for together; all others keep what they have.
#[derive(Debug, Clone, Default)]
pub struct ServiceDemand {
    /// Services that must have a load balancer.
    pub to_ensure: Vec<Arc<Service>>,
    /// Services whose load balancer must be deleted.
    pub to_delete: Vec<Arc<Service>>,
    /// Hosts of all of them.
    pub nodes: Vec<Arc<Node>>,
}

/// Plan of a cloud for Services. Keys are `namespace/name`.
#[derive(Debug, Clone, Default)]
pub struct ServicesPlan {
    /// Writes to the cloud.
    pub writes: WritePlan,
    /// Status of each Service to ensure after all writes, where it is known; the others depend on a response of the cloud.
    pub statuses: BTreeMap<String, LoadBalancerStatus>,
    /// Services to ensure that are refused: the error that `ensure_load_balancer` would return.
    pub refused: BTreeMap<String, CloudError>,
    /// Services to delete that have something in the cloud.
    pub existing: BTreeSet<String>,
    /// Services about which something could not be read, which is in the plan.
    pub unknown: BTreeSet<String>,
}

/// Keys of labels that decide where a load balancer is: a change of any other label is no reason to look at it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelsRead {
    /// Labels of the Service.
    pub service: BTreeSet<String>,
    /// Of its Namespace, which the provider has to demand
    /// ([`ProviderContext::namespaces`](super::ProviderContext::namespaces)).
    pub namespace: BTreeSet<String>,
}

/// Most items that a provider accepts of lists of a Service. Of a longer list it gets one more, and must refuse the Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceListLimits {
    /// `spec.loadBalancerSourceRanges`. The ranges of a longer list are empty.
    pub source_ranges: usize,
    /// `spec.ports`.
    pub ports: usize,
}

impl ServiceListLimits {
    /// Limits of a provider that accepts lists of any length.
    pub const NONE: Self = Self { source_ranges: usize::MAX, ports: usize::MAX };
}

/// Load balancers of a cloud. Upstream: `cloud.go`, `LoadBalancer`.
///
/// All methods must bear being repeated and being killed half-way: the next `ensure` finishes or cleans up. Calls for different
/// Services come concurrently; calls for one Service never do.
#[async_trait]
pub trait LoadBalancer: Send + Sync {
    /// Returns the status of the load balancer of `service`, `None` if there is none.
    async fn get_load_balancer(&self, cluster: &str, service: &Service) -> CloudResult<Option<LoadBalancerStatus>>;

    /// Returns the name of the load balancer, whether it exists or not. By default `a` and the Service's UID without dashes, cut to
    /// 32 characters, as upstream's `DefaultLoadBalancerName`.
    fn get_load_balancer_name(&self, _cluster: &str, service: &Service) -> String {
        let uid = service.metadata.uid.as_deref().unwrap_or_default();
        std::iter::once('a').chain(uid.chars().filter(|c| *c != '-')).take(32).collect()
    }

    /// Creates or updates the load balancer so that it serves `service` from `nodes`; answers its status.
    async fn ensure_load_balancer(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus>;

    /// Compares the load balancer of `service` with the cloud although nothing changed since it was ensured, and returns its
    /// status.
    ///
    /// A provider that can detect external changes overrides it; the others ensure.
    async fn compare_load_balancer(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus> {
        self.ensure_load_balancer(cluster, service, nodes).await
    }

    /// Changes the hosts of an existing load balancer to `nodes`.
    async fn update_load_balancer(&self, cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<()>;

    /// Syncs the hosts of all existing load balancers to `nodes`, even where no Service can be ensured.
    ///
    /// Called whenever Nodes have changed in a way that may matter, and every minute: it must cost nothing if no work is
    /// pending.
    async fn sync_hosts(&self, _cluster: &str, _nodes: &[Arc<Node>]) -> CloudResult<()> {
        Ok(())
    }

    /// Deletes the load balancer and all that belongs to it; success when nothing is left, also when nothing was there.
    async fn ensure_load_balancer_deleted(&self, cluster: &str, service: &Service) -> CloudResult<()>;

    /// Returns the labels of Services and Namespaces whose change alone moves Services at once; by default none. They may change
    /// with the configuration.
    fn labels_read(&self) -> LabelsRead {
        LabelsRead::default()
    }

    /// Resolves when [`LoadBalancer::sync_hosts`] must be called for a reason that the provider alone sees, such as
    /// endpoints that have moved. By default never.
    async fn hosts_changed(&self) {
        std::future::pending().await
    }

    /// Resolves when every load balancer must be compared with the cloud because the provider's configuration changed. Never, unless a
    /// provider reloads its configuration.
    async fn configuration_changed(&self) {
        std::future::pending().await
    }

    /// Plans what [`LoadBalancer::ensure_load_balancer`] and [`LoadBalancer::ensure_load_balancer_deleted`] would write for all these
    /// Services at once. Writes nothing and changes nothing that is remembered. The plan names what cannot be read.
    async fn plan_services(&self, _cluster: &str, _demand: &ServiceDemand) -> CloudResult<ServicesPlan> {
        Err(CloudError::NotImplemented)
    }

    /// Returns how many concurrent Services the provider can use; `None` for no limit of its own. Used when
    /// `--concurrent-service-syncs` is 0.
    fn max_in_flight(&self) -> Option<usize> {
        None
    }

    /// Returns `true` if the configuration requires that changes of other writers are reverted, also those of the finalizer and the
    /// status of Services. By default it does.
    fn reverts_external_changes(&self) -> bool {
        true
    }

    /// Returns the reason why no Service is served, or `None`.
    fn problem(&self) -> Option<String> {
        None
    }

    /// Returns `true` if two versions of a Service request the same of this provider, for example because only annotations
    /// differ that it does not read.
    ///
    /// Such a change is not carried out at once.
    fn is_same_request(&self, _old: &Service, _new: &Service) -> bool {
        false
    }

    /// Returns what a call in progress for `service` waits for, for its condition; `None` if the provider knows of nothing.
    fn delay(&self, _service: &Service) -> Option<String> {
        None
    }

    /// Returns the reason why `--concurrent-service-syncs=LIMIT` is not applied, for the log;
    /// [`LoadBalancer::max_in_flight`] counts then. `None` if the limit applies.
    fn disregards_limit(&self, _limit: usize) -> Option<&'static str> {
        None
    }
}

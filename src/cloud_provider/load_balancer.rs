//! Load balancers of Services of type `LoadBalancer`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Service};

pub use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, PortStatus};

use super::{CloudError, CloudResult, WritePlan};

/// Services of one plan. The load balancers of all other Services are unchanged.
#[derive(Debug, Clone, Default)]
pub struct ServiceDemand {
    /// Services that must have a load balancer.
    pub to_ensure: Vec<Arc<Service>>,
    /// Services whose load balancer must be deleted.
    pub to_delete: Vec<Arc<Service>>,
    /// Hosts of all load balancers.
    pub nodes: Vec<Arc<Node>>,
}

/// Plan of a cloud for the Services of a [`ServiceDemand`]. Services are identified by `namespace/name`.
#[derive(Debug, Clone, Default)]
pub struct ServicesPlan {
    /// Writes to the cloud.
    pub writes: WritePlan,
    /// Status of each Service to ensure after all writes. Services whose status depends on a response of the cloud are
    /// missing.
    pub statuses: BTreeMap<String, LoadBalancerStatus>,
    /// Errors that [`LoadBalancer::ensure_load_balancer`] would return, by Service.
    pub refused: BTreeMap<String, CloudError>,
    /// Services to delete that have resources in the cloud.
    pub existing: BTreeSet<String>,
    /// Services for which a read failed. [`WritePlan::unread`] has the reasons.
    pub unread: BTreeSet<String>,
}

/// Keys of labels that determine the location of a load balancer.
///
/// A change of such a label ensures the load balancer again. Changes of other labels have no effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelsRead {
    /// Labels of the Service.
    pub service: BTreeSet<String>,
    /// Labels of the Namespace of the Service. The provider must demand the Namespaces
    /// ([`ProviderContext::namespaces`](super::ProviderContext::namespaces)).
    pub namespace: BTreeSet<String>,
}

/// Maximum lengths of the lists of a Service that a provider accepts.
///
/// Of a longer list, the provider gets one item more than the maximum. It must refuse such a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceListLimits {
    /// Maximum length of `spec.loadBalancerSourceRanges`. The ranges of a longer list are empty strings.
    pub source_ranges: usize,
    /// Maximum length of `spec.ports`.
    pub ports: usize,
}

impl ServiceListLimits {
    /// Limits of a provider that accepts lists of any length.
    pub const NONE: Self = Self { source_ranges: usize::MAX, ports: usize::MAX };
}

/// Load balancers of a cloud. Upstream: `cloud.go`, `LoadBalancer`.
///
/// Calls for different Services are concurrent; calls for one Service are not. Every call can be repeated, and can be
/// interrupted at any point by its deadline (2 minutes for reads, 20 minutes for writes), by lost leadership, or by the end
/// of the process. This means that each method must compare the cloud with the desired state, and complete what an earlier
/// call began.
///
/// # Errors
///
/// The variant of [`CloudError`] determines when the service controller retries. The message becomes an event and a
/// condition of the Service.
#[async_trait]
pub trait LoadBalancer: Send + Sync {
    /// Returns the status of the load balancer of `service`; `None` if it does not exist. Upstream: `GetLoadBalancer`.
    ///
    /// For a deleted Service, `None` means that the finalizer is removed without a call of
    /// [`LoadBalancer::ensure_load_balancer_deleted`]. So the result must be `Some` while any part of the load balancer
    /// exists.
    async fn get_load_balancer(&self, cluster: &str, service: &Service) -> CloudResult<Option<LoadBalancerStatus>>;

    /// Returns the name of the load balancer of `service`, which does not have to exist. Upstream: `GetLoadBalancerName`.
    ///
    /// By default, it is `a` and the UID of the Service without dashes, truncated to 32 characters
    /// (`DefaultLoadBalancerName`). It must not change while the Service exists.
    fn get_load_balancer_name(&self, _cluster: &str, service: &Service) -> String {
        let uid = service.metadata.uid.as_deref().unwrap_or_default();
        std::iter::once('a').chain(uid.chars().filter(|c| *c != '-')).take(32).collect()
    }

    /// Creates or updates the load balancer so that it sends the traffic of `service` to `nodes`, and returns its status.
    ///
    /// The status is published in the Service. If the load balancer already matches, the call must not write to the cloud.
    /// Upstream: `EnsureLoadBalancer`.
    ///
    /// # Errors
    ///
    /// [`CloudError::Incomplete`] if the load balancer has its addresses, but another part failed. [`CloudError::Invalid`]
    /// or [`CloudError::Refused`] if a user must change the Service first.
    async fn ensure_load_balancer(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus>;

    /// Compares the load balancer of an unchanged `service` with the cloud, and returns its status.
    ///
    /// By default, it calls [`LoadBalancer::ensure_load_balancer`]. Override it if the provider can report external changes
    /// in addition to repairing them.
    async fn compare_load_balancer(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus> {
        self.ensure_load_balancer(cluster, service, nodes).await
    }

    /// Changes the hosts of an existing load balancer to `nodes`. Upstream: `UpdateLoadBalancer`.
    async fn update_load_balancer(&self, cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<()>;

    /// Syncs the hosts of all existing load balancers to `nodes`, including those whose Services cannot be ensured.
    ///
    /// Called after each change of the Nodes that may affect hosts, and every minute. So it must not send requests if
    /// nothing has changed. By default, it does nothing.
    async fn sync_hosts(&self, _cluster: &str, _nodes: &[Arc<Node>]) -> CloudResult<()> {
        Ok(())
    }

    /// Deletes the load balancer of `service` and all its resources. Upstream: `EnsureLoadBalancerDeleted`.
    ///
    /// `Ok(())` means that nothing of it exists, also if it never existed. The finalizer of the Service is then removed.
    async fn ensure_load_balancer_deleted(&self, cluster: &str, service: &Service) -> CloudResult<()>;

    /// Returns the keys of labels of Services and Namespaces whose change ensures the load balancer again. By default none.
    ///
    /// The keys may change with the configuration.
    fn labels_read(&self) -> LabelsRead {
        LabelsRead::default()
    }

    /// Resolves when [`LoadBalancer::sync_hosts`] must be called for a reason that only the provider observes, such as moved
    /// endpoints. By default, it never resolves.
    async fn hosts_changed(&self) {
        std::future::pending().await
    }

    /// Resolves when the configuration of the provider has changed, so that every load balancer must be compared with the
    /// cloud.
    ///
    /// By default, it never resolves. Override it if the provider reloads its configuration.
    async fn configuration_changed(&self) {
        std::future::pending().await
    }

    /// Plans the writes that would ensure and delete the load balancers of a [`ServiceDemand`].
    ///
    /// The result must match [`LoadBalancer::ensure_load_balancer`] and [`LoadBalancer::ensure_load_balancer_deleted`].
    /// Called on every replica, leading or not. So it must neither write to the cloud nor change the state of the provider.
    /// Failed reads are entries of the plan, not errors.
    ///
    /// # Errors
    ///
    /// [`CloudError::NotImplemented`] by default. This means that the plans of `/planz` and `--dry-run` are incomplete.
    async fn plan_services(&self, _cluster: &str, _demand: &ServiceDemand) -> CloudResult<ServicesPlan> {
        Err(CloudError::NotImplemented)
    }

    /// Returns the number of Services that the provider can process concurrently; `None`: no limit of the provider.
    ///
    /// Used if `--concurrent-service-syncs` is 0.
    fn max_in_flight(&self) -> Option<usize> {
        None
    }

    /// Returns `true` if the controllers must revert changes of other writers to the finalizer and the status of Services.
    ///
    /// By default `true`.
    fn reverts_external_changes(&self) -> bool {
        true
    }

    /// Returns the reason why the provider currently serves no Service; `None` if it serves Services.
    fn problem(&self) -> Option<String> {
        None
    }

    /// Returns `true` if two versions of a Service request the same load balancer, for example if only unrelated annotations
    /// differ.
    ///
    /// This means that the change does not ensure the load balancer again at once. By default `false`.
    fn is_same_request(&self, _old: &Service, _new: &Service) -> bool {
        false
    }

    /// Returns the reason why a call in progress for `service` waits, for the condition of the Service; `None`: no known
    /// reason.
    fn delay(&self, _service: &Service) -> Option<String> {
        None
    }

    /// Returns the reason why a value of `--concurrent-service-syncs` is not applied, for the log; `None` if it
    /// applies.
    ///
    /// If it is not applied, [`LoadBalancer::max_in_flight`] is used.
    fn disregards_limit(&self, _limit: usize) -> Option<&'static str> {
        None
    }
}

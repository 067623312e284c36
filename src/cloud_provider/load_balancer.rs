//! Load balancers: Services of type `LoadBalancer`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Service};

pub use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, PortStatus};

use super::{CloudError, CloudResult, WritePlan};

/// What is asked of the load balancers of a whole cluster.
#[derive(Debug, Clone, Default)]
pub struct ServiceDemand {
    /// Services that shall have one.
    pub wanted: Vec<Arc<Service>>,
    /// Services whose load balancer shall go.
    pub unwanted: Vec<Arc<Service>>,
    /// Hosts of all of them.
    pub nodes: Vec<Arc<Node>>,
}

/// What load balancers would come to. Keys are `namespace/name`.
#[derive(Debug, Clone, Default)]
pub struct LoadBalancerForecast {
    /// Requests to the cloud.
    pub plan: WritePlan,
    /// The status that each Service would have that is wanted, as far as it is known; the others wait for the cloud's answer.
    pub statuses: BTreeMap<String, LoadBalancerStatus>,
    /// Services that are wanted and refused: the error that `ensure_load_balancer` would answer.
    pub refused: BTreeMap<String, CloudError>,
    /// Services that are not wanted and have something in the cloud.
    pub existing: BTreeSet<String>,
    /// Services about which something could not be read, which is in the plan.
    pub unknown: BTreeSet<String>,
}

/// Keys of labels that decide where a load balancer is: a change of any other label is no reason to look at it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelsRead {
    /// Of the Service.
    pub service: BTreeSet<String>,
    /// Of its Namespace, which the provider has to demand
    /// ([`ProviderContext::namespaces`](super::ProviderContext::namespaces)).
    pub namespace: BTreeSet<String>,
}

/// Load balancers of a cloud. Upstream: `cloud.go`, `LoadBalancer`.
///
/// All methods must bear being repeated and being killed half-way: the next `ensure` finishes or cleans up. Calls for different
/// Services come concurrently; calls for one Service never do.
#[async_trait]
pub trait LoadBalancer: Send + Sync {
    /// Status of the load balancer of `service`, `None` when there is none.
    async fn get_load_balancer(&self, cluster: &str, service: &Service) -> CloudResult<Option<LoadBalancerStatus>>;

    /// Name of the load balancer, whether it exists or not. Upstream's default: `DefaultLoadBalancerName`.
    fn get_load_balancer_name(&self, _cluster: &str, service: &Service) -> String {
        default_load_balancer_name(service)
    }

    /// Creates or updates the load balancer so that it serves `service` from `nodes`; answers its status.
    async fn ensure_load_balancer(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus>;

    /// Compares the load balancer of `service` with the cloud, although nothing changed since it was ensured; answers its status. A
    /// provider that can tell what somebody else changed overrides it; the others ensure.
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

    /// Brings the hosts of all load balancers that there are to `nodes`, also where no Service can be ensured. Called whenever Nodes have
    /// changed in a way that may matter, and every minute: it must cost nothing while there is nothing to do.
    async fn sync_hosts(&self, cluster: &str, nodes: &[Arc<Node>]) -> CloudResult<()> {
        let _ = (cluster, nodes);
        Ok(())
    }

    /// Deletes the load balancer and all that belongs to it; success when nothing is left, also when nothing was there.
    async fn ensure_load_balancer_deleted(&self, cluster: &str, service: &Service) -> CloudResult<()>;

    /// What [`LoadBalancer::ensure_load_balancer`] would do, for people to read; empty when nothing. Writes nothing.
    async fn plan_load_balancer(&self, cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<String> {
        let _ = (cluster, service, nodes);
        Err(CloudError::NotImplemented)
    }

    /// Which labels of Services and Namespaces decide about load balancers; none, unless a provider says otherwise. May change with its
    /// configuration.
    fn labels_read(&self) -> LabelsRead {
        LabelsRead::default()
    }

    /// Resolves when [`LoadBalancer::sync_hosts`] has to be called for a reason that the provider alone sees, such as endpoints that have
    /// moved. Never, unless a provider says otherwise.
    async fn hosts_changed(&self) {
        std::future::pending().await
    }

    /// What [`LoadBalancer::ensure_load_balancer`] and [`LoadBalancer::ensure_load_balancer_deleted`] would do for all these Services
    /// at once. Writes nothing and changes nothing that is remembered. What it cannot read it names in the plan.
    async fn forecast(&self, cluster: &str, demand: &ServiceDemand) -> CloudResult<LoadBalancerForecast> {
        let _ = (cluster, demand);
        Err(CloudError::NotImplemented)
    }

    /// How many Services the provider can usefully have in flight at once; `None` for no limit of its own. Used when
    /// `--concurrent-service-syncs` is 0.
    fn max_in_flight(&self) -> Option<usize> {
        None
    }

    /// Why no Service gets anything, whatever it asks for; `None` when that is not so.
    fn problem(&self) -> Option<String> {
        None
    }

    /// What calls in progress wait for, for the conditions of their Services; `None`: nothing that the provider knows of.
    fn delay(&self) -> Option<String> {
        None
    }

    /// Why `--concurrent-service-syncs=LIMIT` is not what whoever set it wanted, for the log; [`LoadBalancer::max_in_flight`] counts
    /// then. `None` when the limit holds.
    fn disregards_limit(&self, limit: usize) -> Option<&'static str> {
        let _ = limit;
        None
    }
}

/// `a` and the Service's UID without dashes, cut to 32 characters. Upstream: `cloud.go`, `DefaultLoadBalancerName`.
pub(crate) fn default_load_balancer_name(service: &Service) -> String {
    let uid = service.metadata.uid.as_deref().unwrap_or_default();
    std::iter::once('a').chain(uid.chars().filter(|c| *c != '-')).take(32).collect()
}

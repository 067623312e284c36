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
    CloudError, CloudResult, Existence, InstanceMetadata, InstancesV2, LabelsRead, LoadBalancer, LoadBalancerStatus,
    PodCidrMaskSizes, PodCidrMasks, Route, RouteChanges, RouteOutcomes, Routes, SecondLook, ServiceDemand, ServicesPlan,
    WritePlan,
};

/// Reason why `--concurrent-service-syncs=1` is not applied. Upstream: `cmd/cloud-controller-manager/app`.
const ONLY_ONE: &str = "Azure's Go program accepts no other value, so that it says nothing; \
                        give 2 or more to limit how many Services are worked on at a time";

/// Returns the current session, if there is one yet.
pub(super) fn current_session(session: &ArcSwapOption<Session>) -> CloudResult<Arc<Session>> {
    session.load_full().ok_or_else(|| {
        CloudError::failed("the azure provider is not running: not initialized yet, or disableCloudProvider is set")
    })
}

/// Proxy of every part for the current session.
pub(super) struct SessionProxy(pub(super) Arc<ArcSwapOption<Session>>);

impl SessionProxy {
    fn session(&self) -> CloudResult<Arc<Session>> {
        current_session(&self.0)
    }

    fn instances(&self) -> CloudResult<Arc<dyn InstancesV2>> {
        Ok(self.session()?.instances.clone())
    }

    fn routes(&self) -> CloudResult<Arc<dyn Routes>> {
        Ok(self.session()?.routes.clone())
    }
}

/// Load balancers of the current session, and the watches of all sessions.
pub(super) struct LoadBalancerProxy {
    pub(super) session: SessionProxy,
    pub(super) watches: ClusterWatches,
    /// Notified when another session is in use.
    pub(super) reconfigured: Arc<Notify>,
}

impl LoadBalancerProxy {
    fn load_balancers(&self) -> CloudResult<Arc<AzureLoadBalancers>> {
        let none = || CloudError::failed("the azure provider has not read the cluster's Services yet");
        self.session.session()?.load_balancers.clone().ok_or_else(none)
    }
}

#[async_trait]
impl PodCidrMasks for SessionProxy {
    async fn mask_sizes(&self, node: &Node) -> CloudResult<PodCidrMaskSizes> {
        self.session()?.pod_cidr_masks.mask_sizes(node).await
    }
}

/// Implements traits by making each call on the current session. The methods after `with` are written out.
macro_rules! relay {
    ($(
        $(#[$attribute:meta])*
        impl $interface:ident for $proxy:ident, $source:ident {
            $($call:ident($($arg:ident: &$type:ty),*) -> $result:ty;)*
        }
        $(with { $($method:tt)* })?
    )*) => {$(
        #[async_trait]
        $(#[$attribute])*
        impl $interface for $proxy {
            $(async fn $call(&self, $($arg: &$type),*) -> CloudResult<$result> {
                self.$source()?.$call($($arg),*).await
            })*
            $($($method)*)?
        }
    )*};
}

relay! {
    impl LoadBalancer for LoadBalancerProxy, load_balancers {
        get_load_balancer(cluster: &str, service: &Service) -> Option<LoadBalancerStatus>;
        ensure_load_balancer(cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> LoadBalancerStatus;
        compare_load_balancer(cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> LoadBalancerStatus;
        update_load_balancer(cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> ();
        sync_hosts(cluster: &str, nodes: &[Arc<Node>]) -> ();
        ensure_load_balancer_deleted(cluster: &str, service: &Service) -> ();
        plan_services(cluster: &str, demand: &ServiceDemand) -> ServicesPlan;
    }
    with {
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

    #[deny(clippy::missing_trait_methods)]
    impl InstancesV2 for SessionProxy, instances {
        instance_exists(node: &Node) -> bool;
        instance_shutdown(node: &Node) -> bool;
        instance_runs(node: &Node) -> bool;
        instance_metadata(node: &Node) -> Option<InstanceMetadata>;
        is_unlisted(node: &Node) -> bool;
    }
    with {
        async fn existence(&self, node: &Node) -> Existence {
            match self.instances() {
                Ok(instances) => instances.existence(node).await,
                Err(error) => Existence::Unknown(error.to_string()),
            }
        }
        async fn second_look(&self, node: &Node) -> SecondLook {
            match self.instances() {
                Ok(instances) => instances.second_look(node).await,
                Err(error) => SecondLook::Silent(error.to_string()),
            }
        }
        async fn instance_metadata_batch(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
            match self.instances() {
                Ok(instances) => instances.instance_metadata_batch(nodes).await,
                Err(error) => nodes.iter().map(|_| Err(error.clone())).collect(),
            }
        }
    }

    #[deny(clippy::missing_trait_methods)]
    impl Routes for SessionProxy, routes {
        list_routes(cluster: &str) -> Vec<Route>;
        create_route(cluster: &str, name_hint: &str, route: &Route) -> ();
        delete_route(cluster: &str, route: &Route) -> ();
        routes_for_plan(cluster: &str) -> Vec<Route>;
        plan_changes(cluster: &str, changes: &RouteChanges) -> WritePlan;
    }
    with {
        async fn apply_routes(&self, cluster: &str, changes: &RouteChanges) -> RouteOutcomes {
            match self.routes() {
                Ok(routes) => routes.apply_routes(cluster, changes).await,
                Err(error) => RouteOutcomes::failed(changes, &error),
            }
        }
    }
}

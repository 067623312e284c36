//! State of a running manager, for health checks and pages.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{Namespace, Node, Service},
    discovery::v1::EndpointSlice,
};

use crate::{
    cloud_provider::{CloudProvider, load_balancer_class::LoadBalancerClasses, start::ProviderReadiness},
    controllers::{
        Controller,
        leader_migration::{ControllerLease, LeaderMigration},
        names::ControllerNames,
    },
    runtime::{
        informer::OnDemandInformer,
        leader_election::{LeaderElectionHealth, Leadership},
        store::InformerStore,
        watch,
    },
};

/// Source component of the manager's own events, and its user agent's last part.
pub(super) const COMPONENT: &str = "cloud-controller-manager";

/// The second lease of leader migration.
pub(super) struct MigrationState {
    pub(super) migration: LeaderMigration,
    pub(super) leadership: Leadership,
    pub(super) election: Option<LeaderElectionHealth>,
}

impl MigrationState {
    /// Returns `true` if a controller runs under this lease.
    pub(super) fn has(&self, names: &ControllerNames) -> bool {
        self.migration.lease_of(names) == ControllerLease::Migration
    }
}

impl ManagerState {
    /// Requests a list for each filled store, for a replica that begins to lead.
    ///
    /// Its watches may have missed changes for a long time: after a restore of etcd, a watch from a lost version is silent.
    pub(super) fn request_relists(&self) {
        request_relist(&self.nodes);
        self.services.iter().for_each(request_relist);
        request_relist(&self.namespaces.store());
        request_relist(&self.endpoint_slices.store());
    }

    /// Returns why the provider must not lead this cluster, once its Nodes are listed. Nodes that join later are checked as they come.
    pub(super) async fn provider_refusal(&self) -> Option<String> {
        self.nodes.synced().await;
        self.provider.refuses_cluster(&self.nodes.list())
    }
}

fn request_relist<K>(store: &InformerStore<K>) {
    // A first list that has not ended yet misses nothing.
    if store.status().synced {
        store.want_relist();
    }
}

/// State that health checks and the status page read.
pub(crate) struct ManagerState {
    pub(super) leadership: Leadership,
    /// The second lease, when controllers run under it.
    pub(super) migration: Option<MigrationState>,
    pub(super) election: Option<LeaderElectionHealth>,
    pub(super) nodes: InformerStore<Node>,
    /// `None`: no controller that runs needs them.
    pub(super) services: Option<InformerStore<Service>>,
    /// Classes that this manager serves.
    pub(super) classes: LoadBalancerClasses,
    pub(super) namespaces: OnDemandInformer<Namespace>,
    pub(super) endpoint_slices: OnDemandInformer<EndpointSlice>,
    pub(super) provider: Arc<dyn CloudProvider>,
    /// Result of the provider's initialization; `None` while it is in progress.
    pub(super) provider_ready: watch::Receiver<ProviderReadiness>,
    pub(super) controllers: Vec<(ControllerNames, Arc<dyn Controller>)>,
    pub(super) skipped: Vec<(&'static str, String)>,
    /// Whether `--dry-run` is set.
    pub(super) is_dry_run: bool,
}

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

/// Source component of the manager's own events, and last part of its user agent.
pub(super) const COMPONENT: &str = "cloud-controller-manager";

/// State of the second lease of leader migration.
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
    /// Relists all objects of each synced store. Called when this replica starts to lead.
    ///
    /// Its watches may have missed changes: after a restore of etcd, a watch from a lost version is silent.
    pub(super) fn request_relists(&self) {
        request_relist(&self.nodes);
        self.services.iter().for_each(request_relist);
        request_relist(&self.namespaces.store());
        request_relist(&self.endpoint_slices.store());
    }

    /// Waits until the Nodes are listed, and returns the reason why the provider must not lead this cluster, if any.
    ///
    /// Nodes that join later are checked when the watch reports them.
    pub(super) async fn provider_refusal(&self) -> Option<String> {
        self.nodes.synced().await;
        self.provider.refuses_cluster(&self.nodes.list())
    }
}

fn request_relist<K>(store: &InformerStore<K>) {
    // A pending first list is complete anyway.
    if store.status().synced {
        store.request_relist();
    }
}

/// State that health checks and the status page read.
pub(crate) struct ManagerState {
    pub(super) leadership: Leadership,
    /// Second lease, if controllers run under it.
    pub(super) migration: Option<MigrationState>,
    pub(super) election: Option<LeaderElectionHealth>,
    pub(super) nodes: InformerStore<Node>,
    /// Store of Services; `None` if no running controller needs them.
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

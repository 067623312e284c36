//! What a running manager shows of itself.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use tokio::sync::watch;

use crate::{
    cloud_provider::{CloudProvider, start::ProviderReadiness},
    controllers::{Controller, names::ControllerNames},
    runtime::{
        leader_election::{LeaderElectionHealth, Leadership},
        store::InformerStore,
    },
};

/// State that health checks and the status page read.
pub(crate) struct ManagerState {
    pub(super) leadership: Leadership,
    pub(super) election: Option<LeaderElectionHealth>,
    pub(super) nodes: InformerStore<Node>,
    /// `None`: no controller that runs needs them.
    pub(super) services: Option<InformerStore<Service>>,
    pub(super) provider: Arc<dyn CloudProvider>,
    /// `None` until the provider is initialised; then `Ok`, or why not.
    pub(super) provider_ready: watch::Receiver<ProviderReadiness>,
    pub(super) controllers: Vec<(ControllerNames, Arc<dyn Controller>)>,
    pub(super) skipped: Vec<(&'static str, String)>,
}

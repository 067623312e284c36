//! Clients of the binary, configured by flags.

use std::sync::Arc;

use super::{client_source::ClientSource, review_clients::ReviewClientSource};
use crate::{
    cli::config::ManagerConfig,
    metrics::Metrics,
    runtime::{
        client::{KubeClientError, KubeClients},
        leader_election::Leadership,
        service_account::ServiceAccountToken,
        shutdown::Shutdown,
    },
    serving::ReviewClients,
};

/// Source of clients for a real API server.
pub(super) struct KubeClientSource {
    clients: KubeClients,
    reviews: ReviewClientSource,
    /// Shutdown of the token refreshes; `None` if controllers act as the process itself.
    token_shutdown: Option<Shutdown>,
}

/// Reads the kubeconfig or the pod's environment. With `--use-service-account-credentials`, tokens are refreshed until `stop`
/// begins.
pub(super) async fn from_config(
    config: &ManagerConfig,
    metrics: Arc<Metrics>,
    stop: &Shutdown,
) -> Result<KubeClientSource, KubeClientError> {
    let clients = KubeClients::load(config.kube_api.clone(), Arc::clone(&metrics)).await?;
    let reviews = ReviewClientSource::load(&clients, (&config.serving, &config.kube_api), &metrics).await?;
    Ok(KubeClientSource { clients, reviews, token_shutdown: config.use_service_account_credentials.then(|| stop.child()) })
}

impl ClientSource for KubeClientSource {
    fn component(&self, component: &str) -> Result<kube::Client, kube::Error> {
        self.clients.for_component(component)
    }

    fn controller(&self, account: &str, leadership: &Leadership) -> Result<kube::Client, kube::Error> {
        let Some(stop) = &self.token_shutdown else { return self.clients.for_writer(account, leadership.clone()) };
        let token = ServiceAccountToken::keep_fresh(self.component(account)?, account, stop);
        let component = format!("system:serviceaccount:kube-system:{account}");
        self.clients.with_token(&component, token, leadership.clone())
    }

    fn watches(&self) -> Result<kube::Client, kube::Error> {
        self.clients.for_watches()
    }

    fn reviews(&self) -> Result<ReviewClients, kube::Error> {
        self.reviews.clients()
    }

    fn election(&self) -> Result<kube::Client, kube::Error> {
        self.clients.for_election()
    }
}

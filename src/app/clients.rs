//! Clients for the binary, from the flags.

use std::sync::Arc;

use super::client_source::ClientSource;
use crate::{
    cli::{
        self,
        config::{KubeApiOptions, ManagerConfig},
    },
    metrics::Metrics,
    runtime::{
        client::{KubeClientConfig, KubeClientError, KubeClients},
        leader_election::Leadership,
        service_account::ServiceAccountToken,
        shutdown::Shutdown,
    },
};

/// Clients over the network.
pub(super) struct KubeClientSource {
    clients: KubeClients,
    /// Ends the refreshing of tokens; `None` when controllers act as the process itself.
    token_shutdown: Option<Shutdown>,
}

/// Reads the kubeconfig or the pod's environment. With `--use-service-account-credentials` tokens are refreshed until `stop`.
pub(super) async fn from_config(
    config: &ManagerConfig,
    metrics: Arc<Metrics>,
    stop: &Shutdown,
) -> Result<KubeClientSource, KubeClientError> {
    let clients = load(cli::NAME, &config.kube_api, &config.version, metrics).await?;
    Ok(KubeClientSource { clients, token_shutdown: config.kube_api.use_service_account_credentials.then(|| stop.child()) })
}

/// Clients for whoever asks under the name `program`, without tokens of controllers.
pub(super) async fn load(
    program: &str,
    api: &KubeApiOptions,
    version: &str,
    metrics: Arc<Metrics>,
) -> Result<KubeClients, KubeClientError> {
    let settings = KubeClientConfig {
        kubeconfig: api.kubeconfig.clone(),
        master: api.master.clone(),
        qps: api.qps,
        burst: api.burst,
        limit_unless_fair: api.limit_unless_fair,
        user_agent_base: user_agent(program, version),
    };
    KubeClients::load(settings, metrics).await
}

/// What upstream's user agents look like: program, version, platform.
fn user_agent(program: &str, version: &str) -> String {
    format!("{program}/{version} ({})", platform())
}

/// Operating system and architecture, under Go's names.
pub(super) fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{arch}", std::env::consts::OS)
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

    fn reviews(&self) -> Result<kube::Client, kube::Error> {
        self.clients.for_reviews()
    }

    fn election(&self) -> Result<kube::Client, kube::Error> {
        self.clients.for_election()
    }
}

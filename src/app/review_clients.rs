//! Clients for the reviews of the secure port's callers.
//!
//! In: `--authentication-kubeconfig`, `--authorization-kubeconfig` and the process's own clients. Out: [`ReviewClients`].
//! Without these flags, or with the file of `--kubeconfig`, reviews go to the API server of `--kubeconfig`, under the
//! process's own identity. Upstream: `DelegatingAuthenticationOptions` and `DelegatingAuthorizationOptions` in
//! `k8s.io/apiserver/pkg/server/options`.

use std::{path::PathBuf, sync::Arc};

use crate::{
    cli::flags::{
        FlagSpec,
        serving::{authentication, authorization},
    },
    metrics::Metrics,
    runtime::client::{KubeClientConfig, KubeClientError, KubeClients},
    serving::{ReviewClients, SecureServingConfig},
};

/// Clients for each kind of review.
pub(super) struct ReviewClientSource {
    authentication: KubeClients,
    authorization: KubeClients,
}

impl ReviewClientSource {
    /// Reads the files without contacting a server.
    pub(super) async fn load(
        own: &KubeClients,
        (serving, kube_api): (&SecureServingConfig, &KubeClientConfig),
        metrics: &Arc<Metrics>,
    ) -> Result<Self, KubeClientError> {
        let is_own = |path: &PathBuf| kube_api.master.is_none() && kube_api.kubeconfig.as_ref() == Some(path);
        let load = async |flag: &FlagSpec, file: &Option<PathBuf>| match file {
            Some(path) if serving.port != 0 && !is_own(path) => {
                let settings = KubeClientConfig { kubeconfig: Some(path.clone()), master: None, ..kube_api.clone() };
                KubeClients::load(settings, Arc::clone(metrics)).await.map_err(|error| error.of_flag(flag.name))
            }
            _ => Ok(own.clone()),
        };
        Ok(Self {
            authentication: load(&authentication::KUBECONFIG.spec, &serving.authentication.kubeconfig).await?,
            authorization: load(&authorization::KUBECONFIG.spec, &serving.authorization.kubeconfig).await?,
        })
    }

    /// Creates the clients for both kinds of reviews.
    pub(super) fn clients(&self) -> Result<ReviewClients, kube::Error> {
        Ok(ReviewClients {
            authentication: self.authentication.for_reviews()?,
            authorization: self.authorization.for_reviews()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn kubeconfig(folder: &tempfile::TempDir, host: &str) -> PathBuf {
        let file = folder.path().join(host);
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{server: 'https://{host}'}}}}], users: [{{name: u, user: {{token: t}}}}]}}"
        );
        fs::write(&file, text).unwrap();
        file
    }

    #[tokio::test]
    async fn reviews_use_the_servers_of_their_kubeconfigs() {
        let folder = tempfile::tempdir().unwrap();
        let metrics = Arc::new(Metrics::new().unwrap());
        let own = kubeconfig(&folder, "own");
        let kube_api = KubeClientConfig { kubeconfig: Some(own.clone()), ..KubeClientConfig::default() };
        let clients = KubeClients::load(kube_api.clone(), Arc::clone(&metrics)).await.unwrap();
        let hosts = async |authentication: Option<PathBuf>, authorization: Option<PathBuf>, port: u16| {
            let mut serving = SecureServingConfig { port, ..SecureServingConfig::default() };
            serving.authentication.kubeconfig = authentication;
            serving.authorization.kubeconfig = authorization;
            let source = ReviewClientSource::load(&clients, (&serving, &kube_api), &metrics).await;
            let host = |clients: &KubeClients| clients.cluster_url().host().unwrap().to_owned();
            source.map(|source| [host(&source.authentication), host(&source.authorization)])
        };
        assert_eq!(hosts(None, None, 1).await.unwrap(), ["own", "own"]);
        let (tokens, access) = (kubeconfig(&folder, "tokens"), kubeconfig(&folder, "access"));
        assert_eq!(hosts(Some(tokens), Some(own), 1).await.unwrap(), ["tokens", "own"]);
        assert_eq!(hosts(None, Some(access), 1).await.unwrap(), ["own", "access"]);
        let missing = Some(folder.path().join("missing"));
        assert_eq!(hosts(missing.clone(), missing.clone(), 0).await.unwrap(), ["own", "own"], "nothing is served");
        let error = hosts(None, missing, 1).await.unwrap_err().to_string();
        assert!(error.starts_with("--authorization-kubeconfig /") && error.contains("missing"), "{error}");
    }
}

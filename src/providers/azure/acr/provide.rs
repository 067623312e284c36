//! Steps from a request to a response: identity, token, password of the registry.
//!
//! In: the flags, the kubelet's request, the environment. Out: the response, or a remedy on one line.

use std::{collections::BTreeMap, path::Path, time::Duration};

use super::{
    exchange::refresh_token,
    identity::{ImagePullIdentity, choose},
    identity_binding,
    image::{ImageRegistry, RegistryMirror, patterns, registry_of},
    request::{ImageCredentialRequest, RegistryLogin, response},
    wires::{ImageCredentialWires, NetworkWires},
};
use crate::{
    cloud_provider::config::ImageCredentialConfig,
    providers::azure::{
        auth::{AuthError, CloudEndpoints, cloud_endpoints, federated_token, managed_identity_token},
        config::{AzureConfig, FindingSeverity, decode},
        config_source::read_text,
        provider::environment,
    },
};

/// Scope of tokens for registries.
const SCOPE: &str = "https://containerregistry.azure.net/.default";
/// User name of a login with a refresh token.
const TOKEN_USER: &str = "00000000-0000-0000-0000-000000000000";
/// Pattern of registries that get an anonymous login, unless a more specific pattern matches.
const ANONYMOUS: &str = "*.azurecr.*";
/// Time for which the kubelet caches logins. Refresh tokens are valid for longer.
const CACHE_DURATION: Duration = Duration::from_secs(60 * 60);
/// Fields of azure.json that are used here. The manager reports errors in others.
const USED_FIELDS: &[&str] = &[
    "",
    "cloud",
    "tenantId",
    "resourceManagerEndpoint",
    "disableAzureStackCloud",
    "identitySystem",
    "useManagedIdentityExtension",
    "userAssignedIdentityID",
    "aadClientId",
    "aadClientSecret",
];

/// Reason why there is no response. Never contains a token or a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageCredentialError {
    #[error("request: {0}")]
    Request(String),
    #[error("{path}: {problem}")]
    Configuration { path: String, problem: String },
    #[error("{image}: {problem}")]
    Identity { image: String, problem: String },
    #[error("{image}: {error}")]
    Token { image: String, error: AuthError },
    #[error("registry {server}: {problem}")]
    Registry { server: String, problem: String },
}

/// Provides credentials for `request` over the network, with the environment of the process.
pub async fn provide(config: ImageCredentialConfig, request: Vec<u8>) -> Result<String, ImageCredentialError> {
    let environment = environment();
    provide_with(&config, &request, &environment, &NetworkWires(environment.clone())).await
}

/// Provides credentials with other transports and another environment.
pub async fn provide_with(
    config: &ImageCredentialConfig,
    request: &[u8],
    environment: &BTreeMap<String, String>,
    wires: &dyn ImageCredentialWires,
) -> Result<String, ImageCredentialError> {
    let request = ImageCredentialRequest::parse(request).map_err(ImageCredentialError::Request)?;
    let azure = read_config(&config.cloud_config).await?;
    let cloud = cloud_endpoints(&azure, environment, wires.cloud().as_ref()).await.map_err(|error| {
        ImageCredentialError::Configuration { path: config.cloud_config.display().to_string(), problem: error.to_string() }
    })?;
    let registry = registry_of(&request.image, &mirrors(config), &cloud.registry_suffix);
    let Some(registry) = registry else {
        tracing::info!(image = request.image, "image is not in an Azure registry: empty response");
        return Ok(response(&BTreeMap::new(), Duration::ZERO));
    };
    let provider = RegistryLogins { config, azure: &azure, cloud: &cloud, environment, wires };
    let mut logins = provider.logins(&request, &registry).await?;
    logins.insert(ANONYMOUS.to_owned(), RegistryLogin::anonymous());
    Ok(response(&logins, CACHE_DURATION))
}

fn mirrors(config: &ImageCredentialConfig) -> Vec<RegistryMirror> {
    let entries = config.registry_mirrors.iter().filter(|entry| !entry.trim().is_empty());
    let read = |entry: &String| {
        let mirror = RegistryMirror::parse(entry);
        if mirror.is_none() {
            tracing::error!(entry, "--registry-mirror: expected source:target; entry skipped");
        }
        mirror
    };
    entries.filter_map(read).collect()
}

async fn read_config(path: &Path) -> Result<AzureConfig, ImageCredentialError> {
    let bad = |problem: String| ImageCredentialError::Configuration { path: path.display().to_string(), problem };
    let decoded = decode(&read_text(path).await.map_err(bad)?);
    let mut errors = decoded.findings.iter().filter(|finding| finding.severity == FindingSeverity::Error);
    match errors.find(|finding| USED_FIELDS.contains(&finding.field.as_str())) {
        Some(finding) => Err(bad(finding.to_string())),
        None => Ok(decoded.config),
    }
}

struct RegistryLogins<'a> {
    config: &'a ImageCredentialConfig,
    azure: &'a AzureConfig,
    cloud: &'a CloudEndpoints,
    environment: &'a BTreeMap<String, String>,
    wires: &'a dyn ImageCredentialWires,
}

impl RegistryLogins<'_> {
    /// Returns the logins by pattern of registries.
    async fn logins(
        &self,
        request: &ImageCredentialRequest,
        registry: &ImageRegistry,
    ) -> Result<BTreeMap<String, RegistryLogin>, ImageCredentialError> {
        let unidentified = |problem| ImageCredentialError::Identity { image: request.image.clone(), problem };
        let refused = |error| ImageCredentialError::Token { image: request.image.clone(), error };
        let (transport, assertion) = (self.wires.cloud(), &request.service_account_token);
        let binding = self.config.identity_binding.as_ref();
        let identity = choose(request, self.azure, binding, registry.source.is_some()).map_err(unidentified)?;
        let (token, tenant) = match identity {
            ImagePullIdentity::ClientSecret { client_id, secret } => {
                let login = RegistryLogin { username: client_id, password: secret };
                // The kubelet compares label by label, and a regional host has more labels than the patterns.
                let servers = patterns(&self.cloud.registry_suffix).into_iter().chain([registry.server.clone()]);
                return Ok(servers.map(|server| (server, login.clone())).collect());
            }
            ImagePullIdentity::Binding { binding, client_id, tenant } => {
                let found = identity_binding::token(binding, self.wires, &client_id, assertion, SCOPE).await;
                (found.map_err(unidentified)?, tenant)
            }
            ImagePullIdentity::ServiceAccount(application) => {
                let tenant = application.tenant.clone();
                let found = federated_token(application, assertion.clone(), SCOPE, self.cloud, transport).await;
                (found.map_err(refused)?.secret(), tenant)
            }
            ImagePullIdentity::Managed { identity, tenant } => {
                let found = managed_identity_token(identity, SCOPE, self.environment, transport).await;
                (found.map_err(refused)?.secret(), tenant)
            }
        };
        let refresh = refresh_token(self.wires.cloud().as_ref(), &registry.server, &tenant, &token).await;
        let password =
            refresh.map_err(|problem| ImageCredentialError::Registry { server: registry.server.clone(), problem })?;
        let login = RegistryLogin { username: TOKEN_USER.to_owned(), password };
        let servers = [Some(registry.server.clone()), registry.source.clone()];
        Ok(servers.into_iter().flatten().map(|server| (server, login.clone())).collect())
    }
}

//! Connects a configuration to a cloud and its credentials.
//!
//! Sends requests only if `resourceManagerEndpoint` is set, whose metadata is fetched once. Tokens are fetched when they are
//! first needed.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    AuthError,
    cloud::{CloudEndpoints, metadata_url},
    credential_config::{CredentialConfig, EntraApplication, ManagedIdentityId, choose_credential},
    data_plane::DataPlaneIdentity,
    entra::{CertificateFilePrincipal, ClientCredential, ServicePrincipal, TokenAuthority},
    error::safe_line,
    key_vault::VaultTokenFetcher,
    managed_identity::{ManagedIdentityFetcher, ManagedIdentityService},
    token::{BearerToken, CachedTokenSource, TokenFetcher, TokenSource},
};
use crate::{
    providers::azure::{
        config::{AuxiliaryTokenProvider, AzureConfig},
        transport::ArmTransport,
    },
    runtime::clock::Clock,
};

const METADATA_TIMEOUT: Duration = Duration::from_secs(30);

/// Address of ARM, with credentials.
#[derive(Clone)]
pub struct ArmConnection {
    pub cloud: CloudEndpoints,
    pub credentials: ArmCredentials,
}

/// Sources of tokens for ARM.
#[derive(Clone)]
pub struct ArmCredentials {
    /// Source for the subscription of the machines.
    pub compute: Arc<dyn TokenSource>,
    /// Source for the subscription of the network resources; the same as `compute` if they are in the same tenant.
    pub network: Arc<dyn TokenSource>,
    /// Source for `x-ms-authorization-auxiliary` of requests that `compute` authorizes, only in multi-tenant mode.
    ///
    /// Its tokens are of the network tenant, so that a machine may refer to resources there.
    pub auxiliary: Option<Arc<dyn TokenSource>>,
}

/// Builds the connection that the configuration describes.
///
/// # Errors
///
/// Fails with [`AuthError::Configuration`] until the configuration is fixed. After other errors, callers can retry.
pub async fn connect(
    config: &AzureConfig,
    environment: &BTreeMap<String, String>,
    transport: Arc<dyn ArmTransport>,
    clock: Clock,
) -> Result<ArmConnection, AuthError> {
    let cloud = cloud_endpoints(config, environment, transport.as_ref()).await?;
    let choice = choose_credential(config, &cloud)?;
    let login_endpoint = cloud.login_endpoint.clone();
    let authority = TokenAuthority { login_endpoint, adfs: cloud.adfs, transport, clock };
    let credentials = ArmCredentialsBuilder { cloud: &cloud, authority, environment }.build(choice).await?;
    Ok(ArmConnection { cloud, credentials })
}

/// Returns the configured cloud. Sends a request only if `resourceManagerEndpoint` is set.
pub async fn cloud_endpoints(
    config: &AzureConfig,
    environment: &BTreeMap<String, String>,
    transport: &dyn ArmTransport,
) -> Result<CloudEndpoints, AuthError> {
    let mut cloud = CloudEndpoints::named(&config.cloud);
    let is_named_stack = cloud.azure_stack;
    cloud.azure_stack = config.is_azure_stack();
    cloud.adfs = config.identity_system.eq_ignore_ascii_case("adfs") || config.tenant_id.eq_ignore_ascii_case("adfs");
    let endpoint = config.resource_manager_endpoint.trim();
    if !endpoint.is_empty() {
        cloud = fetch_endpoints(cloud, &config.cloud, endpoint, transport).await?;
    }
    let variable = "AZURE_ENVIRONMENT_FILEPATH";
    if let Some(path) = environment.get(variable).filter(|path| !path.is_empty() && is_named_stack) {
        let bad = |reason: String| AuthError::configuration(variable, format!("{path}: {reason}"));
        let document = tokio::fs::read_to_string(path).await.map_err(|error| bad(error.to_string()))?;
        cloud = cloud.with_environment_file(&document).map_err(bad)?;
    }
    cloud.check().map_err(|reason| AuthError::configuration("cloud and resourceManagerEndpoint", reason))?;
    Ok(cloud)
}

/// Returns the cloud with the endpoints from `/metadata/endpoints`, or unchanged if these lack `name`.
async fn fetch_endpoints(
    cloud: CloudEndpoints,
    name: &str,
    endpoint: &str,
    transport: &dyn ArmTransport,
) -> Result<CloudEndpoints, AuthError> {
    const FIELD: &str = "resourceManagerEndpoint";
    let url = metadata_url(endpoint);
    let request = http::Request::get(&url).header(http::header::ACCEPT, "application/json").body(Bytes::new());
    let request = request.map_err(|error| AuthError::configuration(FIELD, format!("`{endpoint}`: {error}")))?;
    let address = url.split('?').next().unwrap_or_default().to_owned();
    let unreachable =
        |reason: String| AuthError::unreachable(&address, format!("{} (check {FIELD})", safe_line(&reason, &[])));
    let sent = tokio::time::timeout(METADATA_TIMEOUT, transport.send(request)).await;
    let sent = sent.map_err(|_| unreachable(format!("no response within {} s", METADATA_TIMEOUT.as_secs())))?;
    let response = sent.map_err(|error| unreachable(error.to_string()))?;
    if !response.status().is_success() {
        return Err(unreachable(format!("HTTP {}", response.status())));
    }
    let unchanged = cloud.clone();
    let found = cloud.with_metadata(name, endpoint, response.body()).map_err(unreachable)?;
    if found.is_none() {
        tracing::warn!(endpoint, cloud = name, "the metadata endpoint does not list this cloud: response ignored");
    }
    Ok(found.unwrap_or(unchanged))
}

struct ArmCredentialsBuilder<'a> {
    cloud: &'a CloudEndpoints,
    authority: TokenAuthority,
    environment: &'a BTreeMap<String, String>,
}

impl ArmCredentialsBuilder<'_> {
    async fn build(&self, choice: CredentialConfig) -> Result<ArmCredentials, AuthError> {
        match choice {
            CredentialConfig::WorkloadIdentity { application, token_file } => {
                let proof = ClientCredential::TokenFile(PathBuf::from(token_file));
                Ok(with_network(self.cached(self.principal(application, proof)), None))
            }
            CredentialConfig::ManagedIdentity { identity, auxiliary } => self.managed(identity, auxiliary),
            CredentialConfig::ClientSecret { application, secret, network_tenant } => {
                let of = |application| self.cached(self.principal(application, ClientCredential::Secret(secret.clone())));
                let network = network_tenant.map(|tenant| of(EntraApplication { tenant, ..application.clone() }));
                Ok(with_network(of(application), network))
            }
            CredentialConfig::ClientCertificate { application, path, password, network_tenant } => {
                let of = async |application| {
                    let (path, password) = (PathBuf::from(&path), password.clone());
                    let file = CertificateFilePrincipal::open(self.authority.clone(), application, path, password).await?;
                    Ok::<_, AuthError>(self.cached(file))
                };
                let network = match network_tenant {
                    Some(tenant) => Some(of(EntraApplication { tenant, ..application.clone() }).await?),
                    None => None,
                };
                Ok(with_network(of(application).await?, network))
            }
            CredentialConfig::DataPlane { path } => {
                let identity = DataPlaneIdentity::open(self.authority.clone(), PathBuf::from(path)).await?;
                Ok(with_network(self.cached(identity), None))
            }
            CredentialConfig::NoCredential => {
                let error = missing_credential_error();
                tracing::warn!(%error, "no credential configured: every ARM request will fail");
                Ok(with_network(Arc::new(MissingCredential), None))
            }
        }
    }

    fn managed(
        &self,
        identity: ManagedIdentityId,
        auxiliary: Option<AuxiliaryTokenProvider>,
    ) -> Result<ArmCredentials, AuthError> {
        let TokenAuthority { transport, clock, .. } = self.authority.clone();
        let service = ManagedIdentityService::detect(self.environment)?;
        let identity = Arc::new(ManagedIdentityFetcher { service, identity, transport: Arc::clone(&transport), clock });
        let compute: Arc<dyn TokenSource> =
            Arc::new(CachedTokenSource::new(Arc::<ManagedIdentityFetcher>::clone(&identity), self.cloud.scope(), clock));
        let network = auxiliary.map(|provider| {
            let resource_manager = self.cloud.resource_manager.clone();
            self.cached(VaultTokenFetcher {
                provider,
                resource_manager,
                arm: Arc::clone(&compute),
                identity,
                transport,
                clock,
            })
        });
        Ok(with_network(compute, network))
    }

    fn principal(&self, application: EntraApplication, proof: ClientCredential) -> ServicePrincipal {
        ServicePrincipal { authority: self.authority.clone(), application, credential: proof }
    }

    fn cached(&self, fetch: impl TokenFetcher + 'static) -> Arc<dyn TokenSource> {
        Arc::new(CachedTokenSource::new(Arc::new(fetch), self.cloud.scope(), self.authority.clock))
    }
}

fn with_network(compute: Arc<dyn TokenSource>, network: Option<Arc<dyn TokenSource>>) -> ArmCredentials {
    ArmCredentials { network: network.clone().unwrap_or_else(|| Arc::clone(&compute)), compute, auxiliary: network }
}

fn missing_credential_error() -> AuthError {
    let fields = "useManagedIdentityExtension, useFederatedWorkloadIdentityExtension, aadClientSecret, aadClientCertPath or \
                  aadMSIDataPlaneIdentityPath";
    AuthError::configuration("credentials", format!("none is configured; set {fields}"))
}

/// Token source without a configured credential. Every call fails with that error.
struct MissingCredential;

#[async_trait]
impl TokenSource for MissingCredential {
    async fn token(&self) -> Result<BearerToken, AuthError> {
        Err(missing_credential_error())
    }

    fn invalidate(&self, _rejected: &str) {}
}

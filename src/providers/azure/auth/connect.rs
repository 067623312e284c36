//! From the configuration to a cloud and its credentials. Says nothing over the network unless `resourceManagerEndpoint` is set,
//! whose metadata is fetched once; tokens are fetched when they are first needed.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    AuthError,
    choice::{Application, Choice, ManagedIdentity, choose},
    cloud::{Cloud, metadata_url},
    data_plane::DataPlaneIdentity,
    entra::{Authority, CertificateFile, Principal, Proof},
    error::safe_line,
    key_vault::VaultTokens,
    managed_identity::{ManagedTokens, Source},
    token::{CachedTokens, Fetch, Token, TokenSource},
};
use crate::{
    providers::azure::{
        arm::Transport,
        config::{AuxiliaryTokenProvider, AzureConfig},
    },
    runtime::clock::Clock,
};

const METADATA_LIMIT: Duration = Duration::from_secs(30);

/// Where ARM is and how to get in.
#[derive(Clone)]
pub struct Connection {
    /// Endpoints.
    pub cloud: Cloud,
    /// Tokens.
    pub credentials: Credentials,
}

/// Sources of tokens for ARM.
#[derive(Clone)]
pub struct Credentials {
    /// For the subscription of the machines.
    pub compute: Arc<dyn TokenSource>,
    /// For the subscription of the network resources; the same source when they are in the same tenant.
    pub network: Arc<dyn TokenSource>,
    /// For `x-ms-authorization-auxiliary` of requests that `compute` authorises: a token of the network tenant, so that a machine
    /// may refer to resources there. Only in multi-tenant mode.
    pub auxiliary: Option<Arc<dyn TokenSource>>,
}

/// Builds a connection. An [`AuthError::Configuration`] stays until something is mended; after any other error call again.
pub async fn connect(
    config: &AzureConfig,
    environment: &BTreeMap<String, String>,
    transport: Arc<dyn Transport>,
    clock: Clock,
) -> Result<Connection, AuthError> {
    let cloud = cloud(config, environment, transport.as_ref()).await?;
    let choice = choose(config, environment, &cloud)?;
    let login_endpoint = cloud.login_endpoint.clone();
    let authority = Authority { login_endpoint, adfs: cloud.adfs, transport, clock };
    let credentials = Builder { cloud: &cloud, authority, environment }.build(choice).await?;
    Ok(Connection { cloud, credentials })
}

async fn cloud(
    config: &AzureConfig,
    environment: &BTreeMap<String, String>,
    transport: &dyn Transport,
) -> Result<Cloud, AuthError> {
    let mut cloud = Cloud::named(&config.cloud);
    cloud.azure_stack = cloud.azure_stack && !config.disable_azure_stack_cloud;
    cloud.adfs = config.identity_system.eq_ignore_ascii_case("adfs") || config.tenant_id.eq_ignore_ascii_case("adfs");
    let endpoint = config.resource_manager_endpoint.trim();
    if !endpoint.is_empty() {
        cloud = described(cloud, &config.cloud, endpoint, transport).await?;
    }
    let variable = "AZURE_ENVIRONMENT_FILEPATH";
    if let Some(path) =
        environment.get(variable).filter(|path| !path.is_empty() && Cloud::reads_environment_file(&config.cloud))
    {
        let bad = |why: String| AuthError::configuration(variable, format!("{path}: {why}"));
        let document = tokio::fs::read_to_string(path).await.map_err(|error| bad(error.to_string()))?;
        cloud = cloud.with_environment_file(&document).map_err(bad)?;
    }
    cloud.check().map_err(|why| AuthError::configuration("cloud and resourceManagerEndpoint", why))?;
    Ok(cloud)
}

/// The cloud as `/metadata/endpoints` describes it.
async fn described(cloud: Cloud, name: &str, endpoint: &str, transport: &dyn Transport) -> Result<Cloud, AuthError> {
    const FIELD: &str = "resourceManagerEndpoint";
    let url = metadata_url(endpoint);
    let request = http::Request::get(&url).header(http::header::ACCEPT, "application/json").body(Bytes::new());
    let request = request.map_err(|error| AuthError::configuration(FIELD, format!("`{endpoint}`: {error}")))?;
    let place = url.split('?').next().unwrap_or_default().to_owned();
    let unreachable = |why: String| AuthError::unreachable(&place, format!("{} (look at {FIELD})", safe_line(&why, &[])));
    let sent = tokio::time::timeout(METADATA_LIMIT, transport.send(request)).await;
    let sent = sent.map_err(|_| unreachable(format!("no answer within {} s", METADATA_LIMIT.as_secs())))?;
    let answer = sent.map_err(|error| unreachable(error.to_string()))?;
    if !answer.status().is_success() {
        return Err(unreachable(format!("HTTP {}", answer.status())));
    }
    let unchanged = cloud.clone();
    let found = cloud.with_metadata(name, endpoint, answer.body()).map_err(unreachable)?;
    if found.is_none() {
        tracing::warn!(endpoint, cloud = name, "the metadata endpoint does not know this cloud: its answer is not used");
    }
    Ok(found.unwrap_or(unchanged))
}

struct Builder<'a> {
    cloud: &'a Cloud,
    authority: Authority,
    environment: &'a BTreeMap<String, String>,
}

impl Builder<'_> {
    async fn build(&self, choice: Choice) -> Result<Credentials, AuthError> {
        match choice {
            Choice::Workload { application, token_file } => {
                let proof = Proof::TokenFile(PathBuf::from(token_file));
                Ok(alone(self.cached(self.principal(application, proof))))
            }
            Choice::Managed { identity, auxiliary } => self.managed(identity, auxiliary),
            Choice::Secret { application, secret, network_tenant } => {
                let of = |application| self.cached(self.principal(application, Proof::Secret(secret.clone())));
                let network = network_tenant.map(|tenant| of(Application { tenant, ..application.clone() }));
                Ok(with_network(of(application), network))
            }
            Choice::Certificate { application, path, password, network_tenant } => {
                let of = async |application| {
                    let (path, password) = (PathBuf::from(&path), password.clone());
                    let file = CertificateFile::open(self.authority.clone(), application, path, password).await?;
                    Ok::<_, AuthError>(self.cached(file))
                };
                let network = match network_tenant {
                    Some(tenant) => Some(of(Application { tenant, ..application.clone() }).await?),
                    None => None,
                };
                Ok(with_network(of(application).await?, network))
            }
            Choice::DataPlane { path } => {
                let identity = DataPlaneIdentity::open(self.authority.clone(), PathBuf::from(path)).await?;
                Ok(alone(self.cached(identity)))
            }
            Choice::Nothing => {
                let error = nothing();
                tracing::warn!(%error, "no credential is configured: no request will succeed");
                Ok(alone(Arc::new(NoCredential)))
            }
        }
    }

    fn managed(
        &self,
        identity: ManagedIdentity,
        auxiliary: Option<AuxiliaryTokenProvider>,
    ) -> Result<Credentials, AuthError> {
        let Authority { transport, clock, .. } = self.authority.clone();
        let source = Source::detect(self.environment)?;
        let identity = Arc::new(ManagedTokens { source, identity, transport: Arc::clone(&transport), clock });
        let compute: Arc<dyn TokenSource> =
            Arc::new(CachedTokens::new(Arc::<ManagedTokens>::clone(&identity), self.cloud.scope(), clock));
        let network = auxiliary.map(|provider| {
            let resource_manager = self.cloud.resource_manager.clone();
            self.cached(VaultTokens { provider, resource_manager, arm: Arc::clone(&compute), identity, transport, clock })
        });
        Ok(with_network(compute, network))
    }

    fn principal(&self, application: Application, proof: Proof) -> Principal {
        Principal { authority: self.authority.clone(), application, proof }
    }

    fn cached(&self, fetch: impl Fetch + 'static) -> Arc<dyn TokenSource> {
        Arc::new(CachedTokens::new(Arc::new(fetch), self.cloud.scope(), self.authority.clock))
    }
}

fn alone(compute: Arc<dyn TokenSource>) -> Credentials {
    with_network(compute, None)
}

fn with_network(compute: Arc<dyn TokenSource>, network: Option<Arc<dyn TokenSource>>) -> Credentials {
    Credentials { network: network.clone().unwrap_or_else(|| Arc::clone(&compute)), compute, auxiliary: network }
}

fn nothing() -> AuthError {
    let fields = "useManagedIdentityExtension, useFederatedWorkloadIdentityExtension, aadClientSecret, aadClientCertPath or \
                  aadMSIDataPlaneIdentityPath";
    AuthError::configuration("credentials", format!("none is configured; set {fields}"))
}

/// What answers when nothing is configured.
struct NoCredential;

#[async_trait]
impl TokenSource for NoCredential {
    async fn token(&self) -> Result<Token, AuthError> {
        Err(nothing())
    }

    fn invalidate(&self, _rejected: &Token) {}
}

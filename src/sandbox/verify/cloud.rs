//! Endpoint that a table is played against, with the credentials of `azure.json`.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use serde_json::Value;

use super::{values::Variables, wire::PREFIX};
use crate::{
    metrics::Metrics,
    providers::azure::{
        arm::{
            ArmBackoff, ArmClient, ArmClientDeps, ArmSettings, CredentialTokens, RequestCharge, RequestGate, TokenProvider,
            Urgency, configured_groups,
        },
        auth::{self, ArmConnection},
        config::AzureConfig,
        model::{ResourceId, api},
        transport::{ArmTransport, ArmTransportError},
    },
    runtime::{clock::Clock, leader_election::Leadership},
};

/// Address of the metadata service of a machine, unless `IMDS_ENDPOINT` overrides it.
const METADATA: &str = "http://169.254.169.254";

/// Lets every request through: a run sends a few requests a second, far below Azure's quotas, and a 429 is a response to be
/// reported.
struct UnlimitedGate;

#[async_trait]
impl RequestGate for UnlimitedGate {
    async fn acquire(&self, _: &RequestCharge, _: Urgency) {}

    fn observe(&self, _: &RequestCharge, _: u16, _: &HeaderMap, _: &str) {}
}

/// An ARM endpoint, and what is around it.
pub struct VerifiedCloud {
    settings: ArmSettings,
    tokens: Arc<CredentialTokens>,
    metrics: Arc<Metrics>,
    clock: Clock,
    /// Transport of the provider.
    pub wire: Arc<dyn ArmTransport>,
    /// Address of ARM, without a slash at the end.
    pub arm: String,
    login: String,
    metadata: String,
    /// The group in which the run creates.
    pub group: ResourceId,
    config: AzureConfig,
    audience: String,
    scope: String,
}

impl VerifiedCloud {
    /// Connects according to `config`. Sends only the requests that find the cloud's endpoints.
    pub async fn connect(
        config: AzureConfig,
        group: &str,
        environment: &BTreeMap<String, String>,
        wire: Arc<dyn ArmTransport>,
        clock: Clock,
    ) -> Result<Self, String> {
        check_group(&config, group)?;
        let connection = auth::connect(&config, environment, Arc::clone(&wire), clock).await;
        let ArmConnection { cloud, credentials } = connection.map_err(|error| error.to_string())?;
        let mut settings = ArmSettings::configured(&config, &cloud.resource_manager, cloud.azure_stack)?;
        // Rows check the first response.
        settings.backoff.attempts = 1;
        let metadata = environment.get("IMDS_ENDPOINT").map_or(METADATA, String::as_str);
        let (metadata, login) = (without_slash(metadata), without_slash(&cloud.login_endpoint));
        Ok(Self {
            settings,
            tokens: Arc::new(CredentialTokens::new(credentials.compute, None)),
            metrics: Arc::new(Metrics::new().map_err(|error| error.to_string())?),
            clock,
            wire,
            arm: without_slash(&cloud.resource_manager),
            login,
            metadata,
            group: ResourceId::group_of(&config.subscription_id, group),
            audience: cloud.audience.clone(),
            scope: cloud.scope(),
            config,
        })
    }

    /// Returns a client over `transport`, with one attempt for each request.
    pub fn client(&self, transport: Arc<dyn ArmTransport>) -> ArmClient {
        self.client_with(self.settings.clone(), transport)
    }

    /// Returns a client that retries as the provider's does, for requests that must succeed.
    pub fn patient_client(&self) -> ArmClient {
        let settings = ArmSettings { backoff: ArmBackoff::default(), ..self.settings.clone() };
        self.client_with(settings, Arc::clone(&self.wire))
    }

    fn client_with(&self, settings: ArmSettings, transport: Arc<dyn ArmTransport>) -> ArmClient {
        let parts = ArmClientDeps {
            transport,
            tokens: Arc::<CredentialTokens>::clone(&self.tokens),
            gate: Arc::new(UnlimitedGate),
            leadership: Leadership::unopposed(),
            metrics: Arc::clone(&self.metrics),
            clock: self.clock,
        };
        ArmClient::new(settings, parts)
    }

    /// Sends a request that does not go through the client. Requests to ARM get a token unless they have one.
    pub async fn send_raw(
        &self,
        mut request: Request<Bytes>,
        to_arm: bool,
        wire: &dyn ArmTransport,
    ) -> Result<Response<Bytes>, ArmTransportError> {
        if to_arm && !request.headers().contains_key(http::header::AUTHORIZATION) {
            let token = self.tokens.bearer().await.map_err(|error| ArmTransportError::NotSent(error.to_string()))?;
            let value = format!("Bearer {token}").parse();
            let value = value.map_err(|_| ArmTransportError::NotSent("the token is not a header".to_owned()))?;
            request.headers_mut().insert(http::header::AUTHORIZATION, value);
        }
        wire.send(request).await
    }

    /// Returns the base URL of `arm`, `login` or `metadata`.
    pub fn base(&self, name: &str) -> Result<&str, String> {
        match name {
            "arm" => Ok(&self.arm),
            "login" => Ok(&self.login),
            "metadata" => Ok(&self.metadata),
            other => Err(format!("unknown endpoint {other:?}")),
        }
    }

    /// Reads the resource group: the first request of a run.
    pub async fn read_group(&self) -> Result<Value, String> {
        let read = self.patient_client().get(&api::RESOURCE_GROUPS, &self.group, &[]).await;
        read.map_err(|error| format!("the resource group {} cannot be read: {error}", self.group.name()))
    }

    /// Returns the variables of all rows. `prefix` begins the names of what a row creates.
    pub fn variables(&self, location: &str, prefix: &str) -> Variables {
        let group = self.group.as_str();
        Variables::default()
            .with("p", prefix)
            .with("group", group)
            .with("group-name", self.group.name())
            .with("subscription", self.group.subscription())
            .with("net", format!("{group}/providers/Microsoft.Network"))
            .with("compute", format!("{group}/providers/Microsoft.Compute"))
            .with("location", location)
            .with("tenant", &self.config.tenant_id)
            .with("client", &self.config.aad_client_id)
            .with("secret", &self.config.aad_client_secret)
            .with("audience", &self.audience)
            .with("scope", &self.scope)
            .with("password", format!("{PREFIX}{}", uuid::Uuid::new_v4()))
    }

    /// Returns the region of the run: that of the configuration, or else of the group.
    pub fn location(&self, group: &Value) -> String {
        let own = Some(self.config.location.as_str()).filter(|location| !location.is_empty());
        own.or_else(|| group["location"].as_str()).unwrap_or_default().to_owned()
    }
}

fn without_slash(url: &str) -> String {
    url.trim_end_matches('/').to_owned()
}

/// Refuses the groups that the configuration names: they may hold resources of a cluster.
fn check_group(config: &AzureConfig, group: &str) -> Result<(), String> {
    if group.is_empty() {
        return Err("--resource-group is required: the name of an empty resource group".to_owned());
    }
    if configured_groups(config).contains(&group.to_lowercase()) {
        return Err(format!("--resource-group {group} is a group of the cluster in azure.json: give an empty one"));
    }
    Ok(())
}

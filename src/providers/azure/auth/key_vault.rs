//! Token for the tenant of the network resources in setups with a managed identity: a Key Vault secret that another component
//! renews, `{"access_token": …, "expires_on": …}`.
//!
//! In: the location of the secret, the machine's identity. Out: the token. The vault's address comes from ARM. Upstream:
//! `pkg/azclient/armauth/keyvault_credential.go`, whose cache is never used; [`super::token`] caches here.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use azure_core::{credentials::Secret, http::Url};
use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;

use super::{
    AuthError,
    identity_answer::{TokenRequestContext, explain},
    token::{BearerToken, TokenFetcher, TokenSource},
};
use crate::{
    providers::azure::{config::AuxiliaryTokenProvider, model::ResourceId, transport::ArmTransport},
    runtime::clock::Clock,
};

const FIELD: &str = "auxiliaryTokenProvider";

/// Fetcher of a token from a Key Vault secret.
pub(super) struct VaultTokenFetcher {
    pub(super) provider: AuxiliaryTokenProvider,
    /// Address of ARM, without a slash at the end.
    pub(super) resource_manager: String,
    /// Source of tokens for ARM.
    pub(super) arm: Arc<dyn TokenSource>,
    /// Identity that may read the secret.
    pub(super) identity: Arc<dyn TokenFetcher>,
    pub(super) transport: Arc<dyn ArmTransport>,
    pub(super) clock: Clock,
}

#[derive(Deserialize)]
struct KeyVaultDocument {
    properties: KeyVaultProperties,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyVaultProperties {
    vault_uri: String,
}

#[derive(Deserialize)]
struct SecretBundle {
    value: String,
}

#[derive(Deserialize)]
struct StoredAccessToken {
    access_token: String,
    expires_on: Timestamp,
}

impl VaultTokenFetcher {
    fn vault_id(&self) -> ResourceId {
        let group = ResourceId::group_of(&self.provider.subscription_id, &self.provider.resource_group);
        group.resource("Microsoft.KeyVault/vaults", &[&self.provider.vault_name])
    }

    async fn vault_uri(&self) -> Result<Url, AuthError> {
        let url = format!("{}{}?api-version=2023-07-01", self.resource_manager, self.vault_id());
        let vault: KeyVaultDocument = self.get(&url, &self.arm.token().await?).await?;
        let parsed = Url::parse(&vault.properties.vault_uri).ok().filter(|uri| uri.scheme() == "https" && uri.has_host());
        parsed.ok_or_else(|| AuthError::unreachable(self.vault_id().to_string(), "the vault has no address"))
    }

    async fn get<D: serde::de::DeserializeOwned>(&self, url: &str, token: &BearerToken) -> Result<D, AuthError> {
        let request = http::Request::get(url).header(http::header::AUTHORIZATION, token.authorization());
        let request =
            request.body(Bytes::new()).map_err(|_| AuthError::configuration(FIELD, "its parts do not form a valid URL"))?;
        let result = self.transport.send(request).await;
        let good = result.as_ref().ok().filter(|response| response.status().is_success());
        let endpoint = url.split('?').next().unwrap_or_default();
        let identity = "the managed identity of this machine";
        let context = TokenRequestContext { identity, endpoint, secrets: &[], field: FIELD };
        good.and_then(|response| serde_json::from_slice(response.body()).ok()).ok_or_else(|| explain(&result, context))
    }

    fn token(&self, value: &str) -> Option<BearerToken> {
        let stored: StoredAccessToken = serde_json::from_str(value).ok()?;
        let remaining = stored.expires_on.duration_since(self.clock.wall());
        let remaining = Duration::try_from(remaining).ok().filter(|remaining| !remaining.is_zero())?;
        BearerToken::new(&Secret::new(stored.access_token), self.clock.now(), remaining)
    }
}

/// Returns the audience of a vault: its address without the vault's name, `https://vault.azure.net`.
fn audience(vault: &Url) -> String {
    let domain = vault.host_str().and_then(|host| host.split_once('.')).map_or("vault.azure.net", |(_, domain)| domain);
    format!("https://{domain}")
}

#[async_trait]
impl TokenFetcher for VaultTokenFetcher {
    async fn fetch(&self, _scope: &str) -> Result<BearerToken, AuthError> {
        let vault = self.vault_uri().await?;
        let token = self.identity.fetch(&format!("{}/.default", audience(&vault))).await?;
        let base = vault.as_str().trim_end_matches('/');
        let endpoint = format!("{base}/secrets/{}", self.provider.secret_name);
        let bundle: SecretBundle = self.get(&format!("{endpoint}?api-version=7.4"), &token).await?;
        self.token(&bundle.value).ok_or_else(|| {
            let reason = "the secret is not {\"access_token\", \"expires_on\"} with an expiry in the future";
            AuthError::unreachable(endpoint, reason)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audiences_follow_the_cloud() {
        for (vault, expected) in [
            ("https://mine.vault.azure.net/", "https://vault.azure.net"),
            ("https://mine.vault.usgovcloudapi.net/", "https://vault.usgovcloudapi.net"),
            ("https://mine.vault.azure.cn", "https://vault.azure.cn"),
        ] {
            assert_eq!(audience(&Url::parse(vault).unwrap()), expected);
        }
    }
}

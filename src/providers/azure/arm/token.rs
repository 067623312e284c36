//! Source of the client's tokens. The program uses [`CredentialTokens`]; tests replace it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::providers::azure::auth::{AuthError, TokenSource};

/// Provider of tokens for ARM. Implementations cache, refresh before expiry and log no token.
#[async_trait]
pub trait TokenProvider: Send + Sync {
    /// Returns the token for `Authorization: Bearer …`, without the word `Bearer`.
    async fn bearer(&self) -> Result<String, AuthError>;

    /// Returns the token of a second tenant that owns network resources, for `x-ms-authorization-auxiliary`; `None` if there is
    /// one tenant.
    async fn auxiliary(&self) -> Result<Option<String>, AuthError> {
        Ok(None)
    }

    /// Records that ARM responded 401 to this bearer or auxiliary token, which must not be used again.
    fn rejected(&self, token: &str);
}

/// Provider of the tokens from [`crate::providers::azure::auth`].
pub struct CredentialTokens {
    bearer: Arc<dyn TokenSource>,
    auxiliary: Option<Arc<dyn TokenSource>>,
}

impl CredentialTokens {
    /// Creates the provider. `auxiliary` is the source for requests that name resources of another tenant.
    pub fn new(bearer: Arc<dyn TokenSource>, auxiliary: Option<Arc<dyn TokenSource>>) -> Self {
        Self { bearer, auxiliary }
    }
}

/// Returns the token's text, without the word `Bearer`.
async fn text(source: &dyn TokenSource) -> Result<String, AuthError> {
    Ok(source.token().await?.secret().secret().to_owned())
}

#[async_trait]
impl TokenProvider for CredentialTokens {
    async fn bearer(&self) -> Result<String, AuthError> {
        text(self.bearer.as_ref()).await
    }

    async fn auxiliary(&self) -> Result<Option<String>, AuthError> {
        match &self.auxiliary {
            Some(source) => text(source.as_ref()).await.map(Some),
            None => Ok(None),
        }
    }

    fn rejected(&self, token: &str) {
        [Some(&self.bearer), self.auxiliary.as_ref()].into_iter().flatten().for_each(|source| source.invalidate(token));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::atomic::{AtomicU32, Ordering},
    };

    use super::*;
    use crate::{
        providers::azure::{arm::test_doubles::FixedResponses, auth::connect, config::AzureConfig},
        runtime::clock::Clock,
    };

    #[tokio::test(start_paused = true)]
    async fn only_the_rejected_token_is_replaced() {
        let config = AzureConfig {
            tenant_id: "11111111-1111-1111-1111-111111111111".into(),
            aad_client_id: "22222222-2222-2222-2222-222222222222".into(),
            aad_client_secret: "hunter2".into(),
            network_resource_tenant_id: "33333333-3333-3333-3333-333333333333".into(),
            ..AzureConfig::default()
        };
        let issued = AtomicU32::new(0);
        let entra = Arc::new(FixedResponses(move || {
            let number = issued.fetch_add(1, Ordering::Relaxed);
            format!(r#"{{"token_type":"Bearer","access_token":"token-{number}","expires_in":3600}}"#)
        }));
        let credentials = connect(&config, &BTreeMap::new(), entra, Clock::System).await.unwrap().credentials;
        let tokens = CredentialTokens::new(credentials.compute, credentials.auxiliary);
        let (bearer, auxiliary) = (tokens.bearer().await.unwrap(), tokens.auxiliary().await.unwrap().unwrap());
        tokens.rejected("another");
        tokens.rejected(&auxiliary);
        assert_eq!(tokens.bearer().await, Ok(bearer.clone()), "another token was rejected");
        assert_ne!(tokens.auxiliary().await, Ok(Some(auxiliary)));
        tokens.rejected(&bearer);
        assert_ne!(tokens.bearer().await, Ok(bearer));
    }
}

//! Source of the client's tokens. In the program that is [`CredentialTokens`]; tests replace it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::providers::azure::auth::{AuthError, TokenSource};

/// Hands out tokens for ARM. Implementations cache, refresh ahead of expiry and log no token.
#[async_trait]
pub trait TokenProvider: Send + Sync {
    /// Returns the token for `Authorization: Bearer …`, without that word.
    async fn bearer(&self) -> Result<String, TokenError>;

    /// Returns the token of another tenant that owns network resources, for `x-ms-authorization-auxiliary`; `None` when
    /// there is one tenant.
    async fn auxiliary(&self) -> Result<Option<String>, TokenError> {
        Ok(None)
    }

    /// Records that ARM responded 401 to this bearer or auxiliary token, which must not be used again.
    fn rejected(&self, token: &str);
}

/// Reason why there is no token. Messages are for the operator and contain no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The identity provider refused, or the credentials are not usable: they have to be mended.
    #[error("{0}")]
    Refused(String),
    /// The identity provider did not respond: retry with backoff.
    #[error("{0}")]
    Unavailable(String),
}

impl From<AuthError> for TokenError {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::Configuration { .. } | AuthError::Refused { .. } => Self::Refused(error.to_string()),
            AuthError::Unreachable { .. } => Self::Unavailable(error.to_string()),
        }
    }
}

/// The tokens of [`crate::providers::azure::auth`].
pub struct CredentialTokens {
    bearer: Arc<dyn TokenSource>,
    auxiliary: Option<Arc<dyn TokenSource>>,
}

impl CredentialTokens {
    /// Creates the tokens. `auxiliary`: for requests that name resources of another tenant.
    pub fn new(bearer: Arc<dyn TokenSource>, auxiliary: Option<Arc<dyn TokenSource>>) -> Self {
        Self { bearer, auxiliary }
    }
}

/// Returns the text behind the word `Bearer`.
async fn text(source: &dyn TokenSource) -> Result<String, TokenError> {
    let header = source.token().await?.authorization();
    let text = header.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
    text.map(str::to_owned).ok_or_else(|| TokenError::Refused("the token is not one for a header".to_owned()))
}

#[async_trait]
impl TokenProvider for CredentialTokens {
    async fn bearer(&self) -> Result<String, TokenError> {
        text(self.bearer.as_ref()).await
    }

    async fn auxiliary(&self) -> Result<Option<String>, TokenError> {
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
        providers::azure::{
            arm::{ArmTransport, test_doubles::Answers},
            auth::connect,
            config::AzureConfig,
        },
        runtime::clock::Clock,
    };

    #[tokio::test(start_paused = true)]
    async fn a_rejected_token_is_not_handed_out_again() {
        let config = AzureConfig {
            tenant_id: "11111111-1111-1111-1111-111111111111".into(),
            aad_client_id: "22222222-2222-2222-2222-222222222222".into(),
            aad_client_secret: "hunter2".into(),
            ..AzureConfig::default()
        };
        let issued = AtomicU32::new(0);
        let entra: Arc<dyn ArmTransport> = Arc::new(Answers(move || {
            let number = issued.fetch_add(1, Ordering::Relaxed);
            format!(r#"{{"token_type":"Bearer","access_token":"token-{number}","expires_in":3600}}"#)
        }));
        let connection = connect(&config, &BTreeMap::new(), Arc::clone(&entra), Clock::System).await.unwrap();
        let tokens = CredentialTokens::new(connection.credentials.compute, None);
        assert_eq!((tokens.bearer().await.unwrap(), tokens.bearer().await.unwrap()), ("token-0".into(), "token-0".into()));
        tokens.rejected("another");
        assert_eq!(tokens.bearer().await.unwrap(), "token-0");
        tokens.rejected("token-0");
        assert_eq!(tokens.bearer().await.unwrap(), "token-1");
        assert_eq!(tokens.auxiliary().await, Ok(None));

        let network = AzureConfig { network_resource_tenant_id: "33333333-3333-3333-3333-333333333333".into(), ..config };
        let both = connect(&network, &BTreeMap::new(), entra, Clock::System).await.unwrap().credentials;
        let tokens = CredentialTokens::new(both.compute, both.auxiliary);
        let bearer = tokens.bearer().await.unwrap();
        let auxiliary = tokens.auxiliary().await.unwrap().unwrap();
        tokens.rejected(&auxiliary);
        assert_eq!(tokens.bearer().await, Ok(bearer), "the other one was not refused");
        assert_ne!(tokens.auxiliary().await, Ok(Some(auxiliary)));
    }
}

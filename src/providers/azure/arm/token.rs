//! Where the client gets its tokens: the credentials implement this.

use async_trait::async_trait;

/// Hands out tokens for ARM. Implementations cache, refresh ahead of expiry and log no token.
#[async_trait]
pub trait TokenProvider: Send + Sync {
    /// The token for `Authorization: Bearer …`, without that word.
    async fn bearer(&self) -> Result<String, TokenError>;

    /// The token of another tenant that owns network resources, for `x-ms-authorization-auxiliary`; `None` when there is one tenant.
    async fn auxiliary(&self) -> Result<Option<String>, TokenError> {
        Ok(None)
    }

    /// ARM answered 401 to this token: do not hand it out again.
    fn rejected(&self, token: &str);
}

/// Why there is no token. Messages are for the operator and contain no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The identity provider refused, or the credentials are not usable: they have to be mended.
    #[error("{0}")]
    Refused(String),
    /// The identity provider gave no answer: try again with back-off.
    #[error("{0}")]
    Unavailable(String),
}

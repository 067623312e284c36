//! The wire under the ARM client: one request out, one answer in. Tests put a simulator here.

use async_trait::async_trait;
use bytes::Bytes;

/// Sends one request. The URL is absolute; headers are complete but for what HTTP itself adds.
#[async_trait]
pub trait Transport: Send + Sync {
    /// The answer, whatever its status.
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, TransportError>;
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The request did not leave: no connection, no name, no trust.
    #[error("cannot connect: {0}")]
    NotSent(String),
    /// The request may have arrived.
    #[error("no answer: {0}")]
    NoAnswer(String),
}

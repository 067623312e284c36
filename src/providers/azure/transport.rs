//! The wire under the ARM client and the credentials: one request out, one answer in. Tests put a simulator here.
//!
//! What comes back is bounded, because whoever answers decides how long it is: a megabyte of gzip is a gigabyte of text. The bound
//! counts the bytes after decompression. A request may raise it with [`MaxBodySize`]; without one it is that of a token.

use async_trait::async_trait;
use bytes::Bytes;

/// Most bytes of an answer's body, after decompression: an extension of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaxBodySize(pub usize);

impl MaxBodySize {
    /// Of ARM: a page of a list. Azure documents no maximum. A load balancer at its limits (1,500 rules, 5,000 addresses) has 4 MB.
    pub const ARM: Self = Self(64 << 20);

    /// What `request` allows; without a word of it 1 MiB. Tokens, clouds and documents about one machine have a few thousand bytes.
    pub fn of<B>(request: &http::Request<B>) -> Self {
        request.extensions().get().copied().unwrap_or_default()
    }
}

impl Default for MaxBodySize {
    fn default() -> Self {
        Self(1 << 20)
    }
}

/// Sends one request. The URL is absolute; headers are complete but for what HTTP itself adds.
#[async_trait]
pub trait ArmTransport: Send + Sync {
    /// The answer, whatever its status; an error when its body is larger than the request's [`MaxBodySize`].
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, ArmTransportError>;
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArmTransportError {
    /// The request did not leave: no connection, no name, no trust.
    #[error("cannot connect: {0}")]
    NotSent(String),
    /// The request may have arrived.
    #[error("no response: {0}")]
    NoAnswer(String),
    /// The request arrived; what came back is longer than any answer to it can be.
    #[error("the response exceeds {} bytes (decompressed); it may come from a proxy instead of Azure", .0.0)]
    TooLarge(MaxBodySize),
}

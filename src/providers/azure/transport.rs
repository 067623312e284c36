//! Transport under the ARM client and the credentials: sends one request, returns one response. Tests use a simulator instead.
//!
//! Responses are bounded, because the server controls their length: a megabyte of gzip can be a gigabyte of text. The limit
//! counts the bytes after decompression. A request may raise it with [`MaxBodySize`]; the default suits a token.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::Method;

/// Maximum length of a response's body in bytes, after decompression; set as an extension of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaxBodySize(pub usize);

impl MaxBodySize {
    /// Limit for a page of an ARM list. Azure documents no maximum. A load balancer at its limits (1,500 rules, 5,000 addresses)
    /// has 4 MB.
    pub const ARM: Self = Self(64 << 20);

    /// Returns the limit of `request`, by default 1 MiB. Tokens, clouds and documents about one machine have a few thousand
    /// bytes.
    pub fn of<B>(request: &http::Request<B>) -> Self {
        request.extensions().get().copied().unwrap_or_default()
    }
}

impl Default for MaxBodySize {
    fn default() -> Self {
        Self(1 << 20)
    }
}

/// Transport of single requests with absolute URLs. Callers set all headers except those that HTTP itself requires.
#[async_trait]
pub trait ArmTransport: Send + Sync {
    /// Sends the request and returns the response, whatever its status. Fails if its body exceeds the request's [`MaxBodySize`].
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, ArmTransportError>;

    /// Returns the witness that compares sent requests with the plan, if any.
    #[cfg(feature = "sandbox")]
    fn witness(&self) -> Option<&dyn PlanWitness> {
        None
    }
}

/// Observer of each plan before any of its writes is sent.
#[cfg(feature = "sandbox")]
pub trait PlanWitness: Send + Sync {
    fn planned(&self, plan: &crate::cloud_provider::WritePlan);
}

/// Endings of the paths of token requests, the only requests of a read-only process with `POST`. No path of ARM has these endings.
const TOKENS: [&str; 2] = ["/oauth2/token", "/oauth2/v2.0/token"];

/// Transport for a process that only reads (`--dry-run`, `plan`). Refuses other requests.
pub struct ReadOnlyTransport(pub Arc<dyn ArmTransport>);

#[async_trait]
impl ArmTransport for ReadOnlyTransport {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, ArmTransportError> {
        let (method, path) = (request.method(), request.uri().path());
        let is_token = *method == Method::POST && TOKENS.iter().any(|end| path.ends_with(end));
        if is_token || matches!(*method, Method::GET | Method::HEAD) {
            return self.0.send(request).await;
        }
        Err(ArmTransportError::NotSent(format!("this process only reads (--dry-run or plan): {method} {path} was not sent")))
    }
}

/// Reason why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArmTransportError {
    /// Request that was not sent: no connection, no address for the name, or no trusted certificate.
    #[error("cannot connect: {0}")]
    NotSent(String),
    /// Request that may have arrived, without a response.
    #[error("no response: {0}")]
    NoAnswer(String),
    /// Response to a request that arrived, longer than any valid response.
    #[error("the response exceeds {} bytes (decompressed); it may come from a proxy instead of Azure", .0.0)]
    TooLarge(MaxBodySize),
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct CountingTransport(AtomicUsize);

    #[async_trait]
    impl ArmTransport for CountingTransport {
        async fn send(&self, _: http::Request<Bytes>) -> Result<http::Response<Bytes>, ArmTransportError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(http::Response::new(Bytes::new()))
        }
    }

    #[tokio::test]
    async fn only_reads_and_token_requests_are_sent() {
        let wire = Arc::new(CountingTransport::default());
        let transport = ReadOnlyTransport(Arc::<CountingTransport>::clone(&wire));
        let arm = "https://management.azure.com/subscriptions/s/resourceGroups/g";
        let send = async |method: Method, url: &str| {
            let request = http::Request::builder().method(method).uri(url).body(Bytes::new()).unwrap();
            transport.send(request).await
        };
        assert!(send(Method::GET, arm).await.is_ok());
        assert!(send(Method::POST, "https://login.microsoftonline.com/t/oauth2/v2.0/token").await.is_ok());
        for method in [Method::PUT, Method::POST, Method::PATCH, Method::DELETE] {
            let refused = send(method, arm).await.unwrap_err();
            assert!(matches!(&refused, ArmTransportError::NotSent(reason) if reason.contains("only reads")), "{refused}");
        }
        assert!(send(Method::PUT, "https://management.azure.com/oauth2/token").await.is_err());
        assert_eq!(wire.0.load(Ordering::SeqCst), 2);
    }
}

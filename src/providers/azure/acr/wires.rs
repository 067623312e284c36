//! Transports of the credential provider.
//!
//! In: the environment. Out: transports, created when the first request is sent, so that a response without requests does not read the
//! certificate authorities.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use bytes::Bytes;

use crate::providers::azure::{
    auth::{AuthError, PinnedHost, ReqwestTransport},
    transport::{ArmTransport, ArmTransportError},
};

/// Transports of requests. Tests use a simulator instead.
pub trait ImageCredentialWires: Send + Sync {
    /// Returns the transport to the cloud.
    fn cloud(&self) -> Arc<dyn ArmTransport>;
    /// Returns a transport to one server of the cluster, without a proxy.
    fn pinned(&self, host: &PinnedHost) -> Result<Arc<dyn ArmTransport>, AuthError>;
}

/// Transports over the network, with the proxies and certificate authorities of the environment.
pub(super) struct NetworkWires(pub(super) BTreeMap<String, String>);

impl ImageCredentialWires for NetworkWires {
    fn cloud(&self) -> Arc<dyn ArmTransport> {
        Arc::new(LazyTransport { environment: self.0.clone(), transport: OnceLock::new() })
    }

    fn pinned(&self, host: &PinnedHost) -> Result<Arc<dyn ArmTransport>, AuthError> {
        Ok(Arc::new(ReqwestTransport::pinned(host)?))
    }
}

struct LazyTransport {
    environment: BTreeMap<String, String>,
    transport: OnceLock<Result<ReqwestTransport, AuthError>>,
}

#[async_trait]
impl ArmTransport for LazyTransport {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, ArmTransportError> {
        match self.transport.get_or_init(|| ReqwestTransport::new(&self.environment)) {
            Ok(transport) => transport.send(request).await,
            Err(error) => Err(ArmTransportError::NotSent(error.to_string())),
        }
    }
}

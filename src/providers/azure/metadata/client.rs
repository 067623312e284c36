//! Client of the metadata service. In: its address and a transport. Out: [`ImdsDocuments`], or an error.
//!
//! Paths, API versions and headers are those of upstream (`pkg/provider/azure_instance_metadata.go`). The retries follow Azure's
//! documentation.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Request;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{
    document::{ImdsDocuments, ImdsInstance, ImdsLoadBalancer},
    retry::{self, MetadataFailure, MetadataRetryPolicy},
};
use crate::{
    providers::azure::transport::{ArmTransport, ArmTransportError},
    runtime::text::condense,
};

/// Path of the first document, with the newest API version that has the fields that upstream reads.
const INSTANCE: &str = "/metadata/instance?api-version=2021-10-01&format=json";
const LOAD_BALANCER: &str = "/metadata/loadbalancer?api-version=2020-10-01&format=json";
const USER_AGENT: &str = "cloud-node-manager";

const INSTANCE_RETRY_POLICY: MetadataRetryPolicy =
    MetadataRetryPolicy { total: Duration::from_secs(30), per_attempt: Duration::from_secs(10), may_be_missing: false };
/// Short policy, because a Node must not wait long for its public addresses.
const LOAD_BALANCER_RETRY_POLICY: MetadataRetryPolicy =
    MetadataRetryPolicy { total: Duration::from_secs(5), per_attempt: Duration::from_secs(3), may_be_missing: true };

/// Maximum part of a body in an error, in characters.
const MAX_EXCERPT: usize = 200;

/// Error of a request for a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the instance metadata service at {address} cannot identify this machine: {failure}")]
pub struct MetadataError {
    address: String,
    failure: MetadataFailure,
}

/// Instance metadata service of this machine.
pub struct MetadataService {
    address: String,
    transport: Arc<dyn ArmTransport>,
}

impl MetadataService {
    /// Creates a client of the service at `address`, `http://host[:port]`, with `transport`.
    pub fn new(address: &str, transport: Arc<dyn ArmTransport>) -> Self {
        Self { address: address.trim_end_matches('/').to_owned(), transport }
    }

    /// Returns both documents. If the second one is unavailable, that of `previous` is returned, because a missing response must not
    /// remove addresses.
    pub(super) async fn documents(&self, previous: Option<&ImdsDocuments>) -> Result<ImdsDocuments, MetadataError> {
        let instance: ImdsInstance = self.document(INSTANCE, INSTANCE_RETRY_POLICY).await?;
        let load_balancer = match instance.lacks_public_addresses() {
            true => self.load_balancer(previous).await,
            false => ImdsLoadBalancer::default(),
        };
        Ok(ImdsDocuments { instance, load_balancer })
    }

    async fn load_balancer(&self, previous: Option<&ImdsDocuments>) -> ImdsLoadBalancer {
        match self.document(LOAD_BALANCER, LOAD_BALANCER_RETRY_POLICY).await {
            Ok(document) => document,
            // 404: the machine has no such address. 400: Azure Stack does not support this document.
            Err(MetadataError { failure: MetadataFailure::Refused { status: 400 | 404, .. }, .. }) => {
                ImdsLoadBalancer::default()
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the public addresses; previous addresses kept");
                previous.map(|documents| documents.load_balancer.clone()).unwrap_or_default()
            }
        }
    }

    async fn document<T: DeserializeOwned>(&self, path: &str, policy: MetadataRetryPolicy) -> Result<T, MetadataError> {
        let begun = Instant::now();
        let mut attempts = 0;
        loop {
            let failure = match self.request_once(path, policy.per_attempt).await {
                Ok(document) => return Ok(document),
                Err(failure) => failure,
            };
            attempts += 1;
            let Some(pause) = retry::next_delay(&failure, policy, attempts, begun.elapsed(), rand::random()) else {
                return Err(MetadataError { address: self.address.clone(), failure });
            };
            tracing::debug!(%failure, ?pause, "retrying the request to the instance metadata service");
            tokio::time::sleep(pause).await;
        }
    }

    async fn request_once<T: DeserializeOwned>(&self, path: &str, limit: Duration) -> Result<T, MetadataFailure> {
        let request = Request::get(format!("{}{path}", self.address))
            .header("Metadata", "True")
            .header(http::header::USER_AGENT, USER_AGENT)
            .body(Bytes::new())
            .map_err(|error| MetadataFailure::NoResponse(error.to_string()))?;
        let response = tokio::time::timeout(limit, self.transport.send(request)).await;
        let response =
            response.map_err(|_| MetadataFailure::NoResponse(format!("no response within {} s", limit.as_secs())))?;
        let response = response.map_err(|error| match error {
            ArmTransportError::TooLarge(_) => MetadataFailure::Malformed(error.to_string()),
            ArmTransportError::NotSent(_) | ArmTransportError::NoAnswer(_) => MetadataFailure::NoResponse(error.to_string()),
        })?;
        if response.status() != http::StatusCode::OK {
            let retry_after = response.headers().get(http::header::RETRY_AFTER);
            let seconds = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
            return Err(MetadataFailure::Refused {
                status: response.status().as_u16(),
                text: condense(&String::from_utf8_lossy(response.body()), MAX_EXCERPT),
                retry_after: seconds.map(Duration::from_secs),
            });
        }
        serde_json::from_slice(response.body())
            .map_err(|error| MetadataFailure::Malformed(condense(&error.to_string(), MAX_EXCERPT)))
    }
}

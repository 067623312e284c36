//! Provider of a cloud-node-manager: the machine of this process, from its instance metadata service (IMDS).
//!
//! ```text
//! client ─(retry)─► document ─► cache ─► describe ─► InstanceMetadata
//!    └ transport: plain HTTP, never through a proxy
//! ```
//!
//! In: the service's address. Out: [`LocalMachineCloud`], a provider of one machine, which needs neither credentials nor ARM.
//! [`describe`], [`document`] and [`retry`] are pure. Upstream: `pkg/provider/azure_instance_metadata.go`, `pkg/node/node.go`.

mod cache;
mod client;
pub mod describe;
pub mod document;
pub mod retry;
#[cfg(all(test, feature = "sandbox"))]
#[expect(clippy::unwrap_used, reason = "a missing precondition fails the test")]
mod tests;
mod transport;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;

use self::{cache::MetadataCache, document::ImdsDocuments};
pub use self::{
    client::{MetadataError, MetadataService},
    transport::PlainHttpTransport,
};
use super::{
    instances::{describe::DescribedNode, ownership},
    node,
};
use crate::cloud_provider::{CloudError, CloudProvider, CloudResult, InstanceMetadata, InstancesV2};

/// Address of the service on every machine of Azure.
const ADDRESS: &str = "http://169.254.169.254";
/// Environment variable that replaces the address, for tests. The Azure SDK uses the same name.
const ENDPOINT_VARIABLE: &str = "IMDS_ENDPOINT";
/// Maximum age of a cached response. Upstream: `azure_instance_metadata.go`.
const MAX_AGE: Duration = Duration::from_secs(60);

/// Returns the service's address: that in the environment, or the default.
pub fn address(environment: &BTreeMap<String, String>) -> &str {
    environment.get(ENDPOINT_VARIABLE).filter(|address| !address.is_empty()).map_or(ADDRESS, String::as_str)
}

/// Provider of the machine that it runs on. Clones share the cache.
#[derive(Clone)]
pub struct LocalMachineCloud {
    cache: Arc<MetadataCache>,
    /// Name of the Node that is accepted in addition to the names that the service reports.
    pub(super) own_name: Option<String>,
    /// Whether fault domains have a label of their own (`faultDomainLabel`).
    pub(super) fault_domain_label: bool,
}

impl LocalMachineCloud {
    /// Creates a provider with `service`. Responses are cached for `max_age`, at most for a minute.
    pub fn new(service: MetadataService, max_age: Duration) -> Self {
        Self {
            cache: Arc::new(MetadataCache::new(service, max_age.min(MAX_AGE))),
            own_name: None,
            fault_domain_label: false,
        }
    }

    async fn documents(&self) -> CloudResult<Arc<ImdsDocuments>> {
        self.cache.documents().await.map_err(|error| CloudError::failed(error.to_string()))
    }
}

impl CloudProvider for LocalMachineCloud {
    fn provider_name(&self) -> &str {
        super::NAME
    }

    fn is_foreign(&self, node: &Node) -> bool {
        node::is_foreign(node)
    }

    fn needs_provider_id(&self, node: &Node) -> bool {
        !node::is_unmanaged(node)
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl InstancesV2 for LocalMachineCloud {
    /// Returns `true` if the metadata service responds.
    async fn instance_exists(&self, _: &Node) -> CloudResult<bool> {
        self.documents().await.map(|_| true)
    }

    async fn instance_shutdown(&self, _: &Node) -> CloudResult<bool> {
        Ok(false)
    }

    /// Returns the metadata of the machine; for unmanaged Nodes and Nodes of other clouds, the same as in the central mode.
    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>> {
        if ownership::metadata_query(node).is_none() {
            return Ok(ownership::metadata_without_machine(node));
        }
        let documents = self.documents().await?;
        // Upstream returns the addresses of both families here, but only one family from ARM.
        let subject = DescribedNode { name: node::name(node), provider_id: node::provider_id(node), ipv6: true };
        let checked = describe::check_name(&documents, subject.name, self.own_name.as_deref());
        match checked.and_then(|()| describe::metadata(&documents, subject, self.fault_domain_label)) {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) => {
                // Incomplete documents must not remain cached.
                self.cache.invalidate().await;
                Err(CloudError::failed(error.to_string()))
            }
        }
    }
}

//! The machine this process runs on, as its instance metadata service (IMDS) tells it: the cloud of a cloud-node-manager.
//!
//! ```text
//! client ─(retry)─► document ─► cache ─► describe ─► InstanceMetadata
//!    └ transport: plain HTTP, never through a proxy
//! ```
//!
//! In: the service's address. Out: [`LocalMachineCloud`], a provider that knows one machine and needs neither credentials nor ARM.
//! [`describe`], [`document`] and [`retry`] are pure. Upstream: `pkg/provider/azure_instance_metadata.go`, `pkg/node/node.go`.

mod cache;
mod client;
pub mod describe;
pub mod document;
pub mod retry;
#[cfg(all(test, feature = "sandbox"))]
#[expect(clippy::unwrap_used, reason = "a test ends where what it needs is missing")]
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
/// Moves it, for tests; the name is the Azure SDK's.
const ENDPOINT_VARIABLE: &str = "IMDS_ENDPOINT";
/// An answer is used for this long at most. Upstream: `azure_instance_metadata.go`.
const MAX_AGE: Duration = Duration::from_secs(60);

/// Returns the service's address, as the environment has it.
pub fn address(environment: &BTreeMap<String, String>) -> &str {
    environment.get(ENDPOINT_VARIABLE).filter(|address| !address.is_empty()).map_or(ADDRESS, String::as_str)
}

/// A cloud that knows the machine it runs on and no other. Clones are the same.
#[derive(Clone)]
pub struct LocalMachineCloud {
    cache: Arc<MetadataCache>,
    /// Further name of its Node, whatever the service reports.
    pub(super) own_name: Option<String>,
    /// Whether fault domains have a label of their own (`faultDomainLabel`).
    pub(super) fault_domain_label: bool,
}

impl LocalMachineCloud {
    /// Creates the cloud of `service`. A response is used for `max_age`, and a minute at most.
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
    /// Returns `true` if the machine responds.
    async fn instance_exists(&self, _: &Node) -> CloudResult<bool> {
        self.documents().await.map(|_| true)
    }

    async fn instance_shutdown(&self, _: &Node) -> CloudResult<bool> {
        Ok(false)
    }

    /// Treats unmanaged Nodes and Nodes of other clouds as in the central mode.
    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>> {
        if ownership::metadata_query(node).is_none() {
            return Ok(ownership::metadata_without_machine(node));
        }
        let documents = self.documents().await?;
        // Upstream returns all addresses that the machine has here, and only one family from ARM.
        let subject = DescribedNode { name: node::name(node), provider_id: node::provider_id(node), ipv6: true };
        let own = describe::check_name(&documents, subject.name, self.own_name.as_deref());
        match own.and_then(|()| describe::metadata(&documents, subject, self.fault_domain_label)) {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) => {
                // What is incomplete must not be believed for a minute.
                self.cache.forget().await;
                Err(CloudError::failed(error.to_string()))
            }
        }
    }
}

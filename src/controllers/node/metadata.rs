//! Instance metadata from whichever interface the cloud offers: `InstancesV2`, else `Instances` and `Zones`.
//!
//! In: Nodes. Out: a [`MetadataResult`] for each. Upstream: `controllers/node/node_controller.go` (`getInstanceMetadata`,
//! `getProviderID`).

use std::sync::Arc;

use futures::TryFutureExt;
use k8s_openapi::api::core::v1::Node;

use crate::{
    cloud_provider::{
        CloudError, CloudProvider, CloudResult, InstanceMetadata, Instances, InstancesV2, NodeAddress, Zone, Zones,
    },
    node::{initialize::ProviderIdRequirement, name, provider_id},
};

/// Metadata of one instance, and whether its Node needs a provider ID. `None`: not an instance of this cloud.
pub(crate) type MetadataResult = CloudResult<Option<(InstanceMetadata, ProviderIdRequirement)>>;

/// Extent of the requested metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetadataScope {
    /// Metadata that initialization needs.
    All,
    /// Addresses; the rest may be empty.
    Addresses,
}

/// The cloud offers no instances: neither the node nor the node-lifecycle controller can work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cloud provider {provider:?} offers neither InstancesV2 nor Instances, which {controller} needs: take it out with \
     --controllers=*,-{controller}, or choose another --cloud-provider"
)]
pub struct NoInstances {
    /// Name of the provider.
    pub provider: String,
    /// Name of the controller.
    pub controller: &'static str,
}

/// Interface of the provider for instances.
pub(crate) enum InstanceInterface {
    V2(Arc<dyn InstancesV2>),
    V1 { instances: Arc<dyn Instances>, zones: Option<Arc<dyn Zones>>, provider_name: String },
}

impl InstanceInterface {
    /// Returns the interface that `provider` offers to `controller`, preferring the newer one.
    pub(crate) fn of(provider: &dyn CloudProvider, controller: &'static str) -> Result<Self, NoInstances> {
        let provider_name = provider.provider_name().to_owned();
        if let Some(v2) = provider.instances_v2() {
            return Ok(InstanceInterface::V2(v2));
        }
        match provider.instances() {
            Some(instances) => Ok(InstanceInterface::V1 { instances, zones: provider.zones(), provider_name }),
            None => Err(NoInstances { provider: provider_name, controller }),
        }
    }

    /// Answers for all `nodes`, in their order.
    pub(crate) async fn fetch_all(&self, question: MetadataScope, nodes: &[Arc<Node>]) -> Vec<MetadataResult> {
        match self {
            InstanceInterface::V2(v2) => {
                let results = v2.instance_metadata_batch(nodes).await;
                results.into_iter().map(|result| result.map(|metadata| metadata.map(with_requirement))).collect()
            }
            InstanceInterface::V1 { .. } => {
                futures::future::join_all(nodes.iter().map(|node| self.fetch(question, node))).await
            }
        }
    }

    /// Returns the metadata of one node, without a batch.
    pub(crate) async fn fetch(&self, question: MetadataScope, node: &Node) -> MetadataResult {
        match self {
            InstanceInterface::V2(v2) => Ok(v2.instance_metadata(node).await?.map(with_requirement)),
            InstanceInterface::V1 { instances, zones, provider_name } => {
                let old = InstancesV1 { instances: instances.as_ref(), zones: zones.as_deref(), node };
                match question {
                    MetadataScope::All => old.metadata(provider_name).await.map(Some),
                    MetadataScope::Addresses => old.only_addresses().await.map(Some),
                }
            }
        }
    }
}

fn with_requirement(metadata: InstanceMetadata) -> (InstanceMetadata, ProviderIdRequirement) {
    let requirement = match metadata.is_unmanaged {
        true => ProviderIdRequirement::Unsupported,
        false => ProviderIdRequirement::Required,
    };
    (metadata, requirement)
}

/// Returns the provider ID of `node`: its own, else one made from the cloud's instance ID. Upstream:
/// `GetInstanceProviderID`.
pub(crate) async fn find_provider_id(instances: &dyn Instances, provider_name: &str, node: &Node) -> CloudResult<String> {
    match provider_id(node) {
        Some(own) => Ok(own.to_owned()),
        None => Ok(format!("{provider_name}://{}", instances.instance_id(name(node)).await?)),
    }
}

/// The older interfaces, for one Node. Every look-up is by provider id, and by name when that fails.
struct InstancesV1<'a> {
    instances: &'a dyn Instances,
    zones: Option<&'a dyn Zones>,
    node: &'a Node,
}

impl InstancesV1<'_> {
    async fn metadata(&self, provider_name: &str) -> CloudResult<(InstanceMetadata, ProviderIdRequirement)> {
        let (id, rule) = match find_provider_id(self.instances, provider_name, self.node).await {
            Ok(id) => (id, ProviderIdRequirement::Required),
            Err(CloudError::NotImplemented) => (String::new(), ProviderIdRequirement::Unsupported),
            Err(error) => return Err(error),
        };
        let node_addresses = self.addresses(&id).await?;
        let instance_type = self.instance_type(&id).await?;
        let zone = self.zone(&id).await?;
        let metadata = InstanceMetadata {
            provider_id: id,
            instance_type,
            node_addresses,
            zone: zone.failure_domain,
            region: zone.region,
            ..InstanceMetadata::default()
        };
        Ok((metadata, rule))
    }

    async fn only_addresses(&self) -> CloudResult<(InstanceMetadata, ProviderIdRequirement)> {
        let node_addresses = self.addresses(provider_id(self.node).unwrap_or_default()).await?;
        Ok((InstanceMetadata { node_addresses, ..InstanceMetadata::default() }, ProviderIdRequirement::Unsupported))
    }

    async fn addresses(&self, id: &str) -> CloudResult<Vec<NodeAddress>> {
        let by_id = self.instances.node_addresses_by_provider_id(id);
        by_id_or_name(id, by_id, self.instances.node_addresses(name(self.node))).await
    }

    async fn instance_type(&self, id: &str) -> CloudResult<String> {
        let by_id = self.instances.instance_type_by_provider_id(id);
        by_id_or_name(id, by_id, self.instances.instance_type(name(self.node))).await
    }

    async fn zone(&self, id: &str) -> CloudResult<Zone> {
        let Some(zones) = self.zones else { return Ok(Zone::default()) };
        by_id_or_name(id, zones.get_zone_by_provider_id(id), zones.get_zone_by_node_name(name(self.node))).await
    }
}

/// Returns the result of the lookup by provider ID, or of the one by name if there is no ID or that lookup fails.
async fn by_id_or_name<T>(
    id: &str,
    by_id: impl Future<Output = CloudResult<T>>,
    by_name: impl Future<Output = CloudResult<T>>,
) -> CloudResult<T> {
    match id.is_empty() {
        true => by_name.await,
        false => by_id.or_else(|_| by_name).await,
    }
}

#[cfg(test)]
mod tests;

//! Zones and regions, for providers that offer [`super::Instances`] rather than [`super::InstancesV2`].

use async_trait::async_trait;

use super::CloudResult;

/// A failure domain and the region it lies in. Empty means "not known".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zone {
    /// Name of the failure domain.
    pub failure_domain: String,
    /// Name of the region.
    pub region: String,
}

/// Zones of a cloud. Upstream: `cloud.go`, `Zones`.
#[async_trait]
pub trait Zones: Send + Sync {
    /// Returns the zone of the instance with this provider ID.
    async fn get_zone_by_provider_id(&self, provider_id: &str) -> CloudResult<Zone>;
    /// Returns the zone of the node called `name`.
    async fn get_zone_by_node_name(&self, name: &str) -> CloudResult<Zone>;
}

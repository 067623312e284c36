//! Zones and regions, for providers that implement [`super::Instances`] instead of [`super::InstancesV2`].

use async_trait::async_trait;

use super::CloudResult;

/// Failure domain and region of an instance. An empty name means that it is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zone {
    /// Name of the failure domain.
    pub failure_domain: String,
    /// Name of the region.
    pub region: String,
}

/// Zones of a cloud. Upstream: `cloud.go`, `Zones`.
///
/// The errors are those of [`InstancesV2`](super::InstancesV2).
#[async_trait]
pub trait Zones: Send + Sync {
    /// Returns the zone of the instance with this provider ID. Upstream: `GetZoneByProviderID`.
    async fn get_zone_by_provider_id(&self, provider_id: &str) -> CloudResult<Zone>;
    /// Returns the zone of the instance of the Node `name`. Upstream: `GetZoneByNodeName`.
    async fn get_zone_by_node_name(&self, name: &str) -> CloudResult<Zone>;
}

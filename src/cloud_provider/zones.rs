//! Zones and regions, for providers that offer [`super::Instances`] rather than [`super::InstancesV2`].

use async_trait::async_trait;

use super::CloudResult;

/// A failure domain and the region it lies in. Empty means "not known".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zone {
    /// Failure domain.
    pub failure_domain: String,
    /// Region.
    pub region: String,
}

/// Zones of a cloud. Upstream: `cloud.go`, `Zones`.
#[async_trait]
pub trait Zones: Send + Sync {
    /// The zone this program runs in.
    async fn get_zone(&self) -> CloudResult<Zone>;
    /// The zone of the instance with this provider id.
    async fn get_zone_by_provider_id(&self, provider_id: &str) -> CloudResult<Zone>;
    /// The zone of the node called `name`.
    async fn get_zone_by_node_name(&self, name: &str) -> CloudResult<Zone>;
}

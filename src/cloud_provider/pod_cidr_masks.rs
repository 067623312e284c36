//! Sizes of the pod CIDRs of a Node.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Serialize};

use super::CloudResult;

/// Prefix lengths that a cloud wants for the pod CIDRs of a Node. `None`: as the flags say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PodCidrMaskSizes {
    /// Of its IPv4 CIDR.
    pub ipv4: Option<u8>,
    /// Of its IPv6 CIDR.
    pub ipv6: Option<u8>,
}

/// Sizes of pod CIDRs. Upstream has them as a method of Azure's provider (`GetNodeCIDRMasksByProviderID`).
#[async_trait]
pub trait PodCidrMasks: Send + Sync {
    /// Returns the sizes for `node`, which has a provider ID. An error keeps the Node waiting: the sizes cannot be changed
    /// later.
    async fn mask_sizes(&self, node: &Node) -> CloudResult<PodCidrMaskSizes>;
}

//! Sizes of the pod CIDRs of a Node.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Serialize};

use super::CloudResult;

/// Prefix lengths of the pod CIDRs of a Node. `None`: the length in the flags, such as `--node-cidr-mask-size`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PodCidrMaskSizes {
    /// Prefix length of the IPv4 CIDR.
    pub ipv4: Option<u8>,
    /// Prefix length of the IPv6 CIDR.
    pub ipv6: Option<u8>,
}

/// Sizes of pod CIDRs, for `--cidr-allocator-type=CloudAllocator`.
///
/// Upstream: `GetNodeCIDRMasksByProviderID`, a method of Azure's provider.
#[async_trait]
pub trait PodCidrMasks: Send + Sync {
    /// Returns the sizes of the pod CIDRs of `node`, which has a provider ID.
    ///
    /// # Errors
    ///
    /// Any error means that the Node gets no pod CIDRs until a retry succeeds, because their sizes cannot be changed later.
    async fn mask_sizes(&self, node: &Node) -> CloudResult<PodCidrMaskSizes>;
}

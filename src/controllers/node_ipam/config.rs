//! Pod CIDR flags as plain data. Pure.

use ipnet::IpNet;

/// Upstream's default prefixes of a Node's pod CIDRs.
pub(crate) const DEFAULT_MASK_IPV4: u8 = 24;
pub(crate) const DEFAULT_MASK_IPV6: u8 = 64;

/// Allocator of pod CIDRs (`--cidr-allocator-type`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CidrAllocatorType {
    /// Blocks of one size for all Nodes.
    #[default]
    RangeAllocator,
    /// Blocks whose size the cloud determines for each Node.
    CloudAllocator,
}

impl CidrAllocatorType {
    /// Returns the type with the name `text`, or `None` if there is no such type.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "RangeAllocator" => Some(Self::RangeAllocator),
            "CloudAllocator" => Some(Self::CloudAllocator),
            _ => None,
        }
    }
}

/// Values of the flags of the node-ipam controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIpamConfig {
    /// Whether the controller starts (`--allocate-node-cidrs`).
    pub enabled: bool,
    pub allocator: CidrAllocatorType,
    /// Ranges to allocate from (`--cluster-cidr`): one, or one per address family.
    pub cluster_cidrs: Vec<IpNet>,
    /// Ranges that no Node gets (`--service-cluster-ip-range`).
    pub service_cidrs: Vec<IpNet>,
    /// `--node-cidr-mask-size-ipv4`.
    pub mask_ipv4: u8,
    /// `--node-cidr-mask-size-ipv6`.
    pub mask_ipv6: u8,
    /// Whether the informer hides some Nodes (`--node-filter-requirements`). A Node that it lacks may exist nevertheless.
    pub nodes_are_filtered: bool,
}

impl Default for NodeIpamConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            allocator: CidrAllocatorType::default(),
            cluster_cidrs: Vec::new(),
            service_cidrs: Vec::new(),
            mask_ipv4: DEFAULT_MASK_IPV4,
            mask_ipv6: DEFAULT_MASK_IPV6,
            nodes_are_filtered: false,
        }
    }
}

impl NodeIpamConfig {
    /// Returns `true` if this process allocates pod CIDRs of the sizes in the flags to all Nodes.
    pub fn has_fixed_masks(&self) -> bool {
        self.enabled && self.allocator == CidrAllocatorType::RangeAllocator
    }

    /// Returns the prefix of a Node's block in `cluster`, unless the cloud chooses it.
    pub fn mask(&self, cluster: &IpNet) -> u8 {
        if cluster.addr().is_ipv4() { self.mask_ipv4 } else { self.mask_ipv6 }
    }
}

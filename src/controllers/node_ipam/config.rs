//! Pod CIDR flags, and the configurations that the controller supports. Pure.

use ipnet::IpNet;

/// Upstream's default prefixes of a Node's pod CIDRs.
pub(crate) const DEFAULT_MASK_IPV4: u8 = 24;
pub(crate) const DEFAULT_MASK_IPV6: u8 = 64;

/// `--cidr-allocator-type`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CidrAllocatorType {
    /// Blocks of one size for all Nodes.
    #[default]
    RangeAllocator,
    /// The cloud says how large a Node's blocks are.
    CloudAllocator,
}

impl CidrAllocatorType {
    /// Returns the type that the flag names.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "RangeAllocator" => Some(Self::RangeAllocator),
            "CloudAllocator" => Some(Self::CloudAllocator),
            _ => None,
        }
    }
}

/// Values of the flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIpamConfig {
    /// `--allocate-node-cidrs`: without it nothing starts.
    pub enabled: bool,
    pub allocator: CidrAllocatorType,
    /// `--cluster-cidr`: one, or one per address family.
    pub cluster_cidrs: Vec<IpNet>,
    /// `--service-cluster-ip-range`: never given to a Node.
    pub service_cidrs: Vec<IpNet>,
    /// `--node-cidr-mask-size-ipv4`.
    pub mask_ipv4: u8,
    /// `--node-cidr-mask-size-ipv6`.
    pub mask_ipv6: u8,
    /// Whether the informer shows some Nodes only (`--node-filter-requirements`). What is not shown may be there all the same.
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
    /// Returns `true` if this process gives all Nodes pod CIDRs of the sizes that the flags say.
    pub fn has_fixed_masks(&self) -> bool {
        self.enabled && self.allocator == CidrAllocatorType::RangeAllocator
    }

    /// Returns the prefix of a Node's block in `cluster`, unless the cloud chooses it.
    pub fn mask(&self, cluster: &IpNet) -> u8 {
        if cluster.addr().is_ipv4() { self.mask_ipv4 } else { self.mask_ipv6 }
    }
}

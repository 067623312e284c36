//! Azure's limits of one load balancer, one network interface and one private link service. Plain data.
//!
//! Upstream: Microsoft Learn, "Azure subscription and service limits, quotas, and constraints", load balancer and private
//! link.

/// Limits of a SKU of load balancers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkuLimits {
    /// Rules of all kinds together.
    pub rules: usize,
    pub frontends: usize,
}

/// Limits of load balancers and of related resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadBalancerLimits {
    pub standard: SkuLimits,
    pub basic: SkuLimits,
    /// Rules that reach one network interface, over all load balancers and all its IP configurations; `None`: not checked.
    pub rules_per_interface: Option<usize>,
    /// Addresses in one kind of list of a security group, all rules together.
    pub security_group_addresses: usize,
    /// Private link services on one load balancer; `None`: not checked.
    pub private_link_services: Option<usize>,
    /// Public IPs of a subscription in a region, as its list of usages shows it. Writes are not refused.
    pub public_ips: usize,
}

impl Default for LoadBalancerLimits {
    /// Returns the limits that one document alone can exceed.
    fn default() -> Self {
        Self {
            standard: SkuLimits { rules: 1_500, frontends: 600 },
            basic: SkuLimits { rules: 250, frontends: 200 },
            rules_per_interface: None,
            security_group_addresses: 4_000,
            private_link_services: None,
            public_ips: 1_000,
        }
    }
}

impl LoadBalancerLimits {
    /// Returns all of Azure's numbers.
    pub fn azure() -> Self {
        Self { rules_per_interface: Some(300), private_link_services: Some(8), ..Self::default() }
    }

    /// Returns the limits of a SKU.
    pub fn of_sku(&self, standard: bool) -> SkuLimits {
        if standard { self.standard } else { self.basic }
    }
}

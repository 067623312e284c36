//! Flags about pod CIDRs.

use ipnet::IpNet;

use super::OptionsBuilder;
use crate::cli::{
    controllers,
    flags::{TypedFlag, cloud, controllers as controller_flags, provider_config},
    value::FlagValue,
};
use crate::cloud_provider::config::ClusterNetworks;
use crate::controllers::node_ipam::config::{CidrAllocatorType, DEFAULT_MASK_IPV4, DEFAULT_MASK_IPV6, NodeIpamConfig};
use crate::controllers::route::config::NodeMaskSizes;
use crate::flags::quoted;

impl OptionsBuilder {
    /// Returns `true` if at least two CIDRs are of the same IP family.
    pub(super) fn share_ip_family(cidrs: &[IpNet]) -> bool {
        let ipv4 = cidrs.iter().filter(|cidr| cidr.addr().is_ipv4()).count();
        ipv4 > 1 || cidrs.len() - ipv4 > 1
    }

    /// Returns the prefix lengths that limit new routes: those that `ipam` allocates, or those on the command line.
    pub(super) fn node_masks(&self, ipam: &NodeIpamConfig) -> NodeMaskSizes {
        let is_fixed = |flag: &TypedFlag<i32>| ipam.has_fixed_masks() || self.arguments.is_given(&flag.spec);
        NodeMaskSizes {
            ipv4: is_fixed(&cloud::NODE_CIDR_MASK_SIZE_IPV4).then_some(ipam.mask_ipv4),
            ipv6: is_fixed(&cloud::NODE_CIDR_MASK_SIZE_IPV6).then_some(ipam.mask_ipv6),
        }
    }

    /// Builds the configuration of node-ipam. As upstream, most flags are checked only if pod CIDRs are allocated.
    pub(super) fn node_ipam(&mut self) -> NodeIpamConfig {
        let is_selected = controllers::select(&self.read(&controller_flags::CONTROLLERS))
            .enabled
            .contains(controllers::NODE_IPAM.canonical);
        let enabled = is_selected && self.read(&cloud::ALLOCATE_NODE_CIDRS);
        let config = NodeIpamConfig {
            enabled,
            allocator: self.cidr_allocator(enabled),
            cluster_cidrs: self.read(&cloud::CLUSTER_CIDR),
            service_cidrs: self.service_cidrs(enabled),
            mask_ipv4: self.mask(&cloud::NODE_CIDR_MASK_SIZE_IPV4, DEFAULT_MASK_IPV4, 32),
            mask_ipv6: self.mask(&cloud::NODE_CIDR_MASK_SIZE_IPV6, DEFAULT_MASK_IPV6, 128),
            nodes_are_filtered: !self.read(&provider_config::NODE_FILTER_REQUIREMENTS).trim().is_empty(),
        };
        if enabled {
            self.check_cluster_cidrs(&config.cluster_cidrs);
        }
        config
    }

    /// Reads the networks of the cluster without invalid entries, which the configuration of node-ipam reports.
    pub(super) fn networks(&self) -> ClusterNetworks {
        let services = self.read(&cloud::SERVICE_CLUSTER_IP_RANGE);
        let services = services.split(',').filter_map(|item| item.trim().parse().ok());
        ClusterNetworks { pods: self.read(&cloud::CLUSTER_CIDR), services: services.collect() }
    }

    fn check_cluster_cidrs(&mut self, cidrs: &[IpNet]) {
        let flag = &cloud::CLUSTER_CIDR;
        if cidrs.is_empty() {
            self.refuse(
                flag,
                "",
                "expected one CIDR, or one per IP family: --allocate-node-cidrs allocates the pod CIDRs of nodes from it",
            );
        }
        // With routes, `cloud` has reported this.
        if Self::share_ip_family(cidrs) && !self.read(&cloud::CONFIGURE_CLOUD_ROUTES) {
            self.refuse(flag, &cidrs.to_vec().print(), "expected at most one CIDR per IP family");
        }
    }

    fn cidr_allocator(&mut self, enabled: bool) -> CidrAllocatorType {
        let text = self.read(&cloud::CIDR_ALLOCATOR_TYPE);
        let allocator = CidrAllocatorType::parse(&text);
        if enabled && allocator.is_none() {
            self.refuse(&cloud::CIDR_ALLOCATOR_TYPE, &text, "expected RangeAllocator or CloudAllocator");
        }
        allocator.unwrap_or_default()
    }

    /// Reads a prefix length; 0 selects the default. The controller checks that it fits `--cluster-cidr`.
    fn mask(&mut self, flag: &TypedFlag<i32>, default: u8, longest: i32) -> u8 {
        match self.number(flag, 0, longest) {
            0 => default,
            mask => mask,
        }
    }

    fn service_cidrs(&mut self, enabled: bool) -> Vec<IpNet> {
        let flag = &cloud::SERVICE_CLUSTER_IP_RANGE;
        let text = self.read(flag);
        let items: Vec<_> = text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
        if items.len() > 2 {
            self.refuse(flag, &text, "expected at most two CIDRs, one per IP family");
        }
        let (valid, invalid): (Vec<_>, Vec<_>) =
            items.iter().map(|item| item.parse::<IpNet>().map_err(|_| item)).partition(Result::is_ok);
        for item in invalid.into_iter().filter_map(Result::err) {
            let effect = if enabled { ": nodes may get its addresses" } else { "" };
            self.notices.push(format!(
                "{} in --{} is not a valid CIDR and is ignored{effect}",
                quoted(item),
                flag.spec.name
            ));
        }
        let cidrs: Vec<IpNet> = valid.into_iter().flatten().collect();
        if enabled && items.len() == 2 && Self::share_ip_family(&cidrs) {
            self.refuse(flag, &text, "expected at most one CIDR per IP family");
        }
        cidrs
    }
}

//! What the flags say of pod CIDRs.

use ipnet::IpNet;

use super::OptionsBuilder;
use crate::cli::{
    controllers,
    flags::{TypedFlag, cloud, controllers as pace, provider_config},
    value::FlagValue,
};
use crate::cloud_provider::config::ClusterNetworks;
use crate::controllers::node_ipam::config::{CidrAllocatorType, DEFAULT_MASK_IPV4, DEFAULT_MASK_IPV6, NodeIpamConfig};
use crate::controllers::route::config::NodeMaskSizes;
use crate::flags::quoted;

impl OptionsBuilder {
    /// Returns `true` if two CIDRs have one family.
    pub(super) fn are_of_one_family(cidrs: &[IpNet]) -> bool {
        let ipv4 = cidrs.iter().filter(|cidr| cidr.addr().is_ipv4()).count();
        ipv4 > 1 || cidrs.len() - ipv4 > 1
    }

    /// Returns the prefixes that limit new routes: those that `ipam` allocates, or those on the command line.
    pub(super) fn node_masks(&self, ipam: &NodeIpamConfig) -> NodeMaskSizes {
        let is_known = |flag: &TypedFlag<i32>| ipam.has_fixed_masks() || self.arguments.is_given(&flag.spec);
        NodeMaskSizes {
            ipv4: is_known(&cloud::NODE_CIDR_MASK_SIZE_IPV4).then_some(ipam.mask_ipv4),
            ipv6: is_known(&cloud::NODE_CIDR_MASK_SIZE_IPV6).then_some(ipam.mask_ipv6),
        }
    }

    /// Upstream judges most of these flags only when pod CIDRs are allocated; so do we.
    pub(super) fn node_ipam(&mut self) -> NodeIpamConfig {
        let is_selected =
            controllers::select(&self.read(&pace::CONTROLLERS)).enabled.contains(controllers::NODE_IPAM.canonical);
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

    /// What is wrong with the flags is reported with the configuration of node-ipam.
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
                "want one CIDR, or one per IP family: --allocate-node-cidrs gives nodes their pod CIDRs out of it",
            );
        }
        // With routes this is told already.
        if Self::are_of_one_family(cidrs) && !self.read(&cloud::CONFIGURE_CLOUD_ROUTES) {
            self.refuse(flag, &cidrs.to_vec().print(), "want at most one CIDR per IP family");
        }
    }

    fn cidr_allocator(&mut self, enabled: bool) -> CidrAllocatorType {
        let text = self.read(&cloud::CIDR_ALLOCATOR_TYPE);
        let known = CidrAllocatorType::parse(&text);
        if enabled && known.is_none() {
            self.refuse(&cloud::CIDR_ALLOCATOR_TYPE, &text, "want RangeAllocator or CloudAllocator");
        }
        known.unwrap_or_default()
    }

    /// Zero means the default. Whether it fits `--cluster-cidr` is told when the controller is built.
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
            self.refuse(flag, &text, "want at most two CIDRs, one per IP family");
        }
        let (good, bad): (Vec<_>, Vec<_>) =
            items.iter().map(|item| item.parse::<IpNet>().map_err(|_| item)).partition(Result::is_ok);
        for item in bad.into_iter().filter_map(Result::err) {
            let effect = if enabled { ": nodes may get its addresses" } else { "" };
            self.notices.push(format!("{} in --{} is no CIDR and is ignored{effect}", quoted(item), flag.spec.name));
        }
        let cidrs: Vec<IpNet> = good.into_iter().flatten().collect();
        if enabled && items.len() == 2 && Self::are_of_one_family(&cidrs) {
            self.refuse(flag, &text, "want at most one CIDR per IP family");
        }
        cidrs
    }
}

//! Flags that only the Azure build of the Go program has: accepted without effect, so that its manifests start here.

use ipnet::IpNet;

use crate::flags::declare_flags;

const NO_IPAM: &str = "this program allocates no pod CIDRs: kube-controller-manager's node-ipam controller does";

/// Heading of these flags.
pub const TITLE: &str = "Azure";

declare_flags! {
    SERVICE_CLUSTER_IP_RANGE: Vec<IpNet> = "service-cluster-ip-range" "" "CIDRs of the cluster's Services, at most two."
        [ignored(NO_IPAM)];
    NODE_CIDR_MASK_SIZE: i32 = "node-cidr-mask-size" "24" "Prefix length of a node's pod CIDR." [ignored(NO_IPAM)];
    NODE_CIDR_MASK_SIZE_IPV4: i32 = "node-cidr-mask-size-ipv4" "0" "The same for IPv4; 0: 24." [ignored(NO_IPAM)];
    NODE_CIDR_MASK_SIZE_IPV6: i32 = "node-cidr-mask-size-ipv6" "0" "The same for IPv6; 0: 64." [ignored(NO_IPAM)];
}

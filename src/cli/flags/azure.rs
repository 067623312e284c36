//! Flags that only the Azure build of the Go program has. Those without effect are accepted so that its manifests start here.

use ipnet::IpNet;

use super::flags;

const NO_IPAM: &str = "this program allocates no pod CIDRs: kube-controller-manager's node-ipam controller does";

flags! {
    SERVICE_CLUSTER_IP_RANGE: Vec<IpNet> = "service-cluster-ip-range" "" "CIDRs of the cluster's Services, at most two."
        [ignored(NO_IPAM)];
    NODE_CIDR_MASK_SIZE: i32 = "node-cidr-mask-size" "24" "Prefix length of a node's pod CIDR." [ignored(NO_IPAM)];
    NODE_CIDR_MASK_SIZE_IPV4: i32 = "node-cidr-mask-size-ipv4" "0" "The same for IPv4; 0: 24." [ignored(NO_IPAM)];
    NODE_CIDR_MASK_SIZE_IPV6: i32 = "node-cidr-mask-size-ipv6" "0" "The same for IPv6; 0: 64." [ignored(NO_IPAM)];
    ENABLE_DYNAMIC_RELOADING: bool = "enable-dynamic-reloading" "false"
        "Whether a changed provider configuration, file or Secret, takes effect without a restart.";
    CLOUD_CONFIG_SECRET_NAME: String = "cloud-config-secret-name" "" "Secret with the provider's own configuration.";
    CLOUD_CONFIG_SECRET_NAMESPACE: String = "cloud-config-secret-namespace" "kube-system" "Namespace of that Secret.";
    CLOUD_CONFIG_KEY: String = "cloud-config-key" "cloud-config" "Key in the data of that Secret.";
    NODE_FILTER_REQUIREMENTS: String = "node-filter-requirements" "" "Label selector of the nodes that this program looks after; empty: all. Others are to it as if they did not exist.";
}

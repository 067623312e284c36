//! Flags that select the cloud and the cluster, and configure routes and pod CIDRs.

use ipnet::IpNet;

use super::declare_flags;

declare_flags! {
    CLOUD_PROVIDER: String = "cloud-provider" "azure" "Name of the cloud provider.";
    CLOUD_CONFIG: String = "cloud-config" "" "File with the provider's own configuration.";
    CLUSTER_NAME: String = "cluster-name" "kubernetes" "Name of the cluster, part of the names of cloud resources.";
    CLUSTER_CIDR: Vec<IpNet> = "cluster-cidr" ""
        "CIDRs of the cluster's pods, at most one per IP family. Only routes inside them are changed.";
    CONFIGURE_CLOUD_ROUTES: bool = "configure-cloud-routes" "true"
        "Let the route controller configure routes to the pods of each node.";
    ALLOCATE_NODE_CIDRS: bool = "allocate-node-cidrs" "false"
        "Let the node-ipam controller allocate the pod CIDRs of each node from --cluster-cidr. Only one program of a cluster may do so: set \
         it to false for kube-controller-manager.";
    CIDR_ALLOCATOR_TYPE: String = "cidr-allocator-type" "RangeAllocator"
        "Source of the sizes of a node's pod CIDRs. RangeAllocator uses --node-cidr-mask-size-ipv4 and -ipv6 for all nodes. CloudAllocator \
         reads the sizes for each node from the cloud (on Azure, from tags of its scale set or availability set).";
    SERVICE_CLUSTER_IP_RANGE: String = "service-cluster-ip-range" ""
        "CIDRs of the cluster's Services, at most two. No node gets pod CIDRs inside them.";
    NODE_CIDR_MASK_SIZE: i32 = "node-cidr-mask-size" "24" "Prefix length of a node's pod CIDR."
        [ignored("upstream ignores it, too: set --node-cidr-mask-size-ipv4 or --node-cidr-mask-size-ipv6")];
    NODE_CIDR_MASK_SIZE_IPV4: i32 = "node-cidr-mask-size-ipv4" "0" "Prefix length of a node's IPv4 pod CIDR. 0 selects the default, 24.";
    NODE_CIDR_MASK_SIZE_IPV6: i32 = "node-cidr-mask-size-ipv6" "0"
        "Prefix length of a node's IPv6 pod CIDR, at most 16 more than that of --cluster-cidr. 0 selects the default, 64.";
    ALLOW_UNTAGGED_CLOUD: bool = "allow-untagged-cloud" "false" "Accept a cloud without a cluster id."
        [deprecated("a provider without a cluster id will be refused in a later version")];
    EXTERNAL_CLOUD_VOLUME_PLUGIN: String = "external-cloud-volume-plugin" "" "Volume plugin of the cloud."
        [ignored("a cloud-controller-manager has no volume controllers")];
}

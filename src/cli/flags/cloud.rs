//! Flags that say which cloud and which cluster this is, and how routes and addresses are laid out.

use ipnet::IpNet;

use super::declare_flags;

const NO_IPAM: &str = "this program allocates no pod CIDRs: kube-controller-manager's node-ipam controller does";

declare_flags! {
    CLOUD_PROVIDER: String = "cloud-provider" "azure" "Name of the cloud provider.";
    CLOUD_CONFIG: String = "cloud-config" "" "File with the provider's own configuration.";
    CLUSTER_NAME: String = "cluster-name" "kubernetes" "Name of the cluster, part of the names of cloud resources.";
    CLUSTER_CIDR: Vec<IpNet> = "cluster-cidr" ""
        "CIDRs of the cluster's pods. Only routes inside them are touched. At most one per IP family.";
    CONFIGURE_CLOUD_ROUTES: bool = "configure-cloud-routes" "true"
        "Whether the route controller configures routes to the pods of each node.";
    ALLOCATE_NODE_CIDRS: bool = "allocate-node-cidrs" "false" "Whether pod CIDRs are allocated for nodes."
        [ignored(NO_IPAM)];
    CIDR_ALLOCATOR_TYPE: String = "cidr-allocator-type" "RangeAllocator" "How pod CIDRs are allocated." [ignored(NO_IPAM)];
    ALLOW_UNTAGGED_CLOUD: bool = "allow-untagged-cloud" "false" "Whether a cloud without a cluster id is accepted."
        [deprecated("a provider without a cluster id will be refused in a later version")];
    EXTERNAL_CLOUD_VOLUME_PLUGIN: String = "external-cloud-volume-plugin" "" "Volume plugin of the cloud."
        [ignored("a cloud-controller-manager has no volume controllers")];
}

//! The kinds of ARM resources this program touches: type, API version, quota, name in metrics. Each once.
//!
//! Upstream: `pkg/azclient/*client` and the Azure Stack overrides of `pkg/azclient/factory_gen.go`.

/// Quota of ARM that a request uses, besides the subscription's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quota {
    /// Quota of the subscription only.
    Subscription,
    /// The network resource provider.
    Network,
    /// The compute resource provider.
    Compute,
}

/// A kind of resource.
#[derive(Debug, PartialEq, Eq)]
pub struct ApiType {
    /// Type in its wire spelling, such as `Microsoft.Network/loadBalancers`.
    pub resource_type: &'static str,
    /// `api-version`.
    pub version: &'static str,
    /// `api-version` on Azure Stack.
    pub stack_version: &'static str,
    /// Quota besides the subscription's.
    pub quota: Quota,
    /// Label `resource` of `arm_request_*`: upstream's `pkg/azclient/*client/zz_generated_client.go`.
    pub metric: &'static str,
    /// Client's name in the rate limits of the configuration. Upstream: the `ratelimitKey` of `pkg/azclient`'s clients.
    pub limit: &'static str,
}

const COMPUTE: &str = "2025-04-01";
const COMPUTE_STACK: &str = "2019-07-01";
const NETWORK: &str = "2025-05-01";
const NETWORK_STACK: &str = "2018-11-01";
/// Network interfaces and public IPs of scale-set instances have a version of their own.
const SCALE_SET_NETWORK: &str = "2018-10-01";

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $type:literal $version:expr, $stack:expr, $quota:ident, $metric:literal $(limit $limit:literal)?;)*) => {
        $($(#[$doc])* pub static $name: ApiType = ApiType {
            resource_type: $type, version: $version, stack_version: $stack, quota: Quota::$quota, metric: $metric,
            limit: [$($limit,)? $metric][0],
        };)*
        pub static ALL: &[&ApiType] = &[$(&$name),*];
    };
}

types! {
    /// Machines outside uniform scale sets.
    VIRTUAL_MACHINES = "Microsoft.Compute/virtualMachines" COMPUTE, "2017-12-01", Compute, "VirtualMachine" limit "virtualMachine";
    SCALE_SETS = "Microsoft.Compute/virtualMachineScaleSets" COMPUTE, COMPUTE_STACK, Compute, "VirtualMachineScaleSet" limit "virtualMachineScaleSet";
    /// Instances of uniform scale sets.
    SCALE_SET_VMS = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines" COMPUTE, COMPUTE_STACK, Compute, "VirtualMachineScaleSetVM";
    AVAILABILITY_SETS = "Microsoft.Compute/availabilitySets" COMPUTE, COMPUTE_STACK, Compute, "AvailabilitySet" limit "availabilitySet";
    DISKS = "Microsoft.Compute/disks" "2024-03-02", "2018-06-01", Compute, "Disk";
    /// Network interfaces outside scale sets.
    INTERFACES = "Microsoft.Network/networkInterfaces" NETWORK, NETWORK_STACK, Network, "Interface" limit "interface";
    /// Network interfaces of all instances of a scale set, or of one.
    SCALE_SET_INTERFACES = "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces" SCALE_SET_NETWORK, NETWORK_STACK, Network, "Interface" limit "interface";
    /// Public IPs of all instances of a scale set, or of one.
    SCALE_SET_PUBLIC_IPS = "Microsoft.Compute/virtualMachineScaleSets/publicIPAddresses" SCALE_SET_NETWORK, NETWORK_STACK, Network, "PublicIPAddress" limit "publicIPAddress";
    PUBLIC_IPS = "Microsoft.Network/publicIPAddresses" NETWORK, NETWORK_STACK, Network, "PublicIPAddress" limit "publicIPAddress";
    PUBLIC_IP_PREFIXES = "Microsoft.Network/publicIPPrefixes" NETWORK, NETWORK, Network, "PublicIPPrefix";
    LOAD_BALANCERS = "Microsoft.Network/loadBalancers" NETWORK, NETWORK_STACK, Network, "LoadBalancer" limit "loadBalancer";
    BACKEND_POOLS = "Microsoft.Network/loadBalancers/backendAddressPools" NETWORK, NETWORK, Network, "BackendAddressPool" limit "loadBalancer";
    SECURITY_GROUPS = "Microsoft.Network/networkSecurityGroups" NETWORK, NETWORK_STACK, Network, "SecurityGroup" limit "securityGroup";
    ROUTE_TABLES = "Microsoft.Network/routeTables" NETWORK, NETWORK_STACK, Network, "RouteTable" limit "routeTable";
    VIRTUAL_NETWORKS = "Microsoft.Network/virtualNetworks" NETWORK, NETWORK, Network, "VirtualNetwork";
    SUBNETS = "Microsoft.Network/virtualNetworks/subnets" NETWORK, NETWORK_STACK, Network, "Subnet" limit "subnets";
    PRIVATE_LINK_SERVICES = "Microsoft.Network/privateLinkServices" NETWORK, "2019-03-01", Network, "PrivateLinkService" limit "privateLinkService";
    PRIVATE_ENDPOINT_CONNECTIONS = "Microsoft.Network/privateLinkServices/privateEndpointConnections" NETWORK, "2019-03-01", Network, "PrivateLinkService" limit "privateLinkService";
    /// How much of its quotas a subscription uses in a region.
    NETWORK_USAGES = "Microsoft.Network/locations/usages" NETWORK, NETWORK_STACK, Network, "Usage";
    /// Resource providers, for the zones of a region.
    PROVIDERS = "Microsoft.Resources/providers" "2021-04-01", "2021-04-01", Subscription, "Provider";
    /// What the caller may do at a scope.
    PERMISSIONS = "Microsoft.Authorization/permissions" "2022-04-01", "2015-07-01", Subscription, "Permission";
    RESOURCE_GROUPS = "Microsoft.Resources/resourceGroups" "2021-04-01", "2021-04-01", Subscription, "ResourceGroup";
}

//! Table of the kinds of ARM resources in this program: type, API version, quota, names in metrics, read-only fields.
//!
//! Upstream: `pkg/azclient/*client` and the Azure Stack overrides of `pkg/azclient/factory_gen.go`.

/// Quota of ARM that a request uses, in addition to the subscription's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quota {
    /// Quota of the subscription only.
    Subscription,
    /// Quota of the network resource provider.
    Network,
    /// Quota of the compute resource provider.
    Compute,
}

/// Kind of ARM resource, with its settings.
#[derive(Debug, PartialEq, Eq)]
pub struct ApiType {
    /// Type in ARM's spelling, such as `Microsoft.Network/loadBalancers`.
    pub resource_type: &'static str,
    /// `api-version`.
    pub version: &'static str,
    /// `api-version` on Azure Stack.
    pub stack_version: &'static str,
    /// Quota in addition to the subscription's.
    pub quota: Quota,
    /// Label `resource` of `arm_request_*`: upstream's `pkg/azclient/*client/zz_generated_client.go`.
    pub metric: &'static str,
    /// Name of the client in the rate limits of the configuration. Upstream: the `ratelimitKey` of `pkg/azclient`'s clients.
    pub limit: &'static str,
    /// Values of the label `request` of `cloudprovider_azure_op_*`, without the area, for operations on such resources.
    pub operations: Names,
    /// Kind of a request in planned writes, and label `kind` of drift.
    pub printed: &'static str,
    /// Whether the documents of Services are compared with the last reconciled state to find drift.
    pub is_compared: bool,
    /// Fields that only ARM writes; with `None`, a document of this type is sent unchanged.
    pub read_only: Option<ReadOnlyRow>,
}

type Names = &'static [&'static str];

/// Fields of a type that only ARM writes, in addition to those of every document.
///
/// A path passes through every element of a list. The fields of expanded references are omitted, because no document that is
/// written later is read with `$expand`, except with `instanceView`.
/// Source: `readOnly` in azure-rest-api-specs, from the models of `azure-mgmt-network` 33.1 and `azure-mgmt-compute` 39.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOnlyRow {
    /// Paths from the root of the document.
    pub own: Names,
    /// Paths from its `properties`.
    pub properties: Names,
    /// Lists in its `properties` whose elements have their own version, with further read-only fields of the elements' `properties`.
    pub parts: &'static [(&'static str, Names)],
}

const COMPUTE: &str = "2025-04-01";
const COMPUTE_STACK: &str = "2019-07-01";
const NETWORK: &str = "2025-05-01";
const NETWORK_STACK: &str = "2018-11-01";
/// API version of network interfaces and public IPs of scale set instances.
const SCALE_SET_NETWORK: &str = "2018-10-01";

/// Read-only fields of a backend pool, in its load balancer and as a single document.
const POOL: Names = &[
    "backendIPConfigurations",
    "inboundNatRules",
    "loadBalancerBackendAddresses.properties.inboundNatRulesPortMapping",
    "loadBalancingRules",
    "outboundRule",
    "outboundRules",
];

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $type:literal $version:expr, $stack:expr, $quota:ident, $metric:literal $(limit $limit:literal)?
        $(printed $printed:literal)? $(compared $compared:literal)? $(operations $operations:expr)?
        $(, read_only $own:expr, $properties:expr, $parts:expr)?;)*) => {
        $($(#[$doc])* pub static $name: ApiType = ApiType {
            resource_type: $type, version: $version, stack_version: $stack, quota: Quota::$quota, metric: $metric,
            limit: [$($limit,)? $metric][0],
            printed: [$($printed,)? ""][0], is_compared: [$($compared,)? false][0],
            operations: [$($operations as Names,)? &[] as Names][0],
            read_only: [$(Some(ReadOnlyRow { own: $own, properties: $properties, parts: $parts }),)? None][0],
        };)*
        pub static ALL: &[&ApiType] = &[$(&$name),*];
    };
}

types! {
    /// Machines outside uniform scale sets.
    VIRTUAL_MACHINES = "Microsoft.Compute/virtualMachines" COMPUTE, "2017-12-01", Compute, "VirtualMachine" limit "virtualMachine";
    SCALE_SETS = "Microsoft.Compute/virtualMachineScaleSets" COMPUTE, COMPUTE_STACK, Compute, "VirtualMachineScaleSet" limit "virtualMachineScaleSet",
        read_only &["id", "identity.principalId", "identity.tenantId", "name", "systemData"], &["timeCreated",
            "uniqueId", "virtualMachineProfile.storageProfile.imageReference.exactVersion",
            "virtualMachineProfile.timeCreated"], &[];
    /// Instances of uniform scale sets.
    SCALE_SET_VMS = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines" COMPUTE, COMPUTE_STACK, Compute, "VirtualMachineScaleSetVM",
        read_only &["id", "identity.principalId", "identity.tenantId", "instanceId", "name", "resources", "sku",
            "systemData", "zones"], &["instanceView", "latestModelApplied", "modelDefinitionApplied",
            "storageProfile.imageReference.exactVersion", "timeCreated", "virtualMachineResourceId", "vmId"], &[];
    AVAILABILITY_SETS = "Microsoft.Compute/availabilitySets" COMPUTE, COMPUTE_STACK, Compute, "AvailabilitySet" limit "availabilitySet";
    DISKS = "Microsoft.Compute/disks" "2024-03-02", "2018-06-01", Compute, "Disk";
    /// Network interfaces outside scale sets.
    INTERFACES = "Microsoft.Network/networkInterfaces" NETWORK, NETWORK_STACK, Network, "Interface" limit "interface",
        read_only &["name"], &["defaultOutboundConnectivityEnabled", "dnsSettings.appliedDnsServers",
            "dnsSettings.internalDomainNameSuffix", "dnsSettings.internalFqdn", "dscpConfiguration", "hostedWorkloads",
            "macAddress", "primary", "privateEndpoint", "resourceGuid", "tapConfigurations", "virtualMachine",
            "vnetEncryptionSupported"], &[("ipConfigurations", &["privateLinkConnectionProperties"])];
    /// Network interfaces of all instances of a scale set, or of one.
    SCALE_SET_INTERFACES = "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces" SCALE_SET_NETWORK, NETWORK_STACK, Network, "Interface" limit "interface";
    /// Public IPs of all instances of a scale set, or of one.
    SCALE_SET_PUBLIC_IPS = "Microsoft.Compute/virtualMachineScaleSets/publicIPAddresses" SCALE_SET_NETWORK, NETWORK_STACK, Network, "PublicIPAddress" limit "publicIPAddress";
    PUBLIC_IPS = "Microsoft.Network/publicIPAddresses" NETWORK, NETWORK_STACK, Network, "PublicIPAddress" limit "publicIPAddress"
        printed "public_ip" compared true,
        read_only &["name"], &["ipConfiguration", "resourceGuid", "upgradedToV2"], &[];
    PUBLIC_IP_PREFIXES = "Microsoft.Network/publicIPPrefixes" NETWORK, NETWORK, Network, "PublicIPPrefix";
    LOAD_BALANCERS = "Microsoft.Network/loadBalancers" NETWORK, NETWORK_STACK, Network, "LoadBalancer" limit "loadBalancer"
        printed "load_balancer" compared true operations &["ensure_loadbalancer", "update_loadbalancer", "ensure_loadbalancer_deleted"],
        read_only &["name"], &["resourceGuid"], &[("backendAddressPools", POOL), ("frontendIPConfigurations",
            &["inboundNatPools", "inboundNatRules", "loadBalancingRules", "outboundRules"]), ("inboundNatPools", &[]),
            ("inboundNatRules", &["backendIPConfiguration"]), ("loadBalancingRules", &[]), ("outboundRules", &[]),
            ("probes", &["loadBalancingRules"])];
    BACKEND_POOLS = "Microsoft.Network/loadBalancers/backendAddressPools" NETWORK, NETWORK, Network, "BackendAddressPool" limit "loadBalancer"
        printed "backend_pool" operations &["vmas_ensure_hosts_in_pool", "vmas_ensure_backend_pool_deleted",
            "vmss_ensure_hosts_in_pool", "vmss_ensure_backend_pool_deleted", "vmssflex_ensure_hosts_in_pool",
            "vmssflex_ensure_backend_pool_deleted"],
        read_only &[], POOL, &[];
    SECURITY_GROUPS = "Microsoft.Network/networkSecurityGroups" NETWORK, NETWORK_STACK, Network, "SecurityGroup" limit "securityGroup"
        printed "security_group" compared true,
        read_only &["name"], &["defaultSecurityRules", "flowLogs", "networkInterfaces", "resourceGuid", "subnets"],
            &[("securityRules", &[])];
    ROUTE_TABLES = "Microsoft.Network/routeTables" NETWORK, NETWORK_STACK, Network, "RouteTable" limit "routeTable"
        operations &["create_route", "delete_route"],
        read_only &["name"], &["resourceGuid", "subnets"], &[("routes", &["hasBgpOverride"])];
    VIRTUAL_NETWORKS = "Microsoft.Network/virtualNetworks" NETWORK, NETWORK, Network, "VirtualNetwork";
    SUBNETS = "Microsoft.Network/virtualNetworks/subnets" NETWORK, NETWORK_STACK, Network, "Subnet" limit "subnets"
        printed "subnet",
        read_only &[], &["delegations.etag", "delegations.properties.actions",
            "delegations.properties.provisioningState", "ipConfigurationProfiles", "ipConfigurations",
            "privateEndpoints", "purpose", "resourceNavigationLinks", "serviceAssociationLinks",
            "serviceEndpoints.provisioningState"], &[("applicationGatewayIPConfigurations", &[])];
    PRIVATE_LINK_SERVICES = "Microsoft.Network/privateLinkServices" NETWORK, "2019-03-01", Network, "PrivateLinkService" limit "privateLinkService"
        printed "private_link_service" compared true operations &["ensure_privatelinkservice", "ensure_privatelinkservice_deleted"],
        read_only &["name"], &["alias", "networkInterfaces", "privateEndpointConnections", "resourceGuid"],
            &[("ipConfigurations", &[])];
    PRIVATE_ENDPOINT_CONNECTIONS = "Microsoft.Network/privateLinkServices/privateEndpointConnections" NETWORK, "2019-03-01", Network, "PrivateLinkService" limit "privateLinkService"
        printed "private_endpoint_connection";
    /// Usage of a subscription's quotas in a region.
    NETWORK_USAGES = "Microsoft.Network/locations/usages" NETWORK, NETWORK_STACK, Network, "Usage";
    /// Resource providers, for the zones of a region.
    PROVIDERS = "Microsoft.Resources/providers" "2021-04-01", "2021-04-01", Subscription, "Provider";
    /// Permissions of the caller at a scope.
    PERMISSIONS = "Microsoft.Authorization/permissions" "2022-04-01", "2015-07-01", Subscription, "Permission";
    RESOURCE_GROUPS = "Microsoft.Resources/resourceGroups" "2021-04-01", "2021-04-01", Subscription, "ResourceGroup";
}

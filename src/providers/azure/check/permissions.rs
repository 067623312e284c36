//! ARM permissions that the provider needs, with their scopes and purposes; and whether a set of grants covers them. Pure.
//!
//! In: the configuration, and the grants that ARM lists for a scope. Out: the missing ones. The list has an action for each
//! request that the configuration causes, and for each resource that a written document must refer to. Other references of
//! machines, such as a security group of their own, cannot be derived from the configuration. Upstream: the permission list
//! of cloud-provider-azure's documentation (`site/content/en/topics/azure-permissions.md`), which does not distinguish
//! configurations.

use serde::Deserialize;

use crate::providers::azure::{
    config::{AzureConfig, BackendPoolType, LoadBalancerSku},
    inventory::InventorySettings,
    model::ResourceId,
    planner::load_balancer::settings::LoadBalancerSettings,
};

/// Entry in the response of `Microsoft.Authorization/permissions`: the caller's permissions at a scope.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PermissionGrant {
    /// Allowed actions; `*` matches any text.
    pub actions: Vec<String>,
    /// Exceptions from the allowed actions.
    pub not_actions: Vec<String>,
}

/// Purpose of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionPurpose {
    /// Nodes: addresses, zones, existence.
    Nodes,
    /// Pod routes, enabled by `--configure-cloud-routes`.
    Routes,
    /// Services of type LoadBalancer.
    LoadBalancers,
}

impl PermissionPurpose {
    pub fn text(self) -> &'static str {
        match self {
            PermissionPurpose::Nodes => "nodes",
            PermissionPurpose::Routes => "pod routes",
            PermissionPurpose::LoadBalancers => "Services of type LoadBalancer",
        }
    }
}

/// Scope of an action: the network subscription, or one of the resource groups that the configuration names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PermissionScope {
    Subscription,
    Cluster,
    PublicIps,
    Network,
    SecurityGroup,
    RouteTable,
    LoadBalancer,
    PrivateLinks,
}

/// Condition on the configuration, in addition to the purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PermissionCondition {
    Always,
    /// Machines may be in scale sets.
    ScaleSets,
    /// Machines may be instances of uniform scale sets.
    Instances,
    /// Machines may have network interfaces that are resources of their own.
    Interfaces,
    /// Scale sets list pools.
    PoolsInScaleSets,
    /// Pools are listed by instances.
    PoolsInInstances,
    /// Network interfaces list pools.
    PoolsInInterfaces,
    /// Pools are listed by some part of machines.
    PoolsInMachines,
    /// Pools are lists of addresses.
    Addresses,
    /// ARM migrates pools from one kind to the other.
    Migration,
    SecurityGroup,
    VirtualNetwork,
    AddressesOfVirtualNetwork,
    /// Load balancers may have private link services: they are searched when frontends are removed.
    StandardLoadBalancers,
    /// The configuration names a resource group of private link services. Otherwise only annotations show whether any is
    /// needed.
    PrivateLinks,
    /// The region can have zones.
    Zones,
}

/// Reads the zones of the region: no resource group has it.
const ZONES: &str = "Microsoft.Resources/subscriptions/providers/read";

const PERMISSION_TABLE: &[(PermissionPurpose, PermissionScope, PermissionCondition, &str)] = {
    use PermissionCondition as When;
    use PermissionPurpose::{LoadBalancers, Nodes, Routes};
    use PermissionScope as At;
    &[
        (Nodes, At::Cluster, When::Interfaces, "Microsoft.Compute/virtualMachines/read"),
        (Nodes, At::Cluster, When::Interfaces, "Microsoft.Network/networkInterfaces/read"),
        (Nodes, At::Cluster, When::Interfaces, "Microsoft.Network/publicIPAddresses/read"),
        (Nodes, At::Cluster, When::ScaleSets, "Microsoft.Compute/virtualMachineScaleSets/read"),
        (Nodes, At::Cluster, When::Instances, "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read"),
        (Nodes, At::Cluster, When::Instances, "Microsoft.Compute/virtualMachineScaleSets/publicIPAddresses/read"),
        (Nodes, At::Cluster, When::Instances, "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read"),
        (Nodes, At::Cluster, When::Instances, "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/instanceView/read"),
        (
            Nodes,
            At::Cluster,
            When::Instances,
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/read",
        ),
        (
            Nodes,
            At::Cluster,
            When::Instances,
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/ipConfigurations/publicIPAddresses/read",
        ),
        (Routes, At::RouteTable, When::Always, "Microsoft.Network/routeTables/read"),
        (Routes, At::RouteTable, When::Always, "Microsoft.Network/routeTables/write"),
        (LoadBalancers, At::Subscription, When::Zones, ZONES),
        (LoadBalancers, At::LoadBalancer, When::Always, "Microsoft.Network/loadBalancers/read"),
        (LoadBalancers, At::LoadBalancer, When::Always, "Microsoft.Network/loadBalancers/write"),
        (LoadBalancers, At::LoadBalancer, When::Always, "Microsoft.Network/loadBalancers/delete"),
        (
            LoadBalancers,
            At::LoadBalancer,
            When::PoolsInMachines,
            "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
        ),
        (LoadBalancers, At::LoadBalancer, When::Addresses, "Microsoft.Network/loadBalancers/backendAddressPools/read"),
        (LoadBalancers, At::LoadBalancer, When::Addresses, "Microsoft.Network/loadBalancers/backendAddressPools/write"),
        (LoadBalancers, At::LoadBalancer, When::Migration, "Microsoft.Network/loadBalancers/migrateToIpBased/action"),
        (LoadBalancers, At::PublicIps, When::Always, "Microsoft.Network/publicIPAddresses/read"),
        (LoadBalancers, At::PublicIps, When::Always, "Microsoft.Network/publicIPAddresses/write"),
        (LoadBalancers, At::PublicIps, When::Always, "Microsoft.Network/publicIPAddresses/delete"),
        (LoadBalancers, At::PublicIps, When::Always, "Microsoft.Network/publicIPAddresses/join/action"),
        (LoadBalancers, At::SecurityGroup, When::SecurityGroup, "Microsoft.Network/networkSecurityGroups/read"),
        (LoadBalancers, At::SecurityGroup, When::SecurityGroup, "Microsoft.Network/networkSecurityGroups/write"),
        (LoadBalancers, At::Network, When::VirtualNetwork, "Microsoft.Network/virtualNetworks/subnets/read"),
        (LoadBalancers, At::Network, When::VirtualNetwork, "Microsoft.Network/virtualNetworks/subnets/join/action"),
        (
            LoadBalancers,
            At::Network,
            When::AddressesOfVirtualNetwork,
            "Microsoft.Network/virtualNetworks/joinLoadBalancer/action",
        ),
        (LoadBalancers, At::Network, When::PrivateLinks, "Microsoft.Network/virtualNetworks/subnets/write"),
        (LoadBalancers, At::PrivateLinks, When::StandardLoadBalancers, "Microsoft.Network/privateLinkServices/read"),
        (LoadBalancers, At::PrivateLinks, When::PrivateLinks, "Microsoft.Network/privateLinkServices/write"),
        (LoadBalancers, At::PrivateLinks, When::PrivateLinks, "Microsoft.Network/privateLinkServices/delete"),
        (
            LoadBalancers,
            At::PrivateLinks,
            When::PrivateLinks,
            "Microsoft.Network/privateLinkServices/privateEndpointConnections/delete",
        ),
        (LoadBalancers, At::Cluster, When::PoolsInScaleSets, "Microsoft.Compute/virtualMachineScaleSets/write"),
        (
            LoadBalancers,
            At::Cluster,
            When::PoolsInInstances,
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write",
        ),
        (LoadBalancers, At::Cluster, When::PoolsInInterfaces, "Microsoft.Network/networkInterfaces/write"),
    ]
};

/// Action that is needed at one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredPermission {
    pub purpose: PermissionPurpose,
    /// Resource group, or subscription.
    pub scope: ResourceId,
    pub action: &'static str,
}

/// Returns all permissions that the provider will need with this configuration, by scope. `azure_stack`: whether the cloud
/// is an Azure Stack.
pub fn required_permissions(config: &AzureConfig, azure_stack: bool) -> Vec<RequiredPermission> {
    let (machines, services) = (InventorySettings::from_config(config), LoadBalancerSettings::new(config, ""));
    let facts = PermissionFacts { config, machines, services, azure_stack };
    let required = PERMISSION_TABLE.iter().filter(|(purpose, _, when, _)| facts.has(*purpose) && facts.holds(*when));
    let needed = required.map(|&(purpose, kind, _, action)| (purpose, scope(kind, config), action));
    let mut needs: Vec<RequiredPermission> =
        needed.map(|(purpose, scope, action)| RequiredPermission { purpose, scope, action }).collect();
    needs.sort_by(|a, other| (&a.scope, a.action).cmp(&(&other.scope, other.action)));
    needs.dedup_by(|a, other| a.scope == other.scope && a.action == other.action);
    needs
}

/// Facts of the configuration that the conditions depend on.
struct PermissionFacts<'a> {
    config: &'a AzureConfig,
    machines: InventorySettings,
    services: LoadBalancerSettings,
    azure_stack: bool,
}

impl PermissionFacts<'_> {
    /// Returns `true` if ARM requests are needed for this purpose.
    fn has(&self, purpose: PermissionPurpose) -> bool {
        match purpose {
            PermissionPurpose::Nodes => true,
            PermissionPurpose::Routes => !self.config.route_table_name.is_empty(),
            PermissionPurpose::LoadBalancers => self.services.unsupported.is_empty(),
        }
    }

    fn holds(&self, when: PermissionCondition) -> bool {
        let InventorySettings { uniform, flex, standard, .. } = self.machines;
        let addresses = self.services.pool_type == BackendPoolType::NodeIp;
        let has_network = !self.config.vnet_name.is_empty();
        match when {
            PermissionCondition::Always => true,
            PermissionCondition::ScaleSets => uniform || flex,
            PermissionCondition::Instances => uniform,
            PermissionCondition::Interfaces => flex || standard,
            PermissionCondition::PoolsInScaleSets => !addresses && (uniform || flex),
            PermissionCondition::PoolsInInstances => !addresses && uniform,
            PermissionCondition::PoolsInInterfaces => !addresses && (flex || standard),
            PermissionCondition::PoolsInMachines => !addresses,
            PermissionCondition::Addresses => addresses,
            PermissionCondition::Migration => addresses && self.config.enable_migrate_to_ip_based_backend_pool_api,
            PermissionCondition::SecurityGroup => self.services.security_group.is_some(),
            PermissionCondition::VirtualNetwork => has_network,
            PermissionCondition::AddressesOfVirtualNetwork => addresses && has_network,
            PermissionCondition::StandardLoadBalancers => self.services.sku == LoadBalancerSku::Standard,
            PermissionCondition::PrivateLinks => !self.config.private_link_service_resource_group.is_empty(),
            PermissionCondition::Zones => !self.azure_stack && self.services.extended_location.is_none(),
        }
    }
}

fn scope(scope_kind: PermissionScope, config: &AzureConfig) -> ResourceId {
    let own = match scope_kind {
        PermissionScope::Subscription | PermissionScope::Cluster | PermissionScope::PublicIps => "",
        PermissionScope::Network => &config.vnet_resource_group,
        PermissionScope::SecurityGroup => &config.security_group_resource_group,
        PermissionScope::RouteTable => &config.route_table_resource_group,
        PermissionScope::LoadBalancer => &config.load_balancer_resource_group,
        PermissionScope::PrivateLinks => &config.private_link_service_resource_group,
    };
    let group = if own.is_empty() { &config.resource_group } else { own };
    let network = &config.network_resource_subscription_id;
    let subscription =
        if matches!(scope_kind, PermissionScope::Cluster | PermissionScope::PrivateLinks) || network.is_empty() {
            &config.subscription_id
        } else {
            network
        };
    if scope_kind == PermissionScope::Subscription {
        return ResourceId::subscription_of(subscription);
    }
    ResourceId::group_of(subscription, group)
}

/// Returns `true` if `grants` allow `action`: some grant names it and does not except it.
pub fn is_allowed(grants: &[PermissionGrant], action: &str) -> bool {
    let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, action));
    grants.iter().any(|grant| any(&grant.actions) && !any(&grant.not_actions))
}

/// Returns `true` if `pattern`, in which `*` matches any text, matches `action`, ignoring letter case.
fn matches(pattern: &str, action: &str) -> bool {
    let (pattern, action) = (pattern.to_ascii_lowercase(), action.to_ascii_lowercase());
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| action.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests;

//! Which ARM permissions the provider needs, where and for what; and whether a set of grants covers them.
//!
//! In: the configuration, and the grants that ARM lists for a scope. Out: what is missing. The list has an action for each request that
//! the configuration leads to, and for each resource that a written document has to refer to. What machines refer to besides, such as
//! a security group of their own, cannot be told from the configuration. Upstream: the permission list of cloud-provider-azure's
//! documentation (`site/content/en/topics/azure-permissions.md`), which does not tell configurations apart.

use serde::Deserialize;

use crate::providers::azure::{
    arm::ResourceId,
    config::{AzureConfig, BackendPoolType},
    inventory::InventorySettings,
    load_balancer::settings::Settings,
};

/// One line of the answer of `Microsoft.Authorization/permissions`: what the caller may do at a scope.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Grant {
    /// Allowed actions; `*` stands for any text.
    pub actions: Vec<String>,
    /// Exceptions from them.
    pub not_actions: Vec<String>,
}

/// What an action is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Nodes: addresses, zones, existence.
    Nodes,
    /// Pod routes (`--configure-cloud-routes`).
    Routes,
    /// Services of type LoadBalancer.
    LoadBalancers,
}

impl Purpose {
    /// For messages.
    pub fn text(self) -> &'static str {
        match self {
            Purpose::Nodes => "nodes",
            Purpose::Routes => "pod routes",
            Purpose::LoadBalancers => "Services of type LoadBalancer",
        }
    }
}

/// Where an action is needed: the network subscription, or one of the resource groups that the configuration names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Subscription,
    Cluster,
    PublicIps,
    Network,
    SecurityGroup,
    RouteTable,
    LoadBalancer,
}

/// What of the configuration an action hangs on, besides its purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// Some machines may be in scale sets.
    ScaleSets,
    /// Some machines may be instances of uniform scale sets.
    Instances,
    /// Some machines may have network interfaces that are resources of their own.
    Interfaces,
    /// Scale sets list pools.
    PoolsInScaleSets,
    /// Instances list pools.
    PoolsInInstances,
    /// Network interfaces list pools.
    PoolsInInterfaces,
    /// Something of machines lists pools.
    PoolsInMachines,
    /// Pools list addresses.
    Addresses,
    /// ARM turns pools of one kind into those of the other.
    Migration,
    SecurityGroup,
    VirtualNetwork,
    AddressesOfVirtualNetwork,
    /// The region can have zones.
    Zones,
}

/// Reads the zones of the region: no resource group has it.
pub(super) const ZONES: &str = "Microsoft.Resources/subscriptions/providers/read";

const NEEDS: &[(Purpose, Place, When, &str)] = {
    use Purpose::{LoadBalancers, Nodes, Routes};
    use When::Always;
    &[
        (Nodes, Place::Cluster, When::Interfaces, "Microsoft.Compute/virtualMachines/read"),
        (Nodes, Place::Cluster, When::Interfaces, "Microsoft.Network/networkInterfaces/read"),
        (Nodes, Place::Cluster, When::Interfaces, "Microsoft.Network/publicIPAddresses/read"),
        (Nodes, Place::Cluster, When::ScaleSets, "Microsoft.Compute/virtualMachineScaleSets/read"),
        (Nodes, Place::Cluster, When::Instances, "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read"),
        (Nodes, Place::Cluster, When::Instances, "Microsoft.Compute/virtualMachineScaleSets/publicIPAddresses/read"),
        (Nodes, Place::Cluster, When::Instances, "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read"),
        (
            Nodes,
            Place::Cluster,
            When::Instances,
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/instanceView/read",
        ),
        (
            Nodes,
            Place::Cluster,
            When::Instances,
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/read",
        ),
        (
            Nodes,
            Place::Cluster,
            When::Instances,
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/ipConfigurations/publicIPAddresses/read",
        ),
        (Routes, Place::RouteTable, Always, "Microsoft.Network/routeTables/read"),
        (Routes, Place::RouteTable, Always, "Microsoft.Network/routeTables/write"),
        (LoadBalancers, Place::Subscription, When::Zones, ZONES),
        (LoadBalancers, Place::LoadBalancer, Always, "Microsoft.Network/loadBalancers/read"),
        (LoadBalancers, Place::LoadBalancer, Always, "Microsoft.Network/loadBalancers/write"),
        (LoadBalancers, Place::LoadBalancer, Always, "Microsoft.Network/loadBalancers/delete"),
        (
            LoadBalancers,
            Place::LoadBalancer,
            When::PoolsInMachines,
            "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
        ),
        (LoadBalancers, Place::LoadBalancer, When::Addresses, "Microsoft.Network/loadBalancers/backendAddressPools/read"),
        (LoadBalancers, Place::LoadBalancer, When::Addresses, "Microsoft.Network/loadBalancers/backendAddressPools/write"),
        (LoadBalancers, Place::LoadBalancer, When::Migration, "Microsoft.Network/loadBalancers/migrateToIpBased/action"),
        (LoadBalancers, Place::PublicIps, Always, "Microsoft.Network/publicIPAddresses/read"),
        (LoadBalancers, Place::PublicIps, Always, "Microsoft.Network/publicIPAddresses/write"),
        (LoadBalancers, Place::PublicIps, Always, "Microsoft.Network/publicIPAddresses/delete"),
        (LoadBalancers, Place::PublicIps, Always, "Microsoft.Network/publicIPAddresses/join/action"),
        (LoadBalancers, Place::SecurityGroup, When::SecurityGroup, "Microsoft.Network/networkSecurityGroups/read"),
        (LoadBalancers, Place::SecurityGroup, When::SecurityGroup, "Microsoft.Network/networkSecurityGroups/write"),
        (LoadBalancers, Place::Network, When::VirtualNetwork, "Microsoft.Network/virtualNetworks/subnets/read"),
        (LoadBalancers, Place::Network, When::VirtualNetwork, "Microsoft.Network/virtualNetworks/subnets/join/action"),
        (
            LoadBalancers,
            Place::Network,
            When::AddressesOfVirtualNetwork,
            "Microsoft.Network/virtualNetworks/joinLoadBalancer/action",
        ),
        (LoadBalancers, Place::Cluster, When::PoolsInScaleSets, "Microsoft.Compute/virtualMachineScaleSets/write"),
        (
            LoadBalancers,
            Place::Cluster,
            When::PoolsInInstances,
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write",
        ),
        (LoadBalancers, Place::Cluster, When::PoolsInInterfaces, "Microsoft.Network/networkInterfaces/write"),
    ]
};

/// One action that is needed at one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// What for.
    pub purpose: Purpose,
    /// Where: a resource group, or a subscription.
    pub scope: ResourceId,
    /// Which.
    pub action: &'static str,
}

/// Everything that the provider will need with this configuration, by scope. `azure_stack`: whether the cloud is an Azure Stack.
pub fn needs(config: &AzureConfig, azure_stack: bool) -> Vec<Need> {
    let facts = Facts::new(config, azure_stack);
    let wanted = NEEDS.iter().filter(|(purpose, _, when, _)| facts.has(*purpose) && facts.hold(*when));
    let mut needs: Vec<Need> =
        wanted.map(|(purpose, place, _, action)| Need { purpose: *purpose, scope: scope(*place, config), action }).collect();
    needs.sort_by(|one, other| (&one.scope, one.action).cmp(&(&other.scope, other.action)));
    needs.dedup_by(|one, other| one.scope == other.scope && one.action == other.action);
    needs
}

/// What of the configuration decides.
struct Facts {
    machines: InventorySettings,
    services: Settings,
    has_routes: bool,
    has_network: bool,
    migrates: bool,
    azure_stack: bool,
}

impl Facts {
    fn new(config: &AzureConfig, azure_stack: bool) -> Self {
        Self {
            machines: InventorySettings::from_config(config),
            services: Settings::new(config, ""),
            has_routes: !config.route_table_name.is_empty(),
            has_network: !config.vnet_name.is_empty(),
            migrates: config.enable_migrate_to_ip_based_backend_pool_api,
            azure_stack,
        }
    }

    /// Whether anything is asked of ARM for this purpose.
    fn has(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Nodes => true,
            Purpose::Routes => self.has_routes,
            Purpose::LoadBalancers => self.services.unsupported.is_empty(),
        }
    }

    fn hold(&self, when: When) -> bool {
        let InventorySettings { uniform, flex, standard, .. } = self.machines;
        let addresses = self.services.pool_type == BackendPoolType::NodeIp;
        match when {
            When::Always => true,
            When::ScaleSets => uniform || flex,
            When::Instances => uniform,
            When::Interfaces => flex || standard,
            When::PoolsInScaleSets => !addresses && (uniform || flex),
            When::PoolsInInstances => !addresses && uniform,
            When::PoolsInInterfaces => !addresses && (flex || standard),
            When::PoolsInMachines => !addresses,
            When::Addresses => addresses,
            When::Migration => addresses && self.migrates,
            When::SecurityGroup => self.services.security_group.is_some(),
            When::VirtualNetwork => self.has_network,
            When::AddressesOfVirtualNetwork => addresses && self.has_network,
            When::Zones => !self.azure_stack && self.services.extended_location.is_none(),
        }
    }
}

fn scope(place: Place, config: &AzureConfig) -> ResourceId {
    let own = match place {
        Place::Subscription | Place::Cluster | Place::PublicIps => "",
        Place::Network => &config.vnet_resource_group,
        Place::SecurityGroup => &config.security_group_resource_group,
        Place::RouteTable => &config.route_table_resource_group,
        Place::LoadBalancer => &config.load_balancer_resource_group,
    };
    let group = if own.is_empty() { &config.resource_group } else { own };
    let network = &config.network_resource_subscription_id;
    let subscription = if place == Place::Cluster || network.is_empty() { &config.subscription_id } else { network };
    if place == Place::Subscription {
        return ResourceId::subscription_of(subscription);
    }
    ResourceId::group_of(subscription, group)
}

/// Whether `grants` allow `action`: some grant names it and does not except it.
pub fn allowed(grants: &[Grant], action: &str) -> bool {
    let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, action));
    grants.iter().any(|grant| any(&grant.actions) && !any(&grant.not_actions))
}

/// Whether `pattern`, in which `*` stands for any text, is `action`, ignoring letter case.
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

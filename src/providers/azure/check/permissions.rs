//! Which ARM permissions the provider needs, where and for what; and whether a set of grants covers them.
//!
//! In: the configuration, and the grants that ARM lists for a scope. Out: what is missing. Upstream: the permission list of
//! cloud-provider-azure's documentation (`site/content/en/topics/azure-permissions.md`).

use serde::Deserialize;

use crate::providers::azure::{arm::ResourceId, config::AzureConfig};

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

/// Where an action is needed: one of the resource groups that the configuration names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Cluster,
    PublicIps,
    Network,
    SecurityGroup,
    RouteTable,
    LoadBalancer,
}

const NEEDS: &[(Purpose, Place, &str)] = &[
    (Purpose::Nodes, Place::Cluster, "Microsoft.Compute/virtualMachines/read"),
    (Purpose::Nodes, Place::Cluster, "Microsoft.Compute/virtualMachineScaleSets/read"),
    (Purpose::Nodes, Place::Cluster, "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read"),
    (Purpose::Nodes, Place::Cluster, "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/instanceView/read"),
    (Purpose::Nodes, Place::Cluster, "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read"),
    (Purpose::Nodes, Place::Cluster, "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/read"),
    (Purpose::Nodes, Place::Cluster, "Microsoft.Compute/virtualMachineScaleSets/publicIPAddresses/read"),
    (Purpose::Nodes, Place::Cluster, "Microsoft.Network/networkInterfaces/read"),
    (Purpose::Nodes, Place::Cluster, "Microsoft.Network/publicIPAddresses/read"),
    (Purpose::Routes, Place::RouteTable, "Microsoft.Network/routeTables/read"),
    (Purpose::Routes, Place::RouteTable, "Microsoft.Network/routeTables/write"),
    (Purpose::Routes, Place::RouteTable, "Microsoft.Network/routeTables/routes/read"),
    (Purpose::Routes, Place::RouteTable, "Microsoft.Network/routeTables/routes/write"),
    (Purpose::Routes, Place::RouteTable, "Microsoft.Network/routeTables/routes/delete"),
    (Purpose::LoadBalancers, Place::LoadBalancer, "Microsoft.Network/loadBalancers/read"),
    (Purpose::LoadBalancers, Place::LoadBalancer, "Microsoft.Network/loadBalancers/write"),
    (Purpose::LoadBalancers, Place::LoadBalancer, "Microsoft.Network/loadBalancers/delete"),
    (Purpose::LoadBalancers, Place::LoadBalancer, "Microsoft.Network/loadBalancers/backendAddressPools/join/action"),
    (Purpose::LoadBalancers, Place::LoadBalancer, "Microsoft.Network/loadBalancers/backendAddressPools/write"),
    (Purpose::LoadBalancers, Place::PublicIps, "Microsoft.Network/publicIPAddresses/read"),
    (Purpose::LoadBalancers, Place::PublicIps, "Microsoft.Network/publicIPAddresses/write"),
    (Purpose::LoadBalancers, Place::PublicIps, "Microsoft.Network/publicIPAddresses/delete"),
    (Purpose::LoadBalancers, Place::PublicIps, "Microsoft.Network/publicIPAddresses/join/action"),
    (Purpose::LoadBalancers, Place::SecurityGroup, "Microsoft.Network/networkSecurityGroups/read"),
    (Purpose::LoadBalancers, Place::SecurityGroup, "Microsoft.Network/networkSecurityGroups/write"),
    (Purpose::LoadBalancers, Place::Network, "Microsoft.Network/virtualNetworks/subnets/read"),
    (Purpose::LoadBalancers, Place::Network, "Microsoft.Network/virtualNetworks/subnets/join/action"),
    (Purpose::LoadBalancers, Place::Cluster, "Microsoft.Compute/virtualMachineScaleSets/write"),
    (Purpose::LoadBalancers, Place::Cluster, "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write"),
    (Purpose::LoadBalancers, Place::Cluster, "Microsoft.Network/networkInterfaces/write"),
];

/// One action that is needed at one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// What for.
    pub purpose: Purpose,
    /// Where: a resource group.
    pub scope: ResourceId,
    /// Which.
    pub action: &'static str,
}

/// Everything that the provider will need with this configuration, by scope.
pub fn needs(config: &AzureConfig) -> Vec<Need> {
    let wanted = NEEDS.iter().filter(|(purpose, ..)| match purpose {
        Purpose::Nodes => true,
        Purpose::Routes => !config.route_table_name.is_empty(),
        Purpose::LoadBalancers => !config.security_group_name.is_empty(),
    });
    let mut needs: Vec<Need> =
        wanted.map(|(purpose, place, action)| Need { purpose: *purpose, scope: scope(*place, config), action }).collect();
    needs.sort_by(|one, other| (&one.scope, one.action).cmp(&(&other.scope, other.action)));
    needs.dedup_by(|one, other| one.scope == other.scope && one.action == other.action);
    needs
}

fn scope(place: Place, config: &AzureConfig) -> ResourceId {
    let own = match place {
        Place::Cluster | Place::PublicIps => "",
        Place::Network => &config.vnet_resource_group,
        Place::SecurityGroup => &config.security_group_resource_group,
        Place::RouteTable => &config.route_table_resource_group,
        Place::LoadBalancer => &config.load_balancer_resource_group,
    };
    let group = if own.is_empty() { &config.resource_group } else { own };
    let network = &config.network_resource_subscription_id;
    let subscription = if place == Place::Cluster || network.is_empty() { &config.subscription_id } else { network };
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
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_any_text() {
        let action = "Microsoft.Network/loadBalancers/write";
        for (pattern, fits) in [
            ("*", true),
            ("*/write", true),
            ("microsoft.network/*", true),
            ("Microsoft.Network/*/write", true),
            ("Microsoft.Network/loadBalancers/write", true),
            ("Microsoft.Network/loadBalancers/*/write", false),
            ("*/read", false),
            ("Microsoft.Compute/*", false),
            ("Microsoft.Network/loadBalancers/wri", false),
            ("", false),
        ] {
            assert_eq!(matches(pattern, action), fits, "{pattern}");
        }
    }

    #[test]
    fn an_exception_takes_back_only_what_its_own_grant_gives() {
        let grant = |actions: &[&str], not: &[&str]| Grant {
            actions: actions.iter().map(|text| (*text).to_owned()).collect(),
            not_actions: not.iter().map(|text| (*text).to_owned()).collect(),
        };
        let read_all = grant(&["*/read"], &["Microsoft.Network/*"]);
        assert!(!allowed(std::slice::from_ref(&read_all), "Microsoft.Network/loadBalancers/read"));
        let network = grant(&["Microsoft.Network/*"], &[]);
        assert!(allowed(&[read_all, network], "Microsoft.Network/loadBalancers/read"));
        assert!(!allowed(&[], "Microsoft.Network/loadBalancers/read"));
    }

    #[test]
    fn what_is_not_configured_needs_no_permission_and_scopes_follow_the_configuration() {
        let bare = AzureConfig { subscription_id: "s".into(), resource_group: "rg".into(), ..AzureConfig::default() };
        assert!(
            needs(&bare).iter().all(|need| need.purpose == Purpose::Nodes && need.scope == ResourceId::group_of("s", "rg"))
        );
        let full = AzureConfig {
            route_table_name: "rt".into(),
            route_table_resource_group: "routes".into(),
            security_group_name: "nsg".into(),
            network_resource_subscription_id: "n".into(),
            ..bare
        };
        let found = needs(&full);
        assert!(
            found.iter().any(|need| need.purpose == Purpose::Routes && need.scope == ResourceId::group_of("n", "routes"))
        );
        assert!(found.iter().any(
            |need| need.action.ends_with("networkSecurityGroups/write") && need.scope == ResourceId::group_of("n", "rg")
        ));
    }
}

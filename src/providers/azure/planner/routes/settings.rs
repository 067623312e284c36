//! Configuration of routes: pure.

use std::{collections::BTreeMap, time::Duration};

use crate::providers::azure::{
    config::AzureConfig,
    model::{ResourceId, api, spelling},
    planner::load_balancer::settings::LoadBalancerSettings,
};

/// Largest number of routes in a table that Azure Virtual Network Manager manages, or whose limit was raised.
///
/// The number is larger than [`super::plan::MOST_ROUTES`]. Only ARM knows which limit applies.
pub const MOST_MANAGED_ROUTES: usize = 1_000;

/// Settings of the route table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteSettings {
    /// Id of the table; `None` if `routeTableName` is empty.
    pub table: Option<ResourceId>,
    /// Region for a table that must be created.
    pub location: String,
    /// Tags that the table must have; if empty, its tags remain unchanged. Upstream sets them only in the cluster's resource
    /// group.
    pub tags: BTreeMap<String, String>,
    /// Prefixes of keys that are kept; if there are any, other unlisted tags are removed.
    pub system_tags: Vec<String>,
    /// Largest age of a listed table: `routeTableCacheTTLInSeconds`.
    pub ttl: Duration,
    /// Largest number of routes in a table that is sent to ARM.
    pub most_routes: usize,
}

impl RouteSettings {
    pub fn new(config: &AzureConfig) -> Self {
        let shared = LoadBalancerSettings::new(config, "");
        let own = &config.resource_group;
        let group = if config.route_table_resource_group.is_empty() { own } else { &config.route_table_resource_group };
        let network = &config.network_resource_subscription_id;
        let subscription = if network.is_empty() { &config.subscription_id } else { network };
        let table =
            |name: &str| ResourceId::group_of(subscription, group).resource(api::ROUTE_TABLES.resource_type, &[name]);
        Self {
            table: Some(config.route_table_name.as_str()).filter(|name| !name.is_empty()).map(table),
            location: config.location.clone(),
            tags: if spelling::same_name(group, own) { shared.tags } else { BTreeMap::new() },
            system_tags: shared.system_tags,
            ttl: if config.disable_api_call_cache { Duration::ZERO } else { config.route_table_cache_ttl },
            most_routes: MOST_MANAGED_ROUTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AzureConfig {
        AzureConfig {
            subscription_id: "s".into(),
            resource_group: "rg".into(),
            route_table_name: "rt".into(),
            tags: "a=b".into(),
            ..AzureConfig::default()
        }
    }

    #[test]
    fn the_table_is_where_the_fields_say() {
        let id = |config: AzureConfig| RouteSettings::new(&config).table.map(|id| id.to_string());
        let at = |subscription: &str, group: &str| {
            Some(format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network/routeTables/rt"))
        };
        assert_eq!(id(config()), at("s", "rg"));
        assert_eq!(id(AzureConfig { route_table_resource_group: "net".into(), ..config() }), at("s", "net"));
        assert_eq!(id(AzureConfig { network_resource_subscription_id: "n".into(), ..config() }), at("n", "rg"));
        assert_eq!(id(AzureConfig { route_table_name: String::new(), ..config() }), None);
    }

    #[test]
    fn tags_count_in_the_clusters_own_group_only() {
        let tags =
            |group: &str| RouteSettings::new(&AzureConfig { route_table_resource_group: group.into(), ..config() }).tags;
        assert_eq!((tags("").len(), tags("RG").len(), tags("other").len()), (1, 1, 0));
    }

    #[test]
    fn without_caches_the_table_is_always_read() {
        let ttl = |disable_api_call_cache| RouteSettings::new(&AzureConfig { disable_api_call_cache, ..config() }).ttl;
        assert_eq!((ttl(false), ttl(true)), (Duration::from_secs(120), Duration::ZERO));
    }
}

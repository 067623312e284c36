//! Requirements of a configuration: permissions in Azure, and fields without which Services or routes are refused. Pure.
//!
//! In: a configuration. Out: permissions with their scopes, warnings, and the kinds that are watched because of it.

mod permissions;
mod requirements;

pub use permissions::{PermissionGrant, PermissionPurpose, RequiredPermission, is_allowed, required_permissions};
pub(super) use requirements::watched;

use super::config::{AzureConfig, ConfigFinding, missing_cluster_entry, unusable_cluster_name};

/// Returns what a valid configuration lacks for the cluster of this name, for Services and, with `routes`, for routes.
pub(super) fn lacking(config: &AzureConfig, cluster: &str, routes: bool) -> Vec<ConfigFinding> {
    let names = [missing_cluster_entry(config, cluster), unusable_cluster_name(config, cluster)];
    names.into_iter().flatten().chain(requirements::lacking(config, routes)).collect()
}

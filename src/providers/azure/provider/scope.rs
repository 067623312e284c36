//! Scope of a provider: the whole cluster or one Node.

use std::time::Duration;

use crate::providers::azure::config::AzureConfig;

/// Nodes that the provider serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProviderScope {
    /// Whole cluster: machines are listed, and lists are kept current.
    Cluster,
    /// Single Node: nothing is read ahead, and no result is older than this.
    OneNode(Duration),
}

impl ProviderScope {
    /// Returns the configuration with the cache times that the scope allows.
    pub(super) fn limit(self, config: AzureConfig) -> AzureConfig {
        let Self::OneNode(max_age) = self else { return config };
        AzureConfig {
            vmss_virtual_machines_cache_ttl: config.vmss_virtual_machines_cache_ttl.min(max_age),
            vmss_flex_vm_cache_ttl: config.vmss_flex_vm_cache_ttl.min(max_age),
            non_vmss_uniform_nodes_cache_ttl: config.non_vmss_uniform_nodes_cache_ttl.min(max_age),
            ..config
        }
    }
}

//! Flags about the provider's own configuration and the Nodes that it answers for. Every provider has them: they stand at the end of
//! the first section of flags that a provider registers.
//!
//! Upstream: only the Azure build of the Go program has them.

use super::declare_flags;

/// The heading when no provider registers flags.
pub const TITLE: &str = "Provider configuration";

declare_flags! {
    ENABLE_DYNAMIC_RELOADING: bool = "enable-dynamic-reloading" "false"
        "Whether a changed provider configuration, file or Secret, takes effect without a restart.";
    CLOUD_CONFIG_SECRET_NAME: String = "cloud-config-secret-name" "" "Secret with the provider's own configuration.";
    CLOUD_CONFIG_SECRET_NAMESPACE: String = "cloud-config-secret-namespace" "kube-system" "Namespace of that Secret.";
    CLOUD_CONFIG_KEY: String = "cloud-config-key" "cloud-config" "Key in the data of that Secret.";
    NODE_FILTER_REQUIREMENTS: String = "node-filter-requirements" "" "Label selector of the nodes that this program looks after; empty: all. Others are to it as if they did not exist.";
}

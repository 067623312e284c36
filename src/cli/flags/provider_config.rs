//! Flags about the configuration of the provider and the Nodes that it manages.
//!
//! Every provider has them, at the end of the first section of flags that it registers.
//!
//! Upstream: only the Azure build of the Go program has them.

use super::declare_flags;

/// Heading of the section if no provider registers flags.
pub const TITLE: &str = "Provider configuration";

declare_flags! {
    ENABLE_DYNAMIC_RELOADING: bool = "enable-dynamic-reloading" "false"
        "Apply a changed provider configuration, file or Secret, without a restart.";
    CLOUD_CONFIG_SECRET_NAME: String = "cloud-config-secret-name" "" "Secret with the provider's own configuration.";
    CLOUD_CONFIG_SECRET_NAMESPACE: String = "cloud-config-secret-namespace" "kube-system" "Namespace of that Secret.";
    CLOUD_CONFIG_KEY: String = "cloud-config-key" "cloud-config" "Key in the data of that Secret.";
    NODE_FILTER_REQUIREMENTS: String = "node-filter-requirements" "" "Label selector of the nodes that this program manages. Empty selects all. All other nodes are treated as if they did not exist.";
}

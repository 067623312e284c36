//! Commands of the program, with their options.

use super::{
    check_config::CheckConfigOptions,
    config::{ManagerConfig, NodeManagerConfig},
    diagnose::DiagnoseOptions,
    explain::ExplainOptions,
    logging::LoggingOptions,
    plan::PlanOptions,
    status::StatusOptions,
    support_bundle::SupportBundleOptions,
};
use crate::cloud_provider::config::ImageCredentialConfig;

/// Command that the program executes.
#[derive(Debug, Clone, PartialEq)]
pub enum CliCommand {
    /// Run the controllers, once this process leads.
    Run(Box<ManagerConfig>),
    /// Manage the Node of this machine (`cloud-node-manager`).
    ManageNode(Box<NodeManagerConfig>),
    /// Serve health probes with PROXY headers (`health-probe-proxy`).
    ProxyProbes(HealthProbeProxyConfig),
    /// Print credentials for one image (`acr-credential-provider`).
    ProvideImageCredentials(Box<ImageCredentialOptions>),
    /// Check the configuration of the provider (`check-config`).
    Check(Box<CheckConfigOptions>),
    /// Print the writes that a manager would send (`plan`).
    Plan(Box<PlanOptions>),
    /// Examine the cluster and the cloud for a manager (`doctor`).
    Examine(Box<DiagnoseOptions>),
    /// List cloud resources that belong to no Service (`orphans`).
    FindOrphans(Box<DiagnoseOptions>),
    /// Write an archive for a support case (`support-bundle`).
    GatherSupport(Box<SupportBundleOptions>),
    /// Print the status of a running manager (`status`).
    Status(Box<StatusOptions>),
    /// Explain a name (`explain`).
    Explain(ExplainOptions),
    /// Print this text to stdout and exit with code 0.
    Print(String),
}

/// Configuration of the program `health-probe-proxy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthProbeProxyConfig {
    pub health_check_port: u16,
    pub target_port: u16,
    pub logging: LoggingOptions,
}

/// Options of the program `acr-credential-provider`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageCredentialOptions {
    pub config: ImageCredentialConfig,
    pub logging: LoggingOptions,
}

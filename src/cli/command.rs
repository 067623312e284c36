//! What the program should do.

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

/// What the program should do.
#[derive(Debug, Clone, PartialEq)]
pub enum CliCommand {
    /// Run the controllers.
    Run(Box<ManagerConfig>),
    /// Look after the Node of this machine.
    ManageNode(Box<NodeManagerConfig>),
    /// Answer health probes with PROXY headers.
    ProxyProbes(HealthProbeProxyConfig),
    /// Answer the kubelet with credentials for one image.
    ProvideImageCredentials(Box<ImageCredentialOptions>),
    /// Check the provider's configuration.
    Check(Box<CheckConfigOptions>),
    /// Print the plan.
    Plan(Box<PlanOptions>),
    /// Examine what a manager needs.
    Examine(Box<DiagnoseOptions>),
    /// List what belongs to no Service.
    FindOrphans(Box<DiagnoseOptions>),
    /// Gather what a support case needs.
    GatherSupport(Box<SupportBundleOptions>),
    /// Show what a manager is doing.
    Status(Box<StatusOptions>),
    /// Say what a name means.
    Explain(ExplainOptions),
    /// Print this to stdout and end with exit code 0.
    Print(String),
}

/// What health-probe-proxy runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthProbeProxyConfig {
    pub health_check_port: u16,
    pub target_port: u16,
    pub logging: LoggingOptions,
}

/// What acr-credential-provider runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageCredentialOptions {
    pub config: ImageCredentialConfig,
    pub logging: LoggingOptions,
}

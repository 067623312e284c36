//! Validated configuration of the program. In: [`FlagArguments`]. Out: a [`ManagerConfig`], or all errors at once. Its parts are the
//! configuration types of the components.

mod build;
mod configz;

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use serde_json::Value;

pub(super) use self::build::{build, build_for_check, build_for_node_manager, build_for_status};
use super::{arguments::FlagArguments, feature_gates::FeatureGates, logging::LoggingOptions};
use crate::cloud_provider::config::ProviderConfig;
use crate::controllers::leader_migration::LeaderMigration;
use crate::controllers::node::config::NodeControllerConfig;
use crate::controllers::node_ipam::config::NodeIpamConfig;
use crate::controllers::node_lifecycle::config::NodeLifecycleControllerConfig;
use crate::controllers::route::config::RouteControllerConfig;
use crate::controllers::service::config::ServiceControllerConfig;
use crate::node_manager::config::NodeManagerSettings;
use crate::runtime::client::KubeClientConfig;
use crate::serving::config::{SecureServingConfig, WebhookServingConfig};

/// Configuration of the manager.
#[derive(Debug, Clone, PartialEq)]
pub struct ManagerConfig {
    pub cloud: KubeCloudSharedOptions,
    /// Client of the API server.
    pub kube_api: KubeClientConfig,
    /// Whether each controller has its own ServiceAccount.
    pub use_service_account_credentials: bool,
    pub leader_election: LeaderElectionOptions,
    /// Controllers that run under a second lease; `None` without `--enable-leader-migration`.
    pub leader_migration: Option<LeaderMigration>,
    /// Whether nothing is written and no lease is acquired (`--dry-run`).
    pub dry_run: bool,
    /// HTTPS server; disabled if its port is 0.
    pub serving: SecureServingConfig,
    /// Webhook server; `None` if it is disabled.
    pub webhooks: Option<WebhookServingConfig>,
    /// Canonical names of the controllers that run.
    pub controllers: BTreeSet<&'static str>,
    /// Label selector of the Nodes that this program manages (`--node-filter-requirements`); `None` selects all.
    pub node_filter: Option<String>,
    pub node_ipam: NodeIpamConfig,
    pub node: NodeControllerConfig,
    pub node_lifecycle: NodeLifecycleControllerConfig,
    pub route: RouteControllerConfig,
    pub service: ServiceControllerConfig,
    /// `--controller-start-interval`.
    pub start_interval: Duration,
    /// `--shutdown-grace-period`.
    pub shutdown_grace_period: Duration,
    pub logging: LoggingOptions,
    pub feature_gates: FeatureGates,
    pub version: String,
    /// Warnings that are logged at start: flags and feature gates without effect.
    pub notices: Vec<String>,
    flagz: Vec<(String, String)>,
    arguments: FlagArguments,
}

impl ManagerConfig {
    /// Returns every flag with its effective value, as `/flagz` shows it. No flag contains a secret.
    pub fn flagz(&self) -> Vec<(String, String)> {
        self.flagz.clone()
    }

    /// Returns the configuration object that `/configz` shows, in upstream's shape
    /// (`CloudControllerManagerConfiguration`, `cloudcontrollermanager.config.k8s.io/v1alpha1`).
    pub fn configz(&self) -> Value {
        configz::configz(&self.arguments, self.leader_migration.as_ref())
    }
}

/// Options of the cloud and the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeCloudSharedOptions {
    /// `--cloud-provider`.
    pub provider: String,
    /// Configuration from which the provider is built.
    pub config: ProviderConfig,
    /// Whether a cloud without cluster id is accepted.
    pub allow_untagged_cloud: bool,
    /// Whether the route controller configures routes.
    pub configure_cloud_routes: bool,
}

/// Options of the leader election. If it is enabled, the durations satisfy the rules of client-go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElectionOptions {
    pub enabled: bool,
    /// Time for which other replicas wait after the last renewal that they observed.
    pub lease_duration: Duration,
    /// Time for which the leader retries a renewal before it stops leading.
    pub renew_deadline: Duration,
    /// Pause between attempts to acquire or renew the lease.
    pub retry_period: Duration,
    pub resource_name: String,
    /// Namespace of the Lease.
    pub resource_namespace: String,
}

/// Configuration of the program `cloud-node-manager`.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeManagerConfig {
    /// Name of the provider.
    pub provider: String,
    /// File with the configuration of the provider.
    pub cloud_config: Option<PathBuf>,
    /// Name of the Node in lower case; `None` selects the host name.
    pub node_name: Option<String>,
    /// Whether the machine's metadata service is read instead of the API of the cloud.
    pub use_instance_metadata: bool,
    /// Whether this process runs as a Windows service. Without effect on other systems.
    pub windows_service: bool,
    pub settings: NodeManagerSettings,
    /// Client of the API server.
    pub kube_api: KubeClientConfig,
    /// HTTPS server; disabled if its port is 0.
    pub serving: SecureServingConfig,
    pub logging: LoggingOptions,
    /// Version that the program reports.
    pub version: String,
    /// Warnings that are logged at start: flags without effect.
    pub notices: Vec<String>,
    /// Flags with their effective values, as `/flagz` shows them. No flag contains a secret.
    pub flagz: Vec<(String, String)>,
}

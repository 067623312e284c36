//! What the command line means: plain, typed, validated. In: [`FlagArguments`]. Out: a [`ManagerConfig`], or every complaint
//! at once. Its parts are the types of those who are configured with them.

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

/// Everything that the flags decide.
#[derive(Debug, Clone, PartialEq)]
pub struct ManagerConfig {
    /// The cloud and the cluster.
    pub cloud: KubeCloudSharedOptions,
    /// The way to the API server.
    pub kube_api: KubeClientConfig,
    /// Whether each controller has its own ServiceAccount.
    pub use_service_account_credentials: bool,
    pub leader_election: LeaderElectionOptions,
    /// `--enable-leader-migration`: which controllers run under a second lease.
    pub leader_migration: Option<LeaderMigration>,
    /// `--dry-run`: nothing is written, and no lease is campaigned for.
    pub dry_run: bool,
    /// The HTTPS server; port 0: none.
    pub serving: SecureServingConfig,
    /// The webhook port; `None`: none.
    pub webhooks: Option<WebhookServingConfig>,
    /// Canonical names of the controllers that run.
    pub controllers: BTreeSet<&'static str>,
    /// `--node-filter-requirements`: label selector of the Nodes that exist for this program; `None`: all.
    pub node_filter: Option<String>,
    /// The node-ipam controller.
    pub node_ipam: NodeIpamConfig,
    pub node: NodeControllerConfig,
    /// The node-lifecycle controller.
    pub node_lifecycle: NodeLifecycleControllerConfig,
    pub route: RouteControllerConfig,
    /// The service controller.
    pub service: ServiceControllerConfig,
    /// `--controller-start-interval`.
    pub start_interval: Duration,
    /// `--shutdown-grace-period`.
    pub shutdown_grace_period: Duration,
    pub logging: LoggingOptions,
    pub feature_gates: FeatureGates,
    pub version: String,
    /// What the operator should be told at start: flags and gates that mean nothing here.
    pub notices: Vec<String>,
    flagz: Vec<(String, String)>,
    arguments: FlagArguments,
}

impl ManagerConfig {
    /// Every flag with its effective value, as `/flagz` shows it. No flag carries a secret.
    pub fn flagz(&self) -> Vec<(String, String)> {
        self.flagz.clone()
    }

    /// The configuration object that `/configz` shows, in upstream's shape
    /// (`CloudControllerManagerConfiguration`, `cloudcontrollermanager.config.k8s.io/v1alpha1`).
    pub fn configz(&self) -> Value {
        configz::configz(&self.arguments, self.leader_migration.as_ref())
    }
}

/// The cloud and the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeCloudSharedOptions {
    /// `--cloud-provider`.
    pub provider: String,
    /// What the provider is built from.
    pub config: ProviderConfig,
    /// Whether a cloud without cluster id is accepted.
    pub allow_untagged_cloud: bool,
    /// Whether the route controller works.
    pub configure_cloud_routes: bool,
}

/// The election. With `enabled`, the timing holds client-go's rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElectionOptions {
    /// Whether there is an election.
    pub enabled: bool,
    /// How long others wait.
    pub lease_duration: Duration,
    /// How long the leader tries.
    pub renew_deadline: Duration,
    /// Pause between tries.
    pub retry_period: Duration,
    pub resource_name: String,
    /// Namespace of the Lease.
    pub resource_namespace: String,
}

/// Everything that the flags decide.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeManagerConfig {
    /// Name of the provider.
    pub provider: String,
    /// The provider's own configuration.
    pub cloud_config: Option<PathBuf>,
    /// Name of the Node in lower case; `None`: the host name.
    pub node_name: Option<String>,
    /// Whether the machine's metadata service is asked, not the cloud's API.
    pub use_instance_metadata: bool,
    /// Whether this process is a service of Windows. Other systems have none.
    pub windows_service: bool,
    pub settings: NodeManagerSettings,
    /// The way to the API server.
    pub kube_api: KubeClientConfig,
    /// The HTTPS server; port 0: none.
    pub serving: SecureServingConfig,
    /// The log.
    pub logging: LoggingOptions,
    /// The version to report.
    pub version: String,
    /// What the operator should be told at start.
    pub notices: Vec<String>,
    /// Every flag with its effective value, as `/flagz` shows it. No flag carries a secret.
    pub flagz: Vec<(String, String)>,
}

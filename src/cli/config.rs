//! What the command line means: plain, typed, validated. In: [`FlagArguments`]. Out: a [`ManagerConfig`], or every complaint at once.

mod build;
mod configz;

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;
use serde_json::Value;

pub(super) use self::build::{build, build_for_check, build_for_node_manager};
use super::{
    arguments::FlagArguments, feature_gates::FeatureGates, logging::LoggingOptions, tls::OfferedTlsVersion,
    value::SniCertKeyFlag,
};

/// Everything that the flags decide.
#[derive(Debug, Clone, PartialEq)]
pub struct ManagerConfig {
    /// The cloud and the cluster.
    pub cloud: KubeCloudSharedOptions,
    /// The way to the API server.
    pub kube_api: KubeApiOptions,
    pub leader_election: LeaderElectionOptions,
    pub serving: SecureServingOptions,
    /// Canonical names of the controllers that run.
    pub controllers: BTreeSet<&'static str>,
    /// `--node-filter-requirements`: label selector of the Nodes that exist for this program; `None`: all.
    pub node_filter: Option<String>,
    pub node: NodeControllerOptions,
    /// The node-lifecycle controller.
    pub node_lifecycle: NodeLifecycleControllerOptions,
    pub route: RouteControllerOptions,
    /// The service controller.
    pub service: ServiceControllerOptions,
    /// `--min-resync-period`.
    pub min_resync_period: Duration,
    /// `--controller-start-interval`.
    pub start_interval: Duration,
    /// `--shutdown-grace-period`.
    pub shutdown_grace_period: Duration,
    pub logging: LoggingOptions,
    pub feature_gates: FeatureGates,
    pub version: String,
    /// What the operator should be told at start: flags and gates that mean nothing here.
    pub notices: Vec<String>,
    arguments: FlagArguments,
}

impl ManagerConfig {
    /// Every flag with its effective value, as `/flagz` shows it. No flag carries a secret.
    pub fn flagz(&self) -> Vec<(String, String)> {
        self.arguments.effective()
    }

    /// The configuration object that `/configz` shows, in upstream's shape
    /// (`CloudControllerManagerConfiguration`, `cloudcontrollermanager.config.k8s.io/v1alpha1`).
    pub fn configz(&self) -> Value {
        configz::configz(&self.arguments)
    }
}

/// The cloud and the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeCloudSharedOptions {
    pub provider: String,
    /// The provider's own configuration.
    pub cloud_config: Option<PathBuf>,
    /// The Secret that has it, or a part of it.
    pub cloud_config_secret: Option<CloudConfigSecret>,
    /// Whether a changed configuration takes effect without a restart.
    pub reload: bool,
    /// Whether a cloud without cluster id is accepted.
    pub allow_untagged_cloud: bool,
    pub cluster_name: String,
    /// CIDRs of the pods, at most one per family when routes are configured.
    pub cluster_cidrs: Vec<IpNet>,
    /// Recorded only: this program allocates none.
    pub allocate_node_cidrs: bool,
    /// Whether the route controller works.
    pub configure_cloud_routes: bool,
}

/// One key of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudConfigSecret {
    pub namespace: String,
    pub name: String,
    /// Key in the Secret's data.
    pub key: String,
}

/// The way to the API server.
#[derive(Debug, Clone, PartialEq)]
pub struct KubeApiOptions {
    /// Kubeconfig; `None`: in-cluster.
    pub kubeconfig: Option<PathBuf>,
    /// Address in place of the kubeconfig's.
    pub master: Option<String>,
    /// Requests per second; negative: unlimited.
    pub qps: f32,
    /// Requests at once.
    pub burst: u32,
    /// Whether these two are defaults, which hold only while the API server has no priority and fairness.
    pub limit_unless_fair: bool,
    /// Recorded only: requests are JSON.
    pub content_type: String,
    /// Whether each controller has its own ServiceAccount.
    pub use_service_account_credentials: bool,
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecureServingOptions {
    /// Address to listen on.
    pub bind_address: IpAddr,
    /// Port; 0: no server.
    pub secure_port: u16,
    /// Directory of the pair that is made when none is given; `None`: in memory.
    pub cert_dir: Option<PathBuf>,
    /// Certificate chain and private key.
    pub tls_files: Option<TlsFiles>,
    /// Suites by IANA name; empty: the library's choice.
    pub cipher_suites: Vec<&'static str>,
    /// Lowest version.
    pub min_version: OfferedTlsVersion,
    /// Key exchange groups by TLS number, best first; empty: the library's choice.
    pub curve_preferences: Vec<u16>,
    /// Certificates for particular names.
    pub sni_certificates: Vec<SniCertKeyFlag>,
    /// Streams per HTTP/2 connection.
    pub http2_max_streams: u32,
    /// Whether HTTP/2 is served.
    pub http2: bool,
    pub permit_port_sharing: bool,
    pub permit_address_sharing: bool,
    /// Whether `/debug/flags/v` is served.
    pub profiling: bool,
    pub authentication: DelegatingAuthenticationOptions,
    pub authorization: DelegatingAuthorizationOptions,
}

/// Certificate and key that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegatingAuthenticationOptions {
    /// API server for TokenReview; `None`: the controllers' own.
    pub kubeconfig: Option<PathBuf>,
    /// Whether the cluster's ConfigMap is left unread.
    pub skip_lookup: bool,
    /// Whether a failing read of it is tolerated.
    pub tolerate_lookup_failure: bool,
    /// How long a reviewed token is remembered.
    pub token_cache_ttl: Duration,
    /// Authorities for client certificates; `None`: the ConfigMap's.
    pub client_ca_file: Option<PathBuf>,
    /// Front proxies, when given by flags; `None`: the ConfigMap's.
    pub request_header: Option<RequestHeaderOptions>,
}

/// Front proxies that speak for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeaderOptions {
    /// Authorities for the proxies' certificates.
    pub client_ca_file: PathBuf,
    /// Common names they may have; empty: any.
    pub allowed_names: Vec<String>,
    /// Headers with the name.
    pub username_headers: Vec<String>,
    /// Headers with the UID.
    pub uid_headers: Vec<String>,
    /// Headers with the groups.
    pub group_headers: Vec<String>,
    /// Prefixes of headers with more.
    pub extra_header_prefixes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegatingAuthorizationOptions {
    /// API server for SubjectAccessReview; `None`: the controllers' own.
    pub kubeconfig: Option<PathBuf>,
    /// Paths open to everybody; a trailing `*` stands for anything.
    pub always_allow_paths: Vec<String>,
    /// How long a granted access is remembered.
    pub authorized_ttl: Duration,
    /// How long a refused access is remembered.
    pub unauthorized_ttl: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeControllerOptions {
    /// Nodes initialised at a time.
    pub workers: usize,
    /// Nodes refreshed at a time.
    pub status_update_workers: usize,
    /// How often addresses are compared with the cloud.
    pub status_update_frequency: Duration,
}

/// The node-lifecycle controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLifecycleControllerOptions {
    /// How often the cloud is asked.
    pub monitor_period: Duration,
    /// How long an instance must be gone.
    pub deletion_grace_period: Duration,
    /// Deletions stop at more than this many…
    pub deletion_max_count: usize,
    /// …and more than this share of the nodes…
    pub deletion_max_percent: u8,
    /// …in this time.
    pub deletion_window: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteControllerOptions {
    /// How often routes are compared with the cloud when they are not watch-driven.
    pub reconciliation_period: Duration,
    /// Whether they follow node events.
    pub watch_based: bool,
}

/// The service controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceControllerOptions {
    /// Services at a time; `None`: as many as the provider can take.
    pub concurrent_syncs: Option<usize>,
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
    /// Whether the taint stays until there is a route.
    pub wait_routes: bool,
    /// How often addresses are compared with the cloud.
    pub status_update_frequency: Duration,
    /// The way to the API server.
    pub kube_api: KubeApiOptions,
    /// The HTTPS server.
    pub serving: SecureServingOptions,
    /// The log.
    pub logging: LoggingOptions,
    /// The version to report.
    pub version: String,
    /// What the operator should be told at start.
    pub notices: Vec<String>,
    /// Every flag with its effective value, as `/flagz` shows it. No flag carries a secret.
    pub flagz: Vec<(String, String)>,
}

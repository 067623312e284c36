//! Configuration of providers, as plain data. In: the values of flags, from which `cli` builds it. Out: the input of the
//! factories of providers.

use std::{fmt, path::PathBuf, time::Duration};

use ipnet::IpNet;

use super::load_balancer_class::LoadBalancerClasses;
use crate::flags::FlagTexts;

/// Configuration of a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderConfig {
    /// `--cloud-config`: path of the file that configures the provider; `None` without the flag.
    pub cloud_config: Option<PathBuf>,
    /// Secret that configures the provider (`--cloud-config-secret-name` and related flags); `None` without the flags.
    pub cloud_config_secret: Option<SecretRef>,
    /// `--enable-dynamic-reloading`: whether a changed configuration takes effect without a restart.
    pub reload: bool,
    /// `--cluster-name`.
    pub cluster_name: String,
    /// `--load-balancer-class`, `--serve-services-without-class`: classes of the Services whose load balancers this manager
    /// creates.
    pub load_balancer_classes: LoadBalancerClasses,
    /// Networks of the cluster that flags name.
    pub networks: ClusterNetworks,
    /// `--dry-run`, `plan`: whether the provider must refuse to send requests that change resources.
    ///
    /// It must check this where requests leave the process, so that no code path can bypass the check.
    pub read_only: bool,
    /// Values of the flags that providers registered. For `check-config`, they are the defaults.
    pub flags: FlagTexts,
}

/// Networks of a cluster that flags name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterNetworks {
    /// `--cluster-cidr`: addresses of Pods.
    pub pods: Vec<IpNet>,
    /// `--service-cluster-ip-range`: addresses of Services.
    pub services: Vec<IpNet>,
}

/// Configuration of a provider in cloud-node-manager, which serves only the Node on which it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalConfig {
    /// Name of the Node.
    pub node_name: String,
    /// `--use-instance-metadata`: whether the source is the metadata service of the instance, which needs no credentials.
    /// Otherwise it is the API of the cloud.
    pub use_instance_metadata: bool,
    /// `--cloud-config`: path of the file that configures the provider; `None` without the flag.
    pub cloud_config: Option<PathBuf>,
    /// Largest age of a cached response.
    pub max_age: Duration,
}

/// Configuration of a provider of credentials for pulling images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageCredentialConfig {
    /// Path of the file that configures the credential provider.
    pub cloud_config: PathBuf,
    /// `--registry-mirror`: unparsed `source:target` entries.
    pub registry_mirrors: Vec<String>,
    /// Exchange of service account tokens by the cluster, if configured.
    pub identity_binding: Option<IdentityBindingConfig>,
}

/// Configuration of a cluster's exchange of service account tokens for tokens of the cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityBindingConfig {
    /// `--ib-sni-name`: host name of the server, which its certificate contains.
    pub sni_name: String,
    /// `--ib-apiserver-ip`: IP address of the server, or a host name that resolves to it.
    pub api_server: String,
    /// `--ib-default-client-id`: client ID for service accounts that do not name one; may be empty.
    pub default_client_id: String,
    /// Value of the flag `--ib-default-tenant-id`.
    pub default_tenant_id: String,
    /// `--ib-ca-file`: certificate authorities of the server.
    pub ca_file: PathBuf,
}

/// Reference to a key of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRef {
    /// Namespace that contains the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// Key in the data of the Secret.
    pub key: String,
}

impl fmt::Display for SecretRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret {}/{}", self.namespace, self.name)
    }
}

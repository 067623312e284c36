//! Configuration of providers, as plain data. In: the values of flags; `cli` builds it. Out: the input of providers'
//! factories.

use std::{fmt, path::PathBuf, time::Duration};

use ipnet::IpNet;

use super::load_balancer_class::LoadBalancerClasses;
use crate::flags::FlagTexts;

/// Configuration of a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderConfig {
    /// `--cloud-config`: path of the provider's own configuration, `None` when not given.
    pub cloud_config: Option<PathBuf>,
    /// Secret with the provider's own configuration (`--cloud-config-secret-name` and its companions), `None` when not given.
    pub cloud_config_secret: Option<SecretRef>,
    /// `--enable-dynamic-reloading`: a changed configuration takes effect without a restart.
    pub reload: bool,
    /// `--cluster-name`.
    pub cluster_name: String,
    /// `--load-balancer-class`, `--serve-services-without-class`: which Services get their load balancers from this manager.
    pub load_balancer_classes: LoadBalancerClasses,
    /// Networks of the cluster, as far as flags name them.
    pub networks: ClusterNetworks,
    /// `--dry-run`, `plan`: the provider must refuse, where its requests leave the process, each one that would change something.
    pub read_only: bool,
    /// The flags that providers have registered; each has its default for `check-config`.
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

/// Configuration of a provider for the one machine it runs on: the cloud of a cloud-node-manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalConfig {
    /// The Node of this machine.
    pub node_name: String,
    /// `--use-instance-metadata`: use the cloud's metadata service on the machine, which needs no credentials. Otherwise the
    /// cloud's API is used.
    pub use_instance_metadata: bool,
    /// `--cloud-config`: path of the provider's own configuration, `None` when not given.
    pub cloud_config: Option<PathBuf>,
    /// Largest age of a cached response.
    pub max_age: Duration,
}

/// Configuration of a provider of credentials for pulling images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageCredentialConfig {
    /// Path of the provider's own configuration.
    pub cloud_config: PathBuf,
    /// `--registry-mirror`: `source:target` entries as they were typed.
    pub registry_mirrors: Vec<String>,
    /// Exchange of service account tokens by the cluster, if configured.
    pub identity_binding: Option<IdentityBindingConfig>,
}

/// The cluster's own exchange of service account tokens for those of the cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityBindingConfig {
    /// `--ib-sni-name`: name of the server, in its certificate too.
    pub sni_name: String,
    /// `--ib-apiserver-ip`: its address, or a name that has one.
    pub api_server: String,
    /// `--ib-default-client-id`: for service accounts that name none; may be empty.
    pub default_client_id: String,
    /// Value of the flag `--ib-default-tenant-id`.
    pub default_tenant_id: String,
    /// `--ib-ca-file`: certificate authorities of the server.
    pub ca_file: PathBuf,
}

/// Key of one Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRef {
    /// Namespace that contains the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// Key in its data.
    pub key: String,
}

impl fmt::Display for SecretRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret {}/{}", self.namespace, self.name)
    }
}

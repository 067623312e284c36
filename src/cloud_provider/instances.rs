//! Instances: the machines behind Nodes.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;

use super::{CloudError, CloudResult};

/// Kind of a node address, as in `core/v1` `NodeAddress.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum AddressType {
    /// Host name of the machine.
    Hostname,
    /// Address inside the cloud network.
    InternalIP,
    /// Address reachable from outside.
    ExternalIP,
    /// Name inside the cloud network.
    InternalDNS,
    /// Name reachable from outside.
    ExternalDNS,
}

impl fmt::Display for AddressType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Address of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct NodeAddress {
    /// Kind of the address.
    #[serde(rename = "type")]
    pub type_: AddressType,
    /// IP address or name, in the provider's spelling.
    pub address: String,
}

/// Metadata of one instance. Empty strings mean "not known": the label is left alone.
///
/// Upstream: `cloud.go`, `InstanceMetadata`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceMetadata {
    /// `<provider name>://<instance id>`.
    pub provider_id: String,
    /// Machine type, e.g. `Standard_D4s_v5`.
    pub instance_type: String,
    /// Addresses, in their order in the Node.
    pub node_addresses: Vec<NodeAddress>,
    /// Failure domain of the instance.
    pub zone: String,
    /// Region of the instance.
    pub region: String,
    /// Further labels, added at initialization only; keys under `kubernetes.io` and `k8s.io` are dropped.
    pub additional_labels: BTreeMap<String, String>,
    /// Whether the Node declares that its machine is not the cloud's. It is initialized without a provider ID.
    pub is_unmanaged: bool,
    /// Whether the cloud has no provider IDs, so that its Nodes are initialized without one.
    pub has_no_id: bool,
}

/// Existence of an instance. Only recent, direct, positive evidence is `Gone`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Existence {
    /// Confirmed to exist.
    Exists,
    /// The cloud itself said, for this very instance and just now, that it is not there.
    Gone,
    /// The cloud could not determine it, for this reason. Never a reason to delete anything.
    Unknown(String),
}

impl From<CloudResult<bool>> for Existence {
    fn from(exists: CloudResult<bool>) -> Self {
        match exists {
            Ok(true) => Self::Exists,
            Ok(false) | Err(CloudError::InstanceNotFound) => Self::Gone,
            Err(error) => Self::Unknown(error.to_string()),
        }
    }
}

/// Verdict of a second source on an instance that is [`Existence::Gone`].
///
/// It is a different request than the first, such as a list that should contain the instance. Required before one of many
/// Nodes that are missing at once is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecondLook {
    /// The instance is missing there, too, and the source is otherwise as expected.
    Agrees,
    /// The source is inconclusive, for this reason; or there is none.
    Silent(String),
    /// The source has the instance, with these details. One of the two sources is wrong.
    Contradicts(String),
}

/// Instances by Node object. Upstream: `cloud.go`, `InstancesV2`.
#[async_trait]
pub trait InstancesV2: Send + Sync {
    /// Returns `true` if the instance of `node` exists.
    async fn instance_exists(&self, node: &Node) -> CloudResult<bool>;
    /// Returns `true` if the instance of `node` is shut down.
    async fn instance_shutdown(&self, node: &Node) -> CloudResult<bool>;
    /// Returns the metadata of the instance of `node`; `None` means "not mine, leave it alone".
    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>>;

    /// Returns the existence with three values, from a new read. The default maps an error to [`Existence::Unknown`], except
    /// [`CloudError::InstanceNotFound`].
    async fn existence(&self, node: &Node) -> Existence {
        self.instance_exists(node).await.into()
    }

    /// Returns `true` if the instance of `node` is confirmed to run.
    ///
    /// In contrast to "not shut down", that is not an assumption: while an operation changes the instance, the result is
    /// `false`. Called after [`InstancesV2::instance_shutdown`], before the taints of a shutdown are removed.
    async fn instance_runs(&self, node: &Node) -> CloudResult<bool> {
        Ok(!self.instance_shutdown(node).await?)
    }

    /// Returns the verdict of a second source on the instance of `node`, which [`InstancesV2::existence`] reports as gone.
    async fn second_look(&self, _node: &Node) -> SecondLook {
        SecondLook::Silent("the cloud provider has no second source".to_owned())
    }

    /// Returns `true` if a complete and recent list of all locations that the provider covers lacks an instance for `node`,
    /// which has no provider ID.
    ///
    /// That does not prove that an instance is gone: there may never have been one. Called only with
    /// `--delete-uninitialized-nodes-after`.
    async fn is_unlisted(&self, _node: &Node) -> CloudResult<bool> {
        Ok(false)
    }

    /// Returns the metadata of many nodes, in the order of `nodes`. Override it when the cloud can respond from lists.
    async fn instance_metadata_batch(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        futures::future::join_all(nodes.iter().map(|node| self.instance_metadata(node))).await
    }
}

/// Instances by name and provider id. Upstream: `cloud.go`, `Instances`.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Returns the addresses of the instance called `name`.
    async fn node_addresses(&self, name: &str) -> CloudResult<Vec<NodeAddress>>;
    /// Returns the addresses of the instance with this provider ID.
    async fn node_addresses_by_provider_id(&self, provider_id: &str) -> CloudResult<Vec<NodeAddress>>;
    /// Returns the cloud's ID of the instance called `name`, without the prefix `<provider>://`.
    async fn instance_id(&self, name: &str) -> CloudResult<String>;
    /// Returns the machine type of the instance called `name`.
    async fn instance_type(&self, name: &str) -> CloudResult<String>;
    /// Returns the machine type of the instance with this provider ID.
    async fn instance_type_by_provider_id(&self, provider_id: &str) -> CloudResult<String>;
    /// Returns `true` if the instance exists.
    async fn instance_exists_by_provider_id(&self, provider_id: &str) -> CloudResult<bool>;
    /// Returns `true` if the instance is shut down.
    async fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> CloudResult<bool>;
}

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

/// One address of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct NodeAddress {
    /// Kind.
    #[serde(rename = "type")]
    pub type_: AddressType,
    /// IP address or name, in the provider's spelling.
    pub address: String,
}

/// What a cloud tells about one instance. Empty strings mean "not known": the label is left alone.
///
/// Upstream: `cloud.go`, `InstanceMetadata`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceMetadata {
    /// `<provider name>://<instance id>`.
    pub provider_id: String,
    /// Machine type, e.g. `Standard_D4s_v5`.
    pub instance_type: String,
    /// Addresses, in the order they should stand in the Node.
    pub node_addresses: Vec<NodeAddress>,
    /// Failure domain.
    pub zone: String,
    /// Region.
    pub region: String,
    /// Further labels, added at initialisation only; keys under `kubernetes.io` and `k8s.io` are dropped.
    pub additional_labels: BTreeMap<String, String>,
    /// Whether the Node declares that its machine is not the cloud's: it is initialized without a provider id.
    pub is_unmanaged: bool,
}

/// Whether an instance is there. Only fresh, direct, positive evidence is `Gone`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Existence {
    /// It is there.
    Exists,
    /// The cloud itself said, for this very instance and just now, that it is not there.
    Gone,
    /// The cloud could not tell, and why. Never a reason to delete anything.
    Unknown(String),
}

/// What a second source says of an instance that is [`Existence::Gone`]: another question than the first, such as a list that should
/// have the instance. Asked before one of many Nodes that are gone at once is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecondLook {
    /// It does not have the instance either, and is otherwise as it should be.
    Agrees,
    /// It cannot tell, and why; or there is none.
    Silent(String),
    /// It has the instance, as this says. One of the two is wrong.
    Contradicts(String),
}

/// Instances by Node object. Upstream: `cloud.go`, `InstancesV2`.
#[async_trait]
pub trait InstancesV2: Send + Sync {
    /// Whether the instance of `node` exists.
    async fn instance_exists(&self, node: &Node) -> CloudResult<bool>;
    /// Whether the instance of `node` is shut down.
    async fn instance_shutdown(&self, node: &Node) -> CloudResult<bool>;
    /// What the cloud knows of the instance of `node`; `None` means "not mine, leave it alone".
    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>>;

    /// Existence with three values, from a fresh read. The default maps an error to [`Existence::Unknown`], except
    /// [`CloudError::InstanceNotFound`].
    async fn existence(&self, node: &Node) -> Existence {
        match self.instance_exists(node).await {
            Ok(true) => Existence::Exists,
            Ok(false) | Err(CloudError::InstanceNotFound) => Existence::Gone,
            Err(error) => Existence::Unknown(error.to_string()),
        }
    }

    /// Whether the instance of `node` is known to run. Unlike "not shut down", that is no assumption: while an operation changes the
    /// instance, the result is `false`. Called after [`InstancesV2::instance_shutdown`], before the taints of a shutdown are removed.
    async fn instance_runs(&self, node: &Node) -> CloudResult<bool> {
        Ok(!self.instance_shutdown(node).await?)
    }

    /// What a second source says of the instance of `node`, which [`InstancesV2::existence`] calls gone.
    async fn second_look(&self, node: &Node) -> SecondLook {
        let _ = node;
        SecondLook::Silent("the cloud provider has no second source".to_owned())
    }

    /// Whether a complete and recent list of all places that the provider knows lacks an instance for `node`, which has no provider id. No
    /// evidence that an instance is gone: there may never have been one. Called only with `--delete-uninitialized-nodes-after`.
    async fn is_unlisted(&self, node: &Node) -> CloudResult<bool> {
        let _ = node;
        Ok(false)
    }

    /// Metadata of many nodes, answers in the order of `nodes`. Override when the cloud can answer from lists.
    async fn instance_metadata_batch(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        futures::future::join_all(nodes.iter().map(|node| self.instance_metadata(node))).await
    }
}

/// Instances by name and provider id. Upstream: `cloud.go`, `Instances`.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Addresses of the instance called `name`.
    async fn node_addresses(&self, name: &str) -> CloudResult<Vec<NodeAddress>>;
    /// Addresses of the instance with this provider id.
    async fn node_addresses_by_provider_id(&self, provider_id: &str) -> CloudResult<Vec<NodeAddress>>;
    /// The cloud's id of the instance called `name`, without the `<provider>://` in front.
    async fn instance_id(&self, name: &str) -> CloudResult<String>;
    /// Machine type of the instance called `name`.
    async fn instance_type(&self, name: &str) -> CloudResult<String>;
    /// Machine type of the instance with this provider id.
    async fn instance_type_by_provider_id(&self, provider_id: &str) -> CloudResult<String>;
    /// Adds a public key to all instances. No controller uses it; kept for parity.
    async fn add_ssh_key_to_all_instances(&self, user: &str, key_data: &[u8]) -> CloudResult<()> {
        let _ = (user, key_data);
        Err(CloudError::NotImplemented)
    }
    /// Name of the node that runs on the machine with this host name.
    async fn current_node_name(&self, hostname: &str) -> CloudResult<String> {
        Ok(hostname.to_owned())
    }
    /// Whether the instance exists.
    async fn instance_exists_by_provider_id(&self, provider_id: &str) -> CloudResult<bool>;
    /// Whether the instance is shut down.
    async fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> CloudResult<bool>;
}

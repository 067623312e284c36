//! Instances of a cloud, which are the machines of Nodes.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;

use super::{CloudError, CloudResult};

/// Kind of a Node address, as in `core/v1` `NodeAddress.type`.
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

/// Address of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct NodeAddress {
    /// Kind of the address.
    #[serde(rename = "type")]
    pub type_: AddressType,
    /// IP address or name. The Node gets it unchanged.
    pub address: String,
}

/// Metadata of one instance. An empty string means that the value is unknown, so the label of the Node is not changed.
///
/// Upstream: `cloud.go`, `InstanceMetadata`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceMetadata {
    /// Provider ID: `<provider name>://<instance ID>`.
    pub provider_id: String,
    /// Instance type, e.g. `Standard_D4s_v5`.
    pub instance_type: String,
    /// Addresses, in their order in the Node.
    pub node_addresses: Vec<NodeAddress>,
    /// Failure domain of the instance.
    pub zone: String,
    /// Region of the instance.
    pub region: String,
    /// Additional labels of the Node, which are set at initialization only. Keys under `kubernetes.io` and `k8s.io` are
    /// dropped.
    pub additional_labels: BTreeMap<String, String>,
    /// Whether the Node declares that its machine does not belong to the cloud. Such a Node is initialized without a
    /// provider ID.
    pub is_unmanaged: bool,
    /// Whether the cloud has no provider IDs, so that its Nodes are initialized without one.
    pub has_no_id: bool,
}

/// Existence of an instance. Only recent, direct, positive evidence is `Gone`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Existence {
    /// Existence that the cloud confirmed.
    Exists,
    /// Absence that the cloud confirmed now, in response to a request for this instance. This means that the Node is
    /// deleted.
    Gone,
    /// Failure to determine the existence, with the reason. Nothing is deleted because of it.
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
/// The second source is another request than the first, such as a list that should contain the instance. If many instances
/// are missing at once, the node-lifecycle controller deletes a Node only after such a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecondLook {
    /// The instance is missing in the second source, too, which is otherwise as expected.
    Agrees,
    /// The second source is missing or inconclusive, for this reason.
    Silent(String),
    /// The second source has the instance, with these details. This means that one of the two sources is wrong.
    Contradicts(String),
}

/// Instances by Node object. Upstream: `cloud.go`, `InstancesV2`.
///
/// A Node has its provider ID in `spec.providerID`, or none before it is initialized. Then the provider finds the instance
/// by the name of the Node. Calls read only, can be concurrent, and end after 2 minutes.
///
/// # Errors
///
/// [`CloudError::InstanceNotFound`] only after the cloud confirmed it in response to a request for this instance, because
/// the Node is then deleted. Any other error means that the state of the instance is unknown; the controllers retry.
#[async_trait]
pub trait InstancesV2: Send + Sync {
    /// Returns `true` if the instance of `node` exists. Upstream: `InstanceExists`.
    ///
    /// `Ok(false)` has the same effect as [`CloudError::InstanceNotFound`]: the Node is deleted.
    async fn instance_exists(&self, node: &Node) -> CloudResult<bool>;
    /// Returns `true` if the instance of `node` is shut down. Upstream: `InstanceShutdown`.
    ///
    /// This means that the Node gets the taint `node.cloudprovider.kubernetes.io/shutdown`, so no Pods are scheduled on it.
    async fn instance_shutdown(&self, node: &Node) -> CloudResult<bool>;
    /// Returns the metadata of the instance of `node`; `None` if another cloud or the user manages the Node.
    ///
    /// `None` means that the controllers do not initialize or change the Node. Upstream: `InstanceMetadata`.
    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>>;

    /// Returns the existence with three values, from a new request to the cloud.
    ///
    /// By default, it maps [`InstancesV2::instance_exists`]: an error is [`Existence::Unknown`], except
    /// [`CloudError::InstanceNotFound`].
    async fn existence(&self, node: &Node) -> Existence {
        self.instance_exists(node).await.into()
    }

    /// Returns `true` if the instance of `node` is confirmed to run.
    ///
    /// While an operation starts or stops the instance, the result is `false`, although the instance is not shut down
    /// either. Called after [`InstancesV2::instance_shutdown`], before the shutdown taint is removed.
    async fn instance_runs(&self, node: &Node) -> CloudResult<bool> {
        Ok(!self.instance_shutdown(node).await?)
    }

    /// Returns the verdict of a second source on the instance of `node`, which [`InstancesV2::existence`] reports as
    /// [`Existence::Gone`].
    async fn second_look(&self, _node: &Node) -> SecondLook {
        SecondLook::Silent("the cloud provider has no second source".to_owned())
    }

    /// Returns `true` if a complete and recent list of all locations that the provider covers lacks an instance for `node`,
    /// which has no provider ID.
    ///
    /// This means that the Node is deleted after the time of `--delete-uninitialized-nodes-after`. Without that flag, the
    /// method is not called. It does not prove that an instance was deleted, because the Node may never have had an
    /// instance.
    async fn is_unlisted(&self, _node: &Node) -> CloudResult<bool> {
        Ok(false)
    }

    /// Returns the metadata of many Nodes, in the order of `nodes`.
    ///
    /// By default, it calls [`InstancesV2::instance_metadata`] for all of them at once. Override it if the cloud can list
    /// instances.
    async fn instance_metadata_batch(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        futures::future::join_all(nodes.iter().map(|node| self.instance_metadata(node))).await
    }
}

/// Instances by name and provider ID. Upstream: `cloud.go`, `Instances`.
///
/// The names are those of Nodes. The errors are those of [`InstancesV2`].
#[async_trait]
pub trait Instances: Send + Sync {
    /// Returns the addresses of the instance of the Node `name`, in the order in which the Node lists them.
    async fn node_addresses(&self, name: &str) -> CloudResult<Vec<NodeAddress>>;
    /// Returns the addresses of the instance with this provider ID, in the order in which the Node lists them.
    async fn node_addresses_by_provider_id(&self, provider_id: &str) -> CloudResult<Vec<NodeAddress>>;
    /// Returns the ID of the instance of the Node `name` in the cloud, without the prefix `<provider name>://`.
    ///
    /// [`CloudError::NotImplemented`] means that the cloud has no IDs, so Nodes are initialized without a provider ID.
    async fn instance_id(&self, name: &str) -> CloudResult<String>;
    /// Returns the instance type of the Node `name`; empty if it is unknown.
    async fn instance_type(&self, name: &str) -> CloudResult<String>;
    /// Returns the instance type of the instance with this provider ID; empty if it is unknown.
    async fn instance_type_by_provider_id(&self, provider_id: &str) -> CloudResult<String>;
    /// Returns `true` if the instance with this provider ID exists. `Ok(false)` means that its Node is deleted.
    async fn instance_exists_by_provider_id(&self, provider_id: &str) -> CloudResult<bool>;
    /// Returns `true` if the instance with this provider ID is shut down.
    async fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> CloudResult<bool>;
}

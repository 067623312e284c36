//! Initialization of a Node that kubelet registered.
//!
//! In: the Node with the uninitialized taint, and the metadata of its instance. Out: the addresses for its status, and the
//! rest in one patch that also removes the taint. Upstream: `controllers/node/node_controller.go` (`syncNode`).
//!
//! Upstream removes the taint first and sets the addresses afterwards, only logging when that fails, so that Pods may be
//! scheduled to a Node without addresses. Here the addresses are written first and the taint is removed last: a Node without
//! the taint is complete.

use k8s_openapi::api::core::v1::{Node, NodeAddress};

use super::{
    addresses::{self, NodeAddressError},
    labels::{self, DroppedLabel},
    patch::NodeChanges,
    provider_id, taints,
};
use crate::cloud_provider::InstanceMetadata;

/// Reason why a Node cannot be initialized.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeInitializeError {
    /// Neither the cloud nor the Node has one.
    #[error("the cloud provider does not set node provider ID, and spec.providerID of the node is empty")]
    NoProviderId,
    /// The addresses cannot be determined.
    #[error(transparent)]
    Addresses(#[from] NodeAddressError),
}

/// Initialization of a Node, in the order of writing.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeInitialization {
    /// First, if they change: the addresses.
    pub addresses: Option<Vec<NodeAddress>>,
    /// Written last: provider ID, labels, and the removal of the taint.
    pub changes: NodeChanges,
    /// Labels of the cloud that are not set, and why.
    pub dropped_labels: Vec<DroppedLabel>,
}

/// Returns the initialization of `node`. Applied to its own result it returns nothing.
///
/// `beta_labels`: whether the labels for machine type, zone and region are set under their older names as well.
pub fn initialize(
    node: &Node,
    metadata: &InstanceMetadata,
    beta_labels: bool,
) -> Result<NodeInitialization, NodeInitializeError> {
    let new_id = Some(metadata.provider_id.clone()).filter(|new| !new.is_empty() && provider_id(node).is_none());
    let needs_id = !metadata.is_unmanaged && !metadata.has_no_id;
    if needs_id && new_id.is_none() && provider_id(node).is_none() {
        return Err(NodeInitializeError::NoProviderId);
    }
    // The cloud knows no address of a Node that it does not manage, whatever kubelet's `--node-ip` is.
    if !metadata.is_unmanaged {
        addresses::check(node, &metadata.node_addresses)?;
    }
    let (labels, dropped) = new_labels(node, metadata, beta_labels);
    Ok(NodeInitialization {
        addresses: addresses::changed(node, &metadata.node_addresses)?,
        changes: NodeChanges { provider_id: new_id, labels, taints: taints::without_uninitialized(node) },
        dropped_labels: dropped,
    })
}

/// Labels to set, including the older names that the next reconcile would set: one write does for both.
fn new_labels(node: &Node, metadata: &InstanceMetadata, beta_labels: bool) -> (labels::Labels, Vec<DroppedLabel>) {
    let present = labels::of(node);
    let mut after = present.clone();
    after.extend(labels::of_instance(metadata));
    let (additional, dropped) = labels::additional(&after, &metadata.additional_labels);
    after.extend(additional);
    if beta_labels {
        after.extend(labels::missing_beta(&after));
    }
    after.retain(|key, value| present.get(key) != Some(value));
    (after, dropped)
}

#[cfg(test)]
mod tests;

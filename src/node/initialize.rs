//! Initialization of a Node that kubelet registered.
//!
//! In: the Node with the uninitialized taint, and the metadata of its instance. Out: the addresses for its status, and the
//! other changes in one patch that also removes the taint. Upstream: `controllers/node/node_controller.go` (`syncNode`).
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
    /// Provider ID that neither the cloud nor the Node has.
    #[error("the cloud provider does not set node provider ID, and spec.providerID of the node is empty")]
    NoProviderId,
    /// Addresses that cannot be determined.
    #[error(transparent)]
    Addresses(#[from] NodeAddressError),
}

/// Initialization of a Node, in the order of writing.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeInitialization {
    /// Addresses, written first; `None` if they do not change.
    pub addresses: Option<Vec<NodeAddress>>,
    /// Provider ID, labels, and the removal of the taint, written last.
    pub changes: NodeChanges,
    /// Labels of the cloud that are not set, with the reasons.
    pub dropped_labels: Vec<DroppedLabel>,
}

/// Returns the initialization of `node`. An initialized Node needs no changes.
///
/// With `beta_labels`, the labels for machine type, zone and region are also set under their deprecated names.
///
/// # Errors
///
/// There is no provider ID, or the addresses cannot be determined.
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
    // The cloud reports no addresses of a Node that it does not manage, so `--node-ip` cannot be checked.
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

/// Returns the labels to set, and those that are dropped. Deprecated names are included, to save the write of the next reconcile.
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

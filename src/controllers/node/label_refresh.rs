//! Labels for machine type, zone and region after initialization: compared with the instance whenever its addresses are.
//!
//! In: an initialized Node, and the metadata that were fetched for its addresses. Out: with `--reconcile-node-labels` the labels to write;
//! without it an event per change. Both feed the metric of outdated labels.

use k8s_openapi::api::core::v1::Node;

use super::{NodeController, events, plan::NodeKind};
use crate::{
    cloud_provider::InstanceMetadata,
    node::{
        labels::{self, BETA_AND_STABLE, Labels},
        patch::NodeChanges,
    },
    runtime::store::ObjectKey,
};

impl NodeController {
    /// Returns the labels to write to `node`: none unless `--reconcile-node-labels` is set.
    pub(super) fn label_changes(&self, node: &Node, metadata: &InstanceMetadata) -> NodeChanges {
        let refreshed = self.config.reconcile_labels && self.kind_of(node) == NodeKind::Ordinary;
        let mut labels = if refreshed { labels::outdated(node, metadata) } else { Labels::new() };
        if self.config.sets_beta_labels() {
            labels.extend(labels::missing_beta(&labels));
        }
        NodeChanges { labels, ..NodeChanges::default() }
    }

    /// Records which labels of `node` differ from its instance. Without `--reconcile-node-labels`, a new difference is an event.
    pub(super) fn compare_labels(&self, node: &Node, metadata: &InstanceMetadata) {
        if self.kind_of(node) != NodeKind::Ordinary {
            return;
        }
        let outdated = labels::outdated(node, metadata);
        if self.remember_outdated(ObjectKey::of(node), &outdated) && !self.config.reconcile_labels {
            self.context.events.record(events::labels_outdated(node, &outdated));
        }
    }

    /// Records that the labels of `node` were written.
    pub(super) fn after_label_update(&self, node: &Node, written: &Labels) {
        self.remember_outdated(ObjectKey::of(node), &Labels::new());
        self.context.events.record(events::labels_updated(node, written));
    }

    /// Records the outdated labels of a Node. Returns `true` if they differ from those of the last comparison and are not empty.
    fn remember_outdated(&self, key: ObjectKey, outdated: &Labels) -> bool {
        let mut remembered = self.outdated_labels.lock();
        if outdated.is_empty() {
            remembered.remove(&key);
            return false;
        }
        remembered.insert(key, outdated.clone()).as_ref() != Some(outdated)
    }

    /// Updates the metric of Nodes by outdated label.
    pub(super) fn observe_labels(&self) {
        let mut remembered = self.outdated_labels.lock();
        remembered.retain(|key, _| self.nodes.get(key).is_some());
        for (_, label) in BETA_AND_STABLE {
            let count = remembered.values().filter(|labels| labels.contains_key(*label)).count();
            #[expect(clippy::cast_precision_loss, reason = "a number of Nodes is far below 2⁵³")]
            self.context.metrics.outdated_node_labels.with_label_values(&[label]).set(count as f64);
        }
    }
}

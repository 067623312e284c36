//! Repairs the condition `NetworkUnavailable` of a Node when another writer contradicts it.
//!
//! In: the Node from the watch and the last reconcile's routes. Out: a patch of the Node's status, without a request to the
//! cloud, immediately for the first contradiction and after growing pauses for the next ones. Another reason with the expected
//! status is kept, because network plugins write their own. If the last reconcile does not determine the condition, the next
//! one writes it.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

use super::{RouteController, outcomes::condition_patch};
use crate::{
    controllers::restoration::Restoration,
    runtime::{store::ObjectKey, work_queue::ReconcileResult},
};

impl RouteController {
    /// Writes the condition of the Node again if it contradicts the last reconcile.
    pub(super) async fn repair_condition(self: Arc<Self>, key: ObjectKey) -> ReconcileResult {
        let Some(node) = self.nodes.get(&key) else { return ReconcileResult::Done };
        let Some(patch) = self.missing_condition(&node) else { return ReconcileResult::Done };
        if let Err(remaining) = self.begin_repair(&key) {
            return ReconcileResult::RequeueAfter(remaining, "another writer keeps changing NetworkUnavailable".to_owned());
        }
        self.write_condition(node, patch).await.map_or(ReconcileResult::Done, ReconcileResult::Failed)
    }

    /// Returns `true` if another writer changed the condition of the Node lately and the next repair is not due yet.
    pub(super) fn waits_for_repair(&self, node: &Node) -> bool {
        let (key, now) = (ObjectKey::of(node), self.context.clock.now());
        let repairs = self.condition_repairs.lock();
        repairs.get(&key).is_some_and(|repair| !repair.remaining(now).is_zero())
    }

    /// Records a repair, and logs it if it is the first one.
    ///
    /// # Errors
    ///
    /// The last repair is too recent: the time until the next one.
    fn begin_repair(&self, key: &ObjectKey) -> Result<(), Duration> {
        let now = self.context.clock.now();
        let mut repairs = self.condition_repairs.lock();
        repairs.retain(|_, repair| repair.is_recent(now));
        let previous = repairs.get(key).copied();
        let remaining = previous.map_or(Duration::ZERO, |previous| previous.remaining(now));
        if !remaining.is_zero() {
            return Err(remaining);
        }
        if previous.is_none() {
            tracing::warn!(node = %key, "another writer changed the condition NetworkUnavailable; repairing it");
        }
        repairs.insert(key.clone(), Restoration::after(previous, now));
        Ok(())
    }

    /// Returns the patch for a Node that had all its routes after the last reconcile, and whose condition contradicts that.
    fn missing_condition(&self, node: &Node) -> Option<Value> {
        let had_routes = self.last_reconcile.lock().baseline.as_ref().is_some_and(|baseline| baseline.has_routes(node));
        had_routes.then(|| condition_patch(node, true, self.context.clock.wall())).flatten()
    }
}

//! Repairs the condition `NetworkUnavailable` of a Node when another writer changes it.
//!
//! In: the Node from the watch and the last reconcile's routes. Out: a patch of the Node's status, without a request to the
//! cloud. If the last reconcile does not determine the condition, the next one writes it.

use std::sync::{MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

use super::{
    outcomes::{condition_patch, outcome},
    reconcile::RouteReconciler,
    repair_interval::ConditionRepairs,
};
use crate::runtime::{store::ObjectKey, work_queue::ReconcileResult};

impl RouteReconciler {
    /// Writes the condition of the Node again if it contradicts the last reconcile.
    pub(super) async fn repair_condition(&self, key: &ObjectKey) -> ReconcileResult {
        let Some(node) = self.nodes.get(key) else { return ReconcileResult::Done };
        let Some(patch) = self.missing_condition(&node) else { return ReconcileResult::Done };
        if let Err(remaining) = self.condition_repairs().begin(key, self.context.clock.now()) {
            return ReconcileResult::RequeueAfter(remaining, "another writer keeps changing NetworkUnavailable".to_owned());
        }
        tracing::warn!(node = %key, "another writer changed the condition NetworkUnavailable; repairing it");
        outcome(self.write_condition(node, patch).await.as_slice())
    }

    fn condition_repairs(&self) -> MutexGuard<'_, ConditionRepairs> {
        self.condition_repairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the patch for a Node that had all its routes after the last reconcile, and whose condition differs.
    fn missing_condition(&self, node: &Node) -> Option<Value> {
        let had_routes = self.last_reconcile().baseline.as_ref().is_some_and(|baseline| baseline.has_routes(node));
        had_routes.then(|| condition_patch(node, true, self.context.clock.wall())).flatten()
    }
}

//! Existence and power state of instances.
//!
//! Upstream: `controllers/nodelifecycle/node_lifecycle_controller.go` (`ensureNodeExistsByProviderID`, `shutdownInCloudProvider`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::plan::NodeObservation;
use crate::{
    cloud_provider::{CloudError, CloudProvider, CloudResult, Existence, InstancesV2},
    controllers::{NoInstances, instances_of, names::NODE_LIFECYCLE},
    metrics::{CounterVec, Metrics},
    node::taints,
};

/// Labels `operation` of the metric, as upstream has them.
const INSTANCE_EXISTS: &str = "instance_exists";
const INSTANCE_SHUTDOWN: &str = "instance_shutdown";

/// Source of the states of instances, which counts its requests.
pub(super) struct InstanceStateSource {
    pub(super) instances: Arc<dyn InstancesV2>,
    requests: CounterVec,
}

impl InstanceStateSource {
    /// Creates the source from the instances of `provider`.
    ///
    /// # Errors
    ///
    /// The provider has no instances.
    pub(super) fn of(provider: &dyn CloudProvider, metrics: &Metrics) -> Result<Self, NoInstances> {
        let instances = instances_of(provider, NODE_LIFECYCLE.canonical)?;
        Ok(Self { instances, requests: metrics.node_lifecycle_provider_calls_total.clone() })
    }

    /// Observes the instance of `node` with new requests to the cloud.
    pub(super) async fn observe(&self, node: &Node) -> NodeObservation {
        match self.existence(node).await {
            Existence::Gone => NodeObservation::Gone,
            Existence::Unknown(reason) => NodeObservation::Unknown(reason),
            Existence::Exists => match self.is_shut_down(node).await {
                Ok(true) => NodeObservation::ShutDown,
                Ok(false) if taints::has_shutdown(node) => self.observe_restart(node).await,
                Ok(false) | Err(CloudError::NotImplemented) => NodeObservation::Running,
                Err(error) => NodeObservation::Exists(error.to_string()),
            },
        }
    }

    /// Observes the instance of a Node with the shutdown taint that is no longer shut down.
    async fn observe_restart(&self, node: &Node) -> NodeObservation {
        match self.instances.instance_runs(node).await {
            Ok(true) => NodeObservation::Restarted,
            Ok(false) => NodeObservation::Running,
            Err(error) => NodeObservation::Exists(error.to_string()),
        }
    }

    async fn existence(&self, node: &Node) -> Existence {
        let existence = self.instances.existence(node).await;
        self.count(INSTANCE_EXISTS, existence_label(&existence));
        existence
    }

    async fn is_shut_down(&self, node: &Node) -> CloudResult<bool> {
        let is_shut_down = self.instances.instance_shutdown(node).await;
        self.count(INSTANCE_SHUTDOWN, result_label(&is_shut_down));
        is_shut_down
    }

    fn count(&self, operation: &str, result: &str) {
        self.requests.with_label_values(&[operation, result]).inc();
    }
}

/// Returns the label `result` of the metric.
fn existence_label(existence: &Existence) -> &'static str {
    match existence {
        Existence::Exists => "success",
        Existence::Gone => "instance_not_found",
        Existence::Unknown(_) => "error",
    }
}

/// Returns the label `result` of the metric.
fn result_label<T>(result: &CloudResult<T>) -> &'static str {
    match result {
        Ok(_) => "success",
        Err(CloudError::InstanceNotFound) => "instance_not_found",
        Err(CloudError::NotImplemented) => "not_implemented",
        Err(CloudError::NotLeader(_)) => "canceled",
        Err(_) => "error",
    }
}

#[cfg(test)]
mod tests;

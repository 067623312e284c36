//! Existence and power state of instances, whichever interface the cloud offers.
//!
//! Upstream: `controllers/nodelifecycle/node_lifecycle_controller.go` (`ensureNodeExistsByProviderID`, `shutdownInCloudProvider`).

use k8s_openapi::api::core::v1::Node;

use super::{
    super::{
        names::NODE_LIFECYCLE,
        node::{
            NoInstances,
            metadata::{InstanceInterface, find_provider_id},
        },
    },
    plan::NodeObservation,
};
use crate::{
    cloud_provider::{CloudError, CloudProvider, CloudResult, Existence, Instances, SecondLook},
    metrics::{CounterVec, Metrics},
    node::{provider_id, taints},
};

/// Operations as upstream counts them.
const INSTANCE_EXISTS: &str = "instance_exists";
const INSTANCE_SHUTDOWN: &str = "instance_shutdown";
const INSTANCE_METADATA: &str = "instance_metadata";

/// Source of the states of instances. It counts its requests.
pub(super) struct InstanceStateSource {
    interface: InstanceInterface,
    requests: CounterVec,
}

impl InstanceStateSource {
    /// Returns the source over the interface that `provider` offers.
    pub(super) fn of(provider: &dyn CloudProvider, metrics: &Metrics) -> Result<Self, NoInstances> {
        let interface = InstanceInterface::of(provider, NODE_LIFECYCLE.canonical)?;
        Ok(Self { interface, requests: metrics.node_lifecycle_provider_calls_total.clone() })
    }

    /// Looks afresh at the instance of `node`.
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
        let runs = match &self.interface {
            InstanceInterface::V2(v2) => v2.instance_runs(node).await,
            InstanceInterface::V1 { .. } => Ok(true),
        };
        match runs {
            Ok(true) => NodeObservation::Restarted,
            Ok(false) => NodeObservation::Running,
            Err(error) => NodeObservation::Exists(error.to_string()),
        }
    }

    /// Returns the verdict of a second source on the missing instance of `node`.
    pub(super) async fn second_look(&self, node: &Node) -> SecondLook {
        match &self.interface {
            InstanceInterface::V2(v2) => v2.second_look(node).await,
            InstanceInterface::V1 { .. } => SecondLook::Silent("the cloud provider has no second source".to_owned()),
        }
    }

    /// Returns `true` if a complete list lacks an instance for `node`, which has no provider ID.
    pub(super) async fn is_unlisted(&self, node: &Node) -> bool {
        match &self.interface {
            InstanceInterface::V2(v2) => v2.is_unlisted(node).await.unwrap_or_default(),
            InstanceInterface::V1 { .. } => false,
        }
    }

    async fn existence(&self, node: &Node) -> Existence {
        let existence = match &self.interface {
            InstanceInterface::V2(v2) => v2.existence(node).await,
            InstanceInterface::V1 { instances, provider_name, .. } => {
                match self.find_provider_id(instances.as_ref(), provider_name, node).await {
                    Ok(id) => Existence::from(instances.instance_exists_by_provider_id(&id).await),
                    Err(error) => return Existence::from(Err(error)),
                }
            }
        };
        self.count(INSTANCE_EXISTS, existence_label(&existence));
        existence
    }

    async fn is_shut_down(&self, node: &Node) -> CloudResult<bool> {
        let is_shut_down = match &self.interface {
            InstanceInterface::V2(v2) => v2.instance_shutdown(node).await,
            InstanceInterface::V1 { instances, provider_name, .. } => {
                let id = self.find_provider_id(instances.as_ref(), provider_name, node).await?;
                instances.instance_shutdown_by_provider_id(&id).await
            }
        };
        self.count(INSTANCE_SHUTDOWN, result_label(&is_shut_down));
        is_shut_down
    }

    async fn find_provider_id(&self, instances: &dyn Instances, provider_name: &str, node: &Node) -> CloudResult<String> {
        let id = find_provider_id(instances, provider_name, node).await;
        if provider_id(node).is_none() {
            self.count(INSTANCE_METADATA, result_label(&id));
        }
        id
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

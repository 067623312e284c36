//! Existence and power state of instances, whichever interface the cloud offers.
//!
//! Upstream: `controllers/nodelifecycle/node_lifecycle_controller.go` (`ensureNodeExistsByProviderID`, `shutdownInCloudProvider`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::{super::node::metadata::find_provider_id, plan::NodeObservation};
use crate::{
    cloud_provider::{CloudError, CloudProvider, CloudResult, Existence, Instances, InstancesV2, SecondLook},
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

/// Interface of the provider that returns the states of instances.
enum InstanceInterface {
    V2(Arc<dyn InstancesV2>),
    V1 { instances: Arc<dyn Instances>, provider_name: String },
}

impl InstanceStateSource {
    /// Returns the interface that `provider` offers, preferring the newer one.
    pub(super) fn of(provider: &dyn CloudProvider, metrics: &Metrics) -> Option<Self> {
        let v1 = |instances| InstanceInterface::V1 { instances, provider_name: provider.provider_name().to_owned() };
        let v2 = provider.instances_v2().map(InstanceInterface::V2);
        let interface = v2.or_else(|| provider.instances().map(v1))?;
        Some(Self { interface, requests: metrics.node_lifecycle_provider_calls_total.clone() })
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
        let (instances, provider_name) = match &self.interface {
            InstanceInterface::V1 { instances, provider_name } => (&**instances, provider_name),
            InstanceInterface::V2(v2) => {
                let existence = v2.existence(node).await;
                self.count(INSTANCE_EXISTS, existence_label(&existence));
                return existence;
            }
        };
        let id = match self.find_provider_id(instances, provider_name, node).await {
            Ok(id) => id,
            Err(error) => return existence_of(Err(error)),
        };
        let existence = existence_of(instances.instance_exists_by_provider_id(&id).await);
        self.count(INSTANCE_EXISTS, existence_label(&existence));
        existence
    }

    async fn is_shut_down(&self, node: &Node) -> CloudResult<bool> {
        let is_shut_down = match &self.interface {
            InstanceInterface::V2(v2) => v2.instance_shutdown(node).await,
            InstanceInterface::V1 { instances, provider_name } => {
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

fn existence_of(exists: CloudResult<bool>) -> Existence {
    match exists {
        Ok(true) => Existence::Exists,
        Ok(false) | Err(CloudError::InstanceNotFound) => Existence::Gone,
        Err(error) => Existence::Unknown(error.to_string()),
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

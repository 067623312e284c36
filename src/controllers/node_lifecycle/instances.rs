//! Existence and power state of instances, whichever interface the cloud offers.
//!
//! Upstream: `controllers/nodelifecycle/node_lifecycle_controller.go` (`ensureNodeExistsByProviderID`, `shutdownInCloudProvider`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::{super::node::metadata::find_provider_id, plan::NodeObservation};
use crate::{
    cloud_provider::{CloudError, CloudProvider, CloudResult, Existence, Instances, InstancesV2, SecondLook},
    node::taints,
};

/// Interface of the provider that returns the states of instances.
pub(super) enum InstanceStateSource {
    V2(Arc<dyn InstancesV2>),
    V1 { instances: Arc<dyn Instances>, provider_name: String },
}

impl InstanceStateSource {
    /// Returns the interface that `provider` offers, preferring the newer one.
    pub(super) fn of(provider: &dyn CloudProvider) -> Option<Self> {
        if let Some(v2) = provider.instances_v2() {
            return Some(InstanceStateSource::V2(v2));
        }
        let instances = provider.instances()?;
        Some(InstanceStateSource::V1 { instances, provider_name: provider.provider_name().to_owned() })
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
        let runs = match self {
            InstanceStateSource::V2(v2) => v2.instance_runs(node).await,
            InstanceStateSource::V1 { .. } => Ok(true),
        };
        match runs {
            Ok(true) => NodeObservation::Restarted,
            Ok(false) => NodeObservation::Running,
            Err(error) => NodeObservation::Exists(error.to_string()),
        }
    }

    /// Returns the verdict of a second source on the missing instance of `node`.
    pub(super) async fn second_look(&self, node: &Node) -> SecondLook {
        match self {
            InstanceStateSource::V2(v2) => v2.second_look(node).await,
            InstanceStateSource::V1 { .. } => SecondLook::Silent("the cloud provider has no second source".to_owned()),
        }
    }

    /// Returns `true` if a complete list lacks an instance for `node`, which has no provider ID.
    pub(super) async fn is_unlisted(&self, node: &Node) -> bool {
        match self {
            InstanceStateSource::V2(v2) => v2.is_unlisted(node).await.unwrap_or_default(),
            InstanceStateSource::V1 { .. } => false,
        }
    }

    async fn existence(&self, node: &Node) -> Existence {
        let exists = match self {
            InstanceStateSource::V2(v2) => return v2.existence(node).await,
            InstanceStateSource::V1 { instances, provider_name } => {
                match find_provider_id(instances.as_ref(), provider_name, node).await {
                    Ok(id) => instances.instance_exists_by_provider_id(&id).await,
                    Err(error) => Err(error),
                }
            }
        };
        match exists {
            Ok(true) => Existence::Exists,
            Ok(false) | Err(CloudError::InstanceNotFound) => Existence::Gone,
            Err(error) => Existence::Unknown(error.to_string()),
        }
    }

    async fn is_shut_down(&self, node: &Node) -> CloudResult<bool> {
        match self {
            InstanceStateSource::V2(v2) => v2.instance_shutdown(node).await,
            InstanceStateSource::V1 { instances, provider_name } => {
                let id = find_provider_id(instances.as_ref(), provider_name, node).await?;
                instances.instance_shutdown_by_provider_id(&id).await
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Fake cloud with state, for tests, demonstrations and authors of providers.
//!
//! In: YAML (`--cloud-config`, see `docs/guides/fake-provider.md`) or a [`FakeConfig`]. Out: a [`FakeCloud`], a complete
//! [`CloudProvider`] that stores its resources, records calls, and is slow, fails, hangs or crashes on request. Load
//! balancers are created and removed in several steps, as in real clouds, so that a crash can interrupt the work between any
//! two steps.

mod call_log;
mod calls;
mod cloud;
mod config;
mod control;
mod instances;
mod load_balancer;
mod reload;
mod routes;
mod state;
mod state_file;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;

pub use call_log::RecordedCall;
pub use calls::{CallBehavior, CallName, FakeErrorClass};
pub use cloud::FakeCloud;
pub use config::{
    FakeConfig, FakeLoadBalancerConfig, FakeRouteConfig, GeneratedInstances, InstancePresence, InstanceSpec, PROVIDER_NAME,
    PowerState,
};
pub use state::{FakeLoadBalancer, FakePort, FakeRoute};

use crate::cloud_provider::{
    CloudProvider, CloudResult, Instances, InstancesV2, LoadBalancer, LocalConfig, PodCidrMasks, ProviderContext, Routes,
    Zones, registry::ProviderConfig,
};

/// Builds the provider for [`crate::cloud_provider::Registry`].
pub fn factory(config: &ProviderConfig) -> CloudResult<Arc<dyn CloudProvider>> {
    let cloud = match &config.cloud_config {
        Some(path) => FakeCloud::from_file(path)?,
        None => FakeCloud::new(FakeConfig::any_node()),
    };
    Ok(Arc::new(cloud))
}

/// Builds the provider for a manager that runs on one Node and serves this Node only.
pub fn local_factory(config: &LocalConfig) -> CloudResult<Arc<dyn CloudProvider>> {
    factory(&ProviderConfig { cloud_config: config.cloud_config.clone(), ..ProviderConfig::default() })
}

#[async_trait]
impl CloudProvider for FakeCloud {
    fn provider_name(&self) -> &str {
        PROVIDER_NAME
    }

    fn has_cluster_id(&self) -> bool {
        !self.inner().config.cluster_id.is_empty()
    }

    /// Stores the leadership, and starts the task that reloads the configuration file when it changes.
    async fn initialize(&self, context: ProviderContext) -> CloudResult<()> {
        self.read_call(CallName::Initialize, "", |_| Ok(())).await?;
        // An unusable state file fails the start instead of the first call.
        self.with_state(|_, _| Ok(()))?;
        *self.leadership.lock() = Some(context.leadership);
        if self.cloud.path.is_some() {
            context.shutdown.spawn(reload::follow(self.clone(), context.shutdown.clone()));
        }
        Ok(())
    }

    /// Returns `true` for the labels that configured instances give their Nodes.
    fn reads_node_label(&self, key: &str) -> bool {
        let config = &self.inner().config;
        let generated = config.generated_instances.iter().map(|generated| &generated.template);
        generated.chain(config.instances.values()).any(|instance| instance.labels.contains_key(key))
    }

    fn refuses_cluster(&self, nodes: &[Arc<Node>]) -> Option<String> {
        self.inner().config.foreign_node(nodes)
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        self.inner().config.load_balancers.enabled.then(|| Arc::new(self.clone()) as Arc<dyn LoadBalancer>)
    }

    fn instances(&self) -> Option<Arc<dyn Instances>> {
        (!self.inner().config.instances_v2).then(|| Arc::new(self.clone()) as Arc<dyn Instances>)
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        self.inner().config.instances_v2.then(|| Arc::new(self.clone()) as Arc<dyn InstancesV2>)
    }

    fn zones(&self) -> Option<Arc<dyn Zones>> {
        (!self.inner().config.instances_v2).then(|| Arc::new(self.clone()) as Arc<dyn Zones>)
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        self.inner().config.routes.enabled.then(|| Arc::new(self.clone()) as Arc<dyn Routes>)
    }

    fn pod_cidr_masks(&self) -> Option<Arc<dyn PodCidrMasks>> {
        Some(Arc::new(self.clone()))
    }
}

/// Compiles and runs the guide's example.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guides/fake-provider.md")]
struct Guide;

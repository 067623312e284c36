//! The fake provider.

use std::sync::Arc;

use async_trait::async_trait;
use cloud_controller_manager::{
    cloud_provider::{CloudError, CloudProvider, CloudResult, conformance::CloudFixture},
    providers::fake::{CallName, FakeCloud, FakeConfig, InstanceSpec, PowerState},
};
use k8s_openapi::api::core::v1::Node;
use serde_json::{from_value, json};

struct Fake(FakeCloud);

#[async_trait]
impl CloudFixture for Fake {
    async fn provider(&self) -> CloudResult<Arc<dyn CloudProvider>> {
        Ok(Arc::new(self.0.replica()))
    }

    async fn add_machine(&self, name: &str) -> CloudResult<Node> {
        self.0.add_instance(name, InstanceSpec::default());
        Ok(from_value(json!({"metadata": {"name": name}})).unwrap())
    }

    async fn remove_machine(&self, node: &Node) -> CloudResult<()> {
        self.0.remove_instance(node.metadata.name.as_deref().unwrap());
        Ok(())
    }

    async fn stop_machine(&self, node: &Node) -> CloudResult<()> {
        self.0.set_power(node.metadata.name.as_deref().unwrap(), PowerState::Stopped);
        Ok(())
    }

    async fn set_outage(&self, on: bool) -> CloudResult<()> {
        self.0.fail_next(CallName::InstanceExists, &CloudError::failed("down"), usize::from(on));
        Ok(())
    }

    async fn contents(&self) -> String {
        format!("{:#?}\n{:#?}", self.0.load_balancers(), self.0.routes())
    }
}

#[tokio::test(start_paused = true)]
async fn the_fake_provider_conforms() {
    super::conforms(&Fake(FakeCloud::new(FakeConfig::default())), &[]).await;
}

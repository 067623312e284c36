//! The example of `docs/guides/writing-a-provider.md`.

#[path = "../../docs/guides/example-provider/provider.rs"]
#[allow(unreachable_pub, reason = "the example is a file of a crate of its own")]
pub(crate) mod provider;

use std::sync::Arc;

use async_trait::async_trait;
use cloud_controller_manager::cloud_provider::{
    CloudProvider, CloudResult, ProviderContext, Registry, conformance::CloudFixture,
};
use k8s_openapi::api::core::v1::Node;
use provider::{Api, Example, Machine};
use serde_json::{from_value, json};

/// Function that replaces the provider of the example.
type Wrapper = Box<dyn Fn(Arc<dyn CloudProvider>) -> Arc<dyn CloudProvider> + Send + Sync>;

#[derive(Default)]
pub(crate) struct ExampleCloud {
    pub(crate) api: Api,
    pub(crate) wrapper: Option<Wrapper>,
}

fn name_of(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap()
}

#[async_trait]
impl CloudFixture for ExampleCloud {
    async fn provider(&self) -> CloudResult<Arc<dyn CloudProvider>> {
        let provider: Arc<dyn CloudProvider> = Arc::new(Example::new(self.api.clone(), "north"));
        Ok(match &self.wrapper {
            Some(wrapper) => wrapper(provider),
            None => provider,
        })
    }

    fn context(&self, context: ProviderContext) -> ProviderContext {
        provider::register(Registry::new()).register_metrics(&context.metrics).unwrap();
        context
    }

    async fn add_machine(&self, name: &str) -> CloudResult<Node> {
        let machine = Machine { size: "small".to_owned(), address: "10.0.0.4".to_owned(), is_running: true };
        self.api.contents().machines.insert(name.to_owned(), machine);
        Ok(from_value(json!({"metadata": {"name": name}})).unwrap())
    }

    async fn remove_machine(&self, node: &Node) -> CloudResult<()> {
        self.api.contents().machines.remove(name_of(node));
        Ok(())
    }

    async fn stop_machine(&self, node: &Node) -> CloudResult<()> {
        self.api.contents().machines.get_mut(name_of(node)).unwrap().is_running = false;
        Ok(())
    }

    async fn set_outage(&self, on: bool) -> CloudResult<()> {
        self.api.contents().is_down = on;
        Ok(())
    }

    async fn contents(&self) -> String {
        let contents = self.api.contents();
        format!("{:#?}\n{:#?}", contents.balancers, contents.routes)
    }
}

#[tokio::test(start_paused = true)]
async fn the_example_conforms() {
    super::conforms(&ExampleCloud::default(), &["a_plan_writes_nothing"]).await;
}

//! The Azure provider in the simulated Azure.

#[path = "../support/documents.rs"]
#[allow(dead_code)]
mod comparable;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use cloud_controller_manager::{
    cloud_provider::{
        CloudError, CloudProvider, CloudResult, ProviderContext, conformance::CloudFixture, registry::ProviderConfig,
    },
    providers::{self, azure::AzureCloud},
    runtime::clock::Clock,
    sandbox::{
        api_server::ApiServer,
        azure::{
            AzureOptions,
            topology::{Pool, PoolKind, Power, Topology},
            world::World,
        },
    },
};
use k8s_openapi::api::core::v1::Node;

const POOL: &str = "workers";

/// Simulated Azure, and the API server with the Lease that AKS and this program share.
struct AzureFixture {
    simulation: World,
    server: ApiServer,
}

impl AzureFixture {
    fn of(kind: PoolKind) -> Self {
        let topology = Topology::new().pool(Pool::new(kind, POOL, 1));
        let simulation = World::new(topology, AzureOptions::default(), Clock::System).unwrap();
        Self { simulation, server: ApiServer::new(Clock::System) }
    }
}

fn name_of(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap()
}

#[async_trait]
impl CloudFixture for AzureFixture {
    async fn provider(&self) -> CloudResult<Arc<dyn CloudProvider>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("azure.json");
        std::fs::write(&file, self.simulation.config().to_string()).unwrap();
        let config =
            ProviderConfig { cloud_config: Some(file), cluster_name: "kubernetes".into(), ..ProviderConfig::default() };
        Ok(Arc::new(AzureCloud::new(&config, BTreeMap::new(), self.simulation.azure().transport())?))
    }

    fn context(&self, context: ProviderContext) -> ProviderContext {
        providers::registry().register_metrics(&context.metrics).unwrap();
        ProviderContext { client: self.server.client(), ..context }
    }

    async fn add_machine(&self, _name: &str) -> CloudResult<Node> {
        let names = self.simulation.scale_out(POOL, 1).map_err(|error| CloudError::failed(error.to_string()))?;
        self.simulation.uninitialized_node(&names[0]).map_err(|error| CloudError::failed(error.to_string()))
    }

    async fn remove_machine(&self, node: &Node) -> CloudResult<()> {
        self.simulation.delete_machine(name_of(node)).map_err(|error| CloudError::failed(error.to_string()))
    }

    async fn stop_machine(&self, node: &Node) -> CloudResult<()> {
        self.simulation.set_power(name_of(node), Power::Stopped).map_err(|error| CloudError::failed(error.to_string()))
    }

    async fn set_outage(&self, on: bool) -> CloudResult<()> {
        self.simulation.azure().faults().set_down(on);
        Ok(())
    }

    async fn contents(&self) -> String {
        format!("{:#?}", comparable::unordered(self.simulation.azure().dump()))
    }
}

#[tokio::test(start_paused = true)]
async fn azure_conforms_with_scale_sets() {
    super::conforms(&AzureFixture::of(PoolKind::Uniform), &[]).await;
}

#[tokio::test(start_paused = true)]
async fn azure_conforms_with_an_availability_set() {
    super::conforms(&AzureFixture::of(PoolKind::AvailabilitySet), &[]).await;
}

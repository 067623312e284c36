//! Providers with one fault each, which the suite finds.

use std::sync::Arc;

use async_trait::async_trait;
use cloud_controller_manager::cloud_provider::{
    CloudError, CloudProvider, CloudResult, InstanceMetadata, InstancesV2, LoadBalancer, LoadBalancerStatus,
    ProviderContext,
    conformance::{CheckOutcome, check},
};
use k8s_openapi::api::core::v1::{Node, Service};

use super::example::ExampleCloud;

/// Fault of the provider.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// An outage is reported as "no such machine".
    OutageIsGone,
    /// A deletion leaves the load balancer.
    LeavesBalancer,
    /// Every ensure creates a new load balancer.
    NewEachTime,
    /// A Node of another cloud is reported as missing.
    ForeignIsGone,
}

struct FaultyProvider {
    correct: Arc<dyn CloudProvider>,
    cloud: super::example::provider::Api,
    fault: Fault,
}

#[async_trait]
impl CloudProvider for FaultyProvider {
    fn provider_name(&self) -> &str {
        self.correct.provider_name()
    }
    async fn initialize(&self, context: ProviderContext) -> CloudResult<()> {
        self.correct.initialize(context).await
    }
    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(FaultyPart { correct: self.correct.instances_v2()?, fault: self.fault }))
    }
    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        let correct = self.correct.load_balancer()?;
        Some(Arc::new(FaultyBalancer { correct, cloud: self.cloud.clone(), fault: self.fault }))
    }
}

struct FaultyPart {
    correct: Arc<dyn InstancesV2>,
    fault: Fault,
}

#[async_trait]
impl InstancesV2 for FaultyPart {
    async fn instance_exists(&self, node: &Node) -> CloudResult<bool> {
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
        match self.correct.instance_exists(node).await {
            Err(_) if self.fault == Fault::OutageIsGone => Ok(false),
            _ if self.fault == Fault::ForeignIsGone && provider_id.starts_with("another-cloud") => Ok(false),
            result => result,
        }
    }
    async fn instance_shutdown(&self, node: &Node) -> CloudResult<bool> {
        self.correct.instance_shutdown(node).await
    }
    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>> {
        self.correct.instance_metadata(node).await
    }
}

struct FaultyBalancer {
    correct: Arc<dyn LoadBalancer>,
    cloud: super::example::provider::Api,
    fault: Fault,
}

#[async_trait]
impl LoadBalancer for FaultyBalancer {
    async fn get_load_balancer(&self, cluster: &str, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        self.correct.get_load_balancer(cluster, service).await
    }
    async fn ensure_load_balancer(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus> {
        let status = self.correct.ensure_load_balancer(cluster, service, nodes).await?;
        if self.fault == Fault::NewEachTime {
            let name = self.correct.get_load_balancer_name(cluster, service);
            let mut contents = self.cloud.contents();
            let balancer = contents.balancers.get(&name).cloned().ok_or(CloudError::InstanceNotFound)?;
            let number = contents.balancers.len();
            contents.balancers.insert(format!("{name}-{number}"), balancer);
        }
        Ok(status)
    }
    async fn update_load_balancer(&self, cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<()> {
        self.correct.update_load_balancer(cluster, service, nodes).await
    }
    async fn ensure_load_balancer_deleted(&self, cluster: &str, service: &Service) -> CloudResult<()> {
        if self.fault == Fault::LeavesBalancer {
            return Ok(());
        }
        self.correct.ensure_load_balancer_deleted(cluster, service).await
    }
}

async fn failures(fault: Fault) -> Vec<&'static str> {
    let cloud = ExampleCloud::default();
    let api = cloud.api.clone();
    let wrapper =
        move |correct| -> Arc<dyn CloudProvider> { Arc::new(FaultyProvider { correct, cloud: api.clone(), fault }) };
    let report = check(&ExampleCloud { wrapper: Some(Box::new(wrapper)), ..cloud }).await;
    let failed = report.checks.into_iter().filter(|(_, outcome)| matches!(outcome, CheckOutcome::Failed(_)));
    failed.map(|(name, _)| name).collect()
}

#[tokio::test(start_paused = true)]
async fn the_suite_finds_each_fault() {
    assert_eq!(failures(Fault::OutageIsGone).await, ["an_outage_proves_nothing"]);
    assert_eq!(failures(Fault::ForeignIsGone).await, ["a_node_of_another_cloud_is_not_gone"]);
    for fault in [Fault::LeavesBalancer, Fault::NewEachTime] {
        let failed = failures(fault).await;
        assert!(failed.contains(&"a_deleted_load_balancer_leaves_no_trace"), "{failed:?}");
        assert!(failed.contains(&"an_interrupted_delete_is_completed"), "{failed:?}");
    }
    assert!(failures(Fault::NewEachTime).await.contains(&"another_ensure_changes_nothing"));
}

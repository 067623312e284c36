//! Providers with one fault each: the suite names it.

use std::sync::Arc;

use async_trait::async_trait;
use cloud_controller_manager::cloud_provider::{
    CloudError, CloudProvider, CloudResult, InstanceMetadata, InstancesV2, LoadBalancer, LoadBalancerStatus,
    ProviderContext,
    conformance::{CheckOutcome, check},
};
use k8s_openapi::api::core::v1::{Node, Service};

use super::example::ExampleCloud;

/// What the provider does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// An outage is taken for "no such machine".
    OutageIsGone,
    /// A deletion forgets the load balancer of another name.
    LeavesBalancer,
    /// Every ensure makes a new load balancer.
    NewEachTime,
    /// A Node of another cloud does not exist.
    ForeignIsGone,
}

struct FaultyProvider {
    right: Arc<dyn CloudProvider>,
    cloud: super::example::provider::Api,
    fault: Fault,
}

#[async_trait]
impl CloudProvider for FaultyProvider {
    fn provider_name(&self) -> &str {
        self.right.provider_name()
    }
    async fn initialize(&self, context: ProviderContext) -> CloudResult<()> {
        self.right.initialize(context).await
    }
    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(FaultyPart { right: self.right.instances_v2()?, fault: self.fault }))
    }
    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        let right = self.right.load_balancer()?;
        Some(Arc::new(FaultyBalancer { right, cloud: self.cloud.clone(), fault: self.fault }))
    }
}

struct FaultyPart {
    right: Arc<dyn InstancesV2>,
    fault: Fault,
}

#[async_trait]
impl InstancesV2 for FaultyPart {
    async fn instance_exists(&self, node: &Node) -> CloudResult<bool> {
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
        match self.right.instance_exists(node).await {
            Err(_) if self.fault == Fault::OutageIsGone => Ok(false),
            _ if self.fault == Fault::ForeignIsGone && provider_id.starts_with("another-cloud") => Ok(false),
            answer => answer,
        }
    }
    async fn instance_shutdown(&self, node: &Node) -> CloudResult<bool> {
        self.right.instance_shutdown(node).await
    }
    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>> {
        self.right.instance_metadata(node).await
    }
}

struct FaultyBalancer {
    right: Arc<dyn LoadBalancer>,
    cloud: super::example::provider::Api,
    fault: Fault,
}

#[async_trait]
impl LoadBalancer for FaultyBalancer {
    async fn get_load_balancer(&self, cluster: &str, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        self.right.get_load_balancer(cluster, service).await
    }
    async fn ensure_load_balancer(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus> {
        let status = self.right.ensure_load_balancer(cluster, service, nodes).await?;
        if self.fault == Fault::NewEachTime {
            let name = self.right.get_load_balancer_name(cluster, service);
            let mut contents = self.cloud.contents();
            let made = contents.balancers.get(&name).cloned().ok_or(CloudError::InstanceNotFound)?;
            let number = contents.balancers.len();
            contents.balancers.insert(format!("{name}-{number}"), made);
        }
        Ok(status)
    }
    async fn update_load_balancer(&self, cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<()> {
        self.right.update_load_balancer(cluster, service, nodes).await
    }
    async fn ensure_load_balancer_deleted(&self, cluster: &str, service: &Service) -> CloudResult<()> {
        if self.fault == Fault::LeavesBalancer {
            return Ok(());
        }
        self.right.ensure_load_balancer_deleted(cluster, service).await
    }
}

async fn failures(fault: Fault) -> Vec<&'static str> {
    let cloud = ExampleCloud::default();
    let api = cloud.api.clone();
    let wrapper = move |right| -> Arc<dyn CloudProvider> { Arc::new(FaultyProvider { right, cloud: api.clone(), fault }) };
    let report = check(&ExampleCloud { wrapper: Some(Box::new(wrapper)), ..cloud }).await;
    let failed = report.checks.into_iter().filter(|(_, outcome)| matches!(outcome, CheckOutcome::Failed(_)));
    failed.map(|(name, _)| name).collect()
}

#[tokio::test(start_paused = true)]
async fn the_suite_finds_what_is_wrong() {
    assert_eq!(failures(Fault::OutageIsGone).await, ["an_outage_proves_nothing"]);
    assert_eq!(failures(Fault::ForeignIsGone).await, ["a_node_of_another_cloud_is_not_gone"]);
    for fault in [Fault::LeavesBalancer, Fault::NewEachTime] {
        let failed = failures(fault).await;
        assert!(failed.contains(&"a_load_balancer_comes_and_goes_without_a_trace"), "{failed:?}");
        assert!(failed.contains(&"an_interrupted_delete_is_completed"), "{failed:?}");
    }
    assert!(failures(Fault::NewEachTime).await.contains(&"another_ensure_changes_nothing"));
}

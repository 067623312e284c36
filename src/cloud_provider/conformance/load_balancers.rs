//! Checks of [`LoadBalancer`]. In: a fixture. Out: whether load balancers are created, kept and deleted as their Services
//! require.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, Service};

use super::{
    CLUSTER, CloudFixture,
    objects::{deleted, shared},
    process::Process,
    report::{AtStep, CheckResult, require},
};
use crate::cloud_provider::{LoadBalancer, ServiceDemand};

/// Two machines, a process that has their Nodes and the Services cached, and the contents of the cloud without load
/// balancers.
pub(super) struct LoadBalancerSetting {
    pub(super) nodes: Vec<Node>,
    pub(super) hosts: Vec<Arc<Node>>,
    pub(super) process: Process,
    pub(super) balancer: Arc<dyn LoadBalancer>,
    pub(super) before: String,
}

impl LoadBalancerSetting {
    pub(super) async fn new(fixture: &dyn CloudFixture, services: &[Service]) -> CheckResult<Self> {
        let mut nodes = Vec::new();
        for name in ["host-a", "host-b"] {
            let node = fixture.add_machine(name).await.at("add_machine")?;
            nodes.push(initialized(fixture, node).await?);
        }
        let process = Process::start(fixture, &nodes, services).await?;
        let (balancer, before) = (process.load_balancer()?, fixture.contents().await);
        Ok(Self { hosts: shared(&nodes), nodes, process, balancer, before })
    }

    pub(super) async fn ensure(&self, service: &Service) -> CheckResult<LoadBalancerStatus> {
        let status = self.balancer.ensure_load_balancer(CLUSTER, service, &self.hosts).await;
        let status = status.at("ensure_load_balancer")?;
        let served = status.ingress.as_ref().is_some_and(|ingress| !ingress.is_empty());
        require(served, || "ensure_load_balancer succeeded, but its status has no address".to_owned())?;
        Ok(status)
    }

    pub(super) async fn delete(&self, service: &Service) -> CheckResult {
        self.balancer.ensure_load_balancer_deleted(CLUSTER, &deleted(service)).await.at("ensure_load_balancer_deleted")
    }

    async fn found(&self, service: &Service) -> CheckResult<Option<LoadBalancerStatus>> {
        self.balancer.get_load_balancer(CLUSTER, service).await.at("get_load_balancer")
    }

    /// Checks that neither `get_load_balancer` nor the cloud has anything of `service`.
    pub(super) async fn require_no_trace(&self, fixture: &dyn CloudFixture, service: &Service) -> CheckResult {
        let found = self.found(service).await?;
        require(found.is_none(), || format!("get_load_balancer returned {found:?} after the deletion"))?;
        let after = fixture.contents().await;
        require(after == self.before, || format!("leftover: {}", first_difference(&self.before, &after)))
    }

    /// Returns the setting with a new process.
    pub(super) async fn restarted(self, fixture: &dyn CloudFixture, services: &[Service]) -> CheckResult<Self> {
        let Self { nodes, hosts, process, before, .. } = self;
        drop(process);
        let process = Process::start(fixture, &nodes, services).await?;
        let balancer = process.load_balancer()?;
        Ok(Self { nodes, hosts, process, balancer, before })
    }
}

async fn initialized(fixture: &dyn CloudFixture, node: Node) -> CheckResult<Node> {
    let process = Process::start(fixture, std::slice::from_ref(&node), &[]).await?;
    let Ok(instances) = process.instances() else { return Ok(node) };
    let found = instances.instance_metadata(&node).await.at("instance_metadata")?;
    Ok(found.map_or(node.clone(), |found| {
        let mut node = super::objects::with_provider_id(&node, &found.provider_id);
        let addresses = found.node_addresses.iter().map(|address| k8s_openapi::api::core::v1::NodeAddress {
            type_: address.type_.to_string(),
            address: address.address.clone(),
        });
        node.status.get_or_insert_default().addresses = Some(addresses.collect());
        node
    }))
}

fn first_difference(before: &str, after: &str) -> String {
    let line = after.lines().find(|line| !before.lines().any(|earlier| earlier == *line));
    line.map_or_else(|| "lines are missing".to_owned(), |line| line.chars().take(300).collect())
}

pub(super) async fn a_deleted_load_balancer_leaves_no_trace(fixture: &dyn CloudFixture) -> CheckResult {
    let service = fixture.service("once", 1);
    let setting = LoadBalancerSetting::new(fixture, std::slice::from_ref(&service)).await?;
    let found = setting.found(&service).await?;
    require(found.is_none(), || format!("get_load_balancer returned {found:?} before the creation"))?;
    let status = setting.ensure(&service).await?;
    let found = setting.found(&service).await?;
    require(found.as_ref() == Some(&status), || {
        format!("ensure_load_balancer returned {status:?}, get_load_balancer {found:?}")
    })?;
    setting.delete(&service).await?;
    setting.require_no_trace(fixture, &service).await?;
    setting.delete(&service).await?;
    setting.require_no_trace(fixture, &service).await
}

pub(super) async fn another_ensure_changes_nothing(fixture: &dyn CloudFixture) -> CheckResult {
    let service = fixture.service("twice", 2);
    let setting = LoadBalancerSetting::new(fixture, std::slice::from_ref(&service)).await?;
    let (first, contents) = (setting.ensure(&service).await?, fixture.contents().await);
    let (second, after) = (setting.ensure(&service).await?, fixture.contents().await);
    require(first == second, || format!("the first call returned {first:?}, the second {second:?}"))?;
    require(contents == after, || format!("changed: {}", first_difference(&contents, &after)))?;
    setting.delete(&service).await?;
    setting.require_no_trace(fixture, &service).await
}

pub(super) async fn another_process_continues(fixture: &dyn CloudFixture) -> CheckResult {
    let service = fixture.service("inherited", 3);
    let services = std::slice::from_ref(&service);
    let setting = LoadBalancerSetting::new(fixture, services).await?;
    let (status, contents) = (setting.ensure(&service).await?, fixture.contents().await);
    let setting = setting.restarted(fixture, services).await?;
    let found = setting.found(&service).await?;
    require(found.as_ref() == Some(&status), || {
        format!("ensure_load_balancer returned {status:?}, get_load_balancer of the next process {found:?}")
    })?;
    let second = setting.ensure(&service).await?;
    require(status == second, || format!("the first process returned {status:?}, the next {second:?}"))?;
    let after = fixture.contents().await;
    require(contents == after, || format!("the next process changed: {}", first_difference(&contents, &after)))?;
    let setting = setting.restarted(fixture, &[deleted(&service)]).await?;
    setting.delete(&service).await?;
    setting.require_no_trace(fixture, &service).await
}

pub(super) async fn services_are_independent(fixture: &dyn CloudFixture) -> CheckResult {
    let services: Vec<Service> = (10..20).map(|number| fixture.service(&format!("many-{number}"), number)).collect();
    let setting = LoadBalancerSetting::new(fixture, &services).await?;
    let shared_setting = &setting;
    let ensured = futures::future::join_all(services.iter().map(|service| shared_setting.ensure(service))).await;
    let (mut statuses, half) = (Vec::new(), services.len() / 2);
    for status in ensured {
        statuses.push(status?);
    }
    let (deleted_services, retained_services) = services.split_at(half);
    futures::future::try_join_all(deleted_services.iter().map(|service| shared_setting.delete(service))).await?;
    for (service, status) in retained_services.iter().zip(statuses.split_off(half)) {
        let found = setting.found(service).await?;
        require(found.as_ref() == Some(&status), || {
            format!("{status:?} became {found:?} when other Services were deleted")
        })?;
    }
    futures::future::try_join_all(retained_services.iter().map(|service| shared_setting.delete(service))).await?;
    setting.require_no_trace(fixture, &services[0]).await
}

pub(super) async fn hosts_follow(fixture: &dyn CloudFixture) -> CheckResult {
    let service = fixture.service("hosts", 4);
    let setting = LoadBalancerSetting::new(fixture, std::slice::from_ref(&service)).await?;
    let status = setting.ensure(&service).await?;
    let both = fixture.contents().await;
    for hosts in [&setting.hosts[..1], &setting.hosts[..]] {
        setting.balancer.update_load_balancer(CLUSTER, &service, hosts).await.at("update_load_balancer")?;
    }
    let after = fixture.contents().await;
    require(both == after, || format!("removing and adding a host changed: {}", first_difference(&both, &after)))?;
    let found = setting.found(&service).await?;
    require(found.as_ref() == Some(&status), || format!("{status:?} became {found:?} with the hosts"))?;
    setting.delete(&service).await?;
    setting.require_no_trace(fixture, &service).await
}

pub(super) async fn a_plan_writes_nothing(fixture: &dyn CloudFixture) -> CheckResult {
    let service = fixture.service("planned", 5);
    let setting = LoadBalancerSetting::new(fixture, std::slice::from_ref(&service)).await?;
    let demand = ServiceDemand {
        to_ensure: vec![Arc::new(service.clone())],
        nodes: setting.hosts.clone(),
        ..ServiceDemand::default()
    };
    let plan = async || setting.balancer.plan_services(CLUSTER, &demand).await;
    let planned = plan().await.at("plan_services")?.writes;
    require(!planned.writes.is_empty(), || format!("the plan of a new load balancer is empty: {planned:?}"))?;
    setting.require_no_trace(fixture, &service).await?;
    setting.ensure(&service).await?;
    let planned = plan().await.at("plan_services")?.writes;
    require(!planned.has_changes(), || format!("the plan is not empty after ensure_load_balancer: {planned:?}"))?;
    setting.delete(&service).await?;
    setting.require_no_trace(fixture, &service).await
}

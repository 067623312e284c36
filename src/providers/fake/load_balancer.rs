//! Load balancers of a fake cloud: the desired load balancer of a Service, applied step by step.

use std::{net::IpAddr, sync::Arc};

use async_trait::async_trait;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Service, ServicePort};

use super::{
    FakeCloud,
    calls::CallName,
    state::{FakeCloudState, FakeCloudStep, FakeIpFamily, FakeLoadBalancer, FakeLoadBalancerSpec, FakePort},
};
use crate::cloud_provider::{
    CloudError, CloudResult, LoadBalancer, LoadBalancerIngress, LoadBalancerStatus, PlannedWrite, ServiceDemand,
    ServicesPlan,
    write_plan::{DELETE, PUT},
};

/// Returns `namespace/name`, the subject of recorded calls.
pub(super) fn service_key(service: &Service) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&service.metadata.namespace), part(&service.metadata.name))
}

fn load_balancer_spec(
    name: String,
    cluster: &str,
    service: &Service,
    nodes: &[Arc<Node>],
) -> CloudResult<FakeLoadBalancerSpec> {
    if service.metadata.uid.as_deref().unwrap_or_default().is_empty() {
        return Err(CloudError::refused(format!(
            "Service {} has no metadata.uid, from which the name of its load balancer is derived",
            service_key(service)
        )));
    }
    let spec = service.spec.clone().unwrap_or_default();
    let requested = match spec.load_balancer_ip.as_deref().filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => {
            let invalid = |_| CloudError::refused(format!("spec.loadBalancerIP: {text:?} is not an IP address"));
            Some(text.parse::<IpAddr>().map_err(invalid)?)
        }
    };
    let families = spec.ip_families.unwrap_or_default();
    let families =
        families.iter().map(|family| if family == "IPv6" { FakeIpFamily::V6 } else { FakeIpFamily::V4 }).collect();
    let ports = spec.ports.unwrap_or_default().iter().map(port).collect();
    Ok(FakeLoadBalancerSpec {
        name,
        cluster: cluster.to_owned(),
        service: service_key(service),
        families,
        requested,
        ports,
        hosts: hosts(nodes),
    })
}

fn port(port: &ServicePort) -> FakePort {
    let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
    FakePort { protocol, port: port.port, node_port: port.node_port.unwrap_or_default() }
}

fn hosts(nodes: &[Arc<Node>]) -> Vec<String> {
    let mut hosts: Vec<String> = nodes.iter().filter_map(|node| node.metadata.name.clone()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

/// Refuses a Service whose status has addresses, none of which this cloud published.
fn refuse_foreign_address(pool: &[IpNet], state: &FakeCloudState, name: &str, service: &Service) -> CloudResult<()> {
    let is_own = |ingress: &LoadBalancerIngress| {
        let address = ingress.ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok());
        address.is_some_and(|address| {
            pool.iter().any(|range| range.contains(&address))
                || state.addresses.get(&address).is_some_and(|owner| owner == name)
        })
    };
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let listed = || status.iter().flat_map(|status| status.ingress.iter().flatten());
    let Some(foreign) = listed().next().filter(|_| !listed().any(is_own)) else { return Ok(()) };
    let shown: String =
        foreign.ip.iter().chain(&foreign.hostname).next().into_iter().flat_map(|text| text.chars()).take(64).collect();
    Err(CloudError::refused(format!(
        "Service {} has the address {shown:?} in status.loadBalancer, which the fake cloud did not publish: set --cloud-provider to the \
         cloud that did, or add its range to loadBalancers.addressPool",
        service_key(service)
    )))
}

/// Returns the status of a load balancer; `None` if neither it nor an address of it exists.
///
/// Leftover addresses count as an existing load balancer, so that a deletion is not skipped.
fn status(state: &FakeCloudState, name: &str) -> Option<LoadBalancerStatus> {
    let existing = state.load_balancers.get(name);
    if existing.is_none() && state.owned_by(name).next().is_none() {
        return None;
    }
    let addresses = existing.map(|lb: &FakeLoadBalancer| lb.addresses.clone()).unwrap_or_default();
    let ingress = |address: IpAddr| LoadBalancerIngress { ip: Some(address.to_string()), ..LoadBalancerIngress::default() };
    Some(LoadBalancerStatus { ingress: Some(addresses.into_iter().map(ingress).collect()) })
}

#[async_trait]
impl LoadBalancer for FakeCloud {
    async fn get_load_balancer(&self, cluster: &str, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        let name = self.get_load_balancer_name(cluster, service);
        let body = async { self.with_state(|_, state| Ok(status(state, &name))) };
        self.call(CallName::GetLoadBalancer, &service_key(service), body).await
    }

    async fn ensure_load_balancer(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus> {
        let name = self.get_load_balancer_name(cluster, service);
        let key = service_key(service);
        let body = async {
            let desired = load_balancer_spec(name.clone(), cluster, service, nodes)?;
            self.with_state(|config, state| {
                refuse_foreign_address(&config.load_balancers.address_pool, state, &name, service)
            })?;
            self.run_steps(&key, |config, state| state.next_to_ensure(&config.load_balancers.address_pool, &desired))
                .await?;
            self.with_state(|_, state| Ok(status(state, &name).unwrap_or_default()))
        };
        self.call(CallName::EnsureLoadBalancer, &key, body).await
    }

    async fn update_load_balancer(&self, cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<()> {
        let (name, hosts) = (self.get_load_balancer_name(cluster, service), hosts(nodes));
        let key = service_key(service);
        let body = self.run_steps(&key, |_, state| state.next_to_update(&name, &hosts));
        self.call(CallName::UpdateLoadBalancer, &key, body).await
    }

    async fn ensure_load_balancer_deleted(&self, cluster: &str, service: &Service) -> CloudResult<()> {
        let name = self.get_load_balancer_name(cluster, service);
        let key = service_key(service);
        let body = self.run_steps(&key, |_, state| Ok(state.next_to_delete(&name)));
        self.call(CallName::EnsureLoadBalancerDeleted, &key, body).await
    }

    async fn plan_services(&self, cluster: &str, demand: &ServiceDemand) -> CloudResult<ServicesPlan> {
        let mut state = self.with_state(|_, state| Ok(state.clone()))?;
        let mut plan = ServicesPlan::default();
        let all = demand.to_ensure.iter().map(|service| (service, true));
        for (service, is_required) in all.chain(demand.to_delete.iter().map(|service| (service, false))) {
            let (name, key) = (self.get_load_balancer_name(cluster, service), service_key(service));
            let work = async {
                self.with_state(|config, _| {
                    let pool = &config.load_balancers.address_pool;
                    if !is_required {
                        return steps(&mut state, |state| Ok(state.next_to_delete(&name)));
                    }
                    let spec = load_balancer_spec(name.clone(), cluster, service, &demand.nodes)?;
                    refuse_foreign_address(pool, &state, &name, service)?;
                    steps(&mut state, |state| state.next_to_ensure(pool, &spec))
                })
            };
            match self.call(CallName::PlanLoadBalancer, &key, work).await {
                Ok(steps) if is_required => {
                    plan.writes.writes.extend(write(PUT, &name, &key, &steps));
                    plan.statuses.extend(status(&state, &name).map(|status| (key, status)));
                }
                Ok(steps) => {
                    plan.existing.extend((!steps.is_empty()).then(|| key.clone()));
                    plan.writes.writes.extend(write(DELETE, &name, &key, &steps));
                }
                Err(error @ (CloudError::Refused(_) | CloudError::Invalid(_))) if is_required => {
                    plan.writes.refused.insert(format!("Service {key}: {error}"));
                    plan.refused.insert(key, error);
                }
                Err(error) => {
                    plan.writes.unread.insert(format!("Service {key}: {error}"));
                    plan.unread.insert(key);
                }
            }
        }
        Ok(plan)
    }

    fn max_in_flight(&self) -> Option<usize> {
        self.inner().config.load_balancers.max_in_flight
    }
}

/// Applies steps to `state` until `next` returns `None`, and returns their descriptions.
fn steps(
    state: &mut FakeCloudState,
    next: impl Fn(&FakeCloudState) -> CloudResult<Option<FakeCloudStep>>,
) -> CloudResult<Vec<String>> {
    let mut lines = Vec::new();
    while let Some(step) = next(state)? {
        lines.push(step.to_string());
        state.apply(step);
    }
    Ok(lines)
}

/// Returns the planned write of a load balancer; `None` if there are no steps.
fn write(method: &'static str, name: &str, key: &str, steps: &[String]) -> Option<PlannedWrite> {
    let write = PlannedWrite {
        kind: "load_balancer",
        method,
        target: name.to_owned(),
        reasons: steps.to_vec(),
        subjects: vec![key.to_owned()],
        leftover: method == DELETE,
        ..PlannedWrite::default()
    };
    (!steps.is_empty()).then_some(write)
}

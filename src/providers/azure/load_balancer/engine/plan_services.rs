//! Plans what would be written now, on any replica, leading or not.
//!
//! In: Services to ensure and to delete, and the Nodes that must be behind load balancers. Out: a [`ServicesPlan`]. Documents and machines are
//! read as before a write; what is remembered is copied and stays as it is. A Service about which something cannot be read is named, keeps
//! what it has, and is left out of the plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Node, Service};

use super::{
    planning::{StagePlan, StagePlanRequest, blocked_error},
    rule_record_store::planned_writes,
    stage_context::{StageContext, StageInput},
};
use crate::{
    cloud_provider::{CloudError, CloudResult, ServiceDemand, ServicesPlan, WritePlan},
    providers::azure::{
        arm::Urgency,
        load_balancer::explain::cloud_error,
        planner::load_balancer::{
            desired::{ServiceRequest, plan_index::PlanIndex},
            plan::{Plan, PlanScope, after::after_network, writes},
            rule_memory::ParsedService,
            spec::{ServiceSpec, identity_of},
        },
    },
};

/// Plans for all Services of `demand` together.
pub(super) async fn plan_services(context: &StageContext, demand: &ServiceDemand) -> CloudResult<ServicesPlan> {
    let mut planned = ServicesPlan::default();
    if !context.service_index.has_any_service() {
        planned.writes = Box::pin(plan_deleted(context, &demand.nodes)).await?;
        return Ok(planned);
    }
    context.watches.synced().await?;
    let mut requests = ensure_requests(context, &demand.to_ensure, &mut planned).await;
    requests.extend(demand.to_delete.iter().map(|service| context.service_index.deletion_request(service)));
    let StagePlan { mut plan, mut input } = context.plan(&StagePlanRequest::print(&requests, &demand.nodes)).await?;
    for (service, blocked) in &plan.blocked {
        planned.writes.unread.insert(format!("Service {}: {}", service.key, blocked_error(blocked)));
        planned.unread.insert(service.key.clone());
    }
    requests.retain(|request| !plan.blocked.contains_key(request.identity()));
    // A deletion that finds nothing in Azure takes no part: the service controller only removes the finalizer then.
    let existing_first = existing(&writes::requests(&input.observed, &plan), &requests);
    let count = requests.len();
    requests
        .retain(|request| matches!(request, ServiceRequest::Ensure(_)) || existing_first.contains(&request.identity().key));
    if requests.len() < count {
        StagePlan { plan, input } = context.plan(&StagePlanRequest::print(&requests, &demand.nodes)).await?;
    }
    let writes = writes_of(&input, &plan);
    planned.existing = existing(&writes, &requests);
    planned.writes.extend(writes);
    let refused = plan.network.refused.iter();
    planned
        .refused
        .extend(refused.map(|(service, refusal)| (service.key.clone(), CloudError::refused(refusal.to_string()))));
    planned.statuses = statuses(context, &input, &plan, &requests);
    Ok(planned)
}

/// Plans the removal of what Services that do not exist any more have in the security group, where there is no other Service.
async fn plan_deleted(context: &StageContext, nodes: &[Arc<Node>]) -> CloudResult<WritePlan> {
    if context.settings.security_group.is_none() || context.memory_for_plan().await.deleted().is_empty() {
        return Ok(WritePlan::default());
    }
    let request = StagePlanRequest { scope: PlanScope::SecurityGroup, ..StagePlanRequest::print(&[], nodes) };
    let StagePlan { plan, input } = context.plan(&request).await?;
    Ok(writes_of(&input, &plan))
}

/// Refuses all Services for this reason.
pub(super) fn refuse_all(demand: &ServiceDemand, problem: &str) -> ServicesPlan {
    let mut planned = ServicesPlan::default();
    let key = |service: &Arc<Service>| identity_of(service).key;
    planned.refused.extend(demand.to_ensure.iter().map(|service| (key(service), CloudError::refused(problem))));
    planned.unread.extend(demand.to_delete.iter().map(key));
    let all = demand.to_ensure.iter().chain(&demand.to_delete);
    planned.writes.refused.extend(all.map(|service| format!("Service {}: {problem}", key(service))));
    planned
}

/// Returns the requests of Services whose spec is valid; the others are refused.
async fn ensure_requests(
    context: &StageContext,
    services: &[Arc<Service>],
    planned: &mut ServicesPlan,
) -> Vec<ServiceRequest> {
    let mut requests = Vec::new();
    for service in services {
        match context.service_index.parsed(service) {
            ParsedService::Valid(spec) => match context.without_conflicting_ips(spec, Urgency::Resync).await {
                Ok((spec, _)) => {
                    let request = ServiceRequest::Ensure(spec);
                    requests.push(context.refused_labels.without_label(&request).0.into_owned());
                }
                Err(error) => {
                    let key = identity_of(service).key;
                    planned.writes.unread.insert(format!("Service {key}: {error}"));
                    planned.unread.insert(key);
                }
            },
            ParsedService::Refused(_, refusals) => {
                let all: Vec<String> = refusals.iter().map(ToString::to_string).collect();
                let (key, reason) = (identity_of(service).key, all.join("; "));
                planned.writes.refused.insert(format!("Service {key}: {reason}"));
                planned.refused.insert(key, CloudError::refused(reason));
            }
        }
    }
    requests
}

/// Returns the Services to delete that have something: addresses in their status, or parts in Azure. Security rules alone do not count.
fn existing(writes: &WritePlan, requests: &[ServiceRequest]) -> BTreeSet<String> {
    let of_network = writes.writes.iter().filter(|write| write.kind != "security_group");
    let changed: BTreeSet<&str> = of_network.flat_map(|write| &write.subjects).map(String::as_str).collect();
    let exists = |request: &&ServiceRequest| match request {
        ServiceRequest::Ensure(_) => false,
        ServiceRequest::Delete(service, spec) => {
            changed.contains(service.key.as_str()) || spec.as_ref().is_some_and(|spec| !spec.status_addresses.is_empty())
        }
    };
    requests.iter().filter(exists).map(|request| request.identity().key.clone()).collect()
}

/// Returns the writes of `plan`, then those of the ConfigMap around that of the security group.
fn writes_of(input: &StageInput, plan: &Plan) -> WritePlan {
    let mut writes = writes::requests(&input.observed, plan);
    writes.writes.extend(plan.rules.iter().flat_map(|rules| planned_writes(&rules.records)));
    if let (Some(error), false) = (&input.reads.unread_zones, plan.network.is_empty()) {
        let error = cloud_error("read the zones of the region", error.clone());
        writes.unread.insert(format!("zones of the region: {error}"));
    }
    writes
}

/// Returns the status of each Service whose addresses are known when all is written.
fn statuses(
    context: &StageContext,
    input: &StageInput,
    plan: &Plan,
    requests: &[ServiceRequest],
) -> BTreeMap<String, LoadBalancerStatus> {
    let written = after_network(&input.observed, &plan.network);
    let (index, settings) = (PlanIndex::new(&written), &context.settings);
    let is_known = |spec: &&Arc<ServiceSpec>| {
        !plan.network.refused.contains_key(&spec.identity) && index.pending_addresses(spec, settings).is_empty()
    };
    let ensured = requests.iter().filter_map(|request| match request {
        ServiceRequest::Ensure(spec) => Some(spec),
        ServiceRequest::Delete(..) => None,
    });
    let of = |spec: &Arc<ServiceSpec>| (spec.identity.key.clone(), ingress(&index.status(spec, settings)));
    ensured.filter(is_known).map(of).filter(|(_, status)| status.ingress.is_some()).collect()
}

/// Returns these addresses as the status of a Service lists them.
pub(super) fn ingress(addresses: &[IpAddr]) -> LoadBalancerStatus {
    let entry = |address: &IpAddr| LoadBalancerIngress { ip: Some(address.to_string()), ..LoadBalancerIngress::default() };
    LoadBalancerStatus { ingress: (!addresses.is_empty()).then(|| addresses.iter().map(entry).collect()) }
}

//! What would be written for all Services of the cluster at once, as requests.
//!
//! In: who wants a load balancer, who does not, the hosts. Out: a [`LoadBalancerForecast`]. It reads like the stages before their writes and
//! writes nothing. A Service about which something cannot be read is named, keeps what it has, and takes no part in the plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Service};

use super::{
    dry_run::plan_on,
    stage_context::{StageContext, StageInput, partition_blocked},
};
use crate::{
    cloud_provider::{CloudError, CloudResult, LoadBalancerForecast, ServiceDemand, WritePlan},
    providers::azure::{
        arm::Urgency,
        planner::load_balancer::{
            desired::{
                ServiceRequest,
                status::{pending_addresses, status},
            },
            plan::{Plan, after::after_network, network::plan_network, writes},
            rule_memory::ParsedService,
            spec::{ServiceSpec, identity_of},
        },
    },
};

/// Plans for everybody.
pub(super) async fn forecast(context: &StageContext, demand: &ServiceDemand) -> CloudResult<LoadBalancerForecast> {
    let mut answer = LoadBalancerForecast::default();
    if !context.service_index.has_any_service() {
        return Ok(answer);
    }
    let mut requests = wanted_requests(context, &demand.wanted, &mut answer).await;
    requests.extend(demand.unwanted.iter().map(|service| context.service_index.deletion_request(service)));
    let mut input = context.peek_twice(&requests, Urgency::Resync).await?;
    let network = plan_network(&input.observed, &requests, &input.specs(), &context.settings);
    if let Some(more) = context.with_private_links(&requests, &input, &network, Urgency::Resync).await? {
        input = more;
    }
    let (free, blocked) = partition_blocked(&requests, &input, &context.settings);
    for (request, error) in blocked {
        let key = &request.identity().key;
        answer.plan.unread.insert(format!("Service {key}: {error}"));
        answer.unknown.insert(key.clone());
        input.others.extend(request.spec().cloned().map(ParsedService::Valid));
    }
    answer.existing = existing(context, &input, &free);
    let free: Vec<ServiceRequest> = free.into_iter().filter(|request| takes_part(request, &answer.existing)).collect();
    let plan = plan_on(context, &input, &free, &demand.nodes).await;
    answer.plan.extend(requests_of(&input, &plan));
    let refused = plan.refused().iter();
    answer.refused.extend(refused.map(|(who, refusal)| (who.key.clone(), CloudError::refused(refusal.to_string()))));
    answer.statuses = statuses(context, &input, &plan, &free);
    Ok(answer)
}

/// Nobody gets anything, for this reason.
pub(super) fn refuse_all(demand: &ServiceDemand, problem: &str) -> LoadBalancerForecast {
    let mut answer = LoadBalancerForecast::default();
    let key = |service: &Arc<Service>| identity_of(service).key;
    answer.refused.extend(demand.wanted.iter().map(|service| (key(service), CloudError::refused(problem))));
    answer.unknown.extend(demand.unwanted.iter().map(key));
    let all = demand.wanted.iter().chain(&demand.unwanted);
    answer.plan.refused.extend(all.map(|service| format!("Service {}: {problem}", key(service))));
    answer
}

/// Who asks for something that may be; the others are refused.
async fn wanted_requests(
    context: &StageContext,
    wanted: &[Arc<Service>],
    answer: &mut LoadBalancerForecast,
) -> Vec<ServiceRequest> {
    let mut requests = Vec::new();
    for service in wanted {
        match context.service_index.parsed(service) {
            ParsedService::Valid(spec) => match context.without_conflicting_ips(spec, Urgency::Resync).await {
                Ok((spec, _)) => requests.push(ServiceRequest::Ensure(spec)),
                Err(error) => {
                    let key = identity_of(service).key;
                    answer.plan.unread.insert(format!("Service {key}: {error}"));
                    answer.unknown.insert(key);
                }
            },
            ParsedService::Refused(_, refusals) => {
                let all: Vec<String> = refusals.iter().map(ToString::to_string).collect();
                let (key, why) = (identity_of(service).key, all.join("; "));
                answer.plan.refused.insert(format!("Service {key}: {why}"));
                answer.refused.insert(key, CloudError::refused(why));
            }
        }
    }
    requests
}

/// Who goes and has something: addresses in its status, or parts in Azure.
fn existing(context: &StageContext, input: &StageInput, requests: &[ServiceRequest]) -> BTreeSet<String> {
    let has_something = |request: &&ServiceRequest| {
        let ServiceRequest::Delete(_, spec) = request else { return false };
        let is_served = spec.as_ref().is_some_and(|spec| !spec.status_addresses.is_empty());
        let asked = std::slice::from_ref(*request);
        is_served || !plan_network(&input.observed, asked, &input.specs(), &context.settings).is_empty()
    };
    requests.iter().filter(has_something).map(|request| request.identity().key.clone()).collect()
}

/// Nothing is done for those who go and have nothing.
fn takes_part(request: &ServiceRequest, existing: &BTreeSet<String>) -> bool {
    matches!(request, ServiceRequest::Ensure(_)) || existing.contains(&request.identity().key)
}

fn requests_of(input: &StageInput, plan: &Plan) -> WritePlan {
    let mut requests = writes::requests(&input.observed, plan);
    if let (Err(error), false) = (&input.zones, plan.network.is_empty()) {
        requests.unread.insert(format!("zones of the region: {error}"));
    }
    requests
}

/// The status of each Service whose addresses are known when all is written.
fn statuses(
    context: &StageContext,
    input: &StageInput,
    plan: &Plan,
    requests: &[ServiceRequest],
) -> BTreeMap<String, LoadBalancerStatus> {
    let written = after_network(&input.observed, &plan.network);
    let is_known = |spec: &&Arc<ServiceSpec>| {
        !plan.refused().contains_key(&spec.identity) && pending_addresses(&written, spec, &context.settings).is_empty()
    };
    let wanted = requests.iter().filter_map(|request| match request {
        ServiceRequest::Ensure(spec) => Some(spec),
        ServiceRequest::Delete(..) => None,
    });
    let of = |spec: &Arc<ServiceSpec>| (spec.identity.key.clone(), ingress(&status(&written, spec, &context.settings)));
    wanted.filter(is_known).map(of).filter(|(_, status)| status.ingress.is_some()).collect()
}

/// As the status of a Service has it.
pub(super) fn ingress(addresses: &[IpAddr]) -> LoadBalancerStatus {
    let entry = |address: &IpAddr| LoadBalancerIngress { ip: Some(address.to_string()), ..LoadBalancerIngress::default() };
    LoadBalancerStatus { ingress: (!addresses.is_empty()).then(|| addresses.iter().map(entry).collect()) }
}

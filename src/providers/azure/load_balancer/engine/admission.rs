//! The first stage: what a Service needs before its load balancer is written, or why it cannot have what it asks for.
//!
//! In: the asks that have gathered. Out: for each the public IPs to write, each to be written once for all who need it.

use std::{collections::BTreeMap, sync::Arc};

#[cfg(feature = "sandbox")]
use super::dry_run::show_plan;
use super::{
    drift_search::find_drift,
    shared_write::SharedWrite,
    stage_context::{StageContext, StageInput, partition_blocked, refusal_error},
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::Urgency,
        load_balancer::{backend_pools::fingerprint, observe::NetworkCacheKey},
        planner::load_balancer::{
            desired::{ServiceRequest, private_links::reads, public_ips::PublicIpChange, status::status},
            drift::findings::DriftedDocument,
            plan::{
                network::{NetworkPlan, plan_network},
                print::PlannedChange,
            },
            settings::LoadBalancerSettings,
            spec::{IpFamily, ServiceIdentity, ServiceRefusal, ServiceSpec},
        },
    },
};

/// Public IPs to write first.
pub(super) type PublicIpWrites = Vec<Arc<SharedWrite<PublicIpChange>>>;

/// What the first stage knows of a Service.
pub(super) struct Admission {
    /// What is written first.
    pub(super) public_ips: PublicIpWrites,
    /// What somebody else changed since all was right.
    pub(super) drift: Vec<DriftedDocument>,
    /// Fingerprint of the Nodes.
    pub(super) nodes: u64,
}

/// Plans for all asks. `compared`: those that ask for what they had when all was right, with the fingerprint of the Nodes then.
pub(super) async fn admit(
    context: &StageContext,
    requests: Vec<ServiceRequest>,
    compared: BTreeMap<ServiceIdentity, u64>,
    urgency: Urgency,
) -> Vec<CloudResult<Admission>> {
    let (plan, input) = match planned(context, &requests, urgency).await {
        Ok(planned) => planned,
        Err(error) => return requests.iter().map(|_| Err(error.clone())).collect(),
    };
    #[cfg(feature = "sandbox")]
    show_plan(context, &input, &requests).await;
    context.notify_private_links(&plan.private_links.notices);
    let nodes = fingerprint(&context.hosts().unwrap_or_default(), &context.service_index.nodes(), &context.settings);
    let compared = compared.into_iter().map(|(who, known)| (who, known != nodes)).collect();
    let mut drift = find_drift(context, &requests, &compared, (&plan, &input)).await;
    let NetworkPlan { public_ips, mut refused, .. } = plan;
    let mut puts = shared_writes(public_ips.writes);
    let answer = |request: &ServiceRequest| match (
        input.blocked_by(request, &context.settings),
        refused.remove(request.identity()),
        &input.zones,
    ) {
        (Some(error), _, _) => Err(error),
        (None, Some(refusal), _) => {
            context.announce(PlannedChange::Refused(request.identity(), &refusal), [request.identity()]);
            Err(missing_reference(context, request, &refusal).unwrap_or_else(|| refusal_error(&refusal)))
        }
        (None, None, Err(error)) if is_new(request, &input, &context.settings) => Err(error.clone()),
        (None, None, _) => Ok(Admission {
            public_ips: puts.remove(request.identity()).unwrap_or_default(),
            drift: drift.remove(request.identity()).unwrap_or_default(),
            nodes,
        }),
    };
    requests.iter().map(answer).collect()
}

/// Nobody is refused for want of what somebody may have made a moment ago.
async fn planned(
    context: &StageContext,
    requests: &[ServiceRequest],
    urgency: Urgency,
) -> CloudResult<(NetworkPlan, StageInput)> {
    let mut input = context.load_first(requests, urgency).await?;
    let mut first = plan_unblocked(requests, &input, context);
    if let Some(more) = context.with_private_links(requests, &input, &first, urgency).await? {
        (first, input) = (plan_unblocked(requests, &more, context), more);
    }
    let refused = requests.iter().filter(|request| first.refused.contains_key(request.identity()));
    let mut keies: Vec<NetworkCacheKey> =
        refused.filter_map(ServiceRequest::spec).flat_map(|spec| named_keys(spec, &context.settings)).collect();
    // What is missing again and again is looked for in its own time.
    keies.retain(|key| !context.observer.is_denied(key));
    if keies.is_empty() {
        return Ok((first, input));
    }
    keies.into_iter().for_each(|key| context.observer.invalidate(key));
    let input = context.load(requests, urgency).await?;
    Ok((plan_unblocked(requests, &input, context), input))
}

fn plan_unblocked(requests: &[ServiceRequest], input: &StageInput, context: &StageContext) -> NetworkPlan {
    let (free, hindered) = partition_blocked(requests, input, &context.settings);
    plan_network(&input.observed, &free, &input.specs_and(&hindered), &context.settings)
}

/// Whether front ends have to be made: their zones cannot be changed later.
fn is_new(request: &ServiceRequest, input: &StageInput, settings: &LoadBalancerSettings) -> bool {
    matches!(request, ServiceRequest::Ensure(spec) if status(&input.observed, spec, settings).is_empty())
}

/// Returns the error of a refusal because of something that does not exist yet, and is read again soon.
fn missing_reference(context: &StageContext, request: &ServiceRequest, refusal: &ServiceRefusal) -> Option<CloudError> {
    let keys = named_keys(request.spec()?, &context.settings);
    let after = keys.iter().filter_map(|key| context.observer.missing_for(key)).min()?;
    Some(CloudError::MissingReference { after, message: refusal.to_string() })
}

/// What the Service names that others make.
fn named_keys(spec: &Arc<ServiceSpec>, settings: &LoadBalancerSettings) -> Vec<NetworkCacheKey> {
    let request = ServiceRequest::Ensure(Arc::clone(spec));
    let subnets = reads::subnets(std::slice::from_ref(&request), settings).into_iter();
    let mut keys: Vec<NetworkCacheKey> = subnets.map(|name| NetworkCacheKey::Subnet(name.to_ascii_lowercase())).collect();
    keys.extend(spec.private_link.as_ref().map(|link| NetworkCacheKey::PrivateLinks(link.group.clone())));
    if spec.internal {
        keys.push(NetworkCacheKey::Subnet(spec.subnet.as_ref().unwrap_or(&settings.subnet).to_ascii_lowercase()));
        return keys;
    }
    let is_named = |family: &IpFamily| spec.pinned.get(*family).is_some() || spec.public_ip.name.get(*family).is_some();
    let names_one = spec.families.iter().any(is_named);
    keys.extend(names_one.then(|| NetworkCacheKey::PublicIps(spec.public_ip.group.clone())));
    keys
}

fn shared_writes(changes: Vec<PublicIpChange>) -> BTreeMap<ServiceIdentity, PublicIpWrites> {
    let mut puts: BTreeMap<ServiceIdentity, PublicIpWrites> = BTreeMap::new();
    for change in changes {
        let services = change.services.clone();
        let once = Arc::new(SharedWrite::new(change));
        services.into_iter().for_each(|service| puts.entry(service).or_default().push(Arc::clone(&once)));
    }
    puts
}

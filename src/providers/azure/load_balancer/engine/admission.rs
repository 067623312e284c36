//! The first stage: what a Service needs before its load balancer is written, or why it cannot have what it asks for.
//!
//! In: the asks that have gathered. Out: for each the public IPs to write, each to be written once for all who need it.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    shared_write::SharedWrite,
    stage_context::{StageContext, StageInput, partition_blocked},
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::Urgency,
        load_balancer::observe::NetworkCacheKey,
        planner::load_balancer::{
            desired::{ServiceRequest, public_ips::PublicIpChange, status::status},
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

/// Plans for all asks.
pub(super) async fn admit(
    world: &StageContext,
    asks: Vec<ServiceRequest>,
    urgency: Urgency,
) -> Vec<CloudResult<PublicIpWrites>> {
    let (plan, look) = match planned(world, &asks, urgency).await {
        Ok(planned) => planned,
        Err(error) => return asks.iter().map(|_| Err(error.clone())).collect(),
    };
    let NetworkPlan { public_ips, mut refused, .. } = plan;
    let mut puts = shared_writes(public_ips.writes);
    let answer =
        |ask: &ServiceRequest| match (look.blocked_by(ask, &world.settings), refused.remove(ask.identity()), &look.zones) {
            (Some(error), _, _) => Err(error),
            (None, Some(refusal), _) => {
                world.announce(PlannedChange::Refused(ask.identity(), &refusal), [ask.identity()]);
                Err(self::refusal_error(&refusal))
            }
            (None, None, Err(error)) if is_new(ask, &look, &world.settings) => Err(error.clone()),
            (None, None, _) => Ok(puts.remove(ask.identity()).unwrap_or_default()),
        };
    asks.iter().map(answer).collect()
}

/// Nobody is refused for want of what somebody may have made a moment ago.
async fn planned(world: &StageContext, asks: &[ServiceRequest], urgency: Urgency) -> CloudResult<(NetworkPlan, StageInput)> {
    let look = world.load_first(asks, urgency).await?;
    let first = plan_unblocked(asks, &look, world);
    let refused = asks.iter().filter(|ask| first.refused.contains_key(ask.identity()));
    let mut doubts: Vec<NetworkCacheKey> =
        refused.filter_map(ServiceRequest::spec).flat_map(|spec| named_keys(spec, &world.settings)).collect();
    // What is missing again and again is looked for in its own time.
    doubts.retain(|doubt| !world.observer.is_denied(doubt));
    if doubts.is_empty() {
        return Ok((first, look));
    }
    doubts.into_iter().for_each(|doubt| world.observer.invalidate(doubt));
    let look = world.load(asks, urgency).await?;
    Ok((plan_unblocked(asks, &look, world), look))
}

fn plan_unblocked(asks: &[ServiceRequest], look: &StageInput, world: &StageContext) -> NetworkPlan {
    let (free, hindered) = partition_blocked(asks, look, &world.settings);
    plan_network(&look.observed, &free, &look.specs_and(&hindered), &world.settings)
}

/// Whether front ends have to be made: their zones cannot be changed later.
fn is_new(ask: &ServiceRequest, look: &StageInput, settings: &LoadBalancerSettings) -> bool {
    matches!(ask, ServiceRequest::Ensure(spec) if status(&look.observed, spec, settings).is_empty())
}

/// What the Service names that others make.
fn named_keys(spec: &ServiceSpec, settings: &LoadBalancerSettings) -> Vec<NetworkCacheKey> {
    if spec.internal {
        return vec![NetworkCacheKey::Subnet(spec.subnet.as_ref().unwrap_or(&settings.subnet).to_ascii_lowercase())];
    }
    let is_named = |family: &IpFamily| spec.pinned.get(*family).is_some() || spec.public_ip.name.get(*family).is_some();
    let names_one = spec.families.iter().any(is_named);
    names_one.then(|| NetworkCacheKey::PublicIps(spec.public_ip.group.clone())).into_iter().collect()
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

/// What a user has to change, here or at another Service or in Azure: it is tried again with back-off.
pub(super) fn refusal_error(refusal: &ServiceRefusal) -> CloudError {
    CloudError::failed(refusal.to_string())
}

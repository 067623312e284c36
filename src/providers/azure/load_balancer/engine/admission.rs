//! The first stage: what a Service needs before its load balancer is written, or why it cannot have what it asks for.
//!
//! In: the asks that have gathered. Out: for each the public IPs to write, each to be written once for all who need it.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    once::Once,
    world::{Look, World, unhindered},
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::Urgency,
        load_balancer::{
            desired::{Ask, public_ips::Change, status::status},
            observe::Doubt,
            plan::{Plan, plan},
            settings::Settings,
            spec::{Family, Identity, Refusal, ServiceSpec},
        },
    },
};

/// Public IPs to write first.
pub(super) type Puts = Vec<Arc<Once<Change>>>;

/// Plans for all asks.
pub(super) async fn admit(world: &World, asks: Vec<Ask>, urgency: Urgency) -> Vec<CloudResult<Puts>> {
    let (plan, look) = match planned(world, &asks, urgency).await {
        Ok(planned) => planned,
        Err(error) => return asks.iter().map(|_| Err(error.clone())).collect(),
    };
    let Plan { public_ips, mut refused, .. } = plan;
    let mut puts = shared(public_ips.put);
    let answer = |ask: &Ask| match (look.hindrance(ask, &world.settings), refused.remove(ask.identity()), &look.zones) {
        (Some(error), _, _) => Err(error),
        (None, Some(refusal), _) => Err(self::refused(&refusal)),
        (None, None, Err(error)) if is_new(ask, &look, &world.settings) => Err(error.clone()),
        (None, None, _) => Ok(puts.remove(ask.identity()).unwrap_or_default()),
    };
    asks.iter().map(answer).collect()
}

/// Nobody is refused for want of what somebody may have made a moment ago.
async fn planned(world: &World, asks: &[Ask], urgency: Urgency) -> CloudResult<(Plan, Look)> {
    let look = world.first_look(asks, urgency).await?;
    let first = plan_free(asks, &look, world);
    let refused = asks.iter().filter(|ask| first.refused.contains_key(ask.identity()));
    let mut doubts: Vec<Doubt> = refused.filter_map(Ask::spec).flat_map(|spec| named(spec, &world.settings)).collect();
    // What is missing again and again is looked for in its own time.
    doubts.retain(|doubt| !world.observer.is_denied(doubt));
    if doubts.is_empty() {
        return Ok((first, look));
    }
    doubts.into_iter().for_each(|doubt| world.observer.doubt(doubt));
    let look = world.look(asks, urgency).await?;
    Ok((plan_free(asks, &look, world), look))
}

fn plan_free(asks: &[Ask], look: &Look, world: &World) -> Plan {
    let (free, hindered) = unhindered(asks, look, &world.settings);
    plan(&look.observed, &free, &look.specs_and(&hindered), &world.settings)
}

/// Whether front ends have to be made: their zones cannot be changed later.
fn is_new(ask: &Ask, look: &Look, settings: &Settings) -> bool {
    matches!(ask, Ask::Ensure(spec) if status(&look.observed, spec, settings).is_empty())
}

/// What the Service names that others make.
fn named(spec: &ServiceSpec, settings: &Settings) -> Vec<Doubt> {
    if spec.internal {
        return vec![Doubt::Subnet(spec.subnet.as_ref().unwrap_or(&settings.subnet).to_ascii_lowercase())];
    }
    let is_named = |family: &Family| spec.pinned.get(*family).is_some() || spec.public_ip.name.get(*family).is_some();
    let names_one = spec.families.iter().any(is_named);
    names_one.then(|| Doubt::PublicIps(spec.public_ip.group.clone())).into_iter().collect()
}

fn shared(changes: Vec<Change>) -> BTreeMap<Identity, Puts> {
    let mut puts: BTreeMap<Identity, Puts> = BTreeMap::new();
    for change in changes {
        let services = change.services.clone();
        let once = Arc::new(Once::new(change));
        services.into_iter().for_each(|service| puts.entry(service).or_default().push(Arc::clone(&once)));
    }
    puts
}

/// What a user has to change, here or at another Service or in Azure: it is tried again with back-off.
pub(super) fn refused(refusal: &Refusal) -> CloudError {
    CloudError::failed(refusal.to_string())
}

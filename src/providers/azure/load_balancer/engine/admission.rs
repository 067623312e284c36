//! The first stage: what a Service needs before its load balancer is written, or why it cannot have what it asks for.
//!
//! In: the asks that have gathered. Out: for each the public IPs to write, each to be written once for all who need it.

use std::{collections::BTreeMap, sync::Arc};

use super::{once::Once, world::World};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::Urgency,
        load_balancer::{
            desired::{Ask, public_ips::Change},
            plan::{Plan, plan},
            spec::{Identity, Refusal},
        },
    },
};

/// Public IPs to write first.
pub(super) type Puts = Vec<Arc<Once<Change>>>;

/// Plans for all asks.
pub(super) async fn admit(world: &World, asks: Vec<Ask>, urgency: Urgency) -> Vec<CloudResult<Puts>> {
    let look = match world.look(&asks, urgency).await {
        Ok(look) => look,
        Err(error) => return asks.iter().map(|_| Err(error.clone())).collect(),
    };
    let plan = plan(&look.observed, &asks, &look.specs(), &world.settings);
    let Plan { public_ips, mut refused, .. } = plan;
    let mut puts = shared(public_ips.put);
    let answer = |ask: &Ask| match refused.remove(ask.identity()) {
        Some(refusal) => Err(invalid(&refusal)),
        None => Ok(puts.remove(ask.identity()).unwrap_or_default()),
    };
    asks.iter().map(answer).collect()
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

/// What a user has to change.
pub(super) fn invalid(refusal: &Refusal) -> CloudError {
    CloudError::invalid(refusal.to_string())
}

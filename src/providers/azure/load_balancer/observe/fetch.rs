//! Sends one read to ARM. In: what to read. Out: documents; what does not exist is empty or `None`. Decides nothing else.

use serde::de::DeserializeOwned;

use super::{knowledge::Answer, need::Doubt};
use crate::providers::azure::{
    arm::{ApiType, ArmClient, ArmError, ArmResult, ErrorClass, ResourceId, api},
    load_balancer::settings::Settings,
};

/// The answer to a read.
pub(super) async fn read(arm: &ArmClient, settings: &Settings, what: &Doubt) -> ArmResult<Answer> {
    Ok(match what {
        Doubt::LoadBalancers => Answer::LoadBalancers(list(arm, &api::LOAD_BALANCERS, &settings.load_balancer_group).await?),
        Doubt::LoadBalancer(id) => Answer::LoadBalancer(get(arm, &api::LOAD_BALANCERS, id).await?),
        Doubt::PublicIps(group) => Answer::PublicIps(list(arm, &api::PUBLIC_IPS, group).await?),
        Doubt::PublicIp(id) => Answer::PublicIp(get(arm, &api::PUBLIC_IPS, id).await?),
        Doubt::SecurityGroup => Answer::SecurityGroup(match &settings.security_group {
            Some(id) => get(arm, &api::SECURITY_GROUPS, id).await?,
            None => None,
        }),
        Doubt::Subnet(name) => {
            Answer::Subnet(get(arm, &api::SUBNETS, &settings.virtual_network.child("subnets", name)).await?)
        }
    })
}

/// All documents of a group; none when there is no such group.
async fn list<D: DeserializeOwned>(arm: &ArmClient, kind: &'static ApiType, group: &ResourceId) -> ArmResult<Vec<D>> {
    let path = format!("{group}/providers/{}", kind.resource_type);
    match arm.list(kind, &path, &[]).await {
        Err(error) if is_missing(&error) => Ok(Vec::new()),
        other => other,
    }
}

async fn get<D: DeserializeOwned>(arm: &ArmClient, kind: &'static ApiType, id: &ResourceId) -> ArmResult<Option<Box<D>>> {
    match arm.get(kind, id, &[]).await {
        Err(error) if is_missing(&error) => Ok(None),
        other => other.map(|document| Some(Box::new(document))),
    }
}

/// A subscription that ARM does not know is a mistake in the configuration, and does not mean that nothing is there.
fn is_missing(error: &ArmError) -> bool {
    let is_absent = matches!(error.class, ErrorClass::NotFound | ErrorClass::ParentNotFound);
    is_absent && !error.mentions("SubscriptionNotFound") && !error.mentions("InvalidSubscriptionId")
}

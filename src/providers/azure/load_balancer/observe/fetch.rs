//! Sends one read to ARM. In: what to read. Out: documents. Decides nothing but what an answer proves.
//!
//! Absent is a fact about one thing: only ARM's own answer for that very resource says that it is not there
//! ([`ArmErrorClass::NotFound`]). A list that fails is an error, whatever its status, and so is a single read that ARM
//! answers with the absence of something around it. One question more settles what a list of public IPs says with
//! `ResourceGroupNotFound`: the group itself is asked for, and when ARM says of it that it does not exist, so does nothing
//! in it ([`NetworkReadResult::GroupMissing`]). The cluster's own group is not asked for: it has to exist.

use serde::de::{DeserializeOwned, IgnoredAny};

use super::network_cache::NetworkReadResult;
use crate::providers::azure::planner::load_balancer::network_query::NetworkCacheKey;
use crate::providers::azure::{
    arm::{ApiType, ArmClient, ArmError, ArmErrorClass, ArmResult, ResourceId, api, spelling},
    planner::load_balancer::settings::LoadBalancerSettings,
};

/// The answer to a read.
pub(super) async fn read(
    arm: &ArmClient,
    settings: &LoadBalancerSettings,
    what: &NetworkCacheKey,
) -> ArmResult<NetworkReadResult> {
    let kind = api_type(what);
    Ok(match what {
        NetworkCacheKey::LoadBalancers => {
            NetworkReadResult::LoadBalancers(list(arm, kind, &settings.load_balancer_group).await?)
        }
        NetworkCacheKey::LoadBalancer(id) => NetworkReadResult::LoadBalancer(get(arm, kind, id).await?),
        NetworkCacheKey::PublicIps(group) => match list(arm, kind, group).await {
            Ok(list) => NetworkReadResult::PublicIps(list),
            Err(error) if *group == settings.group => return Err(error),
            Err(error) => confirm_group_missing(arm, group, error).await?,
        },
        NetworkCacheKey::PublicIp(id) => NetworkReadResult::PublicIp(get(arm, kind, id).await?),
        NetworkCacheKey::PrivateLinks(group) => match list(arm, kind, group).await {
            Ok(list) => NetworkReadResult::PrivateLinks(list),
            Err(error) => confirm_group_missing(arm, group, error).await?,
        },
        NetworkCacheKey::PrivateLink(id) => NetworkReadResult::PrivateLink(get(arm, kind, id).await?),
        NetworkCacheKey::SecurityGroup => NetworkReadResult::SecurityGroup(match &settings.security_group {
            Some(id) => get(arm, kind, id).await?,
            None => None,
        }),
        NetworkCacheKey::Subnet(name) => {
            NetworkReadResult::Subnet(get(arm, kind, &settings.virtual_network.child("subnets", name)).await?)
        }
    })
}

/// Returns the request line of a read of `what`; that of its first request, if it has several.
pub(super) fn request_line(settings: &LoadBalancerSettings, what: &NetworkCacheKey) -> String {
    let path = match what {
        NetworkCacheKey::LoadBalancers => list_path(api_type(what), &settings.load_balancer_group),
        NetworkCacheKey::PublicIps(group) | NetworkCacheKey::PrivateLinks(group) => list_path(api_type(what), group),
        NetworkCacheKey::LoadBalancer(id) | NetworkCacheKey::PublicIp(id) | NetworkCacheKey::PrivateLink(id) => {
            id.to_string()
        }
        NetworkCacheKey::SecurityGroup => {
            settings.security_group.as_ref().map_or_else(|| "the security group".to_owned(), ToString::to_string)
        }
        NetworkCacheKey::Subnet(name) => settings.virtual_network.child("subnets", name).to_string(),
    };
    format!("GET {path}")
}

/// Returns the type of the documents that a read of `what` shows.
pub(in crate::providers::azure::load_balancer) fn api_type(what: &NetworkCacheKey) -> &'static ApiType {
    match what {
        NetworkCacheKey::SecurityGroup => &api::SECURITY_GROUPS,
        NetworkCacheKey::PublicIp(_) | NetworkCacheKey::PublicIps(_) => &api::PUBLIC_IPS,
        NetworkCacheKey::PrivateLink(_) | NetworkCacheKey::PrivateLinks(_) => &api::PRIVATE_LINK_SERVICES,
        NetworkCacheKey::Subnet(_) => &api::SUBNETS,
        NetworkCacheKey::LoadBalancer(_) | NetworkCacheKey::LoadBalancers => &api::LOAD_BALANCERS,
    }
}

fn list_path(kind: &ApiType, group: &ResourceId) -> String {
    format!("{group}/providers/{}", kind.resource_type)
}

/// All documents of a group.
async fn list<D: DeserializeOwned>(arm: &ArmClient, kind: &'static ApiType, group: &ResourceId) -> ArmResult<Vec<D>> {
    arm.list(kind, &list_path(kind, group), &[]).await
}

/// One document; `None`: ARM says that there is none.
async fn get<D: DeserializeOwned>(arm: &ArmClient, kind: &'static ApiType, id: &ResourceId) -> ArmResult<Option<Box<D>>> {
    match arm.get(kind, id, &[]).await {
        Err(error) if error.class == ArmErrorClass::NotFound => Ok(None),
        other => other.map(|document| Some(Box::new(document))),
    }
}

const GROUP_NOT_FOUND: &str = "ResourceGroupNotFound";

fn is_about_group(error: &ArmError) -> bool {
    error.class == ArmErrorClass::ParentNotFound && spelling::same_word(&error.code, GROUP_NOT_FOUND)
}

/// Returns that the group is missing if `listing` and ARM's response about the group itself say so; otherwise the error of `listing`.
async fn confirm_group_missing(arm: &ArmClient, group: &ResourceId, listing: ArmError) -> ArmResult<NetworkReadResult> {
    if !is_about_group(&listing) {
        return Err(listing);
    }
    match arm.get::<IgnoredAny>(&api::RESOURCE_GROUPS, group, &[]).await {
        Err(error) if error.class == ArmErrorClass::NotFound || is_about_group(&error) => {
            Ok(NetworkReadResult::GroupMissing(Box::new(listing)))
        }
        Ok(_) | Err(_) => Err(listing),
    }
}

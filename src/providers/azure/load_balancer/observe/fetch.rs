//! Reads from ARM, one per call. In: the key of the read. Out: documents. The only decision here is what a response proves.
//!
//! Absence is a fact about a single resource: only ARM's own response for that resource proves that it does not exist
//! ([`ArmErrorClass::NotFound`]). A list that fails is an error, whatever its status. A single read is an error, too, if ARM
//! says that a parent of the resource does not exist.
//!
//! When a list of public IPs fails with `ResourceGroupNotFound`, the group itself is read. If ARM says that the group does
//! not exist, nothing in it exists ([`NetworkReadResult::GroupMissing`]). The cluster's own group is not read, because it
//! must exist.

use serde::de::{DeserializeOwned, IgnoredAny};

use super::{
    documents::{ListedDocument, with_document},
    network_cache::record::NetworkReadResult,
};
use crate::providers::azure::planner::load_balancer::network_query::NetworkCacheKey;
use crate::providers::azure::{
    arm::ArmClient,
    model::{ApiType, ArmError, ArmErrorClass, ArmResult, ResourceId, api, spelling},
    planner::load_balancer::settings::LoadBalancerSettings,
};

/// Reads the documents of one key.
pub(super) async fn read(
    arm: &ArmClient,
    settings: &LoadBalancerSettings,
    what: &NetworkCacheKey,
) -> ArmResult<NetworkReadResult> {
    with_document!(what, Document => read_listed::<Document>(arm, settings, what).await,
        NetworkCacheKey::SecurityGroup => Ok(NetworkReadResult::SecurityGroup(match &settings.security_group {
            Some(id) => get(arm, what.api_type(), id).await?,
            None => None,
        })),
        NetworkCacheKey::Subnet(name) => {
            let id = settings.virtual_network.child("subnets", name);
            Ok(NetworkReadResult::Subnet(get(arm, what.api_type(), &id).await?))
        },
    )
}

/// Reads one document of a kind that ARM lists, or all documents of a resource group.
async fn read_listed<D: ListedDocument>(
    arm: &ArmClient,
    settings: &LoadBalancerSettings,
    what: &NetworkCacheKey,
) -> ArmResult<NetworkReadResult> {
    let kind = what.api_type();
    if let Some(id) = what.single_id() {
        return Ok(NetworkReadResult::Listed(Box::new(get::<D>(arm, kind, id).await?)));
    }
    let group = what.listed_group().unwrap_or(&settings.load_balancer_group);
    let listing: ArmResult<Vec<D>> = arm.list(kind, &list_path(kind, group), &[]).await;
    match listing {
        Ok(list) => Ok(NetworkReadResult::Listed(Box::new(list))),
        Err(error) if what.is_service_specific(settings) => confirm_group_missing(arm, group, error).await,
        Err(error) => Err(error),
    }
}

/// Returns the request line of a read of `what`; that of its first request, if it has several.
pub(super) fn request_line(settings: &LoadBalancerSettings, what: &NetworkCacheKey) -> String {
    let path = match what {
        NetworkCacheKey::SecurityGroup => {
            settings.security_group.as_ref().map_or_else(|| "the security group".to_owned(), ToString::to_string)
        }
        NetworkCacheKey::Subnet(name) => settings.virtual_network.child("subnets", name).to_string(),
        listed => match listed.single_id() {
            Some(id) => id.to_string(),
            None => list_path(listed.api_type(), listed.listed_group().unwrap_or(&settings.load_balancer_group)),
        },
    };
    format!("GET {path}")
}

fn list_path(kind: &ApiType, group: &ResourceId) -> String {
    format!("{group}/providers/{}", kind.resource_type)
}

/// Returns one document; `None` if ARM says that it does not exist.
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

/// Returns that the group is missing if `listing` and ARM's response about the group itself say so; otherwise the error of
/// `listing`.
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

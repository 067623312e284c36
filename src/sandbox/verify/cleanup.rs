//! Deletes what runs created: the resources of one row, and leftovers of runs that were killed.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::Instant;

use super::{cloud::VerifiedCloud, prepare};
use crate::providers::azure::{
    arm::{ArmClient, Precondition},
    model::{ApiType, ResourceId, api, spelling},
};

/// Returns the types that rows create, in the order in which Azure allows their deletion.
fn types() -> [&'static ApiType; 10] {
    [
        prepare::private_endpoints(),
        &api::PRIVATE_LINK_SERVICES,
        &api::SCALE_SETS,
        &api::INTERFACES,
        &api::LOAD_BALANCERS,
        &api::PUBLIC_IPS,
        &api::PUBLIC_IP_PREFIXES,
        &api::VIRTUAL_NETWORKS,
        &api::SECURITY_GROUPS,
        &api::ROUTE_TABLES,
    ]
}

/// Time for which refused deletions are retried.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// Pause after the first pass over what Azure has refused; it doubles up to [`MAX_DELAY`].
const FIRST_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(10);

/// Returns the IDs of the resources in the group whose names begin with `prefix`, in the order in which they can be deleted.
pub async fn find(cloud: &VerifiedCloud, prefix: &str) -> Result<Vec<ResourceId>, String> {
    let client = cloud.patient_client();
    let mut found = Vec::new();
    for kind in types() {
        let path = format!("{}/providers/{}", cloud.group, kind.resource_type);
        let listed: Vec<Value> = client.list(kind, &path, &[]).await.map_err(|error| error.to_string())?;
        let ids = listed.iter().filter_map(|document| ResourceId::parse(document["id"].as_str()?).ok());
        found.extend(ids.filter(|id| spelling::starts_with(id.name(), prefix)));
    }
    Ok(found)
}

/// Deletes resources, with retries while Azure refuses some. The error names those that remain.
pub async fn delete(cloud: &VerifiedCloud, ids: &[ResourceId]) -> Result<(), String> {
    // One attempt each: a deletion that is refused because of its order or of another operation is retried in the next pass.
    let client = cloud.client(Arc::clone(&cloud.wire));
    let (deadline, mut delay) = (Instant::now() + MAX_WAIT, FIRST_DELAY);
    let mut remaining = ids.to_vec();
    loop {
        let mut refused = Vec::new();
        for id in remaining {
            if let Err(error) = delete_one(&client, &id).await {
                refused.push((id, error));
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let lines: Vec<String> = refused.iter().map(|(id, error)| format!("{id}: {error}")).collect();
            return Err(format!("these resources could not be deleted:\n{}", lines.join("\n")));
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(MAX_DELAY);
        remaining = refused.into_iter().map(|(id, _)| id).collect();
    }
}

async fn delete_one(client: &ArmClient, id: &ResourceId) -> Result<(), String> {
    let kind = prepare::kind_of(id.as_str())?;
    client.delete(kind, id, Precondition::Unconditional).await.map_err(|error| error.to_string())
}

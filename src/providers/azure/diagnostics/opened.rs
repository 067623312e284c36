//! Configuration at work, for diagnostics. Plain data, and the one way to list.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::observer::ObservedTransport;
use crate::providers::azure::{
    arm::{ApiType, ArmClient, ArmResult, ResourceId},
    planner::load_balancer::settings::LoadBalancerSettings,
    session::Session,
};

/// Remedy for a forbidden read.
pub(super) const READ_RIGHT: &str = "assign the identity Reader at this scope, or look with `az`";

/// A configuration that works, and what was seen on the way.
pub(super) struct OpenedCloud {
    pub(super) session: Session,
    pub(super) settings: LoadBalancerSettings,
    pub(super) wire: Arc<ObservedTransport>,
}

/// Returns all documents of a group, or one line that says why not.
pub(super) async fn list<D: DeserializeOwned>(
    arm: &ArmClient,
    kind: &'static ApiType,
    group: &ResourceId,
) -> Result<Vec<D>, String> {
    let listed: ArmResult<Vec<D>> = arm.list(kind, &format!("{group}/providers/{}", kind.resource_type), &[]).await;
    listed.map_err(|error| error.to_string())
}

//! Opened configuration for diagnostics, and the function that lists documents.

use std::{collections::BTreeMap, sync::Arc};

use serde::de::DeserializeOwned;

use super::observer::ObservedTransport;
use crate::{
    metrics::Metrics,
    providers::azure::{
        arm::{ArmClient, Budget, BudgetSettings},
        config::AzureConfig,
        model::{ApiType, ArmResult, ResourceId},
        planner::load_balancer::settings::LoadBalancerSettings,
        session::{Session, SessionDeps},
        transport::ArmTransport,
    },
    runtime::{clock::Clock, leader_election::Leadership, store::InformerStore},
};

/// Remedy for a forbidden read.
pub(super) const READ_RIGHT: &str = "assign the identity Reader at this scope, or check with `az`";

/// Session of a working configuration, with its settings and its observed transport.
pub(super) struct OpenedCloud {
    pub(super) session: Session,
    pub(super) settings: LoadBalancerSettings,
    pub(super) wire: Arc<ObservedTransport>,
}

/// Opens a session that never leads, and so writes nothing.
pub(super) async fn open_session(
    config: Arc<AzureConfig>,
    environment: BTreeMap<String, String>,
    transport: Arc<dyn ArmTransport>,
) -> Result<Session, String> {
    let metrics = Arc::new(Metrics::new().map_err(|error| error.to_string())?);
    // A standby's leadership makes sure that nothing is written.
    let (_standby, leadership) = Leadership::channel();
    let budget = Budget::new(BudgetSettings::from(config.as_ref()), Arc::clone(&metrics), Clock::System);
    let surroundings = SessionDeps {
        transport,
        environment,
        budget,
        leadership: leadership.clone(),
        route_leadership: leadership,
        metrics,
        clock: Clock::System,
        nodes: InformerStore::default(),
    };
    Session::open(config, &surroundings).await.map_err(|error| error.to_string())
}

/// Returns all documents of a group, or the reason on one line.
pub(super) async fn list<D: DeserializeOwned>(
    arm: &ArmClient,
    kind: &'static ApiType,
    group: &ResourceId,
) -> Result<Vec<D>, String> {
    let listed: ArmResult<Vec<D>> = arm.list(kind, &format!("{group}/providers/{}", kind.resource_type), &[]).await;
    listed.map_err(|error| error.to_string())
}

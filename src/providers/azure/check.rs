//! Command `check-config` for Azure: whether this configuration can be used, and the necessary changes.
//!
//! In: a [`CheckRequest`]. Out: a report. Offline it reads and validates; online it also fetches a token and asks ARM which
//! actions the identity may perform. Nothing is written anywhere.

mod online;
mod permissions;
mod requirements;

use std::{collections::BTreeMap, sync::Arc};

pub(super) use online::{grants, open_session, readable_type};
pub use permissions::{PermissionGrant, PermissionPurpose, RequiredPermission, is_allowed, required_permissions};

use super::{
    arm::ArmTransport,
    auth::ReqwestTransport,
    config::{AzureConfig, ConfigFinding, ConfigLoader, EnvironmentOverrides, missing_cluster_entry, offline_report},
    provider::{environment, source},
};
use crate::cloud_provider::registry::{CheckReport, CheckRequest};

/// Returns the check of the binary: over the network, with the process's environment.
pub async fn check(request: CheckRequest) -> CheckReport {
    let environment = environment();
    match ReqwestTransport::new(&environment) {
        Ok(transport) => check_with(request, environment, Arc::new(transport)).await,
        Err(error) => CheckReport { text: format!("error: {error}"), passed: false },
    }
}

/// Runs the check with another wire and environment.
pub async fn check_with(
    request: CheckRequest,
    environment: BTreeMap<String, String>,
    transport: Arc<dyn ArmTransport>,
) -> CheckReport {
    let loader = ConfigLoader {
        source: source(&request.config),
        client: request.client,
        environment: EnvironmentOverrides::of(environment.clone()),
        is_strict: request.strict,
    };
    let texts = match loader.texts().await {
        Ok(texts) => texts,
        Err(error) => return CheckReport { text: format!("error: {error}"), passed: false },
    };
    let offline = offline_report(&texts, &loader.environment, request.strict);
    let more = |config: &AzureConfig| lacking(config, &request.config.cluster_name, request.routes);
    let lacking: Option<Vec<ConfigFinding>> = offline.config.as_ref().map(more);
    let offline = offline.with_findings(lacking.unwrap_or_default(), request.strict);
    let watched: String = offline.config.iter().flat_map(requirements::watched).map(|line| line + "\n").collect();
    let mut report = CheckReport { text: offline.text() + &watched, passed: !offline.has_errors() };
    if let (true, Some(config)) = (request.online, offline.config) {
        let online = online::check(Arc::new(config), environment, transport).await;
        report = CheckReport { text: report.text + &online.text, passed: report.passed && online.passed };
    }
    report
}

/// Returns what a valid configuration lacks for the cluster of this name, for Services and, with `routes`, for routes.
pub(super) fn lacking(config: &AzureConfig, cluster: &str, routes: bool) -> Vec<ConfigFinding> {
    missing_cluster_entry(config, cluster).into_iter().chain(requirements::lacking(config, routes)).collect()
}

#[cfg(all(test, feature = "sandbox"))]
#[expect(clippy::unwrap_used, reason = "a test ends where what it needs is missing")]
mod tests;

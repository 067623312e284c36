//! The health checks of a manager.
//!
//! `/livez` fails only for errors that a restart can fix: leadership that is assumed but no longer renewed. `/readyz` also
//! fails while a dependency is missing. Upstream's `/healthz`, which manifests use as liveness probe, has a check per
//! started controller under its canonical name that always succeeds; so has ours. `/readyz` reports the problems of
//! controllers.

use std::sync::Arc;

use super::manager_state::ManagerState;
use crate::{
    runtime::store::WatchStatus,
    serving::{HealthChecks, HealthEndpointSet},
};

/// Returns every check, over the state in `watched`.
pub(super) fn checks(watched: &Arc<ManagerState>) -> HealthChecks {
    let checks = HealthChecks::default();
    if let Some(election) = watched.election.clone() {
        checks.add("leaderElection", HealthEndpointSet::ALL, move || election.check());
    }
    if let Some((name, election)) =
        watched.migration.as_ref().and_then(|own| Some((own.migration.lease_name.clone(), own.election.clone()?)))
    {
        checks.add(format!("leaderElection-{name}"), HealthEndpointSet::ALL, move || election.check());
    }
    let ready = |name: &str, check: fn(&ManagerState) -> Result<(), String>| {
        let seen = Arc::clone(watched);
        checks.add(name, HealthEndpointSet::READYZ, move || check(&seen));
    };
    ready("informer-nodes", |state| informer("nodes", &state.nodes.status()));
    if let Some(services) = watched.services.clone() {
        checks.add("informer-services", HealthEndpointSet::READYZ, move || informer("services", &services.status()));
    }
    ready("informer-namespaces", |state| on_demand("namespaces", state.namespaces.status()));
    ready("informer-endpointslices", |state| on_demand("endpointslices", state.endpoint_slices.status()));
    ready("cloud-provider", |state| match &*state.provider_ready.borrow() {
        Some(Ok(())) => state.provider.health(),
        Some(Err(reason)) => Err(format!("cannot be initialised, trying again: {reason}")),
        None => Err("is being initialised".to_owned()),
    });
    for (names, controller) in &watched.controllers {
        let controller = Arc::clone(controller);
        let name = names.canonical;
        checks.add(name, HealthEndpointSet::HEALTHZ_AND_LIVEZ, || Ok(()));
        checks.add(format!("controller-{name}"), HealthEndpointSet::READYZ, move || {
            controller.status().problem.map_or(Ok(()), Err)
        });
    }
    checks
}

/// Checks an on-demand informer. One without demand is not missing.
fn on_demand(kind: &str, status: Option<(WatchStatus, usize)>) -> Result<(), String> {
    status.map_or(Ok(()), |(status, _)| informer(kind, &status))
}

pub(super) fn informer(kind: &str, status: &WatchStatus) -> Result<(), String> {
    match (&status.error, status.synced) {
        (Some(error), _) => Err(format!("list or watch of {kind} fails: {error}")),
        (None, false) => {
            let since = status.behind_since.map_or(0, |since| since.elapsed().as_secs());
            Err(format!("the first list of {kind} has been under way for {since} s"))
        }
        (None, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn informer_is_ready_once_listed_and_without_error() {
        let listing = WatchStatus::default();
        let failing = WatchStatus { error: Some("403".to_owned()), ..WatchStatus::default() };
        let synced = WatchStatus { synced: true, ..WatchStatus::default() };
        let pending = "the first list of services has been under way for 0 s";
        assert_eq!(informer("services", &listing), Err(pending.to_owned()));
        assert_eq!(informer("services", &failing), Err("list or watch of services fails: 403".to_owned()));
        assert_eq!(informer("services", &synced), Ok(()));
    }
}

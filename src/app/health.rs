//! Health checks of a manager.
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

/// Returns all checks on `state`.
pub(super) fn checks(state: &Arc<ManagerState>) -> HealthChecks {
    let checks = HealthChecks::default();
    if let Some(election) = state.election.clone() {
        checks.add("leaderElection", HealthEndpointSet::ALL, move || election.check());
    }
    if let Some((name, election)) =
        state.migration.as_ref().and_then(|own| Some((own.migration.lease_name.clone(), own.election.clone()?)))
    {
        checks.add(format!("leaderElection-{name}"), HealthEndpointSet::ALL, move || election.check());
    }
    let ready = |name: &str, check: fn(&ManagerState) -> Result<(), String>| {
        let checked = Arc::clone(state);
        checks.add(name, HealthEndpointSet::READYZ, move || check(&checked));
    };
    ready("informer-nodes", |state| informer("nodes", &state.nodes.status()));
    if let Some(services) = state.services.clone() {
        checks.add("informer-services", HealthEndpointSet::READYZ, move || informer("services", &services.status()));
    }
    ready("informer-namespaces", |state| on_demand("namespaces", state.namespaces.status()));
    ready("informer-endpointslices", |state| on_demand("endpointslices", state.endpoint_slices.status()));
    ready("cloud-provider", |state| match &*state.provider_ready.borrow() {
        Some(Ok(())) => state.provider.health(),
        Some(Err(reason)) => Err(format!("cannot be initialized; retrying: {reason}")),
        None => Err("is being initialized".to_owned()),
    });
    for (names, controller) in &state.controllers {
        let controller = Arc::clone(controller);
        let name = names.canonical;
        checks.add(name, HealthEndpointSet::HEALTHZ_AND_LIVEZ, || Ok(()));
        checks.add(format!("controller-{name}"), HealthEndpointSet::READYZ, move || {
            controller.status().problem.map_or(Ok(()), Err)
        });
    }
    checks
}

/// Checks an on-demand informer. An informer that was not requested passes.
fn on_demand(kind: &str, status: Option<(WatchStatus, usize)>) -> Result<(), String> {
    status.map_or(Ok(()), |(status, _)| informer(kind, &status))
}

pub(super) fn informer(kind: &str, status: &WatchStatus) -> Result<(), String> {
    match (&status.error, status.synced) {
        (Some(error), _) => Err(format!("list or watch of {kind} fails: {error}")),
        (None, false) => {
            let since = status.behind_since.map_or(0, |since| since.elapsed().as_secs());
            Err(format!("the first list of {kind} has been in progress for {since} s"))
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
        let pending = "the first list of services has been in progress for 0 s";
        assert_eq!(informer("services", &listing), Err(pending.to_owned()));
        assert_eq!(informer("services", &failing), Err("list or watch of services fails: 403".to_owned()));
        assert_eq!(informer("services", &synced), Ok(()));
    }
}

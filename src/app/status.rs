//! Content of the status page: the work of this process, and what blocks it.

use super::manager_state::{ManagerState, MigrationState};
use crate::{
    cli::VERSION,
    controllers::Controller,
    runtime::store::WatchStatus,
    status::{
        ControllerStatus, InformerStatus, InformersStatus, ManagerStatus, MigrationStatus, ProviderState, ProviderStatus,
    },
};

pub(super) fn status(state: &ManagerState) -> ManagerStatus {
    ManagerStatus {
        version: VERSION.to_owned(),
        leading: Some(state.leadership.is_leading()),
        shadow: state.is_dry_run,
        leader_migration: state.migration.as_ref().map(|own| migration(own, state)),
        informers: InformersStatus {
            nodes: Some(informer((state.nodes.status(), state.nodes.len()))),
            services: state.services.as_ref().map(|services| informer((services.status(), services.len()))),
            namespaces: state.namespaces.status().map(informer),
            endpointslices: state.endpoint_slices.status().map(informer),
        },
        cloud_provider: provider(state),
        controllers: state.controllers.iter().map(|(names, running)| controller(names.canonical, &**running)).collect(),
        not_running: state.skipped.iter().map(|(name, reason)| ((*name).to_owned(), reason.clone())).collect(),
    }
}

fn migration(own: &MigrationState, state: &ManagerState) -> MigrationStatus {
    let names = state.controllers.iter().map(|(names, _)| names).filter(|names| own.has(names));
    MigrationStatus {
        lease: own.migration.lease_name.clone(),
        leading: own.leadership.is_leading(),
        controllers: names.map(|names| names.canonical.to_owned()).collect(),
    }
}

/// Updates the gauges of the controllers and the provider.
pub(super) fn observe(state: &ManagerState) {
    state.provider.observe();
    state.controllers.iter().for_each(|(_, controller)| controller.observe());
}

fn provider(manager: &ManagerState) -> ProviderStatus {
    let state = match &*manager.provider_ready.borrow() {
        None => ProviderState::Initializing,
        Some(Ok(())) => ProviderState::Initialized,
        Some(Err(reason)) => ProviderState::Failed(format!("cannot be initialized; retrying: {reason}")),
    };
    ProviderStatus {
        name: Some(manager.provider.provider_name().to_owned()),
        state: Some(state),
        problem: manager.provider.health().err(),
        details: manager.provider.status(),
    }
}

/// Returns the state of a controller.
pub(super) fn controller(name: &str, running: &dyn Controller) -> ControllerStatus {
    ControllerStatus { name: name.to_owned(), ..running.status() }
}

/// Returns the state of a watch with this number of objects.
pub(super) fn informer((watch, objects): (WatchStatus, usize)) -> InformerStatus {
    InformerStatus { synced: watch.synced, objects, error: watch.error }
}

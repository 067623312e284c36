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

pub(super) fn status(watched: &ManagerState) -> ManagerStatus {
    ManagerStatus {
        version: VERSION.to_owned(),
        leading: Some(watched.leadership.is_leading()),
        shadow: watched.is_dry_run,
        leader_migration: watched.migration.as_ref().map(|own| migration(own, watched)),
        informers: InformersStatus {
            nodes: Some(informer((watched.nodes.status(), watched.nodes.len()))),
            services: watched.services.as_ref().map(|services| informer((services.status(), services.len()))),
            namespaces: watched.namespaces.status().map(informer),
            endpointslices: watched.endpoint_slices.status().map(informer),
        },
        cloud_provider: provider(watched),
        controllers: watched.controllers.iter().map(|(names, running)| controller(names.canonical, &**running)).collect(),
        not_running: watched.skipped.iter().map(|(name, reason)| ((*name).to_owned(), reason.clone())).collect(),
    }
}

fn migration(own: &MigrationState, watched: &ManagerState) -> MigrationStatus {
    let names = watched.controllers.iter().map(|(names, _)| names).filter(|names| own.has(names));
    MigrationStatus {
        lease: own.migration.lease_name.clone(),
        leading: own.leadership.is_leading(),
        controllers: names.map(|names| names.canonical.to_owned()).collect(),
    }
}

/// Brings the gauges of controllers and provider up to date.
pub(super) fn observe(watched: &ManagerState) {
    watched.provider.observe();
    watched.controllers.iter().for_each(|(_, controller)| controller.observe());
}

fn provider(watched: &ManagerState) -> ProviderStatus {
    let state = match &*watched.provider_ready.borrow() {
        None => ProviderState::Initializing,
        Some(Ok(())) => ProviderState::Initialized,
        Some(Err(reason)) => ProviderState::Failed(format!("cannot be initialised, trying again: {reason}")),
    };
    ProviderStatus {
        name: Some(watched.provider.provider_name().to_owned()),
        state: Some(state),
        problem: watched.provider.health().err(),
        details: watched.provider.status(),
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

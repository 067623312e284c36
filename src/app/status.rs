//! Content of the status page: the work of this process, and what blocks it.

use serde_json::{Value, json};

use super::manager_state::{ManagerState, MigrationState};
use crate::{
    controllers::ControllerStatus,
    runtime::{store::WatchStatus, work_queue::UnsettledKey},
};

pub(super) fn value(watched: &ManagerState) -> Value {
    let controllers: Vec<Value> =
        watched.controllers.iter().map(|(names, running)| controller(names.canonical, running.status())).collect();
    json!({
        "version": crate::cli::VERSION,
        "leading": watched.leadership.is_leading(),
        "shadow": watched.is_dry_run,
        "leaderMigration": watched.migration.as_ref().map(|own| migration(own, watched)),
        "informers": {
            "nodes": informer(&watched.nodes.status(), watched.nodes.len()),
            "services": watched.services.as_ref().map(|services| informer(&services.status(), services.len())),
            "namespaces": on_demand(watched.namespaces.status()),
            "endpointslices": on_demand(watched.endpoint_slices.status()),
        },
        "cloudProvider": provider(watched),
        "controllers": controllers,
        "notRunning": watched.skipped.iter().map(|(name, why)| ((*name).to_owned(), Value::from(why.clone()))).collect::<serde_json::Map<_, _>>(),
    })
}

fn migration(own: &MigrationState, watched: &ManagerState) -> Value {
    let names = watched.controllers.iter().map(|(names, _)| names).filter(|names| own.has(names));
    let controllers: Vec<_> = names.map(|names| names.canonical).collect();
    json!({"lease": own.migration.lease_name, "leading": own.leadership.is_leading(), "controllers": controllers})
}

/// Brings the gauges of controllers and provider up to date.
pub(super) fn observe(watched: &ManagerState) {
    watched.provider.observe();
    watched.controllers.iter().for_each(|(_, controller)| controller.observe());
}

fn provider(watched: &ManagerState) -> Value {
    let state = match &*watched.provider_ready.borrow() {
        None => "initialising".to_owned(),
        Some(Ok(())) => "initialised".to_owned(),
        Some(Err(reason)) => format!("cannot be initialised, trying again: {reason}"),
    };
    json!({"name": watched.provider.provider_name(), "state": state, "problem": watched.provider.health().err(), "details": watched.provider.status()})
}

/// Returns the state of a controller.
pub(super) fn controller(name: &str, status: ControllerStatus) -> Value {
    json!({
        "name": name,
        "problem": status.problem,
        "facts": status.facts.into_iter().map(|(name, value)| (name, Value::from(value))).collect::<serde_json::Map<_, _>>(),
        "unsettled": status.unsettled.iter().map(unsettled).collect::<Vec<_>>(),
        "drift": status.drift,
    })
}

/// Returns the state of a watch.
pub(super) fn informer(status: &WatchStatus, objects: usize) -> Value {
    json!({"synced": status.synced, "objects": objects, "error": status.error})
}

/// Returns the state of a watch that runs only when the provider needs it.
fn on_demand(status: Option<(WatchStatus, usize)>) -> Value {
    status.map_or(Value::Null, |(status, objects)| informer(&status, objects))
}

fn unsettled(row: &UnsettledKey) -> Value {
    json!({
        "key": row.key,
        "runningForSeconds": row.running_for.map(|age| age.as_secs_f64()),
        "dueInSeconds": row.due_in.map(|delay| delay.as_secs_f64()),
        "failures": row.failures,
        "reason": row.reason,
        "class": row.class,
    })
}

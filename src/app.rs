//! Composition root: the only module that depends on controllers, providers, clients and servers.
//!
//! In: a [`Registry`] of providers and the process's arguments. Out: an exit code: 0 after an orderly stop, 1 for invalid input, a
//! failed start or a lost lease. The `main.rs` of a third party is `app::run(Registry::new().register(…))`.

mod app_error;
mod build_metrics;
mod check_config;
mod client_source;
mod clients;
mod controller_runs;
pub mod doctor;
pub mod election;
mod events_reference;
mod explain;
mod health;
mod health_probe_proxy;
mod image_credentials;
mod informer_watchdog;
pub mod manager;
mod manager_state;
mod node_manager;
mod orphans;
pub mod plan;
pub mod plan_command;
mod process;
mod review_clients;
pub mod rights;
mod second_lease;
mod start_error;
mod status;
mod status_command;
mod support_bundle;
mod webhooks;
mod wiring;

use std::{ffi::OsString, process::ExitCode, sync::Arc};

use crate::{
    cli::{self, CliCommand, PlanOptions, RegisteredProviders, config::ManagerConfig, logging},
    cloud_provider::Registry,
    metrics::Metrics,
    runtime::{clock::Clock, shutdown::Shutdown},
};

pub use events_reference::{EventTable, events_reference};
pub use process::on_runtime;

use app_error::AppError;
use election::ElectionHost;
use manager::{ManagerDeps, ManagerOutcome};
use process::{exit_with, fail, print, verbosity};

/// Runs the program with the arguments of the process, and returns its exit code.
pub fn run(registry: &Registry) -> ExitCode {
    run_with(registry, std::env::args_os())
}

/// Runs the program with `arguments`, the first of which is the program's name, and returns its exit code.
pub fn run_with(registry: &Registry, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (all, checkable, local) = (registry.names(), registry.checkable(), registry.local_names());
    let providers = RegisteredProviders { all: &all, checkable: &checkable, local: &local, flags: registry.flags() };
    let ended = cli::parse_for(arguments, providers).map_err(AppError::from).and_then(|command| execute(registry, command));
    ended.unwrap_or_else(|error| fail(&error))
}

/// Executes a command. The caller prints an error and exits with 1.
fn execute(registry: &Registry, command: CliCommand) -> Result<ExitCode, AppError> {
    match command {
        CliCommand::Print(text) => Ok(print(&text, ExitCode::SUCCESS)),
        CliCommand::Check(check) => check_config::run(registry, &check),
        CliCommand::Plan(options) => plan(registry, *options),
        CliCommand::Examine(options) => doctor::run(registry, &options),
        CliCommand::FindOrphans(options) => orphans::run(registry, &options),
        CliCommand::GatherSupport(options) => support_bundle::run(registry, &options),
        CliCommand::Status(options) => status_command::run(&options),
        CliCommand::Explain(options) => explain::run(registry, &options),
        CliCommand::ManageNode(config) => node_manager::start(registry, *config),
        CliCommand::ProxyProbes(config) => health_probe_proxy::start(&config),
        CliCommand::ProvideImageCredentials(options) => image_credentials::start(registry, *options),
        CliCommand::Run(config) => start(registry, *config),
    }
}

fn start(registry: &Registry, config: ManagerConfig) -> Result<ExitCode, AppError> {
    let log = logging::install(&config.logging)?;
    for notice in &config.notices {
        tracing::warn!("{notice}");
    }
    let ended = on_runtime(|stop| serve(registry, config, log, stop)).map_err(|error| format!("cannot continue: {error}"));
    Ok(match ended.map_err(AppError::from).flatten()? {
        ManagerOutcome::Stopped => ExitCode::SUCCESS,
        ManagerOutcome::LeaseLost => fail(&"leaderelection lost"),
        ManagerOutcome::InformersStale => fail(
            &"this replica led without a current view of the cluster; another one takes over (see the log for the stale objects)",
        ),
        ManagerOutcome::ClusterRefused => fail(
            &"the cloud provider refuses to lead this cluster, as the log explains: set --cloud-provider to the cloud of its Nodes",
        ),
        ManagerOutcome::UnexpectedEnd => fail(&"a part of the manager ended unexpectedly"),
    })
}

/// Prints one plan. The log is written to stderr, with errors only.
fn plan(registry: &Registry, mut options: PlanOptions) -> Result<ExitCode, AppError> {
    options.manager.logging.quiet = true;
    let log = logging::install(&options.manager.logging)?;
    let planned = on_runtime(async |stop| {
        let parts = parts(registry, options.manager.clone(), log, &stop).await?;
        Ok::<_, AppError>(plan_command::plan(parts, &options).await?)
    });
    let outcome = planned.map_err(AppError::from).flatten().map_err(|error| format!("no plan: {error}"))?;
    Ok(print(&outcome.text, ExitCode::from(outcome.code)))
}

async fn serve(
    registry: &Registry,
    config: ManagerConfig,
    log: logging::LogHandle,
    stop: Shutdown,
) -> Result<ManagerOutcome, AppError> {
    let parts = parts(registry, config, log, &stop).await?;
    Ok(manager::run_with(parts, ElectionHost::OwnThread { end: exit_with }, &stop).await?)
}

async fn parts(
    registry: &Registry,
    config: ManagerConfig,
    log: logging::LogHandle,
    stop: &Shutdown,
) -> Result<ManagerDeps, AppError> {
    let metrics = Arc::new(Metrics::new()?.with_process()?);
    registry.register_metrics(&metrics)?;
    let factory = registry.get(&config.cloud.provider).ok_or("the cloud provider is not registered")?;
    let provider = factory(&config.cloud.config)?;
    let clients = Arc::new(clients::from_config(&config, Arc::clone(&metrics), stop).await?);
    let set_verbosity = verbosity(log);
    Ok(ManagerDeps { config, clients, provider, metrics, clock: Clock::System, set_verbosity })
}

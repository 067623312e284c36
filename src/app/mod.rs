//! The composition root: the only place that knows controllers, provider, clients and servers alike.
//!
//! In: a [`Registry`] of providers and the process's arguments. Out: an exit code: 0 after an orderly stop, 1 for bad input, a
//! failed start or a lost lease. A third party's whole `main.rs` is `app::run(Registry::new().register(…))`.

mod check_config;
mod clients;
mod dry_run;
pub mod election;
mod events_reference;
mod health;
mod informer_watchdog;
pub mod manager;
mod node_manager;
mod status;
mod wiring;

use std::{ffi::OsString, io::Write, process::ExitCode, sync::Arc};

use crate::{
    cli::{
        self, CliCommand, ProviderNames,
        config::{KubeCloudSharedOptions, ManagerConfig},
        logging,
    },
    cloud_provider::{
        Registry,
        registry::{ProviderConfig, SecretRef},
    },
    metrics::Metrics,
    runtime::{clock::Clock, shutdown::Shutdown},
};

pub use events_reference::{EventTable, events_reference};

use election::ElectionHost;
use manager::{ManagerDeps, ManagerOutcome};

/// Runs the program with the process's own arguments.
pub fn run(registry: &Registry) -> ExitCode {
    run_with(registry, std::env::args_os())
}

/// Runs the program with `arguments`, the first of which is the program's name.
pub fn run_with(registry: &Registry, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (all, checkable, local) = (registry.names(), registry.checkable(), registry.local_names());
    match cli::parse_for(arguments, ProviderNames { all: &all, checkable: &checkable, local: &local }) {
        Ok(CliCommand::Print(text)) => print(&text, ExitCode::SUCCESS),
        Ok(CliCommand::Check(check)) => check_config::run(registry, *check),
        Ok(CliCommand::ManageNode(config)) => node_manager::start(registry, *config),
        Ok(CliCommand::Run(config)) => start(registry, *config),
        Err(error) => fail(&error),
    }
}

/// Prints what was asked for, and ends with `code` unless it cannot be written. A reader that has seen enough is no failure.
fn print(text: &str, code: ExitCode) -> ExitCode {
    let mut output = std::io::stdout().lock();
    match writeln!(output, "{}", text.trim_end()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            fail(&format!("cannot write to standard output: {error}"))
        }
        _ => code,
    }
}

fn fail(problem: &dyn std::fmt::Display) -> ExitCode {
    let _ = writeln!(std::io::stderr().lock(), "{problem}");
    ExitCode::FAILURE
}

/// Ends the process from whatever thread notices that it must not go on: those that could end it in good order may be blocked.
fn exit_with(problem: &str) -> ! {
    fail(&problem);
    std::process::exit(1)
}

fn start(registry: &Registry, config: ManagerConfig) -> ExitCode {
    let log = match logging::install(&config.logging) {
        Ok(log) => log,
        Err(error) => return fail(&error),
    };
    for notice in &config.notices {
        tracing::warn!("{notice}");
    }
    match on_runtime(|stop| serve(registry, config, log, stop)) {
        Ok(Ok(ManagerOutcome::Stopped)) => ExitCode::SUCCESS,
        Ok(Ok(ManagerOutcome::LeaseLost)) => fail(&"leaderelection lost"),
        Ok(Ok(ManagerOutcome::InformersStale)) => {
            fail(&"this replica led without seeing the cluster; another one takes over (the log says what it missed)")
        }
        Ok(Ok(ManagerOutcome::UnexpectedEnd)) => fail(&"a part of the manager ended unexpectedly"),
        Ok(Err(error)) => fail(&error),
        Err(error) => fail(&format!("cannot go on: {error}")),
    }
}

/// Runs `work` with a shutdown that SIGTERM and SIGINT begin; a second signal ends it at once, as in `k8s.io/apiserver/pkg/server`.
pub fn on_runtime<F, R>(work: F) -> std::io::Result<R::Output>
where
    F: FnOnce(Shutdown) -> R,
    R: Future,
{
    run_on(two_threads(), work)
}

/// As many threads as there is work for, however many cores the machine has: the manager waits much more than it computes, and each
/// thread has a part of the heap to itself, of which most stays unused.
fn two_threads() -> tokio::runtime::Builder {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2);
    builder
}

/// One thread for everything; what blocks for a moment, such as looking up a name, gets one of its own.
fn single_threaded() -> tokio::runtime::Builder {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.max_blocking_threads(2).thread_keep_alive(std::time::Duration::from_secs(1));
    builder
}

fn run_on<F, R>(mut runtime: tokio::runtime::Builder, work: F) -> std::io::Result<R::Output>
where
    F: FnOnce(Shutdown) -> R,
    R: Future,
{
    let runtime = runtime.enable_all().build()?;
    let ended = runtime.block_on(async {
        let stop = Shutdown::new();
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let mut interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
        let asked = stop.clone();
        let mut signal = async move || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let again = tokio::spawn(async move {
            signal().await;
            asked.begin();
            signal().await;
        });
        tokio::select! {
            output = work(stop) => Ok(output),
            _ = again => Err(std::io::Error::other("a second signal came: ending at once, the lease is not released")),
        }
    });
    // What still hangs must not keep the process from ending.
    runtime.shutdown_background();
    ended
}

/// What `PUT /debug/flags/v` does.
fn verbosity(log: logging::LogHandle) -> Arc<dyn Fn(u8) + Send + Sync> {
    Arc::new(move |level| {
        if let Err(error) = log.set_verbosity(level) {
            tracing::warn!(%error, level, "log verbosity not changed");
        }
    })
}

fn provider_config(cloud: &KubeCloudSharedOptions) -> ProviderConfig {
    let secret = cloud.cloud_config_secret.clone();
    ProviderConfig {
        cloud_config: cloud.cloud_config.clone(),
        cloud_config_secret: secret.map(|secret| SecretRef {
            namespace: secret.namespace,
            name: secret.name,
            key: secret.key,
        }),
        reload: cloud.reload,
        cluster_name: cloud.cluster_name.clone(),
    }
}

async fn serve(
    registry: &Registry,
    config: ManagerConfig,
    log: logging::LogHandle,
    stop: Shutdown,
) -> Result<ManagerOutcome, Box<dyn std::error::Error + Send + Sync>> {
    let metrics = Arc::new(Metrics::new()?.with_process()?);
    let factory = registry.get(&config.cloud.provider).ok_or("the cloud provider is not registered")?;
    let provider = factory(&provider_config(&config.cloud))?;
    let clients = Arc::new(clients::from_config(&config, Arc::clone(&metrics), &stop).await?);
    let set_verbosity = verbosity(log);
    let parts = ManagerDeps { config, clients, provider, metrics, clock: Clock::System, set_verbosity };
    Ok(manager::run_with(parts, ElectionHost::OwnThread { end: exit_with }, &stop).await?)
}

//! `cloud-node-manager`: builds a node manager from the flags and runs it until the process receives a signal.
//!
//! In: the validated command line. Out: an exit code. It runs on every machine, so it is optimized for memory: one thread, two
//! clients, and a server with another client only if a port is configured.

use std::{process::ExitCode, sync::Arc, time::Duration};

use serde_json::json;

use super::{
    app_error::AppError,
    process::{run_on, single_threaded, verbosity},
    review_clients::ReviewClientSource,
};
use crate::{
    cli::{NodeManagerConfig, VERSION, logging},
    cloud_provider::{LocalConfig, Registry},
    controllers::Controller,
    metrics::Metrics,
    node_manager::{NodeManager, NodeManagerDeps},
    runtime::{client::KubeClients, clock::Clock, host_name::host_name, shutdown::Shutdown},
    serving::{self, HealthChecks, HealthEndpointSet, ReviewClients},
    status::{InformersStatus, ManagerStatus, ProviderStatus},
};

/// Time that a running reconcile, which waits for one request, may take to end.
const GRACE: Duration = Duration::from_secs(10);
/// Time that queued writes may take.
const BACKGROUND_DRAIN: Duration = Duration::from_secs(2);

/// Runs the node manager until SIGTERM or SIGINT.
pub(super) fn start(registry: &Registry, config: NodeManagerConfig) -> Result<ExitCode, AppError> {
    let log = logging::install(&config.logging)?;
    for notice in &config.notices {
        tracing::warn!("{notice}");
    }
    #[cfg(windows)]
    if config.windows_service {
        let registry = registry.clone();
        let work = move || manage(&registry, config, log).unwrap_or_else(|error| super::process::fail(&error));
        return Ok(super::process::windows_service::run(work)?);
    }
    manage(registry, config, log)
}

fn manage(registry: &Registry, config: NodeManagerConfig, log: logging::LogHandle) -> Result<ExitCode, AppError> {
    let ended = run_on(single_threaded(), |stop| run(registry, config, log, stop));
    ended.map_err(|error| format!("cannot continue: {error}"))??;
    Ok(ExitCode::SUCCESS)
}

async fn run(
    registry: &Registry,
    config: NodeManagerConfig,
    log: logging::LogHandle,
    stop: Shutdown,
) -> Result<(), AppError> {
    let metrics = Arc::new(Metrics::new()?.with_process()?);
    registry.register_metrics(&metrics)?;
    let node_name = config.node_name.clone().unwrap_or_else(|| host_name().to_lowercase());
    let factory = registry.local(&config.provider).ok_or("the cloud provider does not support cloud-node-manager")?;
    let settings = config.settings;
    let provider = factory(&LocalConfig {
        node_name: node_name.clone(),
        use_instance_metadata: config.use_instance_metadata,
        cloud_config: config.cloud_config.clone(),
        max_age: settings.max_age(),
    })?;
    let clients = KubeClients::load(config.kube_api.clone(), Arc::clone(&metrics)).await?;
    let reviews = ReviewClientSource::load(&clients, (&config.serving, &config.kube_api), &metrics).await?;
    let client = clients.for_component("node-controller")?;
    let parts = NodeManagerDeps {
        node_name: node_name.clone(),
        client,
        watches: clients.for_watches()?,
        provider,
        metrics: Arc::clone(&metrics),
        clock: Clock::System,
        settings,
    };
    let background = Shutdown::new();
    let manager = NodeManager::start(parts, &background)?;
    tracing::info!(node = node_name, version = config.version, "managing the node of this machine");
    serve(&config, &node_name, &manager, reviews.clients()?, metrics, log, &background).await?;
    let ended = async {
        stop.begun().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        () = manager.run(&stop) => {}
        () = ended => tracing::warn!("a running reconcile did not finish in time"),
    }
    background.begin();
    background.drain(BACKGROUND_DRAIN).await;
    Ok(())
}

async fn serve(
    config: &NodeManagerConfig,
    node_name: &str,
    manager: &NodeManager,
    reviews: ReviewClients,
    metrics: Arc<Metrics>,
    log: logging::LogHandle,
    background: &Shutdown,
) -> Result<(), AppError> {
    if config.serving.port == 0 {
        return Ok(());
    }
    let (for_status, for_metrics) = (manager.clone(), manager.clone());
    let parts = serving::ServingDeps {
        metrics,
        health: checks(node_name, manager),
        reviews: Some(reviews),
        configz: json!({"flags": config.flagz.iter().cloned().collect::<std::collections::BTreeMap<_, _>>()}),
        flagz: config.flagz.clone(),
        status: Arc::new(move || status(&for_status)),
        planner: None,
        before_metrics: Arc::new(move || for_metrics.controller.observe()),
        set_verbosity: verbosity(log),
        clock: Clock::System,
    };
    serving::serve(config.serving.clone(), parts, background.clone()).await?;
    Ok(())
}

/// Returns the health checks. `/healthz` has one check, as upstream: it is named after the Node and always succeeds.
/// `/readyz` reports missing dependencies.
fn checks(node_name: &str, manager: &NodeManager) -> HealthChecks {
    let checks = HealthChecks::default();
    checks.add(node_name, HealthEndpointSet::HEALTHZ_AND_LIVEZ, || Ok(()));
    let own = manager.clone();
    checks.add("informer-nodes", HealthEndpointSet::READYZ, move || super::health::informer("nodes", &own.nodes.status()));
    let own = manager.clone();
    checks.add("cloud-provider", HealthEndpointSet::READYZ, move || own.provider_problem().map_or(Ok(()), Err));
    let own = manager.clone();
    checks.add("controller-node", HealthEndpointSet::READYZ, move || own.controller.status().problem.map_or(Ok(()), Err));
    checks
}

fn status(manager: &NodeManager) -> ManagerStatus {
    let nodes = Some(super::status::informer((manager.nodes.status(), 1)));
    ManagerStatus {
        version: VERSION.to_owned(),
        informers: InformersStatus { nodes, ..InformersStatus::default() },
        cloud_provider: ProviderStatus {
            problem: manager.provider_problem(),
            details: manager.provider.status(),
            ..ProviderStatus::default()
        },
        controllers: vec![super::status::controller("cloud-node-manager", &*manager.controller)],
        ..ManagerStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use crate::cli;

    #[test]
    fn certificate_has_the_name_of_the_program() {
        let arguments = ["cloud-node-manager", "--node-name=n", "--cert-dir=/certs"];
        let providers =
            cli::RegisteredProviders { all: &["azure"], local: &["azure"], ..cli::RegisteredProviders::default() };
        let Ok(cli::CliCommand::ManageNode(config)) = cli::parse_for(arguments.map(Into::into), providers) else {
            panic!("expected the command cloud-node-manager")
        };
        let settings = config.serving;
        assert_eq!((settings.pair_name, settings.cert_dir), ("cloud-node-manager", Some("/certs".into())));
    }
}

//! Command `doctor`: checks the requirements of a manager in the cluster and the cloud, and suggests fixes.
//!
//! ```text
//! API server ─► cluster ─► ClusterFacts ─┬─► verdicts, rights ─┐
//!                                        └─► the provider ─────┴─► findings ─► print
//! ```
//! In: a manager's configuration. Out: a row for each finding, as table or JSON, and an exit code: 0 for no problem, 2 for problems,
//! 1 if no problem was found but not everything could be checked. It changes nothing, because the API server does not store access
//! reviews.

mod checks;
mod cluster;
pub(super) mod print;
mod rights;
#[cfg(all(test, feature = "sandbox", feature = "azure"))]
#[expect(clippy::unwrap_used, clippy::panic, reason = "a test fails without its fixtures")]
mod tests;
mod verdicts;

use std::{process::ExitCode, sync::Arc};

use kube::Client;

pub use checks::reference_page;
pub(super) use cluster::ClusterFacts;

use super::{
    app_error::AppError,
    process::{on_runtime, print as print_to},
};
use crate::{
    cli::{DiagnoseOptions, config::KubeCloudSharedOptions},
    cloud_provider::{
        Registry,
        diagnostics::{DiagnosticRequest, Examination, OrphanReport, ProviderDiagnostics},
    },
    metrics::Metrics,
    runtime::{
        client::{KubeClientConfig, KubeClients, read_only},
        clock::Clock,
    },
};

pub(super) fn run(registry: &Registry, options: &DiagnoseOptions) -> Result<ExitCode, AppError> {
    let Examination { findings, .. } = on_runtime(async |_| examine(registry, options).await)?;
    let text = if options.json { print::json(&findings) } else { print::text(&findings) };
    Ok(print_to(&text, ExitCode::from(print::code(&findings))))
}

pub(super) async fn examine(registry: &Registry, options: &DiagnoseOptions) -> Examination {
    let provider = registry.diagnostics(&options.manager.cloud.provider);
    let client = client(&options.manager.kube_api, "doctor").await.map_err(|error| error.to_string());
    examine_with(client, provider, options, Clock::System.wall()).await
}

/// Creates a client that only reads.
pub(super) async fn client(kube_api: &KubeClientConfig, component: &str) -> Result<Client, AppError> {
    let clients = KubeClients::load(kube_api.clone(), Arc::new(Metrics::new()?)).await?;
    Ok(read_only(clients.for_component(component)?))
}

/// Makes all checks. `client` is the reason if there is no connection to the API server.
pub(super) async fn examine_with(
    client: Result<Client, String>,
    provider: Option<Arc<dyn ProviderDiagnostics>>,
    options: &DiagnoseOptions,
    now: jiff::Timestamp,
) -> Examination {
    let manager = &options.manager;
    let facts = match &client {
        Ok(client) => ClusterFacts::read(client, &manager.leader_election).await,
        Err(reason) => ClusterFacts::unread(reason),
    };
    let mut findings = verdicts::of_cluster(&facts, manager, provider.as_deref(), now);
    if let (Ok(client), true) = (&client, facts.server.is_ok()) {
        let needed = rights::needed(provider.as_deref(), &manager.leader_election);
        findings.extend(rights::examine(client, needed, options.account.as_ref()).await);
    }
    let orphans = match &provider {
        Some(provider) => {
            let cloud = provider.examine(&request(&manager.cloud, client.ok(), facts)).await;
            findings.extend(cloud.findings);
            cloud.orphans
        }
        None => {
            let reason = format!("the cloud provider {:?} does not list the resources that it owns", manager.cloud.provider);
            OrphanReport { unread: vec![reason], ..OrphanReport::default() }
        }
    };
    Examination { findings: checks::in_order(findings, provider.as_deref()), orphans }
}

/// Returns the input of the provider's checks.
pub(super) fn request(cloud: &KubeCloudSharedOptions, client: Option<Client>, facts: ClusterFacts) -> DiagnosticRequest {
    let ClusterFacts { nodes, services, .. } = facts;
    let (config, routes) = (cloud.config.clone(), cloud.configure_cloud_routes);
    DiagnosticRequest { config, routes, client, nodes, services }
}

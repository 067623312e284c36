//! The command `doctor`: examines what a manager needs in the cluster and the cloud, and says what to do.
//!
//! ```text
//! API server ─► cluster ─► ClusterFacts ─┬─► verdicts, rights ─┐
//!                                        └─► the provider ─────┴─► findings ─► print
//! ```
//! In: a manager's configuration. Out: a row for each finding, as table or JSON, and an exit code: 0 no problem, 2 problems, 1 no problem was
//! found but not everything could be looked at. It changes nothing: access reviews are answered, not kept.

mod checks;
mod cluster;
pub(super) mod print;
mod rights;
#[cfg(all(test, feature = "sandbox", feature = "azure"))]
#[expect(clippy::unwrap_used, clippy::panic, reason = "a test ends where what it needs is missing")]
mod tests;
mod verdicts;

use std::{process::ExitCode, sync::Arc};

pub use checks::reference_page;
pub(crate) use checks::topics;
pub(super) use cluster::ClusterFacts;

use super::process::{fail, on_runtime, print as print_to};
use crate::{
    cli::{DiagnoseOptions, config::ManagerConfig},
    cloud_provider::{
        Registry,
        diagnostics::{DiagnosticFinding, DiagnosticRequest, ProviderDiagnostics},
    },
    metrics::Metrics,
    runtime::{
        client::{KubeClients, read_only},
        clock::Clock,
    },
};

type DoctorError = Box<dyn std::error::Error + Send + Sync>;

pub(super) fn run(registry: &Registry, options: &DiagnoseOptions) -> ExitCode {
    let findings = match on_runtime(async |_| examine(registry, options).await) {
        Ok(findings) => findings,
        Err(error) => return fail(&error),
    };
    let text = if options.json { print::json(&findings) } else { print::text(&findings) };
    print_to(&text, ExitCode::from(print::code(&findings)))
}

pub(super) async fn examine(registry: &Registry, options: &DiagnoseOptions) -> Vec<DiagnosticFinding> {
    let provider = registry.diagnostics(&options.manager.cloud.provider);
    let client = client(&options.manager, "doctor").await.map_err(|error| error.to_string());
    examine_with(client, provider, options, Clock::System.wall()).await
}

/// Creates a client that only reads.
pub(super) async fn client(manager: &ManagerConfig, component: &str) -> Result<kube::Client, DoctorError> {
    let clients = KubeClients::load(manager.kube_api.clone(), Arc::new(Metrics::new()?)).await?;
    Ok(read_only(clients.for_component(component)?))
}

/// Makes all checks. `client` is an error if there is no connection to the API server.
pub(super) async fn examine_with(
    client: Result<kube::Client, String>,
    provider: Option<Arc<dyn ProviderDiagnostics>>,
    options: &DiagnoseOptions,
    now: jiff::Timestamp,
) -> Vec<DiagnosticFinding> {
    let manager = &options.manager;
    let facts = match &client {
        Ok(client) => ClusterFacts::read(client, &manager.leader_election).await,
        Err(reason) => ClusterFacts::unseen(reason),
    };
    let mut findings = verdicts::of_cluster(&facts, manager, provider.as_deref(), now);
    if let (Ok(client), true) = (&client, facts.server.is_ok()) {
        let needed = rights::needed(provider.as_deref(), &manager.leader_election);
        findings.extend(rights::examine(client, needed, options.account.as_ref()).await);
    }
    if let Some(provider) = &provider {
        let request = request(manager, client.ok(), facts);
        findings.extend(provider.examine(&request).await);
    }
    checks::in_order(findings, provider.as_deref())
}

/// Returns the input of the provider's checks.
pub(super) fn request(manager: &ManagerConfig, client: Option<kube::Client>, facts: ClusterFacts) -> DiagnosticRequest {
    let ClusterFacts { nodes, services, .. } = facts;
    let (config, routes) = (manager.cloud.config.clone(), manager.cloud.configure_cloud_routes);
    DiagnosticRequest { config, routes, client, nodes, services }
}

//! `check-config`: hands the configuration to the provider's own check and prints what it found.
//!
//! In: what to check. Out: a report on stdout and an exit code: 0 when the configuration can be used, 1 when not.

use std::{process::ExitCode, sync::Arc};

use super::{
    clients,
    process::{fail, on_runtime, print},
    wiring::provider_config,
};
use crate::{
    cli::{self, CheckConfigOptions},
    cloud_provider::{
        Registry,
        registry::{CheckReport, CheckRequest},
    },
    metrics::Metrics,
};

type CheckConfigError = Box<dyn std::error::Error + Send + Sync>;

pub(super) fn run(registry: &Registry, check: CheckConfigOptions) -> ExitCode {
    match on_runtime(|_| report(registry, check)) {
        Ok(Ok(report)) => print(&report.text, if report.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        Ok(Err(error)) => fail(&error),
        Err(error) => fail(&error),
    }
}

async fn report(registry: &Registry, check: CheckConfigOptions) -> Result<CheckReport, CheckConfigError> {
    let provider = registry.check(&check.cloud.provider).ok_or("this provider has no check of its configuration")?;
    let config = provider_config(&check.cloud);
    let client = match &config.cloud_config_secret {
        None => None,
        Some(_) => {
            let clients = clients::load(cli::NAME, &check.kube_api, cli::VERSION, Arc::new(Metrics::new()?)).await?;
            Some(clients.for_component(cli::CHECK_CONFIG)?)
        }
    };
    let routes = check.cloud.configure_cloud_routes;
    Ok(provider(CheckRequest { config, routes, client, online: check.online, strict: check.strict }).await)
}

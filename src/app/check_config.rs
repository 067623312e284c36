//! `check-config`: hands the configuration to the provider's own check and prints what it found.
//!
//! In: what to check. Out: a report on stdout and an exit code: 0 when the configuration can be used, 1 when not.

use std::{process::ExitCode, sync::Arc};

use super::process::{fail, on_runtime, print};
use crate::{
    cli::{self, CheckConfigOptions},
    cloud_provider::{
        Registry,
        registry::{CheckReport, CheckRequest},
    },
    metrics::Metrics,
    runtime::client::KubeClients,
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
    let config = check.cloud.config;
    let client = match &config.cloud_config_secret {
        None => None,
        Some(_) => {
            let clients = KubeClients::load(check.kube_api, Arc::new(Metrics::new()?)).await?;
            Some(clients.for_component(cli::CHECK_CONFIG)?)
        }
    };
    let routes = check.cloud.configure_cloud_routes;
    Ok(provider(CheckRequest { config, routes, client, online: check.online, strict: check.strict }).await)
}

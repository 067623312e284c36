//! `health-probe-proxy`: runs the proxy until the process receives a signal.
//!
//! In: the validated command line. Out: an exit code. It runs on every machine, so it has one thread and no client of any API.

use std::process::ExitCode;

use super::{
    app_error::AppError,
    process::{run_on, single_threaded},
};
use crate::{
    cli::{HealthProbeProxyConfig, logging},
    health_probe_proxy::{self, ProbeProxySettings},
};

/// Runs the proxy until SIGTERM or SIGINT.
pub(super) fn start(config: &HealthProbeProxyConfig) -> Result<ExitCode, AppError> {
    logging::install(&config.logging)?;
    let settings = ProbeProxySettings { health_check_port: config.health_check_port, target_port: config.target_port };
    let ended = run_on(single_threaded(), |stop| async move { health_probe_proxy::run(settings, &stop).await });
    ended.map_err(|error| format!("cannot continue: {error}"))??;
    Ok(ExitCode::SUCCESS)
}

//! `health-probe-proxy`: runs the proxy until the process receives a signal.
//!
//! In: the command line, validated. Out: an exit code. It runs on every machine: one thread, and no client of any API.

use std::process::ExitCode;

use super::process::{fail, run_on, single_threaded};
use crate::{
    cli::{HealthProbeProxyConfig, logging},
    health_probe_proxy::{self, ProbeProxySettings},
};

/// Runs until SIGTERM or SIGINT.
pub(super) fn start(config: &HealthProbeProxyConfig) -> ExitCode {
    if let Err(error) = logging::install(&config.logging) {
        return fail(&error);
    }
    let settings = ProbeProxySettings { health_check_port: config.health_check_port, target_port: config.target_port };
    match run_on(single_threaded(), |stop| async move { health_probe_proxy::run(settings, &stop).await }) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => fail(&error),
        Err(error) => fail(&format!("cannot go on: {error}")),
    }
}

//! `acr-credential-provider`: responds to one request of the kubelet and exits.
//!
//! In: the validated command line, and the request on stdin. Out: the response on stdout, and nothing else there; an exit code. The
//! kubelet starts the program for each image that it pulls, so the startup is minimal.

use std::{io::Read, process::ExitCode, time::Duration};

use super::{
    app_error::AppError,
    process::{print, run_on, single_threaded},
};
use crate::{
    cli::{self, ImageCredentialOptions, logging},
    cloud_provider::Registry,
};

/// Time from the start to the response; the kubelet waits no longer than a minute.
const LIMIT: Duration = Duration::from_secs(60);
/// Maximum number of bytes of a request.
const MAX_REQUEST: u64 = 1 << 20;

/// Responds to the request on stdin.
pub(super) fn start(registry: &Registry, options: ImageCredentialOptions) -> Result<ExitCode, AppError> {
    logging::install(&options.logging)?;
    let response = run_on(single_threaded(), |_| respond(registry, options))??;
    Ok(print(&response, ExitCode::SUCCESS))
}

async fn respond(registry: &Registry, options: ImageCredentialOptions) -> Result<String, String> {
    let name = cli::ACR_CREDENTIAL_PROVIDER;
    let provide = registry.image_credentials(name).ok_or_else(|| format!("this program has no {name}"))?;
    let response = async { provide(options.config, request().await?).await };
    let limited = tokio::time::timeout(LIMIT, response).await;
    limited.unwrap_or_else(|_| Err(format!("no response within {} s", LIMIT.as_secs())))
}

/// Reads the request outside of the runtime's thread, so that the time limit applies if the kubelet sends nothing.
async fn request() -> Result<Vec<u8>, String> {
    let read = tokio::task::spawn_blocking(read_stdin).await.map_err(std::io::Error::other).flatten();
    let request = read.map_err(|error| format!("cannot read the request from standard input: {error}"))?;
    if request.len() as u64 > MAX_REQUEST {
        return Err(format!("request: more than {MAX_REQUEST} bytes"));
    }
    Ok(request)
}

fn read_stdin() -> std::io::Result<Vec<u8>> {
    let mut request = Vec::new();
    // One byte more than the maximum shows that the request is too large.
    std::io::stdin().lock().take(MAX_REQUEST + 1).read_to_end(&mut request)?;
    Ok(request)
}

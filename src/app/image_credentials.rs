//! `acr-credential-provider`: answers one request of the kubelet and ends.
//!
//! In: the command line, validated, and the request on stdin. Out: the response on stdout, and nothing else there; an exit code. The
//! kubelet starts it for each image that is pulled, so it does no more than the answer needs.

use std::{io::Read, process::ExitCode, time::Duration};

use super::{
    app_error::AppError,
    process::{print, run_on, single_threaded},
};
use crate::{
    cli::{self, ImageCredentialOptions, logging},
    cloud_provider::Registry,
};

/// From the start to the answer; the kubelet waits no longer than a minute.
const LIMIT: Duration = Duration::from_secs(60);
/// Most bytes of a request.
const LARGEST_REQUEST: u64 = 1 << 20;

/// Answers the request on stdin.
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
    limited.unwrap_or_else(|_| Err(format!("no answer within {} s", LIMIT.as_secs())))
}

/// Reads outside of the runtime's thread, so that the limit holds for a kubelet that becomes silent.
async fn request() -> Result<Vec<u8>, String> {
    let read = tokio::task::spawn_blocking(read_stdin).await.map_err(std::io::Error::other).flatten();
    let request = read.map_err(|error| format!("cannot read the request from standard input: {error}"))?;
    if request.len() as u64 > LARGEST_REQUEST {
        return Err(format!("request: more than {LARGEST_REQUEST} bytes"));
    }
    Ok(request)
}

fn read_stdin() -> std::io::Result<Vec<u8>> {
    let mut request = Vec::new();
    // One more than may be, to see that there is too much.
    std::io::stdin().lock().take(LARGEST_REQUEST + 1).read_to_end(&mut request)?;
    Ok(request)
}

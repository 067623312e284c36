//! Start of the provider, in the background and with retries until it succeeds.
//!
//! In: the provider and its context. Out: its progress, for readiness and the status page. If the provider fails or panics,
//! the process is not ready, but does not end.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;

use super::{CloudProvider, ProviderContext};
use crate::runtime::{backoff::ExponentialBackoff, shutdown::Shutdown, watch};

/// Result of the last attempt to start the provider; `None` before the first attempt ends.
pub type ProviderReadiness = Option<Result<(), String>>;

/// Initializes the provider in the background, with retries until it succeeds, and returns its progress.
///
/// The attempts end when `background` shuts down.
pub fn initialize(
    provider: Arc<dyn CloudProvider>,
    context: ProviderContext,
    background: &Shutdown,
) -> watch::Receiver<ProviderReadiness> {
    let (progress, ready) = watch::channel(None);
    let stop = background.clone();
    background.spawn(async move {
        let attempts = initialize_with_retries(provider.as_ref(), &context, &progress);
        if stop.run_until_begun(attempts).await.is_some() {
            // The sender must outlive all receivers.
            stop.begun().await;
        }
    });
    ready
}

async fn initialize_with_retries(
    provider: &dyn CloudProvider,
    context: &ProviderContext,
    progress: &watch::Sender<ProviderReadiness>,
) {
    const BACKOFF: ExponentialBackoff = ExponentialBackoff::doubling(Duration::from_secs(1), Duration::from_secs(60));
    let mut failures = 0;
    loop {
        let attempt = AssertUnwindSafe(provider.initialize(context.clone())).catch_unwind().await;
        let reason = match attempt {
            Ok(Ok(())) => break,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it panicked, see the log".to_owned(),
        };
        failures += 1;
        let delay = BACKOFF.delay(failures);
        tracing::error!(reason, retry_in = ?delay, "the cloud provider cannot be initialized");
        progress.send_replace(Some(Err(reason)));
        tokio::time::sleep(delay).await;
    }
    progress.send_replace(Some(Ok(())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cloud_provider::{CloudError, conformance},
        providers::fake::{CallName, FakeCloud, FakeConfig},
        runtime::leader_election::Leadership,
    };

    #[tokio::test(start_paused = true)]
    async fn a_failed_or_panicked_start_is_retried() {
        let cloud = FakeCloud::new(FakeConfig::parse("calls: {initialize: {panic: true, times: 1}}").unwrap());
        let context = conformance::context(Leadership::unopposed(), Shutdown::new(), &[], &[]).unwrap();
        let background = Shutdown::new();
        let mut ready = initialize(Arc::new(cloud.clone()), context.clone(), &background);
        ready.wait_for(|state| matches!(state, Some(Err(reason)) if reason.contains("panicked"))).await.unwrap();
        ready.wait_for(|state| *state == Some(Ok(()))).await.unwrap();

        cloud.fail_next(CallName::Initialize, &CloudError::failed("no network"), 1);
        let mut ready = initialize(Arc::new(cloud), context, &background);
        ready.wait_for(|state| *state == Some(Err("no network".to_owned()))).await.unwrap();
        background.begin();
        assert!(background.drain(Duration::from_secs(1)).await, "the task ends during a delay");
    }
}

//! The provider's start: in the background, again and again until it succeeds.
//!
//! In: the provider and what it is handed. Out: how far it is, for readiness and the status page. A provider that fails or panics
//! here costs readiness, never the process.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;

use super::{CloudProvider, ProviderContext};
use crate::runtime::{backoff::ExponentialBackoff, shutdown::Shutdown, watch};

/// Progress of the provider's start: `None` while it is in progress, then success or the last error.
pub type ProviderReadiness = Option<Result<(), String>>;

/// Initializes the provider in the background, with retries until it succeeds. Returns its progress.
pub fn initialize(
    provider: Arc<dyn CloudProvider>,
    context: ProviderContext,
    background: &Shutdown,
) -> watch::Receiver<ProviderReadiness> {
    let (progress, ready) = watch::channel(None);
    let stop = background.clone();
    background.spawn(async move {
        let attempts = until_initialised(provider.as_ref(), &context, &progress);
        if stop.run_until_begun(attempts).await.is_some() {
            // The sender must outlive all receivers.
            stop.begun().await;
        }
    });
    ready
}

async fn until_initialised(
    provider: &dyn CloudProvider,
    context: &ProviderContext,
    progress: &watch::Sender<ProviderReadiness>,
) {
    const PAUSE: ExponentialBackoff = ExponentialBackoff::doubling(Duration::from_secs(1), Duration::from_secs(60));
    let mut failures = 0;
    loop {
        let attempt = AssertUnwindSafe(provider.initialize(context.clone())).catch_unwind().await;
        let reason = match attempt {
            Ok(Ok(())) => break,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it panicked, see the log".to_owned(),
        };
        failures += 1;
        let delay = PAUSE.delay(failures);
        tracing::error!(reason, retry_in = ?delay, "the cloud provider cannot be initialised");
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
    async fn a_provider_that_fails_or_panics_at_its_start_is_tried_again() {
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
        assert!(background.drain(Duration::from_secs(1)).await, "it ends while it waits to try again");
    }
}

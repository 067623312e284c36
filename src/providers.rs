//! Providers. Each implements [`crate::cloud_provider`] and knows no controller.

#[cfg(feature = "azure")]
pub mod azure;
pub mod fake;

#[cfg(feature = "azure")]
use std::sync::Arc;

use crate::cloud_provider::Registry;

/// Returns the providers of this build.
pub fn registry() -> Registry {
    let registry =
        Registry::new().register(fake::PROVIDER_NAME, fake::factory).with_local(fake::PROVIDER_NAME, fake::local_factory);
    #[cfg(feature = "azure")]
    let registry = with_azure(registry);
    registry
}

#[cfg(feature = "azure")]
fn with_azure(registry: Registry) -> Registry {
    registry
        .register(azure::NAME, azure::factory)
        .with_diagnostics(azure::NAME, Arc::new(azure::diagnostics::AzureDiagnostics::default()))
        .with_local(azure::NAME, azure::local_factory)
        .with_image_credentials(azure::acr::PROGRAM, |config, request| {
            Box::pin(async move { azure::acr::provide(config, request).await.map_err(|error| error.to_string()) })
        })
        .with_metrics::<azure::metrics::AzureMetrics>()
        .with_topics(azure::topics::topics)
}

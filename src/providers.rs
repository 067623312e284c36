//! Providers. Each implements [`crate::cloud_provider`] and knows no controller.

pub mod azure;
pub mod fake;

use crate::cloud_provider::Registry;

/// The providers that ship.
pub fn registry() -> Registry {
    Registry::new()
        .register(azure::NAME, azure::factory)
        .with_check(azure::NAME, |request| Box::pin(azure::check::check(request)))
        .with_local(azure::NAME, azure::local_factory)
        .with_flags(azure::flags::TITLE, azure::flags::FLAGS)
        .with_metrics::<azure::metrics::AzureMetrics>()
        .with_topics(azure::topics::topics)
        .register(fake::PROVIDER_NAME, fake::factory)
        .with_local(fake::PROVIDER_NAME, fake::local_factory)
}

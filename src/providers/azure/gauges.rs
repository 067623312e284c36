//! Gauges that are brought up to date when the metrics are read: what the provider knows of itself at that moment.
//!
//! In: the session at work and why the newest configuration is not. Out: values of [`AzureMetrics`].

use tokio::time::Instant;

use super::{auth::ArmCredentials, metrics::AzureMetrics, session::Session};
use crate::{metrics::GaugeVec, runtime::clock::Clock};

/// Sources of the gauges.
pub(super) struct ProviderGauges<'a> {
    pub(super) metrics: &'a AzureMetrics,
    pub(super) clock: Clock,
}

impl ProviderGauges<'_> {
    pub(super) fn publish(&self, session: Option<&Session>, is_refused: bool) {
        let rows = &self.metrics.rows;
        set(&rows.configuration_refused, &[], Some(if is_refused { 1.0 } else { 0.0 }));
        set(&rows.inventory_age, &[], session.and_then(|session| session.inventory.age()).map(|age| age.as_secs_f64()));
        if let Some(session) = session {
            self.credentials(&session.credentials);
        }
    }

    fn credentials(&self, credentials: &ArmCredentials) {
        let rows = &self.metrics.rows;
        let compute = credentials.compute.expiry();
        set(&rows.token_expiration, &["compute"], compute.token.map(|end| self.unix_time(end)));
        set(&rows.token_expiration, &["network"], credentials.network.expiry().token.map(|end| self.unix_time(end)));
        let auxiliary = credentials.auxiliary.as_ref().and_then(|source| source.expiry().token);
        set(&rows.token_expiration, &["auxiliary"], auxiliary.map(|end| self.unix_time(end)));
        #[expect(clippy::cast_precision_loss, reason = "a time is far below 2⁵³")]
        set(&rows.client_certificate_expiration, &[], compute.certificate.map(|end| end as f64));
    }

    /// Returns a moment of the monotonic clock as the wall shows it.
    fn unix_time(&self, end: Instant) -> f64 {
        let now = self.clock.now();
        let (remaining, over) = (end.saturating_duration_since(now), now.saturating_duration_since(end));
        self.clock.wall().as_duration().as_secs_f64() + remaining.as_secs_f64() - over.as_secs_f64()
    }
}

/// Sets a gauge. An unknown value has no series: 0 would be a known one.
fn set(gauge: &GaugeVec, labels: &[&str], value: Option<f64>) {
    match value {
        Some(value) => gauge.with_label_values(labels).set(value),
        // One that was never set is not there.
        None => drop(gauge.remove_label_values(labels)),
    }
}

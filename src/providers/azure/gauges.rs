//! Gauges of the provider's own state, updated when the metrics are read.
//!
//! In: the current session, and whether the newest configuration is refused. Out: values of [`AzureMetrics`].

use tokio::time::Instant;

use super::{auth::ArmCredentials, metrics::AzureMetrics, session::Session};
use crate::{metrics::GaugeVec, runtime::clock::Clock};

/// Sets the gauges. `is_refused`: the newest configuration is not in use.
pub(super) fn publish(metrics: &AzureMetrics, clock: Clock, session: Option<&Session>, is_refused: bool) {
    let rows = &metrics.rows;
    set(&rows.configuration_refused, &[], Some(if is_refused { 1.0 } else { 0.0 }));
    set(&rows.inventory_age, &[], session.and_then(|session| session.inventory.age()).map(|age| age.as_secs_f64()));
    let Some(Session { credentials: ArmCredentials { compute, network, auxiliary }, .. }) = session else { return };
    for (usage, source) in [("compute", Some(compute)), ("network", Some(network)), ("auxiliary", auxiliary.as_ref())] {
        let end = source.and_then(|source| source.expiry().token);
        set(&rows.token_expiration, &[usage], end.map(|end| unix_time(clock, end)));
    }
    #[expect(clippy::cast_precision_loss, reason = "a time is far below 2⁵³")]
    set(&rows.client_certificate_expiration, &[], compute.expiry().certificate.map(|end| end as f64));
}

/// Returns an instant of the monotonic clock as Unix time.
fn unix_time(clock: Clock, end: Instant) -> f64 {
    let now = clock.now();
    let (remaining, over) = (end.saturating_duration_since(now), now.saturating_duration_since(end));
    clock.wall().as_duration().as_secs_f64() + remaining.as_secs_f64() - over.as_secs_f64()
}

/// Sets a gauge, or removes its series if the value is unknown: 0 would be a value.
fn set(gauge: &GaugeVec, labels: &[&str], value: Option<f64>) {
    match value {
        Some(value) => gauge.with_label_values(labels).set(value),
        // Removing a series that was never set fails.
        None => drop(gauge.remove_label_values(labels)),
    }
}
